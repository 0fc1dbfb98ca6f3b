"""The head of the page: numbers, the last round, and lines about problems. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from faust_assigner.page.timeline import ago
from faust_assigner.status.member_reports import known_sum
from faust_assigner.status.report import ANSWERED, NOT_ASKED, Decision, Report
from faust_assigner.status.words import NOTHING, condition, number, span, why, with_member_names


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A number at the top of the page."""

    name: str
    value: str
    note: str = ""
    of: str = ""
    level: str = "good"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line about a problem of a member or a partition."""

    level: str
    text: str
    member: str | None = None
    since: str = ""


def tiles_of(report: Report) -> tuple[Tile, ...]:
    """Return the tiles with the numbers of a report.

    The number of tasks that are not at their target is left out if no decision is known.
    """
    tiles = _ready(report), _lag_tile(report), _copies_tile(report), _standing_tile(report)
    return tiles if report.decision is None else (*tiles, _off_target_tile(report.decision))


def _ready(report: Report) -> Tile:
    totals = report.totals
    silent = sum(_is_worker_lost(member.answer) for member in report.members)
    does = "does" if silent == 1 else "do"
    return Tile(
        name="Members ready",
        value=f"{totals.ready:,}",
        of=f"of {totals.members:,}",
        note=f"{silent:,} {does} not answer" if silent else "all answered",
        level="bad" if silent or totals.ready < totals.answered else "good",
    )


def _lag_tile(report: Report) -> Tile:
    lag = known_sum([one.lag for one in report.partitions])
    return Tile(
        name="Lag",
        value=number(lag),
        note="records not yet processed",
        level="unknown" if lag is None else "good",
    )


def _copies_tile(report: Report) -> Tile:
    totals = report.totals
    standbys, warmups = totals.standby_partitions, totals.warmup_partitions
    if not standbys + warmups:
        return Tile(name="Copies lack", value=NOTHING, note="no table has a copy")
    return Tile(
        name="Copies lack",
        value=number(totals.standby_lag),
        note=f"records; {standbys:,} standbys, {warmups:,} warm-ups",
    )


def _standing_tile(report: Report) -> Tile:
    count = report.totals.standing_partitions
    notes = {0: "no partition stands still", 1: "partition stands still"}
    return Tile(
        name="Not processed",
        value=f"{count:,}",
        note=notes.get(count, "partitions stand still"),
        level="bad" if count else "good",
    )


def _off_target_tile(decision: Decision) -> Tile:
    off = decision.off_target
    return Tile(
        name="Off target",
        value=f"{off:,}",
        of=f"of {decision.tasks:,}",
        note="tasks wait for a warm-up" if off else "every task is on its target",
        level="changing" if off else "good",
    )


def _is_worker_lost(answer: str) -> bool:
    return answer not in (ANSWERED, NOT_ASKED)


def decision_of(report: Report, names: Mapping[str, str]) -> str:
    """Return a sentence about the last round; "" for a group without members."""
    decision = report.decision
    if decision is None:
        return "No member reported the last round." if report.members else ""
    when = "" if decision.at is None else f", {ago(report.taken_at - decision.at)}"
    by = f", decided by {decision.leader}" if decision.leader else ""
    done = (
        f"{decision.moved:,} of {decision.tasks:,} tasks moved, {decision.cold:,} without their state"
        if decision.is_planned
        else "the planner failed, and partitions were assigned without regard to their former owners"
    )
    reason = why(with_member_names(decision, names))
    return f"Last round: {decision.generation}{when}{by}, because {reason}: {done}."


def lines_of(report: Report) -> list[Line]:
    """Return the lines about problems, the worst first. A silent worker has a single line."""
    told = {wait.member for wait in report.waits if wait.kind == "answer"}
    found = []
    for member in report.members:
        level, state = condition(member)
        if level == "bad" and member.name not in told:
            found.append(
                Line(level=level, member=member.name, text=f"{state}. {member.detail}".strip())
            )
    for wait in report.waits:
        found.append(
            Line(
                level="bad" if wait.kind in ("answer", "standing") else "changing",
                member=wait.member,
                text=wait.text,
                since="" if not wait.seconds else f"for {span(wait.seconds)}",
            )
        )
    found += [Line(level="unknown", text=problem) for problem in report.problems]
    return sorted(found, key=lambda line: ("bad", "changing", "unknown").index(line.level))
