"""The interface of a group to the broker, for either protocol.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.events import Event

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


class Group(Protocol):
    """A group, implemented by ``ClassicGroup`` and ``ConsumerGroup``."""

    group_id: str

    def step(self, event: Event, now_ms: int, wall_ms: int | None = None) -> tuple[fx.Effect, ...]:
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
