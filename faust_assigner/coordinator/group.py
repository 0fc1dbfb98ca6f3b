"""What every group is to its surroundings, whichever protocol its members speak.

The surroundings (the broker) keep one machine per group id and do four things:

1. Put events to it: ``effects = group.step(event, now_ms, wall_ms)``, and carry the effects out in order.
2. ``SaveRecords(records, save_id)``: write all or none of them, and put ``Saved(save_id, error)`` to the
   same machine before any other event. What depends on the record comes back from that step.
3. ``ReplaceMachine(group)``: from now on that machine is the group (online migration). Its records are
   already written; effects that follow are its own.
4. ``ComputeTarget(request_id, spec)``: run ``assignors.compute(spec)`` somewhere, put the outcome back as
   ``TargetComputed(request_id, target)``, or with target None and a reason. Nobody waits for it.

After any step: ring with ``Tick`` at ``next_deadline_ms``. A group nobody knows is founded by a JoinGroup
without a member id (``ClassicGroup``), by a ConsumerGroupHeartbeat with epoch 0 (``ConsumerGroup``), or by an
outsider's commit (``ClassicGroup``); everything else is answered by ``answer_absent``. A start of the broker
gives each group its records: :func:`faust_assigner.coordinator.restore.restore`. When a topic is created,
grows, is deleted or moves between racks, every group gets ``CatalogueChanged``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.events import Event

GroupType = Literal["classic", "consumer"]
Retention = Callable[[str, int], int | None]


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member as an administrator sees it; what the other protocol would say has its empty value."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    #: Which protocol this member speaks; in a consumer group either may occur.
    protocol: GroupType
    #: The member epoch; in a classic group its generation.
    epoch: int
    rebalance_timeout_ms: int
    rack_id: str | None = None
    #: "stable", "unrevoked_partitions", "unreleased_partitions"; in a classic group "".
    state: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    assigned: Partitions = field(default_factory=dict)
    #: Asked to be given up, and not yet known to be.
    revoking: Partitions = field(default_factory=dict)
    #: Wanted by the target and still held by others.
    pending: Partitions = field(default_factory=dict)
    target: Partitions = field(default_factory=dict)
    #: Classic members: what they told the leader, and what they got, as bytes.
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group as an administrator sees it."""

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
    """One group, fulfilled by ``ClassicGroup`` and ``ConsumerGroup``."""

    group_id: str

    def step(self, event: Event, now_ms: int, wall_ms: int | None = None) -> tuple[fx.Effect, ...]:
        """Apply one event; what must be done, in order. Never raises on what a client sends.

        ``now_ms`` drives the timers and never steps; ``wall_ms`` is ms since 1970 and stamps the state (None:
        the same clock).
        """

    @property
    def next_deadline_ms(self) -> int | None:
        """When ``Tick`` is due next, or None."""

    @property
    def state_name(self) -> str:
        """Kafka's name of the state: Empty, Assigning, Reconciling, Stable, PreparingRebalance, ..., Dead."""

    @property
    def group_type(self) -> GroupType:
        """Which machine this is."""

    @property
    def protocol_type(self) -> str | None:
        """ "consumer", another word of classic members, or None while nobody has joined."""

    @property
    def is_empty(self) -> bool:
        """No members (ids that were handed out but not used do not count)."""

    @property
    def is_unproven(self) -> bool:
        """Nothing that would be missed: no member ever joined. Such a group may be dropped to make room."""

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics its members read, or None when the protocol does not tell."""

    def retention(self) -> Retention:
        """From when an offset ages (KIP-211), by topic and time of commit; None while it does not."""

    def describe(self) -> GroupView:
        """Everything an administrator may see; cost O(members + partitions)."""
