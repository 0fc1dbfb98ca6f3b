"""A slice of ``make exactness``: the planner's target against the oracles."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from faust_assigner import plan
from faust_assigner.actives.paths import augment
from faust_assigner.actives.potentials import fluid_start, warm_start
from faust_assigner.actives.transport import Flow, Transport
from faust_assigner.model import Ints
from tests.property.exactness import run, terms
from tests.property.instances import wide_instance
from tests.property.oracle import brute_force, min_cost
from tests.support.examples import examples


@pytest.mark.parametrize("seed", [101, pytest.param(102, marks=pytest.mark.slow)])
def test_no_random_instance_is_sub_optimal(seed: int) -> None:
    """Load, group balance and stickiness equal the oracle's on 600 instances for each seed."""
    seen, worse = run(examples(600, 150), seed)
    assert worse == []
    assert len(seen) == 12, "some regime was not played"


@pytest.mark.parametrize("seed", range(12))
def test_no_wide_instance_is_sub_optimal(seed: int) -> None:
    """Many groups on many members give the terms the most digits."""
    case = wide_instance(Random(f"wide {seed}"))
    ours, best, _ = terms(case, plan(case.members, case.partitions))
    assert ours == best


def test_the_oracles_agree_with_each_other() -> None:
    """Brute force and min-cost flow find the same optimum."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        groups, members = rng.integers(1, 4), rng.integers(1, 4)
        n = rng.integers(1, 4, groups).tolist()
        who = [
            sorted(rng.choice(members, rng.integers(1, members + 1), replace=False).tolist())
            for _ in n
        ]
        had = [[int(rng.integers(0, 3)) if m in w else 0 for m in range(members)] for w in who]
        capacity = rng.integers(1, 4, members).tolist()
        assert brute_force(n, who, had, capacity) == min_cost(n, who, had, capacity)


def transport(rng: np.random.Generator, groups: int, members: int, most: int) -> Transport:
    """Return a random transport; each allowed cell may have kept and warm tasks."""
    supply = rng.integers(1, most + 1, groups)
    allowed = rng.random((groups, members)) < rng.choice([0.3, 0.6, 1.0])
    allowed[np.arange(groups), rng.integers(0, members, groups)] = True
    kept, warm = np.zeros((groups, members), np.int64), np.zeros((groups, members), np.int64)
    for g in range(groups):
        who = np.flatnonzero(allowed[g])
        np.add.at(kept[g], rng.choice(who, supply[g] // 2), 1)
        np.add.at(warm[g], rng.choice(who, supply[g] // 3), 1)
    rate = np.ones(members, np.int64) if rng.random() < 0.6 else rng.integers(1, 5, members)
    return Transport(
        supply=supply, allowed=allowed, kept=kept, warm=warm, home=np.minimum(kept, warm), rate=rate
    )


def value(t: Transport, counts: Ints) -> tuple[int, int, int, int]:
    """Return the four terms, all to be minimised."""
    load = counts.sum(axis=0)
    stay = np.minimum(counts, t.kept)
    landed = np.minimum(counts - stay, t.warm)
    home = np.minimum(counts, t.home)
    return (
        int((t.rate * load**2).sum()),
        int((counts**2).sum()),
        -int(stay.sum()),
        -int((landed + home).sum()),
    )


def solved(t: Transport, start: str) -> Ints:
    """Return the flow's answer from the given start."""
    flow = Flow(t)
    flow.saturate(*(warm_start(flow, t.kept) if start == "warm" else fluid_start(flow)), t.kept)
    return augment(flow)


def test_both_starts_of_the_flow_end_at_the_same_value() -> None:
    """The value does not depend on the initial potentials; the value includes warm tasks."""
    rng = np.random.default_rng(7)
    for _ in range(examples(150, 12)):
        t = transport(rng, int(rng.integers(1, 12)), int(rng.integers(2, 20)), 30)
        warm, fluid = solved(t, "warm"), solved(t, "fluid")
        assert value(t, warm) == value(t, fluid)
        assert (warm.sum(axis=1) == t.supply).all()
        assert not warm[~t.allowed].any()


def test_warmth_of_the_counts_is_the_best_of_all_assignments() -> None:
    """The fourth term equals the best of every assignment in tiny cases."""
    rng = np.random.default_rng(11)
    for _ in range(80):
        t = transport(rng, int(rng.integers(1, 3)), int(rng.integers(1, 4)), 4)
        best = min(value(t, np.array(counts)) for counts in every_way(t, 0))
        assert value(t, solved(t, "fluid")) == best


def every_way(t: Transport, g: int) -> list[list[list[int]]]:
    """Return all counts of groups g and later."""
    if g == len(t.supply):
        return [[]]
    members = len(t.rate)
    rows = [[]]  # type: list[list[int]]
    for m in range(members):
        rows = [
            [*row, k] for row in rows for k in range(int(t.supply[g]) + 1 if t.allowed[g, m] else 1)
        ]
    rows = [row for row in rows if sum(row) == t.supply[g]]
    return [[row, *rest] for row in rows for rest in every_way(t, g + 1)]
