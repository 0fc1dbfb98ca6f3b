"""The figures, rules and explanations of the plans of lives, line by line: ``record.txt``.

``python -m tests.unit.views.test_record`` writes the record of today, to be read before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.test_plans_of_record import letters, told
from tests.support.lives import Turn, compare, turns, write

RECORD = Path(__file__).with_name("record.txt")
KINDS = ("warm-ups, mixed", "warm-ups, weights", "weights, mixed", "mixed, uneven, racks", "plain")


def moves(turn: Turn) -> Iterator[str]:
    """Yield the tasks that moved and the owners that later rounds bring, by group."""
    made = turn.plan
    yield repr(made)
    for g, group in enumerate(made.groups):
        onward = "-" if made.wanted is None else letters(made.wanted[g])
        yield (
            f"{group.group_id} moved {''.join('-!'[int(m)] for m in made.moved[g])} "
            f"hit {''.join('-!'[int(h)] for h in made.standby_hit[g])} onward {onward}"
        )


def explanations(turn: Turn) -> Iterator[str]:
    """Yield an explanation for each rule in each group."""
    made = turn.plan
    for g, group in enumerate(made.groups):
        for rule in sorted(set(made.rule[g].tolist())):
            number = made.rule[g].tolist().index(rule)
            topic = group.topics[-1 if number % 2 else 0]
            yield str(made.explain(topic, number))


SECTIONS = KINDS


def record(kind: str) -> Iterator[str]:
    """Yield the turns of a life."""
    for number, turn in enumerate(turns("views", kind)):
        yield turn.name
        if number:
            yield from told(turn.plan)
            yield from moves(turn)
            yield from "\n".join(explanations(turn)).splitlines()
        if number == 2:
            yield from str(turn.plan.report()).splitlines()


@pytest.mark.parametrize("name", SECTIONS)
def test_the_views_of_plans_are_those_of_the_record(name: str) -> None:
    """The record has figures with their meanings, moves, and the reason of a task of each rule."""
    compare(name, record(name), RECORD)


if __name__ == "__main__":
    write(RECORD, ((name, record(name)) for name in SECTIONS))
