"""The violations of sound and spoiled plans, line by line: ``record.txt``.

``python -m tests.unit.checks.test_record`` writes the record of today, to be read before it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from faust_assigner import Member
from faust_assigner.checks.invariants import carried, check
from faust_assigner.checks.reading import Unit, accepted_owners, copies_of, last_owners, units_of
from faust_assigner.checks.waiting import WarmupRule
from faust_assigner.warmup import WarmupPolicy
from tests.scenarios.test_plans_of_record import LIVES, LOGS, TOPICS, letters
from tests.support.lives import Turn, compare, turns, write

RECORD = Path(__file__).with_name("record.txt")
#: Section -> the kind of its life, with what differs.
KINDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "warm-ups, mixed": ("warm-ups, mixed", {}),
    "warm-ups": ("warm-ups", {}),
    "two copies, racks": ("two copies, racks", {}),
    "mixed, uneven, racks": ("mixed, uneven, racks", {}),
    "uneven": ("standbys", {"is_uneven": True}),
    "mixed, three copies": ("mixed", {"replicas": 3}),
}
POLICY = WarmupPolicy(acceptable_recovery_lag=300, max_per_member=2, max_per_group=5)


def options(section: str) -> Mapping[str, Any]:
    """The options of a section's life."""
    kind, more = KINDS[section]
    return {**LIVES[kind], **more}


Named = dict[str, dict[str, list[int]]]


