"""Decides whether a group at rest, with workers and tasks, needs more or fewer workers."""

from __future__ import annotations

from collections.abc import Sequence

from faust_assigner.scaler.case import GROW, SHRINK, STAY, Case, Recommendation
from faust_assigner.scaler.memory import Sample
from faust_assigner.scaler.sizes import capacity, is_within_tolerance, most_tasks

#: If a backlog has not shrunk for this many seconds, the size grows, even if the measured rates suffice.
BEHIND_S = 120.0


def grown(case: Case) -> Recommendation | None:
    """Return a larger size, or None.
    The group grows if it is below the minimum, if every query of the last ``up_s`` seconds requires more
    workers, or if the backlog does not shrink.
    """
    now, rate, useful = case.look.taken_at, case.rate, case.useful
    if case.present < useful[0]:
        return case.answer(useful[0], GROW, _why_floor(case, useful[0]))
    window = case.memory.since(now - case.settings.up_s)
    if rate is None or not window or not case.memory.covers(case.settings.up_s, now):
        return None
    wanted = case.needed(window[-1], rate)
    if any(case.needed(one, rate) <= case.present for one in window):
        wanted = case.present
    falls_behind = wanted <= case.present and _falls_behind(case)
    if falls_behind:
        wanted = case.present + 1
    larger = [n for n in useful if n >= wanted and not is_within_tolerance(case.present, n)]
    if wanted <= case.present or not larger:
        return None
    if falls_behind:
        return case.answer(larger[0], GROW, _why_behind(case, window[-1]))
    return case.answer(larger[0], GROW, *_why_more(case, larger[0], window[-1], rate))


def _falls_behind(case: Case) -> bool:
    """Return whether the backlog was too large for :data:`BEHIND_S` and has not shrunk."""
    now, busy_at = case.look.taken_at, case.memory.busy_at
    if busy_at is not None and busy_at > now - BEHIND_S:
        return False
    long = case.memory.since(now - BEHIND_S)
    return (
        len(long) > 1
        and case.memory.covers(BEHIND_S, now)
        and all(map(case.is_behind, long))
        and long[-1].backlog >= long[0].backlog
    )


def _why_behind(case: Case, sample: Sample) -> str:
    return (
        f"{sample.backlog:,} records wait, at least as many as {BEHIND_S:g} s ago, although the workers "
        "should be fast enough: the partitions are uneven, or the workers have become slower"
    )


def _why_floor(case: Case, size: int) -> str:
    if size > case.settings.least and size <= 1 + case.memory.standbys:
        return f"{case.memory.standbys} standbys of each table need {size} workers"
    return f"{size} is the smallest allowed and useful size"


def _why_more(case: Case, size: int, sample: Sample, rate: float) -> tuple[str, ...]:
    tasks, arrival = case.memory.tasks, sample.arrival or 0.0
    now_s = capacity(rate, tasks, case.present)
    reasons = [
        f"{arrival:,.0f} records/s arrive; {case.present} workers process at most {now_s:,.0f}"
    ]
    if case.is_behind(sample):
        reasons.append(
            f"{sample.backlog:,} records wait, the limit is {case.target(sample):,.0f}; "
            f"they must be processed within {case.settings.catch_up_s:g} s"
        )
    then_s = capacity(rate, tasks, size)
    reasons.append(
        f"{size} workers have at most {_tasks(most_tasks(tasks, size))} each "
        f"and process {then_s:,.0f} records/s"
    )
    if then_s < case.required(sample) and size == case.useful[-1]:
        reasons.append(f"{case.required(sample):,.0f} would be needed; no larger size is faster")
    return tuple(reasons)


def shrunk(case: Case) -> Recommendation:
    """Return the next smaller useful size if its workers are fast enough; else the current size."""
    useful = case.useful
    if case.present not in useful:
        return _without_idle(case, useful)
    smaller = [n for n in useful if n < case.present and not is_within_tolerance(case.present, n)]
    if not smaller:
        return case.answer(case.present, STAY, "it is the smallest allowed and useful size")
    size = smaller[-1]
    obstacle = _obstacle(case, size)
    if obstacle:
        return case.answer(case.present, STAY, obstacle)
    return case.answer(size, SHRINK, _why_less(case, size))


def _without_idle(case: Case, useful: Sequence[int]) -> Recommendation:
    """Decide for a group with superfluous workers: the next smaller useful size has the same rate."""
    size, tasks = max(n for n in useful if n < case.present), case.memory.tasks
    limit = case.settings.most
    if is_within_tolerance(case.present, size):
        why = f"{size} would suffice, but Kubernetes ignores a change of a tenth or less"
        return case.answer(case.present, STAY, why)
    if limit is not None and case.present > limit:
        return case.answer(size, SHRINK, f"max is {limit}")
    fullest = _tasks(most_tasks(tasks, size))
    why = (
        f"with {tasks} tasks the fullest of {case.present} workers has {fullest}, "
        f"as with {size}: more workers than {size} process no faster"
    )
    return case.answer(size, SHRINK, why)


def _obstacle(case: Case, size: int) -> str:
    """Return the reason against shrinking to ``size`` now, or ""."""
    now, down_s, rate = case.look.taken_at, case.settings.down_s, case.rate
    window = case.memory.since(now - down_s)
    if not window or not case.memory.covers(down_s, now):
        return f"{size} workers are considered once the load was low for {down_s:g} s"
    behind = max(window, key=lambda one: one.backlog - case.target(one))
    if case.is_behind(behind):
        ago = now - behind.at
        return (
            f"{behind.backlog:,} records waited {ago:.0f} s ago, "
            f"the limit is {case.target(behind):,.0f}"
        )
    peak = max(one.arrival or 0.0 for one in window)
    if rate is None:
        return ""
    carried = capacity(rate, case.memory.tasks, size)
    if peak > case.limit(rate, size) * case.settings.shrink_at / case.settings.grow_at:
        return (
            f"{peak:,.0f} records/s arrived at the peak of the last {down_s:g} s; {size} workers "
            f"process {carried:,.0f}, and their load must be {case.settings.shrink_at:.0%} at most"
        )
    return ""


def _why_less(case: Case, size: int) -> str:
    down_s, rate = case.settings.down_s, case.rate
    window = case.memory.since(case.look.taken_at - down_s)
    peak = max(one.arrival or 0.0 for one in window)
    if rate is None:
        return (
            f"the backlog was within its limit for {down_s:g} s, and no worker was ever busy "
            f"enough to measure its rate: {size} workers are tried"
        )
    carried = capacity(rate, case.memory.tasks, size)
    return (
        f"{peak:,.0f} records/s arrived at the peak of the last {down_s:g} s; "
        f"{size} workers process {carried:,.0f}"
    )


def _tasks(count: int) -> str:
    return f"{count} {'task' if count == 1 else 'tasks'}"
