"""Faust's part of a cooperative round: moving partitions stop, retained partitions are processed.

All code runs on the app's thread, except ``stop_flow_now()``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from time import monotonic
from typing import TYPE_CHECKING

from mode import Service, get_logger

from faust_assigner.app.consumer.commits import (
    PARTITIONS_ASSIGNED,
    PARTITIONS_REVOKED,
    run_delivery_callbacks,
)
from faust_assigner.app.consumer.delivery import Delivery, drop
from faust_assigner.app.consumer.fetching import seek_committed
from faust_assigner.app.consumer.waits import HAND_OVER, Wait, broker_s, unsent, waits_of
from faust_assigner.app.host.clients import faust_tps
from faust_assigner.app.tables.flushing import pause

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.rebalance.consumer import RepairedConsumer
    from faust_assigner.app.rebalance.rounds import Rounds

logger = get_logger(__name__)

#: The shortest and the longest time in seconds between two checks whether records in progress are finished.
#: A check reads all queues. So the pause grows: it is ``LOOK_SHARE`` of the time since the first check.
LEAST_LOOK_S, MOST_LOOK_S, LOOK_SHARE = 0.002, 0.05, 0.125
#: The share of the rebalance timeout in which records in progress may finish. The next owner processes
#: unfinished records again.
PATIENT_SHARE = 0.5
#: Seconds after which Kafka aborts an open transaction. Until then the group returns no offsets for it.
TRANSACTION_S = 60.0


class IncrementalRebalance:
    """The steps of a cooperative round: revoke and assign moving partitions, process retained partitions."""

    def __init__(self, consumer: RepairedConsumer, delivery: Delivery, rounds: Rounds) -> None:
        self._consumer, self._app, self.diag = consumer, consumer.app, consumer.diag
        self._delivery, self._rounds = delivery, rounds

    # -- revoked partitions

    @Service.transitions_to(PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
    async def revoke(self, revoked: set[TP]) -> None:
        """Stop the ``revoked`` partitions; finish, commit and flush their records; forget their offsets."""
        began = monotonic()
        if self._app.should_stop and not self._app.assignor.leaves:
            return  # a stopping worker leaves the group, so it need not revoke single partitions
        self._consumer.leaving = frozenset(revoked)
        try:
            with waits_of(self._app).during(
                f"{HAND_OVER} of {len(revoked)} partitions",
                "the recovery to pause",
                self._app.conf.broker_rebalance_timeout,
            ) as wait:
                await self._finish_and_commit(revoked, wait)
            await self._send_revoked(revoked)
        finally:
            self._consumer._paused_partitions -= revoked
            self._consumer._forget(revoked)
            self._consumer.leaving = frozenset()
        logger.info("Revoked %d partitions in %.0f ms", len(revoked), (monotonic() - began) * 1000)

    async def _finish_and_commit(self, revoked: set[TP], wait: Wait) -> None:
        """Finish, commit and flush the records of ``revoked`` that are in progress.

        After the rebalance timeout the partitions have new owners. If this method took longer, unsent
        changes would reach the changelogs after the new owners' changes. So the worker ends after this
        timeout.
        """
        app, consumer, recovery = self._app, self._consumer, self._app.tables.recovery
        # Interrupt the recovery, so that it does not resume revoked partitions. The recovery continues after
        # the round.
        await recovery.interrupt()
        consumer.pause_partitions(revoked)
        consumer._buffered_partitions -= revoked
        self._delivery.drop_fetched(revoked)
        wait.move_to_step("records under way")
        await self._finish(revoked)
        wait.move_to_step("a commit under way")
        while await consumer.maybe_wait_for_commit_to_finish():
            pass
        wait.move_to_step("its commit")
        await consumer.commit(topics=revoked)
        if consumer.in_transaction:
            wait.move_to_step("the end of its transactions")
            await consumer.transactions.revoke(revoked)
        wait.move_to_step("the delivery of sent records", lambda: unsent(app))
        await app.producer.flush()
        await run_delivery_callbacks()
        # Pause the writes of all tables: the worker does not know yet which tables move with the topics.
        pause(app, {tp.partition for tp in revoked})
        recovery.flush_buffers()

    async def _send_revoked(self, revoked: set[TP]) -> None:
        """Send the signal ``app.on_partitions_revoked`` for ``revoked``, after the commit of the records.

        As in Faust, an error of a handler ends the worker. The round does not wait for a handler that
        takes longer than half of the rebalance timeout.
        """
        app = self._app
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
            sending.add_done_callback(_log_late_error)
        elif sending.cancelled():
            logger.warning(
                "A handler of on_partitions_revoked was cancelled; the hand-over continues"
            )
        elif (error := sending.exception()) is not None:
            await app.crash(error)

    async def _finish(self, revoked: set[TP]) -> None:
        """Drop the queued records of ``revoked``; wait for the records that agents process."""
        timeout_s = self._app.conf.broker_rebalance_timeout * PATIENT_SHARE
        began = monotonic()
        while True:
            for queue in list(self._app.flow_control._queues):
                drop(queue, revoked)
            unacked = list(self._consumer._unacked_messages)
            late = [m for m in unacked if m.tp in revoked and not m.acked]
            active = self._consumer.give_up_lost(late)
            if not self._delivery.is_handing_out(revoked) and (
                not active or not self._app.conf.stream_wait_empty
            ):
                self._consumer.kept_back.give_up(late)
                return
            elapsed_s = monotonic() - began
            if elapsed_s > timeout_s:
                self._consumer.kept_back.give_up(late)
                logger.error(
                    "Partitions are revoked with %d unfinished records after %.0f s; the next "
                    "owner processes these records again",
                    len(late),
                    timeout_s,
                )
                return
            await asyncio.sleep(_pause_s(elapsed_s))

    # -- assigned partitions

    @Service.transitions_to(PARTITIONS_ASSIGNED)  # type: ignore[untyped-decorator]
    async def assign(
        self,
        assigned: set[TP],
        revoked: set[TP],
        gained: set[TP],
        roles: tuple[set[TP], set[TP]],
        generation: int,
    ) -> None:
        """Notify agents, topics and tables of the new assignment.

        Gained partitions stay paused until their tables are restored. An error ends the worker.
        """
        app, consumer, recovery = self._app, self._consumer, self._app.tables.recovery
        if app.should_stop:
            return
        # Interrupt the recovery of the last round: it would resume gained sources too early.
        await recovery.interrupt()
        consumer._paused_partitions &= assigned
        consumer._paused_partitions |= gained
        self._delivery.skip_next_check(gained)
        consumer._buffered_partitions &= assigned
        active = assigned - consumer._paused_partitions - consumer._buffered_partitions
        # Change the set in place, and never empty it in between: a running fetch reads the set.
        consumer._active_partitions &= active
        consumer._active_partitions |= active
        consumer.wake_fetcher()
        app.unassigned = not assigned
        app._update_assignment(assigned)
        try:
            with app._start_span_from_rebalancing("on_partitions_assigned"):
                await app.agents.on_rebalance(revoked, gained)
                await app.topics.maybe_wait_for_subscriptions()
                await app.topics.on_partitions_assigned(assigned)
                if consumer.in_transaction:
                    await consumer.transactions.assign(assigned)
                await recovery.assign(*roles, revoked)
                await app.on_partitions_assigned.send(assigned)
                self._rounds.answered()
        except Exception as error:
            await app.crash(error)

    async def give_up(self) -> None:
        """End the current round, before an eager round begins and revokes all partitions."""
        self._rounds.give_up()

    async def pause_and_drop(self, changelogs: Collection[TP]) -> None:
        """Pause ``changelogs`` and drop their queued records.

        The recovery reads these records again later, from the tables' offsets.
        """
        tps = faust_tps(changelogs)
        self._consumer.pause_partitions(tps)
        self._consumer._buffered_partitions -= tps
        self._delivery.drop_fetched(tps)
        drop(self._app.tables.changelog_queue, tps)
        began = monotonic()
        while self._delivery.is_handing_out(tps):
            await asyncio.sleep(_pause_s(monotonic() - began))
            drop(self._app.tables.changelog_queue, tps)

    async def seek_some(self, tps: set[TP]) -> None:
        """Seek ``tps`` to their committed offsets, which one request fetches.

        A partition without a committed offset is sought to the first offset that was read. aiokafka
        repeats the request while the group loads or a transaction is open, so the wait has a deadline.
        """
        app, consumer = self._app, self._consumer
        limit_s = broker_s(app) + TRANSACTION_S
        with waits_of(app).during("The recovery", "committed offsets", limit_s):
            offsets = await consumer._thread.call_thread(
                seek_committed, consumer._thread._ensure_consumer(), consumer.first_read, tps
            )
        for tp, offset in offsets.items():
            consumer._read_offset[tp] = offset
            if offset:
                consumer._committed_offset[tp] = offset
        consumer.kept_back.seek(tps)

    # -- a coordinator that does not answer

    def stop_flow_now(self) -> None:
        """Stop delivering records and writing to changelogs: the partitions may have new owners."""
        self._consumer.flow_active = False
        # Drop the unsent changes. Otherwise they would wait for the group's answer, and the request to
        # the group would wait for them.
        self._consumer.fence.lose()

    async def stand_still(self) -> None:
        """Stop all streams; the records that agents process now are not committed."""
        app = self._app
        app.tables.recovery.stop_assigning()
        self._consumer.stop_flow()
        app.flow_control.suspend()
        self._consumer.pause_partitions(self._consumer.assignment())
        app.flow_control.clear()


def _pause_s(elapsed_s: float) -> float:
    """Return the time until the next check of records in progress, ``elapsed_s`` after the first check."""
    return min(max(LOOK_SHARE * elapsed_s, LEAST_LOOK_S), MOST_LOOK_S)


def _log_late_error(sending: asyncio.Future[object]) -> None:
    """Log the error of a handler that ended after its round."""
    if not sending.cancelled() and (error := sending.exception()) is not None:
        logger.error("A handler of on_partitions_revoked failed after its round: %r", error)
