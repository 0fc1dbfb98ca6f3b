"""Weighted plans over random instances: capacities x weights x subscriptions x previous owners."""

from __future__ import annotations

import statistics
from itertools import product
from random import Random

import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.checks.invariants import carried
from tests.support.examples import examples

Weights = dict[tuple[str, int], float]

CAPACITIES = ([1.0], [1.0, 2.0, 4.0], [1.0, 4.0], [1.0, 8.0], [1e-6, 1.0, 3.0], [])


def drawn(rng: Random, capacities: list[float], topics: tuple[str, ...] = ("t",)) -> list[Member]:
    """Return two to eight members; without ``capacities`` each has a random capacity."""
    return [
        Member(f"m{i}", topics, capacity=rng.choice(capacities or [0.5 + rng.random() * 3]))
        for i in range(rng.randint(2, 8))
    ]


def costs(rng: Random, counts: dict[str, int]) -> Weights:
    """Return lognormal costs within the bounds of weights documents."""
    return {
        (topic, p): round(min(4, max(0.25, rng.lognormvariate(0, 0.8))), 2)
        for topic, count in counts.items()
        for p in range(count)
    }


def heaviest(answer: Plan, members: list[Member], weights: Weights) -> float:
    """Return the weight / capacity of the heaviest member, computed from the names."""
    return max(
        sum(weights[t, p] for t, ps in answer.actives(m.member_id).items() for p in ps) / m.capacity
        for m in members
    )


def longest_first(members: list[Member], weights: Weights) -> float:
    """LPT for uniform machines: the largest task goes first, to the earliest finisher."""
    load = [0.0] * len(members)
    for cost in sorted(weights.values(), reverse=True):
        first = min(range(len(load)), key=lambda m: (load[m] + cost) / members[m].capacity)
        load[first] += cost
    return max(x / m.capacity for x, m in zip(load, members, strict=True))


@pytest.mark.parametrize("capacities", CAPACITIES)
def test_a_fresh_plan_is_no_heavier_than_counting_nor_than_largest_first(
    capacities: list[float],
) -> None:
    """The heaviest load is never above counting or LPT; a second plan does not raise it."""
    against_lpt = []
    for seed in range(examples(100, 20)):
        rng = Random(f"{capacities} {seed}")
        members = drawn(rng, capacities)
        counts = {"t": len(members) * rng.randint(1, 4)}
        weights = costs(rng, counts)
        answer = plan(members, counts, weights=weights)
        mine = heaviest(answer, members, weights)
        assert mine <= heaviest(plan(members, counts), members, weights) * (1 + 1e-8), seed
        against_lpt.append(mine / longest_first(members, weights))
        again = plan(carried(members, answer), counts, weights=weights)
        assert heaviest(again, members, weights) <= mine * (1 + 1e-8), seed
    assert statistics.median(against_lpt) <= 1.0 + 1e-8
    assert max(against_lpt) <= 1.0 + 1e-8


@pytest.mark.parametrize("capacities", CAPACITIES)
def test_no_life_makes_a_plan_heavier_than_counting(capacities: list[float]) -> None:
    """With the same claims, a plan by counts is never lighter, after any events."""
    for seed in range(examples(40, 8)):
        rng = Random(f"life {capacities} {seed}")
        counts = {"t": rng.randint(1, 12), "u": rng.randint(1, 9)}
        members = [
            *drawn(rng, capacities, ("t", "u")),
            *(Member(f"x{i}", [rng.choice("tu")]) for i in range(rng.randint(0, 3))),
        ]
        weights = costs(rng, counts)
        for step in range(6):
            answer = plan(members, counts, weights=weights)
            mine = heaviest(answer, members, weights)
            assert mine <= heaviest(plan(members, counts), members, weights) * (1 + 1e-8), seed
            members = carried(members, answer)
            if step % 2:
                weights = costs(rng, counts)
            elif len(members) > 3 and rng.random() < 0.5:
                members.pop(rng.randrange(1, len(members)))
            else:
                members += drawn(rng, capacities, ("t", "u"))[:1]
                members[-1] = Member(f"n{step}", ("t", "u"), capacity=members[-1].capacity)


@pytest.mark.parametrize("capacities", CAPACITIES)
def test_on_small_instances_the_heaviest_is_within_lpts_bound_of_the_best(
    capacities: list[float],
) -> None:
    """The load is at most 1.58 times the optimum; the reported bound never exceeds the optimum."""
    for seed in range(examples(40, 6)):
        rng = Random(f"small {capacities} {seed}")
        members = drawn(rng, capacities)[:3]
        weights = costs(rng, {"t": rng.randint(1, 7)})
        best = min(
            max(
                sum(w for w, m in zip(weights.values(), owners, strict=True) if m == i)
                / members[i].capacity
                for i in range(len(members))
            )
            for owners in product(range(len(members)), repeat=len(weights))
        )
        answer = plan(members, {"t": len(weights)}, weights=weights)
        assert heaviest(answer, members, weights) <= 1.58 * best, seed
        report = answer.report()
        if report["weight_bound"] is not None:
            assert report["weight_bound"] <= best * (1 + 1e-9), seed


@pytest.mark.parametrize("others", [1.0, 4.0])
@pytest.mark.parametrize("owned", [[3], [0, 3, 5], list(range(12))])
def test_a_worker_of_the_least_capacity_hands_over_everything(
    owned: list[int], others: float
) -> None:
    """Even a sole or heaviest partition leaves, and no partition returns after another death."""
    weights = {("t", p): 4.0 if p == 3 else 1.0 + (p % 7) / 2 for p in range(12)}
    rest = [p for p in range(12) if p not in owned]
    members = [
        Member("drained", ["t"], capacity=1e-6, actives={"t": owned}, generation=0),
        Member("b", ["t"], actives={"t": rest[::2]}, generation=0),
        Member("c", ["t"], capacity=others, actives={"t": rest[1::2]}, generation=0),
    ]
    answer = plan(members, {"t": 12}, weights=weights)
    assert answer.actives("drained") == {}
    alone = plan(carried(members, answer)[:2], {"t": 12}, weights=weights)
    assert alone.actives("drained") == {}


def test_a_drained_worker_hands_over_to_a_subscriber_that_is_not_among_the_lightest() -> None:
    """Nine idle workers do not subscribe to the topic: the busy subscriber takes the partition."""
    members = [
        Member("drained", ["t"], capacity=1e-6, actives={"t": [0]}, generation=0),
        Member("takes", ["t", "u"], actives={"u": range(6)}, generation=0),
        *(Member(f"idle{i}", ["v"]) for i in range(9)),
    ]
    weights = {("t", 0): 2.0} | {("u", p): 2.0 for p in range(6)}
    answer = plan(members, {"t": 1, "u": 6}, weights=weights)
    assert answer.actives("takes") == {"t": [0], "u": list(range(6))}
