"""Committed offsets of groups: storage, reading and expiry. Pure: times are arguments.

Expiry follows KIP-211. A group with members keeps the offsets of subscribed topics. An empty group
loses its offsets ``offsets.retention.minutes`` after the group became empty (or after a later commit, such as
an administrator's reset). A group that only commits (no members, no protocol) loses each offset after the
same time from its last commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from faust_assigner.coordinator.effects import Group

NO_OFFSET: Final = -1
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset. ``expires_at_ms`` is set if the client requested a retention time (v2-4)."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at_ms: int = 0
    expires_at_ms: int | None = None


@dataclass(slots=True)
class OffsetBook:
    """The committed offsets of one group, by (topic, partition)."""

    entries: dict[TopicPartition, Committed] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.entries)

    def commit(self, changes: Mapping[TopicPartition, Committed]) -> None:
        """Store offsets; the later commit wins, even with a smaller offset (a reset)."""
        self.entries.update(changes)

    def read(self, wanted: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, Committed]]:
        """Yield the committed offset of each wanted partition; -1 without a committed offset."""
        for key in wanted:
            yield key, self.entries.get(key, Committed(NO_OFFSET))

    def drop(self, keys: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Remove offsets; return the keys that existed."""
        return tuple(key for key in keys if self.entries.pop(key, None) is not None)

    def of_topic(self, topic: str) -> tuple[TopicPartition, ...]:
        """Return every entry of a topic."""
        return tuple(key for key in self.entries if key[0] == topic)

    def expired(
        self, group: Group, *, retention_ms: int, now_ms: int
    ) -> tuple[TopicPartition, ...]:
        """Return the entries that expire by KIP-211 at ``now_ms``; cost O(entries)."""
        starts = group.retention()
        return tuple(
            key
            for key, entry in self.entries.items()
            if _has_expired(entry, starts(key[0], entry.committed_at_ms), retention_ms, now_ms)
        )


def _has_expired(entry: Committed, since: int | None, retention_ms: int, now_ms: int) -> bool:
    if since is None:
        return False
    if entry.expires_at_ms is not None:
        return now_ms >= entry.expires_at_ms
    return now_ms - since >= retention_ms
