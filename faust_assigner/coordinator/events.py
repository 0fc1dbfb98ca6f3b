"""What can happen to a classic group. Every event is a frozen value; ``token`` names the request to answer.

Times are not part of an event: :meth:`ClassicGroup.step` gets ``now_ms`` beside it. Random parts (a new
member id) are chosen by the caller and travel inside the event, so that a replay is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from faust_assigner.coordinator.errors import Code

Token = int
NO_TOKEN: Final[Token] = -1


@dataclass(frozen=True, slots=True)
class Protocol:
    """One assignor a member offers, and the bytes it tells the leader (opaque here)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """JoinGroup v0-9. ``new_member_id`` is used only when ``member_id`` is empty."""

    token: Token
    member_id: str
    new_member_id: str
    protocols: tuple[Protocol, ...]
    protocol_type: str = "consumer"
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None
    needs_known_id: bool = True  # v4+: a dynamic newcomer must come back with the id it is given (KIP-394)
    can_skip_assignment: bool = False  # v9+: a returning static leader may be told not to assign (KIP-814)


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """SyncGroup: the leader brings everyone's assignment, followers fetch theirs."""

    token: Token
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat: I am alive; may I go on?"""

    token: Token
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leaver:
    """One member of a LeaveGroup request; static members may be named by instance id alone."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """LeaveGroup v0-5; before v3 there is exactly one leaver."""

    token: Token
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """May this member (or, with generation -1 and no id, this outsider) commit offsets now?"""

    token: Token
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """An administrator, or the expiry of its last offset, wants the group gone."""

    token: Token = NO_TOKEN


@dataclass(frozen=True, slots=True)
class Saved:
    """The outcome of an earlier :class:`~faust_assigner.coordinator.effects.SaveGroup`."""

    save_id: int
    error: Code = Code.NONE


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: fire what is due."""


Event = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | CommitOffsets | DeleteGroup | Saved | Tick
