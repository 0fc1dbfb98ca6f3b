"""The optimal placement of orphans: brute force on small cases, min-cost flow on larger cases."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

import numpy as np
from ortools.graph.python import min_cost_flow

from faust_assigner.actives.semi_matching import Orphans
from faust_assigner.model import NOBODY

Terms = tuple[int, int, int, int, int]


def terms(case: Orphans, who: Sequence[int]) -> Terms:
    """Return (rate x load^2, cell^2, -returned, state^2, -at target) as sums; less is better."""
    given = np.asarray(who, dtype=np.int64)
    cell = case.settled.copy()
    np.add.at(cell, (case.group, given), 1)
    load = cell.sum(axis=0)
    state = np.zeros(1, dtype=np.int64)
    if case.state is not None:
        state = case.state + np.bincount(given, minlength=case.rate.size)
    return (
        int((case.rate * load * load).sum()),
        int((cell * cell).sum()),
        -int((given == case.former).sum()),
        int((state * state).sum()),
        -int((given == case.target).sum()),
    )


def places(case: Orphans) -> list[list[int]]:
    """Return the holders of each orphan."""
    return [case.holder[case.orphan == n].tolist() for n in range(case.group.size)]


def brute_force(case: Orphans) -> Terms:
    """Return the best terms of every possible answer."""
    return min(terms(case, who) for who in itertools.product(*places(case)))


def min_cost(case: Orphans) -> Terms:
    """Return the best terms by a min-cost flow per prefix of terms, without the stateful term."""
    assert case.state is None
    orphans, members = case.group.size, case.rate.size
    # A unit of a term outweighs the sum of all later terms.
    back, square = orphans + 1, (orphans + 1) ** 2
    load = square * int(2 * orphans * (2 * (case.settled.max(initial=0) + orphans) + 1) + 1)
    pairs = list(zip(case.orphan.tolist(), case.holder.tolist(), strict=True))
    cells = sorted({(int(case.group[n]), m) for n, m in pairs})
    node = {cell: orphans + i for i, cell in enumerate(cells)}
    first = orphans + len(cells)
    arcs: list[tuple[int, int, int]] = []
    for n, m in pairs:
        worth = back * (m == case.former[n]) + (m == case.target[n])
        arcs.append((n, node[int(case.group[n]), m], -int(worth)))
    for (g, m), at in node.items():
        most = int(((case.group[case.orphan] == g) & (case.holder == m)).sum())
        arcs += [
            (at, first + m, square * int(2 * (case.settled[g, m] + k) + 1)) for k in range(most)
        ]
    total = case.settled.sum(axis=0)
    for m in range(members):
        most = int((case.holder == m).sum())
        arcs += [
            (first + m, first + members, load * int(case.rate[m] * (2 * (total[m] + k) + 1)))
            for k in range(most)
        ]
    tail, head, cost = (np.array(column, dtype=np.int64) for column in zip(*arcs, strict=True))
    flow = min_cost_flow.SimpleMinCostFlow()
    ids = flow.add_arcs_with_capacity_and_unit_cost(
        tail, head, np.ones(tail.size, dtype=np.int64), cost
    )
    supply = [1] * orphans + [0] * (len(cells) + members) + [-orphans]
    flow.set_nodes_supplies(np.arange(len(supply)), np.array(supply, dtype=np.int64))
    assert flow.solve() == flow.OPTIMAL
    used = flow.flows(ids) > 0
    names = {at: m for (_, m), at in node.items()}
    who = {
        int(t): names[int(h)] for t, h in zip(tail[used], head[used], strict=True) if t < orphans
    }
    return terms(case, [who[n] for n in range(orphans)])


def random_case(rng: Random, *, most_members: int, most_groups: int, most_orphans: int) -> Orphans:
    """Return orphans with one to three holders; some former owners are known."""
    members, groups = rng.randint(2, most_members), rng.randint(1, most_groups)
    orphans = rng.randint(1, most_orphans)
    held = [
        sorted(rng.sample(range(members), rng.randint(1, min(3, members)))) for _ in range(orphans)
    ]
    remembered = rng.choice([0.0, 0.5, 1.0])
    former = [rng.choice(h) if rng.random() < remembered else NOBODY for h in held]
    even = most_orphans <= 6 and rng.random() < 0.3
    shape = (groups, members)
    random = np.random.default_rng(rng.randrange(2**32))
    return Orphans(
        group=np.array([rng.randrange(groups) for _ in held], dtype=np.int64),
        former=np.array(former, dtype=np.int64),
        target=np.array([rng.randrange(members) for _ in held], dtype=np.int64),
        orphan=np.repeat(np.arange(orphans), [len(h) for h in held]),
        holder=np.array([m for h in held for m in h], dtype=np.int64),
        settled=random.integers(0, 4, shape),
        state=random.integers(0, 4, members) if even else None,
        rate=np.ones(members, dtype=np.int64)
        if rng.random() < 0.6
        else random.integers(1, 5, members),
    )
