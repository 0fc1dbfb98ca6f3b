"""What groups keep on disk: one small frozen value per fact, so that a change of one member costs one member.

Kafka's own record kinds are the model. A record is a key and a value, or a key and None: a tombstone. The
machines change their own state by applying these very records, so replaying them gives the same state (B8).

=====================  ==================================  =================================================
kind                   key                                 value
=====================  ==================================  =================================================
``classic``            group                               :class:`GroupRecord`, the whole group
``epoch``              group                               :class:`GroupEpoch`
``member``             group, member                       :class:`MemberMetadata`
``target-epoch``       group                               :class:`TargetEpoch`
``target``             group, member                       :class:`TargetAssignment`
``current``            group, member                       :class:`CurrentAssignment`
=====================  ==================================  =================================================

Kafka's partition metadata record is the fingerprint inside ``epoch`` (as in Kafka since 4.1), and what a
regular expression matches follows from the catalogue, so neither has a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from faust_assigner.coordinator.catalogue import Partitions, TopicId
from faust_assigner.coordinator.events import Protocol

Epochs = Mapping[TopicId, Mapping[int, int]]  # partition -> the member epoch it was assigned in


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member as it is kept on disk."""

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
    """A group as it is kept on disk; no members means Empty, otherwise Stable.

    Not ``settled``: the generation has begun and its leader has not assigned yet. Such a record keeps a
    restart from using the same generation number twice.
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
    """How far one member is with its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked_partitions"
    UNRELEASED = "unreleased_partitions"


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The group epoch and a fingerprint of its topics then. Having one makes it a consumer group."""

    version: ClassVar[int] = 1
    epoch: int
    fingerprint: int = 0


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member that speaks the classic protocol offered (its metadata is ConsumerProtocol bytes)."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """What one member said of itself."""

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


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The group epoch the target assignment was computed for."""

    version: ClassVar[int] = 1
    epoch: int


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """What one member shall have in the end."""

    version: ClassVar[int] = 1
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What one member has, and what it has been asked to give up. Epoch -2: a static member that is away."""

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
    """The kinds of records; the value is the word kept on disk."""

    CLASSIC = "classic"
    EPOCH = "epoch"
    MEMBER = "member"
    TARGET_EPOCH = "target-epoch"
    TARGET = "target"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Key:
    """What a record is about; ``member_id`` is empty where the whole group is."""

    kind: Kind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """One fact, or with no value its end."""

    key: Key
    value: Value | None
