"""Weights: few moves lighten the heaviest member, and the gap to the bound is reported."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.actives.relief import _move_budget, _Shift
from faust_assigner.actives.weighted import Weighed
from faust_assigner.checks.invariants import carried
from faust_assigner.model import NOBODY

MEMBERS = [Member(f"m{i}", ["t"]) for i in range(10)]
COUNT = 200


def zipf(seed: int, exponent: float = 1.05) -> dict[tuple[str, int], float]:
    """Return costs of a Zipf law, dealt to partitions at random."""
    rng = Random(seed)
    return {
        ("t", p): 1000 / (k + 1) ** exponent for k, p in enumerate(rng.sample(range(COUNT), COUNT))
    }


def heaviest(answer: Plan, weights: dict[tuple[str, int], float]) -> float:
    """Return the weight of the heaviest member."""
    return max(
        sum(weights[t, p] for t, ps in answer.actives(i).items() for p in ps)
        for i in answer.member_ids
    )


def test_without_weights_or_with_neutral_ones_counting_decides() -> None:
    """Neutral weights change no placement and no report."""
    plain = plan(MEMBERS, {"t": COUNT})
    for neutral in (None, {}, {("t", 0): 1.0}, {("nosuch", 0): 5.0}, {("t", 999): 5.0}):
        answer = plan(MEMBERS, {"t": COUNT}, weights=neutral)
        assert answer.owner[0].tolist() == plain.owner[0].tolist()
        assert answer.report()["weight_max"] is None


@pytest.mark.parametrize(
    "junk",
    [
        {
            ("t", 0): float("nan"),
            ("t", 1): -3.0,
            ("t", 2): float("inf"),
            ("t", 3): "9",
            "t": 4,
            ("t",): 1,
            5: 5,
        },
        "weights",
        7,
        [("t", 0)],
    ],
)
def test_weights_that_make_no_sense_weigh_one(junk: object) -> None:
    """A bad weights file never stops a rebalance."""
    assert plan(MEMBERS, {"t": COUNT}, weights=junk).report()["weight_max"] is None


def test_a_fresh_weighted_plan_is_near_the_bound() -> None:
    """The report has the gap to the bound."""
    weights = zipf(1)
    report = plan(MEMBERS, {"t": COUNT}, weights=weights).report()
    assert report["weight_gap"] <= 0.03
    assert report["weight_max"] >= report["weight_bound"]


def test_nothing_moves_while_nobody_is_too_heavy() -> None:
    """Unchanged members and weights get the same answer again."""
    weights = zipf(2)
    first = plan(MEMBERS, {"t": COUNT}, weights=weights)
    again = plan(carried(MEMBERS, first), {"t": COUNT}, weights=weights)
    assert again.moves == 0
    assert again.owner[0].tolist() == first.owner[0].tolist()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_under_churn_the_heaviest_is_lighter_for_no_more_moves(seed: int) -> None:
    """Over forty joins and leaves the heaviest load is <= 0.8x, with <= 1.2x the moves."""
    weights = zipf(seed)
    totals = {}
    for name, used in (("counted", None), ("weighted", weights)):
        rng = Random(seed)
        members, moves, heavy = list(MEMBERS), 0, 0.0
        last = plan(members, {"t": COUNT}, weights=used)
        for step in range(40):
            members = carried(members, last)
            if len(members) < 6 or (len(members) < 14 and rng.random() < 0.5):
                members.append(Member(f"n{step}", ["t"]))
            else:
                members.pop(rng.randrange(len(members)))
            last = plan(members, {"t": COUNT}, weights=used)
            moves += last.moves
            heavy += heaviest(last, weights)
        totals[name] = (heavy, moves)
    assert totals["weighted"][0] <= 0.8 * totals["counted"][0]
    assert totals["weighted"][1] <= 1.2 * totals["counted"][1]


def test_subscriptions_hold_under_weights() -> None:
    """No weight places a task on a member without the subscription."""
    members = [Member("a", ["t"]), Member("b", ["u"]), Member("c", ["t", "u"])]
    weights = {("t", p): 10.0 + p for p in range(8)}
    answer = plan(members, {"t": 8, "u": 8}, weights=weights)
    assert set(answer.actives("a")) <= {"t"}
    assert set(answer.actives("b")) <= {"u"}
    assert sum(len(answer.actives(m).get("t", [])) for m in "abc") == 8


def test_capacity_divides_weight() -> None:
    """A member with twice the threads carries about twice the weight."""
    weights = {("t", p): 1.0 + (p % 7) for p in range(90)}
    answer = plan(
        [Member("big", ["t"], capacity=2), Member("small", ["t"])], {"t": 90}, weights=weights
    )
    carried_by = {
        m: sum(weights[("t", p)] for p in answer.actives(m)["t"]) for m in ("big", "small")
    }
    assert carried_by["big"] / carried_by["small"] == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_orphans_give_living_owners_nothing_more_to_move(seed: int) -> None:
    """Orphans move in any case; the budget limits only moves from living owners."""
    weights = zipf(seed, 0.3)
    before = plan(MEMBERS, {"t": COUNT})
    living = [
        Member(m.member_id, ["t"], actives=before.actives(m.member_id), generation=3)
        for m in MEMBERS[1:]
    ]
    after = plan(living, {"t": COUNT}, weights=weights)
    owned = {p: m.member_id for m in living for p in before.actives(m.member_id)["t"]}
    moved = [
        p
        for m in living
        for p in after.actives(m.member_id)["t"]
        if owned.get(p, m.member_id) != m.member_id
    ]
    assert len(moved) <= 0.05 * COUNT


def test_the_budget_counts_living_owners_only() -> None:
    """Half of the tasks have no owner; the budget is still a twentieth of all tasks."""
    owner = np.array([0] * 50 + [NOBODY] * 50)
    previous: Any = SimpleNamespace(owner=owner)
    everything = np.ones(100, dtype=np.bool_)
    assert _move_budget(previous, np.array([0] * 50 + [1] * 50), everything) == 5
    assert _move_budget(previous, np.array([1] * 50 + [1] * 50), everything) == 60


def test_a_swap_counts_as_the_two_moves_that_it_is() -> None:
    """Only swaps help here: five of 100 tasks may leave living owners, so two pairs are swapped."""
    weights = {("t", 4 * i + k): cost for i in range(25) for k, cost in enumerate((10, 9, 8, 2))}
    members = [
        Member(f"m{i:02}", ["t"], actives={"t": [2 * i, 2 * i + 1]}, generation=3)
        for i in range(50)
    ]
    made = plan(members, {"t": 100}, weights=weights)
    moved = [p for m in members for p in m.actives["t"] if p not in made.actives(m.member_id)["t"]]
    assert len(moved) == 4


def figures(members: int, *weights: float, capacities: tuple[float, ...] = ()) -> tuple[float, ...]:
    """Return the heaviest member, the bound and the gap for these weights on equal members."""
    people = [
        Member(f"m{i}", ["t"], capacity=capacities[i] if capacities else 1.0)
        for i in range(members)
    ]
    told = {("t", number): weight for number, weight in enumerate(weights)}
    report = plan(people, {"t": len(weights)}, weights=told).report()
    return report["weight_max"], report["weight_bound"], report["weight_gap"]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (figures(2, 3.0, 3.0, 3.0), (6.0, 6.0, 0.0)),  # some member gets two of three
        (figures(2, 9.0, 2.0), (9.0, 9.0, 0.0)),  # the heaviest task alone
        (figures(2, 2.0, 2.0, 2.0, 2.0), (4.0, 4.0, 0.0)),  # the mean
        (figures(2, 6.0, 1.5, capacities=(1.0, 3.0)), (2.0, 2.0, 0.0)),  # on the largest capacity
        (figures(1, 0.5, 0.25), (0.75, 0.75, 0.0)),  # light tasks are weights, too
    ],
)
def test_the_bound_is_reached_where_it_can_be(
    case: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    """In each case a different reason prevents a lighter plan."""
    assert case == pytest.approx(expected)


def test_topics_that_travel_together_weigh_what_all_of_them_weigh() -> None:
    """Partition 0 of both topics is a task; a topic without a weight weighs 1."""
    people = [Member("a", ["t", "u", "v"]), Member("b", ["t", "u", "v"])]
    weights = {("t", 0): 3.0, ("u", 0): 4.0}
    report = plan(people, {"t": 2, "u": 2, "v": 2}, weights=weights).report()
    assert (report["weight_max"], report["weight_bound"]) == (8.0, 8.0)


def test_moves_that_the_start_has_made_already_are_taken_from_the_budget() -> None:
    """The counted target moved three tasks of living owners; one of four moves is left."""
    layout: Any = SimpleNamespace(
        capacity=np.ones(2),
        groups=[SimpleNamespace(members=np.array([0, 1]))],
        start=np.array([0, 6]),
        member_ids=("a", "b"),
    )
    weighed = Weighed(layout, np.ones(6))
    home = np.array([0, 0, 0, 0, NOBODY, NOBODY])
    assert _Shift(weighed, home, home, 4).budget == 4
    assert _Shift(weighed, home, np.array([1, 1, 1, 0, 1, 1]), 4).budget == 1


def test_a_single_heavy_task_goes_to_a_member_of_a_greater_capacity() -> None:
    """The heaviest member has no other task to give."""
    weights = {("t", 0): 8.0} | {("t", number): 0.25 for number in range(1, 25)}
    small = Member("small", ["t"], actives={"t": [0]}, generation=3)
    large = Member("large", ["t"], actives={"t": list(range(1, 25))}, generation=3, capacity=4.0)
    made = plan([small, large], {"t": 25}, weights=weights)
    assert 0 in made.actives("large")["t"]


def test_without_a_move_in_the_budget_nothing_leaves_its_owner() -> None:
    """One in twenty tasks may move: with four tasks none may, despite uneven weights."""
    weights = {("t", 0): 9.0, ("t", 1): 9.0, ("t", 2): 0.5, ("t", 3): 0.5}
    members = [
        Member("a", ["t"], actives={"t": [0, 1]}, generation=3),
        Member("b", ["t"], actives={"t": [2, 3]}, generation=3),
    ]
    made = plan(members, {"t": 4}, weights=weights)
    assert {name: made.actives(name)["t"] for name in ("a", "b")} == {"a": [0, 1], "b": [2, 3]}


def test_after_all_were_stopped_tasks_return_to_whom_they_were_of() -> None:
    """The tasks have no owners then; a new distribution by weights would move state needlessly."""
    weights = {("t", 0): 3.0, ("t", 1): 2.9, ("t", 2): 2.95, ("t", 3): 2.9}
    former = {"a": [0, 1], "b": [2, 3]}
    members = [
        Member(name, ["t"], former_actives={"t": numbers}, former_generation=7)
        for name, numbers in former.items()
    ]
    made = plan(members, {"t": 4}, weights=weights)
    assert {name: made.actives(name)["t"] for name in former} == former


def test_a_move_that_relieves_nobody_is_not_made() -> None:
    """The heavy task stays the peak after any move; by counts the newcomer would get a task."""
    weights = {("t", 0): 9.0, ("t", 1): 1.5}
    members = [
        Member("a", ["t"], actives={"t": [0]}, generation=3),
        Member("b", ["t"], actives={"t": [1, 2, 3]}, generation=3),
        Member("c", ["t"], generation=3),
    ]
    made = plan(members, {"t": 4}, weights=weights)
    assert [made.actives(name) for name in "abc"] == [{"t": [0]}, {"t": [1, 2, 3]}, {}]
    assert plan(members, {"t": 4}).moves == 1
