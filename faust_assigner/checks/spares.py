"""Check A2, A3 and A4: each task has its standbys, on distinct members and racks, evenly spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from faust_assigner.checks.case import Answer, Case, Violation
from faust_assigner.checks.reading import Unit
from faust_assigner.checks.waiting import Task
from faust_assigner.model import NOBODY


def read_standbys(case: Case, plan: Answer) -> Generator[Violation, None, dict[Task, list[int]]]:
    """Return the members with each task's standbys and warm-ups; yield a violation per invalid standby."""
    held: dict[str, list[list[int]]] = {
        t: [[] for _ in range(unit.count)] for unit in case.units for t in unit.changelogs
    }
    for m, name in enumerate(case.ids):
        for topic, given in plan.standbys(name).items():
            for p in given:
                if topic not in held or not 0 <= p < case.partitions[topic]:
                    yield Violation(
                        "A3", f"{name} has a standby of {topic}-{p}, which has no state"
                    )
                else:
                    held[topic][p].append(m)
    for unit in case.units:
        for topic in unit.changelogs:
            if held[topic] != held[unit.changelogs[0]]:
                yield Violation("A2", f"standbys of {topic} differ from {unit.changelogs[0]}")
    return {
        (u, p): spares
        for u, unit in enumerate(case.units)
        if unit.changelogs
        for p, spares in enumerate(held[unit.changelogs[0]])
    }


def remove_warmups(case: Case, plan: Answer, held: dict[Task, list[int]]) -> dict[Task, list[int]]:
    """Remove a plan's warm-ups from ``held``; return the members with the warm-ups of each task."""
    warming: dict[Task, list[int]] = {}
    told: Any = getattr(plan, "warmups", lambda _: {})
    for m, name in enumerate(case.ids):
        for topic, given in told(name).items():
            unit = case.units[case.unit_of[topic]]
            for p in given if topic == unit.changelogs[0] else ():
                key = case.unit_of[topic], p
                warming.setdefault(key, []).append(m)
                held[key] = [other for other in held[key] if other != m]
    return warming


def check_standbys(
    case: Case, held: Mapping[Task, list[int]], unit_owner: list[list[int]]
) -> Iterable[Violation]:
    """Check each task's standbys (A3), and, if all members are alike, that standbys are even (A4)."""
    rows: list[tuple[int, list[int]]] = []
    for (u, p), spares in held.items():
        unit, owner = case.units[u], unit_owner[u][p]
        rows.append((owner, spares))
        yield from _check_standbys_of(case, unit, f"{unit.changelogs[0]}-{p}", owner, spares)
    everyone = frozenset(range(len(case.ids)))
    plain = len({m.capacity for m in case.members}) <= 1
    flat = len(set(case.rack)) in (1, len(case.rack))
    if plain and flat and all(unit.who == everyone for unit in case.units if unit.changelogs):
        yield from _check_even(case, rows)


def _check_even(case: Case, rows: list[tuple[int, list[int]]]) -> Iterable[Violation]:
    """Check that standby loads differ by at most 1, or that no chain of moves makes them more even."""
    load = Counter(m for _, spares in rows for m in spares)
    loads = [load[m] for m in range(len(case.ids))]
    if not rows or max(loads) - min(loads) <= 1:
        return
    passes: dict[int, set[int]] = {m: set() for m in range(len(case.ids))}
    for owner, spares in rows:
        for m in spares:
            passes[m] |= passes.keys() - {owner, *spares}
    for m in passes:
        reached, ahead = {m}, [m]
        while ahead:
            new = passes[ahead.pop()] - reached
            reached |= new
            ahead += new
        if min(loads[other] for other in reached) < loads[m] - 1:
            yield Violation(
                "A4",
                f"standbys range from {min(loads)} to {max(loads)} per member, "
                f"and {case.ids[m]} could pass a standby on",
            )
            return


def _check_standbys_of(
    case: Case, unit: Unit, name: str, owner: int, spares: list[int]
) -> Iterable[Violation]:
    wanted = min(case.replicas, len(unit.who) - 1)
    if len(spares) != wanted or len(set(spares)) != wanted:
        yield Violation("A3", f"{name} has {len(set(spares))} standbys instead of {wanted}")
    if owner in spares:
        yield Violation("A3", f"{name} has a standby beside its active on {case.ids[owner]}")
    if not unit.who.issuperset(spares):
        yield Violation("A3", f"{name} has a standby on a member that does not subscribe")
    if owner == NOBODY:
        return
    elsewhere = sum(1 for m in unit.who if case.rack[m] != case.rack[owner])
    away = sum(1 for m in spares if case.rack[m] != case.rack[owner])
    if away < min(wanted, elsewhere):
        yield Violation(
            "A3", f"{name} has {away} standbys outside the active's rack; {elsewhere} are possible"
        )
