"""A group's records on disk: many small values, so that a change of one member writes little.

The kinds are similar to Kafka's. A record is a key with a value, or a key with None: a tombstone. The state
machines change their state by applying these records, so a replay of the records restores the same state.

The kinds of records, each with its key and the class of its value:

``classic``       group: :class:`GroupRecord`, the whole group
``epoch``         group: :class:`GroupEpoch`
``member``        group and member: :class:`MemberMetadata`
``target-epoch``  group: :class:`TargetEpoch`
``target``        group and member: :class:`TargetAssignment`
``current``       group and member: :class:`CurrentAssignment`

The fingerprint in ``epoch`` replaces Kafka's record of partition metadata (as in Kafka since 4.1). The topics
that match a regular expression need no record, because they follow from the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, NamedTuple

from faust_assigner.coordinator.catalogue import Partitions, TopicId
from faust_assigner.coordinator.events import Protocol

Epochs = Mapping[TopicId, Mapping[int, int]]  # partition -> the member epoch of its assignment


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member of a classic group on disk."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A classic group on disk; without members the group is Empty, otherwise Stable.

    ``settled`` is False if the generation has begun, but the leader has not assigned yet. Such a record
    prevents a restart from reusing the generation number.
    """

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[MemberRecord, ...]
    settled: bool = True


class MemberState(Enum):
    """A member's progress towards its target assignment."""

    STABLE = "stable"
    UNREVOKED = "unrevoked_partitions"
    UNRELEASED = "unreleased_partitions"


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The group epoch with a fingerprint of its topics. A group with this record is a consumer group."""

    version: ClassVar[int] = 1
    epoch: int
    fingerprint: int = 0


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """The offered protocols of a classic member (its metadata is ConsumerProtocol bytes)."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class Pattern(NamedTuple):
    """A regular expression of a client; it matches only topics that the client may describe."""

    text: str
    principal: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """One member's metadata, as reported by the member."""

    version: ClassVar[int] = 1
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    classic: ClassicSide | None = None
    #: The principal of the member's connection; empty for a classic member and in older records.
    principal: str = ""

    @property
    def pattern(self) -> Pattern | None:
        """The member's regular expression with its principal and host; None without an expression."""
        return (
            Pattern(self.topic_regex, self.principal, self.client_host)
            if self.topic_regex
            else None
        )


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The group epoch of the target assignment."""

    version: ClassVar[int] = 1
    epoch: int


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """One member's target assignment."""

    version: ClassVar[int] = 1
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """One member's assigned and revoked partitions. Epoch -2: a static member that has left for a while."""

    version: ClassVar[int] = 1
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Epochs
    revoking: Epochs


Value = (
    GroupRecord | GroupEpoch | MemberMetadata | TargetEpoch | TargetAssignment | CurrentAssignment
)


class Kind(Enum):
    """The kinds of records; the value is the name on disk."""

    CLASSIC = "classic"
    EPOCH = "epoch"
    MEMBER = "member"
    TARGET_EPOCH = "target-epoch"
    TARGET = "target"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Key:
    """The subject of a record; ``member_id`` is empty for the whole group."""

    kind: Kind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A key with its present value; None deletes the earlier value."""

    key: Key
    value: Value | None
