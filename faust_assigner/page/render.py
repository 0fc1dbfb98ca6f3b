"""The state of a group as HTML, and a task's history. No I/O; jinja2 escapes every name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from faust_assigner import __version__
from faust_assigner.page.grid import Grid, Row, grid_of
from faust_assigner.page.history import History
from faust_assigner.page.story import story_of
from faust_assigner.page.tasks import Family
from faust_assigner.page.timeline import HEIGHT, LEFT, RIGHT, WIDTH, ago, chart_of
from faust_assigner.status.report import ANSWERED, NOT_ASKED, Report
from faust_assigner.status.words import NOTHING, condition, named, number, span, why

#: The number of listed lines, and of listed rounds.
MOST_LINES: Final = 60
MOST_ROUNDS: Final = 12
_STATES: Mapping[str, str] = {
    "Stable": "stable",
    "PreparingRebalance": "rebalance under way",
    "CompletingRebalance": "rebalance under way",
    "Empty": "no members",
}
_SHADES: Final = (
    ("0", "0"),
    ("1", "to 100"),
    ("2", "to 1,000"),
    ("3", "to 10,000"),
    ("4", "more"),
    ("u", "unknown"),
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The reason for a missing or outdated report; ``level`` is ``bad`` or ``changing``."""

    title: str
    text: str
    steps: tuple[str, ...] = ()
    level: str = "bad"


@dataclass(frozen=True, kw_only=True)
class Look:
    """The content of a page. ``report`` is free of secrets; None before the first report.

    ``every_s`` are the seconds between two looks, None if no further look follows.
    """

    group: str
    report: Report | None
    families: tuple[Family, ...]
    history: History
    problem: Problem | None
    every_s: float | None


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
    """A line about a member or partition in trouble."""

    level: str
    text: str
    member: str | None = None
    since: str = ""


def parts_of(look: Look) -> dict[str, str]:
    """Return name of a part of the page -> its HTML. Cost: O(members + tasks and copies + samples)."""
    values = _values(look)
    return {name: _rendered(name, **values) for name in _PARTS}


def page_of(look: Look, parts: Mapping[str, str], version: int) -> str:
    """Return the page around its parts."""
    return _rendered(
        "page",
        title=title_of(look),
        parts={name: Markup(part) for name, part in parts.items()},
        version=version,
    )


def story_part(look: Look, key: str) -> str | None:
    """Return the history of a task as a part of the page; None for an unknown task."""
    if look.report is None:
        return None
    story = story_of(look.report, look.families, look.history, key)
    return None if story is None else _rendered("story", story=story)


def story_page(look: Look, part: str) -> str:
    """Return a task's history as a separate page."""
    return _rendered("alone", title=f"A task of {look.group}", group=look.group, body=Markup(part))


_PARTS: Final = ("head", "alerts", "grid", "rounds", "about")


def _values(look: Look) -> dict[str, object]:
    report = look.report
    found: dict[str, object] = {
        "group": look.group,
        "report": report,
        "problem": look.problem or _empty(report),
        "version": __version__,
        "every": None if look.every_s is None else span(look.every_s),
        "grid": None,
        "chart": None,
        "lines": [],
        "most": MOST_LINES,
        "looked": "looking",
        "taken_at": "",
        "shades": _SHADES,
    }
    if report is None:
        return found
    taken = datetime.fromtimestamp(report.taken_at, UTC)
    return (
        found
        | {
            "state": _STATES.get(report.state, report.state),
            "looked": f"as of {taken:%H:%M:%S} UTC",
            "taken_at": f"{report.taken_at:.1f}",
            "tiles": tuple(_tiles(report)),
            "decision": _decision(report, look.history.names),
            "lines": _lines(report),
        }
        | _grid_values(report, look.families)
        | _round_values(look, report)
    )


# -- the head


def _empty(report: Report | None) -> Problem | None:
    if report is None or report.members:
        return None
    return Problem(
        title="The group has no members",
        text="The group has no workers now. Its committed offsets are kept, and the first worker to join gets"
        " all tasks.",
        level="changing",
    )


