"""The committed offsets of all groups. Each change is stored first, then applied in memory."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from faust_assigner.broker import limits
from faust_assigner.broker.groups import group_store
from faust_assigner.broker.groups.pending import PendingOffsets
from faust_assigner.broker.groups.saving import delete_quietly
from faust_assigner.broker.storage.store import Store, StoreFailed
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.group import Group
from faust_assigner.coordinator.offsets import Committed, OffsetBook, TopicPartition

logger = logging.getLogger(__name__)


class GroupBooks:
    """The offsets of every group that has ever committed, in either protocol."""

    def __init__(self, store: Store, clock: Callable[[], int], counters: Counter[str]) -> None:
        self._store = store
        self._clock = clock
        self._counters = counters
        self._books: dict[str, OffsetBook] = {}
        self._readers: dict[str, set[str]] = {}  # topic -> groups that may have its offsets
        self.pending = PendingOffsets(store)
        for group_id, key, entry in group_store.load_offsets(store):
            self._remember(group_id, {key: entry})

    def _remember(self, group_id: str, changes: Mapping[TopicPartition, Committed]) -> None:
        self._books.setdefault(group_id, OffsetBook()).commit(changes)
        for topic in {topic for topic, _ in changes}:
            self._readers.setdefault(topic, set()).add(group_id)

    def commit(self, group_id: str, changes: Mapping[TopicPartition, Committed]) -> Code:
        """Store offsets that a group has accepted; return only after the write, with its error code."""
        book = self._books.setdefault(group_id, OffsetBook())
        if not self._has_space(group_id, book, changes):
            return Code.INVALID_REQUEST
        outdated = self.pending.outdating(group_id, changes)
        pairs = [*_store_writes(group_id, changes), *(pair for pair, _, _ in outdated)]
        if not self._stored(group_id, pairs):
            return Code.NOT_COORDINATOR
        self._remember(group_id, changes)
        for _, waiting, key in outdated:
            waiting[key] = waiting[key][0], True
        return Code.NONE

    def commit_later(
        self, group_id: str, producer_id: int, changes: Mapping[TopicPartition, Committed]
    ) -> Code:
        """Store offsets as pending; they become valid when the producer's transaction commits."""
        if not self._has_space(group_id, self.offsets(group_id), changes):
            return Code.INVALID_REQUEST
        if not self._stored(group_id, self.pending.puts(group_id, producer_id, changes)):
            return Code.NOT_COORDINATOR
        self.pending.add(group_id, producer_id, changes)
        for topic in {topic for topic, _ in changes}:
            self._readers.setdefault(topic, set()).add(group_id)
        return Code.NONE

    def end_transaction(
        self, group_id: str, producer_id: int, *, commits: bool
    ) -> tuple[list[tuple[bytes, bytes]], list[bytes], Callable[[], None]]:
        """Plan a transaction's end for one group.

        Return the puts, the deletes, and a function to call after the write.
        """
        changes, deletes = self.pending.ending(group_id, producer_id)
        applied = changes if commits else {}

        def stored() -> None:
            if applied:
                self._remember(group_id, applied)
            self.pending.end(group_id, producer_id)

        return _store_writes(group_id, applied), deletes, stored

    def _has_space(
        self, group_id: str, book: OffsetBook, changes: Mapping[TopicPartition, Committed]
    ) -> bool:
        count = len(book) + self.pending.count(group_id) + len(changes)
        return count <= limits.MAX_OFFSETS_PER_GROUP or not changes.keys() - book.entries.keys()

    def _stored(self, group_id: str, pairs: list[tuple[bytes, bytes]]) -> bool:
        try:
            self._store.write(pairs)
        except StoreFailed as error:
            logger.error("Could not store offsets of group %s: %s", group_id, error)
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """Return the groups with offsets or pending offsets, each once."""
        return iter(dict.fromkeys((*self._books, *self.pending)))

    def has_any(self, group_id: str) -> bool:
        """Whether a group has committed or pending offsets."""
        return bool(self._books.get(group_id)) or bool(self.pending.count(group_id))

    def offsets(self, group_id: str) -> OffsetBook:
        """Return a group's offsets; an empty book for an unknown group."""
        return self._books.get(group_id) or OffsetBook()

    def delete_offsets(self, group_id: str, keys: Iterable[TopicPartition]) -> None:
        """Delete offsets of one group, including pending offsets of open transactions."""
        named = set(keys)
        self._drop_offsets(group_id, named, named.__contains__)

    def _drop_offsets(
        self,
        group_id: str,
        keys: Iterable[TopicPartition],
        is_pending: Callable[[TopicPartition], bool],
    ) -> None:
        gone = self.offsets(group_id).drop(keys)
        pending = self.pending.drop(group_id, is_pending)
        stored = [group_store.offset_key(group_id, *key) for key in gone]
        if stored or pending:
            delete_quietly(self._store, [*stored, *pending])

    def topic_deleted(self, topic: str) -> Iterator[str]:
        """Delete the offsets of a deleted topic; yield each group.

        The offsets would be invalid for a new topic with the same name.
        """
        for group_id in self._readers.pop(topic, ()):
            named = self.offsets(group_id).of_topic(topic)
            self._drop_offsets(group_id, named, lambda key: key[0] == topic)
            yield group_id

    def close(self, group_id: str) -> list[bytes]:
        """Forget all offsets of a group; return their keys for deletion."""
        book = self._books.pop(group_id, OffsetBook())
        for topic in {topic for topic, _ in book.entries}:
            self._readers.get(topic, set()).discard(group_id)
        pending = self.pending.drop(group_id)
        return [*(group_store.offset_key(group_id, *key) for key in book.entries), *pending]

    def expire(self, group: Group, retention_ms: int) -> tuple[TopicPartition, ...]:
        """Delete a group's expired offsets (KIP-211); return the partitions of these offsets."""
        book = self.offsets(group.group_id)
        old = book.expired(group, retention_ms=retention_ms, now_ms=self._clock())
        expired = tuple(key for key in old if not self.pending.is_pending(group.group_id, key))
        self.delete_offsets(group.group_id, expired)
        self._counters["offsets_expired"] += len(expired)
        return expired


def _store_writes(
    group_id: str, changes: Mapping[TopicPartition, Committed]
) -> list[tuple[bytes, bytes]]:
    return [
        (group_store.offset_key(group_id, *key), group_store.dump_offset(entry))
        for key, entry in changes.items()
    ]