@dataclass(frozen=True, kw_only=True)
class Said:
    """A plan by name, as a test spoils it."""

    owned: Named
    copied: Named
    warming: Named
    groups: Sequence[Any]
    owner: Any
    standby: Any
    target: Any
    wanted: Any

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Topic -> owned partitions."""
        return self.owned.get(member_id, {})

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Changelog -> copied partitions."""
        return self.copied.get(member_id, {})

    def warmups(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Changelog -> warm-ups."""
        return self.warming.get(member_id, {})


def said(turn: Turn) -> Said:
    """The plan of a turn."""
    made, ids = turn.plan, turn.plan.member_ids
    return Said(
        owned={name: made.actives(name) for name in ids},
        copied={name: made.standbys(name) for name in ids},
        warming={name: made.warmups(name) for name in ids},
        groups=made.groups,
        owner=made.owner,
        standby=made.standby,
        target=made.target,
        wanted=made.wanted,
    )


def given(named: Named, source: str, target: str, topics: Sequence[str], most: int) -> Named:
    """Move the first ``most`` partitions of each topic from one member to another."""
    found = {name: {t: list(n) for t, n in held.items()} for name, held in named.items()}
    for topic in topics:
        numbers = found[source].get(topic, [])[:most]
        if numbers:
            left = found[source][topic][most:]
            found[source] = {t: n for t, n in found[source].items() if t != topic or left}
            if left:
                found[source][topic] = left
            found[target][topic] = sorted([*found[target].get(topic, []), *numbers])
    return found


def added(named: Named, name: str, topic: str, *numbers: int) -> Named:
    """Add partitions to a member."""
    held = named[name]
    return {**named, name: {**held, topic: [*held.get(topic, []), *numbers]}}


def spoiled(one: Said) -> Iterator[tuple[str, Said]]:
    """Yield the plan, then the plan with one fault each."""
    first, *_, last = sorted(one.owned)
    yield "as planned", one
    yield "without targets", replace(one, target=None, wanted=None)
    yield ("a task elsewhere", replace(one, owned=given(one.owned, first, last, list(TOPICS), 1)))
    yield (
        "a changelog apart",
        replace(one, owned=given(one.owned, last, first, ["users-log", "rates-log"], 1)),
    )
    yield (
        "all tasks of a member elsewhere",
        replace(one, owned=given(one.owned, last, first, list(TOPICS), 99), target=None),
    )
    yield "owned twice", replace(one, owned=added(one.owned, last, "orders", 0, 8))
    yield (
        "beyond the last partition",
        replace(one, owned=added(one.owned, first, "clicks", 7, -1)),
    )
    yield "an unknown topic", replace(one, owned=added(one.owned, first, "nothing", 0))
    yield "without owners", replace(one, owned={**one.owned, first: {}})
    yield "a copy elsewhere", replace(one, copied=given(one.copied, first, last, LOGS, 2))
    yield (
        "a copy of one table elsewhere",
        replace(one, copied=given(one.copied, first, last, ["rates-log"], 1)),
    )
    names = sorted(one.owned)
    yield (
        "each member's tasks on the next",
        replace(
            one, owned=dict(zip(names, (one.owned[n] for n in [*names[1:], first]), strict=True))
        ),
    )
    yield "a copy twice", replace(one, copied=added(one.copied, last, "users-log", 0, 1))
    yield (
        "copies that do not exist",
        replace(one, copied=added(one.copied, last, "users-log", 5, -1)),
    )
    yield "a copy of no table", replace(one, copied=added(one.copied, first, "orders", 3))
    yield "without copies", replace(one, copied={**one.copied, last: {}})
    yield "without warm-ups", replace(one, warming={})
    yield (
        "warm-ups everywhere",
        replace(one, warming={name: {"rates-log": [0, 1, 2, 3]} for name in one.owned}),
    )


def members_in_words(turn: Turn) -> Iterator[str]:
    """Yield the units, their owners and copies by the members' claims, and the tasks that wait."""
    members = sorted(turn.members, key=lambda one: one.member_id)
    units = units_of(members, TOPICS, frozenset(LOGS), frozenset(["lead"]))
    before = [accepted_owners(unit, members, "actives") for unit in units]
    waiting = WarmupRule(units, members, before, POLICY)
    for u, unit in enumerate(units):
        yield in_words(unit, members, before[u])
        waits = [
            letters([m if waiting.must_wait(u, p, m) else -1 for m in range(len(members))])
            for p in range(unit.count)
        ]
        yield f"  waits {' '.join(waits)}"


def in_words(unit: Unit, members: list[Member], before: list[int]) -> str:
    """A unit's topics, leader and subscribers, and its owners."""
    copies = [
        ",".join(f"{letters([m])}{logs}" for m, logs in sorted(held.items()))
        for held in copies_of(unit, members)
    ]
    return (
        f"{'+'.join(unit.topics)} tables {'+'.join(unit.changelogs)} {unit.count} of "
        f"{letters(sorted(unit.who))} leader {unit.leader} {unit.weightless} {unit.adds_load} "
        f"{unit.only_changelogs} was {letters(before)} "
        f"former {letters(accepted_owners(unit, members, 'former_actives'))} "
        f"last {letters(last_owners(unit, members, before))} copies {' '.join(copies)}"
    )


def violations(turn: Turn, kind: str) -> Iterator[str]:
    """Yield the violations of each spoiled plan."""
    for name, one in spoiled(said(turn)):
        found = check(
            turn.members,
            TOPICS,
            one,
            replicas=options(kind).get("replicas", 1),
            changelogs=LOGS,
            weightless=["lead"],
            warmups=POLICY if options(kind).get("warmups") else None,
        )
        yield f"{name}:"
        yield from (f"  {each}" for each in found)


def restless(turn: Turn, kind: str) -> Iterator[str]:
    """Yield the violations of planners that change their plan, and of one that depends on the order."""
    one = said(turn)
    first, *_, last = sorted(one.owned)
    other = replace(one, owned=given(one.owned, first, last, ["clicks"], 1))
    another = replace(one, copied=given(one.copied, first, last, LOGS, 1))

    def by_turns(*plans: Said) -> Callable[[Sequence[Member]], Said]:
        calls = iter(range(1000))
        return lambda members: plans[next(calls) % len(plans)]

    planners: dict[str, Callable[[Sequence[Member]], Said]] = {
        "steady": lambda members: one,
        "restless owners": by_turns(one, other),
        "restless copies": by_turns(one, another, one),
        "by order": lambda members: one if members[0].member_id == first else other,
    }
    for name, planner in planners.items():
        found = check(
            turn.members,
            TOPICS,
            one,
            replicas=options(kind).get("replicas", 1),
            changelogs=LOGS,
            weightless=["lead"],
            warmups=POLICY if options(kind).get("warmups") else None,
            planner=planner,
        )
        yield f"{name}:"
        yield from (f"  {each}" for each in found if each.promise in ("A6", "A8"))


def carry(turn: Turn) -> Iterator[str]:
    """Yield the members one generation later."""
    for one in carried(turn.members, turn.plan)[:2]:
        yield f"{one.member_id} {one.generation} {one.actives} {one.standbys} {one.awaited}"


SECTIONS = tuple(KINDS)


def record(kind: str) -> Iterator[str]:
    """Yield the turns of a life."""
    base, more = KINDS[kind]
    for number, turn in enumerate(turns("checks", base, 4, **more)):
        yield turn.name
        yield from members_in_words(turn)
        if number and (number % 2 or options(kind).get("warmups")):
            yield from violations(turn, kind)
            yield from restless(turn, kind)
            yield from carry(turn)


@pytest.mark.parametrize("name", SECTIONS)
def test_the_violations_of_spoiled_plans_are_those_of_the_record(name: str) -> None:
    """The record has units, owners, copies, waiting tasks, and the violations of each fault."""
    compare(name, record(name), RECORD)


if __name__ == "__main__":
    write(RECORD, ((name, record(name)) for name in SECTIONS))
