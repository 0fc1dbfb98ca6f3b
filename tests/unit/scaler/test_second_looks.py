"""Looks with a silent worker, rare looks, and the look after a wait was given up."""

from __future__ import annotations

from dataclasses import replace

from faust_assigner.scaler.look import look_of
from faust_assigner.scaler.memory import Memory, observed
from faust_assigner.scaler.recommend import recommend
from faust_assigner.scaler.server import Listening
from faust_assigner.scaler.settings import Settings
from tests.support.status import group
from tests.unit.scaler.test_decisions import NOW, known
from tests.unit.scaler.test_decisions import look as decided_look
from tests.unit.scaler.test_look import heard
from tests.unit.scaler.test_memory import look


def test_a_silent_worker_counts_as_a_member() -> None:
    """It may process its partitions; its silence alone holds the size."""
    made = group(3)
    found = look_of(made.evidence(silent=["m2"]))
    assert (found.members, len(found.busy)) == (3, 1)


def test_missing_ends_during_a_rebalance_are_no_second_reason() -> None:
    """The coordinator hides the topics then, so no ends are known."""
    made = group(3)
    made.state = "PreparingRebalance"
    found = look_of(made.evidence(heard=heard(made), ends={}))
    assert found.busy == ("a rebalance is in progress (PreparingRebalance)",)


def test_a_member_without_topics_forms_no_group_of_its_own() -> None:
    """A member that has just joined has no metadata yet."""
    made = group(3)
    evidence = made.evidence(heard=heard(made))
    first, *others = evidence.group.members
    members = (replace(first, topics=frozenset()), *others)
    few = replace(evidence, group=replace(evidence.group, members=members))
    assert look_of(few).tasks == look_of(evidence).tasks == 6


def test_the_arrival_of_rare_looks_is_measured_since_the_last_look() -> None:
    """A sample from before the window would smooth a burst away."""
    memory = Memory()
    for at, end in ((0, 100), (600, 700), (1_200, 7_900)):
        memory = observed(memory, look(at, ("a", 0, end)), Settings(down_s=3_600.0))
    assert [(one.arrived, one.arrival) for one in memory.samples] == [
        (0, None),
        (600, 1.0),
        (7_800, 12.0),
    ]


def test_after_the_wait_for_a_size_the_present_size_is_the_new_size() -> None:
    """The next look does not wait again, and the change counts from the end of the wait."""
    settings = Settings(settle_s=300.0)
    memory = known((1_000.0, 0, 1.0), (0.0, 0, 1.0), size=6, changed_at=9.0, parted_at=NOW - 300.0)
    made, after = recommend(decided_look(3), settings, memory)
    assert (made.present, after.size, after.parted_at, after.changed_at) == (3, 3, None, NOW)
    again, later = recommend(replace(decided_look(3), taken_at=NOW + 15.0), settings, after)
    assert (again.present, again.size, later.parted_at) == (3, 3, None)


def test_each_ipv6_address_is_in_brackets() -> None:
    """A host name and an IPv4 address have none."""
    hosts = ("::1", "fe80::1", "10.0.0.1", "localhost")
    assert [Listening(host=host, port=7).address for host in hosts] == [
        "[::1]:7",
        "[fe80::1]:7",
        "10.0.0.1:7",
        "localhost:7",
    ]
