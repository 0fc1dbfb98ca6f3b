"""Computes the effect of each event: its moves, its new copies, and the downtime of a task. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from faust_assigner.deploy.fleet import Moved
from faust_assigner.deploy.pauses import Recoveries
from faust_assigner.deploy.play import Played
from faust_assigner.deploy.read import Seen
from faust_assigner.deploy.report import Move, Step
from faust_assigner.settings import table
from faust_assigner.status.members import join_sorted

SESSION = "broker_session_timeout"


@dataclass(frozen=True, kw_only=True)
class Known:
    """Data that the group does not report: past recoveries, and the duration of a worker's restart."""

    recoveries: Recoveries = field(default_factory=Recoveries)
    restart_s: float | None = None


def size_of(seen: Seen, place: tuple[str, int]) -> int | None:
    """Return a changelog partition's bytes on disk; None if no worker reports them."""
    assert seen.fleet is not None
    if _is_in_memory(seen, place) or seen.fleet.ends.get(place) == 0:
        return 0
    return seen.bytes_of.get(place)


def _is_in_memory(seen: Seen, place: tuple[str, int]) -> bool:
    stores = {
        one.store
        for view in seen.views
        if view.status is not None
        for one in view.status.tables
        if one.changelog == place[0]
    }
    return stores == {"memory"}


def shown_bytes(count: int) -> str:
    """Return a size as text, in the largest fitting unit.

    >>> shown_bytes(900), shown_bytes(2_500_000)
    ('900 B', '2.5 MB')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def step_of(seen: Seen, played: Played, known: Known) -> Step:
    """Convert a played event to a step of the report."""
    fleet = seen.fleet
    assert fleet is not None
    session_s = _seconds(seen, SESSION)
    static = tuple(
        name
        for name in played.stopped
        if name in fleet.workers and fleet.workers[name].data.instance_id
    )
    moves = tuple(_move(one, known.recoveries) for one in played.moved)
    pause_s, pause = _longest_pause(seen, played, moves, static, session_s, known)
    copies = [place for places in played.copied.values() for place in places]
    sizes = [size_of(seen, place) for place in copies]
    return Step(
        event=played.event,
        stopped=played.stopped,
        static=static,
        session_timeout_s=session_s,
        is_for_good=played.is_for_good,
        members=played.members,
        moves=moves,
        later_moves=len(played.later),
        copies=len(copies),
        copy_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        pause_s=pause_s,
        pause=pause,
        cold=sum(move.is_cold for move in moves),
        behind=sum(move.is_behind for move in moves),
    )


def _move(one: Moved, recoveries: Recoveries) -> Move:
    move = Move(
        topics=one.topics,
        partition=one.partition,
        was=one.was,
        to=one.to,
        is_cold=one.is_cold,
        is_behind=one.is_behind,
        records=one.records,
        pause_s=None if one.changelogs else 0.0,
    )
    if not one.changelogs:
        return move
    expected = recoveries.expected_s(one.changelogs, one.records, warm=not one.is_cold)
    return replace(move, pause_s=expected)


def _longest_pause(
    seen: Seen,
    played: Played,
    moves: Sequence[Move],
    static: Sequence[str],
    session_s: float | None,
    known: Known,
) -> tuple[float | None, str]:
    """Return (the longest downtime of a task in seconds, None if unknown; a text about it)."""
    fleet = seen.fleet
    assert fleet is not None
    restore = [move.pause_s for move in moves]
    longest = None if None in restore else max((pause or 0.0 for pause in restore), default=0.0)
    origin = f" by {known.recoveries.origin}" if known.recoveries.origin else ""
    if longest is None:
        state = "the restore time is unknown: " + (
            "the ledger has no comparable recovery"
            if known.recoveries.origin
            else "no worker serves a ledger (--ledger FOLDER)"
        )
    else:
        state = f"{longest:.1f} s to restore{origin}" if longest else "nothing to restore"
    if not moves and not static:
        return 0.0, "no task moves"
    if static and not played.is_crash:
        restart_s = math.inf if played.is_for_good else known.restart_s
        return _static_pause(static, session_s, longest, state, restart_s)
    if played.is_crash:
        if session_s is None:
            return None, f"the session timeout is not known; {state}"
        text = f"{session_s:g} s until the group notices (session timeout), {state}"
        return (None if longest is None else session_s + longest), text
    if not fleet.is_cooperative:
        return None, f"the duration of this group's eager rebalances is unknown; {state}"
    if _seconds(seen, table.LEAVE_S.name) == 0 and played.stopped:
        return None, f"FAUST_ASSIGNER_LEAVE_S=0: a stopping worker hands nothing over; {state}"
    return longest, state


def _static_pause(
    static: Sequence[str],
    session_s: float | None,
    longest: float | None,
    state: str,
    restart_s: float | None,
) -> tuple[float | None, str]:
    """Return a pair as :func:`_longest_pause` does; ``restart_s`` is infinite without a return."""
    whom = join_sorted(static)
    limit = "its session timeout" if session_s is None else f"{session_s:g} s (session timeout)"
    if restart_s is None:
        return None, (
            f"as long as {whom} takes to come back, which is unknown (--restart SECONDS); the group "
            f"waits for {limit}, then its tasks move: {state}"
        )
    if session_s is not None and restart_s < session_s:
        return (restart_s, f"{restart_s:g} s until {whom} is back; the group waits for {limit}")
    late = (
        f"the group waits for {whom} for {limit}, unless retired first"
        if restart_s == math.inf
        else f"{whom} is not back within {limit}"
    )
    if session_s is None or longest is None:
        return None, f"{late}; {state}"
    return session_s + longest, f"{late}; then {state}"


def _seconds(seen: Seen, setting: str) -> float | None:
    try:
        return float(seen.settings[setting])
    except (KeyError, ValueError):
        return None
