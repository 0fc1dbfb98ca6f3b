"""Whether changelog records decode, asked of many at once.

Faust's way to one value is fifteen calls deep, and costs more than all else that a replay does with a record.
JSON texts joined to one list are one call of the parser. Whatever is not plain Faust, or not all right, is
asked about record by record: the answer is Faust's own in any case.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from faust.serializers import codecs
from faust.serializers.registry import Registry
from faust.serializers.schemas import Schema
from faust.utils import json as faust_json

from faust_assigner.app.restore.unreadable import Reason, reason_of

#: Between two texts of a list. Nobody knows it who wrote a record, so it stands where it was put: a text that
#: is no value by itself cannot take it in, or make up for one that did.
_FENCE = secrets.token_hex(16)
_BETWEEN = f",{json.dumps(_FENCE)},".encode()


@dataclass(frozen=True)
class Decoding:
    """How records of one changelog decode.

    ``reason`` is why one record cannot be in its table, or None. ``all_decode(keys, values)`` is true only
    where each of them has none; no key and no value of them is None.
    """

    reason: Reason
    all_decode: Callable[[Sequence[bytes], Sequence[bytes]], bool] = lambda keys, values: False


#: Of a changelog whose every record is good.
ANYTHING = Decoding(lambda record: None, lambda keys, values: True)


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

    return Decoding(reason_of(table), all_decode)


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
    if not payloads:
        return ()
    found = faust_json.loads((b"[" + _BETWEEN.join(payloads) + b"]").decode())
    alternate = len(found) == 2 * len(payloads) - 1 and found[1::2] == [_FENCE] * (
        len(payloads) - 1
    )
    return found[::2] if alternate else None


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
