"""A cooperative member between two requests: its state, its assignor, its app, and its moves in a round."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mode import get_logger

from faust_assigner.app.consumer.fetcher import FairFetcher
from faust_assigner.app.membership.fence import HeartbeatFence
from faust_assigner.wire.join import EAGER

if TYPE_CHECKING:
    from aiokafka.consumer.subscription_state import SubscriptionState
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
    from faust.types.tuples import TP

logger = get_logger(__name__)


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

    subscription: SubscriptionState
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
    #: One commit at a time.
    committing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def own(self) -> Any:
        """The present assignment; None if there is none."""
        subscription = self.subscription.subscription
        return None if subscription is None else subscription.assignment

    def end_round(self) -> None:
        """Note that the current round, if any, is over."""
        under_way, self.round = self.round, None
        if under_way is not None and not under_way.done():
            under_way.set_result(None)

    async def told(self) -> None:
        """Wait until the app was notified of the last answer."""
        if self.telling is not None:
            await self.telling

    def must_stand_still(self) -> bool:
        """Whether streams must skip their records; called from any thread.

        A later answer of the group does not reset this: streams may have skipped records already. The member
        reads these records again only after it revokes all partitions and restarts at the committed offsets.
        """
        self.stood |= self.is_overdue()
        return self.stood

    def is_overdue(self) -> bool:
        """Whether other members may own this member's partitions by now; called from any thread."""
        return not self.fence.is_sure() and not self.gave_up and self.own() is not None

    async def tell(
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
            await self.listener.assigned(tps, revoked, gained, roles, generation)
        except Exception:
            logger.exception("The app's handling of its new assignment failed")


class Moves(NamedTuple):
    """The partitions of one answer, and the difference to the present assignment.

    ``withheld`` stay out of ``assigned``: a different member may use their new transactional id until it has
    revoked its own partitions. The second round assigns them.
    """

    assigned: frozenset[TP]
    revoked: frozenset[TP]
    gained: frozenset[TP]
    withheld: frozenset[TP]


def moves(
    own: frozenset[TP], answered: frozenset[TP], torn: frozenset[TP], *, follows: bool
) -> Moves:
    """The moves from ``own`` to ``answered``; ``torn`` partitions are revoked and assigned again."""
    torn = torn & own & answered
    withheld = torn if follows else frozenset()
    assigned = answered - withheld
    return Moves(assigned, (own - assigned) | torn, (assigned - own) | (torn & assigned), withheld)
