"""One partition's log: opaque record batches in the store, and a small index of them in memory.

Offsets are contiguous: each batch starts at the end of the previous one. One atomic write stores a batch and
its index entry, so a restart rebuilds the log from the store alone. A gap is damage. The start refuses a gap,
or continues with the loss logged; consumers then skip it. The high watermark is the log end offset, because
there is one replica.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from faust_assigner.broker.storage import records
from faust_assigner.broker.storage.batch_index import BatchIndex
from faust_assigner.broker.storage.entries import (
    BATCHES,
    CLEAN,
    ENDED,
    FLOOR,
    HOLE,
    INDEX,
    KINDS,
    OFFSET,
    OPEN,
    PLACE_BYTES,
    START,
    Entry,
    Pair,
)
from faust_assigner.broker.storage.producers import ProducerBook
from faust_assigner.broker.storage.records import Batch
from faust_assigner.broker.storage.store import Range, Store, StoreFailed, prefix_range
from faust_assigner.broker.storage.transactions import (
    ABORTED,
    Aborted,
    TransactionIndex,
    marker_batch,
)

LEADER_EPOCH: Final = 0  # this broker is the leader for the whole life of a log


@dataclass(frozen=True, slots=True)
class Reading:
    """A planned read. ``first`` is the base offset of its first batch, ``size`` the bytes of all batches.

    ``beyond`` is the offset after the last batch. ``cleanings`` is the log's count of compactions at the
    time of the plan: a higher count later shows that a compaction changed the log.
    """

    first: int
    keys: tuple[bytes, ...]
    size: int
    beyond: int
    cleanings: int


class Ending(NamedTuple):
    """The writes that end a transaction in one partition, and a function to call after them."""

    puts: tuple[Pair, ...]
    deletes: tuple[bytes, ...]
    stored: Callable[[], None]


class PartitionLog:
    """Append, read, trim. Used on the broker's event loop only, except :meth:`load` (any thread).

    A broker has many logs, so an unused log is a single object for Python's garbage collector.
    """

    __slots__ = (
        "_index",
        "_producers",
        "_transactions",
        "_waiters",
        "accepted",
        "cleaned_to",
        "cleanings",
        "deleted",
        "end_offset",
        "flushed_to",
        "holes",
        "place",
        "start_offset",
        "store",
    )

    def __init__(
        self, store: Store, topic_id: bytes, partition: int, *, is_new: bool = False
    ) -> None:
        self.store = store
        self.place = topic_id + struct.pack(">i", partition)
        self.start_offset = 0
        self.end_offset = 0
        self._index: BatchIndex | None = None
        self.flushed_to = 0  # records before this offset are known to be on the disk
        self.holes: tuple[
            tuple[int, int], ...
        ] = ()  # offsets [first, beyond) without a batch, found at start
        self.accepted: tuple[
            tuple[int, int], ...
        ] = ()  # losses that a start with log.recovery.accept.loss accepted
        self.cleaned_to = 0  # the offset up to which the log is compacted
        self.cleanings = 0  # how many times compaction changed the log since the start
        self._producers: ProducerBook | None = None
        self._transactions: TransactionIndex | None = None
        self._waiters: dict[int, Callable[[], None]] | None = None
        self.deleted = False
        if not is_new:
            start, floor, clean = (store.get(kind + self.place) for kind in (START, FLOOR, CLEAN))
            self.restore(start, floor, clean, store.scan(INDEX + self.place))
            self.restore_transactions(store.scan(OPEN + self.place), store.scan(ENDED + self.place))

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

    # -- start -----------------------------------------------------------------------------------

    def restore(
        self,
        start: bytes | None,
        floor: bytes | None,
        clean: bytes | None,
        entries: Iterable[tuple[bytes, bytes]],
    ) -> None:
        """Restore log start, end after an accepted loss, cleaning, and the index in key order."""
        if start is not None:
            (self.start_offset,) = OFFSET.unpack(start)
        if clean is not None:
            (self.cleaned_to,) = OFFSET.unpack(clean)
        self.end_offset = self.start_offset
        prefix = 1 + PLACE_BYTES
        for key, value in entries:
            base = int.from_bytes(key[prefix:], "big")
            entry = Entry.unpack(value)
            follows = entry.follows if entry.follows >= 0 else base
            if self._index is None:
                self.start_offset = max(self.start_offset, follows)
            elif follows != self.end_offset:
                self.holes += ((self.end_offset, follows),)
            self._restore_batch(base, entry)
        if floor is not None:
            self.end_offset = max(self.end_offset, OFFSET.unpack_from(floor)[0])
            self.accepted = tuple(
                (first, end) for first, end in HOLE.iter_unpack(floor[OFFSET.size :])
            )
        self.flushed_to = self.end_offset

    def _restore_batch(self, base: int, entry: Entry) -> None:
        self._remember(base, entry.last_delta, entry.size, entry.max_timestamp)
        producer_id, epoch, sequence = entry.producer_id, entry.producer_epoch, entry.base_sequence
        if producer_id >= 0 and sequence < 0:
            is_partial = self.start_offset > 0 or self.cleaned_to > 0
            self.producers.mark(producer_id, epoch, entry.appended_ms, is_trimmed=is_partial)
        elif producer_id >= 0:
            self.producers.record(
                producer_id, epoch, sequence, entry.last_delta, base, entry.appended_ms
            )

    def restore_transactions(self, opened: Iterable[Pair], ended: Iterable[Pair]) -> None:
        """Restore the open and the aborted transactions from the store, in key order."""
        behind = slice(1 + PLACE_BYTES, None)
        firsts = [(OFFSET.unpack(k[behind])[0], OFFSET.unpack(value)[0]) for k, value in opened]
        aborted = []
        for key, value in ended:
            (last,) = OFFSET.unpack(key[behind])
            producer_id, first, stable = ABORTED.unpack(value)
            aborted.append(Aborted(producer_id, first, last, stable))
        if firsts or aborted:
            self.transactions.restore(firsts, aborted)

    def _remember(self, base: int, last_delta: int, size: int, max_timestamp: int) -> None:
        self.end_offset = base + last_delta + 1
        self.index.append(base, self.end_offset, size, max_timestamp)

    @property
    def number(self) -> int:
        """The partition's number within its topic."""
        return int.from_bytes(self.place[-4:], "big")

    @property
    def size(self) -> int:
        """The bytes of all batches."""
        return 0 if self._index is None else self._index.size

    # -- writing ---------------------------------------------------------------------------------

    def append(self, batch: Batch, data: bytes, now_ms: int) -> int:
        """Store one checked batch; return its base offset. Raises StoreFailed without any change."""
        base = self.end_offset
        puts = self._places(batch, data, base, now_ms)
        opens = batch.is_transactional and batch.producer_id not in self.transactions.open
        if opens:
            puts += ((self._open_key(batch.producer_id), OFFSET.pack(base)),)
        self.store.write(puts)
        self._remember(base, batch.last_delta, batch.size, batch.max_timestamp)
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
        entry = Entry(
            batch.last_delta,
            batch.size,
            batch.max_timestamp,
            now_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
        )
        return (
            (self.batch_key(base), records.place(data, base, LEADER_EPOCH)),
            (self.index_key(base), entry.pack()),
        )

    def end_transaction(
        self, producer_id: int, epoch: int, now_ms: int, *, commits: bool
    ) -> Ending:
        """Plan the marker that ends a producer's transaction here.

        The caller writes the plan, then calls ``stored``, which updates the log. Nothing else may be appended
        between the plan and this call.
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
            self._remember(base, batch.last_delta, batch.size, batch.max_timestamp)
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

    # -- reading ---------------------------------------------------------------------------------

    def _span_of(self, offset: int, beyond: int | None) -> tuple[int, int]:
        """Return positions [first, stop) of the batches from ``offset`` on; all begin before ``beyond``."""
        index = self._index
        if index is None or offset >= self.end_offset or (beyond is not None and offset >= beyond):
            return 0, 0  # a log may begin within a batch whose transaction is still open
        first = index.first_after(offset)
        return (0, 0) if first is None else (first, index.stop_at(beyond))

    def available(self, offset: int, beyond: int | None = None) -> int:
        """Return the bytes to read from ``offset``, up to ``beyond``; cost O(log batches)."""
        first, stop = self._span_of(offset, beyond)
        return self.index.bytes_between(first, stop) if stop > first else 0

    def plan_read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, beyond: int | None = None
    ) -> Reading | None:
        """Plan a read of whole batches from ``offset`` on, up to ``max_bytes`` and before ``beyond``.

        With ``at_least_one``, the first batch is included even if it exceeds ``max_bytes``.
        """
        first, limit = self._span_of(offset, beyond)
        if limit <= first:
            return None
        stop = min(self.index.within(first, max_bytes), limit)
        if stop <= first:
            if not at_least_one:
                return None
            stop = first + 1
        return self._reading(first, stop)

    def _reading(self, first: int, stop: int) -> Reading:
        index = self.index
        keys = tuple(map(self.batch_key, index.bases[first:stop]))
        size, beyond = index.bytes_between(first, stop), index.nexts[stop - 1]
        return Reading(index.bases[first], keys, size, beyond, self.cleanings)

    def peek(self, reading: Reading) -> list[bytes] | None:
        """Return the batches of a planned read if all are in memory, else None."""
        return self.store.peek(reading.keys)

    def load(self, reading: Reading) -> list[bytes | None]:
        """Read the planned batches from the disk; in any thread. Raises StoreFailed."""
        return self.store.get_many(reading.keys)

    def present_batches(self, found: Sequence[bytes | None], reading: Reading) -> list[bytes]:
        """Return the loaded batches, without the trimmed or compacted ones.

        Raises StoreFailed if a batch is missing for any other reason.
        """
        there = [data for data in found if data is not None]
        if len(there) == len(found) or reading.cleanings != self.cleanings:
            return there
        if not self.deleted and reading.first >= self.start_offset:
            raise StoreFailed(f"a batch at or after offset {reading.first} is missing")
        return []

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Plan, load and check a read in one call."""
        reading = self.plan_read(offset, max_bytes, at_least_one=at_least_one)
        return (
            b"" if reading is None else b"".join(self.present_batches(self.load(reading), reading))
        )

    def plan_time(self, timestamp: int) -> Reading | None:
        """Plan a read of the batch with the first record not older than ``timestamp``; O(log batches)."""
        position = self.index.at_time(timestamp)
        return None if position is None else self._reading(position, position + 1)

    def plan_newest(self) -> tuple[Reading, int] | None:
        """Plan a read of the batch with the greatest timestamp (KIP-734); return the plan and this time."""
        newest = self.index.newest_time()
        reading = None if newest is None else self.plan_time(newest)
        return None if reading is None or newest is None else (reading, newest)

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record not older than ``timestamp``, in one call."""
        reading = self.plan_time(timestamp)
        if reading is None:
            return None
        found = records.find_timestamp(
            self.present_batches(self.load(reading), reading)[0], timestamp
        )
        return max(found[0], self.start_offset), found[1]

    def newest_time(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the record with the greatest timestamp, in one call."""
        planned = self.plan_newest()
        return None if planned is None else self.find_time(planned[1])

    # -- deleting --------------------------------------------------------------------------------

    def trim(self, new_start: int) -> None:
        """Move the log start: delete whole batches before it; a batch around it stays on disk."""
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
        lasts = self._transactions.lasts() if self._transactions is not None else ()
        count = len(lasts) if before is None else bisect_left(lasts, before)
        return [self.ended_key(last) for last in lasts[:count]]

    def _range(self, key: Callable[[int], bytes], count: int) -> Range:
        """Return the key range of the first ``count`` batches."""
        bases = self.index.bases[:count]
        return Range(key(bases[0]), key(bases[-1]) + b"\0", count, lambda: map(key, bases))

    def retain(self, now_ms: int, *, retention_ms: int, retention_bytes: int) -> int:
        """Delete the oldest batches beyond the age or size; return the number of deleted records."""
        oldest_ms = now_ms - retention_ms if retention_ms >= 0 else None
        drop = self.index.overdue(oldest_ms, retention_bytes if retention_bytes >= 0 else None)
        if not drop:
            return 0
        old_start = self.start_offset
        self.trim(self.index.bases[drop] if drop < len(self.index) else self.end_offset)
        return self.start_offset - old_start

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

    def erase(self) -> None:
        """Delete all data of this partition."""
        self.store.write(
            (), ranges=[prefix_range(kind + self.place, self.every_key) for kind in KINDS]
        )
        self.close()
