"""Assignors for aiokafka's consumer: it asks them for a word at each join, and the leader's for the answers.

Each consumer wants an instance of its own: it remembers what that consumer holds. Nothing a member sends
stops a round: a word that cannot be read counts as none, is logged, and is counted in ``refused``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.clients.words import (
    Answer,
    Word,
    decode_answer,
    decode_word,
    encode_answer,
    encode_word,
    next_round,
)
from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Member
from faust_assigner.planner import plan

logger = logging.getLogger(__name__)
#: Topic -> the partitions of it, ascending.
Numbers: TypeAlias = Mapping[str, Sequence[int]]
PROTOCOL_VERSION = 0  # of Kafka's own envelope around the user_data


@dataclass(frozen=True, kw_only=True)
class Given:
    """What one member gets; ``spare`` are those of its partitions whose first copy another member has."""

    active: Numbers
    spare: Numbers


@dataclass(frozen=True, kw_only=True)
class Joined:
    """One member as the leader sees it: what it subscribes to, and its word."""

    member_id: str
    topics: tuple[str, ...]
    word: Word

    @property
    def member(self) -> Member:
        """As the planner takes it."""
        return Member(
            self.member_id,
            self.topics,
            actives=self.word.active,
            standbys=self.word.spare,
            generation=self.word.round,
            capacity=self.word.capacity,
        )


class PlannedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """What all of them share: words and answers. Subclasses name themselves and say who gets what.

    ``capacity`` weighs this consumer's share. Members only make a group when they offer the same name;
    change what a name means, and it must change too.
    """

    name = "planned"

    def __init__(self, *, capacity: float = 1.0) -> None:
        self._word = Word(capacity=capacity)
        #: Words of members that could not be read, since the start.
        self.refused = 0
        decode_word(encode_word(self._word))  # what others would refuse is refused here, at once

    # -- aiokafka's side ----------------------------------------------------------------------------

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this consumer tells the leader."""
        return ConsumerProtocolMemberMetadata(
            PROTOCOL_VERSION, sorted(topics), encode_word(self._word)
        )

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember what was given, for the next word."""
        given = {topic: list(numbers) for topic, numbers in assignment.assignment}
        try:
            answer = decode_answer(assignment.user_data)
        except MetadataRefused as refusal:
            logger.warning("The leader's answer was not understood: %s", refusal)
            answer = Answer()
        spare = {topic: set(numbers) for topic, numbers in answer.spare.items()}
        self._word = Word(
            round=answer.round,
            labels=self._word.labels,
            capacity=self._word.capacity,
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
        """The leader's turn: every member's answer. Cost: that of :func:`faust_assigner.plan`."""
        joined = [self._read(member_id, members[member_id]) for member_id in sorted(members)]
        topics = sorted({topic for one in joined for topic in one.topics})
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        given = self.place(
            joined, {topic: count for topic, count in counts.items() if count}, cluster
        )
        number = next_round(one.word for one in joined)
        return {member_id: _answer(number, given[member_id]) for member_id in members}

    # -- what subclasses decide ---------------------------------------------------------------------

    def place(
        self, joined: Sequence[Joined], partitions: Mapping[str, int], cluster: ClusterMetadata
    ) -> dict[str, Given]:
        """Member id -> what it gets; ``joined`` by member id, ``partitions`` topic -> count."""
        together = self.co_partitioned(partitions)
        made = plan([one.member for one in joined], partitions, co_partitioned=together)
        return {
            one.member_id: Given(active=made.actives(one.member_id), spare={}) for one in joined
        }

    def co_partitioned(self, partitions: Mapping[str, int]) -> Collection[Collection[str]] | None:
        """The sets of topics whose equal numbers travel together; None: wherever they can."""
        return ()

    def _read(self, member_id: str, told: ConsumerProtocolMemberMetadata) -> Joined:
        word = Word()
        if told.user_data:
            try:
                word = decode_word(told.user_data)
            except MetadataRefused as refusal:
                self.refused += 1
                logger.warning(
                    "Member %r counts as new, its word was refused: %s", member_id, refusal
                )
        return Joined(member_id=member_id, topics=tuple(sorted(set(told.subscription))), word=word)


def _answer(number: int, given: Given) -> ConsumerProtocolMemberAssignment:
    topics = sorted({*given.active, *given.spare})
    rows: list[Any] = [
        (t, sorted({*given.active.get(t, ()), *given.spare.get(t, ())})) for t in topics
    ]
    return ConsumerProtocolMemberAssignment(
        PROTOCOL_VERSION, rows, encode_answer(Answer(round=number, spare=given.spare))
    )


class StickyAssignor(PlannedAssignor):
    """Even and sticky, exactly (KIP-54): loads within one, and no other assignment moves less."""

    name = "exact-sticky"


class CoPartitionedAssignor(PlannedAssignor):
    """Sticky, and equal partition numbers of co-partitioned topics on one consumer, as joins need it.

    Without arguments: topics with the same number of partitions and the same subscribers. With them, only
    the named ones: ``CoPartitionedAssignor(("orders", "payments"))``. All members name the same sets.
    """

    name = "co-partitioned"

    def __init__(self, *together: Collection[str], capacity: float = 1.0) -> None:
        super().__init__(capacity=capacity)
        self._together = [frozenset(topics) for topics in together] or None

    def co_partitioned(self, partitions: Mapping[str, int]) -> Collection[Collection[str]] | None:
        """The named sets, or None."""
        return self._together
