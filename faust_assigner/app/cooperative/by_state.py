"""Recovery by state: what is not restored yet is, and everything else flows meanwhile.

Faust's own recovery resets everything at each rebalance, and seeks what was kept back to committed offsets. It
is still what a first start and an eager round take; from its end on partitions come and go one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from mode import get_logger

from faust_assigner.app.repairs.fetching import mixed
from faust_assigner.app.repairs.patience import insist
from faust_assigner.app.restore.recovery import is_writable
from faust_assigner.app.restore.table_files import store_of

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import RecoveryBase as Recovery
    from faust_assigner.app.host.bases import TablesBase as TableManager
else:
    Recovery = TableManager = object

logger = get_logger(__name__)

#: Seconds between two looks at a replay that Faust's own loop makes.
LOOK_S = 0.01


class ByState(Recovery):
    """Of the table manager's recovery: takes on partitions while others flow.

    ``restored``: see ``RestoringRecovery``. Of the changelog partitions assigned, ``_complete`` are the actives
    whose state is here and ``_followed`` the standbys that are read; the others are what there is to do.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.is_flowing = False
        self._complete: set[Any] = set()
        self._followed: set[Any] = set()
        self._taking_on: asyncio.Task[None] | None = None
        super().__init__(*args, **kwargs)

    # -- Faust's own recovery

    def stop_taking_on(self) -> None:
        """Everything is about to be given up, or restored anew."""
        self.is_flowing = False
        if self._taking_on is not None:
            self._taking_on.cancel()
            self._taking_on = None

    def tables_failed(self, table: str, error: BaseException) -> None:
        """Faust's own recovery begins this generation again."""
        self.stop_taking_on()
        super().tables_failed(table, error)  # type: ignore[misc]

    async def _resume_streams(self, generation_id: int = 0) -> None:
        await super()._resume_streams(generation_id)
        self._is_over(generation_id)

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        """From here on partitions come and go one by one."""
        await super().on_recovery_completed(generation_id)
        self._is_over(generation_id)

    def _is_over(self, generation_id: int) -> None:
        if self.app.consumer_generation_id == generation_id and not self.app.consumer.between_generations:
            self._complete, self._followed = set(self.active_tps), set(self.standby_tps)
            self.is_flowing = True

    async def on_stop(self) -> None:
        """Let go of the databases before the tables close them."""
        self.stop_taking_on()
        await super().on_stop()

    # -- cooperative rounds

    async def take_on(self, actives: Collection[Any], standbys: Collection[Any],
                      revoked: Collection[Any]) -> None:
        """Begin with these roles of all assigned partitions; what is under way begins anew."""
        before, self._taking_on = self._taking_on, None
        if before is not None:
            before.cancel()
            await asyncio.wait({before})
        await self.settle()  # type: ignore[attr-defined]
        await self._close(revoked)
        of = self.tables._changelogs
        self._taking_on = asyncio.ensure_future(self._take_on(
            {tp for tp in actives if tp.topic in of}, {tp for tp in standbys if tp.topic in of}))

    async def _take_on(self, actives: set[Any], standbys: set[Any]) -> None:
        began = monotonic()
        try:
            pending, fresh = await self._take_roles(actives, standbys)
            await self._restore_actives(pending)
            await self._let_flow()
            await self.app.on_rebalance_complete.send()
            await self._follow(fresh)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self.app.crash(error)
        else:
            logger.info("Took on %d actives and %d standbys in %.0f ms", len(pending), len(fresh),
                        (monotonic() - began) * 1000)

    async def _close(self, revoked: Collection[Any]) -> None:
        """Close databases of partitions that went, in a thread: it takes a while, and streams flow."""
        for tp in revoked:
            self.revoke(tp)
            self._complete.discard(tp)
            self._followed.discard(tp)
        for table in self.tables.values():
            gone = {tp for tp in revoked if tp.topic in table.changelog_topic.topics}
            store = store_of(table)
            if gone and is_writable(store):
                databases = [store._dbs.pop(tp.partition, None) for tp in sorted(gone)]
                await asyncio.to_thread(_close_all, databases)
            elif gone:
                await table.on_rebalance(set(), gone, set(), self.app.consumer_generation_id)

    async def _take_roles(self, actives: set[Any], standbys: set[Any]) -> tuple[set[Any], set[Any]]:
        """Note who is what; returns the actives to restore and the standbys to follow.

        What was followed and is not any more, a global table's own part, has others' last changes to read.
        """
        of = self.tables._changelogs
        self.flush_buffers()
        self._complete &= actives
        self._complete -= self._followed - standbys
        self._followed &= standbys
        pending, fresh = actives - self._complete, standbys - self._followed
        await self._open(pending | fresh)
        was = dict(self.standby_offsets)
        for offsets, highwaters, tps in ((self.active_offsets, self.active_highwaters, actives),
                                         (self.standby_offsets, self.standby_highwaters, standbys)):
            for tp in set(offsets) - tps:
                offsets.pop(tp, None)
                highwaters.pop(tp, None)
        self.active_highwaters.clear()
        for book in (self.active_tps, self.standby_tps, self.actives_for_table, self.standbys_for_table):
            book.clear()
        for tp in sorted(actives):
            if tp in pending:
                self.active_offsets.pop(tp, None)
            self.add_active(of[tp.topic], tp)
            if tp in pending and was.get(tp) is not None:
                self.active_offsets[tp] = max(was[tp], _known(self.active_offsets[tp]))
        for tp in sorted(standbys):
            if tp in fresh:
                self.standby_offsets.pop(tp, None)
                self.add_standby(of[tp.topic], tp)
            else:
                self.standby_tps.add(tp)
                self.standbys_for_table[of[tp.topic]].add(tp)
        return pending, fresh

    async def _open(self, tps: Iterable[Any]) -> None:
        """Open databases in a thread; one that does not open is the next opener's to report."""
        for tp in sorted(tps):
            store = store_of(self.tables._changelogs[tp.topic])
            if is_writable(store) and tp.partition not in store._dbs:
                try:
                    database = await asyncio.to_thread(store._open_for_partition, tp.partition)
                except Exception as error:
                    logger.warning("%s-%d: %s", tp.topic, tp.partition, error)
                else:
                    store._dbs.setdefault(tp.partition, database)

    async def _restore_actives(self, pending: set[Any]) -> None:
        """Bring the tables of ``pending`` to the ends of their changelogs."""
        if not pending:
            return
        consumer = self.app.consumer
        consumer.pause_partitions(pending)
        ends, firsts = await self._ends(pending), await self._firsts(pending)
        for tp in pending:
            self.active_offsets[tp] = max(_known(self.active_offsets[tp]), firsts[tp] - 1)
            self.active_highwaters[tp] = ends[tp] - 1
        restored = self.restored  # type: ignore[has-type]
        await self._restore(frozenset(pending), self.active_offsets)  # type: ignore[attr-defined]
        self.restored = {**restored, **self.restored}
        if self.need_recovery():
            await self._replay(pending)
        for table in self.tables.values():
            if any(tp.topic in table.changelog_topic.topics for tp in pending):
                if flush := getattr(table.data, "flush_to_storage", None):
                    flush()  # a table of sets reads all of its storage again
                await table.on_recovery_completed(
                    self.actives_for_table[table], self.standbys_for_table[table])
        self._complete |= pending

    async def _replay(self, pending: set[Any]) -> None:
        """The rest by Faust's own loop: tables in memory, callbacks, what the batches left."""
        consumer = self.app.consumer
        await consumer.seek_wait({tp: max(0, self.active_offsets[tp] + 1) for tp in pending})
        self._set_recovery_started()
        self.app.in_recovery = False  # or sources would starve
        consumer.resume_partitions(pending)
        while self.need_recovery():
            await asyncio.sleep(LOOK_S)
        self.flush_buffers()
        self._set_recovery_ended()
        consumer.pause_partitions(pending)

    async def _let_flow(self) -> None:
        """Seek sources that are paused to their committed offsets, asked for at once, and let them flow."""
        consumer, of = self.app.consumer, self.tables._changelogs
        sources = {tp for tp in consumer._paused_partitions if tp.topic not in of}
        if sources:
            await insist(self, "Committed offsets", partial(consumer.seek_some, sources))
            consumer.resume_partitions(sources)

    async def _follow(self, fresh: set[Any]) -> None:
        """Read the changelogs of ``fresh`` from where their copies end."""
        consumer = self.app.consumer
        if fresh:
            firsts, ends = await self._firsts(fresh), await self._ends(fresh)
            for tp in fresh:
                self.standby_offsets[tp] = max(_known(self.standby_offsets[tp]), firsts[tp] - 1)
                self.standby_highwaters[tp] = ends[tp] - 1
            await insist(self, "Seek in standby changelogs", partial(
                consumer.seek_wait, {tp: self.standby_offsets[tp] + 1 for tp in fresh}))
            self._followed |= fresh
        consumer.resume_partitions(self.standby_tps)

    async def _ends(self, tps: Collection[Any]) -> dict[Any, int]:
        return await self._ask("Ends of changelogs", tps, "end_offsets")

    async def _firsts(self, tps: Collection[Any]) -> dict[Any, int]:
        return await self._ask("Beginnings of changelogs", tps, "beginning_offsets")

    async def _ask(self, what: str, tps: Collection[Any], question: str) -> dict[Any, int]:
        """Of the broker itself, committed ends under ``exactly_once``: the consumer knows only what it read."""
        thread = self.app.consumer._thread
        ask = getattr(thread._ensure_consumer(), question)
        found = await insist(self, what, partial(thread.call_thread, ask, sorted(tps)))
        return {tp: found[tp] for tp in tps}


class TablesByState(TableManager):
    """Of the app's table manager: its recovery goes by state."""

    _recovery: Any

    @property
    def recovery(self) -> Any:
        """The recovery service, ours mixed into whatever the app has; made at first use."""
        if self._recovery is None:
            theirs = super().recovery
            theirs.beacon.detach(self.beacon)
            kind = mixed(ByState, into=type(theirs))
            self._recovery = kind(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Everything is given up."""
        self.recovery.stop_taking_on()
        super().on_partitions_revoked(revoked)


def _known(offset: int | None) -> int:
    return -1 if offset is None else offset


def _close_all(databases: Iterable[Any]) -> None:
    for database in databases:
        if database is not None:
            try:
                database.close()
            except Exception as error:
                logger.warning("A database did not close: %s", error)
