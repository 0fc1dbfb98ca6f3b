"""The optimal target: brute force on small cases, OR-tools' min-cost flow on larger cases.

Both take plain lists and are independent of the planner: n[g] tasks, who[g] subscribers, and
had[g][m], the number of tasks of group g owned by member m. Both return (sum of load^2 / capacity,
sum of counts^2, number of kept tasks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from ortools.graph.python import min_cost_flow

Score = tuple[Fraction, int, int]


def score(
    counts: Sequence[Sequence[int]], had: Sequence[Sequence[int]], capacity: Sequence[int]
) -> Score:
    """Return the three terms of counts[g][m]; the third is better if higher."""
    loads = [sum(row[m] for row in counts) for m in range(len(capacity))]
    balance = sum(
        (Fraction(load * load, c) for load, c in zip(loads, capacity, strict=True)), Fraction()
    )
    squares = sum(x * x for row in counts for x in row)
    stay = sum(
        min(x, h)
        for row, was in zip(counts, had, strict=True)
        for x, h in zip(row, was, strict=True)
    )
    return balance, squares, stay


def _splits(n: int, who: Sequence[int], members: int) -> Iterator[list[int]]:
    """Yield every distribution of n tasks over the members in ``who``."""
    if len(who) == 1:
        row = [0] * members
        row[who[0]] = n
        yield row
        return
    for first in range(n + 1):
        for row in _splits(n - first, who[1:], members):
            yield [first if m == who[0] else x for m, x in enumerate(row)]


def brute_force(
    n: Sequence[int],
    who: Sequence[Sequence[int]],
    had: Sequence[Sequence[int]],
    capacity: Sequence[int],
) -> Score:
    """Return the best score over every possible assignment of counts."""
    best: Score | None = None

    def extend(counts: list[list[int]]) -> None:
        nonlocal best
        g = len(counts)
        if g == len(n):
            here = score(counts, had, capacity)
            if best is None or (here[0], here[1], -here[2]) < (best[0], best[1], -best[2]):
                best = here
            return
        for row in _splits(n[g], who[g], len(capacity)):
            extend([*counts, row])

    extend([])
    assert best is not None
    return best


def min_cost(
    n: Sequence[int],
    who: Sequence[Sequence[int]],
    had: Sequence[Sequence[int]],
    capacity: Sequence[int],
) -> Score:
    """Return the best score by min-cost flow: groups and members are nodes, each unit is an arc."""
    groups, members, tasks = len(n), len(capacity), sum(n)
    common = int(np.lcm.reduce(np.array(capacity)))
    # A unit of a term outweighs the sum of all later terms.
    square = tasks + 1
    load = square * (tasks * tasks + 1)
    tail, head, cost = [], [], []
    for g in range(groups):
        for m in who[g]:
            for k in range(1, n[g] + 1):
                tail.append(g)
                head.append(groups + m)
                cost.append(square * (2 * k - 1) - (1 if k <= had[g][m] else 0))
    for m in range(members):
        for k in range(1, sum(n[g] for g in range(groups) if m in who[g]) + 1):
            tail.append(groups + m)
            head.append(groups + members)
            cost.append(load * (2 * k - 1) * (common // capacity[m]))
    flow = min_cost_flow.SimpleMinCostFlow()
    arcs = flow.add_arcs_with_capacity_and_unit_cost(
        np.array(tail),
        np.array(head),
        np.ones(len(tail), dtype=np.int64),
        np.array(cost, dtype=np.int64),
    )
    flow.set_nodes_supplies(
        np.arange(groups + members + 1), np.array([*n, *[0] * members, -tasks], dtype=np.int64)
    )
    assert flow.solve() == flow.OPTIMAL
    counts = [[0] * members for _ in range(groups)]
    for arc in np.flatnonzero(flow.flows(arcs)).tolist():
        if tail[arc] < groups:
            counts[tail[arc]][head[arc] - groups] += 1
    return score(counts, had, capacity)