def _tiles(report: Report) -> Iterator[Tile]:
    totals, decision = report.totals, report.decision
    silent = sum(_is_lost(member.answer) for member in report.members)
    yield Tile(
        name="Members ready",
        value=f"{totals.ready:,}",
        of=f"of {totals.members:,}",
        note=f"{silent:,} {'does' if silent == 1 else 'do'} not answer"
        if silent
        else "all answered",
        level="bad" if silent or totals.ready < totals.answered else "good",
    )
    lags = [one.lag for one in report.partitions if one.lag is not None]
    yield Tile(
        name="Lag",
        value=number(sum(lags)) if lags else NOTHING,
        note="records not yet processed",
        level="good" if lags else "unknown",
    )
    copies = totals.standby_partitions + totals.warmup_partitions
    yield Tile(
        name="Copies lack",
        value=number(totals.standby_lag) if copies else NOTHING,
        note=f"records; {totals.standby_partitions:,} standbys, {totals.warmup_partitions:,} warm-ups"
        if copies
        else "no table has a copy",
    )
    yield Tile(
        name="Not processed",
        value=f"{totals.standing_partitions:,}",
        note={0: "no partition stands still", 1: "partition stands still"}.get(
            totals.standing_partitions, "partitions stand still"
        ),
        level="bad" if totals.standing_partitions else "good",
    )
    if decision is not None:
        yield Tile(
            name="Off target",
            value=f"{decision.off_target:,}",
            of=f"of {decision.tasks:,}",
            note="tasks wait for a warm-up"
            if decision.off_target
            else "every task is on its target",
            level="changing" if decision.off_target else "good",
        )


def _decision(report: Report, names: Mapping[str, str]) -> str:
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
    reason = why(named(decision, names))
    return f"Last round: {decision.generation}{when}{by}, because {reason}: {done}."


def _is_lost(answer: str) -> bool:
    return answer not in (ANSWERED, NOT_ASKED)


def _lines(report: Report) -> list[Line]:
    """Return the lines in trouble, the worst first; a silent worker has a single line."""
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


# -- the grid


def _grid_values(report: Report, families: tuple[Family, ...]) -> dict[str, object]:
    grid = grid_of(report, families)
    return {
        "grid": grid,
        "drawn": tuple(_drawn(row, grid) for row in grid.rows),
        "topics": [", ".join(family.topics) for family in families],
        "c": grid.cell,
        "h": max(24, grid.cell + 6) if grid.is_compact else max(44, grid.cell + 10),
    }


def _drawn(row: Row, grid: Grid) -> Markup:
    """Draw the marks of a row. Not a template, because a large group has thousands of marks."""
    middle = 16 if grid.is_compact else 26
    found = [
        f'<text class="of" x="{x}" y="{middle}">{escape(name)}</text>' for x, name in row.names
    ]
    for mark in row.marks:
        shape = mark.shape if mark.shape == "x" else f"{mark.shape}{mark.shade}"
        text = (
            f'<text x="{mark.x + grid.cell + 1}" y="{middle}">{escape(mark.text)}</text>'
            if mark.text
            else ""
        )
        found.append(
            f'<a href="story?t={quote(mark.key)}" aria-label="{escape(mark.label)}">'
            f'<use href="#{shape}" x="{mark.x}"/>{text}</a>'
        )
    return Markup("".join(found))


# -- rounds


def _round_values(look: Look, report: Report) -> dict[str, object]:
    rounds, now = look.history.rounds, report.taken_at
    return {
        "chart": chart_of(look.history.samples, rounds, now),
        "rounds": [
            {
                **vars(one),
                "when": ago(now - one.at),
                "took": NOTHING if one.seconds is None else span(one.seconds),
            }
            for one in reversed(rounds)
        ],
        "most_rounds": MOST_ROUNDS,
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": RIGHT,
    }


# -- jinja2


def title_of(look: Look) -> str:
    """Return the title of the browser's tab; with a cross if the group is in trouble."""
    if look.report is None:
        return f"{look.group} · faust-assigner"
    bad = sum(line.level == "bad" for line in _lines(look.report))
    bad += look.problem is not None and look.problem.level == "bad"
    return f"{'✕ ' if bad else ''}{look.group} · faust-assigner"


def _icon(name: str, words: str = "") -> Markup:
    """Return an icon; ``words`` name the icon for screen readers."""
    if not words:
        return Markup(
            '<svg class="icon {}" width="14" height="14" aria-hidden="true"><use href="#i-{}"/></svg>'
        ).format(name, name)
    return Markup(
        '<svg class="icon {}" width="14" height="14" role="img" aria-label="{}"><use href="#i-{}"/></svg>'
    ).format(name, words, name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("faust_assigner.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = number
    environment.filters["px"] = "{:.4g}".format
    environment.globals["icon"] = _icon
    return environment


def _rendered(name: str, **values: object) -> str:
    return str(_environment().get_template(f"{name}.html").render(values))
