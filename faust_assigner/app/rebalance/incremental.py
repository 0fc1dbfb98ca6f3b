"""Faust's part of a cooperative round: only the moving partitions stop; the rest are processed.

All code runs on the app's thread, except ``stop_flow_now()``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from time import monotonic
from typing import TYPE_CHECKING

from mode import Service, get_logger

from faust_assigner.app.consumer.back_pressure import told
from faust_assigner.app.consumer.commits import PARTITIONS_ASSIGNED, PARTITIONS_REVOKED
from faust_assigner.app.consumer.delivery import Delivery, drop
from faust_assigner.app.consumer.fetching import seek_committed
from faust_assigner.app.consumer.waits import HAND_OVER, Wait, broker_s, unsent, waits_of
from faust_assigner.app.host.clients import faust_tps
from faust_assigner.app.tables.write_behind import pause

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.rebalance.consumer import RepairedConsumer
    from faust_assigner.app.rebalance.rounds import Rounds

logger = get_logger(__name__)

#: Seconds between two checks whether the records in progress are finished.
LOOK_S = 0.002
#: The share of the rebalance timeout for records in progress; the next owner repeats the rest.
PATIENT_SHARE = 0.5
#: Seconds after which Kafka aborts an open transaction, whose offsets the group reports only then.
TRANSACTION_S = 60.0


class IncrementalRebalance:
    """The steps of a cooperative round: revoke and assign some partitions while the rest are processed."""

    def __init__(self, consumer: RepairedConsumer, delivery: Delivery, rounds: Rounds) -> None:
        self._consumer, self._app, self.diag = consumer, consumer.app, consumer.diag
        self._delivery, self._rounds = delivery, rounds
        #: The partitions being revoked, whose records are finished and committed first.
        self.leaving: frozenset[TP] = frozenset()

    # -- revoked partitions

    @Service.transitions_to(PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
    async def revoke(self, revoked: set[TP]) -> None:
        """Stop ``revoked``; finish, commit and flush its records; forget the partitions."""
        began = monotonic()
        if self._app.should_stop and not self._app.assignor.leaves:
            return  # the whole worker leaves the group
        self.leaving = frozenset(revoked)
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
            self.leaving = frozenset()
        logger.info("Revoked %d partitions in %.0f ms", len(revoked), (monotonic() - began) * 1000)

    async def _finish_and_commit(self, revoked: set[TP], wait: Wait) -> None:
        """Finish, commit and flush the records of ``revoked`` that are in progress.

        After the rebalance timeout ``revoked`` has new owners. Changes that are still unsent would
        reach the changelogs after the new owners' changes. So the worker stops if this step takes
        longer.
        """
        app, consumer = self._app, self._consumer
        # A running recovery must not resume revoked partitions; it continues after the answer.
        await app.tables.recovery.interrupt()
        consumer.pause_partitions(revoked)
        consumer._buffered_partitions -= revoked
        self._delivery.put_down(revoked)
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
        await told()
        # For all tables: only the answer shows which tables move with the topics.
        pause(app, {tp.partition for tp in revoked})
        app.tables.recovery.flush_buffers()

    async def _send_revoked(self, revoked: set[TP]) -> None:
        """Send ``app.on_partitions_revoked`` for ``revoked``, after the commit of its records.

        As in Faust, a handler that raises stops the worker. A handler that takes too long continues
        while the round goes on.
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
            sending.add_done_callback(_log_late)
        elif sending.cancelled():
            logger.warning(
                "A handler of on_partitions_revoked was cancelled; the hand-over continues"
            )
        elif (error := sending.exception()) is not None:
            await app.crash(error)

    async def _finish(self, revoked: set[TP]) -> None:
        """Drop the queued records; wait for the records that streams have begun."""
        timeout_s = self._app.conf.broker_rebalance_timeout * PATIENT_SHARE
        deadline = monotonic() + timeout_s
        while True:
            for queue in list(self._app.flow_control._queues):
                drop(queue, revoked)
            unacked = list(self._consumer._unacked_messages)
            late = [m for m in unacked if m.tp in revoked and not m.acked]
            if not self._delivery.is_handing_out(revoked) and (
                not late or not self._app.conf.stream_wait_empty
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

    @Service.transitions_to(PARTITIONS_ASSIGNED)  # type: ignore[untyped-decorator]
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
        app, consumer, recovery = self._app, self._consumer, self._app.tables.recovery
        if app.should_stop:
            return
        # The recovery of the last round resumes each source that it does not restore.
        await recovery.interrupt()
        consumer._paused_partitions &= assigned
        consumer._paused_partitions |= gained
        self._delivery.look_anew_at(gained)
        consumer._buffered_partitions &= assigned
        active = assigned - consumer._paused_partitions - consumer._buffered_partitions
        # In place, and never empty in between: a running fetch reads this set.
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
        """End a round under way, before an eager round begins and revokes all partitions."""
        self._rounds.give_up()

    async def pause_and_drop(self, changelogs: Collection[TP]) -> None:
        """Pause ``changelogs`` and drop their queued records.

        They are read again later, from the tables' offsets.
        """
        tps = faust_tps(changelogs)
        self._consumer.pause_partitions(tps)
        self._consumer._buffered_partitions -= tps
        self._delivery.put_down(tps)
        drop(self._app.tables.changelog_queue, tps)
        while self._delivery.is_handing_out(tps):
            await asyncio.sleep(LOOK_S)
            drop(self._app.tables.changelog_queue, tps)

    async def seek_some(self, tps: set[TP]) -> None:
        """Seek ``tps`` to their committed offsets; all these offsets are fetched in one step.

        Without a committed offset, seek to the first offset that was read. aiokafka asks without an
        end while the group loads or a transaction is open, so this wait has a deadline.
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

    # -- a coordinator that does not answer

    def stop_flow_now(self) -> None:
        """Stop delivering records and writing to changelogs, which may have new owners."""
        self._consumer.flow_active = False
        # Held changes wait for the group's answer, and the request to the group would wait for
        # them.
        self._consumer.fence.lose()

    async def stand_still(self) -> None:
        """Stop all streams; the records that their agents have begun are not committed."""
        app = self._app
        app.tables.recovery.stop_assigning()
        self._consumer.stop_flow()
        app.flow_control.suspend()
        self._consumer.pause_partitions(self._consumer.assignment())
        app.flow_control.clear()


def _log_late(sending: asyncio.Future[object]) -> None:
    """Log a failure of handlers that ended after their round."""
    if not sending.cancelled() and (error := sending.exception()) is not None:
        logger.error("A handler of on_partitions_revoked failed after its round: %r", error)
