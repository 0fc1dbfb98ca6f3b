"""A group and its members as an administrator sees them, in either protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from faust_assigner.coordinator.catalogue import Partitions

GroupType = Literal["classic", "consumer"]
Retention = Callable[[str, int], int | None]


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as an administrator sees it; fields of the other protocol are empty."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    #: The protocol of this member; a consumer group may have members of both.
    protocol: GroupType
    #: The member epoch; in a classic group the generation.
    epoch: int
    rebalance_timeout_ms: int
    rack_id: str | None = None
    #: "stable", "unrevoked_partitions", "unreleased_partitions"; in a classic group "".
    state: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    assigned: Partitions = field(default_factory=dict)
    #: Partitions whose revocation the member has not confirmed.
    revoking: Partitions = field(default_factory=dict)
    #: Partitions of the target that other members still hold.
    pending: Partitions = field(default_factory=dict)
    target: Partitions = field(default_factory=dict)
    #: Classic members: the metadata for the leader, and the assignment, as bytes.
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as an administrator sees it."""

    group_id: str
    group_type: GroupType
    state: str
    protocol_type: str
    #: The classic group's protocol, the consumer group's assignor.
    protocol_name: str
    #: The group epoch, or the generation.
    epoch: int
    target_epoch: int
    leader: str
    members: tuple[MemberView, ...]
