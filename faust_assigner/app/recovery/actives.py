"""Restores active partitions task by task; a task is all partitions of one number.

The source partitions of a task are processed as soon as the task is restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from faust.tables.recovery import RecoveryStats
from mode import get_logger

from faust_assigner.app.recovery.callbacks import RecoverCallbacks, call_callbacks, is_overridden
from faust_assigner.app.recovery.changelog_extents import Leaderless
from faust_assigner.app.recovery.restore_task import Stop
from faust_assigner.app.retry import retry
from faust_assigner.app.tables import flushing
from faust_assigner.app.tables import windowed_tables as windows
from faust_assigner.app.tables.disk import offset_or_minus_one
from faust_assigner.app.tables.storage_errors import is_storage_error

if TYPE_CHECKING:
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP

    from faust_assigner.app.recovery.by_partition import PartitionRecovery
    from faust_assigner.app.recovery.changelog_extents import ChangelogExtents
    from faust_assigner.app.recovery.restoring import BatchedRestore

logger = get_logger(__name__)

#: A batched restore may take this share of ``broker_max_poll_interval``, because the consumer may take no
#: records meanwhile. After this time Faust's loop continues the restore.
SILENT_SHARE = 0.5
#: Tasks that lack at most this many records are restored together, because starting a batch takes
#: longer than reading so few records.
FEW_RECORDS = 2_000
#: Seconds between two checks whether a replay by Faust's loop has ended.
LOOK_S = 0.01


class ActiveRestore:
    """Restores the active partitions of one recovery service."""

    def __init__(
        self, recovery: PartitionRecovery, extents: ChangelogExtents, batches: BatchedRestore
    ) -> None:
        self._recovery, self._extents, self._batches = recovery, extents, batches
        #: The partitions whose tables are completely restored.
        self.complete: set[TP] = set()
        #: Partitions that Faust's loop restores at present.
        self.replayed: frozenset[TP] = frozenset()
        self.callbacks = RecoverCallbacks(self._call_back)

    async def restore(self, pending: set[TP]) -> None:
        """Restore the tables of ``pending`` to the ends of their changelogs, task by task.

        The sources of each restored task are resumed at once. The partitions whose changelogs have no
        leader are restored last.
        """
        recovery = self._recovery
        highwaters = await self._find_reachable_ends(pending)
        alone = self._read_by_all()
        self.begin_callbacks(pending)
        held = self._with_running_callbacks()
        await self._let_flow(pending | held, alone)
        left = {
            tp: end - offset_or_minus_one(recovery.active_offsets[tp])
            for tp, end in highwaters.items()
        }
        self._report_begin(left, highwaters)
        limit = recovery.app.conf.broker_max_poll_interval
        stop, before = Stop(limit * SILENT_SHARE if limit else None), recovery.restored
        recovery.restored = {}
        async for chunk in self._restored_chunks(list(chunks(left, alone)), left, highwaters, stop):
            await self._finish_chunk(chunk, {tp: highwaters[tp] for tp in chunk})
            pending = pending - chunk
            self.begin_callbacks(pending)
            await self.callbacks.over()
            await self._let_flow(pending, alone)
            stop.renew()
        await self.callbacks.over()
        if held:
            await self._let_flow(pending, alone)
        recovery.restored = {**before, **recovery.restored}
        if pending:
            await self.restore(pending)

    async def _find_reachable_ends(self, pending: set[TP]) -> dict[TP, int]:
        """Return the last offsets of ``pending``, without the changelogs that have no leader."""
        while True:
            try:
                return await self._find_ends(pending)
            except Leaderless as error:
                pending = pending - error.tps
                logger.error(
                    "Changelogs without a leader: %s; the partitions with these numbers are processed "
                    "when their tables can be restored, the other partitions are processed now",
                    error,
                )

    async def _find_ends(self, pending: set[TP]) -> dict[TP, int]:
        """Return each changelog's last offset; mark the offsets before the first record as read."""
        recovery, offsets = self._recovery, self._recovery.active_offsets
        ends, firsts = await self._extents.ends(pending), await self._extents.firsts(pending)
        await recovery.consistency.refuse_ahead(recovery, offsets, ends, firsts)
        for tp in pending:
            offsets[tp] = max(offset_or_minus_one(offsets[tp]), firsts[tp] - 1)
        return {tp: ends[tp] - 1 for tp in pending}

    def _read_by_all(self) -> frozenset[str]:
        """Return the changelog topics of tables of which a stream may read every partition."""
        return frozenset(
            table.changelog_topic.get_topic_name()
            for table in self._recovery.tables.values()
            if table.is_global or table.use_partitioner
        )

    def _report_begin(self, left: Mapping[TP, int], highwaters: Mapping[TP, int]) -> None:
        """Report to the tracing span and the progress how many records each partition lacks."""
        recovery = self._recovery
        offsets = {tp: offset_or_minus_one(recovery.active_offsets[tp]) for tp in sorted(left)}
        recovery.spans.tag_actives(
            {
                tp: RecoveryStats(highwaters[tp], offset, left[tp])
                for tp, offset in offsets.items()
                if left[tp]
            }
        )
        recovery.progress.begin(
            {tp: (offset + 1, highwaters[tp] + 1) for tp, offset in offsets.items()}
        )

    async def _restored_chunks(
        self, waiting: list[frozenset[TP]], left: Mapping[TP, int], highwaters: Any, stop: Stop
    ) -> AsyncGenerator[frozenset[TP], None]:
        """Yield each chunk (see :func:`chunks`) once the batched restore of its partitions ends."""
        offsets = self._recovery.active_offsets
        lacking = {tp for tp, records in left.items() if records > 0}
        order = [tp for chunk in waiting for tp in sorted(chunk & lacking)]
        while ready := [chunk for chunk in waiting if not chunk & lacking]:
            yield ready[0]
            waiting.remove(ready[0])
        async for tp in self._batches.restore(order, offsets, highwaters, stop):
            lacking.discard(tp)
            while ready := [chunk for chunk in waiting if not chunk & lacking]:
                yield ready[0]
                waiting.remove(ready[0])

    async def _finish_chunk(self, chunk: frozenset[TP], highwaters: Mapping[TP, int]) -> None:
        """Replay the remaining records of ``chunk`` and count the chunk as restored."""
        recovery = self._recovery
        recovery.active_highwaters.clear()
        recovery.active_highwaters.update(highwaters)
        if recovery.meter is not None:
            recovery.meter.note_start(chunk, recovery.restored)
        if recovery.need_recovery():
            await self._replay(chunk)
        # The chunk counts as restored only after this call. If a rebalance interrupts the call, the
        # chunk is restored and reported again.
        await self._tell_tables(chunk)
        if recovery.meter is not None:
            recovery.meter.finish(chunk)
        self.complete |= chunk
        flushing.resume(recovery.app, chunk)
        windows.restored(recovery.tables.closings, chunk)

    async def _replay(self, chunk: frozenset[TP]) -> None:
        """Let Faust's loop replay the rest, such as tables in memory and tables with callbacks."""
        recovery = self._recovery
        consumer, offsets = recovery.app.consumer, recovery.active_offsets
        await consumer.seek_wait({tp: offset_or_minus_one(offsets[tp]) + 1 for tp in chunk})
        recovery._set_recovery_started()
        recovery.app.in_recovery = False  # otherwise source partitions would not be processed
        self.replayed = chunk
        consumer.resume_partitions(chunk)
        recovery.progress.begin(
            {
                tp: (offset_or_minus_one(offsets[tp]) + 1, recovery.active_highwaters[tp] + 1)
                for tp in chunk
            }
        )
        while recovery.need_recovery():
            await asyncio.sleep(LOOK_S)
            for tp in chunk:
                recovery.progress.move(tp, offset_or_minus_one(offsets[tp]) + 1)
        for tp in chunk:
            recovery.progress.finish(tp)
        recovery.flush_buffers()
        self.replayed = frozenset()
        recovery._set_recovery_ended()
        consumer.pause_partitions(chunk)

    async def _let_flow(self, pending: Collection[TP], alone: Collection[str]) -> None:
        """Fetch the committed offsets of all ready sources, seek to them and resume the sources."""
        recovery = self._recovery
        consumer, of = recovery.app.consumer, recovery.tables._changelogs
        paused = {tp for tp in consumer._paused_partitions if tp.topic not in of}
        if sources := ready_sources(paused, pending, alone):
            await retry(
                recovery, "Committed offsets", partial(consumer.incremental.seek_some, sources)
            )
            consumer.resume_partitions(sources)

    # -- the tables and their callbacks

    async def _tell_tables(self, chunk: Collection[TP]) -> None:
        """Report restored partitions and standbys to the tables, which then build their sets from rows."""
        for table in self._recovery.tables.values():
            if any(tp.topic in table.changelog_topic.topics for tp in chunk):
                try:
                    await table.data.on_recovery_completed(*self._parts_of(table))
                except Exception as error:
                    if is_storage_error(error):
                        # A reported failure has cancelled this task: all tables are restored again.
                        await asyncio.sleep(0)
                    raise
                self.callbacks.owe([table])

    def _parts_of(self, table: CollectionT) -> tuple[set[TP], set[TP]]:
        """Return the table's partitions on this worker, and the standbys among them.

        A table in memory drops the rows of all other partitions.
        """
        copies = self._recovery.standbys_for_table[table]
        return self._recovery.actives_for_table[table] | copies, copies

    async def _call_back(self, table: CollectionT) -> None:
        """Call the table's callbacks, or the app's own ``on_recovery_completed``, as Faust does."""
        if is_overridden(table, "on_recovery_completed"):
            await table.on_recovery_completed(*self._parts_of(table))
        else:
            await call_callbacks(table)

    def begin_callbacks(self, pending: Collection[TP]) -> None:
        """Begin the due callbacks of the tables without a partition in ``pending``."""
        lacking = {tp.topic for tp in pending}
        self.callbacks.begin(lambda table: not lacking & set(table.changelog_topic.topics))

    def _with_running_callbacks(self) -> set[TP]:
        """Return the restored partitions whose tables' callbacks run; their sources must wait."""
        of, running = self._recovery.tables._changelogs, self.callbacks.running
        return {tp for tp in self.complete if of[tp.topic] in running}


