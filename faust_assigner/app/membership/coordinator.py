"""aiokafka's group coordinator, except that a round takes from a member only what it loses.

aiokafka revokes everything before each JoinGroup. Here a member that keeps its membership goes on fetching,
processing and committing while the round goes on, and learns from the answer what it has to let go. Swapped
in for the coordinator of a consumer that has started and not subscribed yet; runs on the consumer's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka import errors
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.util import create_future, create_task
from mode import get_logger

from faust_assigner.app.consumer.fetcher import change_assignment, make_fair
from faust_assigner.app.membership.fence import HeartbeatFence, sent, watch
from faust_assigner.wire.join import COOPERATIVE, EAGER

logger = get_logger(__name__)

#: The generation in which the present task commits or sends a heartbeat beside a round; else None.
_BESIDE: ContextVar[int | None] = ContextVar("beside", default=None)
#: The connection for JoinGroup and SyncGroup. Kafka answers the requests of one connection in turn, so
#: commits and heartbeats on the same connection would wait until the round is over.
_ROUNDS = "rounds"
#: Seconds between two looks whether the coordinator still answers.
LOOK_S = 0.1
#: Seconds before a member that owns nothing asks for the second round, so that others have let go by then.
BREATH_S = 0.02


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """Whether a line of aiokafka holds for a commit that is sent again or a heartbeat beside a round."""
    return _BESIDE.get() is None or not str(record.msg).endswith(
        ("will rejoin", "because it is rebalancing")
    )


logging.getLogger(GroupCoordinator.__module__).addFilter(_is_worth_saying)


class Listener(Protocol):
    """The app behind the consumer; called on the consumer's thread."""

    def waiting(self, step: str) -> AbstractContextManager[Any]:
        """Count the block as a wait of the rebalance for ``step``, which has a deadline."""

    def is_flowing(self) -> bool:
        """Whether partitions are processed, so that there is something to keep."""

    def joins(self) -> None:
        """A round begins; nothing is given up for it."""

    async def gives_up(self) -> None:
        """Everything is about to be revoked."""

    async def revoke(self, revoked: Collection[Any]) -> None:
        """Finish, commit and forget ``revoked``, which are assigned still."""

    async def assigned(
        self,
        tps: Collection[Any],
        revoked: Collection[Any],
        gained: Collection[Any],
        roles: Any,
        generation: int,
    ) -> None:
        """``tps`` are assigned from here on, in the ``roles`` that were told with them."""

    def gave_away(self, everything: bool) -> None:
        """A member that leaves has been answered; ``everything`` it had has been let go."""

    async def stand_still(self) -> None:
        """Stop processing at once: others may own what this member owned."""


@dataclass
class CooperativeMember:
    """What a cooperative member remembers between two requests.

    ``chosen`` is the name of the last round. ``gave_up``: everything was revoked before this round, and the
    app has not been told of an assignment since. ``lost``: others may have been given what is owned here;
    nothing is committed until it has been given up. ``round`` is done when SyncGroup has been answered, None
    outside of a round. ``telling`` tells the app of the last answer.
    """

    fetcher: Any
    assignor: Any
    listener: Listener
    fence: HeartbeatFence
    chosen: str = EAGER
    gave_up: bool = False
    lost: bool = False
    #: Streams have stood still, and may have passed over records: all is given up and read again.
    stood: bool = False
    round: asyncio.Future[None] | None = None
    telling: asyncio.Task[None] | None = None
    watching: asyncio.Task[None] | None = None
    standing: asyncio.Task[None] | None = None


