"""Decode requests with kio, after the check of :mod:`faust_assigner.broker.request_walk`."""

from __future__ import annotations

import datetime
import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kio.index import KioIndexError, load_request_schema
from kio.serial import entity_reader

from faust_assigner.broker.limits import INLINE_ELEMENTS, MAX_ARRAY_ELEMENTS
from faust_assigner.broker.request_walk import (
    LongRequest,
    MalformedFrame,
    Shape,
    Walk,
    entity_shape,
    tag_section,
)

MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body: int  # the position at which the message begins


def read_header(frame: bytes) -> RequestHeader:
    """Read the header of a request frame (without its size). Raises MalformedFrame."""
    try:
        api_key, version, correlation, length = struct.unpack_from(">hhih", frame)
        position = 10 + max(length, 0)
        if length < -1 or position > len(frame):
            raise MalformedFrame(
                f"the client id claims {length} bytes, beyond the end of the frame or below -1"
            )
        client_id = frame[10:position].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedFrame(f"bad request header: {error}") from None
    if _is_flexible(api_key, version):
        try:
            position = tag_section({}).skip(Walk(frame, INLINE_ELEMENTS), position)
        except LongRequest:
            raise MalformedFrame("the header has too many tagged fields") from None
    return RequestHeader(api_key, version, correlation, client_id, position)


@functools.lru_cache(maxsize=1024)
def _is_flexible(api_key: int, version: int) -> bool:
    """Whether a request version has tagged fields (and so header version 2); False if unknown."""
    try:
        return bool(load_request_schema(api_key, version).__flexible__)
    except KioIndexError:
        return False


def read_request(header: RequestHeader, frame: bytes, *, limit: int = MAX_ARRAY_ELEMENTS) -> Any:
    """Decode the request after its header; the errors are those of :func:`decode_request`."""
    return decode_request(header.api_key, header.api_version, frame, header.body, limit=limit)


def decode_request(
    api_key: int, version: int, frame: bytes, position: int, *, limit: int = MAX_ARRAY_ELEMENTS
) -> Any:
    """Decode the message in ``frame`` from ``position`` on.

    Raises MalformedFrame, NullArray, and LongRequest if the message has more than ``limit`` elements.
    """
    schema, shape, read = _request_reader(api_key, version)
    walk = Walk(frame, limit)
    shape.skip(walk, position)  # trailing bytes are ignored: librdkafka 2.16 sends 3 extra bytes
    if walk.cuts:
        frame = _cut_out(frame, walk.cuts)
    try:
        message, _ = read(frame, position)
    except Exception as error:
        raise MalformedFrame(f"{schema.__name__} v{version}: {error}") from None
    return message


@functools.cache
def _request_reader(
    api_key: int, version: int
) -> tuple[type[Any], Shape, Callable[[bytes, int], tuple[Any, int]]]:
    """Return schema, shape and reader of a request; kio would look them up by name each time."""
    schema = load_request_schema(api_key, version)
    return schema, entity_shape(schema), entity_reader(schema)


def _cut_out(frame: bytes, cuts: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Return the frame with the pieces (start, stop) replaced, in one pass."""
    pieces: list[bytes] = []
    position = 0
    for start, stop, kept in cuts:
        pieces += (frame[position:start], kept)
        position = stop
    return b"".join((*pieces, frame[position:]))


def milliseconds(span: datetime.timedelta) -> int:
    """Convert a time span of kio to ms."""
    return span // MILLISECOND
