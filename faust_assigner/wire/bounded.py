"""Reads untrusted bytes within limits on every loop, recursion and allocation.

The limits are public; docs/explanation/algorithms.md#limits-of-what-is-read explains the effect of a wrong
limit. Each refusal is a :class:`MetadataRefused` that names the exceeded limit or the wrong shape, but does
not quote the bytes.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import NoReturn

from faust_assigner.errors import MetadataRefused

#: The maximum sizes of a member's user_data, and of an unpacked answer, and the maximum depth of JSON.
USER_DATA_BYTES = 256 * 1024
UNPACKED_BYTES = 4 * 1024 * 1024
JSON_DEPTH = 16

#: The maximum lengths of names and URLs, and the maximum counts, in the metadata.
NAME_CHARS = 249  # Kafka's own limit for a topic name
URL_CHARS = 2048
LABEL_CHARS = 255  # for an instance id, a rack id and a version
TOPICS = 10_000
SETS = 20_000
LARGEST_INT = 2**31 - 1

#: Matches a JSON string. An unterminated string matches up to the end of the data. Otherwise the search would
#: start again at each of its escaped quotes, which takes quadratic time.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(b for b in range(256) if b not in b"[]{}")
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_CONTROL = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")


def read_json(data: bytes, *, limit: int = USER_DATA_BYTES) -> dict[str, object]:
    """Parse a JSON object of at most ``limit`` bytes and depth 16; refuse ``NaN`` and ``Infinity``.

    Cost: linear in the number of bytes, in C code.
    """
    if len(data) > limit:
        raise MetadataRefused(f"{len(data)} bytes, the limit is {limit}")
    if data.count(b"[") + data.count(b"{") > JSON_DEPTH:
        _check_depth(data)
    try:
        value = _DECODER.decode(data.decode("utf-8"))
    except MetadataRefused:
        raise
    except (ValueError, RecursionError, MemoryError) as exc:
        raise MetadataRefused(f"not JSON: {type(exc).__name__}") from None
    if not isinstance(value, dict):
        raise MetadataRefused(f"the JSON is a {type(value).__name__}, not an object")
    return value


def _check_depth(data: bytes) -> None:
    # Reduce the document to its brackets outside strings. If its depth is n, the result is empty after
    # n rounds that remove adjacent pairs of brackets.
    brackets = _STRING.sub(b"", data).translate(_ONE_KIND, _NOT_BRACKETS)
    size = -1
    for _ in range(JSON_DEPTH):
        if len(brackets) == size:
            break  # the remaining brackets are unbalanced
        size = len(brackets)
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise MetadataRefused(f"the JSON is nested deeper than {JSON_DEPTH}")


def _refuse_constant(name: str) -> NoReturn:
    raise MetadataRefused(f"the JSON contains {name}")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def unpack(data: bytes, *, limit: int = UNPACKED_BYTES) -> bytes:
    """Unpack zlib data to at most ``limit`` bytes, without more memory than that."""
    if len(data) > limit:
        raise MetadataRefused(f"{len(data)} compressed bytes, the limit is {limit}")
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, limit)
    except zlib.error as exc:
        raise MetadataRefused(f"not zlib data: {type(exc).__name__}") from None
    if stream.unconsumed_tail or not stream.eof:
        # Either the data is above the limit, or its end was cut off. Try to unpack one more byte.
        more = b""
        if stream.unconsumed_tail:
            more = stream.decompress(stream.unconsumed_tail, 1)
        if more or not stream.eof:
            raise MetadataRefused(
                f"the zlib data is cut off, or unpacks to more than {limit} bytes"
            )
    return plain


def read_label(value: object, what: str, *, chars: int = LABEL_CHARS) -> str:
    """Return the text ``value`` if it is short, without control characters, blanks and lone surrogates.
    Raises :class:`MetadataRefused`; ``what`` names the text in the error.
    """
    if type(value) is not str:
        raise MetadataRefused(f"{what} is a {type(value).__name__}, not a text")
    if len(value) > chars:
        raise MetadataRefused(f"{what} of {len(value)} characters, the limit is {chars}")
    if _CONTROL.search(value):
        raise MetadataRefused(f"{what} contains a blank or control character")
    return value
