"""ConsumerProtocol: the bytes that classic consumers put into JoinGroup and get from SyncGroup.

A classic group reads only the topic names, because offsets of subscribed topics do not expire. A consumer
group with classic members reads their metadata and writes their assignments. Every version is a prefix of
the next version, so fields of unknown versions are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
MAX_ENTRIES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """A classic consumer's metadata. ``owned`` exists since version 1, ``rack_id`` since version 3."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rack_id: str | None = None


class _Reader:
    """A cursor that raises ``struct.error`` or ``UnicodeDecodeError`` on bytes of a different format."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def count(self, least_bytes: int) -> int:
        """Read the length of an array with entries of at least ``least_bytes`` each."""
        count = self.number(">i")
        if not 0 <= count <= min(MAX_ENTRIES, (len(self.data) - self.position) // least_bytes):
            raise struct.error("an array length is out of range")
        return count

    def text(self, length: int) -> str:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise struct.error("a string length is out of range")
        found = self.data[self.position : end].decode()
        self.position = end
        return found

    def skip_bytes(self) -> None:
        length = self.number(">i")
        if length > len(self.data) - self.position:
            raise struct.error("a length of bytes is out of range")
        self.position += max(length, 0)

    def partitions(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(self.count(6)):
            topic = self.text(self.number(">h"))
            numbers = (self.number(">i") for _ in range(self.count(4)))
            found[topic] = tuple(sorted({n for n in numbers if n >= 0} | set(found.get(topic, ()))))
        return found


def read_subscription(metadata: bytes) -> Subscription | None:
    """Parse a ConsumerProtocol subscription; None for invalid bytes.

    >>> read_subscription(bytes.fromhex("0000 00000001 0003 666f6f ffffffff")).topics
    ('foo',)
    >>> read_subscription(b"junk") is None
    True
    """
    try:
        reader = _Reader(metadata)
        version = reader.number(">h")
        if version < 0:
            return None
        topics = tuple(reader.text(reader.number(">h")) for _ in range(reader.count(2)))
        owned: dict[str, tuple[int, ...]] = {}
        rack_id = None
        if version >= 1:
            reader.skip_bytes()
            owned = reader.partitions()
        if version >= 3:
            # skip the generation of the owned partitions, which the coordinator knows
            reader.number(">i")
            length = reader.number(">h")
            rack_id = reader.text(length) if length >= 0 else None
    except (struct.error, UnicodeDecodeError):
        return None
    return Subscription(version, topics, owned, rack_id or None)


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Parse only the topic names, from the common prefix of all versions; None for invalid bytes.

    >>> subscribed_topics(bytes.fromhex("0000 00000001 0003 666f6f ffffffff"))
    ('foo',)
    """
    try:
        reader = _Reader(metadata)
        if reader.number(">h") < 0:
            return None
        return tuple(reader.text(reader.number(">h")) for _ in range(reader.count(2)))
    except (struct.error, UnicodeDecodeError):
        return None


def read_assignment(assignment: bytes) -> dict[str, tuple[int, ...]] | None:
    """Parse a ConsumerProtocol assignment. Empty bytes mean no partitions; None: the bytes are invalid.

    >>> read_assignment(write_assignment(0, {"foo": (1, 2)}))
    {'foo': (1, 2)}
    """
    if not assignment:
        return {}
    try:
        reader = _Reader(assignment)
        return reader.partitions() if reader.number(">h") >= 0 else None
    except (struct.error, UnicodeDecodeError):
        return None


def write_assignment(version: int, partitions: Mapping[str, tuple[int, ...]]) -> bytes:
    """Write a ConsumerProtocol assignment without user data; topics in order of their names."""
    parts = [struct.pack(">hi", version, len(partitions))]
    for topic in sorted(partitions):
        name, numbers = topic.encode(), partitions[topic]
        parts.append(
            struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
        )
    return b"".join([*parts, struct.pack(">i", -1)])
