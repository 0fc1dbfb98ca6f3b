"""aiokafka's group coordinator, except that a round revokes only the partitions that a member loses.

aiokafka revokes all partitions before each JoinGroup. Here a member that keeps its membership goes on
fetching, processing and committing during the round. It learns from the answer which partitions to revoke.
``take_over`` gives a coordinator of this class to a consumer after its start and before its subscription. The
coordinator runs on the consumer's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka import errors
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.util import create_future, create_task
from mode import get_logger

from faust_assigner.app.consumer.fetcher import FairFetcher, change_assignment
from faust_assigner.app.host.clients import replace_coordinator, replace_fetcher
from faust_assigner.app.membership.fence import HeartbeatFence, sent, watch
from faust_assigner.wire.join import COOPERATIVE, EAGER

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.subscription_state import Assignment, Subscription, SubscriptionState
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
    from aiokafka.protocol.api import Request, RequestStruct, Response
    from faust.types.transports import ConsumerT
    from faust.types.tuples import TP


logger = get_logger(__name__)

#: The generation in which the current task commits or sends a heartbeat beside a round; else None.
_BESIDE: ContextVar[int | None] = ContextVar("beside", default=None)
#: The connection for JoinGroup and SyncGroup. Kafka answers the requests of one connection in turn, so
#: commits and heartbeats on the same connection would wait until the round is over.
_ROUNDS = "rounds"
#: Seconds between two checks that the coordinator still answers.
LOOK_S = 0.1
#: Seconds that a member without partitions waits before it requests the second round; other members
#: revoke their partitions meanwhile.
BREATH_S = 0.02


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """Whether to log a line of aiokafka; "will rejoin" is false for commits and heartbeats beside a round."""
    return _BESIDE.get() is None or not str(record.msg).endswith(
        ("will rejoin", "because it is rebalancing")
    )


logging.getLogger(GroupCoordinator.__module__).addFilter(_is_worth_saying)


class Assignor(Protocol):
    """The app's assignor, which also makes this member's metadata and takes over its assignment."""

    holds: bool
    leaves: bool
    cooperative: bool
    stops_nobody: bool

    def look_at_files(self, topics: Collection[str]) -> None:
        """Read the files that the metadata need."""

    def is_followed(self, assignment: ConsumerProtocolMemberAssignment) -> bool:
        """Whether a second round follows this answer."""

    def torn(self, assignment: ConsumerProtocolMemberAssignment) -> frozenset[TP]:
        """The partitions that stay here and whose transaction ends nevertheless."""

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Take over this member's part of the assignment."""

    def assigned_actives(self) -> set[TP]:
        """The partitions that this member owns."""

    def assigned_standbys(self) -> set[TP]:
        """The partitions that this member follows."""


class Listener(Protocol):
    """The app behind the consumer; called on the consumer's thread."""

    def waiting(self, step: str) -> AbstractContextManager[object]:
        """Count the block as a wait of the rebalance for ``step``, with a deadline."""

    def is_flowing(self) -> bool:
        """Whether partitions are processed, so that a round can keep them."""

    def joins(self) -> None:
        """Note the begin of a round that keeps all partitions."""

    async def gives_up(self) -> None:
        """Prepare for the revocation of all partitions."""

    async def revoke(self, revoked: Collection[TP]) -> None:
        """Finish, commit and forget ``revoked``, which are still assigned."""

    async def assigned(
        self,
        tps: Collection[TP],
        revoked: Collection[TP],
        gained: Collection[TP],
        roles: tuple[set[TP], set[TP]],
        generation: int,
    ) -> None:
        """Begin with ``tps``, which are assigned from now on in ``roles`` (actives, standbys)."""

    def gave_away(self, everything: bool) -> None:
        """Note the answer to this leaving member: whether it has no active partition left."""

    async def stand_still(self) -> None:
        """Stop processing at once: other members may own this member's partitions."""


@dataclass
class CooperativeMember:
    """The state of a cooperative member between two requests.

    ``offers``: the member offers cooperative rounds beside eager rounds. ``chosen`` is the protocol name of
    the last round. ``gave_up``: all partitions were revoked before this round, and the app has had no
    assignment since. ``lost``: other members may own this member's partitions; the member commits no offsets
    until it has revoked all partitions. ``round`` is done when SyncGroup has been answered, and None outside
    of a round. ``telling`` is the task that notifies the app of the last answer.
    """

    fetcher: FairFetcher
    assignor: Assignor
    listener: Listener
    fence: HeartbeatFence
    offers: bool = True
    chosen: str = EAGER
    gave_up: bool = False
    lost: bool = False
    #: Whether streams have stopped and may have skipped records: then all partitions are revoked and reread.
    stood: bool = False
    round: asyncio.Future[None] | None = None
    telling: asyncio.Task[None] | None = None
    watching: asyncio.Task[None] | None = None
    standing: asyncio.Task[None] | None = None


