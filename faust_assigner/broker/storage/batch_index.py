"""The index of one partition's batches in memory: columns of numbers, searched by offset, size and time."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np

from faust_assigner.broker.storage.records import HEADER

#: The base offset of a batch -> the time of its append in ms, which only the store has.
AppendedMs: TypeAlias = Callable[[int], int]


class Row(NamedTuple):
    """One batch: first offset, offset after the last record, size in bytes, greatest timestamp in ms."""

    base: int
    following: int
    size: int
    max_timestamp: int


class BatchIndex:
    """Rows in ascending order of offsets, perhaps with gaps between them.

    Cost: O(log batches) for a search, O(1) for :meth:`append`, O(batches) for other calls.
    """

    __slots__ = ("_ends", "_peaks", "_times", "bases", "nexts", "sizes")

    def __init__(self) -> None:
        self.bases = array("q")
        self.nexts = array("q")  # the offset after each batch
        self.sizes = array("q")
        self._ends = array("q")  # running total of bytes after each batch
        self._times = array("q")  # greatest timestamps
        self._peaks: array[int] | None = None  # running maximum of times, made at the first search

    def __len__(self) -> int:
        return len(self.bases)

    @property
    def size(self) -> int:
        """The bytes of all batches."""
        return self.bytes_between(0, len(self.bases))

    def append(self, base: int, following: int, size: int, max_timestamp: int) -> None:
        """Append a batch."""
        self.bases.append(base)
        self.nexts.append(following)
        self.sizes.append(size)
        self._ends.append((self._ends[-1] if self._ends else 0) + size)
        self._times.append(max_timestamp)
        if self._peaks is not None:
            self._peaks.append(
                max(self._peaks[-1], max_timestamp) if self._peaks else max_timestamp
            )

    def rows(self, first: int, stop: int) -> list[Row]:
        """Return the batches from position ``first`` to before ``stop``."""
        part = slice(first, stop)
        columns = (self.bases[part], self.nexts[part], self.sizes[part], self._times[part])
        return [Row(*row) for row in zip(*columns, strict=True)]

    def replace(self, first: int, stop: int, rows: Iterable[Row]) -> None:
        """Replace the batches from position ``first`` to before ``stop``."""
        fresh = list(rows)
        self.bases[first:stop] = array("q", (row.base for row in fresh))
        self.nexts[first:stop] = array("q", (row.following for row in fresh))
        self.sizes[first:stop] = array("q", (row.size for row in fresh))
        self._times[first:stop] = array("q", (row.max_timestamp for row in fresh))
        totals = np.cumsum(np.frombuffer(self.sizes, np.int64)) if self.sizes else np.empty(0)
        self._ends = array("q", totals.astype(np.int64).tobytes())
        self._peaks = None

    def drop(self, count: int) -> None:
        """Remove the first ``count`` batches."""
        if count:
            for column in (self.bases, self.nexts, self.sizes, self._ends, self._times):
                del column[:count]
            self._peaks = None

    # -- by offset and size ----------------------------------------------------------------------

    def first_after(self, offset: int) -> int | None:
        """Return the position of the first batch that ends after ``offset``, or None."""
        position = bisect_right(self.nexts, offset)
        return position if position < len(self.nexts) else None

    def stop_before(self, beyond: int | None) -> int:
        """Return the position after the last batch that begins before ``beyond`` (None: the end)."""
        return len(self.bases) if beyond is None else bisect_left(self.bases, beyond)

    def ended_before(self, offset: int) -> int:
        """Return how many batches have no record at ``offset`` or later."""
        return bisect_right(self.nexts, offset)

    def bytes_between(self, first: int, stop: int) -> int:
        """Return the bytes of the batches from position ``first`` to before ``stop``."""
        if stop <= first:
            return 0
        return self._ends[stop - 1] - self._ends[first] + self.sizes[first]

    def within(self, first: int, max_bytes: int) -> int:
        """Return the position after the last batch that fits into ``max_bytes`` from ``first`` on."""
        before = self._ends[first] - self.sizes[first]
        return bisect_right(self._ends, before + max_bytes)

    # -- by time ---------------------------------------------------------------------------------

    def at_time(self, timestamp: int) -> int | None:
        """Return the position of the first batch with a record not older than ``timestamp``."""
        if self._peaks is None:
            self._peaks = array("q", accumulate(self._times, max))
        position = bisect_left(self._peaks, timestamp)
        return position if position < len(self._peaks) else None

    def newest_time(self) -> int | None:
        """Return the greatest timestamp; None without batches."""
        return max(self._times) if self._times else None

    def time_of(self, position: int, appended_ms: AppendedMs) -> int:
        """Return the greatest timestamp of one batch; the time of its append if no record has a time."""
        timestamp = self._times[position]
        return timestamp if timestamp >= 0 else appended_ms(self.bases[position])

    def first_newer(self, time_ms: int, first: int, stop: int, appended_ms: AppendedMs) -> int:
        """Return the first position from ``first`` with a time above ``time_ms``, else ``stop``."""
        newer = (n for n in range(first, stop) if self.time_of(n, appended_ms) > time_ms)
        return next(newer, stop)

    def overdue(self, oldest_ms: int | None, max_bytes: int | None, appended_ms: AppendedMs) -> int:
        """Return how many of the oldest batches to delete, by age or by the size of the log.

        ``oldest_ms`` is the oldest time that may stay, ``max_bytes`` the greatest size; None: no limit. A
        batch that compaction emptied is deleted with the batches before it.
        """
        count = 0
        if oldest_ms is not None:
            while count < len(self.bases) and (
                self.sizes[count] == HEADER.size or self.time_of(count, appended_ms) < oldest_ms
            ):
                count += 1
        if max_bytes is not None and self.bases:
            surplus = self.size - max_bytes
            count = max(count, self.within(0, surplus) if surplus > 0 else 0)
        return count
