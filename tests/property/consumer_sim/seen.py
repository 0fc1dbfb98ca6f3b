"""A snapshot of a consumer group, taken from the group's records: the input of the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.group_views import MemberView
from faust_assigner.coordinator.records import (
    CurrentAssignment,
    GroupEpoch,
    Key,
    Kind,
    MemberMetadata,
    TargetAssignment,
    TargetEpoch,
    Value,
)
from tests.property.consumer_sim.model import Pair, pairs
from tests.property.lives import must


@dataclass(frozen=True)
class SeenMember:
    """The state of a member."""

    epoch: int = 0
    previous_epoch: int = 0
    state: str = "stable"
    assigned: frozenset[Pair] = frozenset()
    revoking: frozenset[Pair] = frozenset()
    target: frozenset[Pair] = frozenset()
    #: The epoch of the grant, for each assigned or revoking partition.
    since: Mapping[Pair, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """The group as a whole; ``records`` is the expected content of the disk."""

    members: Mapping[str, SeenMember]
    epoch: int
    target_epoch: int
    records: Mapping[Key, Value]

    def state(self) -> str:
        """The state derived from the members' epochs."""
        if not self.members:
            return "Empty"
        if self.target_epoch < self.epoch:
            return "Assigning"
        settled = all(
            m.state == "stable" and m.epoch == self.target_epoch for m in self.members.values()
        )
        return "Stable" if settled else "Reconciling"

    def taken(self, member_id: str) -> frozenset[Pair]:
        """The partitions held by other members."""
        return frozenset().union(
            *(m.assigned | m.revoking for i, m in self.members.items() if i != member_id)
        )


def look(group: Group) -> Seen | None:
    """Return a consumer group's snapshot; None for a classic group."""
    if not isinstance(group, ConsumerGroup):
        return None
    records = {record.key: record.value for record in group.records() if record.value is not None}
    by_kind: dict[Kind, dict[str, Value]] = {kind: {} for kind in Kind}
    for key, value in records.items():
        by_kind[key.kind][key.member_id] = value
    members = {m: _member(m, by_kind) for m in by_kind[Kind.MEMBER]}
    epoch, target = by_kind[Kind.EPOCH].get(""), by_kind[Kind.TARGET_EPOCH].get("")
    strays = {key.member_id for key in records} - members.keys() - {""}
    must(not strays, "records of members that are none", strays)
    return Seen(
        members,
        epoch.epoch if isinstance(epoch, GroupEpoch) else 1,
        target.epoch if isinstance(target, TargetEpoch) else 1,
        records,
    )


def _member(member_id: str, by_kind: Mapping[Kind, Mapping[str, Value]]) -> SeenMember:
    stood, target = by_kind[Kind.CURRENT].get(member_id), by_kind[Kind.TARGET].get(member_id)
    wanted = pairs(target.partitions) if isinstance(target, TargetAssignment) else frozenset()
    if not isinstance(stood, CurrentAssignment):
        return SeenMember(target=wanted)
    return SeenMember(
        stood.epoch,
        stood.previous_epoch,
        stood.state.value,
        pairs(stood.assigned),
        pairs(stood.revoking),
        wanted,
        {
            (t, p): epoch
            for held in (stood.revoking, stood.assigned)
            for t, parts in held.items()
            for p, epoch in parts.items()
        },
    )


def check_description(group: ConsumerGroup, seen: Seen) -> None:
    """Check the administrator's description against the snapshot."""
    view = group.describe()
    shown = (view.group_type, view.state, view.epoch, view.target_epoch)
    must(
        shown == ("consumer", seen.state(), seen.epoch, seen.target_epoch),
        "the description",
        view,
        seen,
    )
    must({m.member_id for m in view.members} == set(seen.members), "the members described", view)
    for told in view.members:
        _check_member(told, seen, group)


def _check_member(told: MemberView, seen: Seen, group: ConsumerGroup) -> None:
    me = seen.members[told.member_id]
    shown = (told.epoch, told.state, pairs(told.assigned), pairs(told.revoking), pairs(told.target))
    must(
        shown == (me.epoch, me.state, me.assigned, me.revoking, me.target),
        "a member described",
        told,
    )
    must(pairs(told.pending) == me.target & seen.taken(told.member_id), "what it waits for", told)
    said = group.records()
    metadata = next(
        r.value for r in said if r.key.kind is Kind.MEMBER and r.key.member_id == told.member_id
    )
    must(
        isinstance(metadata, MemberMetadata) and told.instance_id == metadata.instance_id,
        "its names",
        told,
    )
