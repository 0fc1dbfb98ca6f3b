"""Faust's part of a cooperative round: only the moving partitions stop; the rest are processed.

Mixed into the app's own consumer, after the repairs. All code except ``ThreadListener`` runs on the
app's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from faust.transport.consumer import (
    CONSUMER_PARTITIONS_ASSIGNED,
    CONSUMER_PARTITIONS_REVOKED,
    ensure_TPset,
)
from mode import Service, get_logger

from faust_assigner.app.consumer.back_pressure import told
from faust_assigner.app.consumer.fetcher import FairFetcher
from faust_assigner.app.consumer.fetching import seek_committed
from faust_assigner.app.consumer.waits import HAND_OVER, Wait, agents_s, broker_s, unsent, waits_of
from faust_assigner.app.membership.fence import HeartbeatFence
from faust_assigner.app.rebalance.rounds import Rounds
from faust_assigner.app.tables.write_behind import pause

if TYPE_CHECKING:
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
    from faust.types.tuples import TP, Message
    from mode.utils.queues import FlowControlQueue

    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object

logger = get_logger(__name__)

#: Seconds between two checks whether the records in progress are finished.
LOOK_S = 0.002
#: The share of the rebalance timeout for records in progress; the next owner repeats the rest.
PATIENT_SHARE = 0.5
#: Seconds after which Kafka aborts an open transaction, whose offsets the group reports only then.
TRANSACTION_S = 60.0


class ThreadListener:
    """Carries the coordinator's calls from the consumer's thread to the app's thread."""

    def __init__(self, thread: AIOKafkaConsumerThread) -> None:
        self._thread = thread

    async def _tell(self, method: Callable[..., Awaitable[None]], *args: object) -> None:
        app = self._thread.app
        with waits_of(app).during("A rebalance", f"the app's {method.__name__}()", agents_s(app)):
            promise = await self._thread.consumer._method_queue.call(
                self._thread.thread_loop.create_future(), method, *args
            )
            await promise

    def waiting(self, step: str) -> AbstractContextManager[object]:
        """Count the block as a wait of the rebalance for ``step``."""
        app = self._thread.app
        return waits_of(app).during("A rebalance", step, broker_s(app))

    def is_flowing(self) -> bool:
        """Whether the first recovery of this generation is over."""
        return bool(self._thread.app.tables.recovery.is_flowing)

    def is_taking_on(self) -> bool:
        """Whether partitions are about to be resumed."""
        return bool(self._thread.app.tables.recovery.is_taking_on)

    def joins(self) -> None:
        """Report the beginning of a round."""
        consumer = self._thread.consumer
        with contextlib.suppress(RuntimeError):  # its loop is closed: the worker stops
            consumer.loop.call_soon_threadsafe(consumer.rounds.begin)

    async def gives_up(self) -> None:
        """End the round under way without a result: all partitions are about to be revoked."""
        await self._tell(self._thread.consumer.give_up)

    async def revoke(self, revoked: Collection[TP]) -> None:
        """Finish, commit and forget ``revoked``."""
        await self._tell(self._thread.consumer.revoke, ensure_TPset(revoked))

    async def assigned(
        self,
        tps: Collection[TP],
        revoked: Collection[TP],
        gained: Collection[TP],
        roles: tuple[set[TP], set[TP]],
        generation: int,
    ) -> None:
        """Take over the assignment ``tps`` and start with the partitions in ``gained``."""
        await self._tell(
            self._thread.consumer.assign,
            ensure_TPset(tps),
            ensure_TPset(revoked),
            ensure_TPset(gained),
            roles,
            generation,
        )

    def gave_away(self, everything: bool) -> None:
        """Report the answer to the round that gives all partitions away."""
        consumer = self._thread.consumer
        consumer.loop.call_soon_threadsafe(consumer.left.set)
        consumer.loop.call_soon_threadsafe(consumer.rounds.end)

    async def stand_still(self) -> None:
        """Stop processing."""
        # At once, from this thread: the app's thread may be busy, and both are plain assignments.
        self._thread.consumer.stop_flow_now()
        await self._tell(self._thread.consumer.stand_still)


