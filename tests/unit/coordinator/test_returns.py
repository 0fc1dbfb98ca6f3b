"""A static member that returns with the classic protocol: whether its group becomes a classic group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import JoinGroup, Protocol, Saved
from faust_assigner.coordinator.records import (
    CurrentAssignment,
    GroupRecord,
    MemberMetadata,
    MemberState,
)
from faust_assigner.coordinator.settings import ConsumerLimits, MigrationPolicy
from tests.support.coordination.consumer_bench import catalogue
from tests.unit.coordinator.test_whole_steps import NOW, SUBSCRIPTION, A, member, restored

#: The subscription to "a" and "b".
BOTH = bytes.fromhex("0000 00000002 0001 61 0001 62 ffffffff")
STABLE, UNRELEASED = MemberState.STABLE, MemberState.UNRELEASED
Place = tuple[MemberMetadata, CurrentAssignment, tuple[int, ...]]


def place(
    *held: int, target: tuple[int, ...] | None = None, is_classic: bool, instance: str | None = None
) -> Place:
    """Return a member with these partitions of "a"; its target is the same, if none is given."""
    wanted = held if target is None else target
    state = STABLE if set(wanted) == set(held) else UNRELEASED
    current = CurrentAssignment(5, 4, state, {A: dict.fromkeys(held, 5)}, {})
    metadata = member(is_classic=is_classic, timeout_ms=30_000 + sum(held))
    return replace(metadata, instance_id=instance), current, wanted


def returned(
    members: Mapping[str, Place],
    *,
    metadata: bytes = SUBSCRIPTION,
    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL,
    max_size: int = 9,
) -> tuple[ConsumerGroup, GroupRecord | None, tuple[fx.Effect, ...]]:
    """Return the group, the saved record of a classic group, and the effects of the save."""
    group = restored(members)
    group.limits = ConsumerLimits(session_timeout_ms=45_000, migration_policy=policy)
    group.classic_limits = GroupLimits(max_size=max_size)
    group.catalogue = catalogue(a=4, b=2)
    join = JoinGroup(
        7,
        "",
        "new",
        protocol_type="consumer",
        protocols=(Protocol("range", metadata),),
        session_timeout_ms=11_000,
        rebalance_timeout_ms=22_000,
        instance_id="i",
        client_id="c",
        client_host="/h",
        needs_known_id=True,
    )
    (save,) = group.step(join, NOW + 10, 5_000_000)
    assert isinstance(save, fx.SaveRecords)
    records = [one.value for one in save.records if isinstance(one.value, GroupRecord)]
    effects = group.step(Saved(save.save_id), NOW + 10)
    return group, (records[0] if records else None), effects


OLD = place(2, is_classic=False, instance="i")


def reply(effects: tuple[fx.Effect, ...]) -> Any:
    """Return the only answer among the effects."""
    (found,) = [one for one in effects if isinstance(one, fx.JoinReply)]
    return found


@pytest.mark.parametrize(
    ("others", "metadata", "settled", "state"),
    [
        ({"m": place(0, 1, is_classic=True)}, SUBSCRIPTION, True, "Stable"),
        ({}, SUBSCRIPTION, True, "Stable"),
        (
            {"m": place(0, is_classic=True), "n": place(1, target=(1, 3), is_classic=True)},
            SUBSCRIPTION,
            False,
            "PreparingRebalance",
        ),
        (
            {"m": place(0, target=(0, 3), is_classic=True), "n": place(1, is_classic=True)},
            SUBSCRIPTION,
            False,
            "PreparingRebalance",
        ),
        ({"m": place(0, 1, is_classic=True)}, BOTH, False, "PreparingRebalance"),
    ],
)
def test_the_last_member_of_the_new_protocol_makes_the_group_classic(
    others: dict[str, Place], metadata: bytes, settled: bool, state: str
) -> None:
    """The members keep their partitions; they join again only if their partitions must change."""
    _, record, effects = returned({**others, "old": OLD}, metadata=metadata)
    assert record is not None
    assert isinstance(effects[0], fx.ReplaceMachine)
    machine: Any = effects[0].group
    assert isinstance(machine, ClassicGroup)
    names = [*others, "new"]
    assert [one.member_id for one in record.members] == names == list(machine.roster.members)
    assert (record.generation, record.settled, record.leader) == (5, settled, names[0])
    assert (machine.state_name, machine.generation) == (state, 5)
    assert (record.state_since_ms, record.protocol_name) == (5_000_000, "range")
    assert reply(effects) == fx.JoinReply(7, Code.NONE, "new", 5, "consumer", "range")
    last = record.members[-1]
    assert (last.instance_id, last.client_id, last.client_host) == ("i", "c", "/h")
    assert (last.session_timeout_ms, last.rebalance_timeout_ms) == (11_000, 22_000)
    assert "downgraded" in [one.what for one in effects if isinstance(one, fx.Happened)]


@pytest.mark.parametrize(
    ("members", "more"),
    [
        ({"m": place(0, is_classic=True), "old": place(2, is_classic=True, instance="i")}, {}),
        ({"m": place(0, is_classic=True), "n": place(1, is_classic=False), "old": OLD}, {}),
        ({"m": place(0, is_classic=True), "old": OLD}, {"policy": MigrationPolicy.UPGRADE}),
        ({"m": place(0, is_classic=True), "old": OLD}, {"max_size": 1}),
    ],
)
def test_a_return_leaves_the_group_as_it_is_otherwise(
    members: dict[str, Place], more: dict[str, Any]
) -> None:
    """All members were classic before, one still is not, the policy forbids it, or there is no room."""
    group, record, effects = returned(members, **more)
    assert record is None
    assert not [one for one in effects if isinstance(one, fx.ReplaceMachine)]
    said = [one.what for one in effects if isinstance(one, fx.Happened)]
    assert "downgraded" not in said
    assert (list(group.book.members)[-1], "old" in group.book.members) == ("new", False)
    assert reply(effects).generation == group.book.at("new").epoch == 5
    assert group.book.at("new").assigned == {A: {2: 5}}


def test_a_group_of_just_the_largest_size_becomes_classic() -> None:
    """The returned member has the place of its former id."""
    _, record, _ = returned({"m": place(0, is_classic=True), "old": OLD}, max_size=2)
    assert record is not None
