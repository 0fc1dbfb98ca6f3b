"""What a classic group asks its surroundings to do. Order matters: a save precedes the answers it allows."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Protocol, Token


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One line of the list that only the leader gets."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a JoinGroup. ``members`` is empty for everyone but the leader."""

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
    """Whether the offsets of a commit may be stored."""

    token: Token
    error: Code


@dataclass(frozen=True, slots=True)
class DeleteReply:
    """The answer to a DeleteGroup."""

    token: Token
    error: Code


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


@dataclass(frozen=True, slots=True)
class SaveGroup:
    """Write the record; with a ``save_id`` the outcome must come back as a ``Saved`` event."""

    record: GroupRecord
    save_id: int | None = None


@dataclass(frozen=True, slots=True)
class DropGroup:
    """Forget the group and its offsets."""

    group_id: str


@dataclass(frozen=True, slots=True)
class Happened:
    """Something worth a log line and a counter; ``what`` is one of a fixed, small set of words."""

    what: str
    member_id: str = ""
    detail: str = ""


Reply = JoinReply | SyncReply | HeartbeatReply | LeaveReply | CommitReply | DeleteReply
Effect = Reply | SaveGroup | DropGroup | Happened
