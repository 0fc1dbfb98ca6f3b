"""Faust's part of a cooperative round: some partitions go, some come, the others flow on.

Mixed into the app's own consumer, after the repairs; all but ``ThreadListener`` runs on the app's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

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
from faust_assigner.app.membership.coordinator import take_over
from faust_assigner.app.membership.fence import HeartbeatFence
from faust_assigner.app.rebalance.rounds import Rounds
from faust_assigner.app.tables.write_behind import pause

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object

logger = get_logger(__name__)

#: Seconds between two looks whether the records under way are done.
LOOK_S = 0.002
#: The part of the rebalance timeout that records under way may take; the next owner repeats the rest.
PATIENT_SHARE = 0.5


class ThreadListener:
    """What the coordinator tells, carried from the consumer's thread to the app's."""

    def __init__(self, thread: Any) -> None:
        self._thread = thread

    async def _tell(self, method: Callable[..., Awaitable[None]], *args: Any) -> None:
        app = self._thread.app
        with waits_of(app).during("A rebalance", f"the app's {method.__name__}()", agents_s(app)):
            promise = await self._thread.consumer._method_queue.call(
                self._thread.thread_loop.create_future(), method, *args
            )
            await promise

    def waiting(self, step: str) -> AbstractContextManager[Any]:
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
        """A round begins."""
        consumer = self._thread.consumer
        with contextlib.suppress(RuntimeError):  # its loop is closed: the worker stops
            consumer.loop.call_soon_threadsafe(consumer.rounds.begin)

    async def gives_up(self) -> None:
        """Everything is about to be revoked: a round under way comes to nothing."""
        await self._tell(self._thread.consumer.give_up)

    async def revoke(self, revoked: Collection[Any]) -> None:
        """Finish, commit and forget ``revoked``."""
        await self._tell(self._thread.consumer.revoke, ensure_TPset(revoked))

    async def assigned(
        self,
        tps: Collection[Any],
        revoked: Collection[Any],
        gained: Collection[Any],
        roles: Any,
        generation: int,
    ) -> None:
        """Begin with ``gained``."""
        await self._tell(
            self._thread.consumer.assign,
            ensure_TPset(tps),
            ensure_TPset(revoked),
            ensure_TPset(gained),
            roles,
            generation,
        )

    def gave_away(self, everything: bool) -> None:
        """The round that gives everything away has been answered."""
        consumer = self._thread.consumer
        consumer.loop.call_soon_threadsafe(consumer.left.set)
        consumer.loop.call_soon_threadsafe(consumer.rounds.end)

    async def stand_still(self) -> None:
        """Stop processing."""
        # At once, from this thread: the app's may be busy, and both are plain assignments.
        self._thread.consumer.stop_flow_now()
        await self._tell(self._thread.consumer.stand_still)


class IncrementalRebalance(Consumer):
    """Of the consumer: partitions come and go while others flow."""

    #: The partition of the record that is being handed to streams.
    _delivering: Any = None
    #: Partitions whose records are finished and committed before they go.
    leaving: frozenset[Any] = frozenset()
    #: Once the client has started.
    fetcher: FairFetcher | None = None

    # Of the parts that the composition places before this one.
    callback: Callable[[Any], Awaitable[Any]]
    _forget: Callable[[set[Any]], None]
    fence: HeartbeatFence
    first_read: dict[Any, int]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        #: Set when a worker that leaves need not wait any longer for a round.
        self.left = asyncio.Event()
        super().__init__(*args, **kwargs)
        #: What the app and its sensors are told of rounds.
        self.rounds = Rounds(self.app)
        self.callback = partial(self._deliver, self.callback)
        #: The batch whose records are being handed to streams.
        self._in_hand: Mapping[Any, list[Any]] = {}
        #: Partitions that were wanted at the last look whether their records come.
        self._looked_at: set[Any] = set()

    def _new_consumer_thread(self) -> Any:
        thread = super()._new_consumer_thread()
        # The driver names its thread class in code, so this one instance is told.
        thread._create_worker_consumer = partial(_create, thread, thread._create_worker_consumer)
        thread.verify_event_path = partial(self._verify, thread.verify_event_path)
        return thread

    def _verify(self, verify: Callable[[float, Any], None], now: float, tp: Any) -> None:
        """Complain of a partition whose records do not come; what is paused is not fetched.

        Nor was what has just come, or was resumed; Faust counts from the start of the worker.
        """
        if not self.is_wanted(tp):
            self._looked_at.discard(tp)
        elif tp in self._looked_at:
            verify(now, tp)
        else:
            self._looked_at.add(tp)

    # -- what the fetcher asks, and what it is told

    def is_wanted(self, tp: Any) -> bool:
        """Whether records of ``tp`` are passed on, now or once a queue has room; asked from any thread."""
        return tp not in self._paused_partitions and self._flows(tp)

    def _set_active_tps(self, tps: set[Any]) -> set[Any]:
        active = super()._set_active_tps(tps)
        self._wake_fetcher()  # for a moment there were none
        return active

    def resume_partitions(self, tps: Iterable[Any]) -> None:
        """Fetch from ``tps`` again, at once."""
        super().resume_partitions(tps)
        self._wake_fetcher()

    def _wake_fetcher(self) -> None:
        if self.fetcher is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: the worker stops
                self._thread.thread_loop.call_soon_threadsafe(self.fetcher.wake)

    async def _getmany(
        self, active_partitions: set[Any] | None, timeout: float
    ) -> Mapping[Any, list[Any]]:
        found = await super()._getmany(active_partitions, timeout)
        # Faust asks for each record whether its partition is paused, and it may be resumed by then.
        self._in_hand = {tp: batch for tp, batch in found.items() if self._flows(tp)}
        return self._in_hand

    def _flows(self, tp: Any) -> bool:
        """Whether records of ``tp`` are wanted now; a client without a group is assigned nothing."""
        return (
            self.app.client_only or tp in self._active_partitions or tp in self._buffered_partitions
        )

    def _put_down(self, tps: Collection[Any]) -> None:
        """Drop what is at hand of ``tps``: it may be under way for as long as an agent's queue is full.

        By then they may flow again, from an earlier record.
        """
        for tp in self._in_hand.keys() & tps:
            self._in_hand[tp].clear()

    async def _deliver(self, deliver: Callable[[Any], Awaitable[Any]], message: Any) -> Any:
        """Hand a record to the streams, unless its partition was paused or went since it was fetched."""
        tp = message.tp
        if not self._flows(tp):
            return None
        self._delivering = tp
        try:
            return await deliver(message)
        finally:
            self._delivering = None

    # -- partitions that go

    @Service.transitions_to(CONSUMER_PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
    async def revoke(self, revoked: set[Any]) -> None:
        """Stop ``revoked``, let the records under way end, commit and flush them, forget the partitions."""
        began = monotonic()
        if self.app.should_stop and not self.app.assignor.leaves:
            return  # the whole worker says goodbye
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
        logger.info(
            "Let go of %d partitions in %.0f ms", len(revoked), (monotonic() - began) * 1000
        )

    async def _finish_and_commit(self, revoked: set[Any], wait: Wait) -> None:
        """Let the records of ``revoked`` under way end, and commit and flush them.

        After the rebalance timeout others own ``revoked``; changes that are still unsent would reach the
        changelogs behind theirs. So the worker ends where that takes longer.
        """
        app = self.app
        # What is being restored must not resume what goes; it is taken up again with the answer.
        await app.tables.recovery.interrupt()
        self.pause_partitions(revoked)
        self._buffered_partitions -= revoked
        self._put_down(revoked)
        wait.pass_on_to("records under way")
        await self._finish(revoked)
        wait.pass_on_to("a commit under way")
        while await self.maybe_wait_for_commit_to_finish():
            pass
        wait.pass_on_to("its commit")
        await self.commit(topics=revoked)
        if self.in_transaction:
            wait.pass_on_to("the end of its transactions")
            await self.transactions.revoke(revoked)
        wait.pass_on_to("the delivery of what was sent", lambda: unsent(app))
        await app.producer.flush()
        await told()
        # Of all tables: which of them go with the topics is known with the answer.
        pause(app, {tp.partition for tp in revoked})
        app.tables.recovery.flush_buffers()

    async def _send_revoked(self, revoked: set[Any]) -> None:
        """Send ``app.on_partitions_revoked`` of what goes, once its records are done and committed.

        As in Faust a handler that raises ends the worker. One that takes too long goes on beside the round.
        """
        app = self.app
        with app._start_span_from_rebalancing("on_partitions_revoked"):
            sending = asyncio.ensure_future(app.on_partitions_revoked.send(revoked))
            timeout_s = app.conf.broker_rebalance_timeout * PATIENT_SHARE
            done, _ = await asyncio.wait({sending}, timeout=timeout_s)
        if not done:
            logger.error(
                "A handler of on_partitions_revoked has not returned after %.0f s; %d partitions are "
                "given to their next owners while it runs on",
                timeout_s,
                len(revoked),
            )
            sending.add_done_callback(_log_late)
        elif sending.cancelled():
            logger.warning(
                "A handler of on_partitions_revoked was cancelled; the hand-over goes on"
            )
        elif (error := sending.exception()) is not None:
            await app.crash(error)

    async def _finish(self, revoked: set[Any]) -> None:
        """Drop what waits in queues; wait for what streams have begun."""
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
                    "Partitions are let go with %d records under way after %.0f s; the next owner "
                    "repeats them",
                    len(late),
                    timeout_s,
                )
                return
            await asyncio.sleep(LOOK_S)

    # -- partitions that come

    @Service.transitions_to(CONSUMER_PARTITIONS_ASSIGNED)  # type: ignore[untyped-decorator]
    async def assign(
        self, assigned: set[Any], revoked: set[Any], gained: set[Any], roles: Any, generation: int
    ) -> None:
        """Tell agents, topics and tables; what is gained stays paused until its tables are restored."""
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

    async def on_partitions_assigned(self, assigned: set[Any], generation_id: int = 0) -> None:
        """All of an eager round comes; a recovery that ends at once does not end the round unanswered."""
        with self.rounds.answering():
            await super().on_partitions_assigned(assigned, generation_id)

    async def give_up(self) -> None:
        """End a round under way, before the eager one begins that takes everything."""
        self.rounds.give_up()

    async def hold_back(self, changelogs: Collection[Any]) -> None:
        """Pause ``changelogs`` and drop what of them waits; they are read again from where tables stand."""
        tps = ensure_TPset(changelogs)
        self.pause_partitions(tps)
        self._buffered_partitions -= tps
        self._put_down(tps)
        drop(self.app.tables.changelog_queue, tps)
        while self._delivering in tps:
            await asyncio.sleep(LOOK_S)
            drop(self.app.tables.changelog_queue, tps)

    async def seek_some(self, tps: set[Any]) -> None:
        """Seek ``tps`` to their committed offsets, all asked for at once; else to what was read first."""
        offsets = await self._thread.call_thread(
            seek_committed, self._thread._ensure_consumer(), self.first_read, tps
        )
        for tp, offset in offsets.items():
            self._read_offset[tp] = offset
            if offset:
                self._committed_offset[tp] = offset

    # -- a coordinator that is silent

    def stop_flow_now(self) -> None:
        """Hand over nothing from here on, and write to no changelog what others may have written."""
        self.flow_active = False
        # What is held until the group answers would be waited for before it can be asked.
        self.fence.lose()

    async def stand_still(self) -> None:
        """Stop all streams; what their agents have begun is not committed."""
        app = self.app
        app.tables.recovery.stop_assigning()
        self.stop_flow()
        app.flow_control.suspend()
        self.pause_partitions(self.assignment())
        app.flow_control.clear()


def _log_late(sending: asyncio.Future[Any]) -> None:
    """The handlers came to their end after the round that they were told of."""
    if not sending.cancelled() and (error := sending.exception()) is not None:
        logger.error("A handler of on_partitions_revoked failed after its round: %r", error)


def drop(queue: Any, tps: Collection[Any]) -> None:
    """Take the events of ``tps`` out of a stream's queue."""
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


def _create(thread: Any, create: Callable[[Any], Any], transport: Any) -> Any:
    """An AIOKafkaConsumer as Faust creates it, cooperative from its start on."""
    consumer = create(transport)
    consumer.start = partial(_start, thread, consumer, consumer.start)
    return consumer


async def _start(thread: Any, consumer: Any, start: Callable[[], Awaitable[None]]) -> None:
    await start()
    # Faust subscribes later, so the coordinator has not joined a group yet.
    if hasattr(consumer._coordinator, "ensure_active_group"):
        listener, fetcher = ThreadListener(thread), consumer._fetcher
        take_over(consumer, thread.app.assignor, listener, thread.consumer.fence)
        fetcher.is_wanted, fetcher.is_hurried = thread.consumer.is_wanted, listener.is_taking_on
        fetcher.counters = thread.app.assignor.counters
        thread.consumer.fetcher = fetcher
        thread.app.flow_control.must_stand_still = consumer._coordinator.must_stand_still