class CooperativeCoordinator(GroupCoordinator):  # type: ignore[misc]
    """A coordinator whose rounds are cooperative where all members offer it."""

    membership: CooperativeMember

    # -- joining

    def _lookup_assignor(self, name: str) -> Any:
        return (
            self.membership.assignor
            if name in (COOPERATIVE, EAGER)
            else super()._lookup_assignor(name)
        )

    async def _send_req(self, request: Any) -> Any:
        """Send; requests that wait for other members go by a connection of their own."""
        if not isinstance(request, (JoinGroupRequest, SyncGroupRequest)):
            return await super()._send_req(request)
        return await sent(self._send_in_round, self.membership.fence, request)

    async def _send_in_round(self, request: Any) -> Any:
        """Send a request that waits for other members, with heartbeats beside it where partitions are kept.

        KIP-429: kept partitions are processed while the round waits. A heartbeat that is answered shows that
        the coordinator keeps this member meanwhile; without an answer for a session the streams stop.
        """
        if self.coordinator_id is None:
            raise errors.GroupCoordinatorNotAvailableError
        if isinstance(request, JoinGroupRequest):
            # aiokafka sends one JoinGroup for each assignor; two names would be two joins.
            said = [metadata for name, metadata in request._group_protocols if name == EAGER]
            request._group_protocols = [(COOPERATIVE, said[0]), (EAGER, said[0])]
        kind = type(request).__name__.removesuffix("Request")
        beating = create_task(self._beat_in_round())
        try:
            with self.membership.listener.waiting(f"the answer to {kind}"):
                return await self._client.send(self.coordinator_id, request, group=_ROUNDS)
        except errors.KafkaError as error:
            logger.error(
                "Error sending %s to node %s [%s]: looking for the coordinator again",
                type(request).__name__,
                self.coordinator_id,
                error,
            )
            self.coordinator_dead()
            raise
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _beat_in_round(self) -> None:
        """Send heartbeats; what the answers say of the round is left to the round."""
        _BESIDE.set(self.generation)
        while self._own() is not None and not self.membership.gave_up:
            await asyncio.sleep(self._heartbeat_interval_ms / 1000)
            with contextlib.suppress(errors.KafkaError):
                await self.ensure_coordinator_known()
                await self._do_heartbeat()

    async def ensure_active_group(self, subscription: Any, prev_assignment: Any) -> Any:
        """Join; what is owned is given up first where the membership was lost within a round."""
        if self.membership.lost and not self.membership.gave_up:
            self._performed_join_prepare = False
        return await super().ensure_active_group(subscription, prev_assignment)

    async def _stop_heartbeat_task(self) -> None:
        # A task cancelled before its first step passes its CancelledError on to whoever awaits it, here the
        # coordination itself: two rounds may follow each other without a step in between.
        await asyncio.sleep(0)
        await super()._stop_heartbeat_task()

    async def _on_join_prepare(self, previous_assignment: Any) -> None:
        """Keep everything and go on; or, as aiokafka does, give it up."""
        member = self.membership
        keeps = (
            previous_assignment is not None
            and self._own() is previous_assignment
            and not member.lost
            and member.chosen == COOPERATIVE
            and member.listener.is_flowing()
        )
        member.assignor.holds = keeps and not member.gave_up
        if member.assignor.holds:
            member.listener.joins()
        if member.assignor.holds or (member.gave_up and self._own() is previous_assignment):
            self._group_subscription = None
            return
        await self._give_up(previous_assignment)

    async def _give_up(self, previous_assignment: Any) -> None:
        """Revoke everything, as aiokafka does before each round."""
        self.membership.gave_up = True
        await self._told()
        if previous_assignment is not None:
            await self.membership.listener.gives_up()
        await super()._on_join_prepare(previous_assignment)

    def _own(self) -> Any:
        subscription = self._subscription.subscription
        return None if subscription is None else subscription.assignment

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        # Here it would hold up fetches: a database is opened for each partition that has only files.
        with self.membership.listener.waiting("a look at local table files"):
            await asyncio.to_thread(self.membership.assignor.look_at_files, subscription.topics)
        self.membership.round = create_future()
        try:
            joined: bool = await super()._do_rejoin_group(subscription)
            return joined
        finally:
            self._end_round()

    def _end_round(self) -> None:
        under_way, self.membership.round = self.membership.round, None
        if under_way is not None and not under_way.done():
            under_way.set_result(None)

    # -- the answer

    async def _on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        self._end_round()
        member = self.membership
        member.chosen = protocol
        member.assignor.stops_nobody = protocol == COOPERATIVE
        if member.lost and not member.gave_up:
            # The coordinator was silent for too long before it answered: nothing flows any more.
            await self._give_up(self._own())
        assignment = ConsumerProtocol.ASSIGNMENT.decode(member_assignment_bytes)
        if not member.gave_up:
            await self._take(assignment, generation)
        elif member.assignor.is_followed(assignment):
            # Nothing flows here, and the whole answer is a round away: the app is told of that one only.
            member.assignor.on_assignment(assignment)
            member.lost = member.stood = False
            await asyncio.sleep(BREATH_S)
            self.request_rejoin()
        else:
            member.lost = member.stood = False
            await super()._on_join_complete(
                generation, member_id, protocol, member_assignment_bytes
            )
            member.gave_up = False

    async def _take(self, assignment: Any, generation: int) -> None:
        """Let go of what is lost, keep the rest as it is, begin with what is gained."""
        member, own = self.membership, self._own()
        topics = self._subscription.subscription.topics
        tps = frozenset(tp for tp in assignment.partitions() if tp.topic in topics)
        follows = member.assignor.is_followed(assignment)
        torn = member.assignor.torn(assignment) & own.tps & tps
        # Another member may hold their new id until it has let go: the second round gives them.
        withheld = torn if follows else frozenset()
        tps -= withheld
        revoked, gained = (own.tps - tps) | torn, (tps - own.tps) | (torn & tps)
        logger.info(
            "Generation %d: %d partitions kept, %d let go, %d gained%s",
            generation,
            len(tps & own.tps - torn),
            len(revoked),
            len(gained),
            ", a second round follows" * follows,
        )
        self._start_heartbeat_task()  # aiokafka starts it after the callbacks
        if revoked:
            await self._told()
            try:
                # Assigned still: the app commits only what is.
                await member.listener.revoke(revoked)
            except Exception:
                logger.exception(
                    "Could not finish the partitions that move away; their last records may be "
                    "processed twice: %s",
                    revoked,
                )
        if self._own() is not own:
            return  # another subscription meanwhile; its round begins anew
        change_assignment(own, tps, self._subscription, member.fetcher)
        member.assignor.on_assignment(assignment)
        if member.assignor.leaves:
            # The others wait for this member in the second round, until it has left.
            member.listener.gave_away(not any(member.assignor.assigned_actives()))
            return
        roles = (
            member.assignor.assigned_actives() - withheld,
            member.assignor.assigned_standbys() - withheld,
        )
        if follows:
            self.request_rejoin()
        # Not awaited: the second round need not wait for databases to open.
        member.telling = create_task(
            self._tell(member.telling, tps, revoked, gained, roles, generation)
        )

    async def _tell(
        self,
        before: asyncio.Task[None] | None,
        tps: Collection[Any],
        revoked: Collection[Any],
        gained: Collection[Any],
        roles: Any,
        generation: int,
    ) -> None:
        """Tell the app, in the order of the rounds."""
        if before is not None:
            await before
        try:
            await self.membership.listener.assigned(tps, revoked, gained, roles, generation)
        except Exception:
            logger.exception("The app's handling of its new assignment failed")

    async def _told(self) -> None:
        if self.membership.telling is not None:
            await self.membership.telling

    # -- commits, which go on across rounds

    def reset_generation(self) -> None:
        """The membership is lost; not where a commit of the generation before the present one is refused."""
        member, committing = self.membership, _BESIDE.get()
        if committing is not None and (member.round is not None or committing != self.generation):
            return
        member.lost = True
        super().reset_generation()

    def request_rejoin(self) -> None:
        """Join again; not where a commit has met the round that is under way."""
        if _BESIDE.get() is None or self.membership.round is None:
            super().request_rejoin()

    async def commit_offsets(self, assignment: Any, offsets: Mapping[Any, Any]) -> None:
        """Commit; one that meets a round is sent again after it, for what is still owned."""
        while offsets:
            await self.ensure_coordinator_known()
            # Not before: it may take as long as the broker is away.
            if self.membership.lost or self.must_stand_still():
                raise errors.CommitFailedError(
                    "Nothing is committed: the group has already rebalanced"
                )
            generation = self.generation
            try:
                await self._commit_once(assignment, offsets)
                return
            except (
                errors.UnknownMemberIdError,
                errors.IllegalGenerationError,
                errors.RebalanceInProgressError,
            ) as error:
                under_way = self.membership.round
                if self.membership.lost or (under_way is None and generation == self.generation):
                    logger.warning(
                        "The group has rebalanced without this worker, so the commit is dropped: %s",
                        error,
                    )
                    raise errors.CommitFailedError("The group has already rebalanced") from error
                if under_way is not None:
                    await asyncio.shield(under_way)
                offsets = {tp: offset for tp, offset in offsets.items() if tp in assignment.tps}
            except errors.KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _commit_once(self, assignment: Any, offsets: Mapping[Any, Any]) -> None:
        async with self._commit_lock:
            await asyncio.shield(self._commit_alone(assignment, offsets))

    async def _commit_alone(self, assignment: Any, offsets: Mapping[Any, Any]) -> None:
        """In a task of its own, which knows by that what it is: a round may fail at the same time."""
        _BESIDE.set(self.generation)
        await self._do_commit_offsets(assignment, offsets)

    # -- a coordinator that is silent

    async def _watch(self) -> None:
        """Stop when the coordinator has been silent for a session: by then it may have expelled this member.

        What it keeps flows while it waits for JoinGroup, too, for as long as its heartbeats are answered.
        """
        while not self._closing.done():
            await asyncio.wait([self._closing], timeout=LOOK_S)
            member = self.membership
            if self.must_stand_still() and not member.lost and not self._closing.done():
                logger.error(
                    "The group coordinator has been silent for %.1f s: streams stop, nothing is "
                    "committed until it answers",
                    member.fence.silent_s(),
                )
                await self._stand_still()

    def give_everything_up(self) -> None:
        """Stop the streams and join again without anything that is owned; on the consumer's thread."""
        if not self.membership.lost and not self._closing.done():
            self.membership.standing = create_task(self._stand_still())

    async def _stand_still(self) -> None:
        self.membership.lost = True
        await self.membership.listener.stand_still()
        self.request_rejoin()

    def must_stand_still(self) -> bool:
        """Whether streams have to pass over what they are given; asked from any thread.

        Once it was so, an answer that comes before the next look does not undo it: what was passed over
        meanwhile is read by nobody, unless everything is given up and begins at what is committed.
        """
        self.membership.stood |= self.is_overdue()
        return self.membership.stood

    def is_overdue(self) -> bool:
        """Whether others may own by now what is owned here; asked from any thread."""
        member = self.membership
        return not member.fence.is_sure() and not member.gave_up and self._own() is not None

    async def close(self) -> None:
        """Leave the group."""
        await super().close()
        member = self.membership
        for task in (member.watching, member.telling, member.standing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def take_over(consumer: Any, assignor: Any, listener: Listener, fence: HeartbeatFence) -> None:
    """Make ``consumer``, an AIOKafkaConsumer that has started and not subscribed, cooperative."""
    coordinator = consumer._coordinator
    coordinator.membership = CooperativeMember(consumer._fetcher, assignor, listener, fence)
    coordinator.__class__ = CooperativeCoordinator
    watch(coordinator, fence)
    assignor.cooperative = True
    make_fair(consumer._fetcher)
    coordinator.membership.watching = create_task(coordinator._watch())
