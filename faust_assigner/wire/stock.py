"""Reads and writes the JSON of Faust's own ("stock") assignor, and our extra key in it."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims
from faust_assigner.wire.bounded import LARGEST_INT, TOPICS, URL_CHARS, read_label
from faust_assigner.wire.directory import ByUrl
from faust_assigner.wire.runs import Runs

#: The key of this package's data in the JSON.
KEY: Final = "faust_assigner"


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
