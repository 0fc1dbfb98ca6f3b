"""Input and output of a server-side assignor: ``assign(group_spec, topics) -> target``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from faust_assigner.coordinator.catalogue import Partitions, Topic, TopicId

Target = Mapping[str, Partitions]


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: its topics, its rack, and its partitions of the last target."""

    topics: frozenset[TopicId]
    instance_id: str | None = None
    rack_id: str | None = None
    #: The last target, not the current assignment, so that moves in progress continue.
    target: Partitions = field(default_factory=dict)
    #: The current assignment. A partition that has not arrived at its member yet is moved first.
    held: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The members by id, their topics, and the assignor's name."""

    assignor: str
    members: Mapping[str, MemberSpec]
    topics: Mapping[TopicId, Topic]

    @property
    def size(self) -> int:
        """The number of subscriptions and partitions; the cost of a computation grows with the size."""
        reads = sum(max(1, len(member.topics)) for member in self.members.values())
        return reads + sum(t.partitions for t in self.topics.values())


class Assign(Protocol):
    """An assignor. The target has every member of the spec, and only partitions of subscribed topics.

    Pure: the same spec gives the same target, in any process and for any order of the mappings.
    """

    def __call__(self, spec: GroupSpec, topics: Mapping[TopicId, Topic], /) -> Target:
        """Return the target of every member."""
