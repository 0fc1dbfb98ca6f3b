"""Encode responses of all versions: values by kio's field names become bytes, mostly without copies."""

from __future__ import annotations

import datetime
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, Final, cast

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_schema_field_type,
    is_optional,
)
from kio.static.constants import uuid_zero

MESSAGE_CHARS: Final = 1_000  # of an error message in an answer


class Chain:
    """Opaque bytes of an answer as a sequence of parts; joining the parts would copy them."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts
        self.size = sum(map(len, parts))

    def __len__(self) -> int:
        return self.size


class Pieces:
    """The output to which kio writes, as a list of pieces instead of one growing buffer."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._open = bytearray()

    def write(self, data: bytes | Chain) -> None:
        """Append bytes, or the parts of a chain without copying them."""
        if type(data) is Chain:
            if data.size:
                self._done += (bytes(self._open), *data.parts)
                self._open.clear()
        else:
            self._open += cast(bytes, data)

    def finish(self) -> list[bytes]:
        """Return all written bytes, in pieces."""
        return [*self._done, bytes(self._open)]


Build = Callable[[Mapping[str, object]], Any]


@functools.cache
def _response_builder(entity: type[Any]) -> Build:
    plan: list[tuple[str, Callable[[Any], Any] | None, Any]] = []
    for item in fields(entity):
        kind = classify_field(item)
        convert: Callable[[Any], Any] | None = None
        if isinstance(kind, EntityTupleField):
            convert = _build_each(_response_builder(kind.type_))
        elif isinstance(kind, EntityField):
            convert = _response_builder(kind.type_)
        elif get_schema_field_type(item) == "error_code":
            convert = ErrorCode
        elif item.name.endswith("error_message"):
            convert = _shortened
        plan.append((item.name, convert, _implicit_default(item, kind.is_array)))

    def build(values: Mapping[str, object]) -> Any:
        arguments = {}
        for name, convert, default in plan:
            value = values.get(name, default)
            if convert is not None and value is not None and value is not default:
                value = convert(value)
            arguments[name] = value
        return entity(**arguments)

    return build


def _shortened(message: str) -> str:
    """Return the beginning of a message, which may repeat a name of 32 KB from the request."""
    return message[:MESSAGE_CHARS]


def _build_each(build: Build) -> Callable[[Any], Any]:
    return lambda items: tuple(build(item) for item in items)


def _implicit_default(item: Field[Any], is_array: bool) -> Any:
    if item.default is not MISSING:
        return item.default
    if is_array:
        return ()
    kind = get_schema_field_type(item) if "kafka_type" in item.metadata else ""
    if is_optional(item):
        return None
    return {
        "string": "",
        "bytes": b"",
        "records": b"",
        "bool": False,
        "error_code": ErrorCode.none,
        "timedelta_i32": datetime.timedelta(0),
        "timedelta_i64": datetime.timedelta(0),
        "datetime_i64": datetime.datetime.fromtimestamp(0, datetime.UTC),
        "uuid": uuid_zero,
    }.get(kind, 0)


def encode_response(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """Return a whole response frame, including its size, with the correlation id 0.

    Values of fields that the version lacks are ignored.
    """
    return b"".join(encode_pieces(api_key, version, 0, values))


def encode_pieces(
    api_key: int, version: int, correlation_id: int, values: Mapping[str, object]
) -> list[bytes]:
    """Return a response frame in pieces; the parts of a :class:`Chain` are not copied."""
    is_tagged, build, write = _response_writer(api_key, version)
    out = Pieces()
    out.write(struct.pack(">i", correlation_id) + (b"\0" if is_tagged else b""))
    write(out, build(values))
    pieces = out.finish()
    return [struct.pack(">i", sum(map(len, pieces))) + pieces[0], *pieces[1:]]


@functools.cache
def _response_writer(api_key: int, version: int) -> tuple[bool, Build, Callable[[Any, Any], None]]:
    """Return whether the header has tagged fields, the builder and the writer of a response."""
    schema = load_response_schema(api_key, version)
    return schema.__header_schema__.__flexible__, _response_builder(schema), entity_writer(schema)


def is_long(values: Any, elements: int, size: int) -> bool:
    """Whether an answer has more than ``elements`` elements, or more than ``size`` bytes and characters.

    Cost: the count stops at the first limit that is exceeded.
    """
    waiting = [values]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is dict:
            waiting.extend(v for v in value.values() if type(v) in _CONTAINERS)
        elif kind is bytes or kind is str:
            size -= len(value)
        else:
            elements -= len(value)
            if elements >= 0 and value and type(value[0]) in _CONTAINERS:
                waiting.extend(value)
        if elements < 0 or size < 0:
            return True
    return False


_CONTAINERS: Final = frozenset((dict, list, tuple, bytes, str))
