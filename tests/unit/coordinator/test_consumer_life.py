"""A consumer group's state after members fail, leave, return or change their protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.consumer.upgrade import upgraded_records
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Heartbeat, JoinGroup, Protocol, SyncGroup
from faust_assigner.coordinator.protocol import write_assignment
from faust_assigner.coordinator.records import (
    GroupRecord,
    Key,
    Kind,
    MemberMetadata,
    MemberRecord,
    TargetAssignment,
)
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.timers import Purpose
from tests.property.consumer_sim.clients import subscription
from tests.support.coordination.consumer_bench import GROUP, Bench


def happened(bench: Bench, what: str) -> list[tuple[str, str]]:
    """Return (member, detail) of each such event."""
    return [
        (one.member_id, one.detail)
        for one in bench.effects
        if isinstance(one, fx.Happened) and one.what == what
    ]


def test_each_kind_of_fence_is_told_with_its_error() -> None:
    """The events show operators two processes with a shared instance id."""
    bench = Bench()
    bench.join("m1", instance_id="i")
    bench.join("m2", instance_id="i")
    bench.heartbeat("m3", 2, instance_id="i")
    bench.heartbeat("m1", 9, instance_id="i")
    told = [(member, detail.partition(":")[0]) for member, detail in happened(bench, "fenced")]
    assert told == [
        ("m2", "UNRELEASED_INSTANCE_ID"),
        ("m3", "FENCED_INSTANCE_ID"),
        ("m1", "FENCED_MEMBER_EPOCH"),
    ]


def test_a_heartbeat_ends_the_deadlines_of_the_classic_protocol() -> None:
    """A member that changes its protocol is not removed for a join of the old protocol."""
    bench = Bench()
    bench.join("m1")
    group: Any = bench.group
    for purpose in (Purpose.JOIN, Purpose.SYNC, Purpose.REBALANCE):
        group.timers.set(purpose, "m1", bench.now + 1)
    bench.heartbeat("m1", 2)
    left = [one for one in Purpose if group.timers.get(one, "m1") is not None]
    assert left == [Purpose.SESSION]


def test_each_change_of_a_groups_state_is_told_once() -> None:
    """Events without a change report no state."""
    bench = Bench()
    bench.join("m1")
    bench.heartbeat("m1", 2)
    bench.heartbeat("m1", 2)
    bench.heartbeat("m1", -1)
    told = [detail for _, detail in happened(bench, "state")]
    assert told == ["Empty -> Stable", "Stable -> Empty"]


def classic_join(member_id: str, **changes: Any) -> JoinGroup:
    """Return a JoinGroup of a consumer that reads "a" and owns no partition."""
    metadata = subscription(["a"], {}, 1)
    event = JoinGroup(0, member_id, "new", (Protocol("range", metadata),), needs_known_id=False)
    return replace(event, **changes)


def test_a_classic_join_ends_the_deadlines_of_the_consumer_protocol() -> None:
    """A member that changes its protocol is not removed for a revocation of the old protocol."""
    bench = Bench()
    bench.join("m1")
    group: Any = bench.group
    for purpose in (Purpose.JOIN, Purpose.REBALANCE):
        group.timers.set(purpose, "m1", bench.now + 1)
    assert bench.ask(classic_join("m1")).error is Code.NONE
    left = [one for one in Purpose if group.timers.get(one, "m1") is not None]
    assert left == [Purpose.SESSION, Purpose.SYNC]


@pytest.mark.parametrize(
    ("changes", "error", "shown"),
    [
        ({"protocol_type": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL, ""),
        ({"session_timeout_ms": 1}, Code.INVALID_SESSION_TIMEOUT, "m2"),
    ],
)
def test_a_refused_classic_join_shows_the_member_id_as_kafka_does(
    changes: dict[str, Any], error: Code, shown: str
) -> None:
    """Only the error about the session timeout has the member id."""
    bench = Bench()
    bench.join("m1")
    answer = bench.ask(classic_join("m2", **changes))
    assert (answer.error, answer.member_id) == (error, shown)


def test_a_returned_static_member_starts_without_an_epoch_before() -> None:
    """No request with a former epoch is admitted."""
    bench = Bench()
    bench.join("m1", instance_id="i")
    bench.join("m2")
    bench.heartbeat("m1", 2, {"a": (0, 1, 2, 3)}, instance_id="i")
    bench.heartbeat("m1", -2, instance_id="i")
    bench.saves.clear()
    bench.join("m3", instance_id="i")
    written = [
        record.value
        for save in bench.saves
        for record in save
        if record.key.kind is Kind.CURRENT and record.key.member_id == "m3"
    ]
    assert written
    assert {getattr(one, "previous_epoch", None) for one in written} == {0}


def test_a_failed_write_leaves_the_deadline_of_the_target() -> None:
    """The deadline belongs to the group, not to the member whose change failed."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=1_000))
    bench.join("m1")
    group: Any = bench.group
    bench.disk_fails = True
    bench.join("m2")
    assert group.timers.get(Purpose.TARGET, "") == bench.now + 1_000


