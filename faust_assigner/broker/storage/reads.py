"""Reads of one partition's log: plan whole batches by offset or time, and check the batches that were loaded.

A plan uses the index in memory only. The caller takes the batches from the store afterwards, in any thread.
Meanwhile the log may be trimmed, compacted or deleted, so the loaded batches are checked against the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.store import StoreFailed


@dataclass(frozen=True, slots=True)
class Reading:
    """A planned read. ``first`` is the base offset of the first batch, ``size`` the bytes of all batches.

    ``keys`` are the store keys of the batches. ``beyond`` is the offset after the last batch.
    ``cleanings`` is the log's count of compactions at the time of the plan: a higher count later shows that
    a compaction changed the log.
    """

    first: int
    keys: tuple[bytes, ...]
    size: int
    beyond: int
    cleanings: int


def available(log: PartitionLog, offset: int, beyond: int | None = None) -> int:
    """Return the bytes to read from ``offset``, up to ``beyond``; cost O(log batches)."""
    first, stop = _batch_span(log, offset, beyond)
    return log.index.bytes_between(first, stop) if stop > first else 0


def plan_read(
    log: PartitionLog, offset: int, max_bytes: int, *, at_least_one: bool, beyond: int | None = None
) -> Reading | None:
    """Plan a read of whole batches from ``offset`` on, up to ``max_bytes`` and before ``beyond``.

    With ``at_least_one``, the first batch is included even if it exceeds ``max_bytes``.
    """
    first, limit = _batch_span(log, offset, beyond)
    if limit <= first:
        return None
    stop = min(log.index.within(first, max_bytes), limit)
    if stop <= first:
        if not at_least_one:
            return None
        stop = first + 1
    return _new_read(log, first, stop)


def plan_time(log: PartitionLog, timestamp: int) -> Reading | None:
    """Plan a read of the batch with the first record not older than ``timestamp``; cost O(log batches)."""
    position = log.index.at_time(timestamp)
    return None if position is None else _new_read(log, position, position + 1)


def _batch_span(log: PartitionLog, offset: int, beyond: int | None) -> tuple[int, int]:
    """Return positions [first, stop) of the batches from ``offset`` on; all begin before ``beyond``."""
    if offset >= log.end_offset or (beyond is not None and offset >= beyond):
        return 0, 0  # ``offset`` may be in an open transaction's batch, if a trim cut this batch
    first = log.index.first_after(offset)
    return (0, 0) if first is None else (first, log.index.stop_before(beyond))


def _new_read(log: PartitionLog, first: int, stop: int) -> Reading:
    index = log.index
    keys = tuple(map(log.batch_key, index.bases[first:stop]))
    size, beyond = index.bytes_between(first, stop), index.nexts[stop - 1]
    return Reading(index.bases[first], keys, size, beyond, log.cleanings)


def present_batches(
    log: PartitionLog, found: Sequence[bytes | None], reading: Reading
) -> list[bytes]:
    """Return the loaded batches, without trimmed or compacted batches.

    Raises StoreFailed if a batch is missing for any other reason.
    """
    there = [data for data in found if data is not None]
    if len(there) == len(found) or reading.cleanings != log.cleanings:
        return there
    if not log.deleted and reading.first >= log.start_offset:
        raise StoreFailed(f"a batch at or after offset {reading.first} is missing")
    return []
