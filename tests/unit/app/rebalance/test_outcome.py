"""The outcome of a round, as its members receive it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from faust_assigner import Member, plan
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.outcome import moved_tasks, outcome_of, trigger
from faust_assigner.planner import Plan
from faust_assigner.wire.outcome import MOST_NAMED, Outcome

COUNTS = {"orders": 4, "log": 4, "idle": 1}


def member(name: str, owned: Sequence[int] = ()) -> Member:
    """Return a member that owns these tasks; the partition of ``idle`` carries no load."""
    claims: dict[str, Any] = {"orders": owned, "log": owned} if owned else {}
    return Member(name, list(COUNTS), actives=claims, generation=3 if owned else -1)


def inputs_of(*members: Member, **more: Any) -> DecisionInputs:
    """Return the inputs of a decision about these members."""
    return DecisionInputs("shop", 4, members, COUNTS, 1, frozenset({"log"}), **more)


def planned(*members: Member) -> Plan:
    """Return the plan of these members."""
    return plan(members, COUNTS, replicas=1, changelogs={"log"}, weightless={"idle"})


ONE, BOTH = (member("a", range(4)),), (member("a", range(4)), member("b"))


def test_an_outcome_counts_tasks_by_what_became_of_them() -> None:
    """The task without load counts as a task and never as moved."""
    inputs = inputs_of(*BOTH, trigger="join", joined=frozenset({"http://b"}))
    found = planned(*BOTH)
    told = outcome_of(inputs, found, at=1_700_000_000.9)
    assert told == Outcome(
        trigger="join",
        decided_at=1_700_000_000,
        members=2,
        joined=("http://b",),
        is_planned=True,
        leads=True,
        tasks=4,  # Faust's leader topic is none
        moved=2,
        cold=2,
        off_target=0,
        warming=0,
    )
    assert moved_tasks(found) == 2


def test_a_round_without_a_plan_tells_its_cause_alone() -> None:
    """Its tasks are dealt out; a clock before 1970 gives no time."""
    told = outcome_of(inputs_of(*BOTH, trigger="join"), None, at=-5.0)
    assert told == Outcome(trigger="join", members=2, is_planned=False, leads=True)


@pytest.mark.parametrize(
    ("first", "completes"),
    [
        (None, ""),
        (Outcome(trigger="join"), "join"),
        (Outcome(trigger="rejoin", completes="leave"), "leave"),
    ],
)
def test_a_second_round_has_the_cause_of_the_first(first: Outcome | None, completes: str) -> None:
    """The number of rounds does not matter."""
    told = outcome_of(inputs_of(*ONE, trigger="rejoin"), None, at=1.0, first=first)
    assert (told.trigger, told.completes) == ("rejoin", completes)


def test_who_came_and_went_is_told_in_the_second_round_as_well() -> None:
    """Later joins and leaves replace the names; a long list and a long name are cut."""
    first = Outcome(trigger="join", joined=("http://b",), left=("http://c",))
    told = outcome_of(inputs_of(*ONE), None, at=1.0, first=first)
    assert (told.joined, told.left) == (first.joined, first.left)
    many = frozenset(f"http://{number:03}/{'x' * 200}" for number in range(MOST_NAMED + 3))
    more = inputs_of(*ONE, joined=many, left=frozenset({"http://d"}))
    told = outcome_of(more, None, at=1.0, first=first)
    assert told.left == ("http://d",)
    assert told.joined == tuple(sorted(many)[number][:120] for number in range(MOST_NAMED))


@pytest.mark.parametrize(
    ("owned", "joined", "left", "cause"),
    [
        ((), (), (), "first"),
        ((0,), (), (), "rejoin"),
        ((0,), ("b",), (), "join"),
        ((0,), (), ("c",), "leave"),
        ((0,), ("b",), ("c",), "join+leave"),
    ],
)
def test_a_leader_without_a_decision_compares_with_its_last_assignment(
    owned: Sequence[int], joined: Sequence[str], left: Sequence[str], cause: str
) -> None:
    """A group in which no member owns a partition has just begun."""
    now = inputs_of(member("a", owned), joined=frozenset(joined), left=frozenset(left))
    assert trigger(None, now) == cause


def subscriber(name: str, *topics: str) -> Member:
    """Return a member without claims."""
    return Member(name, list(topics))


@pytest.mark.parametrize(
    ("now", "partitions", "cause"),
    [
        ("a:xy b:x", {"x": 4, "y": 2}, "rejoin"),
        ("a:xy b:x c:x", {"x": 4, "y": 2}, "join"),
        ("a:xy", {"x": 4, "y": 2}, "leave"),
        ("a:xy c:x", {"x": 4, "y": 2}, "join+leave"),
        ("a:x b:x", {"x": 4, "y": 2}, "subscription"),
        ("a:xy b:xy", {"x": 4, "y": 2}, "subscription"),
        ("a:yx b:x", {"x": 4, "y": 2}, "rejoin"),
        ("a:xy b:x", {"x": 5, "y": 2}, "partitions"),
        ("a:xy b:x", {"x": 4}, "partitions"),
        ("a:xy b:x", {"x": 4, "y": 2, "z": 1}, "partitions"),
        ("a:x c:z", {"x": 4, "z": 1}, "join+leave+subscription+partitions"),
    ],
)
def test_a_leader_compares_with_its_last_decision(
    now: str, partitions: dict[str, int], cause: str
) -> None:
    """The comparison covers member ids, each member's topics in any order, and partition counts."""

    def inputs(members: str, counts: dict[str, int]) -> DecisionInputs:
        made = [one.partition(":") for one in members.split()]
        return DecisionInputs(
            "shop",
            4,
            tuple(subscriber(name, *topics) for name, _, topics in made),
            counts,
            1,
            frozenset(),
            joined=frozenset({"ignored"}),
        )

    before = inputs("b:x a:xy", {"x": 4, "y": 2})
    assert trigger(before, inputs(now, partitions)) == cause


def test_a_task_that_moves_to_a_copy_is_no_cold_one() -> None:
    """The task still counts as moved."""
    warm = Member("b", list(COUNTS), standbys={"log": [3]}, generation=3)
    members = (member("a", range(4)), warm)
    told = outcome_of(inputs_of(*members), planned(*members), at=1.0)
    assert (told.tasks, told.moved, told.cold, told.off_target) == (4, 2, 1, 0)
