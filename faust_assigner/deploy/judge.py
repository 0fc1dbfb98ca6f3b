"""Computes the checks and the verdict from a group's state and the planned events. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faust_assigner.deploy.fleet import NotKnown
from faust_assigner.deploy.play import ROLLING, Played, Question, play, stopped_by
from faust_assigner.deploy.present import at_rest, complete, problems
from faust_assigner.deploy.read import Seen
from faust_assigner.deploy.report import (
    CANNOT_TELL,
    EXIT_CODES,
    FAILED,
    NOT_SAFE,
    OK,
    SAFE,
    UNKNOWN,
    Check,
    Move,
    Report,
    Step,
)
from faust_assigner.deploy.steps import Known, shown_bytes, size_of, step_of
from faust_assigner.status.members import join_sorted

#: The names of the checks, as the report shows them.
COPIES = "every task has a caught-up copy elsewhere"
ROOM = "room on the disks"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The allowed cost of a deploy: ``cold`` moves, and seconds of a task's downtime (None: unlimited).

    ``members`` is the required number of members, or None for any number.
    """

    cold: int | None = 0
    pause_s: float | None = None
    members: int | None = None


def judge(seen: Seen, question: Question, budget: Budget, known: Known) -> Report:
    """Return the report. Raises :class:`~faust_assigner.deploy.play.NoSuchWorker` for an unknown name."""
    members = seen.status.members
    stopped = stopped_by(question, members)
    played: tuple[Played, ...] = ()
    missing = seen.missing
    if seen.fleet is not None:
        try:
            played = tuple(play(seen.fleet, question, stopped))
        except NotKnown as error:
            missing = str(error)
    steps = tuple(step_of(seen, one, known) for one in played)
    gone = stopped if question.kind != ROLLING else frozenset()
    checks = (
        *complete(seen, budget.members),
        *at_rest(seen, gone),
        *_check_planned(seen, missing, steps, played),
        *_check_budget(steps, budget, missing),
    )
    verdict = _worst_state(checks)
    pauses = [step.pause_s for step in steps]
    known_pauses = [pause for pause in pauses if pause is not None]
    return Report(
        group=seen.status.group,
        question=str(question),
        taken_at=seen.status.taken_at,
        verdict=verdict,
        exit_code=EXIT_CODES[verdict],
        checks=checks,
        moves=sum(len(step.moves) for step in steps),
        cold=sum(step.cold for step in steps),
        behind=sum(step.behind for step in steps),
        later_moves=sum(step.later_moves for step in steps),
        pause_s=max(known_pauses) if known_pauses and None not in pauses else None,
        steps=steps,
        problems=tuple(problems(seen)),
    )


def _worst_state(checks: Sequence[Check]) -> str:
    states = {check.state for check in checks}
    return NOT_SAFE if FAILED in states else CANNOT_TELL if UNKNOWN in states else SAFE


def _check_planned(
    seen: Seen, missing: str, steps: Sequence[Step], played: Sequence[Played]
) -> Iterator[Check]:
    if missing:
        yield Check(name=COPIES, state=UNKNOWN, text=missing)
        return
    if any(step.stopped and not step.members for step in steps):
        yield Check(name=COPIES, state=FAILED, text="no worker is left")
        return
    yield _check_copies(steps, played)
    yield _check_disk_room(seen, played)


def _check_copies(steps: Sequence[Step], played: Sequence[Played]) -> Check:
    moves = [move for step in steps for move in step.moves]
    bad = [_cold_move_text(move) for move in moves if move.is_cold or move.is_behind]
    dark = [f"{_place(m)} on {m.to}" for m in moves if m.records is None]
    stateful = sum(bool(moved.changelogs) for one in played for moved in one.moved)
    if bad:
        return Check(name=COPIES, state=FAILED, text=_join_some(bad))
    if dark:
        return Check(name=COPIES, state=UNKNOWN, text=f"the lag is not known of {_join_some(dark)}")
    text = (
        f"{stateful} {'move' if stateful == 1 else 'moves'} of tasks with tables, each to a copy that "
        "has caught up"
        if stateful
        else "no task with a table moves"
    )
    return Check(name=COPIES, state=OK, text=text)


def _place(move: Move) -> str:
    return f"{move.topics[0]}/{move.partition}"


def _cold_move_text(move: Move) -> str:
    where = f"{_place(move)} goes from {move.was or 'no owner'} to {move.to}"
    if move.is_cold:
        lacks = "" if move.records is None else f" ({move.records:,} records to replay)"
        return f"{where} without a copy{lacks}"
    return f"{where}, whose copy is {move.records:,} records behind"


def _join_some(said: Sequence[str]) -> str:
    shown = "; ".join(said[:3])
    return f"{shown}; and {len(said) - 3} more" if len(said) > 3 else shown


def _check_disk_room(seen: Seen, played: Sequence[Played]) -> Check:
    """Check whether the new copies of each event fit on the disks; members on one host share a disk."""
    hosts = {m.name: (m.host or m.name) for m in seen.status.members}
    free = {hosts[m.name]: m.disk_free_bytes for m in seen.status.members}
    short, dark, most = [], set(), 0
    for one in played:
        wanted: defaultdict[str, int] = defaultdict(int)
        for name, places in one.copied.items():
            if name not in hosts:  # a new worker's disk is unknown
                continue
            for place in places:
                size = size_of(seen, place)
                if size is None or free[hosts[name]] is None:
                    dark.add(f"{_name_of(place)} on {name}")
                else:
                    wanted[hosts[name]] += size
        short += [
            f"{one.event}: {host} gets {shown_bytes(size)} of tables and has {shown_bytes(room)} free"
            for host, size in sorted(wanted.items())
            if size > (room := free[host] or 0)
        ]
        most = max([most, *wanted.values()])
    if short:
        return Check(name=ROOM, state=FAILED, text=_join_some(short))
    if dark:
        return Check(
            name=ROOM,
            state=UNKNOWN,
            text=f"table sizes or free disk space unknown: {join_sorted(dark)}",
        )
    text = (
        f"at most {shown_bytes(most)} of new copies on a disk" if most else "no new copy on a disk"
    )
    return Check(name=ROOM, state=OK, text=text)


def _name_of(place: tuple[str, int]) -> str:
    return f"{place[0]}/{place[1]}"


def _check_budget(steps: Sequence[Step], budget: Budget, missing: str) -> Iterator[Check]:
    if budget.cold is not None and not missing:
        count = sum(step.cold + step.behind for step in steps)
        yield Check(
            name=f"at most {budget.cold} cold moves",
            state=FAILED if count > budget.cold else OK,
            text=f"{count}, of these {sum(step.behind for step in steps)} to a copy that is behind"
            if count
            else "none",
        )
    if budget.pause_s is not None:
        yield _check_pause(steps, budget.pause_s, missing)


def _check_pause(steps: Sequence[Step], limit_s: float, missing: str) -> Check:
    name = f"no task stands still longer than {limit_s:g} s"
    long = [step for step in steps if step.pause_s is not None and step.pause_s > limit_s]
    dark = [step for step in steps if step.pause_s is None]
    if missing:
        return Check(name=name, state=UNKNOWN, text=missing)
    if long:
        worst = max(long, key=lambda step: step.pause_s or 0.0)
        return Check(name=name, state=FAILED, text=f"{worst.event}: {worst.pause}")
    if dark:
        return Check(name=name, state=UNKNOWN, text=f"{dark[0].event}: {dark[0].pause}")
    longest = max((step.pause_s or 0.0 for step in steps), default=0.0)
    return Check(name=name, state=OK, text=f"{longest:.1f} s expected")
