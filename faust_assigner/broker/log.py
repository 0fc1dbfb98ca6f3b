"""One partition's log: opaque record batches in the store, a small index of them in memory.

Offsets are contiguous: the next batch starts where the last one ended. A batch and its index entry are one
atomic write; after a crash the log is what the store gives back, cut at the first gap. The high watermark is
the log end offset (one replica).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from faust_assigner.broker import records
from faust_assigner.broker.producers import ProducerBook
from faust_assigner.broker.records import Batch
from faust_assigner.broker.store import Store

LEADER_EPOCH: Final = 0  # one broker is the leader from the first record to the last
ENTRY: Final = struct.Struct(
    ">iqqqqhi"
)  # last delta, size, max timestamp, appended at, producer id, epoch, sequence
OFFSET: Final = struct.Struct(">q")


class PartitionLog:
    """Append, read, trim. Not thread-safe; used from the broker's event loop only."""

    def __init__(self, store: Store, topic_id: bytes, partition: int, *, is_new: bool = False) -> None:
        self._store = store
        place = topic_id + struct.pack(">i", partition)
        self._batch_prefix, self._index_prefix, self._start_key = b"b" + place, b"x" + place, b"s" + place
        self.start_offset = 0
        self.end_offset = 0
        self._bases = array("q")
        self._ends = array("q")  # running total of bytes after each batch
        self._sizes = array("q")
        self._max_timestamps = array("q")
        self._unsynced_records = 0
        self.producers = ProducerBook()
        self.waiters: dict[int, Callable[[], None]] = {}
        self.deleted = False
        if not is_new:
            self._load()

    def _load(self) -> None:
        saved = self._store.get(self._start_key)
        if saved is not None:
            (self.start_offset,) = OFFSET.unpack(saved)
        self.end_offset = self.start_offset
        prefix = len(self._index_prefix)
        stale: list[bytes] = []
        for key, value in self._store.scan(self._index_prefix):
            (base,) = OFFSET.unpack_from(key, prefix)
            last_delta, size, max_timestamp, appended_ms, producer_id, epoch, sequence = ENTRY.unpack(value)
            if stale or (self._bases and base != self.end_offset):
                # A gap: what follows it cannot be read in order, and must not meet later appends.
                stale += [key, self._batch_prefix + key[prefix:]]
                continue
            if not self._bases and base > self.start_offset:
                self.start_offset = base
            self._remember(base, last_delta, size, max_timestamp)
            self.producers.record(producer_id, epoch, sequence, last_delta, base, appended_ms)
        if stale:
            self._store.write((), stale)

    def _remember(self, base: int, last_delta: int, size: int, max_timestamp: int) -> None:
        self._bases.append(base)
        self._sizes.append(size)
        self._ends.append((self._ends[-1] if self._ends else 0) + size)
        self._max_timestamps.append(max_timestamp)
        self.end_offset = base + last_delta + 1

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return self._ends[-1] - self._ends[0] + self._sizes[0] if self._ends else 0

    def append(self, batch: Batch, data: bytes, now_ms: int, *, flush_every: int) -> int:
        """Store one checked batch; return its base offset. Raises StoreFailed, and then nothing changed."""
        base = self.end_offset
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
        sync = self._unsynced_records + batch.count >= flush_every
        self._store.write(
            (
                (self._batch_prefix + key, records.place(data, base, LEADER_EPOCH)),
                (self._index_prefix + key, entry),
            ),
            sync=sync,
        )
        self._unsynced_records = 0 if sync else self._unsynced_records + batch.count
        self._remember(base, batch.last_delta, batch.size, batch.max_timestamp)
        self.producers.record(
            batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_delta, base, now_ms
        )
        for wake in list(self.waiters.values()):
            wake()
        return base

    def available(self, offset: int) -> int:
        """Bytes a reader at ``offset`` could get; cost O(log batches)."""
        if offset >= self.end_offset or not self._bases:
            return 0
        first = max(bisect_right(self._bases, offset) - 1, 0)
        return self._ends[-1] - self._ends[first] + self._sizes[first]

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Whole batches from that of ``offset`` on, up to ``max_bytes``; the first always, if asked."""
        if offset >= self.end_offset or not self._bases:
            return b""
        first = max(bisect_right(self._bases, offset) - 1, 0)
        before = self._ends[first] - self._sizes[first]
        stop = bisect_right(self._ends, before + max_bytes)
        if stop <= first:
            if not at_least_one:
                return b""
            stop = first + 1
        keys = [self._batch_prefix + OFFSET.pack(base) for base in self._bases[first:stop]]
        found = self._store.get_many(keys)
        whole = [batch for batch in found if batch is not None]
        if len(whole) < len(found):
            whole = whole[: found.index(None)]
        return b"".join(whole)

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not older than ``timestamp``; cost O(batches)."""
        for position, newest in enumerate(self._max_timestamps):
            if newest >= timestamp:
                data = self._store.get(self._batch_prefix + OFFSET.pack(self._bases[position]))
                if data is None:
                    return None
                offset, found = records.find_timestamp(data, timestamp)
                return max(offset, self.start_offset), found
        return None

    def newest_time(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the record with the greatest timestamp (KIP-734)."""
        if not self._max_timestamps:
            return None
        return self.find_time(max(self._max_timestamps))

    def trim(self, new_start: int) -> None:
        """Forget what is before ``new_start``: whole batches on disk, part of one by offset alone."""
        new_start = min(max(new_start, self.start_offset), self.end_offset)
        keep = bisect_right(self._bases, new_start) - 1
        if new_start == self.end_offset:
            keep = len(self._bases)
        gone = self._bases[: max(keep, 0)]
        deletes = [
            prefix + OFFSET.pack(b) for b in gone for prefix in (self._batch_prefix, self._index_prefix)
        ]
        self._store.write([(self._start_key, OFFSET.pack(new_start))], deletes)
        self.start_offset = new_start
        for column in (self._bases, self._sizes, self._ends, self._max_timestamps):
            del column[: len(gone)]

    def retain(self, now_ms: int, *, retention_ms: int, retention_bytes: int) -> int:
        """Delete the oldest batches past their age or over the size; return how many records went."""
        drop = 0
        if retention_ms >= 0:
            while drop < len(self._bases) and 0 <= self._max_timestamps[drop] < now_ms - retention_ms:
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

    def erase(self) -> None:
        """Drop every byte of this partition and wake whoever waits for more."""
        keys = [OFFSET.pack(base) for base in self._bases]
        for prefix in (self._batch_prefix, self._index_prefix):
            self._store.drop(prefix, [prefix + key for key in keys])
        self._store.write((), [self._start_key])
        self.deleted = True
        for wake in list(self.waiters.values()):
            wake()

    def batch_starts(self) -> tuple[int, ...]:
        """Base offsets, for inspection and tests."""
        return tuple(self._bases)
