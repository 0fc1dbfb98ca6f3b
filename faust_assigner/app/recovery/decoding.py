"""Checks for many changelog records at once whether they decode.

Faust decodes one value through fifteen nested calls, which cost more than all other steps of the
replay. This module joins JSON texts to one list and parses the list with one call. Records with a
custom serializer, and batches with a bad record, are checked record by record. The result is always
the same as Faust's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from faust.serializers import codecs
from faust.serializers.registry import Registry
from faust.serializers.schemas import Schema
from faust.utils import json as faust_json

from faust_assigner.app.recovery.unreadable import Reason, reason_of
from faust_assigner.snapshots.json_rows import JSON, RAW, parse_json
from faust_assigner.snapshots.manifest import Manifest
from faust_assigner.snapshots.sst import OFFSET_KEY, read_items

if TYPE_CHECKING:
    from faust.types.tables import CollectionT

#: Type of a table's keys or values -> the JSON types that always convert. Raw bytes convert
#: only to bytes.
_TAKES: Mapping[object, frozenset[str]] = {
    str: frozenset({"str"}),
    int: frozenset({"int"}),
    float: frozenset({"float"}),
    None: frozenset({"str", "int", "float", "bool", "NoneType"}),
}
#: The number of rows of a snapshot that are checked together.
_ROWS = 8192


@dataclass(frozen=True)
class Decoding:
    """How records of one changelog decode.

    ``reason`` returns the error that keeps a record out of its table, or None. ``all_decode(keys,
    values)`` is true only if no record has such an error; keys and values are never None.
    """

    reason: Reason
    all_decode: Callable[[Sequence[bytes], Sequence[bytes]], bool] = lambda keys, values: False
    #: The codecs of keys and values, as snapshots name them; None means any other serializer.
    codecs: tuple[str | None, str | None] = (None, None)
    #: The types of keys and values; None means that the codec's result is not converted.
    types: tuple[Any, Any] = (None, None)


#: The decoding that accepts every record of a changelog.
ANYTHING = Decoding(lambda record: None, lambda keys, values: True, (JSON, JSON))


def decoding_of(table: CollectionT) -> Decoding:
    """Return the decoding of the table's changelog.

    Cost of ``all_decode``: about 0.5 us per record of texts or numbers.
    """
    registry, schema = table.app.serializers, table.changelog_topic.schema
    if type(registry) is not Registry or type(schema) is not Schema:
        return Decoding(reason_of(table))  # the app's own class, whose behavior is unknown
    keys = _payload_parser(schema.key_serializer or registry.key_serializer)
    raw = "raw" if schema.value_type in (str, bytes) else None  # Faust's codec for these types
    values = _payload_parser(schema.value_serializer or registry.value_serializer or raw)
    if keys is None or values is None:
        return Decoding(reason_of(table))

    def all_decode(some_keys: Sequence[bytes], some_values: Sequence[bytes]) -> bool:
        return _do_payloads_convert(
            registry, schema.key_type, some_keys, keys
        ) and _do_payloads_convert(registry, schema.value_type, some_values, values)

    codecs_of: dict[object, str] = {_parse_json: JSON, _raw_payloads: RAW}
    return Decoding(
        reason_of(table),
        all_decode,
        (codecs_of[keys], codecs_of[values]),
        (schema.key_type, schema.value_type),
    )


def refusal_of_rows(
    decoding: Decoding, manifest: Manifest, paths: Sequence[Path], folder: Path
) -> str | None:
    """Return the reason why the snapshot's rows differ from the rows of a replay; None if they are
    equal.

    Cost: none if the manifest's types prove that every row decodes, else a copy of the files in
    ``folder`` and about 1 us per row of texts or numbers.
    """
    found = (manifest.key_types, manifest.value_types)
    for part, codec, types in zip(("key", "value"), decoding.codecs, found, strict=True):
        if types is not None and codec != JSON:
            return (
                f"it was taken with --{part}-codec json, but the table's {part}s are not JSON: take it "
                f"with --{part}-codec raw"
            )
    if all(map(_always_decodes, decoding.codecs, decoding.types, found)):
        return None
    rows = (row for row in read_items(paths, folder) if row[0] != OFFSET_KEY)
    while some := list(itertools.islice(rows, _ROWS)):
        if not decoding.all_decode([key for key, _ in some], [value for _, value in some]):
            for key, value in some:
                error = decoding.reason(SimpleNamespace(key=key, value=value, headers=()))
                if error is not None:
                    return f"the row of key {key!r} does not decode as the table's: {error!r}"
    return None


def _always_decodes(codec: str | None, kind: object, types: Sequence[str] | None) -> bool:
    """Whether every payload of these JSON types decodes; ``types`` is None for arbitrary bytes."""
    if types is None:
        return codec == RAW and kind in (bytes, None)
    # orjson refuses some texts that the snapshot's parser accepts: with orjson, check each row.
    return getattr(faust_json, "orjson", None) is None and _TAKES.get(kind, frozenset()).issuperset(
        types
    )


def _payload_parser(
    serializer: object,
) -> Callable[[Sequence[bytes]], Sequence[object] | None] | None:
    """Return a parser of many payloads; None if the serializer is neither plain JSON nor raw bytes."""
    if not serializer:
        return _raw_payloads
    try:
        codec = codecs.get_codec(serializer)
    except Exception:
        return None  # the check of each record then raises this error
    if getattr(codec, "children", ()):
        return None
    plain = {codecs.json: _parse_json, codecs.raw: _raw_payloads}
    return plain.get(type(codec))


def _raw_payloads(payloads: Sequence[bytes]) -> Sequence[bytes]:
    return payloads


def _parse_json(payloads: Sequence[bytes]) -> Sequence[object] | None:
    """Return each payload's value; None if a payload is not one JSON text. Raises parser errors."""
    return parse_json(payloads, faust_json.loads)


def _do_payloads_convert(
    registry: Registry,
    kind: object,
    payloads: Sequence[bytes],
    parse: Callable[[Sequence[bytes]], Sequence[object] | None],
) -> bool:
    """Whether all payloads are parsed and convert to the table's type."""
    try:
        parsed = parse(payloads)
        if parsed is None:
            return False
        if kind in (str, int, float):
            # Values of this type need no conversion.
            parsed = [each for each in parsed if type(each) is not kind]
        for each in parsed:
            registry._prepare_payload(kind, each)
    except Exception:
        return False  # the caller then checks each record to find the bad record
    return True
