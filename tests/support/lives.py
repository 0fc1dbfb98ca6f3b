"""Lives of groups for records of whole results: rounds with the members' claims at their start.

The events are those of :mod:`tests.scenarios.test_plans_of_record`, drawn from other seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from faust_assigner import Member, Plan
from tests.scenarios.test_plans_of_record import EVENTS, LARGE, LIVES, Life


@dataclass(frozen=True)
class Turn:
    """A round: its events, the members' claims at its start, and its plan."""

    name: str
    members: tuple[Member, ...]
    plan: Plan


def turns(seed: str, kind: str, count: int = 5, **more: object) -> Iterator[Turn]:
    """Play a life of a kind of ``LIVES``: five joins, then rounds after two events each."""
    life = Life(Random(f"{seed} {kind}"), **{**{**LARGE, **LIVES}[kind], **more})  # type: ignore[arg-type]
    for _ in range(5):
        life.join()
    for turn in range(count):
        happened = []
        for _ in range(2 if turn else 0):
            event = EVENTS[life.pick(len(EVENTS))]
            event(life)
            happened.append(event.__name__)
        members = tuple(
            replace(one, positions=life._positions(one)) for one in life.members.values()
        )
        yield Turn(f"# {kind}, {turn}: {' '.join(happened) or 'start'}", members, life.round())


def compare(section: str, lines: Iterable[str], record: Path) -> None:
    """Fail at the first line that differs from the record's section."""
    assert list(lines) == _sections(record)[section]


@cache
def _sections(record: Path) -> Mapping[str, list[str]]:
    found = record.read_text(encoding="utf-8").split("## ")[1:]
    return {one.partition("\n")[0]: one.splitlines()[1:] for one in found}


def write(record: Path, sections: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Write the record of today, to be read before it is kept."""
    lines = [line for name, part in sections for line in (f"## {name}", *part)]
    record.write_text("\n".join([*lines, ""]), encoding="utf-8")
