"""Every promise of the planner as a function over (input, plan) that returns violations.

The checks read plans by name and derive owners and copies from the members' claims in plain Python. They
share no code with the planner, so the planner and its check cannot share a mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from faust_assigner.actives.counts import flow_rates
from faust_assigner.checks.optimality import improving_cycle
from faust_assigner.checks.reading import (
    Unit,
    accepted_owners,
    copies_of,
    generation_of,
    last_owners,
    units_of,
)
from faust_assigner.checks.waiting import Task, Waiting
from faust_assigner.model import NOBODY, Member
from faust_assigner.warmup import WarmupPolicy


class Answer(Protocol):
    """The checked plan, by name. A plan with ``promoted_tasks`` is checked against them."""

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return topic -> owned partitions."""
        ...

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return changelog topic -> replicated partitions."""
        ...


@dataclass(frozen=True, order=True)
class Violation:
    """A broken promise: its number in A1..A8, and the finding."""

    promise: str
    found: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.found}"


#: Plans again, for the promises that compare two plans: members -> plan.
Planner: TypeAlias = Callable[[Sequence[Member]], Answer]

_Owners: TypeAlias = dict[str, list[int]]


def check(
    members: Iterable[Member],
    partitions: Mapping[str, int],
    plan: Answer,
    *,
    replicas: int = 0,
    changelogs: Collection[str] = (),
    weightless: Collection[str] = (),
    warmups: WarmupPolicy | None = None,
    planner: Planner | None = None,
) -> list[Violation]:
    """Return all violations of A1-A8, sorted; an empty list if every promise is kept.

    A6 (unchanged input, unchanged output) and A8 (member order) are checked if ``planner`` is given. With
    ``warmups``, tasks wait for their state (A5), and warm-ups are counted apart from standbys (A3).
    Cost: plain Python over every partition and claim; the certificate of A4 and A5 is numpy.
    """
    case = _Case(
        sorted(members, key=lambda m: m.member_id),
        partitions,
        frozenset(changelogs),
        replicas,
        frozenset(weightless),
        warmups,
    )
    found = list(case.check(plan))
    if planner is not None:
        found += _settles(case, plan, planner)
        found += _ignores_order(case, plan, planner)
    return sorted(set(found))


class _Case:
    """One input, read in plain Python."""

    def __init__(
        self,
        members: list[Member],
        partitions: Mapping[str, int],
        changelogs: frozenset[str],
        replicas: int,
        weightless: frozenset[str],
        warmups: WarmupPolicy | None = None,
    ) -> None:
        self.members, self.partitions, self.replicas = members, partitions, replicas
        self.ids = [m.member_id for m in members]
        # A member without a rack is a separate rack.
        self.rack = [
            m.rack_id if isinstance(m.rack_id, str) else (i,) for i, m in enumerate(members)
        ]
        self.units = units_of(members, partitions, changelogs, weightless)
        self.unit_of = {topic: u for u, unit in enumerate(self.units) for topic in unit.topics}
        self.before = [accepted_owners(unit, members, "actives") for unit in self.units]
        self.last = [
            last_owners(unit, members, owner)
            for unit, owner in zip(self.units, self.before, strict=True)
        ]
        self.waiting = (
            None if warmups is None else Waiting(self.units, members, self.before, warmups)
        )

    def check(self, plan: Answer) -> Iterable[Violation]:
        """Check A1-A5 and A7 on one plan."""
        owners: _Owners = {t: [NOBODY] * self.partitions[t] for t in self.unit_of}
        yield from self._one_active_each(plan, owners)
        yield from self._tasks_stay_whole(owners)
        unit_owner = [owners[unit.topics[0]] for unit in self.units]
        promoted = yield from self._promotions(unit_owner)
        target = _target(self, plan, unit_owner)
        held = yield from self._held(plan)
        warming = _without_warmups(self, plan, held)
        yield from self._standbys(held, unit_owner)
        if self.waiting is not None:
            wanted = _by_unit(self, plan, getattr(plan, "wanted", None), target)
            for complaint in self.waiting.complaints(unit_owner, wanted, held, warming):
                yield Violation("A3", complaint)
        elif warming:
            yield Violation("A3", f"{len(warming)} warm-ups without a warm-up policy")
        yield from self._on_target(unit_owner, target, promoted)
        yield from self._even_and_sticky(target)

    # A1, A2 --------------------------------------------------------------------------------------

    def _one_active_each(self, plan: Answer, owners: _Owners) -> Iterable[Violation]:
        for m, name in enumerate(self.ids):
            for topic, given in plan.actives(name).items():
                unit = self.unit_of.get(topic)
                if unit is None or m not in self.units[unit].who:
                    yield Violation("A1", f"{name} owns {topic} without a subscription")
                    continue
                for p in given:
                    if not 0 <= p < self.partitions[topic]:
                        yield Violation("A1", f"{name} owns {topic}-{p}, which does not exist")
                    elif owners[topic][p] != NOBODY:
                        other = self.ids[owners[topic][p]]
                        yield Violation("A1", f"{topic}-{p} is owned by {other} and {name}")
                    else:
                        owners[topic][p] = m
        for topic, owner in owners.items():
            if NOBODY in owner:
                yield Violation("A1", f"{topic}-{owner.index(NOBODY)} has no owner")

    def _tasks_stay_whole(self, owners: _Owners) -> Iterable[Violation]:
        for unit in self.units:
            first = owners[unit.topics[0]]
            for topic in unit.topics[1:]:
                if owners[topic] != first:
                    yield Violation("A2", f"{topic} is separated from {unit.topics[0]}")
            if unit.leader is not None:
                leads = owners[self.units[unit.leader].topics[0]]
                for p, m in enumerate(leads):
                    if m in unit.who and first[p] != m:
                        yield Violation(
                            "A2",
                            f"{unit.topics[0]}-{p} is separated from its source on {self.ids[m]}",
                        )

    # A3, A4 (standbys) ---------------------------------------------------------------------------

    def _held(self, plan: Answer) -> Any:
        """Return the standbys of each task with warm-ups, and a violation for each invalid standby."""
        held: dict[str, list[list[int]]] = {
            t: [[] for _ in range(unit.count)] for unit in self.units for t in unit.changelogs
        }
        for m, name in enumerate(self.ids):
            for topic, given in plan.standbys(name).items():
                for p in given:
                    if topic not in held or not 0 <= p < self.partitions[topic]:
                        yield Violation(
                            "A3", f"{name} has a standby of {topic}-{p}, which has no state"
                        )
                    else:
                        held[topic][p].append(m)
        for unit in self.units:
            for topic in unit.changelogs:
                if held[topic] != held[unit.changelogs[0]]:
                    yield Violation("A2", f"standbys of {topic} differ from {unit.changelogs[0]}")
        return {
            (u, p): spares
            for u, unit in enumerate(self.units)
            if unit.changelogs
            for p, spares in enumerate(held[unit.changelogs[0]])
        }

    def _standbys(
        self, held: Mapping[Task, list[int]], unit_owner: list[list[int]]
    ) -> Iterable[Violation]:
        rows: list[tuple[int, list[int]]] = []
        for (u, p), spares in held.items():
            unit, owner = self.units[u], unit_owner[u][p]
            rows.append((owner, spares))
            yield from self._check_standbys(unit, f"{unit.changelogs[0]}-{p}", owner, spares)
        everyone = frozenset(range(len(self.ids)))
        plain = len({m.capacity for m in self.members}) <= 1
        flat = len(set(self.rack)) in (1, len(self.rack))
        if plain and flat and all(unit.who == everyone for unit in self.units if unit.changelogs):
            yield from self._even_standbys(rows)

    def _even_standbys(self, rows: list[tuple[int, list[int]]]) -> Iterable[Violation]:
        """Check that standby loads are within 1 of each other, or that no chain of moves evens them."""
        load = Counter(m for _, spares in rows for m in spares)
        loads = [load[m] for m in range(len(self.ids))]
        if not rows or max(loads) - min(loads) <= 1:
            return
        passes: dict[int, set[int]] = {m: set() for m in range(len(self.ids))}
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
                    f"and {self.ids[m]} could pass a standby on",
                )
                return

    def _check_standbys(
        self, unit: Unit, name: str, owner: int, spares: list[int]
    ) -> Iterable[Violation]:
        wanted = min(self.replicas, len(unit.who) - 1)
        if len(spares) != wanted or len(set(spares)) != wanted:
            yield Violation("A3", f"{name} has {len(set(spares))} standbys instead of {wanted}")
        if owner in spares:
            yield Violation("A3", f"{name} has a standby beside its active on {self.ids[owner]}")
        if not unit.who.issuperset(spares):
            yield Violation("A3", f"{name} has a standby on a member that does not subscribe")
        if owner == NOBODY:
            return
        elsewhere = sum(1 for m in unit.who if self.rack[m] != self.rack[owner])
        away = sum(1 for m in spares if self.rack[m] != self.rack[owner])
        if away < min(wanted, elsewhere):
            yield Violation(
                "A3",
                f"{name} has {away} standbys outside the active's rack; {elsewhere} are possible",
            )

    # A4 (actives), A5, promotions ----------------------------------------------------------------

    def _promotions(self, unit_owner: list[list[int]]) -> Any:
        """Check that each orphan with living state is on one of its best holders; return their members."""
        promoted: set[tuple[int, int]] = set()
        for u, unit in enumerate(self.units):
            if not unit.changelogs or unit.leader is not None:
                continue
            copies = copies_of(unit, self.members)
            for p, holders in enumerate(copies):
                if self.before[u][p] != NOBODY or not holders:
                    continue
                promoted.add((u, p))
                most = max(holders.values())
                if holders.get(unit_owner[u][p], 0) < most:
                    owner = self.ids[unit_owner[u][p]] if unit_owner[u][p] != NOBODY else "nobody"
                    yield Violation(
                        "A5",
                        f"orphan {unit.topics[0]}-{p} went to {owner}, "
                        "but another living member holds more of its state",
                    )
        return promoted

    def _on_target(
        self, unit_owner: list[list[int]], target: list[list[int]], promoted: set[tuple[int, int]]
    ) -> Iterable[Violation]:
        for u, (here, there) in enumerate(zip(unit_owner, target, strict=True)):
            for p, (owner, wanted) in enumerate(zip(here, there, strict=True)):
                if (u, p) in promoted or not self.units[u].adds_load:
                    continue
                name = f"{self.units[u].topics[0]}-{p}"
                if self.waiting is not None and self.waiting.must_wait(u, p, wanted):
                    if owner != self.before[u][p]:
                        yield Violation(
                            "A5", f"{name} moved before {self.ids[wanted]} has caught up"
                        )
                elif owner != wanted:
                    yield Violation("A5", f"{name} is off its target without a promotion")

    def _even_and_sticky(self, target: list[list[int]]) -> Iterable[Violation]:
        rows = [u for u, unit in enumerate(self.units) if unit.adds_load]
        who = sorted(set().union(*(self.units[u].who for u in rows))) if rows else []
        if not who:
            return
        counts, had, stayed = (
            np.zeros((len(rows), len(self.ids)), dtype=np.int64) for _ in range(3)
        )
        allowed = np.zeros(counts.shape, dtype=np.bool_)
        for row, u in enumerate(rows):
            allowed[row, sorted(self.units[u].who)] = True
            for owner, was in zip(target[u], self.last[u], strict=True):
                counts[row, owner] += owner != NOBODY
                had[row, was] += was != NOBODY
                stayed[row, owner] += owner == was != NOBODY
        capacity = np.array([float(m.capacity) for m in self.members])
        sizes = np.array([self.units[u].count for u in rows], dtype=np.int64)
        rates = flow_rates(sizes, allowed[:, who], capacity[who])
        term = improving_cycle(counts[:, who], allowed[:, who], had[:, who], rates)
        if term is not None:
            yield Violation("A5" if term == "stickiness" else "A4", f"{term} could be better")
        lost = np.minimum(counts, had) - stayed
        if lost.any():
            row, m = np.argwhere(lost)[0].tolist()
            yield Violation(
                "A5",
                f"{self.ids[m]} could keep {lost[row, m]} more of its previous "
                f"{self.units[rows[row]].topics[0]} partitions",
            )


def _without_warmups(
    case: _Case, plan: Answer, held: dict[Task, list[int]]
) -> dict[Task, list[int]]:
    """Remove a plan's warm-ups from ``held``; return the member with the warm-up of each task."""
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


