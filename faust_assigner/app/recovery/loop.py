"""Faust's recovery loop, corrected: it applies every readable changelog record and no other record.

Each part has its own module: ``databases``, ``consistency``, ``replay_end``, ``spans``, ``table_failures``.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from faust.exceptions import ConsistencyError, DecodeError
from faust.tables.recovery import RecoveryStats
from mode import Service, get_logger

from faust_assigner.app.recovery.consistency import COMPARE_S, Consistency
from faust_assigner.app.recovery.databases import TableDatabases
from faust_assigner.app.recovery.replay_end import ReplayEnd
from faust_assigner.app.recovery.spans import RecoverySpans
from faust_assigner.app.recovery.table_failures import TableFailures
from faust_assigner.app.recovery.unreadable import unreadable_of
from faust_assigner.app.retry import RateLimitedLog
from faust_assigner.app.tables import windowed_tables as windows
from faust_assigner.app.tables.disk import offset_or_minus_one
from faust_assigner.app.tables.storage_errors import is_storage_error

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP
    from mode.services import WaitArgT
    from mode.utils.times import Seconds

    from faust_assigner.app.host.table_bases import RecoveryBase as Recovery
else:
    from faust.tables.recovery import Recovery

logger = get_logger(__name__)

#: Seconds without a changelog record after which the loop checks whether more will come.
IDLE_S = 0.25
#: Seconds between two writes of a standby's records to its database; a kill loses at most
#: the records of this time.
STANDBY_FLUSH_INTERVAL_S = 1.0


class RecoveryLoop(Recovery):
    """Faust's recovery with a loop that always ends, and begins again after a table's failure."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: The step that the loop waits for, and when the wait began; None without a wait.
        self.waiting_for: tuple[str, float] | None = None
        #: The generation whose recovery completed last.
        self.completed_generation: int | None = None
        #: The number of replays that have begun; the number identifies the current replay.
        self.replays = 0
        #: Whether the loop waits for a recovery to begin.
        self.idle = False
        self._said = RateLimitedLog()
        super().__init__(*args, **kwargs)
        self.databases = TableDatabases(self.app, self.tp_to_table)
        self.consistency = Consistency(self.app)
        self.unreadable = unreadable_of(self.app)
        self.spans = RecoverySpans(self.app)
        self.failures = TableFailures(self, self.restart_recovery)
        self._end = ReplayEnd(self.app, self.unreadable)
        self._standbys_end = ReplayEnd(self.app, self.unreadable)
        #: Standby -> the end of its changelog, if no readable record is before this end.
        self._read_through: dict[TP, int | None] = {}

    def revoke(self, tp: TP) -> None:
        """Forget the offset and the windows of a revoked partition."""
        super().revoke(tp)
        windows.revoked(self.tables.closings, tp)

    def is_doubtful(self, tp: TP) -> bool:
        """Whether the partition's database may lack records that count as read."""
        return tp in self.databases.doubtful

    def add_active(self, table: CollectionT, tp: TP) -> None:
        """Note the partition, and the offset in its database if the database can be opened."""
        with self.databases.opened_later(tp, self.active_offsets):
            super().add_active(table, tp)

    def add_standby(self, table: CollectionT, tp: TP) -> None:
        """Note the partition, and the offset in its database if the database can be opened."""
        with self.databases.opened_later(tp, self.standby_offsets):
            super().add_standby(table, tp)

    @Service.task  # type: ignore[untyped-decorator]
    async def _keep_standbys_on_disk(self) -> None:
        """Write standbys' records every second; Faust buffers up to 1,000, which a kill loses."""
        while not self.should_stop:
            await self.sleep(STANDBY_FLUSH_INTERVAL_S)
            between = self.app.consumer.between_generations
            if not self.in_recovery and not between and any(self.buffers.values()):
                self.flush_buffers()

    @Service.task  # type: ignore[untyped-decorator]
    async def _compare_beside_streams(self) -> None:
        """Compare tables with changelogs while streams run: recoveries skip the kept partitions."""
        doubt = self.consistency.doubt_is_new
        while not self.should_stop:
            await self.wait(doubt, timeout=COMPARE_S)
            doubt.clear()
            if self.should_stop or self.in_recovery or self.app.consumer.between_generations:
                continue
            try:
                await self._compare_files()
            except ConsistencyError:
                raise
            except Exception as error:
                if self._said.due("compare"):
                    logger.warning(
                        "Could not compare the changelogs' ends with the tables: %r", error
                    )

    async def _compare_files(self) -> None:
        """Compare all open files of this worker; begin the recovery again if some are ahead."""
        tps = self.active_tps | self.standby_tps
        if ahead := await self.consistency.reset_ahead(self.tp_to_table, tps):
            self.databases.doubt(ahead)
            self.restart_recovery()

    # -- a broker that does not answer

    async def _wait(self, coro: object, timeout: object = None) -> None:
        """Wait without a time limit until the step is done, the service stops or a recovery begins.

        Faust treats a timeout as a stop of the service. A limit is not needed: each request has its
        own timeout and is repeated.
        """
        before = self.waiting_for
        name = getattr(coro, "__qualname__", type(coro).__name__).rpartition(".")[2].strip("_")
        self.waiting_for = (name.replace("_", " "), monotonic())
        try:
            await super()._wait(coro, timeout=None)
        finally:
            self.waiting_for = before

    async def wait_for_stopped(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> bool:
        """Wait as Faust does; ``idle`` is true while the loop waits for the next recovery."""
        if coros != (self.signal_recovery_start,):
            return bool(await super().wait_for_stopped(*coros, timeout=timeout))
        self.idle = True
        try:
            return bool(await super().wait_for_stopped(*coros, timeout=timeout))
        finally:
            self.idle = False

    # -- records

    def _set_recovery_started(self) -> None:
        super()._set_recovery_started()
        self.replays += 1
        self._end.begin()
        # Clear the event only here. Faust clears it before each record, so that a task that waits
        # later misses the end of the replay.
        self.signal_recovery_end.clear()

    @Service.task  # type: ignore[untyped-decorator]
    async def _slurp_changelogs(self) -> None:
        """Apply records as they arrive; between two records the loop has no unfinished work."""
        queue = self.tables.changelog_queue
        while not self.should_stop:
            try:
                async with asyncio.timeout(IDLE_S):
                    event = await queue.get()
            except TimeoutError:
                if self.in_recovery:
                    await self._end.look(self.active_stats(), self.active_offsets)
                elif self._awaits_standbys():
                    await self._standbys_end.look(self.lacking_standbys(), self._read_through)
            except DecodeError:
                pass  # the channel has reported the record, see table_manager.py
            else:
                await self._take(event)
            self._maybe_end()

    async def _take(self, event: EventT[object]) -> None:
        message, tp = event.message, event.message.tp
        active, offsets = tp in self.active_tps, self.offsets_for(tp)
        if active:
            self._active_events_received_at[tp] = monotonic()
        seen = offsets.get(tp)
        if seen is not None and message.offset <= seen:
            return
        table, buffer = self.tp_to_table[tp], self.buffers[self.tp_to_table[tp]]
        offsets[tp] = message.offset
        buffer.append(event)
        try:
            await table.on_changelog_event(event)
        except Exception as error:  # raised by the app's own callback
            if self._said.due(table.name):
                logger.exception("Table %s: on_changelog_event failed: %r", table.name, error)
        if len(buffer) >= (table.recovery_buffer_size if active else table.standby_buffer_size):
            self.flush_buffers()

    def _maybe_end(self) -> None:
        if self.in_recovery and not self.need_recovery():
            self.flush_buffers()
        # Check again: after a failed flush the recovery begins again.
        if self.in_recovery and not self.need_recovery():
            self._set_recovery_ended()
            self.signal_recovery_end.set()
        if self._awaits_standbys() and not self.lacks_standby_records():
            self.spans.end_standbys()
            self.tables.on_standbys_ready()

    def _awaits_standbys(self) -> bool:
        return bool(
            (self.spans.has_standbys or not self.tables.standbys_ready)
            and self.standby_tps
            and not self.in_recovery
        )

    def lacks_standby_records(self) -> bool:
        """Whether a standby lacks records that its changelog had when this worker began to follow it."""
        return bool(self.lacking_standbys())

    def lacking_standbys(self) -> dict[TP, RecoveryStats]:
        """Return the standbys that lack such records.

        Faust takes the records that one standby has beyond this end from the records that others
        lack, and leaves out standbys without any record.
        """
        applied = {
            tp: max(
                offset_or_minus_one(offsets.get(tp))
                for offsets in (self.offsets_for(tp), self._read_through)
            )
            for tp in self.standby_highwaters
        }
        return {
            tp: RecoveryStats(highwater, applied[tp], highwater - applied[tp])
            for tp, highwater in self.standby_highwaters.items()
            if applied[tp] < highwater
        }

    def begin_standbys(self) -> None:
        """Look for the ends of the standbys' changelogs once more."""
        self._standbys_end.begin()
        self._read_through.clear()

    def offsets_for(self, tp: TP) -> MutableMapping[TP, int | None]:
        """Return the offsets that contain the last applied record of ``tp``.

        A partition of a global table can be active and followed at once.
        """
        return self.active_offsets if tp in self.active_tps else self.standby_offsets

    def flush_buffers(self) -> None:
        """Write replayed records; after a failed write, replay again from the database's offset."""
        for table, buffer in list(self.buffers.items()):
            try:
                table.apply_changelog_batch(buffer)
            except Exception as error:
                if is_storage_error(error):
                    self.tables_failed(table.name, error)
                    return
                self._apply_each(table, buffer)
            buffer.clear()
        self._last_flush_at = monotonic()

    def _apply_each(self, table: CollectionT, events: Sequence[EventT[object]]) -> None:
        """Apply events one by one after the table refused the batch, as for keyless records."""
        for event in events:
            try:
                table.apply_changelog_batch([event])
            except Exception as error:
                if is_storage_error(error):
                    self.tables_failed(table.name, error)
                    return
                self.unreadable.add(error, event.message)

    # -- tables that cannot be read or written

    def tables_failed(self, table: str, error: BaseException) -> None:
        """Stop the streams at once, and repeat this generation's recovery once tables work again.

        Call this method on the app's event loop. Agents process their unfinished events again. The
        changelog holds the rows that the database lacks.
        """
        self.buffers.clear()
        # After a failed write RocksDB accepts no write; on a full disk others may fail, too.
        self.databases.doubt(self.tp_to_table)
        self.failures.stop_streams(table, error)

    @Service.task  # type: ignore[untyped-decorator]
    async def _begin_again(self) -> None:
        """Request a new recovery of this generation after each failure."""
        await self.failures.repeat_recovery()

    def restart_recovery(self) -> None:
        """Recover this generation once more, unless the next generation is about to begin."""
        if not self.should_stop and not self.app.consumer.between_generations:
            self.signal_recovery_start.set()
