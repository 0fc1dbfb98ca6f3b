"""Check A1, A2, A4 and A5: one owner per partition, tasks that stay whole, even and sticky actives."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeAlias

import numpy as np

from faust_assigner.actives.counts import flow_rates
from faust_assigner.checks.case import Answer, Case, Violation
from faust_assigner.checks.optimality import improving_cycle
from faust_assigner.checks.reading import copies_of
from faust_assigner.checks.waiting import Task
from faust_assigner.model import NOBODY

#: Topic -> the owner (member index, or ``NOBODY``) of each of its partitions.
Owners: TypeAlias = dict[str, list[int]]


def check_one_active_each(case: Case, plan: Answer, owners: Owners) -> Iterable[Violation]:
    """Check that each partition has one subscribed owner (A1); write the owners to ``owners``."""
    for m, name in enumerate(case.ids):
        for topic, given in plan.actives(name).items():
            unit = case.unit_of.get(topic)
            if unit is None or m not in case.units[unit].who:
                yield Violation("A1", f"{name} owns {topic} without a subscription")
                continue
            for p in given:
                if not 0 <= p < case.partitions[topic]:
                    yield Violation("A1", f"{name} owns {topic}-{p}, which does not exist")
                elif owners[topic][p] != NOBODY:
                    other = case.ids[owners[topic][p]]
                    yield Violation("A1", f"{topic}-{p} is owned by {other} and {name}")
                else:
                    owners[topic][p] = m
    for topic, owner in owners.items():
        if NOBODY in owner:
            yield Violation("A1", f"{topic}-{owner.index(NOBODY)} has no owner")


def check_tasks_stay_whole(case: Case, owners: Owners) -> Iterable[Violation]:
    """Check that all partitions of a task have the same owner (A2)."""
    for unit in case.units:
        first = owners[unit.topics[0]]
        for topic in unit.topics[1:]:
            if owners[topic] != first:
                yield Violation("A2", f"{topic} is separated from {unit.topics[0]}")
        if unit.leader is not None:
            leads = owners[case.units[unit.leader].topics[0]]
            for p, m in enumerate(leads):
                if m in unit.who and first[p] != m:
                    yield Violation(
                        "A2", f"{unit.topics[0]}-{p} is separated from its source on {case.ids[m]}"
                    )


def check_promotions(
    case: Case, unit_owner: list[list[int]]
) -> Generator[Violation, None, set[Task]]:
    """Check that each orphan goes to a member that holds most of its state (A5); return these orphans.

    An orphan is a stateful task without a living owner; only orphans with a living copy are checked.
    """
    promoted: set[Task] = set()
    for u, unit in enumerate(case.units):
        if not unit.changelogs or unit.leader is not None:
            continue
        copies = copies_of(unit, case.members)
        for p, holders in enumerate(copies):
            if case.before[u][p] != NOBODY or not holders:
                continue
            promoted.add((u, p))
            most = max(holders.values())
            if holders.get(unit_owner[u][p], 0) < most:
                owner = case.ids[unit_owner[u][p]] if unit_owner[u][p] != NOBODY else "nobody"
                yield Violation(
                    "A5",
                    f"orphan {unit.topics[0]}-{p} went to {owner}, "
                    "but another living member holds more of its state",
                )
    return promoted


def check_on_target(
    case: Case, unit_owner: list[list[int]], target: list[list[int]], promoted: set[Task]
) -> Iterable[Violation]:
    """Check that each task is on its target, unless the task was promoted or must wait (A5)."""
    for u, (here, there) in enumerate(zip(unit_owner, target, strict=True)):
        for p, (owner, wanted) in enumerate(zip(here, there, strict=True)):
            if (u, p) in promoted or not case.units[u].adds_load:
                continue
            name = f"{case.units[u].topics[0]}-{p}"
            if case.waiting is not None and case.waiting.must_wait(u, p, wanted):
                if owner != case.before[u][p]:
                    yield Violation("A5", f"{name} moved before {case.ids[wanted]} has caught up")
            elif owner != wanted:
                yield Violation("A5", f"{name} is off its target without a promotion")


def check_even_and_sticky(case: Case, target: list[list[int]]) -> Iterable[Violation]:
    """Check that no target is more even (A4), and that no equally even target moves fewer tasks (A5)."""
    rows = [u for u, unit in enumerate(case.units) if unit.adds_load]
    who = sorted(set().union(*(case.units[u].who for u in rows))) if rows else []
    if not who:
        return
    counts, had, stayed = (np.zeros((len(rows), len(case.ids)), dtype=np.int64) for _ in range(3))
    allowed = np.zeros(counts.shape, dtype=np.bool_)
    for row, u in enumerate(rows):
        allowed[row, sorted(case.units[u].who)] = True
        for owner, was in zip(target[u], case.last[u], strict=True):
            counts[row, owner] += owner != NOBODY
            had[row, was] += was != NOBODY
            stayed[row, owner] += owner == was != NOBODY
    capacity = np.array([float(m.capacity) for m in case.members])
    sizes = np.array([case.units[u].count for u in rows], dtype=np.int64)
    rates = flow_rates(sizes, allowed[:, who], capacity[who])
    term = improving_cycle(counts[:, who], allowed[:, who], had[:, who], rates)
    if term is not None:
        yield Violation("A5" if term == "stickiness" else "A4", f"{term} could be better")
    lost = np.minimum(counts, had) - stayed
    if lost.any():
        row, m = np.argwhere(lost)[0].tolist()
        yield Violation(
            "A5",
            f"{case.ids[m]} could keep {lost[row, m]} more of its previous "
            f"{case.units[rows[row]].topics[0]} partitions",
        )
