"""Check rows against the goals and format them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.gaps.measured import Row, middle_and_most

CONTROL = "nothing"
#: A kept partition's gap may exceed the control's longest gap by this many seconds.
KEPT_BEYOND_S = 0.1
MOVED_S = 1.0
WARM_JOIN_S = 0.5
#: A cold move is allowed up to this length of the changelog.
COLD_RECORDS = 100
#: Events with SIGKILL: moved partitions wait for the session, and repeats are allowed.
DEATHS = ("SIGKILL", "bounce", "static bounce")
JOINS = ("join", "3 to 6")
RESTARTS = ("static bounce", "static roll")
FIRST_START = "first start"
HEADER = (
    f"{'event':<15}{'arm':<12}{'moves':>6}{'cold':>5}{'replayed':>9}  {'kept s':>14}"
    f"{'moved s':>16}{'repeated':>10}{'lost':>6}  beyond the aims"
)


def beyond(row: Row, control: Row | None, session_s: float) -> list[str]:
    """List the goals that a row misses; the first start and the control check losses and rest only."""
    missed = [f"lost {row.lost}"] * bool(row.lost) + ["no rest, or uneven"] * bool(row.restless)
    if row.event in (CONTROL, FIRST_START):
        return missed
    most = max(control.kept, default=0.0) + KEPT_BEYOND_S if control else None
    if most is not None and max(row.kept, default=0.0) > most:
        missed.append(f"kept {max(row.kept):.2f} > {most:.2f}")
    limit = WARM_JOIN_S if row.event in JOINS else MOVED_S + session_s * (row.event in DEATHS)
    if row.event not in RESTARTS and max(row.moved, default=0.0) > limit:
        missed.append(f"moved {max(row.moved):.2f} > {limit:.2f}")
    if row.cold and row.most_replayed > COLD_RECORDS:
        missed.append(f"cold {row.cold}, up to {row.most_replayed} records")
    if row.event in RESTARTS and row.moves:
        missed.append(f"moves {row.moves} > 0")
    if row.repeated and row.event not in DEATHS:
        missed.append(f"repeated {row.repeated}")
    return missed


def line(arm: str, row: Row, missed: Sequence[str]) -> str:
    """Format a row; gaps are median/maximum (number of partitions)."""
    kept, moved = (
        f"{middle_and_most(seconds)}{f' ({len(seconds)})' if seconds else ''}"
        for seconds in (row.kept, row.moved)
    )
    return (
        f"{row.event:<15}{arm:<12}{row.moves:>6}{row.cold:>5}{row.replayed:>9}  {kept:>14}{moved:>16}"
        f"{row.repeated:>10}{row.lost:>6}  {'; '.join(missed)}"
    ).rstrip()


def together(runs: Sequence[Sequence[Row]]) -> dict[str, Row]:
    """Add up the rounds of an arm, by event."""
    found: dict[str, Row] = {}
    for row in (row for run in runs for row in run):
        found[row.event] = found[row.event] + row if row.event in found else row
    return found


def table(arms: Mapping[str, Sequence[Sequence[Row]]], session_s: float) -> list[str]:
    """Format the arms of a cell beneath one another, by event."""
    pooled = {arm: together(runs) for arm, runs in arms.items()}
    events = list(dict.fromkeys(event for rows in pooled.values() for event in rows))
    return [HEADER] + [
        line(arm, rows[event], beyond(rows[event], rows.get(CONTROL), session_s))
        for event in events
        for arm, rows in pooled.items()
        if event in rows
    ]