def _target(case: _Case, plan: Answer, unit_owner: list[list[int]]) -> list[list[int]]:
    """Return the plan's ``target`` by unit; for a plan without ``target``, its owners."""
    return _by_unit(case, plan, getattr(plan, "target", None), unit_owner)


def _by_unit(case: _Case, plan: Answer, told: Any, otherwise: list[list[int]]) -> list[list[int]]:
    """Convert a plan's values by group to values by unit; ``otherwise`` for a plan without the values."""
    if told is None:
        return otherwise
    groups = getattr(plan, "groups", ())
    by_topic = {topic: told[g].tolist() for g, group in enumerate(groups) for topic in group.topics}
    return [
        by_topic.get(unit.topics[0], here) for unit, here in zip(case.units, otherwise, strict=True)
    ]


# A6, A8 ------------------------------------------------------------------------------------------


def carried(members: Sequence[Member], plan: Answer) -> list[Member]:
    """Return ``members`` one generation later: their claims are the partitions of ``plan``."""
    newest = max((generation_of(m) for m in members), default=0) + 1
    awaited: Any = getattr(plan, "awaited", lambda _: {})
    return [
        replace(
            m,
            actives=plan.actives(m.member_id),
            standbys=plan.standbys(m.member_id),
            generation=newest,
            awaited=awaited(m.member_id),
        )
        for m in members
    ]


