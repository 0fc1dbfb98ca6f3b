"""Describes a task: its owner, its copies with their lags, and its earlier moves. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faust_assigner.page.grid import lag_of, shade_of
from faust_assigner.page.history import History, Move, RoundSeen
from faust_assigner.page.tasks import Family, Task, task_of
from faust_assigner.page.timeline import ago
from faust_assigner.status.report import Partition, Report
from faust_assigner.status.words import span
from faust_assigner.wire.worker_status import REASONS

#: The planner's rule for a move -> the reason as text.
_RULES = {
    "placed": "because it had no living owner; the new owner has none of its state",
    "placed warm": "because it had no living owner; the new owner has a copy of its state",
    "moved": "for the balance, without a copy of the state",
    "moved warm": "for the balance, to a copy of the state",
    "promoted": "because its owner was gone and the new owner has the state",
    "follows": "because the new owner has its source",
    "returned": "because the new owner had owned it before the stop",
}


@dataclass(frozen=True, kw_only=True)
class CopyLine:
    """A standby or warm-up of the task as text."""

    member: str
    what: str
    lag: str
    shade: str


@dataclass(frozen=True, kw_only=True)
class Event:
    """A move of the task as text; ``reason`` is why the move's round began, "" if unknown."""

    when: str
    what: str
    reason: str
    level: str


@dataclass(frozen=True, kw_only=True)
class Story:
    """The state and history of a task. ``level`` is ``good``, ``changing`` or ``bad``."""

    key: str
    topics: tuple[str, ...]
    number: int
    owner: str | None
    level: str
    state: str
    standing: tuple[str, ...]
    sources: tuple[Partition, ...]
    changelogs: tuple[Partition, ...]
    copies: tuple[CopyLine, ...]
    if_lost: str
    events: tuple[Event, ...]


def story_of(
    report: Report, families: tuple[Family, ...], history: History, key: str
) -> Story | None:
    """Return the history of a task; None for a task outside the report."""
    found = task_of(families, key)
    if found is None:
        return None
    family, task = found
    keys = [f"{topic}/{task.number}" for topic in family.topics]
    level, state = _state_of(task)
    return Story(
        key=task.key,
        topics=family.topics,
        number=task.number,
        owner=task.owner,
        level=level,
        state=state,
        standing=tuple(_standing_partitions(task)),
        sources=tuple(one for one in task.partitions if not one.is_changelog),
        changelogs=tuple(one for one in task.partitions if one.is_changelog),
        copies=tuple(_copy_lines(task)),
        if_lost=_loss_sentence(task),
        events=tuple(_move_events(history.moves_of(keys), history.rounds, report.taken_at)),
    )


def _state_of(task: Task) -> tuple[str, str]:
    if task.owner is None:
        return "bad", "nobody owns it"
    if task.stands_still:
        return "bad", "not processed"
    if any(copy.is_warmup for copies in task.copies.values() for copy in copies):
        return "changing", "processed; moves when its warm-up has caught up"
    return "good", "processed"


def _standing_partitions(task: Task) -> list[str]:
    return [
        f"{one.topic}/{one.partition} has not been processed for {span(one.standing.seconds)}: "
        f"{REASONS.get(one.standing.reason, one.standing.reason)}"
        for one in task.partitions
        if one.standing is not None
    ]


def _copy_lines(task: Task) -> list[CopyLine]:
    found = []
    for member, copies in sorted(task.copies.items()):
        lag = lag_of(copies)
        at_most = "" if all(copy.is_measured for copy in copies) else "at most "
        ages = [copy.seconds for copy in copies if copy.seconds]
        since = f", for {span(max(ages))}" if ages and lag else ""
        found.append(
            CopyLine(
                member=member,
                what="warm-up" if any(copy.is_warmup for copy in copies) else "standby",
                lag="lag unknown" if lag is None else f"{at_most}{lag:,} records behind{since}",
                shade=shade_of(lag),
            )
        )
    return found


def _loss_sentence(task: Task) -> str:
    """Return a sentence about the effect of the owner's loss, as the copies are now."""
    if not task.is_stateful:
        return "It has no table. Any member can take it over immediately."
    known = [
        (lag, member)
        for member, copies in task.copies.items()
        if (lag := lag_of(copies)) is not None
    ]
    if known:
        lag, member = min(known)
        return f"{member} has the best copy: it would replay {lag:,} records."
    if task.copies:
        return "Copies exist, but their lag is unknown."
    return (
        "It has no copy. A new owner would replay its changelog from the beginning, or from a "
        "snapshot if snapshots are configured."
    )


def _move_events(moves: Sequence[Move], rounds: Sequence[RoundSeen], now: float) -> list[Event]:
    reasons = {one.generation: one.reason for one in rounds}
    found = []
    for move in moves:
        what = f"{move.target} took over" + (f" from {move.source}" if move.source else "")
        if move.rule in _RULES:
            what += f", {_RULES[move.rule]}"
        elif move.was_warm is not None:
            what += " with a copy of the state" if move.was_warm else " without a copy of the state"
        found.append(
            Event(
                when=ago(now - move.at),
                what=what,
                reason=""
                if move.generation not in reasons
                else f"Round {move.generation}: {reasons[move.generation]}.",
                level="bad" if move.was_warm is False else "good",
            )
        )
    return found
