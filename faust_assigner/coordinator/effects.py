"""The interface of a group to the broker, for either protocol: ``Group``, and the effects of its steps.

The broker keeps one machine per group id and has four duties:

1. Pass events: ``effects = group.step(event, now_ms, wall_ms)``, and apply the effects in order.
2. ``SaveRecords(records, save_id)``: write all or none of the records, and pass ``Saved(save_id, error)`` to
   the same machine before any other event. That step returns the effects that depend on the save.
3. ``ReplaceMachine(group)``: use the new machine from now on (online migration). Its records are
   already written; the following effects belong to the new machine.
4. ``ComputeTarget(request_id, spec)``: run ``assignors.compute(spec)`` anywhere, and pass the result as
   ``TargetComputed(request_id, target)``, or with target None and a reason. No request waits for the result.

After a step the broker schedules ``TimersDue`` at ``next_deadline_ms``. For an unknown group id, a JoinGroup
without a member id or a non-member's commit creates a ``ClassicGroup``. A ConsumerGroupHeartbeat with epoch 0
creates a ``ConsumerGroup``. ``answer_absent`` answers all other requests about unknown groups. At start the
broker restores each group from its records:
:func:`faust_assigner.coordinator.restore.restore`. When a topic is created, grows, is deleted or moves
between racks, every group gets ``CatalogueChanged``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from faust_assigner.coordinator.assignors.spec import GroupSpec
from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Event, Token
from faust_assigner.coordinator.group_views import GroupType, GroupView, Retention
from faust_assigner.coordinator.records import GroupRecord, Key, MemberRecord, Record


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """An entry in the list of members, which only the leader gets."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a JoinGroup. ``members`` is empty except for the leader."""

    token: Token
    error: Code
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The answer to a SyncGroup: this member's assignment bytes."""

    token: Token
    error: Code
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to a Heartbeat."""

    token: Token
    error: Code


@dataclass(frozen=True, slots=True)
class LeaveReply:
    """The answer to a LeaveGroup, one result per leaver: (member id, instance id, error)."""

    token: Token
    error: Code
    results: tuple[tuple[str, str | None, Code], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitReply:
    """The answer to CommitOffsets: whether the offsets may be stored."""

    token: Token
    error: Code


@dataclass(frozen=True, slots=True)
class DeleteReply:
    """The answer to a DeleteGroup."""

    token: Token
    error: Code


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    """The answer to a ConsumerGroupHeartbeat; ``assignment`` None means unchanged."""

    token: Token
    error: Code
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True)
class FetchReply:
    """The answer to FetchOffsets: whether committed offsets may be read."""

    token: Token
    error: Code


@dataclass(frozen=True, slots=True)
class SaveGroup:
    """Write the record; with a ``save_id``, a ``Saved`` event must report the outcome."""

    record: GroupRecord
    save_id: int | None = None


@dataclass(frozen=True, slots=True)
class SaveRecords:
    """Write all of these records or none, in order; report the outcome with ``Saved``, now or later."""

    records: tuple[Record, ...]
    save_id: int


@dataclass(frozen=True, slots=True)
class ReplaceMachine:
    """Replace the group's state machine by ``group``."""

    group: Group


@dataclass(frozen=True, slots=True)
class ComputeTarget:
    """Compute a target assignment; report it with ``TargetComputed``. No request waits for the result."""

    request_id: int
    spec: GroupSpec


@dataclass(frozen=True, slots=True)
class DropGroup:
    """Remove the group, its records (``keys``; a classic group has one) and its offsets."""

    group_id: str
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Happened:
    """An event for a log line and a counter; ``what`` is a word of a fixed, small set."""

    what: str
    member_id: str = ""
    detail: str = ""


Reply = (
    JoinReply | SyncReply | HeartbeatReply | LeaveReply | CommitReply | FetchReply | DeleteReply
    | ConsumerHeartbeatReply
)  # fmt: skip
Effect = Reply | SaveGroup | SaveRecords | ReplaceMachine | ComputeTarget | DropGroup | Happened


class Group(Protocol):
    """A group, implemented by ``ClassicGroup`` and ``ConsumerGroup``."""

    group_id: str

    def step(self, event: Event, now_ms: int, wall_ms: int | None = None) -> tuple[Effect, ...]:
        """Apply one event; return the effects in order. Requests of a client never raise.

        ``now_ms`` is a monotonic time that drives the timers. ``wall_ms`` is in ms since 1970 and becomes the
        time of a state change; None means ``now_ms``.
        """

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next ``TimersDue``, or None."""

    @property
    def state_name(self) -> str:
        """Kafka's name of the state: Empty, Assigning, Reconciling, Stable, PreparingRebalance, ..., Dead."""

    @property
    def group_type(self) -> GroupType:
        """The type of the group: classic or consumer."""

    @property
    def protocol_type(self) -> str | None:
        """ "consumer", another type of classic members, or None before the first join."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members (issued but unused ids do not count)."""

    @property
    def is_unproven(self) -> bool:
        """Whether no member has ever joined. Such a group may be dropped to make room."""

    @property
    def is_unused(self) -> bool:
        """Whether no member has ever joined, and no handed-out member id waits for its join."""

    @property
    def member_counts(self) -> Mapping[GroupType, int]:
        """The number of members by their protocol; cost O(1)."""

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of all members, or None if the protocol does not name topics."""

    def retention(self) -> Retention:
        """Return a function (topic, commit time) -> start of the offset's retention in ms (KIP-211).

        None: the offset is in use and does not expire.
        """

    def describe(self) -> GroupView:
        """Return the administrator's view; cost O(members + partitions)."""


__all__ = [
    "CommitReply",
    "ComputeTarget",
    "ConsumerHeartbeatReply",
    "DeleteReply",
    "DropGroup",
    "Effect",
    "FetchReply",
    "Group",
    "GroupRecord",
    "Happened",
    "HeartbeatReply",
    "JoinReply",
    "JoinedMember",
    "LeaveReply",
    "MemberRecord",
    "ReplaceMachine",
    "Reply",
    "SaveGroup",
    "SaveRecords",
    "SyncReply",
]
