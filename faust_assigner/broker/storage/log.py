"""One partition's log: opaque record batches in the store, and a small index of them in memory.

Offsets are contiguous: each batch starts where the previous batch ends. One atomic write stores a batch and
its index entry, so a restart rebuilds the log from the store alone. A gap that compaction did not leave is
damage: the start fails, or the loss is logged and consumers skip the gap. The high watermark is the log end
offset, because there is one replica.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Final

from faust_assigner.broker.storage import records
from faust_assigner.broker.storage.batch_index import BatchIndex
from faust_assigner.broker.storage.entries import (
    BATCHES,
    CLEAN,
    ENDED,
    FLOOR,
    INDEX,
    OFFSET,
    OPEN,
    START,
    Entry,
    Pair,
)
from faust_assigner.broker.storage.producers import ProducerBook
from faust_assigner.broker.storage.records import INT64_MAX, Batch
from faust_assigner.broker.storage.store import Range, Store, StoreFailed
from faust_assigner.broker.storage.transactions import (
    ABORTED,
    Aborted,
    Ending,
    TransactionIndex,
    marker_batch,
)

LEADER_EPOCH: Final = 0  # this broker is the leader for the whole life of a log


@dataclass(slots=True, eq=False, repr=False)
class PartitionLog:
    """The log of one partition, for the broker's event loop only. A new object is empty until restored.

    Parts are created at their first use, so that an unused log is one object for the garbage collector.
    """

    store: Store
    topic_id: InitVar[bytes]
    partition: InitVar[int]
    place: bytes = field(init=False)  # topic id and partition number, a part of each key
    start_offset: int = 0
    end_offset: int = 0
    flushed_to: int = 0  # records before this offset are known to be on the disk
    cleaned_to: int = 0  # the offset up to which the log is compacted
    cleanings: int = 0  # how many times compaction changed the log since the broker started
    #: Offsets [first, beyond) without a batch, found when the broker started.
    holes: tuple[tuple[int, int], ...] = ()
    #: Losses that a start with log.recovery.accept.loss accepted.
    accepted: tuple[tuple[int, int], ...] = ()
    deleted: bool = False
    _index: BatchIndex | None = None
    _producers: ProducerBook | None = None
    _transactions: TransactionIndex | None = None
    _waiters: dict[int, Callable[[], None]] | None = None

    def __post_init__(self, topic_id: bytes, partition: int) -> None:
        self.place = topic_id + struct.pack(">i", partition)

    @property
    def number(self) -> int:
        """The partition's number within its topic."""
        return int.from_bytes(self.place[-4:], "big")

    @property
    def size(self) -> int:
        """The bytes of all batches."""
        return 0 if self._index is None else self._index.size

    @property
    def index(self) -> BatchIndex:
        """Offsets, sizes and times of the batches."""
        if self._index is None:
            self._index = BatchIndex()
        return self._index

    @property
    def producers(self) -> ProducerBook:
        """The state of the idempotent producers."""
        if self._producers is None:
            self._producers = ProducerBook()
        return self._producers

    @property
    def waiters(self) -> dict[int, Callable[[], None]]:
        """Callbacks of the fetches that wait for more records."""
        if self._waiters is None:
            self._waiters = {}
        return self._waiters

    def expire_producers(self, idle_since_ms: int) -> None:
        """Forget the producers that were last seen before ``idle_since_ms``."""
        if self._producers is not None:
            kept = self._transactions.open if self._transactions is not None else ()
            self._producers.expire(idle_since_ms, kept)

    @property
    def transactions(self) -> TransactionIndex:
        """The open and the aborted transactions."""
        if self._transactions is None:
            self._transactions = TransactionIndex()
        return self._transactions

    def has_open(self, producer_id: int) -> bool:
        """Whether a producer has an open transaction in this partition."""
        return self._transactions is not None and producer_id in self._transactions.open

    @property
    def stable_offset(self) -> int:
        """The last stable offset: the first record of the oldest open transaction, or the log end."""
        return self._stable(self.end_offset)

    def _stable(self, end: int, *, without: int | None = None) -> int:
        first = (
            self._transactions.first_open(without=without)
            if self._transactions is not None
            else None
        )
        return end if first is None else max(first, self.start_offset)

    def _wake(self) -> None:
        for wake in list(self._waiters.values()) if self._waiters else ():
            wake()

    # -- keys ------------------------------------------------------------------------------------

    def batch_key(self, base: int) -> bytes:
        """Return the key of the batch that begins at offset ``base``."""
        return BATCHES + self.place + OFFSET.pack(base)

    def index_key(self, base: int) -> bytes:
        """Return the key of the index entry of the batch at offset ``base``."""
        return INDEX + self.place + OFFSET.pack(base)

    def ended_key(self, last: int) -> bytes:
        """Return the key of the aborted transaction whose marker is at offset ``last``."""
        return ENDED + self.place + OFFSET.pack(last)

    def _open_key(self, producer_id: int) -> bytes:
        return OPEN + self.place + OFFSET.pack(producer_id)

    # -- writing ---------------------------------------------------------------------------------

    def remember(self, base: int, last_delta: int, size: int, max_timestamp: int) -> None:
        """Add a stored batch at offset ``base`` to the index; the log ends after it."""
        self.end_offset = base + last_delta + 1
        self.index.append(base, self.end_offset, size, max_timestamp)

    def append(self, batch: Batch, data: bytes, now_ms: int) -> int:
        """Store one checked batch; return its base offset. Raises StoreFailed without any change."""
        base = self.end_offset
        puts = self._places(batch, data, base, now_ms)
        opens = batch.is_transactional and batch.producer_id not in self.transactions.open
        if opens:
            puts += ((self._open_key(batch.producer_id), OFFSET.pack(base)),)
        self.store.write(puts)
        self.remember(base, batch.last_delta, batch.size, batch.max_timestamp)
        self.store.note_end(self.place, self.end_offset)
        if opens:
            self.transactions.open[batch.producer_id] = base
        if batch.has_producer:
            self.producers.record(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.last_delta,
                base,
                now_ms,
            )
        self._wake()
        return base

    def _places(self, batch: Batch, data: bytes, base: int, now_ms: int) -> tuple[Pair, ...]:
        """Return the writes of a batch and its index entry at offset ``base``."""
        return (
            (self.batch_key(base), records.place(data, base, LEADER_EPOCH)),
            (self.index_key(base), Entry.of(batch, now_ms).pack()),
        )

    def end_transaction(
        self, producer_id: int, epoch: int, now_ms: int, *, commits: bool
    ) -> Ending:
        """Plan the marker that ends a producer's transaction in this partition.

        The caller writes the plan, then calls ``stored``, which updates the log. Between the plan and
        ``stored``, nothing may be appended to the log.
        """
        base = self.end_offset
        data, batch = marker_batch(producer_id, epoch, now_ms, commits=commits)
        puts = self._places(batch, data, base, now_ms)
        first = self.transactions.open.get(producer_id)
        deletes: tuple[bytes, ...] = ()
        aborted: Aborted | None = None
        if first is not None:
            deletes = (self._open_key(producer_id),)
            if not commits:
                stable = self._stable(base + 1, without=producer_id)
                aborted = Aborted(producer_id, first, base, stable)
                value = ABORTED.pack(producer_id, first, stable)
                puts += ((self.ended_key(base), value),)

        def stored() -> None:
            self.remember(base, batch.last_delta, batch.size, batch.max_timestamp)
            self.store.note_end(self.place, self.end_offset)
            self.transactions.open.pop(producer_id, None)
            if aborted is not None:
                self.transactions.add(aborted)
            self.producers.mark(producer_id, epoch, now_ms)
            self._wake()

        return Ending(puts, deletes, stored)

    def aborted(self, offset: int, beyond: int) -> list[Aborted]:
        """Return the aborted transactions with records in [offset, beyond)."""
        return (
            [] if self._transactions is None else list(self._transactions.between(offset, beyond))
        )

    # -- deleting --------------------------------------------------------------------------------

    def trim(self, new_start: int) -> None:
        """Move the log start; delete the batches before it. A batch that contains the new start stays."""
        new_start = min(max(new_start, self.start_offset), self.end_offset)
        gone = self.index.ended_before(new_start)
        keys = (self.batch_key, self.index_key) if gone else ()
        self.store.write(
            [(START + self.place, OFFSET.pack(new_start))],
            self._ended_keys(new_start),
            ranges=[self._range(key, gone) for key in keys],
        )
        self.start_offset = new_start
        if self._transactions is not None:
            self._transactions.trim(new_start)
        self.index.drop(gone)

    def _ended_keys(self, before: int | None = None) -> list[bytes]:
        """Return the keys of aborted transactions that ended before an offset (None: all)."""
        lasts = self._transactions.aborted_markers() if self._transactions is not None else ()
        count = len(lasts) if before is None else bisect_left(lasts, before)
        return [self.ended_key(last) for last in lasts[:count]]

    def _range(self, key: Callable[[int], bytes], count: int) -> Range:
        """Return the key range of the first ``count`` batches."""
        bases = self.index.bases[:count]
        return Range(key(bases[0]), key(bases[-1]) + b"\0", count, lambda: map(key, bases))

    def retain(self, now_ms: int, *, retention_ms: int, retention_bytes: int) -> int:
        """Delete the oldest batches above the age or size; return the number of deleted records."""
        oldest_ms = now_ms - retention_ms if retention_ms >= 0 else None
        max_bytes = retention_bytes if retention_bytes >= 0 else None
        drop = self.index.overdue(oldest_ms, max_bytes, self.appended_ms)
        if not drop:
            return 0
        old_start = self.start_offset
        self.trim(self.index.bases[drop] if drop < len(self.index) else self.end_offset)
        return self.start_offset - old_start

    def appended_ms(self, base: int) -> int:
        """Return the time at which the batch at offset ``base`` was appended, which only the store has.

        A batch with an unreadable index entry counts as new: retention and compaction keep it, and other
        logs go on.
        """
        try:
            entry = self.store.get(self.index_key(base))
        except StoreFailed:
            entry = None
        return INT64_MAX if entry is None else Entry.unpack(entry).appended_ms

    def every_key(self) -> Iterator[bytes]:
        """Yield every key of this partition."""
        for key in (self.batch_key, self.index_key):
            yield from map(key, self.index.bases)
        yield from (kind + self.place for kind in (START, FLOOR, CLEAN))
        if self._transactions is not None:
            yield from map(self._open_key, self._transactions.open)
            yield from self._ended_keys()

    def close(self) -> None:
        """Record that the partition was deleted, and wake all waiting fetches."""
        self.deleted = True
        self._wake()