def test_the_first_member_after_an_empty_time_waits_for_no_interval() -> None:
    """The interval counts between two targets of a group with members."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=1_000))
    bench.join("m1")
    bench.heartbeat("m1", -1)
    answer = bench.join("m2")
    assert bench.given(answer) == {"a": (0, 1, 2, 3)}
    assert bench.given(bench.join("m3")) == {}
    assert bench.group.state_name == "Assigning"


def test_an_assignor_that_is_no_longer_allowed_has_no_votes() -> None:
    """The members' votes survive a restart with new settings."""
    bench = Bench()
    bench.join("m1", server_assignor="range")
    group: Any = bench.group
    assert group.assignor_name() == "range"
    group.limits = ConsumerLimits(assignors=("copartition", "uniform"))
    assert group.assignor_name() == "copartition"


def test_of_two_assignors_with_as_many_votes_the_first_by_name_is_taken() -> None:
    """Neither the order of the setting nor the order of the joins matters."""
    bench = Bench(ConsumerLimits(assignors=("uniform", "range"), assignment_interval_ms=0))
    bench.join("m1", server_assignor="uniform")
    bench.join("m2", server_assignor="range")
    assert bench.group.assignor_name() == "range"  # type: ignore[attr-defined]
    bench.join("m3", server_assignor="uniform")
    assert bench.group.assignor_name() == "uniform"  # type: ignore[attr-defined]


def test_a_change_of_state_that_could_not_be_stored_is_told_when_it_happens() -> None:
    """An event at the failure would hide the next rebalance from the metrics."""
    bench = Bench()
    bench.disk_fails = True
    assert bench.join("m1").error is not Code.NONE
    assert happened(bench, "state") == []
    bench.disk_fails = False
    bench.join("m1")
    assert happened(bench, "state") == [("", "Empty -> Stable")]


def test_a_failed_save_leaves_the_next_target_its_whole_interval() -> None:
    """A target whose write failed counts as never computed."""
    bench = Bench(ConsumerLimits(assignment_interval_ms=5_000))
    bench.join("m1")
    bench.now += 5_000
    bench.disk_fails = True
    assert bench.join("m2").error is not Code.NONE
    bench.disk_fails = False
    assert bench.join("m2").member_epoch == bench.group.describe().target_epoch
    assert bench.group.state_name != "Assigning"


def test_a_static_member_that_is_away_keeps_its_whole_session_and_revokes_nothing() -> None:
    """The member keeps its partitions until the session ends; remaining members get them then."""
    bench = Bench()
    bench.join("m1", instance_id="i")
    bench.heartbeat("m1", -2, instance_id="i")
    group: Any = bench.group
    assert group.timers.get(Purpose.REBALANCE, "m1") is None
    answer = bench.join("m2")
    assert bench.given(answer) == {}
    due = group.timers.get(Purpose.SESSION, "m1")
    bench.wait(due - bench.now - 1)
    assert not group.is_empty
    assert "m1" in group.book.members
    bench.wait(1)
    assert "m1" not in group.book.members


def test_the_partitions_of_a_member_that_takes_a_static_place_go_to_the_other_members() -> None:
    """The member lost its partitions without a leave; a new target must reassign them."""
    bench = Bench(a=4, b=2)
    bench.join("m1", "a")
    bench.join("s", "b", instance_id="i")
    bench.join("m2", "a")
    bench.heartbeat("m1", 2, {"a": (0, 1)})
    bench.heartbeat("m1", 2, {"a": (0, 1)})
    bench.heartbeat("m2", 4)
    bench.heartbeat("s", 3, instance_id="i")
    bench.heartbeat("s", -2, instance_id="i")
    taken = bench.join("m1", "b", instance_id="i")
    assert bench.given(taken) == {"b": (0, 1)}
    assert bench.given(bench.heartbeat("m2", 4)) == {"a": (0, 1, 2, 3)}
    assert {m.member_id for m in bench.group.describe().members} == {"m1", "m2"}


