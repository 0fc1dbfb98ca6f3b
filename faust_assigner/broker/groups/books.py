"""The committed offsets of all groups: stored first, remembered after, expired in the end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from faust_assigner.broker import limits
from faust_assigner.broker.storage import group_store
from faust_assigner.broker.storage.store import Range, Store, StoreFailed
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.group import Group
from faust_assigner.coordinator.offsets import Committed, OffsetBook, TopicPartition

logger = logging.getLogger(__name__)


class GroupBooks:
    """One book of offsets for each group that ever committed, whatever its protocol."""

    def __init__(self, store: Store, clock: Callable[[], int], counters: Counter[str]) -> None:
        self._store = store
        self._clock = clock
        self._counters = counters
        self._books: dict[str, OffsetBook] = {}
        self._readers: dict[str, set[str]] = {}  # topic -> groups that may have offsets of it
        for group_id, key, entry in group_store.load_offsets(store):
            self._remember(group_id, {key: entry})

    def _remember(self, group_id: str, changes: Mapping[TopicPartition, Committed]) -> None:
        self._books.setdefault(group_id, OffsetBook()).commit(changes)
        for topic in {topic for topic, _ in changes}:
            self._readers.setdefault(topic, set()).add(group_id)

    def commit(self, group_id: str, changes: Mapping[TopicPartition, Committed]) -> Code:
        """Store offsets a group has admitted; on disk before this returns."""
        book = self._books.setdefault(group_id, OffsetBook())
        if (
            len(book) + len(changes) > limits.MAX_OFFSETS_PER_GROUP
            and changes.keys() - book.entries.keys()
        ):
            return Code.INVALID_REQUEST
        pairs = [
            (group_store.offset_key(group_id, *key), group_store.dump_offset(e))
            for key, e in changes.items()
        ]
        try:
            self._store.write(pairs)
        except StoreFailed as error:
            logger.error("offsets of group %s could not be stored: %s", group_id, error)
            return Code.NOT_COORDINATOR
        self._remember(group_id, changes)
        return Code.NONE

    def offsets(self, group_id: str) -> OffsetBook:
        """A group's offsets; an empty book for a group nobody knows."""
        return self._books.get(group_id) or OffsetBook()

    def delete_offsets(self, group_id: str, keys: Iterable[TopicPartition]) -> None:
        """Forget some offsets of one group."""
        book = self._books.get(group_id)
        if book is not None:
            gone = book.drop(keys)
            self._write_quietly([], [group_store.offset_key(group_id, *key) for key in gone])

    def topic_deleted(self, topic: str) -> Iterator[str]:
        """Drop offsets of a deleted topic, they would make no sense in a new one; yields group by group."""
        for group_id in self._readers.pop(topic, ()):
            book = self._books.get(group_id)
            if book is not None:
                self.delete_offsets(group_id, book.of_topic(topic))
            yield group_id

    def _close_book(self, group_id: str) -> list[bytes]:
        """Forget all offsets of a group; their keys, to be deleted."""
        book = self._books.pop(group_id, OffsetBook())
        for topic in {topic for topic, _ in book.entries}:
            self._readers.get(topic, set()).discard(group_id)
        return [group_store.offset_key(group_id, *key) for key in book.entries]

    def _expire(self, group: Group, retention_ms: int) -> tuple[TopicPartition, ...]:
        """Apply KIP-211 to one group; what went."""
        book = self.offsets(group.group_id)
        expired = book.expired(group, retention_ms=retention_ms, now_ms=self._clock())
        self.delete_offsets(group.group_id, expired)
        self._counters["offsets_expired"] += len(expired)
        return expired

    def _write_quietly(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes],
        ranges: Iterable[Range] = (),
    ) -> None:
        try:
            self._store.write(puts, deletes, ranges=ranges)
        except StoreFailed as error:
            logger.error(
                "groups could not be tidied on disk, the next start sees the old state: %s", error
            )
