"""Repair of Faust's recovery loop: every readable changelog record is applied, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from faust.exceptions import ConsistencyError
from faust.tables.recovery import ServiceStopped
from mode import Service, get_logger

from faust_assigner.app.recovery.consistency import COMPARE_S, Consistency, begin_anew
from faust_assigner.app.recovery.replay_loop import ReplayLoop
from faust_assigner.app.retry import pause_s, retry
from faust_assigner.app.tables import window_closing as windows
from faust_assigner.app.tables import write_behind as overlay
from faust_assigner.app.tables.files import (
    TableStore,
    is_storage_error,
    store_of,
)

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP
    from mode.services import WaitArgT
    from mode.utils.times import Seconds

logger = get_logger(__name__)

#: Seconds between two writes of a standby's records to its database; a kill loses at most as much.
STANDBY_FLUSH_INTERVAL_S = 1.0

#: Seconds without a failure after which the pause between two retries is short again.
TRUSTED_AFTER_S = 60.0

#: Seconds that agents get to finish their current events when a table fails.
PATIENCE_S = 10.0


class RecoveryLoop(ReplayLoop):
    """The repaired recovery loop: sources resume after their seek, and each recovery ends."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: The step that the loop waits for, and when the wait began; None without a wait.
        self.waiting_for: tuple[str, float] | None = None
        #: The generation whose recovery completed last.
        self.completed_generation: int | None = None
        #: Whether the loop waits for a recovery to begin.
        self.idle = False
        self._tables_failed = asyncio.Event()
        #: Changelog partitions whose database could not be written or opened, and is opened anew.
        self._reopen: frozenset[TP] = frozenset()
        self._troubles, self._last_trouble = 0, 0.0
        super().__init__(*args, **kwargs)
        self.consistency = Consistency(self.app)

    def revoke(self, tp: TP) -> None:
        """Forget the partition's offset and its windows."""
        super().revoke(tp)
        windows.revoked(self.tables.closings, tp)

    def is_doubtful(self, tp: TP) -> bool:
        """Whether its database may lack records that count as read; it is opened and read anew."""
        return tp in self._reopen

    @Service.task  # type: ignore[untyped-decorator]
    async def _keep_standbys_on_disk(self) -> None:
        """Write standbys' records regularly; Faust waits for 1,000, and a kill loses them."""
        while not self.should_stop:
            await self.sleep(STANDBY_FLUSH_INTERVAL_S)
            between = self.app.consumer.between_generations
            if not self.in_recovery and not between and any(self.buffers.values()):
                self.flush_buffers()

    # -- a broker that does not answer

    async def _wait(self, coro: object, timeout: object = None) -> None:
        """Wait without a time limit until the step is done, the service stops or a recovery begins.

        Faust treats a timeout as a stop of the service. Each request has its own timeout and is
        repeated.
        """
        with self._waits_for(coro):
            await super()._wait(coro, timeout=None)

    @contextmanager
    def _waits_for(self, coro: object) -> Iterator[None]:
        before = self.waiting_for
        name = getattr(coro, "__qualname__", type(coro).__name__).rpartition(".")[2].strip("_")
        self.waiting_for = (name.replace("_", " "), monotonic())
        try:
            yield
        finally:
            self.waiting_for = before

    async def wait_for_stopped(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> bool:
        """Wait as Faust does, and note in ``idle`` a wait for the next recovery."""
        if coros != (self.signal_recovery_start,):
            return bool(await super().wait_for_stopped(*coros, timeout=timeout))
        self.idle = True
        try:
            return bool(await super().wait_for_stopped(*coros, timeout=timeout))
        finally:
            self.idle = False

    async def _ahead(
        self, offsets: Mapping[TP, int | None], ends: Mapping[TP, int]
    ) -> frozenset[TP]:
        """The partitions of tables ahead of changelogs; raises ConsistencyError if checked."""
        return await retry(
            self,
            "The end offsets of changelogs that tables are ahead of",
            partial(self.consistency.ahead, self.tp_to_table, offsets, ends),
        )

    @Service.task  # type: ignore[untyped-decorator]
    async def _compare_beside_streams(self) -> None:
        """Compare tables with changelogs while streams run: recoveries skip retained partitions."""
        doubt = self.consistency.doubt_is_new
        while not self.should_stop:
            await self.wait(doubt, timeout=COMPARE_S)
            doubt.clear()
            if self.should_stop or self.in_recovery or self.app.consumer.between_generations:
                continue
            try:
                await self._compare_files()
            except Exception as error:
                if isinstance(error, ConsistencyError):
                    raise
                if self._said.due("compare"):
                    logger.warning(
                        "Could not compare the changelogs' ends with the tables: %r", error
                    )

    async def _compare_files(self) -> None:
        """Compare all open files of this worker; begin the recovery again if some are ahead."""
        offsets = {
            tp: table.persisted_offset(tp)
            for tp, table in self.tp_to_table.items()
            if tp in self.active_tps | self.standby_tps
            and tp.partition in getattr(store_of(table), "_dbs", ())
        }
        if not offsets:
            return
        consumer = self.app.consumer
        ends = await consumer.highwaters(*offsets)
        ahead = await self.consistency.ahead(self.tp_to_table, offsets, ends)
        if not ahead:
            return
        firsts = await consumer.earliest_offsets(*ahead)
        overlay.hold(self.app)
        for tp in sorted(ahead):
            begin_anew(self.tp_to_table[tp], tp, firsts[tp])
            self.consistency.doubted.pop(tp, None)
        self._reopen |= ahead
        self.begin_again()

    # -- tables that cannot be read or written

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
        """Apply events one by one after the table refused the batch (for a keyless record, say)."""
        for event in events:
            try:
                table.apply_changelog_batch([event])
            except Exception as error:
                if is_storage_error(error):
                    self.tables_failed(table.name, error)
                    return
                message = event.message
                self.unreadable(message.tp, [(message.offset, message.key, message.value, error)])

    def tables_failed(self, table: str, error: BaseException) -> None:
        """Stop the streams at once, and repeat this generation's recovery as soon as tables work.

        To be called on the app's event loop, wherever the failure occurs. Unfinished events of
        agents are processed again. The changelog holds the rows that the database lacks.
        """
        self.buffers.clear()
        # After a failed write RocksDB accepts none, and other databases on a full disk may fail
        # too.
        self._reopen = frozenset(self.tp_to_table)
        overlay.hold(self.app)
        if self._said.due("tables"):
            logger.error(
                "Table %s cannot be read or written; streams stop until it can: %r", table, error
            )
        if self.app.should_stop:
            return
        if self.app.in_transaction:
            # Its transactions are incomplete; the next process begins without open transactions.
            self.add_future(_raise(error))
            return
        consumer = self.app.consumer
        consumer.stop_flow()
        self.app.flow_control.suspend()
        consumer.pause_partitions(consumer.assignment())
        self.app.flow_control.clear()
        self._tables_failed.set()

    @Service.task  # type: ignore[untyped-decorator]
    async def _begin_again(self) -> None:
        """Pause longer after each failure, then request a new recovery of this generation."""
        while not self.should_stop:
            if await self.wait_for_stopped(self._tables_failed):
                return
            self._tables_failed.clear()
            if not self.in_recovery:
                # As at a rebalance: events that agents finish now are committed, not repeated.
                await self.wait(self.app.consumer.wait_empty(), timeout=PATIENCE_S)
            calm = monotonic() - self._last_trouble > TRUSTED_AFTER_S
            self._troubles = 0 if calm else self._troubles + 1
            await self.sleep(pause_s(self._troubles))
            self._last_trouble = monotonic()
            self.begin_again()

    def begin_again(self) -> None:
        """Recover this generation once more, unless the next generation is about to begin."""
        if not self.should_stop and not self.app.consumer.between_generations:
            self.signal_recovery_start.set()

    async def _open_tables(self) -> None:
        """Open every database, after a failure anew; retry until all are open (full disk, say)."""
        attempt = 0
        while failed := self._open_each():
            if self._said.due("open"):
                logger.error(
                    "The tables' files cannot be opened yet; the tables wait for them: %s", failed
                )
            await self.sleep(pause_s(attempt))
            attempt += 1
            if self.should_stop:
                raise ServiceStopped
        anew = self._reopen & self._to_open()
        self._reopen -= anew
        for tps, offsets in (
            (self.active_tps, self.active_offsets),
            (self.standby_tps, self.standby_offsets),
        ):
            for tp in sorted(tps & anew):
                offsets.pop(tp, None)
                self._add(self.tp_to_table[tp], tp, offsets)

    def _to_open(self) -> set[TP]:
        """The partitions under recovery, whose databases are opened."""
        return self.active_tps | self.standby_tps

    def _open_each(self) -> str | None:
        """The error of the first database that does not open; None when all are open."""
        stores = {
            tp: store
            for tp in sorted(self._to_open())
            if isinstance(store := store_of(self.tp_to_table[tp]), TableStore)
        }
        for tp in stores.keys() & self._reopen:
            stores[tp].close_partition(tp.partition)
        for tp, store in stores.items():
            try:
                store._db_for_partition(tp.partition)
            except Exception as error:
                self._reopen |= {tp}
                return f"{tp.topic}-{tp.partition}: {error}"
        return None

    def _add(self, table: CollectionT, tp: TP, offsets: MutableMapping[TP, int | None]) -> None:
        """Note the partition, and the offset in its database if the database can be opened."""
        try:
            super()._add(table, tp, offsets)
        except Exception as error:
            if not is_storage_error(error):
                raise
            offsets.setdefault(tp, None)
            self._reopen |= {tp}


async def _raise(error: BaseException) -> None:
    raise error
