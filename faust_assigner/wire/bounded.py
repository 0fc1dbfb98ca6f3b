"""Reads untrusted bytes within limits on every loop, recursion and allocation; the JSON of Faust's assignor.

Members of one group may use Faust's own ("stock") assignor or this package. Both read the same JSON, in which
our data have a key of their own.

The limits are public; docs/explanation/algorithms.md#limits-of-what-is-read explains the effect of a wrong
limit. Each refusal is a :class:`MetadataRefused` that names the exceeded limit or the wrong shape, but does
not quote the bytes.
"""

from __future__ import annotations

import binascii
import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterable, Iterable
from typing import Any, Final, NoReturn, TypeAlias

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims
from faust_assigner.wire.runs import Runs

#: The key of this package's data in the JSON.
KEY: Final = "faust_assigner"
#: URL -> topic -> partitions, as Faust's router reads it.
ByUrl: TypeAlias = dict[str, dict[str, list[int]]]

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


async def read_at_most(chunks: AsyncIterable[bytes], limit: int) -> bytes | None:
    """Return the joined ``chunks``; None as soon as they have more than ``limit`` bytes."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


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


# -- the JSON of stock Faust, with our key


def pack_value(version: int, fields: bytes | bytearray) -> str:
    """Return our key's value ``"<version>:<base64>"``."""
    return f"{version}:{b64encode(fields).decode()}"


def split_value(value: object) -> tuple[int, bytes]:
    """Split ``"<version>:<base64>"`` into (version, bytes)."""
    if type(value) is not str:
        raise MetadataRefused(f"{KEY} is a {type(value).__name__}, not a text")
    version, colon, text = value.partition(":")
    if (
        not colon
        or not (version.isascii() and version.isdigit())
        or len(version) > 4
        or int(version) < 1
    ):
        raise MetadataRefused(f"{KEY} has no version")
    return int(version), decode_base64(text)


def decode_base64(text: str) -> bytes:
    """Decode strict base64. Raises :class:`MetadataRefused`."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MetadataRefused("not base64") from None


def plain_claims(claims: Claims) -> dict[str, list[int]]:
    """Return claims as stock Faust writes them, without topics that have no partitions."""
    found = {topic: list(Runs.of(claims[topic])) for topic in sorted(claims)}
    return {topic: numbers for topic, numbers in found.items() if numbers}


def read_stock_claims(assignment: object) -> tuple[dict[str, Runs], dict[str, Runs]]:
    """Check and return stock Faust's ``{"actives": {topic: [numbers]}, "standbys": {...}}``."""
    if not isinstance(assignment, dict):
        raise MetadataRefused(f"assignment is a {type(assignment).__name__}, not an object")
    return _read_topics(assignment.get("actives"), "actives"), _read_topics(
        assignment.get("standbys"), "standbys"
    )


def _read_topics(value: object, what: str) -> dict[str, Runs]:
    topics = _topics_object(value, what)
    return {topic: _read_numbers(numbers, what) for topic, numbers in topics.items()}


def _topics_object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > TOPICS:
        raise MetadataRefused(f"{what} is not an object of at most {TOPICS} topics")
    return value


def _read_numbers(value: object, what: str) -> Runs:
    if not isinstance(value, list) or not _are_whole_numbers(value):
        raise MetadataRefused(f"{what} has a value that is not a list of whole numbers")
    if value and not 0 <= min(value) <= max(value) <= LARGEST_INT:
        raise MetadataRefused(f"{what} has a partition outside 0..{LARGEST_INT}")
    return Runs.of(value)


def _are_whole_numbers(values: Iterable[object]) -> bool:
    # Compare exact types, because a bool is also an instance of int.
    return set(map(type, values)) <= {int}


def read_group_ids(value: object) -> dict[str, int]:
    """Check and return stock Faust's optional ``topic_groups``: topic -> group id."""
    if value is None:
        return {}
    ids = _topics_object(value, "topic_groups")
    if not _are_whole_numbers(ids.values()) or any(not 0 <= v <= LARGEST_INT for v in ids.values()):
        raise MetadataRefused("topic_groups has a value that is not a group id")
    return dict(ids)


def read_distribution(value: object) -> ByUrl:
    """Check and return one of stock Faust's optional distributions: URL -> topic -> partitions."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MetadataRefused(f"a distribution is a {type(value).__name__}, not an object")
    found: ByUrl = {}
    for url, topics in value.items():
        claims = _read_topics(topics, "actives")
        found[read_label(url, "url", chars=URL_CHARS)] = {
            t: list(runs) for t, runs in claims.items()
        }
    if len(found) > TOPICS:
        raise MetadataRefused(f"{len(found)} URLs, the limit is {TOPICS}")
    return found
