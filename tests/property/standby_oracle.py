"""A second implementation of the standby objective, and two ways to its optimum.

``terms`` computes the lexicographic terms of an answer. ``brute_force`` tries every answer of a
tiny instance. ``least_cost`` solves an instance of some dozens of tasks exactly as a min-cost flow
(OR-tools): task -> (task, rack) -> (owner, member) -> member -> sink, with the convex terms as
parallel arcs.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
from ortools.graph.python import min_cost_flow

from faust_assigner.model import NOBODY, Ints
from faust_assigner.standbys.problem import StandbyProblem


def racks_of(given: StandbyProblem) -> list[int]:
    """Return each member's rack; all racks differ if the given racks distinguish no members."""
    members = given.members
    named = [r if r != NOBODY else 1_000 + m for m, r in enumerate(given.rack.tolist())]
    return named if len(set(named)) not in (1, members) else list(range(members))


def pair_caps(given: StandbyProblem) -> dict[tuple[int, int], int]:
    """Return (owner, member) -> the standbys within the failover bound, plus one if copies exist.

    Only for a single class of subscribers and one replica, where a pair's count equals its
    promotions.
    """
    racks = racks_of(given)
    heaviest = int(given.load.max(initial=0))
    caps = {}
    for owner, member in product(range(given.members), repeat=2):
        peers = sum(r != racks[owner] for r in racks) or given.members - 1
        tasks = int((given.owner == owner).sum())
        bound = heaviest - int(given.load[member]) + -(-tasks // max(peers, 1))
        mine = given.owner[given.copy_task] == owner
        copies = int((mine & (given.copy_member == member)).sum())
        caps[owner, member] = max(bound, min(bound + 1, copies))
    return caps


def terms(given: StandbyProblem, placed: Ints, caps: dict[tuple[int, int], int]) -> tuple[int, ...]:
    """Return the minimised terms in order of priority."""
    racks = racks_of(given)
    rows = [[m for m in row if m != NOBODY] for row in placed.tolist()]
    owners = given.owner.tolist()
    homes = [
        [racks[owner], *(racks[m] for m in row)] for owner, row in zip(owners, rows, strict=True)
    ]
    doubled = sum(len(home) - len(set(home)) for home in homes)
    at_home = sum(home[1:].count(home[0]) for home in homes)
    loads = np.bincount([m for row in rows for m in row], minlength=given.members)
    uneven = int((loads**2).sum())
    pairs = [(owner, m) for owner, row in zip(owners, rows, strict=True) for m in row]
    over = sum(sum(range(1, pairs.count(pair) - cap + 1)) for pair, cap in caps.items())
    held = set(zip(given.copy_task.tolist(), given.copy_member.tolist(), strict=True))
    restored = sum((task, m) not in held for task, row in enumerate(rows) for m in row)
    has_racks = len(set(racks)) < given.members
    middle = (over, uneven) if has_racks else (uneven, over)
    return (doubled, at_home, *middle, restored)


def brute_force(given: StandbyProblem, caps: dict[tuple[int, int], int]) -> tuple[int, ...]:
    """Return the best terms of all answers."""
    choices = []
    for task, owner in enumerate(given.owner.tolist()):
        others = [
            m for m in range(given.members) if m != owner and given.eligible[given.group[task], m]
        ]
        choices.append(list(combinations(others, min(given.replicas, len(others)))))
    width = max(len(row) for options in choices for row in options)
    return min(
        terms(given, np.array([[*row, *[NOBODY] * (width - len(row))] for row in answer]), caps)
        for answer in product(*choices)
    )


def least_cost(given: StandbyProblem, caps: dict[tuple[int, int], int]) -> tuple[int, ...]:
    """Return the best terms by min-cost flow, for a single class of subscribers."""
    racks, members = racks_of(given), given.members
    replicas = min(given.replicas, members - 1)
    slots = given.tasks * replicas
    has_racks = len(set(racks)) < members
    first, second = slots + 1, (slots + 1) * (slots * slots + 1)
    over, uneven = (second, first) if has_racks else (first, (slots + 1) * (slots + 1))
    home = max(over, uneven) * 4 * (slots + 1)
    double = home * 4 * (slots + 1)
    flow = min_cost_flow.SimpleMinCostFlow()
    sink, column = given.tasks, [given.tasks + 1 + m for m in range(members)]
    pair = {key: given.tasks + 1 + members + n for n, key in enumerate(caps)}
    node = given.tasks + 1 + members + len(caps)
    held = set(zip(given.copy_task.tolist(), given.copy_member.tolist(), strict=True))

    def arc(tail: int, head: int, capacity: int, cost: int) -> None:
        flow.add_arc_with_capacity_and_unit_cost(tail, head, capacity, cost)

    for task, owner in enumerate(given.owner.tolist()):
        flow.set_node_supply(task, replicas)
        for rack in sorted(set(racks)):
            if rack == racks[owner]:
                arc(task, node, replicas, double + home)
            else:
                arc(task, node, 1, 0)
                arc(task, node, replicas, double)
            for m in range(members):
                if racks[m] == rack and m != owner:
                    arc(node, pair[owner, m], 1, 0 if (task, m) in held else 1)
            node += 1
    for (owner, m), cap in caps.items():
        arc(pair[owner, m], column[m], max(cap, 0), 0)
        for above in range(1, slots - cap + 1):
            arc(pair[owner, m], column[m], 1, over * above)
    for m in range(members):
        for load in range(slots):
            arc(column[m], sink, 1, uneven * (2 * load + 1))
    flow.set_node_supply(sink, -slots)
    assert flow.solve() == flow.OPTIMAL
    answer = _answer(flow, given, pair)
    return terms(given, answer, caps)


def _answer(
    flow: min_cost_flow.SimpleMinCostFlow, given: StandbyProblem, pair: dict[tuple[int, int], int]
) -> Ints:
    """Return the flow as rows: from a task to its rack nodes, and from these to pairs."""
    member_of = {node: m for (_, m), node in pair.items()}
    task_of: dict[int, int] = {}
    rows: list[list[int]] = [[] for _ in range(given.tasks)]
    used = [(flow.tail(a), flow.head(a)) for a in range(flow.num_arcs()) if flow.flow(a)]
    for tail, head in used:
        if tail < given.tasks:
            task_of[head] = tail
    for tail, head in used:
        if tail in task_of and head in member_of:
            rows[task_of[tail]].append(member_of[head])
    return np.array(rows, dtype=np.int64)
