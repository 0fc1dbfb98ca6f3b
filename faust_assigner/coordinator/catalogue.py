"""Topics as groups see them: names, 16-byte ids, partition counts, racks. The broker makes these values.

A group never requests topics: each state machine gets a :class:`Catalogue` at its creation and a
``CatalogueChanged`` event with each later catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

TopicId = bytes
Partitions = Mapping[TopicId, tuple[int, ...]]  # ascending, each once; no topic without partitions
#: (principal, host) -> the names of the topics that this client may not describe.
Hidden = Callable[[str, str], frozenset[str]]


def nothing_hidden(principal: str, host: str) -> frozenset[str]:
    """Hide no topic from any client: the broker has no authorizer."""
    return frozenset()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. ``racks[p]`` are the racks with a replica of partition p; empty if unknown."""

    name: str
    topic_id: TopicId
    partitions: int
    racks: tuple[frozenset[str], ...] = ()

    def digest(self) -> bytes:
        """Return 8 bytes that differ after any change of the topic; cost O(partitions with racks)."""
        told = [self.name, self.topic_id.hex(), self.partitions, [sorted(r) for r in self.racks]]
        return blake2b(repr(told).encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All topics, by name and by id. Build it with :meth:`of`.

    >>> told = Catalogue.of([Topic("orders", b"0123456789abcdef", 3)])
    >>> told.by_id[b"0123456789abcdef"].name
    'orders'
    >>> told.fingerprint(["orders"]) == Catalogue().fingerprint(["orders"])
    False
    """

    by_name: Mapping[str, Topic] = field(default_factory=dict)
    by_id: Mapping[TopicId, Topic] = field(default_factory=dict)
    digests: Mapping[str, bytes] = field(default_factory=dict)
    #: The topics that a client's regular expressions never match. A change of rights makes a new catalogue.
    hidden_from: Hidden = field(default=nothing_hidden, compare=False)

    @classmethod
    def of(cls, topics: Iterable[Topic]) -> Self:
        """Build a catalogue of these topics."""
        listed = tuple(topics)
        return cls(
            {t.name: t for t in listed},
            {t.topic_id: t for t in listed},
            {t.name: t.digest() for t in listed},
        )

    def existing_topics(self, names: Set[str]) -> set[str]:
        """Return the names that are topics. Cost O(the smaller side): clients may send thousands of names."""
        if len(names) > len(self.by_name):
            return {name for name in self.by_name if name in names}
        return self.by_name.keys() & names

    def fingerprint(self, names: Iterable[str]) -> int:
        """Return a number that changes with these topics: their existence, partitions and racks.

        Return 0 if no topic exists. Cost O(names), plus sorting the existing names.
        """
        known = sorted(self.existing_topics(frozenset(names)))
        if not known:
            return 0
        joined = b"".join(self.digests[name] for name in known)
        # fits a signed 64-bit field
        return int.from_bytes(blake2b(joined, digest_size=8).digest(), "big") >> 1

    def ids(self, names: Iterable[str]) -> frozenset[TopicId]:
        """Return the ids of the existing names."""
        return frozenset(
            self.by_name[name].topic_id for name in self.existing_topics(frozenset(names))
        )

    def partitions_of(self, wanted: Mapping[str, Iterable[int]]) -> dict[TopicId, tuple[int, ...]]:
        """Convert partitions by topic name to partitions by topic id; unknown names are left out."""
        return {
            self.by_name[name].topic_id: tuple(sorted(set(parts)))
            for name, parts in wanted.items()
            if name in self.by_name and parts
        }

    def names_of(self, wanted: Partitions) -> dict[str, tuple[int, ...]]:
        """Convert partitions by topic id to partitions by topic name; unknown ids are left out."""
        return {self.by_id[key].name: parts for key, parts in wanted.items() if key in self.by_id}
