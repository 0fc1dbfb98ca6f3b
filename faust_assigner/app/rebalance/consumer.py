"""Faust's consumer with this package's repairs.

A method of the consumer calls its steps in order. The steps are methods of the consumer's parts, and
each part has its own module.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from faust.transport.drivers import aiokafka as driver

from faust_assigner.app.consumer.back_pressure import BackPressure
from faust_assigner.app.consumer.commits import (
    KeptBack,
    forget,
    notify_and_commit,
    run_delivery_callbacks,
)
from faust_assigner.app.consumer.delivery import Delivery
from faust_assigner.app.consumer.in_progress import in_progress
from faust_assigner.app.consumer.waits import assigning, committing, committing_offsets, revoking
from faust_assigner.app.consumer.whole_records import RecordBoundaryCommits
from faust_assigner.app.host.clients import faust_tps
from faust_assigner.app.host.group_member import coordinator_of
from faust_assigner.app.membership.changelog_guard import ChangelogGuard
from faust_assigner.app.membership.fence import HeartbeatFence, has_left, watch
from faust_assigner.app.membership.shutdown import BoundedShutdown
from faust_assigner.app.rebalance.consumer_thread import RepairedThread, new_thread
from faust_assigner.app.rebalance.incremental import IncrementalRebalance
from faust_assigner.app.rebalance.rounds import Rounds
from faust_assigner.app.retry import retry
from faust_assigner.app.tables.flushing import discard
from faust_assigner.concurrency.cancellation import is_cancelled

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord
    from faust.types.tuples import TP, Message

    Records = Mapping[TP, list[ConsumerRecord[bytes, bytes]]]

    from faust_assigner.app.consumer.commits import Deliver
    from faust_assigner.app.consumer.fetcher import FairFetcher
    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    from faust.transport.drivers.aiokafka import Consumer


class RepairedConsumer(Consumer):
    """Faust's consumer with repairs: a cooperative rebalance stops only the moving partitions."""

    #: Whether the last generation has ended and the next generation's recovery has not begun.
    between_generations = False
    #: The partitions whose revocation has begun; their records are still being finished.
    leaving: frozenset[TP] = frozenset()
    #: The number of fetches so far. When fetch n + 1 begins, all records of fetch n are in their queues.
    fetch_rounds = 0
    #: Source partition -> the offset of its first record since it was assigned.
    first_read: dict[TP, int]
    #: Whether each answer of the group renews the heartbeat fence; False for a consumer without a group.
    _is_watched = False
    #: The fetcher; None until the client has started.
    fetcher: FairFetcher | None = None

    def __init__(self, *args: object, callback: Deliver, **options: object) -> None:
        #: Set when the group has answered the round in which this leaving worker hands over.
        self.left = asyncio.Event()
        self._resumed, self.first_read = asyncio.Event(), {}
        super().__init__(*args, callback=partial(self._deliver, callback), **options)
        #: Reports rounds to the app and its sensors.
        self.rounds = Rounds(self.app)
        self.delivery = Delivery(self)
        self.incremental = IncrementalRebalance(self, self.delivery, self.rounds)
        self.boundaries = RecordBoundaryCommits(self)
        self.fence = HeartbeatFence(self.app.conf.broker_session_timeout)
        self.changes = ChangelogGuard(self.app, self.fence)
        self.shutdown = BoundedShutdown(self.app, self._thread)
        self.room = BackPressure(self)

    async def on_restart(self) -> None:
        """Restart the consumer, and forget its resumed and read partitions."""
        await super().on_restart()
        self._resumed, self.first_read = asyncio.Event(), {}
        self.kept_back.forget(tuple(self.kept_back.first))

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return new_thread(RepairedThread, self)

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Fetch the end offsets of ``partitions``; under ``exactly_once``, the ends of committed records.

        Under ``exactly_once`` stock Faust returns the offset that its last fetch reported. Before the
        first fetch it treats partitions as empty.
        """
        end_offsets = self._thread._ensure_consumer().end_offsets
        return dict(await self._thread.call_thread(end_offsets, partitions))

    # -- fetches and their delivery

    async def _wait_next_records(self, timeout: float) -> tuple[Records | None, set[TP] | None]:
        # Stock Faust sleeps for a second while no partition is active, as at the start of each recovery.
        if not self.app.client_only and not self._active_partitions:
            if not self.flow_active:
                # Wait as stock Faust does. If this method returns while the flow is stopped, the caller
                # seeks all partitions to their committed offsets.
                await self.wait(self.can_resume_flow)
            self._resumed.clear()
            await self.wait(self._resumed, timeout=timeout)
            if not self._active_partitions:
                return {}, self._active_partitions
        return await super()._wait_next_records(timeout)

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Records:
        # Faust's fetcher calls this method only after it has passed on the previous batch.
        self.fetch_rounds += 1
        return self.delivery.take(await super()._getmany(active_partitions, timeout))

    def may_fetch(self, tp: TP) -> bool:
        """Return whether records of ``tp`` may be fetched now."""
        return self.flow_active and tp in self._active_partitions

    async def _deliver(self, deliver: Deliver, message: Message) -> object:
        if self.room.holds_back(message):
            await self.room.wait_for_room()
        if message.tp in self.kept_back.sought:
            deliver = partial(self.kept_back.deliver_again, deliver)
        return await self.delivery.hand_out(deliver, message)

    def wake_fetcher(self) -> None:
        """Make the fetcher check again which partitions to fetch."""
        if self.fetcher is not None:
            with contextlib.suppress(RuntimeError):  # the thread's loop is closed: the worker stops
                self._thread.thread_loop.call_soon_threadsafe(self.fetcher.wake)

    # -- eager rounds: between the revocation and the next recovery no partition is resumed

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Commit, revoke all partitions, and drop the unwritten changes of uncommitted records."""
        with revoking(self.app, revoked):
            self.between_generations = True  # a running recovery must not start the flow again
            await notify_and_commit(self, self._on_partitions_revoked, revoked)
            self._forget(revoked)
            if self.in_transaction:
                await self.boundaries.abandon_open(fenced=self.fence.lost)
            # A buffer that was full in this generation must not resume its partition in the next generation.
            self._buffered_partitions.clear()
        await run_delivery_callbacks()
        discard(self.app)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Take over the assignment of an eager round."""
        with assigning(self.app, assigned):
            self._begin_generation()
            # Pause all partitions; stock Faust leaves them active until agents and topics are notified.
            self.between_generations = True
            self.stop_flow()
            self.app.flow_control.suspend()
            self._buffered_partitions.clear()
            self._paused_partitions.update(faust_tps(assigned))
            # A recovery may end at once; the round must not end before the app has its assignment.
            with self.rounds.reporting_answer():
                await super().on_partitions_assigned(assigned, generation_id)

    def _begin_generation(self) -> None:
        """Begin a generation: answers renew the fence, and changes of tables are tracked again."""
        self._is_watched = watch(coordinator_of(self), self.fence)
        if self._is_watched:
            self.fence.join()
        self.changes.begin_generation(is_member=self._is_watched)

    def begin_generation(self) -> None:
        """Allow the flow to start; the recovery of the new generation calls this method when it begins."""
        self.between_generations = False

    async def perform_seek(self) -> None:
        """Seek to the committed offsets; retry until the broker answers."""
        await retry(self, "Committed offsets", super().perform_seek)
        self.kept_back.seek(self.kept_back.first.keys())

    def resume_flow(self) -> None:
        """Start the flow, unless a new rebalance has begun since the calling recovery started."""
        if not self.between_generations:
            super().resume_flow()

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Fetch from ``tps`` again, unless the next generation is about to begin."""
        if not self.between_generations:
            super().resume_partitions(faust_tps(tps))
            self.wake_fetcher()
            self._resumed.set()

    def on_buffer_drop(self, tp: TP) -> None:
        """Resume ``tp``, whose queue has room again; a partition paused for a recovery stays paused."""
        if tp in self._paused_partitions:
            self._buffered_partitions.discard(tp)
        else:
            super().on_buffer_drop(tp)

    # -- the membership

    def is_surely_member(self) -> bool:
        """Return whether no other member can own this worker's partitions; True without a group."""
        return not self._is_watched or self.fence.is_sure()

    def group_answers(self) -> bool:
        """Return whether the group has answered within the session timeout; True without a group."""
        return not self._is_watched or not self.fence.is_silent()

    def has_left_group(self) -> bool:
        """Return whether this worker has left its group, or was removed, and has not joined again."""
        return self._is_watched and has_left(coordinator_of(self), self.fence)

    def lose_membership(self) -> None:
        """Mark the membership as lost; make the consumer revoke all partitions and join again."""
        self.fence.lose()
        coordinator = coordinator_of(self)
        rejoin = getattr(coordinator, "revoke_all_and_rejoin", coordinator.request_rejoin)
        self._thread.thread_loop.call_soon_threadsafe(rejoin)

    # -- commits

    @cached_property
    def kept_back(self) -> KeptBack:
        """The records that no commit includes."""
        return KeptBack(self)

    async def force_commit(self, topics: object = None, start_new_transaction: bool = True) -> bool:
        """Commit, as a wait with a deadline; during the shutdown, within the time left."""
        with committing(self.app):
            return await self.shutdown.commit(super().force_commit, topics, start_new_transaction)

    async def _commit_tps(self, tps: Iterable[TP], start_new_transaction: bool) -> bool:
        if self.in_transaction:
            return await self.boundaries.commit(start_new_transaction)
        return await super()._commit_tps(tps, start_new_transaction=start_new_transaction)

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        wanted = tuple(tps)
        with self.kept_back.hide_after_unfinished(wanted):
            return super()._filter_committable_offsets(wanted)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        committing_offsets(self.app)
        return await self.changes.wait_for_delivery() and bool(await super()._commit(offsets))

    async def maybe_wait_for_commit_to_finish(self) -> bool:
        """Wait for a running commit; during the shutdown, within the time left.

        If the caller is cancelled, the other waiters still wait. Faust would cancel the future that they
        share and ignore the cancellation; they would then commit beside the running commit.
        """
        wait = super().maybe_wait_for_commit_to_finish
        within = self.shutdown.budget.within
        return bool(await within("Commit under way", lambda: asyncio.shield(wait())))

    async def commit_and_end_transactions(self) -> None:
        """Commit all committable offsets, including offsets acknowledged during a running commit."""
        # During a running commit, commit() would only wait for its end. So wait first, then commit.
        await self.maybe_wait_for_commit_to_finish()
        await super().commit_and_end_transactions()

    def ack(self, message: Message) -> bool:
        """Acknowledge ``message`` for an agent that calls ``event.ack()``; Faust's streams do not call this.

        Under ``exactly_once`` a commit may wait for this record. An agent with many records begins the next
        record at once, so the commit must not look for the end of this record later.
        """
        acked = bool(super().ack(message))
        if acked and self.in_transaction:
            self.boundaries.record_acked(message.tp)
        return acked

    def give_up_lost(self, unfinished: list[Message]) -> list[Message]:
        """Give up the records of ``unfinished`` that no agent processes; return the other records."""
        active = in_progress(self.app, unfinished)
        processed = {id(message) for message in active}
        lost = [message for message in unfinished if id(message) not in processed]
        self.kept_back.give_up(lost)
        if self.in_transaction:
            # A commit may wait for these records, and agents may wait for the commit.
            for tp in {message.tp for message in lost}:
                self.boundaries.record_ended(tp)
        return active

    def _forget(self, tps: set[TP]) -> None:
        """Forget the offsets of revoked partitions, and give their unfinished records up."""
        self.kept_back.give_up(
            [m for m in list(self._unacked_messages) if m.tp in tps and not m.acked]
        )
        forget(self, tps)
        self.kept_back.forget(tps)

    # -- the shutdown

    async def wait_empty(self) -> None:
        """Wait until the streams are empty; during the shutdown, within a time limit."""
        await self.shutdown.wait_for_streams(super().wait_empty)

    async def _wait_for_ack(self, timeout: float) -> None:
        """Wait for an acknowledgement, or for a second; Faust's method ignores a cancellation.

        Give the records up that no agent processes: the queues of the stopped streams were cleared.
        """
        if not self.app.flow_control.is_active():
            unfinished = [m for m in list(self._unacked_messages) if not m.acked]
            if not self.give_up_lost(unfinished):
                return
        await super()._wait_for_ack(timeout)
        if is_cancelled():
            raise asyncio.CancelledError

    async def leave_group(self) -> None:
        """Flush, commit and leave, so that the group can reassign this worker's partitions at once."""
        await self.shutdown.leave_group(self.commit_and_end_transactions)
