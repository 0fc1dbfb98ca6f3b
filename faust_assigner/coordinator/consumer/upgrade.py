"""Convert a live classic group to a consumer group, when the first KIP-848 member joins the group."""

from __future__ import annotations

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.consumer.core import RestoreClassic
from faust_assigner.coordinator.consumer.machine import ConsumerGroup
from faust_assigner.coordinator.consumer.partitions import dated
from faust_assigner.coordinator.consumer.refusals import JOIN, refuse_heartbeat
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import ConsumerGroupHeartbeat
from faust_assigner.coordinator.members import Member
from faust_assigner.coordinator.protocol import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
)
from faust_assigner.coordinator.records import (
    ClassicSide,
    CurrentAssignment,
    GroupEpoch,
    Key,
    Kind,
    MemberMetadata,
    MemberState,
    Record,
    TargetAssignment,
    TargetEpoch,
    Value,
)
from faust_assigner.coordinator.rounds import GroupRounds

Upgraded = tuple[ConsumerGroup, tuple[Record, ...], tuple[fx.Effect, ...]]


def upgrade(
    group: GroupRounds,
    event: ConsumerGroupHeartbeat,
    now_ms: int,
    restore_classic: RestoreClassic,
) -> Upgraded | fx.Reply:
    """Return the machine after the heartbeat, the records to save first, and the effects after the save.

    Returns the refusal instead if the group cannot be converted. Only a join converts a group. If the
    group has members, they must be consumers with readable metadata, and the policy must allow the
    upgrade.
    """
    refusal = refuse_heartbeat(event, group.consumer_limits, group.group_id)
    if refusal is not None:
        return fx.ConsumerHeartbeatReply(event.token, *refusal)
    records = (
        upgraded_records(group) if event.member_epoch == JOIN and _may_upgrade(group) else None
    )
    if records is None:
        why = (
            "the classic group cannot be converted: not a join, not allowed, or unreadable metadata"
        )
        return fx.ConsumerHeartbeatReply(event.token, Code.GROUP_ID_NOT_FOUND, why)
    successor = ConsumerGroup(
        group.group_id,
        group.consumer_limits,
        group.catalogue,
        now_ms,
        restore_classic=restore_classic,
        classic_limits=group.limits,
    ).restore(records)
    effects = successor.take_first(event, now_ms)
    for effect in effects:
        if isinstance(effect, fx.ConsumerHeartbeatReply) and effect.error is not Code.NONE:
            return effect  # the join is refused, so the other members see no change
    tombstone = Record(Key(Kind.CLASSIC, group.group_id), None)
    return successor, (tombstone, *successor.records()), effects


def _may_upgrade(group: GroupRounds) -> bool:
    """Return whether conversion is allowed; an empty group always takes its next member's protocol."""
    if not len(group.roster):
        return True
    limits = group.consumer_limits
    fits = len(group.roster) <= limits.max_size
    return (
        limits.migration_policy.upgrades and group.protocol_type == CONSUMER_PROTOCOL_TYPE and fits
    )


def upgraded_records(group: GroupRounds) -> tuple[Record, ...] | None:
    """Return a classic group as a consumer group with classic members; None for unreadable metadata.

    Members keep their partitions of the last assignment. A partition that a leader gave to several members
    goes to the first of these members. A group without a generation starts with epoch 1, because epoch 0
    means joining.
    """
    epoch = max(group.generation, 1)
    spoken = (
        group.protocol_name if group.protocol_name is not None else group.roster.select_protocol()
    )
    records: list[Record] = []
    taken: set[tuple[bytes, int]] = set()

    def add(kind: Kind, value: Value, member_id: str = "") -> None:
        records.append(Record(Key(kind, group.group_id, member_id), value))

    for member in group.roster:
        said, given = read_subscription(member.metadata(spoken)), read_assignment(member.assignment)
        if said is None or given is None:
            return None
        found = group.catalogue.partitions_of(given)
        held = {t: tuple(p for p in parts if (t, p) not in taken) for t, parts in found.items()}
        held = {t: parts for t, parts in held.items() if parts}
        taken |= {(t, p) for t, parts in held.items() for p in parts}
        add(Kind.MEMBER, _member_metadata(member, said.topics, said.rack_id), member.member_id)
        add(Kind.TARGET, TargetAssignment(held), member.member_id)
        stood = CurrentAssignment(epoch, epoch, MemberState.STABLE, dated(held, epoch), {})
        add(Kind.CURRENT, stood, member.member_id)
    add(Kind.EPOCH, GroupEpoch(epoch))
    add(Kind.TARGET_EPOCH, TargetEpoch(epoch))
    return tuple(records)


def _member_metadata(
    member: Member, topics: tuple[str, ...], rack_id: str | None
) -> MemberMetadata:
    return MemberMetadata(
        instance_id=member.instance_id,
        rack_id=rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(topics),
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )
