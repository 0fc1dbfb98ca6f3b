"""Renders the state of a group, and a task's history, as HTML. No I/O; jinja2 escapes names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from faust_assigner import __version__
from faust_assigner.page.grid import Grid, Row, grid_of
from faust_assigner.page.head import decision_of, lines_of, tiles_of
from faust_assigner.page.look import Look, no_members
from faust_assigner.page.story import story_of
from faust_assigner.page.tasks import Family
from faust_assigner.page.timeline import HEIGHT, LEFT, RIGHT, WIDTH, ago, chart_of
from faust_assigner.status.report import Report
from faust_assigner.status.words import NOTHING, number, span

#: The most lines about problems, and the most rounds, that the page lists.
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


def parts_of(look: Look) -> dict[str, str]:
    """Return the HTML of each part of the page, by the part's name.

    Cost: O(members + tasks + copies + samples).
    """
    values = _template_values(look)
    return {name: _render_template(name, **values) for name in _PARTS}


def page_of(look: Look, parts: Mapping[str, str], version: int) -> str:
    """Return the whole page with its parts."""
    return _render_template(
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
    return None if story is None else _render_template("story", story=story)


def story_page(look: Look, part: str) -> str:
    """Return a task's history as a separate page."""
    return _render_template(
        "alone", title=f"A task of {look.group}", group=look.group, body=Markup(part)
    )


_PARTS: Final = ("head", "alerts", "grid", "rounds", "about")


def _template_values(look: Look) -> dict[str, object]:
    report = look.report
    found: dict[str, object] = {
        "group": look.group,
        "report": report,
        "problem": look.problem or no_members(report),
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
            "tiles": tiles_of(report),
            "decision": decision_of(report, look.history.names),
            "lines": lines_of(report),
        }
        | _grid_values(report, look.families)
        | _round_values(look, report)
    )


# -- the grid


def _grid_values(report: Report, families: tuple[Family, ...]) -> dict[str, object]:
    grid = grid_of(report, families)
    return {
        "grid": grid,
        "drawn": tuple(_draw_row(row, grid) for row in grid.rows),
        "topics": [", ".join(family.topics) for family in families],
        "c": grid.cell,
        "h": max(24, grid.cell + 6) if grid.is_compact else max(44, grid.cell + 10),
    }


def _draw_row(row: Row, grid: Grid) -> Markup:
    """Draw the marks of a row. Python code is faster than a template for thousands of marks."""
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
    """Return the title of the browser's tab, with a cross if the group has a problem."""
    if look.report is None:
        return f"{look.group} · faust-assigner"
    bad = sum(line.level == "bad" for line in lines_of(look.report))
    bad += look.problem is not None and look.problem.level == "bad"
    return f"{'✕ ' if bad else ''}{look.group} · faust-assigner"


def _icon_markup(name: str, words: str = "") -> Markup:
    """Return an icon; ``words`` is its name for screen readers."""
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
    environment.globals["icon"] = _icon_markup
    return environment


def _render_template(name: str, **values: object) -> str:
    return str(_environment().get_template(f"{name}.html").render(values))