def _named(plan: Answer, ids: Sequence[str]) -> list[tuple[object, object]]:
    return [(dict(plan.actives(i)), dict(plan.standbys(i))) for i in ids]


def _settles(case: _Case, plan: Answer, planner: Planner) -> Iterable[Violation]:
    """Check that a third plan for unchanged members equals the second.

    If the second plan leaves tasks off their target, its copies may allow a better target: a task moves
    immediately onto a copy with nothing left to read, and two waiting tasks may be exchanged to save a
    warm-up. Each such plan leaves less to do.
    """
    members = carried(case.members, plan)
    last = planner(members)
    while True:
        members = carried(members, last)
        now = planner(members)
        if _left(now) >= _left(last):
            break
        last = now
    for name, was, now_ in zip(
        case.ids, _named(last, case.ids), _named(now, case.ids), strict=True
    ):
        if was[0] != now_[0]:
            yield Violation("A6", f"the actives of {name} moved again although nothing changed")
        if was[1] != now_[1]:
            yield Violation("A6", f"the standbys of {name} moved again although nothing changed")


def _left(plan: Answer) -> tuple[int, int]:
    """Return the number of tasks off their target, and how many have no standby at the target."""
    off = lacking = 0
    told: Any = plan
    for g, target in enumerate(getattr(plan, "target", ())):
        away = told.owner[g] != target
        off += int(np.count_nonzero(away))
        lacking += int(np.count_nonzero(away & ~(told.standby[g] == target[:, None]).any(axis=1)))
    return off, lacking


def _ignores_order(case: _Case, plan: Answer, planner: Planner) -> Iterable[Violation]:
    """Check that the order of members does not matter."""
    if _named(planner(case.members[::-1]), case.ids) != _named(plan, case.ids):
        yield Violation("A8", "the plan depends on the order of the members")
