"""Computes a size and its reasons from a query, the settings and the memory. No I/O."""

from __future__ import annotations

from dataclasses import replace

from faust_assigner.scaler.case import HOLD, SLEEP, Case, Recommendation
from faust_assigner.scaler.change import grown, shrunk
from faust_assigner.scaler.look import Look
from faust_assigner.scaler.memory import Memory, observed
from faust_assigner.scaler.settings import Settings


def recommend(look: Look, settings: Settings, memory: Memory) -> tuple[Recommendation, Memory]:
    """Return (the recommendation, the memory for the next query). Never raises.

    Cost: O(source partitions + samples of the longest window x useful sizes).
    """
    known = observed(memory, look, settings)
    present, known, reasons = _present(look, settings, known)
    found = _decide(look, settings, known, present, reasons)
    changed = found.size != known.size and known.size is not None
    size = found.size if found.decision != HOLD or known.size is not None else None
    return found, replace(
        known,
        size=size,
        changed_at=look.taken_at if changed and size is not None else known.changed_at,
    )


def _present(look: Look, settings: Settings, memory: Memory) -> tuple[int, Memory, tuple[str, ...]]:
    """Return (the size to start from, the memory, the reason to wait for the recommended size, if any)."""
    size = look.members if not memory.size else memory.size
    # The time limit to reach the size counts only while the group is at rest.
    if look.busy or look.members == size or (look.members == 0 and size > 0):
        return size, replace(memory, parted_at=None), ()
    parted_at = look.taken_at if memory.parted_at is None else memory.parted_at
    if look.taken_at - parted_at < settings.settle_s:
        verb = "have joined" if look.members < size else "are still there"
        why = f"{look.members} workers {verb}, {size} are recommended"
        return size, replace(memory, parted_at=parted_at), (why,)
    given_up = replace(memory, size=look.members, parted_at=None, changed_at=look.taken_at)
    return look.members, given_up, ()


def _decide(
    look: Look, settings: Settings, memory: Memory, present: int, waits: tuple[str, ...]
) -> Recommendation:
    case = Case(look=look, settings=settings, memory=memory, present=present)
    if memory.size == 0 and not case.has_work and (look.busy or not look.members):
        return case.answer(0, SLEEP, "no records wait, and min is 0")
    if look.busy or waits:
        reasons = (*look.busy, *waits)
        return case.answer(present or case.floor, HOLD, *reasons)
    if look.members == 0:
        return _without_members(case)
    if not memory.tasks:
        return case.answer(present, HOLD, "no member reports its topics")
    if _has_nothing_to_do(case):
        why = f"no records arrived or waited for {settings.down_s:g} s, and min is 0"
        return case.answer(0, SLEEP, why)
    return grown(case) or shrunk(case)


def _without_members(case: Case) -> Recommendation:
    """Decide for a group without workers: it was scaled to zero, is not started yet, or lost all workers."""
    if case.settings.least == 0 and not case.has_work and not case.present:
        return case.answer(0, SLEEP, "the group has no members, no records wait, and min is 0")
    size = case.present or case.floor
    waits = f"{case.look.backlog:,} records wait"
    if not case.look.backlog and case.has_work:
        waits = "records have arrived in partitions without a committed offset"
    return case.answer(size, HOLD, f"the group has no members; {waits}", is_active=True)


def _has_nothing_to_do(case: Case) -> bool:
    """Whether ``min`` is 0 and, in the last ``down_s`` seconds, no record arrived or waited."""
    now, down_s = case.look.taken_at, case.settings.down_s
    window = case.memory.since(now - down_s)
    return (
        case.settings.least == 0
        and case.memory.reaches(down_s, now)
        and not any(one.backlog or one.arrival for one in window)
    )
