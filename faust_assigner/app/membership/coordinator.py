"""A subclass of aiokafka's group coordinator: a rebalance revokes only the partitions that a member loses.

aiokafka revokes all partitions before each JoinGroup. With this coordinator a member continues to fetch,
process and commit during the round (JoinGroup, SyncGroup and the answer). The answer determines which
partitions the member revokes. ``take_over`` replaces a consumer's coordinator after its start and before its
subscription. The coordinator runs on the consumer's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.util import create_future, create_task
from mode import get_logger

from faust_assigner.app.consumer.fetcher import FairFetcher, change_assignment
from faust_assigner.app.host.clients import replace_coordinator, replace_fetcher
from faust_assigner.app.membership.beside_round import BESIDE, commit
from faust_assigner.app.membership.cooperative_member import (
    Assignor,
    CooperativeMember,
    Listener,
    moves,
)
from faust_assigner.app.membership.fence import HeartbeatFence, sent, watch
from faust_assigner.app.membership.round_requests import send_in_round
from faust_assigner.wire.join import COOPERATIVE, EAGER

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.subscription_state import Assignment, Subscription, SubscriptionState
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
    from aiokafka.protocol.api import Request, RequestStruct, Response
    from faust.types.transports import ConsumerT
    from faust.types.tuples import TP


logger = get_logger(__name__)

#: Seconds between two checks whether the coordinator still answers.
LOOK_S = 0.1
#: Seconds that a member without partitions waits before it requests the second round. Meanwhile the other
#: members revoke their partitions.
SECOND_ROUND_DELAY_S = 0.02


class CooperativeCoordinator(GroupCoordinator):  # type: ignore[misc]
    """A coordinator whose rounds are cooperative if all members support the cooperative protocol."""

    def __init__(
        self,
        client: AIOKafkaClient,
        subscription: SubscriptionState,
        *,
        member: Callable[[SubscriptionState], CooperativeMember],
        heartbeat_interval_ms: int,
        **options: object,
    ) -> None:
        self.membership, self.heartbeat_s = member(subscription), heartbeat_interval_ms / 1000
        super().__init__(
            client, subscription, heartbeat_interval_ms=heartbeat_interval_ms, **options
        )

    # -- joining

    def _lookup_assignor(self, name: str) -> Assignor:
        ours = self.membership.assignor
        ours.stops_nobody = name == COOPERATIVE  # the leader needs it to plan
        return ours if name in (COOPERATIVE, EAGER) else super()._lookup_assignor(name)

    async def _send_req(self, request: Request[RequestStruct]) -> Response:
        """Send ``request``; JoinGroup and SyncGroup wait for other members and use their own connection."""
        if not isinstance(request, (JoinGroupRequest, SyncGroupRequest)):
            return await super()._send_req(request)
        send = partial(send_in_round, self, self.membership, self.heartbeat_s)
        return await sent(send, self.membership.fence, request)

    async def ensure_active_group(
        self, subscription: Subscription, prev_assignment: object
    ) -> object:
        """Join the group; if the membership was lost during a round, revoke all partitions first."""
        if self.membership.lost and not self.membership.gave_up:
            self._performed_join_prepare = False
        return await super().ensure_active_group(subscription, prev_assignment)

    async def _stop_heartbeat_task(self) -> None:
        # Let the heartbeat task take its first step: a task that is cancelled before it passes CancelledError
        # on to the coordination task, which awaits it. Two rounds may follow each other so fast.
        await asyncio.sleep(0)
        await super()._stop_heartbeat_task()

    async def _on_join_prepare(self, previous_assignment: object) -> None:
        """Keep all partitions during the round if possible; otherwise revoke them, as aiokafka does."""
        member = self.membership
        keeps = (
            previous_assignment is not None
            and self.membership.own() is previous_assignment
            and not member.lost
            and member.chosen == COOPERATIVE
            and member.listener.is_flowing()
        )
        member.assignor.holds = keeps and not member.gave_up
        if member.assignor.holds:
            member.listener.round_started()
        if member.assignor.holds or (
            member.gave_up and self.membership.own() is previous_assignment
        ):
            self._group_subscription = None
            return
        await self._give_up(previous_assignment)

    async def _give_up(self, previous_assignment: object) -> None:
        """Revoke all partitions, as aiokafka does before each round."""
        self.membership.gave_up = True
        await self.membership.wait_until_notified()
        if previous_assignment is not None:
            await self.membership.listener.prepare_full_revocation()
        await super()._on_join_prepare(previous_assignment)

    async def _do_rejoin_group(self, subscription: Subscription) -> bool:
        # Use a thread: opening a database for each partition that has files only would delay fetches.
        with self.membership.listener.waiting("the positions of local table files"):
            await asyncio.to_thread(
                self.membership.assignor.cache_file_offsets, subscription.topics
            )
        self.membership.round = create_future()
        try:
            joined: bool = await super()._do_rejoin_group(subscription)
            return joined
        finally:
            self.membership.end_round()

    # -- the answer

    async def _on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        self.membership.end_round()
        member = self.membership
        member.chosen = protocol
        member.assignor.stops_nobody = protocol == COOPERATIVE
        if member.lost and not member.gave_up:
            # The coordinator was silent for too long before its answer: the streams have stopped.
            await self._give_up(self.membership.own())
        assignment = ConsumerProtocol.ASSIGNMENT.decode(member_assignment_bytes)
        if not member.gave_up:
            await self._take(assignment, generation)
        elif member.assignor.is_followed(assignment):
            # The member processes no partition now. Notify the app only after the second round, which brings
            # the full assignment.
            member.assignor.on_assignment(assignment)
            member.lost = member.stood = False
            await asyncio.sleep(SECOND_ROUND_DELAY_S)
            self.request_rejoin()
        else:
            member.lost = member.stood = False
            await super()._on_join_complete(
                generation, member_id, protocol, member_assignment_bytes
            )
            member.gave_up = False

    async def _take(self, assignment: ConsumerProtocolMemberAssignment, generation: int) -> None:
        """Revoke the partitions that move away, keep retained partitions, and take over new partitions."""
        member, own = self.membership, self.membership.own()
        topics = member.subscription.subscription.topics
        answered = frozenset(tp for tp in assignment.partitions() if tp.topic in topics)
        restarted = member.assignor.partitions_to_restart(assignment)
        follows = member.assignor.is_followed(assignment)
        tps, revoked, gained, withheld = moves(own.tps, answered, restarted, follows=follows)
        logger.info(
            "Generation %d: %d partitions kept, %d revoked, %d assigned%s",
            generation,
            len(tps - gained),
            len(revoked),
            len(gained),
            ", a second round follows" * follows,
        )
        self._start_heartbeat_task()  # before the callbacks; aiokafka starts the task after them
        if revoked:
            await self.membership.wait_until_notified()
            try:
                # Revoke before the change of the assignment: the app commits assigned partitions only.
                await member.listener.revoke(revoked)
            except Exception:
                logger.exception(
                    "Could not finish the records of the revoked partitions; these records may be "
                    "processed twice: %s",
                    revoked,
                )
        if member.own() is not own:
            return  # the subscription has changed; a new round begins
        change_assignment(own, tps, member.subscription, member.fetcher)
        member.assignor.on_assignment(assignment)
        if member.assignor.leaves:
            # The other members request the second round, which waits until this member has left.
            member.listener.note_hand_over(not any(member.assignor.assigned_actives()))
            return
        roles = member.assignor.assigned_actives() - withheld, member.assignor.assigned_standbys()
        if follows:
            self.request_rejoin()
        # Do not await the app: the second round would wait until the app has opened its databases.
        member.telling = create_task(
            member.notify(member.telling, tps, revoked, gained, roles, generation)
        )

    # -- commits, which continue across rounds

    def reset_generation(self) -> None:
        """Note the loss of the membership.

        Ignore the refusal of a commit or heartbeat that was sent during a round or in an earlier generation.
        """
        member, committing = self.membership, BESIDE.get()
        if committing is not None and (member.round is not None or committing != self.generation):
            return
        member.lost = True
        super().reset_generation()

    def request_rejoin(self) -> None:
        """Request a new round; ignore the request of a commit or heartbeat during a round."""
        if BESIDE.get() is None or self.membership.round is None:
            super().request_rejoin()

    async def commit_offsets(self, assignment: Assignment, offsets: Mapping[TP, object]) -> None:
        """Commit ``offsets``; repeat the commit after a round that interrupts it."""
        await commit(self, self.membership, assignment, offsets)

    # -- a coordinator that does not answer

    async def _watch(self) -> None:
        """Stop the streams after a session timeout without an answer: the group may have removed this member.

        As long as heartbeats are answered, kept partitions are processed, also while JoinGroup waits.
        """
        while not self._closing.done():
            await asyncio.wait([self._closing], timeout=LOOK_S)
            member = self.membership
            if member.must_skip_records() and not member.lost and not self._closing.done():
                logger.error(
                    "The group coordinator has been silent for %.1f s: streams stop, and "
                    "offsets are committed only when it answers",
                    member.fence.silent_s(),
                )
                await self._stand_still()

    def revoke_all_and_rejoin(self) -> None:
        """Stop the streams, revoke all partitions and join again; on the consumer's thread."""
        if not self.membership.lost and not self._closing.done():
            self.membership.standing = create_task(self._stand_still())

    async def _stand_still(self) -> None:
        self.membership.lost = True
        await self.membership.listener.stand_still()
        self.request_rejoin()

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

    With ``offers`` the new coordinator offers cooperative and eager rounds, without it eager rounds only.
    Returns the new coordinator.
    """
    fetcher = await replace_fetcher(consumer, FairFetcher)

    def member(subscription: SubscriptionState) -> CooperativeMember:
        return CooperativeMember(subscription, fetcher, assignor, listener, fence, offers)

    coordinator = await replace_coordinator(
        consumer, partial(CooperativeCoordinator, member=member)
    )
    watch(coordinator, fence)
    assignor.cooperative = offers
    coordinator.membership.watching = create_task(coordinator._watch())
    return coordinator
