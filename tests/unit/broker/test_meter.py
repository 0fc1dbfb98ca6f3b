"""The metrics of groups, and the log lines about fenced members."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker.groups.fences import Refusal
from faust_assigner.broker.groups.meter import Meter
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Request,
    SyncGroup,
)
from faust_assigner.coordinator.group_views import GroupView, MemberView
from tests.support.coordination.classic_bench import Bench


def seen(*states: str) -> Meter:
    """Return the meter of a group in these states, a second apart, each for its own reason."""
    meter = Meter()
    for number, state in enumerate(states):
        meter.state_seen("g", state, number * 1_000, f"reason {number}")
    return meter


def test_a_rebalance_is_counted_once_under_what_began_it() -> None:
    """The rebalance has several states before the group is Stable again."""
    meter = seen(
        "Stable", "PreparingRebalance", "CompletingRebalance", "PreparingRebalance", "Stable"
    )
    assert dict(meter.rebalances) == {"reason 1": 1}
    assert (sum(meter.rebalance_s.counts), meter.rebalance_s.total) == (1, 3.0)


def test_a_group_that_lost_all_members_took_no_time_to_rebalance() -> None:
    """Such a rebalance has no duration, and the next rebalance starts anew."""
    meter = seen("PreparingRebalance", "Empty", "PreparingRebalance", "Stable")
    assert meter.rebalances.total() == 2
    assert (sum(meter.rebalance_s.counts), meter.rebalance_s.total) == (1, 1.0)


def test_a_rebalance_that_begins_at_the_time_zero_has_a_duration() -> None:
    """The clock of a test, or of a machine that has just started, may be at 0."""
    meter = seen("PreparingRebalance", "CompletingRebalance", "Stable")
    assert dict(meter.rebalances) == {"reason 0": 1}
    assert (sum(meter.rebalance_s.counts), meter.rebalance_s.total) == (1, 2.0)


def test_a_group_that_is_gone_is_not_measured_on() -> None:
    """A new group of the same name does not continue the old group's rebalance."""
    meter = seen("PreparingRebalance")
    meter.forget("g")
    meter.state_seen("g", "Stable", 90_000, "")
    assert sum(meter.rebalance_s.counts) == 0


def refused(bench: Bench, member_id: str, instance_id: str | None) -> str:
    """Return the sentence about a heartbeat of generation 7."""
    event = Heartbeat(0, member_id, 7, instance_id)
    return str(Refusal("g", bench.group, event, Code.ILLEGAL_GENERATION))


def test_a_fenced_member_is_told_apart_from_the_one_that_has_its_instance_id() -> None:
    """The member is in the group with a different generation, or a new member replaced it."""
    bench = Bench()
    token = bench.join(instance_id="i")
    bench.pass_time(0)
    mine = bench.joined(token).member_id
    assert "it is at epoch" in refused(bench, mine, "i")
    assert f"instance i is {mine}" in refused(bench, "old", "i")
    assert "it is not a member" in refused(bench, "old", None)


def shown(kind: str, *members: tuple[str, str | None, int]) -> Any:
    """Return a group at epoch 9 with these members: id, instance and epoch."""
    views = tuple(
        MemberView(one, instance, "c", "/h", "classic", epoch, 1)
        for one, instance, epoch in members
    )
    word: Any = kind
    view = GroupView("g", word, "Stable", "consumer", "range", 9, 9, "", views)
    return SimpleNamespace(describe=lambda: view)


@pytest.mark.parametrize(
    ("event", "asked"),
    [
        (ConsumerGroupHeartbeat(0, "m", 7, "i"), "ConsumerGroupHeartbeat of m with epoch 7"),
        (SyncGroup(0, "m", 7, "i"), "SyncGroup of m with epoch 7"),
        (Heartbeat(0, "m", 0, "i"), "Heartbeat of m with epoch 0"),
        (CommitOffsets(0, "m", -1, "i"), "CommitOffsets of m with epoch -1"),
        (JoinGroup(0, "m", "new", (), instance_id="i"), "JoinGroup of m"),
        (LeaveGroup(0, (Leaver("m", "i"), Leaver("n", "j"))), "LeaveGroup of m"),
    ],
)
def test_a_line_about_a_refusal_names_the_request_and_both_epochs(
    event: Request, asked: str
) -> None:
    """The line uses the terms of the group's protocol, even if a second member has the instance id."""
    said = f"group g: {asked} is refused with FENCED_INSTANCE_ID: "
    for group, why in (
        (None, "there is no such group"),
        (shown("classic"), "it is not a member (generation 9, Stable)"),
        (
            shown("classic", ("x", None, 3), ("m", "i", 5)),
            "it is at epoch 5 (generation 9, Stable)",
        ),
        (
            shown("consumer", ("m", "j", 5), ("n", "i", 6)),
            "instance i is n at epoch 6 (group epoch 9, Stable)",
        ),
    ):
        assert str(Refusal("g", group, event, Code.FENCED_INSTANCE_ID)) == said + why


@pytest.mark.parametrize(
    ("event", "asked"),
    [
        (FetchOffsets(0, "m", 4), "FetchOffsets of m with epoch 4"),
        (FetchOffsets(0, None, -1), "FetchOffsets of nobody with epoch -1"),
        (LeaveGroup(0, ()), "LeaveGroup of nobody"),
        (DeleteGroup(0), "DeleteGroup of nobody"),
    ],
)
def test_a_line_about_a_request_without_an_instance_names_what_it_has(
    event: Request, asked: str
) -> None:
    """The request has no member or no epoch."""
    why = "is refused with STALE_MEMBER_EPOCH: there is no such group"
    assert str(Refusal("g", None, event, Code.STALE_MEMBER_EPOCH)) == f"group g: {asked} {why}"
