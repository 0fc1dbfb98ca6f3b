"""Among equally warm moves, tasks return to their owners before a stop."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from ortools.graph.python import min_cost_flow

from faust_assigner.actives.numbers import assign_numbers, count_by_member
from faust_assigner.model import NOBODY

Score = tuple[int, int, int]
Case = tuple[list[int], list[int], set[tuple[int, int]], list[int]]


def case(rng: Random, members: int, tasks: int, share: float) -> Case:
    """Return random owners, homes, copies and counts."""
    before = [rng.choice([NOBODY, *range(members)]) for _ in range(tasks)]
    home = [rng.choice([NOBODY, *range(members)]) if rng.random() < 0.9 else m for m in before]
    copies = {
        (p, m)
        for p in range(tasks)
        for m in range(members)
        if m != before[p] and rng.random() < share
    }
    cuts = sorted(rng.randint(0, tasks) for _ in range(members - 1))
    return before, home, copies, [int(n) for n in np.diff([0, *cuts, tasks])]


def found(
    before: list[int], home: list[int], copies: set[tuple[int, int]], counts: list[int]
) -> list[int]:
    """Return the planner's numbers."""
    pairs = np.array(sorted(copies), dtype=np.int64).reshape(-1, 2)
    was, size = np.array(before, dtype=np.int64), np.array(counts)
    made = assign_numbers(
        was,
        size,
        count_by_member(was, size.size),
        pairs[:, 0],
        pairs[:, 1],
        np.array(home, dtype=np.int64),
    )
    assert np.bincount(made, minlength=size.size).tolist() == counts
    return [int(m) for m in made]


def score(
    owner: list[int], before: list[int], home: list[int], copies: set[tuple[int, int]]
) -> Score:
    """Return (kept tasks, moved tasks on a copy, tasks at home)."""
    places = list(zip(owner, before, strict=True))
    warm = sum((p, m) in copies for p, (m, was) in enumerate(places) if m != was)
    return (
        sum(m == was for m, was in places),
        warm,
        sum(m == h for m, h in zip(owner, home, strict=True)),
    )


def most(
    before: list[int], home: list[int], copies: set[tuple[int, int]], counts: list[int]
) -> Score:
    """Return the best score by min-cost flow: each number is a unit, members take ``counts``."""
    tasks, members, unit = len(before), len(counts), len(before) + 1
    arcs = [
        (
            p,
            tasks + m,
            -(
                unit * unit * (m == before[p])
                + unit * ((p, m) in copies and m != before[p])
                + (m == home[p])
            ),
        )
        for p in range(tasks)
        for m in range(members)
    ]
    tail, head, cost = (np.array(column, dtype=np.int64) for column in zip(*arcs, strict=True))
    flow = min_cost_flow.SimpleMinCostFlow()
    flow.add_arcs_with_capacity_and_unit_cost(tail, head, np.ones(tail.size, dtype=np.int64), cost)
    supply = np.array([1] * tasks + [-count for count in counts], dtype=np.int64)
    flow.set_nodes_supplies(np.arange(supply.size), supply)
    assert flow.solve() == flow.OPTIMAL
    stay, rest = divmod(-flow.optimal_cost(), unit * unit)
    return (stay, *divmod(rest, unit))


@pytest.mark.parametrize("part", range(4))
def test_small_cases_are_as_good_as_brute_forces(part: int) -> None:
    """Brute force tries every distribution with the members' counts."""
    for seed in range(60):
        rng = Random(f"home {part} {seed}")
        before, home, copies, counts = case(rng, rng.randint(2, 4), rng.randint(1, 7), 0.3)
        made = found(before, home, copies, counts)
        every = set(itertools.permutations(np.repeat(np.arange(len(counts)), counts).tolist()))
        best = max(score(list(owner), before, home, copies) for owner in every)
        assert score(made, before, home, copies) == best, (part, seed)


@pytest.mark.parametrize("part", range(6))
def test_larger_cases_are_as_good_as_the_oracles(part: int) -> None:
    """Numbers change places in long cycles among many members, warm moves among them."""
    for seed in range(30):
        rng = Random(f"home larger {part} {seed}")
        before, home, copies, counts = case(rng, rng.randint(3, 9), rng.randint(12, 60), 0.15)
        made = found(before, home, copies, counts)
        assert score(made, before, home, copies) == most(before, home, copies, counts), (part, seed)


def test_without_homes_nothing_changes() -> None:
    """No member stopped: the assignment equals the assignment without homes."""
    rng = Random("no homes")
    before, _, copies, counts = case(rng, 5, 30, 0.2)
    nowhere = [NOBODY] * 30
    pairs = np.array(sorted(copies), dtype=np.int64)
    was, size = np.array(before), np.array(counts)
    plain = assign_numbers(was, size, count_by_member(was, size.size), pairs[:, 0], pairs[:, 1])
    assert plain.tolist() == found(before, nowhere, copies, counts)
