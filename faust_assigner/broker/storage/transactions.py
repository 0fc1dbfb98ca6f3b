"""The open and aborted transactions of one partition, and the markers that end transactions.

A read_committed consumer reads up to the last stable offset: the first record of the oldest open transaction.
The consumer receives the list of aborted transactions in its range, and skips their records (KIP-98).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from faust_assigner.broker.storage.entries import Pair
from faust_assigner.broker.storage.records import (
    CONTROL,
    CRC_FROM,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    Batch,
)

ABORTED: Final = struct.Struct(">qqq")  # producer id, first offset, stable offset
NO_SEQUENCE: Final = -1
#: A record: length, attributes, time, offset, a key of 4 bytes, a value of 6 bytes, no headers. The key is a
#: version and a type. The value is a version and the coordinator epoch, which is always 0 in this broker.
RECORD: Final = struct.Struct(">bbbbbhhbhib")
ABORT_TYPE, COMMIT_TYPE = 0, 1


class Ending(NamedTuple):
    """The writes that end a transaction in one partition, and a function to call after them."""

    puts: tuple[Pair, ...]
    deletes: tuple[bytes, ...]
    stored: Callable[[], None]


class Aborted(NamedTuple):
    """One aborted transaction: offsets of its first record and of its marker.

    ``stable`` is the last stable offset after the transaction's end. All later aborted transactions begin at
    or after ``stable``.
    """

    producer_id: int
    first: int
    last: int
    stable: int


class TransactionIndex:
    """The open and aborted transactions in memory. The store has the same transactions."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}  # producer id -> first offset, in ascending order of offsets
        self._aborted: list[Aborted] = []
        self._lasts: list[int] = []

    def restore(self, opened: Iterable[tuple[int, int]], aborted: Iterable[Aborted]) -> None:
        """Restore the open transactions (producer id, first offset) and the aborted transactions.

        The open transactions may be in any order; the aborted transactions are in the order of markers.
        """
        self.open = dict(sorted(opened, key=lambda pair: pair[1]))
        for one in aborted:
            self.add(one)

    def add(self, aborted: Aborted) -> None:
        """Add an aborted transaction, whose marker is after all earlier markers."""
        self._aborted.append(aborted)
        self._lasts.append(aborted.last)

    def first_open(self, *, without: int | None = None) -> int | None:
        """Return the first offset of the oldest open transaction, except of producer id ``without``."""
        return next((first for pid, first in self.open.items() if pid != without), None)

    def between(self, offset: int, beyond: int) -> Iterator[Aborted]:
        """Yield aborted transactions with records in [offset, beyond); cost O(log all + examined)."""
        for position in range(bisect_left(self._lasts, offset), len(self._aborted)):
            found = self._aborted[position]
            if found.first < beyond:
                yield found
            if found.stable >= beyond:
                return

    def trim(self, start: int) -> int:
        """Forget transactions whose marker is before ``start``; return their number."""
        gone = bisect_right(self._lasts, start - 1)
        del self._aborted[:gone], self._lasts[:gone]
        return gone

    def forget(self, last: int) -> bool:
        """Forget the transaction whose marker is at offset ``last``; return whether it was known."""
        position = bisect_left(self._lasts, last)
        if position == len(self._lasts) or self._lasts[position] != last:
            return False
        del self._aborted[position], self._lasts[position]
        return True

    def aborted_markers(self) -> tuple[int, ...]:
        """Return the marker offsets of all aborted transactions."""
        return tuple(self._lasts)


def marker_batch(
    producer_id: int, epoch: int, now_ms: int, *, commits: bool
) -> tuple[bytes, Batch]:
    """Build the control batch that ends a transaction, at offset 0."""
    fields = RECORD.pack(0, 0, 0, 0, 8, 0, COMMIT_TYPE if commits else ABORT_TYPE, 12, 0, 0, 0)
    body = bytes([2 * (len(fields) - 1)]) + fields[1:]  # zigzag stores a length n >= 0 as 2 * n
    attributes = TRANSACTIONAL | CONTROL
    size = HEADER.size + len(body)
    header = HEADER.pack(
        0,
        size - LENGTH_OVERHEAD,
        -1,
        MAGIC,
        0,
        attributes,
        0,
        now_ms,
        now_ms,
        producer_id,
        epoch,
        NO_SEQUENCE,
        1,
    )
    data = bytearray(header + body)
    struct.pack_into(">I", data, CRC_FROM - 4, crc32c(memoryview(data)[CRC_FROM:]))
    batch = Batch(0, size, attributes, 0, now_ms, now_ms, producer_id, epoch, NO_SEQUENCE, 1)
    return bytes(data), batch
