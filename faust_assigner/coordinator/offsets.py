"""Committed offsets of groups: what is stored, what may be read, what has expired. Pure: times are arguments.

Expiry follows KIP-211: a group with members keeps the offsets of topics it subscribes to; an empty group
loses them ``offsets.retention.minutes`` after it became empty (or after a later commit, such as an
administrator's reset); a group that only ever committed (no members, no protocol) loses each offset that long
after its own last commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from faust_assigner.coordinator.group import Group

NO_OFFSET: Final = -1
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset. ``expires_at_ms`` only where a client asked for its own retention (v2-4)."""

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
        """Remember; the later commit wins, even with a smaller offset (a reset)."""
        self.entries.update(changes)

    def read(self, wanted: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, Committed]]:
        """The committed offset of each wanted partition; -1 where there is none."""
        for key in wanted:
            yield key, self.entries.get(key, Committed(NO_OFFSET))

    def drop(self, keys: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Forget; returns those that existed."""
        return tuple(key for key in keys if self.entries.pop(key, None) is not None)

    def of_topic(self, topic: str) -> tuple[TopicPartition, ...]:
        """Every entry of one topic."""
        return tuple(key for key in self.entries if key[0] == topic)

    def expired(
        self, group: Group, *, retention_ms: int, now_ms: int
    ) -> tuple[TopicPartition, ...]:
        """The entries that KIP-211 lets go at ``now_ms``; cost O(entries)."""
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
