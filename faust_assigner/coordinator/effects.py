"""The effects that a group requests from the broker, which applies them in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from faust_assigner.coordinator.assignors.spec import GroupSpec
from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Token
from faust_assigner.coordinator.records import GroupRecord, Key, MemberRecord, Record

if TYPE_CHECKING:
    from faust_assigner.coordinator.group import Group


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

__all__ = [
    "CommitReply",
    "ComputeTarget",
    "ConsumerHeartbeatReply",
    "DeleteReply",
    "DropGroup",
    "Effect",
    "FetchReply",
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
