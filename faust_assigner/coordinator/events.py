"""The events of a group. Every event is a frozen value; ``token`` names the request to answer.

Times are not part of an event: :meth:`~faust_assigner.coordinator.effects.Group.step` gets ``now_ms`` as an
argument. Random values (a new member id) are chosen by the caller and are part of the event, so that a replay
is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from faust_assigner.coordinator.catalogue import Catalogue, Partitions
from faust_assigner.coordinator.errors import Code

Token = int
NO_TOKEN: Final[Token] = -1


@dataclass(frozen=True, slots=True)
class Protocol:
    """An assignor that a member offers, and its opaque metadata for the leader."""

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
    needs_known_id: bool = (
        True  # v4+: a new dynamic member must rejoin with its issued id (KIP-394)
    )
    can_skip_assignment: bool = (
        False  # v9+: a returning static leader may be asked not to assign (KIP-814)
    )


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """SyncGroup: the leader sends all assignments, followers fetch theirs."""

    token: Token
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat: extends the session and asks whether the generation is current."""

    token: Token
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leaver:
    """One member in a LeaveGroup request; the instance id alone is enough for a static member."""

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
    """A member (or, with generation -1 and no id, a non-member) wants to commit offsets.

    ``generation`` is the member epoch in a consumer group. The partitions matter if the member's
    epoch is behind: partitions held since that epoch or before may still be committed (KIP-1251).
    """

    token: Token
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    api_version: int = 9
    transactional: bool = False
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """A member wants to read committed offsets. Before v9, requests have member id None and epoch -1."""

    token: Token
    member_id: str | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """ConsumerGroupHeartbeat v0-1 (KIP-848). None, and -1 for the timeout, mean unchanged.

    ``member_epoch`` 0 joins, -1 leaves, -2 leaves for a while (static members). ``new_member_id`` is used
    only if ``member_id`` is empty, which version 0 allows.
    """

    token: Token
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    new_member_id: str = ""
    api_version: int = 1
    principal: str = ""


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """A request to delete the group, by an administrator or by the expiry of the last offset."""

    token: Token = NO_TOKEN


@dataclass(frozen=True, slots=True)
class Saved:
    """The outcome of an earlier ``SaveGroup`` or ``SaveRecords``."""

    save_id: int
    error: Code = Code.NONE


@dataclass(frozen=True, slots=True)
class TimersDue:
    """The passage of time: the group fires its due timers."""


@dataclass(frozen=True, slots=True)
class CatalogueChanged:
    """The current topics, after a topic was created, deleted, grew or moved."""

    catalogue: Catalogue


@dataclass(frozen=True, slots=True)
class TargetComputed:
    """The result of a ``ComputeTarget``: partitions by member id; None if the assignor failed."""

    request_id: int
    target: Mapping[str, Partitions] | None
    reason: str = ""


Request = (
    JoinGroup | SyncGroup | Heartbeat | LeaveGroup
    | ConsumerGroupHeartbeat | CommitOffsets | FetchOffsets | DeleteGroup
)  # fmt: skip
Event = Request | Saved | TimersDue | CatalogueChanged | TargetComputed