class CooperativeCoordinator(GroupCoordinator):  # type: ignore[misc]
    """A coordinator whose rounds are cooperative if all members support the cooperative protocol."""

    def __init__(
        self,
        client: AIOKafkaClient,
        subscription: SubscriptionState,
        *,
        membership: CooperativeMember,
        **options: object,
    ) -> None:
        self.membership = membership
        super().__init__(client, subscription, **options)

    # -- joining

    def _lookup_assignor(self, name: str) -> Assignor:
        return (
            self.membership.assignor
            if name in (COOPERATIVE, EAGER)
            else super()._lookup_assignor(name)
        )

    async def _send_req(self, request: Request[RequestStruct]) -> Response:
        """Send ``request``; JoinGroup and SyncGroup, which wait for members, use a second connection."""
        if not isinstance(request, (JoinGroupRequest, SyncGroupRequest)):
            return await super()._send_req(request)
        return await sent(self._send_in_round, self.membership.fence, request)

    async def _send_in_round(self, request: Request[RequestStruct]) -> Response:
        """Send a request that waits for other members, with heartbeats beside it while partitions are kept.

        KIP-429: kept partitions are processed while the round waits. An answered heartbeat shows that the
        group still has this member. Without an answer for a session timeout the streams stop.
        """
        if self.coordinator_id is None:
            raise errors.GroupCoordinatorNotAvailableError
        if isinstance(request, JoinGroupRequest):
            # aiokafka sends one JoinGroup for each assignor name; put both names into one request.
            said = [metadata for name, metadata in request._group_protocols if name == EAGER]
            names = (COOPERATIVE, EAGER) if self.membership.offers else (EAGER,)
            if said:  # else a class of the app has a name of its own, whose rounds are eager
                request._group_protocols = [(name, said[0]) for name in names]
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
        """Send heartbeats; their answers do not affect the current round."""
        _BESIDE.set(self.generation)
        while self._own() is not None and not self.membership.gave_up:
            await asyncio.sleep(self._heartbeat_interval_ms / 1000)
            with contextlib.suppress(errors.KafkaError):
                await self.ensure_coordinator_known()
                await self._do_heartbeat()

    async def ensure_active_group(
        self, subscription: Subscription, prev_assignment: object
    ) -> object:
        """Join; if the membership was lost within a round, revoke all partitions first."""
        if self.membership.lost and not self.membership.gave_up:
            self._performed_join_prepare = False
        return await super().ensure_active_group(subscription, prev_assignment)

    async def _stop_heartbeat_task(self) -> None:
        # A task that is cancelled before its first step passes CancelledError on to the awaiting task, here
        # the coordination task. Two rounds may follow each other without a step of the loop in between.
        await asyncio.sleep(0)
        await super()._stop_heartbeat_task()

    async def _on_join_prepare(self, previous_assignment: object) -> None:
        """Keep all partitions during the round if possible; else revoke them, as aiokafka does."""
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

    async def _give_up(self, previous_assignment: object) -> None:
        """Revoke all partitions, as aiokafka does before each round."""
        self.membership.gave_up = True
        await self._told()
        if previous_assignment is not None:
            await self.membership.listener.gives_up()
        await super()._on_join_prepare(previous_assignment)

    def _own(self) -> Any:
        subscription = self._subscription.subscription
        return None if subscription is None else subscription.assignment

    async def _do_rejoin_group(self, subscription: Subscription) -> bool:
        # In a thread: this opens a database for each partition with only files, which would delay fetches.
        with self.membership.listener.waiting("the positions of local table files"):
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
            # The coordinator was silent for too long before its answer: the streams have stopped.
            await self._give_up(self._own())
        assignment = ConsumerProtocol.ASSIGNMENT.decode(member_assignment_bytes)
        if not member.gave_up:
            await self._take(assignment, generation)
        elif member.assignor.is_followed(assignment):
            # No partition is processed, and a second round brings the full assignment: notify the app then.
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

    async def _take(self, assignment: ConsumerProtocolMemberAssignment, generation: int) -> None:
        """Revoke the lost partitions, keep the others unchanged, begin with the gained partitions."""
        member, own = self.membership, self._own()
        topics = self._subscription.subscription.topics
        tps = frozenset(tp for tp in assignment.partitions() if tp.topic in topics)
        follows = member.assignor.is_followed(assignment)
        torn = member.assignor.torn(assignment) & own.tps & tps
        # A different member may use their new transactional id until it has revoked its own partitions.
        # The second round assigns them.
        withheld = torn if follows else frozenset()
        tps -= withheld
        revoked, gained = (own.tps - tps) | torn, (tps - own.tps) | (torn & tps)
        logger.info(
            "Generation %d: %d partitions kept, %d revoked, %d assigned%s",
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
                # Before the change of the assignment: the app commits assigned partitions only.
                await member.listener.revoke(revoked)
            except Exception:
                logger.exception(
                    "Could not finish the partitions that move away; their last records may be "
                    "processed twice: %s",
                    revoked,
                )
        if self._own() is not own:
            return  # the subscription has changed; a new round begins
        change_assignment(own, tps, self._subscription, member.fetcher)
        member.assignor.on_assignment(assignment)
        if member.assignor.leaves:
            # In the second round the other members wait until this member has left.
            member.listener.gave_away(not any(member.assignor.assigned_actives()))
            return
        roles = member.assignor.assigned_actives() - withheld, member.assignor.assigned_standbys()
        if follows:
            self.request_rejoin()
        # Not awaited, so that the second round does not wait while databases open.
        member.telling = create_task(
            self._tell(member.telling, tps, revoked, gained, roles, generation)
        )

    async def _tell(
        self,
        before: asyncio.Task[None] | None,
        tps: Collection[TP],
        revoked: Collection[TP],
        gained: Collection[TP],
        roles: tuple[set[TP], set[TP]],
        generation: int,
    ) -> None:
        """Notify the app of its assignment, in the order of the rounds."""
        if before is not None:
            await before
        try:
            await self.membership.listener.assigned(tps, revoked, gained, roles, generation)
        except Exception:
            logger.exception("The app's handling of its new assignment failed")

    async def _told(self) -> None:
        if self.membership.telling is not None:
            await self.membership.telling

    # -- commits, which continue across rounds

    def reset_generation(self) -> None:
        """Note the loss of the membership.

        Ignore a refused commit or heartbeat of an earlier generation, and a refusal beside a round.
        """
        member, committing = self.membership, _BESIDE.get()
        if committing is not None and (member.round is not None or committing != self.generation):
            return
        member.lost = True
        super().reset_generation()

    def request_rejoin(self) -> None:
        """Request a new round, unless a commit or heartbeat beside the current round asks for it."""
        if _BESIDE.get() is None or self.membership.round is None:
            super().request_rejoin()

    async def commit_offsets(self, assignment: Assignment, offsets: Mapping[TP, object]) -> None:
        """Commit; if a round interrupts the commit, repeat it after the round for partitions still owned."""
        while offsets:
            await self.ensure_coordinator_known()
            # Check after the lookup, which may take as long as the broker is away.
            if self.membership.lost or self.must_stand_still():
                raise errors.CommitFailedError("Could not commit: the group has already rebalanced")
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

    async def _commit_once(self, assignment: object, offsets: Mapping[TP, object]) -> None:
        async with self._commit_lock:
            await asyncio.shield(self._commit_alone(assignment, offsets))

    async def _commit_alone(self, assignment: object, offsets: Mapping[TP, object]) -> None:
        """Commit in a separate task, marked by ``_BESIDE``: a round may fail at the same time."""
        _BESIDE.set(self.generation)
        await self._do_commit_offsets(assignment, offsets)

    # -- a coordinator that is silent

    async def _watch(self) -> None:
        """Stop the streams after a session timeout without an answer: the group may have removed this member.

        Also while the member waits for JoinGroup, kept partitions are processed as long as heartbeats are
        answered.
        """
        while not self._closing.done():
            await asyncio.wait([self._closing], timeout=LOOK_S)
            member = self.membership
            if self.must_stand_still() and not member.lost and not self._closing.done():
                logger.error(
                    "The group coordinator has been silent for %.1f s: streams stop, and "
                    "offsets are committed only when it answers",
                    member.fence.silent_s(),
                )
                await self._stand_still()

    def give_everything_up(self) -> None:
        """Stop the streams, revoke all partitions and join again; on the consumer's thread."""
        if not self.membership.lost and not self._closing.done():
            self.membership.standing = create_task(self._stand_still())

    async def _stand_still(self) -> None:
        self.membership.lost = True
        await self.membership.listener.stand_still()
        self.request_rejoin()

    def must_stand_still(self) -> bool:
        """Whether streams must skip their records; called from any thread.

        A later answer of the group does not reset this: streams may have skipped records already. The member
        reads these records again only after it revokes all partitions and restarts at the committed offsets.
        """
        self.membership.stood |= self.is_overdue()
        return self.membership.stood

    def is_overdue(self) -> bool:
        """Whether other members may own this member's partitions by now; called from any thread."""
        member = self.membership
        return not member.fence.is_sure() and not member.gave_up and self._own() is not None

    async def close(self) -> None:
        """Leave the group and end the coordinator's tasks."""
        await super().close()
        member = self.membership
        for task in (member.watching, member.telling, member.standing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def take_over(
    consumer: ConsumerT,
    assignor: Assignor,
    listener: Listener,
    fence: HeartbeatFence,
    *,
    offers: bool = True,
) -> CooperativeCoordinator:
    """Replace the coordinator of ``consumer``, an AIOKafkaConsumer between its start and its subscription.

    It ``offers`` cooperative rounds, or eager rounds only.
    """
    fetcher = await replace_fetcher(consumer, FairFetcher)
    membership = CooperativeMember(fetcher, assignor, listener, fence, offers)
    make = partial(CooperativeCoordinator, membership=membership)
    coordinator = await replace_coordinator(consumer, make)
    watch(coordinator, fence)
    assignor.cooperative = offers
    membership.watching = create_task(coordinator._watch())
    return coordinator