def test_a_session_end_that_makes_the_group_classic_comes_again_after_a_failed_save() -> None:
    """The member has a new session after the failure, and the group becomes classic at its end."""
    bench = Bench()
    bench.join("m1")
    joined = bench.ask(classic_join("", session_timeout_ms=60_000, rebalance_timeout_ms=300_000))
    group: Any = bench.group
    bench.disk_fails = True
    bench.wait(45_000)
    assert group.timers.get(Purpose.SESSION, "m1") == bench.now + 45_000
    bench.disk_fails = False
    bench.ask(Heartbeat(0, "new", joined.generation))
    bench.wait(44_999)
    assert bench.group.group_type == "consumer"
    bench.wait(1)
    assert bench.group.group_type == "classic"
    assert [member.member_id for member in bench.group.describe().members] == ["new"]


def test_a_static_member_that_leaves_for_a_while_amid_a_revocation_has_no_deadline_for_it() -> None:
    """The member stays until its session ends, also after its rebalance timeout."""
    bench = Bench()
    bench.join("m1", instance_id="i", rebalance_timeout_ms=10_000)
    bench.join("m2")
    answer = bench.heartbeat("m1", 2, {"a": (0, 1, 2, 3)}, instance_id="i")
    assert bench.given(answer) == {"a": (0, 1)}
    bench.heartbeat("m1", -2, instance_id="i")
    bench.wait(44_999)
    assert [member.member_id for member in bench.group.describe().members] == ["m1", "m2"]


def test_a_full_heartbeat_with_an_expression_gets_a_full_answer() -> None:
    """The answer repeats the partitions for either kind of subscription."""
    for subscription_of in ({"subscribed_topic_regex": "a.*"}, {"subscribed_topic_names": ("a",)}):
        bench = Bench()
        bench.join("m1", **subscription_of)
        owned = {"a": (0, 1, 2, 3)}
        answer = bench.heartbeat("m1", 2, owned, rebalance_timeout_ms=60_000, **subscription_of)
        assert bench.given(answer) == owned
        assert bench.given(bench.heartbeat("m1", 2, owned, **subscription_of)) is None


# -- classic members


def test_a_member_that_becomes_classic_keeps_the_fields_that_its_join_omits() -> None:
    """An old version of the subscription has no rack, and a join may have no instance id."""
    bench = Bench()
    bench.join("m1", instance_id="i", rack_id="r")
    assert bench.ask(classic_join("m1")).error is Code.NONE
    (member,) = bench.group.describe().members
    assert (member.protocol, member.instance_id, member.rack_id) == ("classic", "i", "r")


def test_a_sync_renews_the_session_of_a_classic_member() -> None:
    """The session begins with the last request of any kind."""
    bench = Bench()
    bench.join("m1")
    epoch = bench.ask(classic_join("m1", session_timeout_ms=30_000)).generation
    bench.wait(20_000)
    assert bench.ask(SyncGroup(0, "m1", epoch)).error is Code.NONE
    bench.wait(29_999)
    assert not bench.group.is_empty
    bench.wait(1)
    assert bench.group.is_empty


def test_a_refused_sync_starts_the_time_for_a_join_once() -> None:
    """The member must rejoin within its rebalance timeout after the first notice."""
    bench = Bench()
    bench.join("m1")
    epoch = bench.ask(classic_join("m1", rebalance_timeout_ms=70_000)).generation
    bench.join("m2")
    group: Any = bench.group
    due = bench.now + 70_000
    for _ in range(2):
        assert bench.ask(SyncGroup(0, "m1", epoch)).error is Code.REBALANCE_IN_PROGRESS
        assert group.timers.get(Purpose.JOIN, "m1") == due
        bench.wait(5_000)


def test_a_classic_member_with_some_partitions_is_told_when_its_last_one_is_free() -> None:
    """The member joined once amid the wait: its own partition is not one that it waits for."""
    bench = Bench(a=6)
    bench.join("m1")
    bench.join("m2")
    bench.heartbeat("m1", 2, {"a": (0, 1, 2)})
    bench.heartbeat("m1", 2, {"a": (0, 1, 2)})
    bench.heartbeat("m2", 3)
    bench.ask(classic_join("", needs_known_id=False))
    kept = {m.member_id: bench.catalogue.names_of(m.target) for m in bench.group.describe().members}
    for member_id in ("m1", "m2"):
        bench.heartbeat(member_id, 3, kept[member_id])
        if member_id == "m1":
            joined = bench.ask(classic_join("new"))
            beat = Heartbeat(0, "new", joined.generation)
            assert bench.ask(beat).error is Code.NONE
    assert bench.ask(beat).error is Code.REBALANCE_IN_PROGRESS


