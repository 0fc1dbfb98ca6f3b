"""The restore job: brings table partitions up to date outside of Faust's loop, in a thread.

    keep local files -> fill an empty database from a snapshot -> replay later records in batches

A failed partition raises no error. The failure is logged, and Faust's replay restores the
partition from the offset that the database then holds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import TopicPartition
from mode import get_logger

from faust_assigner.app.recovery.batched_replay import (
    replay,
    run_until_stopped,
    to_batch,
    to_consumer_record,
)
from faust_assigner.app.recovery.from_snapshots import Finder, from_snapshot
from faust_assigner.app.recovery.restore_task import LOCAL, REPLAY, Cold, Restored, Settings, Stop
from faust_assigner.snapshots.changelog import Extent, extents_of
from faust_assigner.snapshots.sst import is_empty

if TYPE_CHECKING:
    from aiokafka.record.default_records import DefaultRecord as Parsed

logger = get_logger(__name__)


PARALLEL_RESTORES = 4


def bring_up(
    settings: Settings,
    partitions: Sequence[Cold],
    stop: Stop,
    told: Callable[[Restored], None] = lambda restored: None,
) -> dict[TopicPartition, Restored]:
    """Restore and replay ``partitions`` in this order, a few at a time; return all results.

    ``told`` is called with a partition's result as soon as its work ends, complete or not. This
    function runs in a thread and never raises.
    """
    partitions = _with_committed_ends(settings, partitions, stop)
    job = _Job(settings, partitions, stop, told)
    # Catch CancelledError too: nothing cancels this thread, so the error comes from a client
    # library.
    with ThreadPoolExecutor(PARALLEL_RESTORES, "faust-assigner-restore") as pool:
        try:
            job.begin_snapshots(pool)
        except (Exception, asyncio.CancelledError) as error:
            logger.warning("Could not read the snapshots; tables are replayed: %r", error)
        try:
            run_until_stopped(
                replay(
                    settings.connection,
                    job,
                    stopped=stop,
                    pace=settings.pace,
                    isolation_level=settings.isolation_level,
                ),
                stop,
            )
        except (Exception, asyncio.CancelledError) as error:
            logger.log(
                logging.INFO if stop() else logging.WARNING,
                "Batched replay failed; Faust's own replay continues: %r",
                error,
            )
    return job.end()


class _Job:
    """The work of one thread: restores each partition from a snapshot, if any, then by replay."""

    def __init__(
        self,
        settings: Settings,
        partitions: Sequence[Cold],
        stop: Stop,
        told: Callable[[Restored], None],
    ) -> None:
        self._settings, self._stop, self._told = settings, stop, told
        started = time.time()
        self._colds = {cold.tp: cold for cold in partitions}
        self._waiting = list(partitions)
        self._snapshots: dict[TopicPartition, Future[Restored | None]] = {}
        self._done = {
            cold.tp: Restored(
                cold.tp,
                REPLAY if is_empty(cold.database) else LOCAL,
                started,
                started,
                cold.offset,
                cold.offset,
                0,
            )
            for cold in partitions
        }
        settings.progress.begin(
            {cold.tp: (cold.offset + 1, cold.highwater + 1) for cold in partitions}
        )

    def begin_snapshots(self, pool: ThreadPoolExecutor) -> None:
        """Begin to fetch snapshots for the empty databases, four at a time and in their order."""
        empty = [
            cold
            for cold in self._waiting
            if self._done[cold.tp].source == REPLAY and cold.takes_files
        ]
        if self._settings.snapshots and empty:
            finder = Finder(self._settings, [cold.tp for cold in empty], self._stop)
            for cold in empty:
                self._snapshots[cold.tp] = pool.submit(
                    from_snapshot, self._settings, finder, cold, self._stop
                )

    @property
    def tps(self) -> Collection[TopicPartition]:
        """All partitions whose work has not ended."""
        return self._colds.keys()

    def is_over(self) -> bool:
        """Whether each partition's replay has begun or was not needed."""
        return not self._waiting

    def begin(self) -> tuple[TopicPartition, Extent] | None:
        """Return the first partition that lacks records and waits for no snapshot, or None."""
        for cold in tuple(self._waiting):
            snapshot = self._snapshots.get(cold.tp)
            if snapshot is not None and not snapshot.done():
                continue
            self._waiting.remove(cold)
            if snapshot is not None and (restored := snapshot.result()) is not None:
                self._done[cold.tp] = restored
                self._settings.progress.move(cold.tp, restored.end_offset + 1)
            first = self._done[cold.tp].end_offset + 1
            if self._settings.batched and first <= cold.highwater:
                # Replay even a single record in this job: Faust's loop would take a second or two.
                return cold.tp, Extent(first, cold.highwater + 1)
            self._finish_partition(cold.tp)
        return None

    def write(self, tp: TopicPartition, records: Sequence[Parsed], position: int) -> None:
        """Write the records and their last offset in one batch."""
        cold, before = self._colds[tp], self._done[tp]
        batch, refused = to_batch(records, position, cold.decoding, partial(to_consumer_record, tp))
        cold.database.write(batch)
        self._done[tp] = replace(
            before,
            ended=time.time(),
            end_offset=position - 1,
            replayed=before.replayed + position - 1 - before.end_offset,
            replayed_bytes=before.replayed_bytes
            + sum(len(record.key or b"") + len(record.value or b"") for record in records),
        )
        self._settings.unreadable(tp, refused)
        self._settings.progress.move(tp, position)

    def finish(self, tp: TopicPartition) -> None:
        """Report ``tp`` as restored to its end."""
        self._finish_partition(tp)

    def _finish_partition(self, tp: TopicPartition) -> None:
        self._colds.pop(tp)
        self._settings.progress.finish(tp)
        self._told(self._done[tp])

    def end(self) -> dict[TopicPartition, Restored]:
        """Report the unfinished partitions too; return all results."""
        for tp, snapshot in self._snapshots.items():
            # A snapshot that arrives after the end of the replay is still used.
            restored = snapshot.result() if tp in self._colds else None
            if restored is not None and restored.end_offset > self._done[tp].end_offset:
                self._done[tp] = restored
        for tp in tuple(self._colds):
            self._finish_partition(tp)
        return self._done


def _with_committed_ends(
    settings: Settings, partitions: Sequence[Cold], stop: Stop
) -> Sequence[Cold]:
    """Return ``partitions``; under ``exactly_once``, with the broker's committed end offsets.

    Faust has these ends only after a fetch, which is often too late.
    """
    if settings.isolation_level != "read_committed":
        return partitions
    try:
        ends = run_until_stopped(
            extents_of(settings.connection, [cold.tp for cold in partitions]), stop
        )
    except (Exception, asyncio.CancelledError) as error:
        logger.warning("Could not read the committed end offsets of changelogs: %r", error)
        return partitions
    if ends is None:
        return partitions
    return [replace(cold, highwater=ends[cold.tp].end - 1) for cold in partitions]
