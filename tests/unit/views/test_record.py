"""The figures, rules and explanations of the plans of lives, line by line: ``record.txt``.

``python -m tests.unit.views.test_record`` writes the record of today, to be read before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faust_assigner import Member, plan
from faust_assigner.views.placed import PROMOTED, RETURNED
from tests.scenarios.test_plans_of_record import LOGS, TOPICS, letters, told
from tests.support.lives import Turn, compare, turns, write

RECORD = Path(__file__).with_name("record.txt")
KINDS = (
    "warm-ups, mixed",
    "warm-ups, weights",
    "weights, mixed",
    "mixed, uneven, racks",
    "plain",
    "standbys",
    "two copies, racks",
)


def moves(turn: Turn) -> Iterator[str]:
    """Yield the tasks that moved and the owners that later rounds bring, by group."""
    made = turn.plan
    yield repr(made)
    for g, group in enumerate(made.groups):
        target = "-" if made.wanted is None else letters(made.wanted[g])
        yield (
            f"{group.group_id} moved {''.join('-!'[int(m)] for m in made.moved[g])} "
            f"hit {''.join('-!'[int(h)] for h in made.standby_hit[g])} target {target}"
        )


def explanations(turn: Turn) -> Iterator[str]:
    """Yield an explanation for each rule in each group, and for each task that its state placed."""
    made = turn.plan
    for g, group in enumerate(made.groups):
        rules = made.rule[g].tolist()
        for number, rule in enumerate(rules):
            if rule not in (PROMOTED, RETURNED) and rules.index(rule) != number:
                continue
            topic = group.topics[-1 if number % 2 else 0]
            yield str(made.explain(topic, number))


def made_by_hand() -> Iterator[str]:
    """Yield the figures of a group in which some members have no load, or no table."""
    members = [
        Member("all", TOPICS, actives={"clicks": [0, 1, 2], "orders": [0]}, capacity=2.0),
        Member("clicks", ["clicks", "lead"], actives={"clicks": [3], "lead": [0]}),
        Member("lead", ["lead"], former_actives={"lead": [0]}),
        Member("tables", [*LOGS, "orders"], standbys={"orders-log": [3, 4]}),
        Member("users", ["users", "users-log"], former_actives={"users": [1, 4]}, generation=3),
    ]
    for replicas in (0, 2):
        made = plan(members, TOPICS, replicas=replicas, changelogs=LOGS, weightless=["lead"])
        yield from str(made.report()).splitlines()
        yield str(made.report()["groups"])
        yield from "\n".join(explanations(Turn("", tuple(members), made))).splitlines()


SECTIONS = (*KINDS, "by hand")


def record(kind: str) -> Iterator[str]:
    """Yield the turns of a life."""
    if kind == "by hand":
        yield from made_by_hand()
        return
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
