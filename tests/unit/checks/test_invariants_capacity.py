"""The promises hold for any capacities accepted by the planner and the wire."""

from __future__ import annotations

from random import Random

import pytest

from faust_assigner import Member, plan
from faust_assigner.checks.invariants import carried, check

WIDE = (1e-6, 0.0004, 0.155, 0.5, 1.0, 3.0, 5.37, 7.41, 42.28, 1e4, 1e6)


@pytest.mark.parametrize(
    "capacities",
    [(0.0004, 0.0004), (1e-6, 1e6), (42.28, 0.155, 7.41, 5.37), (1e-6, 1e-6, 1.0), WIDE],
    ids=str,
)
def test_any_capacities_give_a_plan_that_keeps_every_promise(capacities: tuple[float, ...]) -> None:
    """Neither the planner nor its certificate divides by zero or overflows, and both agree."""
    partitions = {"a": 24, "b": 7, "b-log": 7}
    members = [Member(f"m{i:02d}", partitions, capacity=c) for i, c in enumerate(capacities)]
    for _ in range(2):
        made = plan(members, partitions, replicas=1, changelogs={"b-log"})
        assert check(members, partitions, made, replicas=1, changelogs={"b-log"}) == []
        members = carried(members, made)[1:] or members


@pytest.mark.parametrize("seed", range(20))
def test_random_wide_capacities_and_subscriptions(seed: int) -> None:
    """With mixed subscriptions the exact flow decides."""
    rng = Random(seed)
    partitions = {f"t{t}": rng.randint(1, 40) for t in range(rng.randint(1, 6))}
    members = [
        Member(
            f"m{m:02d}", [t for t in partitions if rng.random() < 0.7], capacity=rng.choice(WIDE)
        )
        for m in range(rng.randint(1, 14))
    ]
    made = plan(members, partitions)
    assert check(members, partitions, made) == []


@pytest.mark.parametrize(
    ("groups", "members", "claimed"), [(100, 100, 1e6), (100, 100, 1e-6), (150, 150, None)]
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_no_capacity_that_a_member_claims_overflows_the_flow(
    groups: int, members: int, claimed: float | None
) -> None:
    """A member chooses its capacity: an extreme or odd value must not affect other members."""
    rng = Random(1)
    partitions = {f"t{t:03d}": 30 + t % 7 for t in range(groups)}
    odd = [rng.uniform(0.1, 10.0) if claimed is None else 1.0 for _ in range(members)]
    odd[3] = claimed or odd[3]
    group = [
        Member(f"m{m:03d}", [t for t in partitions if rng.random() < 0.5], capacity=c)
        for m, c in enumerate(odd)
    ]
    made = plan(group, partitions)
    assert check(group, partitions, made) == []
