"""Measure standbys: ``python benchmarks/standbys.py [--repeat N] [--large] [--json FILE]``.

One table: a source topic and its changelog. Each case is planned without history, after a join and after a
death. ``plan`` is the whole of ``plan()``, ``step`` the placement of standbys alone: medians of CPU time in
ms. ``spread`` is the difference between the most and the fewest standbys of a member. ``fresh`` counts copies
restored from nothing, ``least`` their minimum: the standbys of a new member, or the lost copies of the dead
member. ``beside`` counts standbys in the rack of their active. ``member`` and ``rack`` are the heaviest load
after the worst death of a member or rack, and after the slash its bound: the heaviest load + ceil(tasks of
the dead / peers). ``over`` is the largest excess over this bound, of any death.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from faust_assigner import Member, Plan, plan
from faust_assigner.standby import StandbyAssignor
from faust_assigner.standbys.derive import derive_problem, stateful_tasks
from faust_assigner.standbys.failover import measure

SIZES = ((10, 100), (20, 200), (10, 1_000), (16, 100), (7, 64), (100, 10_000))
LARGE = ((1_000, 10_000), (1_000, 100_000))
RACKS: dict[str, tuple[int, ...]] = {"none": (), "3 equal": (1, 1, 1), "3 unequal": (5, 3, 2)}


@dataclass(frozen=True)
class Row:
    """The figures of an event of a case; see the module."""

    members: int
    tasks: int
    replicas: int
    racks: str
    event: str
    plan_ms: float
    step_ms: float
    spread: int
    fresh: int
    least: int
    beside: int
    member: str
    rack: str
    over: int


def rack_id(index: int, shares: tuple[int, ...]) -> str | None:
    """Return the rack of a member: racks in proportion to the shares, interleaved."""
    if not shares:
        return None
    turn = index * 7 % sum(shares)
    return next(f"rack-{n}" for n in range(len(shares)) if turn < sum(shares[: n + 1]))


def team(before: Plan | None, indexes: list[int], shares: tuple[int, ...]) -> list[Member]:
    """Return the members with their claims from ``before``."""
    known = set(before.member_ids) if before is not None else set()
    members = []
    for index in indexes:
        name = f"m{index:05d}"
        mine = before is not None and name in known
        members.append(
            Member(
                name,
                ["orders", "orders-changelog"],
                rack_id=rack_id(index, shares),
                generation=1,
                actives=before.actives(name) if mine and before else {},
                standbys=before.standbys(name) if mine and before else {},
            )
        )
    return members


def run(members: int, tasks: int, replicas: int, racks: str, repeat: int) -> Iterator[Row]:
    """Plan without history, after a join and after a leave."""
    shares = RACKS[racks]
    partitions = {"orders": tasks, "orders-changelog": tasks}

    def planned(who: list[Member]) -> tuple[Plan, float]:
        times = []
        for _ in range(repeat):
            began = time.process_time()
            answer = plan(who, partitions, replicas=replicas, changelogs=["orders-changelog"])
            times.append(time.process_time() - began)
        return answer, statistics.median(times) * 1e3

    everyone = list(range(members))
    first, took = planned(team(None, everyone, shares))
    yield row(first, "fresh", took, racks, repeat, least=tasks * min(replicas, members - 1))
    joined, took = planned(team(first, [*everyone, members], shares))
    newcomers = sum(map(len, joined.standbys(f"m{members:05d}").values()))
    yield row(joined, "join", took, racks, repeat, least=newcomers)
    dead = members // 2
    gone = sum(map(len, first.standbys(f"m{dead:05d}").values()))
    gone += len(first.actives(f"m{dead:05d}")["orders"])
    left, took = planned(team(first, [m for m in everyone if m != dead], shares))
    yield row(left, "leave", took, racks, repeat, least=gone)


def row(answer: Plan, event: str, took: float, racks: str, repeat: int, *, least: int) -> Row:
    """Return the figures of a plan."""
    problem = derive_problem(
        answer.layout, answer.previous, answer.flat_owner, answer.flat_target, answer.replicas
    )
    times = []
    for _ in range(repeat):
        began = time.process_time()
        StandbyAssignor().place(problem)
        times.append(time.process_time() - began)
    figures = measure(problem, answer.flat_standby[stateful_tasks(answer.layout)])
    rack = figures.rack_death
    return Row(
        problem.members,
        problem.tasks,
        problem.replicas,
        racks,
        event,
        round(took, 1),
        round(statistics.median(times) * 1e3, 1),
        figures.spread,
        figures.fresh_copies,
        least,
        figures.same_rack,
        f"{figures.member_death.worst:.0f}/{figures.member_death.ideal:.0f}",
        f"{rack.worst:.0f}/{rack.ideal:.0f}" if rack is not None else "-",
        int(np.ceil(figures.member_death.excess)),
    )


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="1,000 members too")
    parser.add_argument("--small", action="store_true", help="the smallest size only")
    parser.add_argument("--json", help="write the rows here, too")
    options = parser.parse_args()
    sizes = SIZES[-2:-1] if options.small else SIZES + (LARGE if options.large else ())
    rows: list[Row] = []
    heads = list(Row.__dataclass_fields__)
    print("".join(f"{head:>10}" for head in heads))
    for members, tasks in sizes:
        for replicas in (1, 2):
            for racks in RACKS:
                for found in run(members, tasks, replicas, racks, options.repeat):
                    rows.append(found)
                    print("".join(f"{value!s:>10}" for value in asdict(found).values()), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([asdict(found) for found in rows], file, indent=1)


if __name__ == "__main__":
    main()
