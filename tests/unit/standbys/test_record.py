"""The input, the shares, the places and the figures of standbys in lives, line by line: ``record.txt``.

``python -m tests.unit.standbys.test_record`` writes the record of today, to be read before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faust_assigner.standby import StandbyAssignor
from faust_assigner.standbys.derive import derive_problem
from faust_assigner.standbys.failover import Deaths, measure
from faust_assigner.standbys.problem import StandbyProblem
from faust_assigner.standbys.shares import fair_shares
from tests.scenarios.test_plans_of_record import letters
from tests.support.lives import Turn, compare, turns, write

RECORD = Path(__file__).with_name("record.txt")
KINDS: dict[str, dict[str, Any]] = {
    "two copies, racks": {"size": 2},
    "three copies, two racks": {},
    "mixed, uneven, racks": {"size": 2},
    "mixed": {},
    "standbys": {"size": 3},
}


def table(rows: Any) -> str:
    """A matrix in one line."""
    return "/".join(",".join(f"{one:g}" for one in row) for row in rows)


def of_deaths(name: str, deaths: Deaths) -> str:
    """The survivors of each death."""
    return (
        f"  {name} dies: {letters(deaths.promoted)} peaks {deaths.peak.tolist()} bounds "
        f"{deaths.bound.tolist()} worst {deaths.worst} ideal {deaths.ideal} excess {deaths.excess}"
    )


def problem_in_words(problem: StandbyProblem) -> Iterator[str]:
    """Yield the input and the shares."""
    pairs = zip(problem.copy_task.tolist(), problem.copy_member.tolist(), strict=True)
    copies = " ".join(
        f"{task}{letters([m])}{'s' * bool(was)}"
        for (task, m), was in zip(pairs, problem.copy_was_standby.tolist(), strict=True)
    )
    yield f"  owner {letters(problem.owner)} copies {copies}"
    yield (
        f"  wanted {problem.wanted_task.tolist()} on {letters(problem.wanted_member)} "
        f"load {problem.load.tolist()} of {problem.tasks} tasks, {problem.members} members"
    )
    shares = fair_shares(problem)
    yield (
        f"  need {letters(shares.need)} outside {letters(shares.outside)} "
        f"distinct {letters(shares.distinct)} racks {shares.rack.tolist()} {shares.has_racks} "
        f"{shares.lopsided}"
    )
    yield f"  even {table(shares.even)} cap {table(shares.cap)} limit {table(shares.limit)}"


def placed(problem: StandbyProblem) -> Iterator[str]:
    """Yield the standbys and their figures."""
    standbys = StandbyAssignor().place(problem)
    figures = measure(problem, standbys)
    yield f"  standbys {' '.join(letters(column) for column in standbys.T)}"
    yield (
        f"  spread {figures.spread} fresh {figures.fresh_copies} same rack {figures.same_rack} "
        f"avoidable {figures.same_rack_avoidable}"
    )
    yield of_deaths("a member", figures.member_death)
    if figures.rack_death is not None:
        yield of_deaths("a rack", figures.rack_death)


def problems(turn: Turn) -> Iterator[StandbyProblem]:
    """Yield the turn's input, the same with half of the copies and one standby more."""
    made = turn.plan
    found = derive_problem(
        made.layout, made.previous, made.flat_owner, made.flat_target, made.replicas
    )
    yield found
    half = np.arange(0, found.copy_task.size, 2)
    yield replace(
        found,
        copy_task=found.copy_task[half],
        copy_member=found.copy_member[half],
        copy_was_standby=found.copy_was_standby[half],
        replicas=found.replicas + 1,
    )


SECTIONS = tuple(KINDS)


def record(kind: str) -> Iterator[str]:
    """Yield the turns of a life."""
    for turn in turns("copies", kind, 5, **KINDS[kind]):
        yield turn.name
        for problem in problems(turn):
            yield from problem_in_words(problem)
            yield from placed(problem)


@pytest.mark.parametrize("name", SECTIONS)
def test_the_standbys_of_lives_are_those_of_the_record(name: str) -> None:
    """The record has the input, the shares, the places and the survivors of each death."""
    compare(name, record(name), RECORD)


if __name__ == "__main__":
    write(RECORD, ((name, record(name)) for name in SECTIONS))
