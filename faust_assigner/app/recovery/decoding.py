"""Whether changelog records decode, asked of many at once.

Faust's way to one value is fifteen calls deep, and costs more than all else that a replay does with a record.
JSON texts joined to one list are one call of the parser. Whatever is not plain Faust, or not all right, is
asked about record by record: the answer is Faust's own in any case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from faust.serializers import codecs
from faust.serializers.registry import Registry
from faust.serializers.schemas import Schema
from faust.utils import json as faust_json

from faust_assigner.app.recovery.unreadable import Reason, reason_of
from faust_assigner.snapshots.json_rows import JSON, RAW, parse_json
from faust_assigner.snapshots.manifest import Manifest
from faust_assigner.snapshots.sst import OFFSET_KEY, read_items

#: What a table's type takes without fail: of JSON these types of values, of raw bytes none but its own.
_TAKES: Mapping[Any, frozenset[str]] = {
    str: frozenset({"str"}),
    int: frozenset({"int"}),
    float: frozenset({"float"}),
    None: frozenset({"str", "int", "float", "bool", "NoneType"}),
}
#: Rows of a snapshot that are checked with one call.
_ROWS = 8192


@dataclass(frozen=True)
class Decoding:
    """How records of one changelog decode.

    ``reason`` is why one record cannot be in its table, or None. ``all_decode(keys, values)`` is true only
    where each of them has none; no key and no value of them is None.
    """

    reason: Reason
    all_decode: Callable[[Sequence[bytes], Sequence[bytes]], bool] = lambda keys, values: False
    #: The codecs of keys and values, as snapshots name them; None: another serializer.
    codecs: tuple[str | None, str | None] = (None, None)
    #: The types of keys and values; None: whatever the codec gives.
    types: tuple[Any, Any] = (None, None)


#: Of a changelog whose every record is good.
ANYTHING = Decoding(lambda record: None, lambda keys, values: True, (JSON, JSON))


def decoding_of(table: Any) -> Decoding:
    """Of the table's changelog. Cost of ``all_decode``: about 0.5 us a record of texts or numbers."""
    registry, schema = table.app.serializers, table.changelog_topic.schema
    if type(registry) is not Registry or type(schema) is not Schema:
        return Decoding(reason_of(table))  # someone's own, who may do anything
    keys = _parser(schema.key_serializer or registry.key_serializer)
    values = _parser(
        registry._serializer(schema.value_type, schema.value_serializer, registry.value_serializer)
    )
    if keys is None or values is None:
        return Decoding(reason_of(table))

    def all_decode(some_keys: Sequence[bytes], some_values: Sequence[bytes]) -> bool:
        return _fit(registry, schema.key_type, some_keys, keys) and _fit(
            registry, schema.value_type, some_values, values
        )

    codecs_of: dict[Any, str] = {_from_json: JSON, _as_they_are: RAW}
    return Decoding(
        reason_of(table),
        all_decode,
        (codecs_of[keys], codecs_of[values]),
        (schema.key_type, schema.value_type),
    )


def refusal_of_rows(decoding: Decoding, manifest: Manifest, paths: Sequence[Path]) -> str | None:
    """Why the snapshot in ``paths`` holds other rows than a replay would leave, or None.

    Cost: nothing where the manifest's types prove that every row decodes, else about 1 us a row of texts or
    numbers.
    """
    found = (manifest.key_types, manifest.value_types)
    for part, codec, types in zip(("key", "value"), decoding.codecs, found, strict=True):
        if types is not None and codec != JSON:
            return (
                f"it was taken with --{part}-codec json, but the table's {part}s are not JSON: take it "
                f"with --{part}-codec raw"
            )
    if all(map(_is_proven, decoding.codecs, decoding.types, found)):
        return None
    rows = (row for row in read_items(paths) if row[0] != OFFSET_KEY)
    while some := list(itertools.islice(rows, _ROWS)):
        if not decoding.all_decode([key for key, _ in some], [value for _, value in some]):
            for key, value in some:
                error = decoding.reason(SimpleNamespace(key=key, value=value, headers=()))
                if error is not None:
                    return f"the row of key {key!r} does not decode as the table's: {error!r}"
    return None


def _is_proven(codec: str | None, kind: Any, types: Sequence[str] | None) -> bool:
    """Whether every payload of these JSON types (None: of any bytes) decodes."""
    if types is None:
        return codec == RAW and kind in (bytes, None)
    # Other parsers than Python's own refuse some of what the snapshot's took: each row is asked about.
    return getattr(faust_json, "orjson", None) is None and _TAKES.get(kind, frozenset()).issuperset(
        types
    )


def _parser(serializer: Any) -> Callable[[Sequence[bytes]], Sequence[Any] | None] | None:
    """Parses many payloads; None for it where the serializer is not one of the plain two."""
    if not serializer:
        return _as_they_are
    try:
        codec = codecs.get_codec(serializer)
    except Exception:
        return None  # each record will say so
    if getattr(codec, "children", ()):
        return None
    plain = {codecs.json: _from_json, codecs.raw: _as_they_are}
    return plain.get(type(codec))


def _as_they_are(payloads: Sequence[bytes]) -> Sequence[bytes]:
    return payloads


def _from_json(payloads: Sequence[bytes]) -> Sequence[Any] | None:
    """Each payload's value, None where some payload is not one JSON text. Raises what the parser does."""
    return parse_json(payloads, faust_json.loads)


def _fit(
    registry: Registry,
    kind: Any,
    payloads: Sequence[bytes],
    parse: Callable[[Sequence[bytes]], Sequence[Any] | None],
) -> bool:
    """Whether all are parsed and can be made what the table holds."""
    try:
        parsed = parse(payloads)
        if parsed is None:
            return False
        if kind in (str, int, float):
            parsed = [each for each in parsed if type(each) is not kind]  # it is one already
        for each in parsed:
            registry._prepare_payload(kind, each)
    except Exception:
        return False  # the record it is about is found one by one
    return True
