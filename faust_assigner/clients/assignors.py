"""Assignors for aiokafka's consumer.

aiokafka calls an assignor for the metadata of each join and, on the leader, for the assignment. Each
consumer needs its own instance, which remembers the consumer's partitions. Bad data from a member never
stops a round: unreadable user_data counts as empty, is logged, and is counted in ``refused``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.clients.user_data import (
    Answer,
    UserData,
    decode_answer,
    decode_user_data,
    encode_answer,
    encode_user_data,
    next_round,
)
from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Member
from faust_assigner.planner import plan

logger = logging.getLogger(__name__)
#: Topic -> its ascending partitions.
Numbers: TypeAlias = Mapping[str, Sequence[int]]
PROTOCOL_VERSION = 0  # the version of Kafka's structure that contains the user_data


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """One member's partitions; ``spare`` are additional copies: another member has the first copy."""

    active: Numbers
    spare: Numbers


@dataclass(frozen=True, kw_only=True)
class Joined:
    """One member's subscription and user_data, as the leader received them."""

    member_id: str
    topics: tuple[str, ...]
    data: UserData

    @property
    def member(self) -> Member:
        """Return the member as input of the planner."""
        return Member(
            self.member_id,
            self.topics,
            actives=self.data.active,
            standbys=self.data.spare,
            generation=self.data.round,
            capacity=self.data.capacity,
        )


class PlannedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """The base class of these assignors, which handles user_data; subclasses set ``name`` and ``place``.

    ``capacity`` scales this consumer's share. Members form a group only if they offer the same name.
    An assignor that assigns differently therefore needs a new name.
    """

    name = "planned"

    def __init__(self, *, capacity: float = 1.0) -> None:
        self._user_data = UserData(capacity=capacity)
        #: The number of members with unreadable user_data since the start.
        self.refused = 0
        # reports an invalid capacity here, not later on the leader
        decode_user_data(encode_user_data(self._user_data))

    # -- aiokafka's side ----------------------------------------------------------------------------

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return this consumer's metadata for the leader."""
        return ConsumerProtocolMemberMetadata(
            PROTOCOL_VERSION, sorted(topics), encode_user_data(self._user_data)
        )

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember the assignment for the next metadata."""
        given = {topic: list(numbers) for topic, numbers in assignment.assignment}
        try:
            answer = decode_answer(assignment.user_data)
        except MetadataRefused as refusal:
            logger.warning(
                "The leader's answer is unreadable; partitions may move in the next round: %s",
                refusal,
            )
            answer = Answer()
        spare = {topic: set(numbers) for topic, numbers in answer.spare.items()}
        self._user_data = UserData(
            round=answer.round,
            labels=self._user_data.labels,
            capacity=self._user_data.capacity,
            active={
                t: [n for n in numbers if n not in spare.get(t, ())] for t, numbers in given.items()
            },
            spare={
                t: [n for n in numbers if n in spare.get(t, ())] for t, numbers in given.items()
            },
        )

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignment of every member, as the leader. Cost: that of :func:`faust_assigner.plan`."""
        joined = [self._read_member(member_id, members[member_id]) for member_id in sorted(members)]
        topics = sorted({topic for one in joined for topic in one.topics})
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        given = self.place(
            joined, {topic: count for topic, count in counts.items() if count}, cluster
        )
        number = next_round(one.data for one in joined)
        return {member_id: _encode_assignment(number, given[member_id]) for member_id in members}

    # -- what subclasses decide ---------------------------------------------------------------------

    def place(
        self, joined: Sequence[Joined], partitions: Mapping[str, int], cluster: ClusterMetadata
    ) -> dict[str, Assigned]:
        """Return member id -> its partitions. ``joined`` is sorted by id; ``partitions``: topic -> count."""
        together = self.co_partitioned(partitions)
        made = plan([one.member for one in joined], partitions, co_partitioned=together)
        return {
            one.member_id: Assigned(active=made.actives(one.member_id), spare={}) for one in joined
        }

    def co_partitioned(self, partitions: Mapping[str, int]) -> Collection[Collection[str]] | None:
        """Return the sets of co-partitioned topics. None: all with equal counts and subscribers."""
        return ()

    def _read_member(self, member_id: str, told: ConsumerProtocolMemberMetadata) -> Joined:
        data = UserData()
        if told.user_data:
            try:
                data = decode_user_data(told.user_data)
            except MetadataRefused as refusal:
                self.refused += 1
                logger.warning(
                    "Member %r counts as a new member, because its user_data was refused: %s",
                    member_id,
                    refusal,
                )
        return Joined(member_id=member_id, topics=tuple(sorted(set(told.subscription))), data=data)


def _encode_assignment(number: int, given: Assigned) -> ConsumerProtocolMemberAssignment:
    topics = sorted({*given.active, *given.spare})
    rows: list[object] = [
        (t, sorted({*given.active.get(t, ()), *given.spare.get(t, ())})) for t in topics
    ]
    return ConsumerProtocolMemberAssignment(
        PROTOCOL_VERSION, rows, encode_answer(Answer(round=number, spare=given.spare))
    )


class StickyAssignor(PlannedAssignor):
    """The exact form of KIP-54: loads differ by at most 1, with the fewest possible moves."""

    name = "exact-sticky"


class CoPartitionedAssignor(PlannedAssignor):
    """Keeps equal partition numbers of co-partitioned topics on one consumer, as joins require.

    The assignment is sticky. Without arguments, topics with equal partition counts and equal subscribers are
    co-partitioned. With arguments, only the given topics are co-partitioned:
    ``CoPartitionedAssignor(("orders", "payments"))``. All members must give the same sets.
    """

    name = "co-partitioned"

    def __init__(self, *together: Collection[str], capacity: float = 1.0) -> None:
        super().__init__(capacity=capacity)
        self._together = [frozenset(topics) for topics in together] or None

    def co_partitioned(self, partitions: Mapping[str, int]) -> Collection[Collection[str]] | None:
        """Return the sets of the constructor's arguments, or None."""
        return self._together
