"""The state of a cooperative member, the interfaces that it calls, and its moves in one rebalance.

A round is the member's part in one rebalance: JoinGroup, SyncGroup and the answer. In a cooperative
rebalance a second round assigns the partitions that the first round revoked.
"""

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
    """The app's assignor, which also creates this member's metadata and receives its assignment."""

    holds: bool
    leaves: bool
    cooperative: bool
    stops_nobody: bool

    def cache_file_offsets(self, topics: Collection[str]) -> None:
        """Read the offsets of local table files, which become part of the member's metadata."""

    def is_followed(self, assignment: ConsumerProtocolMemberAssignment) -> bool:
        """Return whether a second round follows this answer."""

    def partitions_to_restart(self, assignment: ConsumerProtocolMemberAssignment) -> frozenset[TP]:
        """Return the kept partitions whose transaction ends, because other partitions of it move.

        Such partitions are revoked and assigned again.
        """

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Store this member's part of the assignment."""

    def assigned_actives(self) -> set[TP]:
        """Return the partitions that this member owns."""

    def assigned_standbys(self) -> set[TP]:
        """Return the partitions of which this member has a standby."""


class Listener(Protocol):
    """The app, which is notified of the steps of a round; called on the consumer's thread."""

    def waiting(self, step: str) -> AbstractContextManager[object]:
        """Count the time in the ``with`` block as the rebalance's wait for ``step``, with a deadline."""

    def is_flowing(self) -> bool:
        """Return whether partitions are being processed, so that a round can keep them."""

    def round_started(self) -> None:
        """Note the start of a round that keeps all partitions."""

    async def prepare_full_revocation(self) -> None:
        """Prepare for the revocation of all partitions."""

    async def revoke(self, revoked: Collection[TP]) -> None:
        """Finish the records of ``revoked``, commit them and stop processing these partitions.

        The partitions are still assigned during the call.
        """

    async def assigned(
        self,
        tps: Collection[TP],
        revoked: Collection[TP],
        gained: Collection[TP],
        roles: tuple[set[TP], set[TP]],
        generation: int,
    ) -> None:
        """Take over the assignment ``tps``, with ``roles`` (actives, standbys)."""

    def note_hand_over(self, everything: bool) -> None:
        """Note the answer to a leaving member; ``everything``: it has no active partition left."""

    async def stand_still(self) -> None:
        """Stop processing at once: other members may own this member's partitions."""


@dataclass
class CooperativeMember:
    """The state of a cooperative member between two requests.

    - ``offers``: the member supports cooperative rounds, not only eager rounds.
    - ``chosen``: the protocol name of the last round.
    - ``gave_up``: all partitions were revoked, and the app has had no assignment since.
    - ``lost``: other members may own this member's partitions. The member commits no offsets until it has
      revoked all partitions.
    - ``round``: done when SyncGroup has been answered; None outside of a round.
    - ``telling``: the task that notifies the app of the last answer.
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
    #: Whether streams may have skipped records. The member must then revoke all partitions and read the
    #: records again.
    stood: bool = False
    round: asyncio.Future[None] | None = None
    telling: asyncio.Task[None] | None = None
    watching: asyncio.Task[None] | None = None
    standing: asyncio.Task[None] | None = None
    #: Commits take this lock, so that only one commit runs at a time.
    committing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def own(self) -> Any:
        """Return aiokafka's present assignment; None without an assignment."""
        subscription = self.subscription.subscription
        return None if subscription is None else subscription.assignment

    def end_round(self) -> None:
        """Note that the current round, if any, is over."""
        under_way, self.round = self.round, None
        if under_way is not None and not under_way.done():
            under_way.set_result(None)

    async def wait_until_notified(self) -> None:
        """Wait until the app has handled the last answer."""
        if self.telling is not None:
            await self.telling

    def must_skip_records(self) -> bool:
        """Return whether streams must skip their records; may be called from any thread.

        Once True, the result stays True even if the group answers again: streams may have skipped records.
        The member must first revoke all partitions and restart at the committed offsets.
        """
        self.stood |= self.is_overdue()
        return self.stood

    def is_overdue(self) -> bool:
        """Return whether other members may own this member's partitions; may be called from any thread."""
        return not self.fence.is_sure() and not self.gave_up and self.own() is not None

    async def notify(
        self,
        before: asyncio.Task[None] | None,
        tps: Collection[TP],
        revoked: Collection[TP],
        gained: Collection[TP],
        roles: tuple[set[TP], set[TP]],
        generation: int,
    ) -> None:
        """Notify the app of its assignment once ``before``, the last round's notification, has ended."""
        if before is not None:
            await before
        try:
            await self.listener.assigned(tps, revoked, gained, roles, generation)
        except Exception:
            logger.exception(
                "The app's callbacks for its new assignment failed; the worker continues"
            )


class Moves(NamedTuple):
    """The partitions of one answer, and their difference from the present assignment.

    ``assigned`` does not contain the ``withheld`` partitions, which the second round assigns. Until then a
    different member may still use their new transactional id.
    """

    assigned: frozenset[TP]
    revoked: frozenset[TP]
    gained: frozenset[TP]
    withheld: frozenset[TP]


def moves(
    own: frozenset[TP], answered: frozenset[TP], restarted: frozenset[TP], *, follows: bool
) -> Moves:
    """Return the moves from ``own`` to ``answered``; ``restarted`` partitions are revoked and assigned again.

    ``follows``: a second round follows, and assigns the restarted partitions.
    """
    restarted = restarted & own & answered
    withheld = restarted if follows else frozenset()
    assigned = answered - withheld
    return Moves(
        assigned, (own - assigned) | restarted, (assigned - own) | (restarted & assigned), withheld
    )
