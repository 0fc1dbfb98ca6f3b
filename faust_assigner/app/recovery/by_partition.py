"""Recovery by partition: a source partition is processed as soon as its own tables are restored.

Faust's recovery starts all restores again at each rebalance, and stops all streams until the last table is
restored. This module leaves Faust's recovery without partitions to restore, so Faust lets streams run at
once. A task of this class restores partitions: all partitions after a start or an eager round, the new
partitions after a cooperative round.

Its parts: Faust's bookkeeping of a round (``books.py``), the restores of actives (``actives.py``),
the standbys (``following.py``), the batched restores that both use (``restoring.py``), and their threads
(``restore_task.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any

from mode import Service, get_logger
from yarl import URL

from faust_assigner.app.recovery.actives import ActiveRestore
from faust_assigner.app.recovery.books import RoundBooks
from faust_assigner.app.recovery.changelog_extents import ChangelogExtents
from faust_assigner.app.recovery.following import StandbyFollower
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.progress import Progress
from faust_assigner.app.recovery.restore_task import Restored, RestoreThreads
from faust_assigner.app.recovery.restoring import BatchedRestore
from faust_assigner.app.tables import memory_rows

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tuples import TP

logger = get_logger(__name__)

#: The store of tables in a shared database; neither Faust nor this recovery restores them.
SHARED = URL("aerospike:")
#: Seconds between two checks of a restore's progress.
TELL_S = 0.5


class PartitionRecovery(RecoveryLoop):
    """The recovery of an app: it restores and follows partitions while streams run.

    ``_roles`` holds the assigned changelog partitions: the actives and the standbys. The restored
    actives are in ``actives.complete``, the standbys whose changelogs are read in
    ``standbys.followed``. The remaining partitions are not yet restored or followed.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.is_flowing = False
        #: Partition -> the result of its restore since the last eager round.
        self.restored: dict[TP, Restored] = {}
        self.progress = Progress()
        #: Measures each restored partition for the ledger; None without a ledger.
        self.meter: Any = None
        self._roles: tuple[frozenset[TP], frozenset[TP]] = frozenset(), frozenset()
        self._taking_on: asyncio.Task[None] | None = None
        self._in_turn = asyncio.Lock()
        super().__init__(*args, **kwargs)
        self.threads, extents = RestoreThreads(), ChangelogExtents(self)
        batches = BatchedRestore(
            self.app, self.tp_to_table, self.threads, self.progress, self._note_restored
        )
        self.books = RoundBooks(self)
        self.actives = ActiveRestore(self, ChangelogExtents(self, apart=True), batches)
        self.standbys = StandbyFollower(self, extents, batches)

    def _note_restored(self, tp: TP, restored: Restored) -> None:
        self.restored[tp] = restored

    @property
    def is_taking_on(self) -> bool:
        """Whether an assigned partition is not restored or not followed yet."""
        return self._taking_on is not None and not self._taking_on.done()

    def lacks_standby_records(self) -> bool:
        """Whether a standby is not followed yet, or lacks records."""
        return not self.standby_tps <= self.standbys.followed or super().lacks_standby_records()

    def is_restored(self, tp: TP) -> bool:
        """Whether the table of this active changelog partition is completely restored."""
        return (
            self.is_flowing and tp in self.actives.complete and tp not in self.app.consumer.leaving
        )

    @Service.task  # type: ignore[untyped-decorator]
    async def _tell_progress(self) -> None:
        was_idle = True
        while not self.should_stop:
            await self.sleep(TELL_S)
            idle = self.progress.is_idle
            if idle and was_idle:
                continue
            self.progress.figures()  # the rate in the log line needs regular samples
            if line := self.progress.end() if idle else self.progress.line():
                logger.info("%s", line)
            was_idle = idle

    # -- Faust's own recovery, left without partitions to restore

    def stop_assigning(self) -> None:
        """Stop the restore: all partitions are about to be revoked or restored again."""
        self.is_flowing = False
        for task in self._under_way():
            task.cancel()

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        """Store the partitions of an eager round, which ``on_recovery_completed`` then restores."""
        self.stop_assigning()
        self.books.keep_last()
        memory_rows.revoked(self.tp_to_table, revoked)
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)
        if self.signal_recovery_start.is_set():
            self.app.consumer.begin_generation()
        self._roles = frozenset(self.active_tps), frozenset(self.standby_tps)
        self.books.clear()

    def restart_recovery(self) -> None:
        """Restore all partitions once more.

        ``_roles`` belong to the last round. Faust's sets of partitions and offsets may still belong to the
        previous round, because a round fills them only after it has opened databases.
        """
        self.stop_assigning()
        self.books.clear()
        super().restart_recovery()

    def tables_failed(self, table: str, error: BaseException) -> None:
        """Stop the streams and restore all tables once more."""
        self.stop_assigning()
        super().tables_failed(table, error)

    async def _resume_streams(self, generation_id: int = 0) -> None:
        await super()._resume_streams(generation_id)
        self.completed_generation = generation_id
        self._flows(generation_id)
        if self.is_flowing:
            self.actives.complete = set(self._roles[0])  # Faust does not restore these tables
        self.app.consumer.rounds.subscribe_new_topics()

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        """Start the streams, with all partitions still paused, and begin to restore."""
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
            self.actives.complete, self.standbys.followed, self.is_flowing = set(), set(), True
            self.restored = {}
            # As in Faust, callbacks of all tables are due, also without a partition on this worker.
            self.actives.callbacks.owe(self.tables.values())

    async def on_stop(self) -> None:
        """Stop using the databases before the tables close them."""
        self.stop_assigning()
        await self.actives.callbacks.stop()
        await self.stop_and_wait()
        await super().on_stop()

    # -- rounds

    async def assign(
        self, actives: Collection[TP], standbys: Collection[TP], revoked: Collection[TP]
    ) -> None:
        """Restore and follow the assigned partitions; a restore in progress begins again."""
        # Keep the order of the rounds: a round may still hold this lock when the next round begins.
        async with self._in_turn:
            await self.interrupt()
            await self._release({*actives, *standbys}, revoked)
            of = self.tables._changelogs
            self._roles = (
                frozenset(tp for tp in actives if tp.topic in of),
                frozenset(tp for tp in standbys if tp.topic in of),
            )
            self._begin_to_take_on()

    async def _release(self, assigned: set[TP], revoked: Collection[TP]) -> None:
        """Forget the revoked partitions, then close their databases."""
        came = assigned.difference(*self._roles)
        self.flush_buffers()  # a later flush would reopen the databases
        memory_rows.revoked(self.tp_to_table, {*revoked})
        for tp in revoked:
            self.revoke(tp)
            self.actives.complete.discard(tp)
            self.standbys.followed.discard(tp)
        await self.databases.take_round(assigned, came, revoked)

    def _begin_to_take_on(self) -> None:
        """Restore and follow the partitions of ``_roles``, which the last round has set."""
        if self.is_flowing:
            self._taking_on = asyncio.ensure_future(self._take_on(*self._roles))
        else:
            # A table failed meanwhile. The next recovery restores the partitions of ``_roles`` and
            # needs empty books.
            self.books.clear()

    async def interrupt(self) -> None:
        """Stop restoring and resuming partitions until the next ``assign()``."""
        if under_way := self._under_way():
            for task in under_way:
                task.cancel()
            await asyncio.wait(under_way)
        await self.stop_and_wait()
        self.progress.give_up()

    def _under_way(self) -> set[asyncio.Task[None]]:
        tasks = self._taking_on, self.standbys.catching_up
        self._taking_on = self.standbys.catching_up = None
        return {task for task in tasks if task is not None}

    def stop_restoring(self) -> None:
        """Signal the restore threads to end at their next check."""
        self.threads.stop_signal.set()

    async def stop_and_wait(self) -> None:
        """Wait until no restore thread holds a database."""
        await self.threads.stop_and_wait()

    async def _take_on(self, actives: frozenset[TP], standbys: frozenset[TP]) -> None:
        began = monotonic()
        if self.app.conf.store == SHARED:
            self.actives.complete, standbys = set(actives), frozenset()
        try:
            pending, fresh = await self.books.take(actives, standbys)
            with self.spans.actives(self._recovery_span) if pending else nullcontext():
                await self.actives.restore(pending)
            await self._finish()
            # Open the files of standbys only now, so that streams do not wait for them.
            await self.books.open_copies(fresh)
            await self.standbys.follow(fresh)
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

    async def _take(self, event: EventT[object]) -> None:
        """Apply events of followed and replayed partitions; drop all other events, which are outdated."""
        tp = event.message.tp
        if tp in self.standbys.followed or tp in self.actives.replayed:
            await super()._take(event)

    async def _finish(self) -> None:
        """Signal that all actives are restored."""
        app = self.app
        await app.on_rebalance_complete.send()
        self.completed.set()
        self.tables.on_actives_ready()
        if not self.standby_tps:
            self.tables.on_standbys_ready()
        app.consumer.rounds.restored()
