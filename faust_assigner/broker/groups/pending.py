"""Committed offsets that wait for the end of their transaction (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from faust_assigner.broker.groups import group_store
from faust_assigner.broker.storage.store import Store
from faust_assigner.coordinator.offsets import Committed, TopicPartition

#: An offset, and whether a later commit outside the transaction replaces it.
PendingOffset = tuple[Committed, bool]
Pair = tuple[bytes, bytes]
Which = Callable[[TopicPartition], bool]


def every(key: TopicPartition) -> bool:
    """Return True: the filter for all pending offsets."""
    return True


class PendingOffsets:
    """The pending offsets by group, producer id and partition; restored from the store."""

    def __init__(self, store: Store) -> None:
        self._groups: dict[str, dict[int, dict[TopicPartition, PendingOffset]]] = {}
        for group_id, producer_id, key, entry, is_outdated in group_store.load_pending(store):
            self._offsets_of(group_id, producer_id)[key] = entry, is_outdated

    def __iter__(self) -> Iterator[str]:
        """Return the groups with pending offsets."""
        return iter(self._groups)

    def topics(self) -> Iterator[tuple[str, str]]:
        """Yield the group and the topic of each pending offset."""
        for group_id, by_producer in self._groups.items():
            for waiting in by_producer.values():
                yield from ((group_id, topic) for topic, _ in waiting)

    def _offsets_of(self, group_id: str, producer_id: int) -> dict[TopicPartition, PendingOffset]:
        return self._groups.setdefault(group_id, {}).setdefault(producer_id, {})

    def count(self, group_id: str) -> int:
        """Return the number of pending offsets of a group."""
        return sum(map(len, self._groups.get(group_id, {}).values()))

    def is_pending(self, group_id: str, key: TopicPartition) -> bool:
        """Whether an open transaction may change a partition's offset; cost O(transactions)."""
        return any(key in waiting for waiting in self._groups.get(group_id, {}).values())

    def puts(
        self, group_id: str, producer_id: int, changes: Mapping[TopicPartition, Committed]
    ) -> list[Pair]:
        """Return the store writes for the offsets that :meth:`add` keeps in memory."""
        return [
            (
                group_store.pending_key(group_id, producer_id, *key),
                group_store.dump_pending(entry, is_outdated=False),
            )
            for key, entry in changes.items()
        ]

    def add(
        self, group_id: str, producer_id: int, changes: Mapping[TopicPartition, Committed]
    ) -> None:
        """Add pending offsets in memory; within a transaction, the latest offset of a partition counts."""
        waiting = self._offsets_of(group_id, producer_id)
        waiting.update((key, (entry, False)) for key, entry in changes.items())

    def replaced_by(
        self, group_id: str, changes: Mapping[TopicPartition, Committed]
    ) -> list[tuple[Pair, dict[TopicPartition, PendingOffset], TopicPartition]]:
        """Return the pending offsets that a commit outside their transactions replaces, with the writes."""
        return [
            (
                (
                    group_store.pending_key(group_id, producer_id, *key),
                    group_store.dump_pending(waiting[key][0], is_outdated=True),
                ),
                waiting,
                key,
            )
            for producer_id, waiting in self._groups.get(group_id, {}).items()
            for key in changes
            if key in waiting
        ]

    def ending(
        self, group_id: str, producer_id: int
    ) -> tuple[dict[TopicPartition, Committed], list[bytes]]:
        """Return the offsets that the transaction's commit sets, and the keys that its end deletes."""
        waiting = self._groups.get(group_id, {}).get(producer_id, {})
        changes = {key: entry for key, (entry, is_outdated) in waiting.items() if not is_outdated}
        return changes, [group_store.pending_key(group_id, producer_id, *key) for key in waiting]

    def end(self, group_id: str, producer_id: int) -> None:
        """Forget the pending offsets of a transaction that has ended."""
        by_producer = self._groups.get(group_id, {})
        by_producer.pop(producer_id, None)
        if not by_producer:
            self._groups.pop(group_id, None)

    def keys(self, group_id: str, which: Which = every) -> list[bytes]:
        """Select pending offsets with ``which``; return their keys in the store."""
        return [
            group_store.pending_key(group_id, producer_id, *key)
            for producer_id, waiting in self._groups.get(group_id, {}).items()
            for key in filter(which, waiting)
        ]

    def drop(self, group_id: str, which: Which = every) -> None:
        """Forget the pending offsets that ``which`` selects."""
        for producer_id, waiting in list(self._groups.get(group_id, {}).items()):
            for key in list(filter(which, waiting)):
                del waiting[key]
            if not waiting:
                self.end(group_id, producer_id)
