"""Find missing or broken batches in one partition's log, and accept their loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from faust_assigner.broker.storage.batch_index import Row
from faust_assigner.broker.storage.entries import FLOOR, HOLE, OFFSET
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.store import StoreFailed


def unexplained_holes(log: PartitionLog) -> list[tuple[int, int]]:
    """Return missing offsets [first, beyond), except losses that an earlier start accepted."""
    return [hole for hole in log.holes if not _covers_hole(log.accepted, hole)]


def _covers_hole(accepted: Sequence[tuple[int, int]], hole: tuple[int, int]) -> bool:
    """Whether ranges in ascending order cover all of ``hole``."""
    reached, beyond = hole
    for first, end in accepted:
        if first <= reached < end:
            reached = end
    return reached >= beyond


def unreadable(
    log: PartitionLog, chunk_bytes: int, progress: Callable[[], None]
) -> Iterator[tuple[int, int]]:
    """Yield the offsets [first, beyond) of missing or broken batches.

    Reads all batches, and calls ``progress`` after each chunk; ``progress`` may raise to stop the reads.
    """
    index, first = log.index, 0
    while first < len(index):
        stop = max(index.within(first, chunk_bytes), first + 1)
        rows = index.rows(first, stop)
        if not _are_batches_whole(log, rows):
            for row in rows:
                if not _are_batches_whole(log, [row]):
                    yield row.base, row.following
        first = stop
        progress()


def _are_batches_whole(log: PartitionLog, rows: Sequence[Row]) -> bool:
    try:
        found = log.store.get_many([log.batch_key(row.base) for row in rows])
    except StoreFailed:
        return False
    return all(
        data is not None and len(data) == row.size for data, row in zip(found, rows, strict=True)
    )


def accept_losses(
    log: PartitionLog, losses: Sequence[tuple[int, int]], lost_batches: Iterable[int]
) -> None:
    """Continue without the lost data: no offset is reused, and later starts accept the loss."""
    gone, index = set(lost_batches), log.index
    keys = [key(base) for base in gone for key in (log.batch_key, log.index_key)]
    end = max(log.end_offset, *(beyond for _, beyond in losses))
    accepted = tuple(sorted({*log.accepted, *losses}))
    pairs = b"".join(HOLE.pack(*hole) for hole in accepted)
    log.store.write([(FLOOR + log.place, OFFSET.pack(end) + pairs)], keys)
    log.accepted, log.end_offset = accepted, end
    kept = [row for row in index.rows(0, len(index)) if row.base not in gone]
    index.replace(0, len(index), kept)
