"""One partition's log: opaque record batches in the store, a small index of them in memory.

Offsets are contiguous: the next batch starts where the last one ended. A batch and its index entry are one
atomic write; after a crash the log is what the store gives back. A gap is damage: the start refuses it, or
goes on with the loss named, and then readers step over it. The high watermark is the log end offset (one
replica).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from faust_assigner.broker.storage import records
from faust_assigner.broker.storage.producers import ProducerBook
from faust_assigner.broker.storage.records import Batch
from faust_assigner.broker.storage.store import Range, Store, StoreFailed, prefix_range
from faust_assigner.broker.storage.transactions import (
    ABORTED,
    Aborted,
    TransactionIndex,
    marker_batch,
)

LEADER_EPOCH: Final = 0  # one broker is the leader from the first record to the last
ENTRY: Final = struct.Struct(
    ">iqqqqhi"
)  # last delta, size, max timestamp, appended at, producer id, epoch, sequence
OFFSET: Final = struct.Struct(">q")
HOLE: Final = struct.Struct(">qq")
PLACE_BYTES: Final = 20  # topic id and partition number, after the kind of key
BATCHES, INDEX, START, FLOOR = b"b", b"x", b"s", b"e"  # kinds of keys
# Open transactions by producer id, aborted ones by the offset of their marker.
OPEN, ENDED = b"u", b"a"
KINDS: Final = (BATCHES, INDEX, START, FLOOR, OPEN, ENDED)
Pair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Reading:
    """Which batches answer a read; ``first`` is the base offset of the first, ``size`` all their bytes.

    ``beyond`` is the offset after the last.
    """

    first: int
    keys: tuple[bytes, ...]
    size: int
    beyond: int


class Ending(NamedTuple):
    """The writes that end a transaction in one partition, and what to call once they are stored."""

    puts: tuple[Pair, ...]
    deletes: tuple[bytes, ...]
    stored: Callable[[], None]


class PartitionLog:
    """Append, read, trim. Not thread-safe; used from the broker's event loop only, save for :meth:`load`.

    A broker has many: each is one object to Python's garbage collector until somebody uses it.
    """

    __slots__ = (
        "_accepted",
        "_bases",
        "_batch_prefix",
        "_ends",
        "_floor_key",
        "_index_prefix",
        "_max_timestamps",
        "_nexts",
        "_peaks",
        "_producers",
        "_sizes",
        "_start_key",
        "_store",
        "_transactions",
        "_waiters",
        "deleted",
        "end_offset",
        "flushed_to",
        "holes",
        "place",
        "start_offset",
    )

    def __init__(
        self, store: Store, topic_id: bytes, partition: int, *, is_new: bool = False
    ) -> None:
        self._store = store
        self.place = topic_id + struct.pack(">i", partition)
        self._batch_prefix, self._index_prefix = BATCHES + self.place, INDEX + self.place
        self._start_key, self._floor_key = START + self.place, FLOOR + self.place
        self.start_offset = 0
        self.end_offset = 0
        self._bases = array("q")
        self._nexts = array("q")  # the offset after each batch
        self._ends = array("q")  # running total of bytes after each batch
        self._sizes = array("q")
        self._max_timestamps = array("q")
        self._peaks: array[int] | None = (
            None  # running maximum of the above, made when a time is asked for
        )
        self.flushed_to = 0  # the offset up to which records were waited for on the disk
        self.holes: tuple[
            tuple[int, int], ...
        ] = ()  # offsets [first, beyond) without a batch, found at start
        self._accepted: tuple[
            tuple[int, int], ...
        ] = ()  # those named to somebody who started all the same
        self._producers: ProducerBook | None = None
        self._transactions: TransactionIndex | None = None
        self._waiters: dict[int, Callable[[], None]] | None = None
        self.deleted = False
        if not is_new:
            start, floor = store.get(self._start_key), store.get(self._floor_key)
            self.restore(start, floor, store.scan(self._index_prefix))
            self.restore_transactions(store.scan(OPEN + self.place), store.scan(ENDED + self.place))

    @property
    def producers(self) -> ProducerBook:
        """What is known of idempotent producers."""
        if self._producers is None:
            self._producers = ProducerBook()
        return self._producers

    @property
    def waiters(self) -> dict[int, Callable[[], None]]:
        """Readers to wake when there is more."""
        if self._waiters is None:
            self._waiters = {}
        return self._waiters

    def expire_producers(self, idle_since_ms: int) -> None:
        """Forget producers not seen since then."""
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
        """Whether a producer has a transaction open here."""
        return self._transactions is not None and producer_id in self._transactions.open

    @property
    def stable_offset(self) -> int:
        """Where readers of committed records end: the first record of an open transaction, or the log end."""
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

    def restore(
        self, start: bytes | None, floor: bytes | None, entries: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Take over what the store has: log start, end after a named loss, index in key order."""
        if start is not None:
            (self.start_offset,) = OFFSET.unpack(start)
        self.end_offset = self.start_offset
        unpack, prefix = ENTRY.unpack, 1 + PLACE_BYTES
        for key, value in entries:
            base = int.from_bytes(key[prefix:], "big")
            last_delta, size, max_timestamp, appended_ms, producer_id, epoch, sequence = unpack(
                value
            )
            if self._bases and base != self.end_offset:
                self.holes += ((self.end_offset, base),)
            if not self._bases and base > self.start_offset:
                self.start_offset = base
            self._remember(base, last_delta, size, max_timestamp)
            if producer_id >= 0 and sequence < 0:
                is_trimmed = self.start_offset > 0
                self.producers.mark(producer_id, epoch, appended_ms, is_trimmed=is_trimmed)
            elif producer_id >= 0:
                self.producers.record(producer_id, epoch, sequence, last_delta, base, appended_ms)
        if floor is not None:
            self.end_offset = max(self.end_offset, OFFSET.unpack_from(floor)[0])
            self._accepted = tuple(
                (first, end) for first, end in HOLE.iter_unpack(floor[OFFSET.size :])
            )
        self.flushed_to = self.end_offset

    def restore_transactions(self, opened: Iterable[Pair], ended: Iterable[Pair]) -> None:
        """Take over the open and the aborted transactions that the store has, in key order."""
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
        self._bases.append(base)
        self._nexts.append(base + last_delta + 1)
        self._sizes.append(size)
        self._ends.append((self._ends[-1] if self._ends else 0) + size)
        self._max_timestamps.append(max_timestamp)
        if self._peaks is not None:
            self._peaks.append(
                max(self._peaks[-1], max_timestamp) if self._peaks else max_timestamp
            )
        self.end_offset = base + last_delta + 1

    def unexplained_holes(self) -> list[tuple[int, int]]:
        """Offsets [first, beyond) that should be here and are not, save for losses accepted before."""
        return [hole for hole in self.holes if not _covers(self._accepted, hole)]

    def unreadable(
        self, chunk_bytes: int, progress: Callable[[], None]
    ) -> Iterator[tuple[int, int]]:
        """Offsets [first, beyond) of batches that are gone or broken. Reads all; ``progress`` may raise."""
        first = 0
        while first < len(self._bases):
            before = self._ends[first] - self._sizes[first]
            stop = max(bisect_right(self._ends, before + chunk_bytes), first + 1)
            keys = [self._batch_prefix + OFFSET.pack(base) for base in self._bases[first:stop]]
            if not self._are_whole(keys, first):
                for position in range(first, stop):
                    if not self._are_whole([keys[position - first]], position):
                        yield self._bases[position], self._nexts[position]
            first = stop
            progress()

    def _are_whole(self, keys: Sequence[bytes], first: int) -> bool:
        try:
            found = self._store.get_many(keys)
        except StoreFailed:
            return False
        return all(
            data is not None and len(data) == self._sizes[n] for n, data in enumerate(found, first)
        )

    def accept_losses(self, losses: Sequence[tuple[int, int]], lost_batches: Iterable[int]) -> None:
        """Go on without what is gone: no offset is given a second time, and no later start asks again."""
        gone = set(lost_batches)
        keys = [
            p + OFFSET.pack(base) for base in gone for p in (self._batch_prefix, self._index_prefix)
        ]
        end = max(self.end_offset, *(beyond for _, beyond in losses))
        self._accepted = tuple(sorted({*self._accepted, *losses}))
        pairs = b"".join(HOLE.pack(*hole) for hole in self._accepted)
        self._store.write([(self._floor_key, OFFSET.pack(end) + pairs)], keys)
        columns = zip(self._bases, self._nexts, self._sizes, self._max_timestamps, strict=True)
        kept = [column for column in columns if column[0] not in gone]
        for column in (self._bases, self._nexts, self._sizes, self._ends, self._max_timestamps):
            del column[:]
        self._peaks = None
        for base, following, size, newest in kept:
            self._remember(base, following - base - 1, size, newest)
        self.end_offset = end

    @property
    def number(self) -> int:
        """Which partition of its topic this is."""
        return int.from_bytes(self.place[-4:], "big")

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._ends[-1] - self._ends[0] + self._sizes[0] if self._ends else 0

    def append(self, batch: Batch, data: bytes, now_ms: int) -> int:
        """Store one checked batch; return its base offset. Raises StoreFailed, and then nothing changed."""
        base = self.end_offset
        puts = self._places(batch, data, base, now_ms)
        opens = batch.is_transactional and batch.producer_id not in self.transactions.open
        if opens:
            puts += ((self._open_key(batch.producer_id), OFFSET.pack(base)),)
        self._store.write(puts)
        self._remember(base, batch.last_delta, batch.size, batch.max_timestamp)
        self._store.note_end(self.place, self.end_offset)
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
        """A batch and its index entry as they are stored at offset ``base``."""
        entry = ENTRY.pack(
            batch.last_delta,
            batch.size,
            batch.max_timestamp,
            now_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
        )
        key = OFFSET.pack(base)
        return (
            (self._batch_prefix + key, records.place(data, base, LEADER_EPOCH)),
            (self._index_prefix + key, entry),
        )

    def _open_key(self, producer_id: int) -> bytes:
        return OPEN + self.place + OFFSET.pack(producer_id)

    def end_transaction(
        self, producer_id: int, epoch: int, now_ms: int, *, commits: bool
    ) -> Ending:
        """Plan the marker that ends a producer's transaction here; ``stored`` is called after its writes.

        Nothing changes before, and nothing else may be appended in between.
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
                puts += ((ENDED + self.place + OFFSET.pack(base), value),)

        def stored() -> None:
            self._remember(base, batch.last_delta, batch.size, batch.max_timestamp)
            self._store.note_end(self.place, self.end_offset)
            self.transactions.open.pop(producer_id, None)
            if aborted is not None:
                self.transactions.add(aborted)
            self.producers.mark(producer_id, epoch, now_ms)
            self._wake()

        return Ending(puts, deletes, stored)

    def aborted(self, offset: int, beyond: int) -> list[Aborted]:
        """The aborted transactions with records in [offset, beyond)."""
        return (
            [] if self._transactions is None else list(self._transactions.between(offset, beyond))
        )

    def _first_for(self, offset: int) -> int | None:
        """The position of the first batch that ends after ``offset``."""
        if offset >= self.end_offset or not self._bases:
            return None
        position = bisect_right(self._nexts, offset)
        return position if position < len(self._nexts) else None

    def _stop_at(self, beyond: int | None) -> int:
        """The position behind the last batch that begins before ``beyond`` (None: the end)."""
        return len(self._bases) if beyond is None else bisect_left(self._bases, beyond)

    def available(self, offset: int, beyond: int | None = None) -> int:
        """Bytes a reader at ``offset`` could get, up to ``beyond``; cost O(log batches)."""
        first, stop = self._first_for(offset), self._stop_at(beyond)
        if first is None or stop <= first or _is_behind(offset, beyond):
            return 0
        return self._ends[stop - 1] - self._ends[first] + self._sizes[first]

    def plan_read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, beyond: int | None = None
    ) -> Reading | None:
        """Whole batches from that of ``offset`` on, up to ``max_bytes``; the first always, if asked.

        None of them begins at ``beyond`` or later.
        """
        first, limit = self._first_for(offset), self._stop_at(beyond)
        if first is None or limit <= first or _is_behind(offset, beyond):
            return None
        before = self._ends[first] - self._sizes[first]
        stop = min(bisect_right(self._ends, before + max_bytes), limit)
        if stop <= first:
            if not at_least_one:
                return None
            stop = first + 1
        keys = tuple(self._batch_prefix + OFFSET.pack(base) for base in self._bases[first:stop])
        return Reading(
            self._bases[first], keys, self._ends[stop - 1] - before, self._nexts[stop - 1]
        )

    def peek(self, reading: Reading) -> list[bytes] | None:
        """The batches of a reading where no disk is needed, else None."""
        return self._store.peek(reading.keys)

    def load(self, reading: Reading) -> list[bytes | None]:
        """The batches of a reading, from the disk; in any thread. Raises StoreFailed."""
        return self._store.get_many(reading.keys)

    def settle(self, found: Sequence[bytes | None], reading: Reading) -> list[bytes]:
        """What a reading found. Raises StoreFailed where a batch is gone that was not trimmed meanwhile."""
        if None in found:
            if not self.deleted and reading.first >= self.start_offset:
                raise StoreFailed(f"a batch at or after offset {reading.first} is missing")
            return []
        return list(found)  # type: ignore[arg-type]

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Plan, load and settle in one go."""
        reading = self.plan_read(offset, max_bytes, at_least_one=at_least_one)
        return b"" if reading is None else b"".join(self.settle(self.load(reading), reading))

    def plan_time(self, timestamp: int) -> Reading | None:
        """The batch that holds the first record not older than ``timestamp``; cost O(log batches)."""
        if self._peaks is None:
            self._peaks = array("q", accumulate(self._max_timestamps, max))
        position = bisect_left(self._peaks, timestamp)
        if position == len(self._peaks):
            return None
        base = self._bases[position]
        key = self._batch_prefix + OFFSET.pack(base)
        return Reading(base, (key,), self._sizes[position], self._nexts[position])

    def plan_newest(self) -> tuple[Reading, int] | None:
        """The batch of the record with the greatest timestamp (KIP-734), and that time."""
        if not self._max_timestamps:
            return None
        newest = max(self._max_timestamps)
        reading = self.plan_time(newest)
        return None if reading is None else (reading, newest)

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not older than ``timestamp``, in one go."""
        reading = self.plan_time(timestamp)
        if reading is None:
            return None
        found = records.find_timestamp(self.settle(self.load(reading), reading)[0], timestamp)
        return max(found[0], self.start_offset), found[1]

    def newest_time(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the record with the greatest timestamp, in one go."""
        planned = self.plan_newest()
        return None if planned is None else self.find_time(planned[1])

    def trim(self, new_start: int) -> None:
        """Forget what is before ``new_start``: whole batches on disk, part of one by offset alone."""
        new_start = min(max(new_start, self.start_offset), self.end_offset)
        gone = bisect_right(self._nexts, new_start)
        prefixes = (self._batch_prefix, self._index_prefix) if gone else ()
        self._store.write(
            [(self._start_key, OFFSET.pack(new_start))],
            self._ended_keys(new_start),
            ranges=[self._span(prefix, gone) for prefix in prefixes],
        )
        self.start_offset = new_start
        if self._transactions is not None:
            self._transactions.trim(new_start)
        for column in (self._bases, self._nexts, self._sizes, self._ends, self._max_timestamps):
            del column[:gone]
        if gone:
            self._peaks = None

    def _ended_keys(self, before: int | None = None) -> list[bytes]:
        """The keys of aborted transactions that were over before an offset (None: of all)."""
        lasts = self._transactions.lasts() if self._transactions is not None else ()
        count = len(lasts) if before is None else bisect_left(lasts, before)
        return [ENDED + self.place + OFFSET.pack(last) for last in lasts[:count]]

    def _span(self, prefix: bytes, count: int) -> Range:
        """The keys of the first ``count`` batches."""
        bases = self._bases[:count]
        first, last = (prefix + OFFSET.pack(bases[n]) for n in (0, -1))
        return Range(
            first, last + b"\0", count, lambda: [prefix + OFFSET.pack(base) for base in bases]
        )

    def retain(self, now_ms: int, *, retention_ms: int, retention_bytes: int) -> int:
        """Delete the oldest batches past their age or over the size; return how many records went."""
        drop = 0
        if retention_ms >= 0:
            while (
                drop < len(self._bases) and 0 <= self._max_timestamps[drop] < now_ms - retention_ms
            ):
                drop += 1
        if retention_bytes >= 0 and self._ends:
            surplus = self.size - retention_bytes
            first = self._ends[0] - self._sizes[0]
            drop = max(drop, bisect_right(self._ends, first + surplus) if surplus > 0 else 0)
        if not drop:
            return 0
        old_start = self.start_offset
        self.trim(self._bases[drop] if drop < len(self._bases) else self.end_offset)
        return self.start_offset - old_start

    def every_key(self) -> Iterator[bytes]:
        """Every key of this partition."""
        for prefix in (self._batch_prefix, self._index_prefix):
            yield from (prefix + OFFSET.pack(base) for base in self._bases)
        yield from (self._start_key, self._floor_key)
        if self._transactions is not None:
            yield from map(self._open_key, self._transactions.open)
            yield from self._ended_keys()

    def close(self) -> None:
        """The partition is gone from the store: wake whoever waits for more."""
        self.deleted = True
        self._wake()

    def erase(self) -> None:
        """Drop every byte of this partition."""
        self._store.write(
            (), ranges=[prefix_range(kind + self.place, None, self.every_key) for kind in KINDS]
        )
        self.close()


def _is_behind(offset: int, beyond: int | None) -> bool:
    """Whether nothing is to be read at ``offset``: the log may begin amid a batch whose fate is open."""
    return beyond is not None and offset >= beyond


def _covers(accepted: Sequence[tuple[int, int]], hole: tuple[int, int]) -> bool:
    """Whether ranges in ascending order leave nothing of ``hole`` uncovered."""
    reached, beyond = hole
    for first, end in accepted:
        if first <= reached < end:
            reached = end
    return reached >= beyond
