"""The committed offsets of all groups. Each change is stored first, then applied in memory."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from faust_assigner.broker import limits
from faust_assigner.broker.groups import group_store
from faust_assigner.broker.groups.pending import PendingOffsets, Which
from faust_assigner.broker.groups.saving import delete
from faust_assigner.broker.storage.store import Store, StoreFailed
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
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
        self._read: dict[str, set[str]] = {}  # group -> the topics under which it is in _readers
        #: Deleted topic -> the groups from which its offsets are still to be deleted.
        self._orphans: dict[str, set[str]] = {}
        #: Keys in the store of offsets of deleted topics that the store refused to delete.
        self._owed: set[bytes] = set()
        self.pending = PendingOffsets(store)
        for group_id, key, entry in group_store.load_offsets(store):
            self._remember(group_id, {key: entry})
        for group_id, topic in self.pending.topics():
            self._note_readers(group_id, {topic})

    def _remember(self, group_id: str, changes: Mapping[TopicPartition, Committed]) -> None:
        self._books.setdefault(group_id, OffsetBook()).commit(changes)
        self._note_readers(group_id, {topic for topic, _ in changes})

    def _note_readers(self, group_id: str, topics: set[str]) -> None:
        for topic in topics:
            self._readers.setdefault(topic, set()).add(group_id)
        self._read.setdefault(group_id, set()).update(topics)

    def commit(self, group_id: str, changes: Mapping[TopicPartition, Committed]) -> Code:
        """Store offsets that a group has accepted; return only after the write, with its error code."""
        book = self.offsets(group_id)
        if not self._has_space(group_id, book, changes):
            return Code.INVALID_REQUEST
        outdated = self.pending.replaced_by(group_id, changes)
        pairs = [*_store_writes(group_id, changes), *(pair for pair, _, _ in outdated)]
        if not self._stored(group_id, pairs):
            return Code.NOT_COORDINATOR
        self._remember(group_id, changes)
        for _, waiting, key in outdated:
            waiting[key] = waiting[key][0], True
        return Code.NONE

    def store_pending(
        self, group_id: str, producer_id: int, changes: Mapping[TopicPartition, Committed]
    ) -> Code:
        """Store offsets as pending; they become valid when the producer's transaction commits."""
        if not self._has_space(group_id, self.offsets(group_id), changes):
            return Code.INVALID_REQUEST
        if not self._stored(group_id, self.pending.puts(group_id, producer_id, changes)):
            return Code.NOT_COORDINATOR
        self.pending.add(group_id, producer_id, changes)
        self._note_readers(group_id, {topic for topic, _ in changes})
        return Code.NONE

    def end_transaction(
        self, group_id: str, producer_id: int, *, commits: bool
    ) -> tuple[list[tuple[bytes, bytes]], list[bytes], Callable[[], None]]:
        """Plan a transaction's end for one group.

        Return the puts, the deletes, and a function to call after the write.
        """
        self._drop_orphans(group_id)
        changes, deletes = self.pending.ending(group_id, producer_id)
        applied = changes if commits else {}

        puts = _store_writes(group_id, applied)

        def stored() -> None:
            if applied:
                self._remember(group_id, applied)
            self._owed.difference_update(key for key, _ in puts)
            self.pending.end(group_id, producer_id)

        return puts, deletes, stored

    def _has_space(
        self, group_id: str, book: OffsetBook, changes: Mapping[TopicPartition, Committed]
    ) -> bool:
        count = len(book) + self.pending.count(group_id) + len(changes)
        return count <= limits.MAX_OFFSETS_PER_GROUP or not changes.keys() - book.entries.keys()

    def _stored(self, group_id: str, pairs: list[tuple[bytes, bytes]]) -> bool:
        try:
            self._store.write(pairs, self._owed.difference(key for key, _ in pairs))
        except StoreFailed as error:
            logger.error("Could not store offsets of group %r: %s", group_id, error)
            return False
        self._owed.clear()
        return True

    def __iter__(self) -> Iterator[str]:
        """Return the groups with offsets or pending offsets, each once."""
        return iter(dict.fromkeys((*self._books, *self.pending)))

    def has_any(self, group_id: str) -> bool:
        """Whether a group has committed or pending offsets."""
        return bool(self._books.get(group_id)) or bool(self.pending.count(group_id))

    def offsets(self, group_id: str) -> OffsetBook:
        """Return a group's offsets; an empty book for an unknown group."""
        self._drop_orphans(group_id)
        return self._books.get(group_id) or OffsetBook()

    def topics(self) -> tuple[str, ...]:
        """Return the topics of which groups may have offsets."""
        return tuple(self._readers)

    def delete_offsets(self, group_id: str, keys: Iterable[TopicPartition]) -> Code:
        """Delete offsets of one group, including pending offsets of open transactions, or none."""
        named = set(keys)
        error = self._delete(self._stored_keys(group_id, named, named.__contains__))
        if error is Code.NONE:
            self._forget_offsets(group_id, named, named.__contains__)
        return error

    def _stored_keys(
        self, group_id: str, keys: Iterable[TopicPartition], is_pending: Which
    ) -> list[bytes]:
        entries = self.offsets(group_id).entries
        stored = [group_store.offset_key(group_id, *key) for key in keys if key in entries]
        return [*stored, *self.pending.keys(group_id, is_pending)]

    def _delete(self, stored: Collection[bytes]) -> Code:
        error = delete(self._store, {*stored, *self._owed}) if stored else Code.NONE
        if stored and error is Code.NONE:
            self._owed.clear()
        return error

    def _forget_offsets(
        self, group_id: str, keys: Iterable[TopicPartition], is_pending: Which
    ) -> None:
        self.offsets(group_id).drop(keys)
        self.pending.drop(group_id, is_pending)

    def topic_deleted(self, topic: str) -> Iterator[str]:
        """Delete the offsets of a deleted topic; yield each group.

        The offsets would be invalid for a new topic with the same name. A group that is used between two
        yields loses the old offsets before its use, so that its offsets of such a new topic stay.
        """
        groups = self._orphans.setdefault(topic, set())
        groups |= self._readers.pop(topic, set())
        while groups:
            group_id = groups.pop()
            self._drop_topic(group_id, topic)
            yield group_id
        self._orphans.pop(topic, None)

    def _drop_orphans(self, group_id: str) -> None:
        """Delete a group's offsets of the topics whose deletion is under way."""
        for topic, groups in self._orphans.items():
            if group_id in groups:
                groups.discard(group_id)
                self._drop_topic(group_id, topic)

    def stale_keys(self, topic: str) -> set[bytes]:
        """Return the keys that a new topic's first write must delete from the store.

        They belong to offsets of deleted topics that are not yet deleted. Otherwise the new topic of the name
        would have these offsets after a restart.
        """
        stale = set(self._owed)
        for group_id in self._orphans.get(topic, ()):
            entries = self._books.get(group_id, OffsetBook()).of_topic(topic)
            stale.update(group_store.offset_key(group_id, *key) for key in entries)
            stale.update(self.pending.keys(group_id, lambda key: key[0] == topic))
        return stale

    def _drop_topic(self, group_id: str, topic: str) -> None:
        def is_of_topic(key: TopicPartition) -> bool:
            return key[0] == topic

        self._read.get(group_id, set()).discard(topic)
        named = self.offsets(group_id).of_topic(topic)
        stored = self._stored_keys(group_id, named, is_of_topic)
        if self._delete(stored) is not Code.NONE:
            # The topic is gone, so its offsets are too; the next write deletes them from the store.
            self._owed.update(stored)
        self._forget_offsets(group_id, named, is_of_topic)

    def keys(self, group_id: str) -> list[bytes]:
        """Return the keys in the store of all offsets of a group."""
        keys = (group_store.offset_key(group_id, *key) for key in self.offsets(group_id).entries)
        return [*keys, *self.pending.keys(group_id)]

    def close(self, group_id: str) -> None:
        """Forget all offsets of a group; cost O(its offsets and topics)."""
        self._books.pop(group_id, None)
        self.pending.drop(group_id)
        for topic in self._read.pop(group_id, ()):
            groups = self._readers.get(topic, set())  # empty if the topic's deletion is under way
            groups.discard(group_id)
            if not groups:
                self._readers.pop(topic, None)

    def expire(self, group: Group, retention_ms: int) -> tuple[TopicPartition, ...]:
        """Delete a group's expired offsets (KIP-211); return their partitions. Raises StoreFailed."""
        book = self.offsets(group.group_id)
        old = book.expired(group, retention_ms=retention_ms, now_ms=self._clock())
        expired = tuple(key for key in old if not self.pending.is_pending(group.group_id, key))
        if self.delete_offsets(group.group_id, expired) is not Code.NONE:
            raise StoreFailed(f"the expired offsets of group {group.group_id} are not deleted")
        self._counters["offsets_expired"] += len(expired)
        return expired


def _store_writes(
    group_id: str, changes: Mapping[TopicPartition, Committed]
) -> list[tuple[bytes, bytes]]:
    return [
        (group_store.offset_key(group_id, *key), group_store.dump_offset(entry))
        for key, entry in changes.items()
    ]
