"""The HTML page of a report: the summary, the pictures, and the sections with their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from faust_assigner.pipeline.history.answers import (
    RELEASES_SHOWN,
    release_rows,
    standstill_rows,
    summary,
    week_rows,
)
from faust_assigner.pipeline.history.plots import PICTURES
from faust_assigner.pipeline.history.report import Report, cell
from faust_assigner.pipeline.rows import Rows

TEMPLATE = Path(__file__).with_name("report.html")
#: The maximum number of rows of a table on the page; report.json has more rows, the Parquet folders
#: have all rows.
ROWS_SHOWN = 50
#: The maximum number of members in the table of owners.
MEMBERS_SHOWN = 200
#: The sections in the page's order: their titles and notes.
SECTIONS: Mapping[str, tuple[str, str]] = {
    "rebalances": (
        "Rebalances",
        "One row for each rebalance, the newest first. A task is a partition number of topics that move "
        "together. Why: tasks whose owner was gone or that had none, and tasks that moved for balance. The "
        "longest recovery is the time until the slowest partition of that rebalance was restored.",
    ),
    "owners": (
        "Who owns what now",
        "As the newest decision of each group left it: tasks, and topic partitions by topic.",
    ),
    "movement": (
        "Movement per policy and day",
        "In topic partitions, over active placements. A cold move landed on a member without the "
        "partition's state.",
    ),
    "balance": (
        "Balance per policy and day",
        "Spread: most minus fewest active topic partitions of a member, per decision. Rounds with "
        "warm-ups are counted apart: in these rounds a new member is empty on purpose.",
    ),
    "deploys": (
        "Movement per release",
        "Counts are topic partitions. A deploy is a value of <code>deploy</code> in a decision's config.",
    ),
    "recovery": (
        "Recovery times by cause",
        "Seconds from start to end of each measured recovery; exact percentiles.",
    ),
    "slowest": (
        "Slowest partitions to recover",
        "The worst time of each partition over the whole ledger.",
    ),
    "skew": ("Heaviest partitions", "Share of the topic's records that day, largest first."),
    "quarantine": (
        "Refused lines",
        "Invalid lines of the ledgers; no other table counts these lines.",
    ),
}


def rebalance_row(outcome: Mapping[str, Any]) -> dict[str, object]:
    """Convert a row of the table ``rebalances`` to the page's columns."""
    moved, orphaned = outcome["tasks_moved"], outcome["tasks_orphaned"]
    causes = [
        f"{count} {cause}"
        for count, cause in (
            (orphaned, "without a living owner"),
            (moved - orphaned, "for balance"),
        )
        if count
    ]
    longest = outcome["longest_recovery_s"]
    return {
        "time": outcome["ts"],
        "group": outcome["group_id"],
        "trigger": outcome["trigger"],
        "members": outcome["members"],
        "tasks moved": moved,
        "cold": outcome["tasks_cold"],
        "why": ", ".join(causes),
        "topic partitions moved": outcome["moved"],
        "solve ms": float(outcome["solve_ms"]),
        "longest recovery s": "" if longest is None else longest,
        "policy": outcome["policy"],
    }


def owner_shown(row: Mapping[str, object]) -> dict[str, object]:
    """Convert a row of the table ``owners`` to the page's columns."""
    return {
        "group": row["group_id"],
        "member": row["member"],
        "rack": row["rack"] or "",
        "tasks": row["tasks"],
        "active topic partitions": row["active"],
        "standby topic partitions": row["standby_partitions"],
    }


def to_html(report: Report, plots: Mapping[str, str], *, title: str) -> bytes:
    """Render the page: summary, pictures, data quality, then the tables; the page loads no other files.

    ``plots``: name -> SVG; the SVG's colours are the page's CSS variables.
    """
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = cell
    environment.tests["moment"] = lambda value: isinstance(value, date)
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    tables = report.tables
    quality = report.quality
    return (
        page.render(
            title=title,
            about=report.about.lines(),
            summary=summary(tables, report.today),
            week=_grid(week_rows(tables, report.today)),
            standstills=_grid(standstill_rows(tables)),
            releases=_grid(release_rows(tables)[-RELEASES_SHOWN:]),
            pictures=[
                (name, picture.title, picture.note, plots[name])
                for name, picture in PICTURES.items()
                if name in plots
            ],
            quality=quality.rows() if quality is not None else [],
            headline=report.headline(),
            sections=[_section(name, report) for name in SECTIONS],
        )
        .lstrip()
        .encode("utf-8")
    )


def _grid(rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return a table of the page: its columns, whether each column is numeric, and its values."""
    columns = list(rows[0]) if rows else []
    numeric = [
        any(isinstance(row[name], (int, float)) for row in rows)
        and all(row[name] is None or isinstance(row[name], (int, float)) for row in rows)
        for name in columns
    ]
    return {"columns": columns, "numeric": numeric, "rows": [list(row.values()) for row in rows]}


def _section(name: str, report: Report) -> dict[str, object]:
    rows = report.tables.get(name, ())
    total = max(len(rows), report.refused if name == "quarantine" else 0)
    most = MEMBERS_SHOWN if name == "owners" else ROWS_SHOWN
    shown = [_SHOWN.get(name, dict)(row) for row in _worst_first(name, rows)[:most]]
    title, note = SECTIONS[name]
    return {
        "id": name,
        "title": title,
        "note": note,
        "total": total,
        "hidden": total - len(shown),
        **_grid(shown),
    }


_SHOWN: Mapping[str, Callable[[Mapping[str, Any]], dict[str, object]]] = {
    "rebalances": rebalance_row,
    "owners": owner_shown,
}


def _worst_first(name: str, rows: Rows) -> list[Mapping[str, Any]]:
    if name == "skew":
        return sorted(rows, key=lambda row: -float(row["share"]))
    if name == "rebalances":
        return list(reversed(rows))
    if name == "slowest":
        return sorted(rows, key=lambda row: -float(row["max_s"]))
    return list(rows)
