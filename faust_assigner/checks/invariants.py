"""Check all promises of the planner; the result for an input and a plan is a list of violations.

The checks read plans by name and derive owners and copies from the members' claims in plain Python. They
share only the parsing of a claim and the rates of capacities with the planner. So a mistake in a stage of
the planner is not repeated in its check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from faust_assigner.checks.case import Answer, Case, Violation
from faust_assigner.checks.owners import (
    Owners,
    check_even_and_sticky,
    check_on_target,
    check_one_active_each,
    check_promotions,
    check_tasks_stay_whole,
)
from faust_assigner.checks.reading import generation_of
from faust_assigner.checks.spares import check_standbys, read_standbys, remove_warmups
from faust_assigner.model import NOBODY, Member
from faust_assigner.warmup import WarmupPolicy

#: A function from members to a plan; promises that compare two plans use it to make the second plan.
Planner: TypeAlias = Callable[[Sequence[Member]], Answer]


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
    """Return all violations, sorted; an empty list if all promises are kept.

    A6 (unchanged input, unchanged plan) and A8 (member order) are checked only if ``planner`` is given. With
    ``warmups``, tasks may wait for their state (A5), and warm-ups do not count as standbys (A3).
    Cost: plain Python over all partitions and claims, and numpy for the optimality in A4 and A5.
    """
    case = Case(
        sorted(members, key=lambda m: m.member_id),
        partitions,
        frozenset(changelogs),
        replicas,
        frozenset(weightless),
        warmups,
    )
    found = list(_check_one_plan(case, plan))
    if planner is not None:
        found += _check_settles(case, plan, planner)
        found += _check_ignores_order(case, plan, planner)
    return sorted(set(found))


def _check_one_plan(case: Case, plan: Answer) -> Iterable[Violation]:
    """Check A1 to A5 on one plan."""
    owners: Owners = {t: [NOBODY] * case.partitions[t] for t in case.unit_of}
    yield from check_one_active_each(case, plan, owners)
    yield from check_tasks_stay_whole(case, owners)
    unit_owner = [owners[unit.topics[0]] for unit in case.units]
    promoted = yield from check_promotions(case, unit_owner)
    target = _values_by_unit(case, plan, getattr(plan, "target", None), unit_owner)
    held = yield from read_standbys(case, plan)
    warming = remove_warmups(case, plan, held)
    yield from check_standbys(case, held, unit_owner)
    if case.waiting is not None:
        wanted = _values_by_unit(case, plan, getattr(plan, "wanted", None), target)
        for complaint in case.waiting.complaints(unit_owner, wanted, held, warming):
            yield Violation("A3", complaint)
    elif warming:
        yield Violation("A3", f"{len(warming)} warm-ups without a warm-up policy")
    yield from check_on_target(case, unit_owner, target, promoted)
    yield from check_even_and_sticky(case, target)


def _values_by_unit(
    case: Case, plan: Answer, told: Any, otherwise: list[list[int]]
) -> list[list[int]]:
    """Convert a plan's values by group to values by unit; return ``otherwise`` if there are no values."""
    if told is None:
        return otherwise
    groups = getattr(plan, "groups", ())
    by_topic = {topic: told[g].tolist() for g, group in enumerate(groups) for topic in group.topics}
    return [
        by_topic.get(unit.topics[0], here) for unit, here in zip(case.units, otherwise, strict=True)
    ]


def carried(members: Sequence[Member], plan: Answer) -> list[Member]:
    """Return ``members`` as they join the next generation, with the partitions of ``plan`` as claims."""
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


def _differences(plan: Answer, ids: Sequence[str]) -> list[tuple[object, object]]:
    return [(dict(plan.actives(i)), dict(plan.standbys(i))) for i in ids]


def _check_settles(case: Case, plan: Answer, planner: Planner) -> Iterable[Violation]:
    """Check that repeated plans for unchanged members become equal (A6).

    A plan that leaves tasks off their target may differ from the next plan, because its copies allow a better
    target. For example, a task moves at once onto a complete copy, or two waiting tasks are exchanged.
    Each such plan leaves fewer tasks off their target, so the function plans until this number is stable.
    """
    members = carried(case.members, plan)
    last = planner(members)
    while True:
        members = carried(members, last)
        now = planner(members)
        if _count_off_target(now) >= _count_off_target(last):
            break
        last = now
    for name, was, now_ in zip(
        case.ids, _differences(last, case.ids), _differences(now, case.ids), strict=True
    ):
        if was[0] != now_[0]:
            yield Violation("A6", f"the actives of {name} moved again although nothing changed")
        if was[1] != now_[1]:
            yield Violation("A6", f"the standbys of {name} moved again although nothing changed")


def _count_off_target(plan: Answer) -> tuple[int, int]:
    """Return the number of tasks off their target, and the number of these without a standby there."""
    off = lacking = 0
    told: Any = plan
    for g, target in enumerate(getattr(plan, "target", ())):
        away = told.owner[g] != target
        off += int(np.count_nonzero(away))
        lacking += int(np.count_nonzero(away & ~(told.standby[g] == target[:, None]).any(axis=1)))
    return off, lacking


def _check_ignores_order(case: Case, plan: Answer, planner: Planner) -> Iterable[Violation]:
    """Check that the order of the members has no effect (A8)."""
    if _differences(planner(case.members[::-1]), case.ids) != _differences(plan, case.ids):
        yield Violation("A8", "the plan depends on the order of the members")
