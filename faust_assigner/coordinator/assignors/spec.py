"""What a server-side assignor is given and gives back: ``assign(group_spec, topics) -> target``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from faust_assigner.coordinator.catalogue import Partitions, Topic, TopicId

Target = Mapping[str, Partitions]


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: what it reads, where it runs, and what the last target gave it."""

    topics: frozenset[TopicId]
    instance_id: str | None = None
    rack_id: str | None = None
    #: The target so far, not what it holds at this moment: a member in the middle of a move goes on.
    target: Partitions = field(default_factory=dict)
    #: What it holds at this moment: of what must move, that which has not arrived yet moves first.
    held: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The members by id, the topics they read between them, and the assignor's name."""

    assignor: str
    members: Mapping[str, MemberSpec]
    topics: Mapping[TopicId, Topic]

    @property
    def size(self) -> int:
        """What each member reads, and the partitions: what a computation costs grows with it."""
        reads = sum(max(1, len(member.topics)) for member in self.members.values())
        return reads + sum(t.partitions for t in self.topics.values())


class Assign(Protocol):
    """An assignor. It must give every member of the spec an entry, and only partitions of topics it reads.

    Pure: the same spec gives the same target, in any process and for any order of the mappings.
    """

    def __call__(self, spec: GroupSpec, topics: Mapping[TopicId, Topic], /) -> Target:
        """The target of every member."""