def classic_neighbours(classic_max: int = 100) -> Bench:
    """Return a group of the static m1, which is away, and two classic members: only c2 waits."""
    bench = Bench(a=6)
    group: Any = bench.group
    group.classic_limits = bench.classic_limits = replace(
        bench.classic_limits, max_size=classic_max
    )
    bench.join("m1", instance_id="i")
    bench.ask(classic_join("", new_member_id="c1"))
    bench.heartbeat("m1", 2, {"a": (0, 1, 2)}, instance_id="i")
    bench.ask(classic_join("c1"))
    bench.ask(classic_join("", new_member_id="c2"))
    bench.ask(classic_join("c1"))
    bench.heartbeat("m1", -2, instance_id="i")
    return bench


def test_a_group_that_becomes_classic_rejoins_if_one_of_its_members_waits() -> None:
    """A second member has its whole target, which does not help the member that waits."""
    bench = classic_neighbours()
    bench.ask(classic_join("", new_member_id="c3", instance_id="i"))
    (key,) = bench.disk
    record = bench.disk[key]
    assert isinstance(record, fx.GroupRecord)
    assert (key.kind, record.settled) == (Kind.CLASSIC, False)
    assert [member.member_id for member in record.members] == ["c1", "c2", "c3"]
    assert bench.group.state_name == "PreparingRebalance"


@pytest.mark.parametrize(("most", "kind"), [(2, "consumer"), (3, "classic")])
def test_a_group_becomes_classic_only_with_room_for_the_member_that_returns(
    most: int, kind: str
) -> None:
    """The returned member counts for the limit of a classic group."""
    bench = classic_neighbours(most)
    bench.ask(classic_join("", new_member_id="c3", instance_id="i"))
    assert bench.group.group_type == kind


# -- from a classic group


def classic_group(*, max_size: int = 100, **given: dict[str, tuple[int, ...]]) -> Bench:
    """Return a stable classic group of these members with their assignments; "b" is its protocol.

    Every member prefers the protocol "a", in which it reads the topic "other".
    """
    bench = Bench(ConsumerLimits(assignment_interval_ms=0, max_size=max_size), t=2, u=2, other=1)
    offers = (
        Protocol("a", subscription(["other"], {}, 1)),
        Protocol("b", subscription(["t", "u"], {}, 1)),
    )
    members = tuple(
        MemberRecord(
            name, f"{name}-instance", "client", "host", 30_000, 60_000, offers,
            write_assignment(1, share),
        )
        for name, share in given.items()
    )  # fmt: skip
    record = GroupRecord(GROUP, 7, "consumer", "b", "c1", 0, members)
    bench.disk[Key(Kind.CLASSIC, GROUP)] = record
    bench.restart()
    return bench


def test_a_classic_group_takes_its_assignment_along_by_topic_and_number() -> None:
    """A partition that a leader gave twice goes to the first member; equal numbers may differ in topic."""
    bench = classic_group(c1={"t": (0, 1), "u": (1,)}, c2={"t": (1,), "u": (0,)})
    group: Any = bench.group
    held = {
        record.key.member_id: bench.catalogue.names_of(record.value.partitions)
        for record in upgraded_records(group) or ()
        if isinstance(record.value, TargetAssignment)
    }
    assert held == {"c1": {"t": (0, 1), "u": (1,)}, "c2": {"u": (0,)}}


def test_a_classic_group_takes_the_subscriptions_of_its_current_protocol_along() -> None:
    """A different protocol has more votes, with the metadata of its own subscription."""
    group: Any = classic_group(c1={"t": (0,)}).group
    (said,) = [
        record.value
        for record in upgraded_records(group) or ()
        if isinstance(record.value, MemberMetadata)
    ]
    assert said.topic_names == {"t", "u"}


@pytest.mark.parametrize(
    ("max_size", "error"), [(1, Code.GROUP_ID_NOT_FOUND), (2, Code.NONE)], ids=["over", "full"]
)
def test_a_static_member_may_convert_a_full_classic_group(max_size: int, error: Code) -> None:
    """The member replaces its former process, so that the group does not grow."""
    bench = classic_group(max_size=max_size, c1={"t": (0, 1)}, c2={"u": (0, 1)})
    answer = bench.join("m1", "t", "u", instance_id="c1-instance")
    assert answer.error is error


@pytest.mark.parametrize("broken", ["assignment", "subscription"])
def test_a_classic_group_with_unreadable_bytes_is_not_converted(broken: str) -> None:
    """The leader, or an application of its own, wrote bytes of a different format."""
    bench = classic_group(c1={"t": (0, 1)}, c2={"u": (0, 1)})
    group: Any = bench.group
    (_, member) = group.roster
    if broken == "assignment":
        member.assignment = b"\0\1junk"
    else:
        member.protocols = (*member.protocols[:1], Protocol("b", b"\0\1junk"))
    assert upgraded_records(group) is None
    assert bench.join("m1", "t").error is Code.GROUP_ID_NOT_FOUND
    assert bench.group is group
