"""Moved tasks land on copies as often as the counts and the kept tasks allow."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from ortools.graph.python import min_cost_flow

from faust_assigner import Member, Plan, plan
from faust_assigner.actives.numbers import assign_numbers, count_by_member
from faust_assigner.model import NOBODY, Ints

Score = tuple[int, int]


def score(owner: tuple[int, ...], before: list[int], copies: set[tuple[int, int]]) -> Score:
    """Return (kept tasks, moved tasks on a copy)."""
    stay = sum(m == was for m, was in zip(owner, before, strict=True))
    warm = sum(
        (p, m) in copies for p, (m, was) in enumerate(zip(owner, before, strict=True)) if m != was
    )
    return stay, warm


def drawn(
    rng: Random, members: int, tasks: int, copied: float
) -> tuple[list[int], set[tuple[int, int]], Ints, Ints]:
    """Return random owners, orphans, copies and counts, and the assigned numbers."""
    before = [rng.choice([NOBODY, *range(members)]) for _ in range(tasks)]
    spare = [(p, m) for p in range(tasks) for m in range(members) if m != before[p]]
    copies = {pair for pair in spare if rng.random() < copied}
    cuts = sorted(rng.randint(0, tasks) for _ in range(members - 1))
    counts: Ints = np.diff([0, *cuts, tasks])
    pairs = np.array(sorted(copies), dtype=np.int64).reshape(-1, 2)
    was = np.array(before, dtype=np.int64)
    found = assign_numbers(was, counts, count_by_member(was, members), pairs[:, 0], pairs[:, 1])
    return before, copies, counts, found


@pytest.mark.parametrize("part", range(8))
def test_assigned_numbers_are_as_warm_as_any_with_these_counts(part: int) -> None:
    """Brute force tries every distribution with the counts, for random owners and copies."""
    for seed in range(60):
        rng = Random(f"{part} {seed}")
        members, tasks = rng.randint(2, 4), rng.randint(1, 7)
        before, copies, counts, found = drawn(rng, members, tasks, 0.35)
        every = set(itertools.permutations(np.repeat(np.arange(members), counts).tolist()))
        best = max(score(owner, before, copies) for owner in every)
        assert score(tuple(found.tolist()), before, copies) == best, (part, seed)


def most(before: list[int], copies: set[tuple[int, int]], counts: list[int]) -> Score:
    """Return the best score by min-cost flow: each number is a unit, members take ``counts``."""
    tasks, members = len(before), len(counts)
    arcs = [
        (p, tasks + m, -(tasks + 1) * (m == before[p]) - ((p, m) in copies))
        for p in range(tasks)
        for m in range(members)
    ]
    tail, head, cost = (np.array(column, dtype=np.int64) for column in zip(*arcs, strict=True))
    flow = min_cost_flow.SimpleMinCostFlow()
    flow.add_arcs_with_capacity_and_unit_cost(tail, head, np.ones(tail.size, dtype=np.int64), cost)
    supply = np.array([1] * tasks + [-count for count in counts], dtype=np.int64)
    flow.set_nodes_supplies(np.arange(supply.size), supply)
    assert flow.solve() == flow.OPTIMAL
    return divmod(-flow.optimal_cost(), tasks + 1)


@pytest.mark.parametrize("part", range(10))
def test_assigned_numbers_are_as_warm_as_the_oracles(part: int) -> None:
    """Few copies per number and members with a surplus: a greedy choice is not optimal."""
    for seed in range(40):
        rng = Random(f"larger {part} {seed}")
        members, tasks = rng.randint(3, 8), rng.randint(12, 40)
        before, copies, counts, found = drawn(rng, members, tasks, 0.15)
        best = most(before, copies, counts.tolist())
        assert score(tuple(found.tolist()), before, copies) == best, (part, seed)


def warm_places(members: list[Member], made: Plan, g: int, log: str) -> set[tuple[int, int]]:
    """Return (number, member) of the copies of ``log``, including the owners' own."""
    subscribed = set(made.groups[g].members.tolist())
    return {
        (p, m)
        for m, member in enumerate(members)
        if m in subscribed
        for claims in (member.actives, member.standbys)
        for p in claims.get(log, ())
    }


@pytest.mark.parametrize("seed", range(40))
def test_a_source_lands_where_its_followers_state_is(seed: int) -> None:
    """The changelog forms its own group, since a member does not subscribe to the topic."""
    rng = Random(seed)
    count = rng.randint(3, 6)
    names = [f"m{i}" for i in range(rng.randint(3, 4))]
    holders = names[:-1]
    members = []
    numbers = list(range(count))
    rng.shuffle(numbers)
    for i, name in enumerate(names):
        topics = ["t"] if name not in holders else ["t", "t-log"]
        log = [p for j, p in enumerate(numbers) if j % len(holders) == i and name in holders]
        members.append(Member(name, topics, actives={"t-log": log} if log else {}, generation=1))
    made = plan(members, {"t": count, "t-log": count}, changelogs={"t-log"})
    g = next(i for i, group in enumerate(made.groups) if "t" in group.topics)
    assert made.groups[1 - g].follows == g
    copies = warm_places(members, made, g, "t-log")
    target = made.target[g].tolist()
    counts = np.bincount(target, minlength=len(names))
    every = set(itertools.permutations(np.repeat(np.arange(len(names)), counts).tolist()))
    best = max(sum((p, m) in copies for p, m in enumerate(owner)) for owner in every)
    assert sum((p, m) in copies for p, m in enumerate(target)) == best
