"""Recovery by partition: a source partition is processed as soon as its own tables are restored.

Faust's recovery resets everything at each rebalance and holds every stream until the last table is
restored. Here Faust's recovery has no partitions to restore, so it opens the flow at once. A task
of ours does the restores: of all partitions after a first start or an eager round, of the new ones
after a cooperative round.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from faust.tables.recovery import RecoveryStats
from mode import get_logger
from yarl import URL

from faust_assigner.app.recovery.bring_up import Stop
from faust_assigner.app.recovery.callbacks import RecoverCallbacks, call_callbacks, is_overridden
from faust_assigner.app.recovery.following import StandbyFollower
from faust_assigner.app.recovery.order import chunks, ready_sources
from faust_assigner.app.recovery.restoring import SILENT_SHARE
from faust_assigner.app.retry import retry
from faust_assigner.app.tables import window_closing as windows
from faust_assigner.app.tables import write_behind as overlay
from faust_assigner.app.tables.disk import is_writable, known
from faust_assigner.app.tables.files import close_all, open_for_streams, store_of

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP

logger = get_logger(__name__)

#: The store of tables in a shared database; neither Faust nor this recovery restores them.
SHARED = URL("aerospike:")
#: Seconds between two checks of a replay by Faust's loop.
LOOK_S = 0.01


class PartitionRecovery(StandbyFollower):
    """The part of the table manager's recovery that restores partitions while the rest flow.

    ``_roles`` holds the assigned changelog partitions: the actives and the standbys. ``_complete``
    holds the restored actives, ``_followed`` the standbys whose changelogs are read. The remaining
    partitions are still to restore or to follow.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.is_flowing = False
        self._complete: set[TP] = set()
        self._roles: tuple[frozenset[TP], frozenset[TP]] = frozenset(), frozenset()
        self._taking_on: asyncio.Task[None] | None = None
        #: Partitions that the current round restores or begins to follow.
        self._taken: frozenset[TP] = frozenset()
        #: Partitions that Faust's loop restores at present.
        self._replayed: frozenset[TP] = frozenset()
        #: Owned and followed partitions before the last eager round.
        self._before: tuple[frozenset[TP], frozenset[TP]] = frozenset(), frozenset()
        self._in_turn = asyncio.Lock()
        self._callbacks = RecoverCallbacks(self._call_back)
        #: Measures each restored partition for the ledger; None without a ledger.
        self.meter: Any = None
        super().__init__(*args, **kwargs)

    @property
    def is_taking_on(self) -> bool:
        """Whether an assigned partition is not restored or not followed yet."""
        return self._taking_on is not None and not self._taking_on.done()

    def is_restored(self, tp: TP) -> bool:
        """Whether the table of this active changelog partition is completely restored."""
        return self.is_flowing and tp in self._complete and tp not in self.app.consumer.leaving

    # -- Faust's own recovery, left without partitions to restore

    def stop_assigning(self) -> None:
        """Stop the restore: all partitions are about to be revoked or restored anew."""
        self.is_flowing = False
        for task in self._under_way():
            task.cancel()

    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],
        newly_assigned: set[TP],
        generation_id: int = 0,
    ) -> None:
        """Take the partitions of an eager round."""
        self.stop_assigning()
        self._before = frozenset(self.active_tps), frozenset(self.standby_tps)
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)
        if self.signal_recovery_start.is_set():
            self.app.consumer.begin_generation()
        self._roles = frozenset(self.active_tps), frozenset(self.standby_tps)
        self._clear_books()

    def begin_again(self) -> None:
        """Restore everything once more.

        ``_roles`` are of the last round. Faust's books may still be of the round before: a round
        fills them only after it has opened databases.
        """
        self.stop_assigning()
        self._clear_books()
        super().begin_again()

    def _clear_books(self) -> None:
        for book in (
            self.active_tps,
            self.standby_tps,
            self.active_highwaters,
            self.standby_highwaters,
            self.actives_for_table,
            self.standbys_for_table,
        ):
            book.clear()

    def tables_failed(self, table: str, error: BaseException) -> None:
        """Stop the streams and restore everything once more."""
        self.stop_assigning()
        super().tables_failed(table, error)

    def _to_open(self) -> set[TP]:
        """The partitions to open, without the kept ones.

        Agents write the databases of kept partitions, and ``_open_each`` may close a database
        first.
        """
        return super()._to_open() & self._taken

    async def _resume_streams(self, generation_id: int = 0) -> None:
        await super()._resume_streams(generation_id)
        self.completed_generation = generation_id
        self._flows(generation_id)
        if self.is_flowing:
            self._complete = set(self._roles[0])  # tables that Faust does not restore
        self.app.consumer.rounds.subscribe_what_came_meanwhile()

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        """Open the flow, with every partition paused, and begin to restore."""
        app = self.app
        self._set_recovery_ended()
        if app.consumer_generation_id != generation_id or app.consumer.between_generations:
            return
        app.flow_control.resume()
        app.consumer.resume_flow()
        await app._fetcher.maybe_start()
        self.completed_generation = generation_id
        self._flows(generation_id)
        async with self._in_turn:
            await self.interrupt()
            self.flush_buffers()
            self._begin_to_take_on()

    def _flows(self, generation_id: int) -> None:
        if (
            self.app.consumer_generation_id == generation_id
            and not self.app.consumer.between_generations
        ):
            self._complete, self._followed, self.is_flowing = set(), set(), True
            self.restored = {}
            # As in Faust: of every table, even if this worker has no partition of it.
            self._callbacks.owe(self.tables.values())

    async def on_stop(self) -> None:
        """Stop using the databases before the tables close them."""
        self.stop_assigning()
        await self._callbacks.stop()
        await super().on_stop()

    async def assign(
        self, actives: Collection[TP], standbys: Collection[TP], revoked: Collection[TP]
    ) -> None:
        """Restore and follow the assigned partitions; a restore under way begins anew."""
        # Keep the order of the rounds: the first may still wait here when the second begins.
        async with self._in_turn:
            await self.interrupt()
            await self._tell_stores({*actives, *standbys}, revoked)
            of = self.tables._changelogs
            self._roles = (
                frozenset(tp for tp in actives if tp.topic in of),
                frozenset(tp for tp in standbys if tp.topic in of),
            )
            self._begin_to_take_on()

    def _begin_to_take_on(self) -> None:
        """Restore and follow ``_roles``, which are of the last round by now."""
        if self.is_flowing:
            self._taking_on = asyncio.ensure_future(self._take_on(*self._roles))
        else:
            # A table failed since: Faust's recovery restores these, and its books must be empty.
            self._clear_books()

    async def interrupt(self) -> None:
        """Stop restoring and resuming partitions until the next ``assign()``."""
        if under_way := self._under_way():
            for task in under_way:
                task.cancel()
            await asyncio.wait(under_way)
        await self.stop_and_wait()
        self.progress.give_up()

    def _under_way(self) -> set[asyncio.Task[None]]:
        found = {task for task in (self._taking_on, self._catching_up) if task is not None}
        self._taking_on = self._catching_up = None
        return found

    async def _take_on(self, actives: frozenset[TP], standbys: frozenset[TP]) -> None:
        began = monotonic()
        if self.app.conf.store == SHARED:
            self._complete, standbys = set(actives), frozenset()
        try:
            pending, fresh = await self._take_roles(actives, standbys)
            with self._trace_actives() if pending else nullcontext():
                await self._restore_actives(pending)
            await self._finish()
            # Streams do not wait until the files of copies are open.
            await self._open_copies(fresh)
            await self._follow(fresh)
        except Exception as error:
            if not self.app.should_stop:
                await self.app.crash(error)
        else:
            if pending or fresh:
                logger.info(
                    "Assigned %d active and %d standby changelogs in %.0f ms",
                    len(pending),
                    len(fresh),
                    (monotonic() - began) * 1000,
                )

    async def _tell_stores(self, assigned: set[TP], revoked: Collection[TP]) -> None:
        """Close databases of revoked partitions, in a thread: closing takes time and streams flow.

        A store of any other kind opens and closes by itself: its table's ``on_rebalance`` is called,
        as in Faust, and so is that of an app's own table class.
        """
        came = assigned.difference(*self._roles)
        self.flush_buffers()  # a later flush would open them again
        for tp in revoked:
            self.revoke(tp)
            self._complete.discard(tp)
            self._followed.discard(tp)
        for table in self.tables.values():
            topics, store = table.changelog_topic.topics, store_of(table)
            gone = {tp for tp in revoked if tp.topic in topics}
            gained = {tp for tp in came if tp.topic in topics}
            if gone and is_writable(store):
                databases = [store._dbs.pop(tp.partition, None) for tp in sorted(gone)]
                await asyncio.to_thread(close_all, databases)
            told = not is_writable(store) or is_overridden(table, "on_rebalance")
            if told and (gone or gained):
                generation = self.app.consumer_generation_id
                await table.on_rebalance(assigned, gone, gained, generation)

    async def _take_roles(
        self, actives: frozenset[TP], standbys: frozenset[TP]
    ) -> tuple[set[TP], set[TP]]:
        """Record the roles; return the actives to restore and the standbys to follow.

        An active that is no longer followed is restored again, to read the last changes of other
        workers. This concerns the worker's own part of a global table.
        """
        of = self.tables._changelogs
        self._complete &= actives
        self._complete -= self._followed - standbys
        self._followed &= standbys
        overlay.keep(self.app, actives, self._complete)
        pending, fresh = set(actives - self._complete), set(standbys - self._followed)
        self._replayed = frozenset()
        # Fetched records in flight are older than the replay's, or would mark the records between
        # as applied.
        await self.app.consumer.pause_and_drop(pending | fresh)
        self.flush_buffers()
        for tp in self._reopen:  # the failure of a table dropped records that count as read
            self.standby_offsets.pop(tp, None)
        was = dict(self.standby_offsets)
        owned, followed = (
            frozenset(self.active_tps) or self._before[0],
            frozenset(self.standby_tps) or self._before[1],
        )
        await self._open(pending)
        self._clear_books()
        for offsets, anew in ((self.active_offsets, pending), (self.standby_offsets, fresh)):
            for tp in list(offsets):
                if tp in anew or tp not in actives | standbys:
                    del offsets[tp]
        for tp in sorted(actives):
            self.add_active(of[tp.topic], tp)
        for tp in standbys:
            self.standby_tps.add(tp)
            self.standbys_for_table[of[tp.topic]].add(tp)
        self._taken = frozenset(pending)
        await self._open_tables()
        for tp in pending & was.keys():
            # A table in memory stores no offset; its standby has been read up to this offset.
            if not is_writable(store_of(of[tp.topic])):
                self.active_offsets[tp] = max(known(was[tp]), known(self.active_offsets[tp]))
        if self.meter is not None:
            self.meter.begin(pending, owned, followed)
        return pending, fresh

    async def _open_copies(self, fresh: Collection[TP]) -> None:
        """Open the databases of the standbys to follow, and note their offsets."""
        await self._open(fresh, breath=3.0)
        for tp in sorted(fresh):
            self.add_standby(self.tables._changelogs[tp.topic], tp)
        self._taken = frozenset(fresh)
        await self._open_tables()

    async def _open(self, tps: Iterable[TP], *, breath: float = 0.0) -> None:
        """Open databases in a thread; ``_open_tables`` waits for those that fail to open.

        rocksdict blocks all other threads while it opens a database, for 10 ms. After each database
        this method sleeps ``breath`` times as long, so that streams run.
        """
        for tp in sorted(tps):
            store = store_of(self.tables._changelogs[tp.topic])
            if is_writable(store) and tp.partition not in store._dbs:
                began = monotonic()
                try:
                    await self._in_thread(open_for_streams, store, tp.partition)
                except Exception as error:
                    logger.warning("%s-%d: %s", tp.topic, tp.partition, error)
                await asyncio.sleep(breath * (monotonic() - began))

    async def _restore_actives(self, pending: set[TP]) -> None:
        """Restore the tables of ``pending`` to the ends of their changelogs; ready sources flow."""
        ends, firsts = await self._ends(pending), await self._firsts(pending)
        await self._refuse_ahead(self.active_offsets, ends, firsts)
        for tp in pending:
            self.active_offsets[tp] = max(known(self.active_offsets[tp]), firsts[tp] - 1)
        alone = frozenset(
            table.changelog_topic.get_topic_name()
            for table in self.tables.values()
            if table.is_global or table.use_partitioner
        )
        self._begin_callbacks(pending)
        held = self._called_back()
        await self._let_flow(pending | held, alone)
        highwaters = {tp: ends[tp] - 1 for tp in pending}
        left = {tp: highwaters[tp] - known(self.active_offsets[tp]) for tp in pending}
        self._report_begin(left, highwaters)
        limit = self.app.conf.broker_max_poll_interval
        stop, before = Stop(limit * SILENT_SHARE if limit else None), self.restored
        self.restored = {}
        async for chunk in self._brought_up(list(chunks(left, alone)), left, highwaters, stop):
            self.active_highwaters.clear()
            self.active_highwaters.update({tp: highwaters[tp] for tp in chunk})
            if self.meter is not None:
                self.meter.note_start(chunk, self.restored)
            if self.need_recovery():
                await self._replay(chunk)
            # Before the chunk counts as restored: after an interrupt here it is restored and
            # reported again.
            await self._tell_tables(chunk)
            if self.meter is not None:
                self.meter.finish(chunk)
            self._complete |= chunk
            overlay.resume(self.app, chunk)
            windows.restored(self.tables.closings, chunk)
            pending = pending - chunk
            self._begin_callbacks(pending)
            await self._callbacks.over()
            await self._let_flow(pending, alone)
            stop.renew()
        await self._callbacks.over()
        if held:
            await self._let_flow(pending, alone)
        self.restored = {**before, **self.restored}

    def _report_begin(self, left: Mapping[TP, int], highwaters: Mapping[TP, int]) -> None:
        """Tell the span and the progress how many records each partition lacks."""
        offsets = {tp: known(self.active_offsets[tp]) for tp in sorted(left)}
        self._tag_actives(
            {
                tp: RecoveryStats(highwaters[tp], offset, left[tp])
                for tp, offset in offsets.items()
                if left[tp]
            }
        )
        self.progress.begin(
            {tp: (offset + 1, highwaters[tp] + 1) for tp, offset in offsets.items()}
        )

    async def _brought_up(
        self, waiting: list[frozenset[TP]], left: Mapping[TP, int], highwaters: Any, stop: Stop
    ) -> AsyncGenerator[frozenset[TP], None]:
        """Yield each chunk once the batched restore of its partitions ends, complete or not."""
        lacking = {tp for tp, records in left.items() if records > 0}
        order = [tp for chunk in waiting for tp in sorted(chunk & lacking)]
        while ready := [chunk for chunk in waiting if not chunk & lacking]:
            yield ready[0]
            waiting.remove(ready[0])
        async for tp in self._in_batches(order, self.active_offsets, highwaters, stop):
            lacking.discard(tp)
            while ready := [chunk for chunk in waiting if not chunk & lacking]:
                yield ready[0]
                waiting.remove(ready[0])

    async def _take(self, event: EventT[object]) -> None:
        """Apply events of followed and replayed partitions; the rest are older than the rows."""
        tp = event.message.tp
        if tp in self._followed or tp in self._replayed:
            await super()._take(event)

    async def _replay(self, chunk: frozenset[TP]) -> None:
        """Replay the rest by Faust's loop: tables in memory, callbacks, records not in batches."""
        consumer = self.app.consumer
        await consumer.seek_wait({tp: known(self.active_offsets[tp]) + 1 for tp in chunk})
        self._set_recovery_started()
        self.app.in_recovery = False  # or sources would starve
        self._replayed = chunk
        consumer.resume_partitions(chunk)
        self.progress.begin(
            {
                tp: (known(self.active_offsets[tp]) + 1, self.active_highwaters[tp] + 1)
                for tp in chunk
            }
        )
        while self.need_recovery():
            await asyncio.sleep(LOOK_S)
            for tp in chunk:
                self.progress.move(tp, known(self.active_offsets[tp]) + 1)
        for tp in chunk:
            self.progress.finish(tp)
        self.flush_buffers()
        self._replayed = frozenset()
        self._set_recovery_ended()
        consumer.pause_partitions(chunk)

    async def _tell_tables(self, chunk: Collection[TP]) -> None:
        """Report restored partitions and copies to the tables: sets are read from their rows."""
        for table in self.tables.values():
            if any(tp.topic in table.changelog_topic.topics for tp in chunk):
                await table.data.on_recovery_completed(*self._parts_of(table))
                self._callbacks.owe([table])

    def _parts_of(self, table: CollectionT) -> tuple[set[TP], set[TP]]:
        """All of the table's partitions here, and the copies: a table in memory forgets the rest."""
        copies = self.standbys_for_table[table]
        return self.actives_for_table[table] | copies, copies

    async def _call_back(self, table: CollectionT) -> None:
        """Call the table's callbacks; a method of the app's own class calls them itself, as in Faust."""
        if is_overridden(table, "on_recovery_completed"):
            await table.on_recovery_completed(*self._parts_of(table))
        else:
            await call_callbacks(table)

    def _begin_callbacks(self, pending: Collection[TP]) -> None:
        """Begin the callbacks of tables without ``pending`` partitions."""
        lacking = {tp.topic for tp in pending}
        self._callbacks.begin(lambda table: not lacking & set(table.changelog_topic.topics))

    def _called_back(self) -> set[TP]:
        """Restored partitions of tables whose callbacks run; their sources are not processed yet."""
        of, running = self.tables._changelogs, self._callbacks.running
        return {tp for tp in self._complete if of[tp.topic] in running}

    async def _let_flow(self, pending: Collection[TP], alone: Collection[str]) -> None:
        """Seek ready sources to their committed offsets, fetched together, and resume them."""
        consumer, of = self.app.consumer, self.tables._changelogs
        paused = {tp for tp in consumer._paused_partitions if tp.topic not in of}
        if sources := ready_sources(paused, pending, alone):
            await retry(self, "Committed offsets", partial(consumer.seek_some, sources))
            consumer.resume_partitions(sources)

    async def _finish(self) -> None:
        """Signal that all actives are restored."""
        app = self.app
        await app.on_rebalance_complete.send()
        self.completed.set()
        self.tables.on_actives_ready()
        if not self.standby_tps:
            self.tables.on_standbys_ready()
        app.consumer.rounds.restored()