def chunks(left: Mapping[TP, int], alone: Collection[str] = ()) -> Iterator[frozenset[TP]]:
    """Yield sets of changelog partitions that are restored together, in the order of restoring.

    ``left`` maps each partition to the number of records that its table lacks. Partitions of one
    number make up a task and are restored together. First come the tables of which a stream may
    read every partition (their topics are in ``alone``), then the complete tasks. Tasks with at
    most ``FEW_RECORDS`` records follow, then all other tasks one at a time, the fewest records first.
    """
    everybody = frozenset(tp for tp in left if tp.topic in alone)
    if everybody:
        yield everybody
    by_number: dict[int, set[TP]] = {}
    for tp in left.keys() - everybody:
        by_number.setdefault(tp.partition, set()).add(tp)
    lacking = {number: sum(max(0, left[tp]) for tp in tps) for number, tps in by_number.items()}
    ready = [number for number, records in lacking.items() if not records]
    few = [number for number, records in lacking.items() if 0 < records <= FEW_RECORDS]
    many = sorted((records, number) for number, records in lacking.items() if records > FEW_RECORDS)
    for numbers in (ready, few, *([number] for _, number in many)):
        if numbers:
            yield frozenset(tp for number in numbers for tp in by_number[number])


def ready_sources(
    sources: Collection[TP], pending: Collection[TP], alone: Collection[str] = ()
) -> set[TP]:
    """Return the ``sources`` with restored tables; the ``pending`` partitions are not restored yet.

    A stream reads its own partition number of each table, and all partitions of tables whose
    changelogs are in ``alone``.
    """
    if any(tp.topic in alone for tp in pending):
        return set()
    numbers = {tp.partition for tp in pending}
    return {tp for tp in sources if tp.partition not in numbers}
