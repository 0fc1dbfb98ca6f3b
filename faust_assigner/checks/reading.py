"""Derive units (co-partitioned groups), owners and copies from the members' claims, in plain Python.

A number is a partition number of a unit; (unit, number) is a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from faust_assigner.claims import claim_on, numbers
from faust_assigner.model import NOBODY, Member


@dataclass(frozen=True)
class Unit:
    """A co-partitioned group: topics with the same partition count and the same subscribers.

    ``who``: the indexes of the subscribers; ``leader``: the index of the unit that a changelog-only unit
    follows.
    """

    topics: tuple[str, ...]
    changelogs: tuple[str, ...]
    count: int
    who: frozenset[int]
    leader: int | None = None
    weightless: bool = False

    @property
    def adds_load(self) -> bool:
        """Whether the unit's tasks count in the balance; see :attr:`faust_assigner.model.Group.adds_load`."""
        return self.leader is None and not self.weightless

    @property
    def only_changelogs(self) -> bool:
        """Whether all topics of the unit are changelogs."""
        return len(self.topics) == len(self.changelogs)


def units_of(
    members: list[Member],
    partitions: Mapping[str, int],
    changelogs: frozenset[str],
    weightless: frozenset[str],
) -> list[Unit]:
    """Return the co-partitioned groups, in the planner's order."""
    who: dict[str, set[int]] = {}
    for m, member in enumerate(members):
        for topic in member.topics:
            if isinstance(topic, str) and partitions.get(topic, 0) > 0:
                who.setdefault(topic, set()).add(m)
    together: dict[tuple[int, frozenset[int], bool], list[str]] = {}
    for topic in sorted(who):
        together.setdefault(
            (partitions[topic], frozenset(who[topic]), topic in weightless), []
        ).append(topic)
    units = [
        Unit(
            tuple(topics), tuple(t for t in topics if t in changelogs), count, mine, weightless=idle
        )
        for (count, mine, idle), topics in together.items()
    ]
    units.sort(key=lambda u: (u.count, -len(u.who), u.weightless, u.topics[0]))
    return [replace(unit, leader=_followed_unit(unit, units)) for unit in units]


def _followed_unit(unit: Unit, units: list[Unit]) -> int | None:
    """Return the unit that a changelog-only unit follows: a wider unit, with most common members."""
    if not unit.only_changelogs:
        return None
    wider = [
        (-len(unit.who & other.who), -len(other.who), u)
        for u, other in enumerate(units)
        if other.count == unit.count
        and not other.only_changelogs
        and not other.weightless
        and len(other.who) >= len(unit.who)
        and unit.who & other.who
    ]
    return min(wider)[2] if wider else None


def generation_of(member: Member) -> int:
    """Return the generation of the member's claims; -1 if the generation is invalid."""
    return member.generation if type(member.generation) is int else -1


def former_generation(member: Member) -> int:
    """Return the generation in which the member owned its former partitions."""
    date = member.former_generation
    return (
        generation_of(member) if date is None else generation_of(replace(member, generation=date))
    )


def last_owners(unit: Unit, members: list[Member], before: list[int]) -> list[int]:
    """Return the owner of each number; for a number without an owner, its former owner.

    A former owner counts if it had no later assignment and no other member holds more of the state.
    """
    copies, remembered = copies_of(unit, members), accepted_owners(unit, members, "former_actives")
    since = {
        m for m, member in enumerate(members) if former_generation(member) < generation_of(member)
    }
    return [
        owner
        if owner != NOBODY
        or former in since
        or holders.get(former, 0) < max(holders.values(), default=0)
        else former
        for owner, former, holders in zip(before, remembered, copies, strict=True)
    ]


def accepted_owners(unit: Unit, members: list[Member], side: str) -> list[int]:
    """Return the accepted owner of each number, or NOBODY.

    Only claims of the newest generation count. A topic that two members claim does not count. The member
    with the most counting topics is the owner.
    """
    claims: list[dict[str, set[int]]] = [{} for _ in range(unit.count)]
    for m in sorted(unit.who):
        for topic in unit.topics:
            for p in set(numbers(claim_on(getattr(members[m], side), topic), unit.count).tolist()):
                claims[p].setdefault(topic, set()).add(m)
    sources = [t for t in unit.topics if t not in unit.changelogs]
    order = {t: i for i, t in enumerate([*sources, *unit.changelogs])}
    dates = [
        former_generation(m) if side == "former_actives" else generation_of(m) for m in members
    ]
    return [_accepted_claim(of_number, dates, order) for of_number in claims]


def _accepted_claim(of_number: dict[str, set[int]], dates: list[int], order: dict[str, int]) -> int:
    if not of_number:
        return NOBODY
    newest = max(dates[m] for claimants in of_number.values() for m in claimants)
    votes: dict[int, list[int]] = {}
    for topic, claimants in of_number.items():
        heard = [m for m in claimants if dates[m] == newest]
        if len(heard) == 1:
            votes.setdefault(heard[0], []).append(order[topic])
    return min(votes, key=lambda m: (-len(votes[m]), min(votes[m]))) if votes else NOBODY


def copies_of(unit: Unit, members: list[Member]) -> list[dict[int, int]]:
    """Return for each number: member -> how many of the number's changelogs the member holds."""
    found: list[dict[int, int]] = [{} for _ in range(unit.count)]
    for m in sorted(unit.who):
        for topic in unit.topics:
            for p in numbers(claim_on(members[m].actives, topic), unit.count).tolist():
                found[p][m] = len(unit.changelogs)
    for m in sorted(unit.who):
        once: Counter[int] = Counter()
        for topic in unit.changelogs:
            once.update(set(numbers(claim_on(members[m].standbys, topic), unit.count).tolist()))
        for p, logs in once.items():
            found[p][m] = max(found[p].get(m, 0), logs)
    return found