class IncrementalRebalance(Consumer):
    """The consumer's part: revoke and assign some partitions while the rest are processed."""

    #: The partition of the record that is being handed to streams.
    _delivering: TP | None = None
    #: The partitions being revoked, whose records are finished and committed first.
    leaving: frozenset[TP] = frozenset()
    #: The fetcher; None until the client has started.
    fetcher: FairFetcher | None = None

    # Attributes of the parts that ``compose.py`` places before this class.
    callback: Callable[[Message], Awaitable[object]]
    _forget: Callable[[set[TP]], None]
    fence: HeartbeatFence
    first_read: dict[TP, int]

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: Set when a leaving worker no longer has to wait for a round.
        self.left = asyncio.Event()
        super().__init__(*args, **kwargs)
        #: Reports rounds to the app and its sensors.
        self.rounds = Rounds(self.app)
        self.callback = partial(self._deliver, self.callback)
        #: The batch whose records are being handed to streams.
        self._in_hand: Mapping[TP, list[object]] = {}
        #: The partitions that were wanted at the last check for missing records.
        self._looked_at: set[TP] = set()

    def verify(self, verify: Callable[[float, TP], None], now: float, tp: TP) -> None:
        """Report a partition whose records do not arrive, if it was wanted at the last check, too.

        A paused partition is not fetched, and a new or resumed partition was not fetched before.
        Faust counts the time from the start of the worker.
        """
        if not self.is_wanted(tp):
            self._looked_at.discard(tp)
        elif tp in self._looked_at:
            verify(now, tp)
        else:
            self._looked_at.add(tp)

    # -- calls from and to the fetcher

    def is_wanted(self, tp: TP) -> bool:
        """Return whether records of ``tp`` are wanted, now or once a queue has room; any thread."""
        return tp not in self._paused_partitions and self._flows(tp)

    def _set_active_tps(self, tps: set[TP]) -> set[TP]:
        active = super()._set_active_tps(tps)
        self._wake_fetcher()  # the set was empty for a moment
        return active

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Fetch from ``tps`` again, at once."""
        super().resume_partitions(tps)
        self._wake_fetcher()

    def _wake_fetcher(self) -> None:
        if self.fetcher is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: the worker stops
                self._thread.thread_loop.call_soon_threadsafe(self.fetcher.wake)

    async def _getmany(
        self, active_partitions: set[TP] | None, timeout: float
    ) -> Mapping[TP, list[object]]:
        found = await super()._getmany(active_partitions, timeout)
        # Faust checks for a pause at each record; the partition may be resumed by then.
        self._in_hand = {tp: batch for tp, batch in found.items() if self._flows(tp)}
        return self._in_hand

    def _flows(self, tp: TP) -> bool:
        """Return whether records of ``tp`` are wanted now; a client-only app has no assignment."""
        return (
            self.app.client_only or tp in self._active_partitions or tp in self._buffered_partitions
        )

    def _put_down(self, tps: Collection[TP]) -> None:
        """Drop the fetched records of ``tps`` that are not delivered yet.

        Their delivery waits while an agent's queue is full. By then the partitions may be processed
        again, from an earlier record.
        """
        for tp in self._in_hand.keys() & tps:
            self._in_hand[tp].clear()

    async def _deliver(
        self, deliver: Callable[[Message], Awaitable[object]], message: Message
    ) -> object:
        """Deliver a record to the streams, unless its partition was paused or revoked meanwhile."""
        tp = message.tp
        if not self._flows(tp):
            return None
        self._delivering = tp
        try:
            return await deliver(message)
        finally:
            self._delivering = None

    # -- revoked partitions

    @Service.transitions_to(CONSUMER_PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
    async def revoke(self, revoked: set[TP]) -> None:
        """Stop ``revoked``; finish, commit and flush its records; forget the partitions."""
        began = monotonic()
        if self.app.should_stop and not self.app.assignor.leaves:
            return  # the whole worker leaves the group
        self.leaving = frozenset(revoked)
        try:
            with waits_of(self.app).during(
                f"{HAND_OVER} of {len(revoked)} partitions",
                "the recovery to pause",
                self.app.conf.broker_rebalance_timeout,
            ) as wait:
                await self._finish_and_commit(revoked, wait)
            await self._send_revoked(revoked)
        finally:
            self._paused_partitions -= revoked
            self._forget(revoked)
            self.leaving = frozenset()
        logger.info("Revoked %d partitions in %.0f ms", len(revoked), (monotonic() - began) * 1000)

    async def _finish_and_commit(self, revoked: set[TP], wait: Wait) -> None:
        """Finish, commit and flush the records of ``revoked`` that are in progress.

        After the rebalance timeout ``revoked`` has new owners. Changes that are still unsent would
        reach the changelogs after the new owners' changes. So the worker stops if this step takes
        longer.
        """
        app = self.app
        # A running recovery must not resume revoked partitions; it continues after the answer.
        await app.tables.recovery.interrupt()
        self.pause_partitions(revoked)
        self._buffered_partitions -= revoked
        self._put_down(revoked)
        wait.move_to_step("records under way")
        await self._finish(revoked)
        wait.move_to_step("a commit under way")
        while await self.maybe_wait_for_commit_to_finish():
            pass
        wait.move_to_step("its commit")
        await self.commit(topics=revoked)
        if self.in_transaction:
            wait.move_to_step("the end of its transactions")
            await self.transactions.revoke(revoked)
        wait.move_to_step("the delivery of sent records", lambda: unsent(app))
        await app.producer.flush()
        await told()
        # For all tables: only the answer shows which tables move with the topics.
        pause(app, {tp.partition for tp in revoked})
        app.tables.recovery.flush_buffers()

    async def _send_revoked(self, revoked: set[TP]) -> None:
        """Send ``app.on_partitions_revoked`` for ``revoked``, after the commit of its records.

        As in Faust, a handler that raises stops the worker. A handler that takes too long continues
        while the round goes on.
        """
        app = self.app
        with app._start_span_from_rebalancing("on_partitions_revoked"):
            sending = asyncio.ensure_future(app.on_partitions_revoked.send(revoked))
            timeout_s = app.conf.broker_rebalance_timeout * PATIENT_SHARE
            done, _ = await asyncio.wait({sending}, timeout=timeout_s)
        if not done:
            logger.error(
                "A handler of on_partitions_revoked has not returned after %.0f s; %d "
                "partitions go to their next owners while the handler is still running",
                timeout_s,
                len(revoked),
            )
            sending.add_done_callback(_log_late)
        elif sending.cancelled():
            logger.warning(
                "A handler of on_partitions_revoked was cancelled; the hand-over continues"
            )
        elif (error := sending.exception()) is not None:
            await app.crash(error)

    async def _finish(self, revoked: set[TP]) -> None:
        """Drop the queued records; wait for the records that streams have begun."""
        timeout_s = self.app.conf.broker_rebalance_timeout * PATIENT_SHARE
        deadline = monotonic() + timeout_s
        while True:
            for queue in list(self.app.flow_control._queues):
                drop(queue, revoked)
            self._clean_unacked_messages()
            late = [m for m in list(self._unacked_messages) if m.tp in revoked]
            if self._delivering not in revoked and (
                not late or not self.app.conf.stream_wait_empty
            ):
                return
            if monotonic() > deadline:
                logger.error(
                    "Partitions are revoked with %d unfinished records after %.0f s; the next "
                    "owner processes these records again",
                    len(late),
                    timeout_s,
                )
                return
            await asyncio.sleep(LOOK_S)

    # -- assigned partitions

    @Service.transitions_to(CONSUMER_PARTITIONS_ASSIGNED)  # type: ignore[untyped-decorator]
    async def assign(
        self,
        assigned: set[TP],
        revoked: set[TP],
        gained: set[TP],
        roles: tuple[set[TP], set[TP]],
        generation: int,
    ) -> None:
        """Inform agents, topics and tables.

        Gained partitions stay paused until their tables are restored.
        """
        app, recovery = self.app, self.app.tables.recovery
        if app.should_stop:
            return
        # The recovery of the last round resumes each source that it does not restore.
        await recovery.interrupt()
        self._paused_partitions &= assigned
        self._paused_partitions |= gained
        self._looked_at -= gained
        self._buffered_partitions &= assigned
        self._set_active_tps(assigned)
        self._active_partitions -= self._buffered_partitions
        app.unassigned = not assigned
        app._update_assignment(assigned)
        try:
            with app._start_span_from_rebalancing("on_partitions_assigned"):
                await app.agents.on_rebalance(revoked, gained)
                await app.topics.maybe_wait_for_subscriptions()
                await app.topics.on_partitions_assigned(assigned)
                if self.in_transaction:
                    await self.transactions.assign(assigned)
                await recovery.assign(*roles, revoked)
                await app.on_partitions_assigned.send(assigned)
                self.rounds.answered()
        except Exception as error:
            await app.crash(error)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Take over an eager round's assignment.

        A recovery that ends at once does not end the round before the app knows its answer.
        """
        with self.rounds.answering():
            await super().on_partitions_assigned(assigned, generation_id)

    async def give_up(self) -> None:
        """End a round under way, before an eager round begins and revokes all partitions."""
        self.rounds.give_up()

    async def pause_and_drop(self, changelogs: Collection[TP]) -> None:
        """Pause ``changelogs`` and drop their queued records.

        They are read again later, from the tables' offsets.
        """
        tps = ensure_TPset(changelogs)
        self.pause_partitions(tps)
        self._buffered_partitions -= tps
        self._put_down(tps)
        drop(self.app.tables.changelog_queue, tps)
        while self._delivering in tps:
            await asyncio.sleep(LOOK_S)
            drop(self.app.tables.changelog_queue, tps)

    async def seek_some(self, tps: set[TP]) -> None:
        """Seek ``tps`` to their committed offsets; all these offsets are fetched in one step.

        Without a committed offset, seek to the first offset that was read. aiokafka asks without an
        end while the group loads or a transaction is open, so this wait has a deadline.
        """
        limit_s = broker_s(self.app) + TRANSACTION_S
        with waits_of(self.app).during("The recovery", "committed offsets", limit_s):
            offsets = await self._thread.call_thread(
                seek_committed, self._thread._ensure_consumer(), self.first_read, tps
            )
        for tp, offset in offsets.items():
            self._read_offset[tp] = offset
            if offset:
                self._committed_offset[tp] = offset

    # -- a coordinator that does not answer

    def stop_flow_now(self) -> None:
        """Stop delivering records and writing to changelogs, which may have new owners."""
        self.flow_active = False
        # Held changes wait for the group's answer, and the request to the group would wait for
        # them.
        self.fence.lose()

    async def stand_still(self) -> None:
        """Stop all streams; the records that their agents have begun are not committed."""
        app = self.app
        app.tables.recovery.stop_assigning()
        self.stop_flow()
        app.flow_control.suspend()
        self.pause_partitions(self.assignment())
        app.flow_control.clear()


def _log_late(sending: asyncio.Future[object]) -> None:
    """Log a failure of handlers that ended after their round."""
    if not sending.cancelled() and (error := sending.exception()) is not None:
        logger.error("A handler of on_partitions_revoked failed after its round: %r", error)


def drop(queue: FlowControlQueue, tps: Collection[TP]) -> None:
    """Remove the events of ``tps`` from a stream's queue."""
    kept = [
        event
        for event in queue._queue
        if getattr(getattr(event, "message", None), "tp", None) not in tps
    ]
    if len(kept) == len(queue._queue):
        return
    queue._queue.clear()
    queue._queue.extend(kept)
    queue.maybe_endorse_pressure_drop()
    while not queue.full() and queue._putters:
        queue._wakeup_next(queue._putters)
