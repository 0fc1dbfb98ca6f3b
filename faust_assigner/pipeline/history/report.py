"""The report of the history: report.json, and one HTML page that contains its pictures."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from faust_assigner.pipeline.history.answers import (
    RELEASES_SHOWN,
    release_rows,
    standstill_rows,
    summary,
    week_rows,
)
from faust_assigner.pipeline.schema import is_leader_topic

if TYPE_CHECKING:
    from faust_assigner.model import Member
    from faust_assigner.pipeline.history.quality import Quality
    from faust_assigner.pipeline.ledgers.current import Current

Rows: TypeAlias = Sequence[Mapping[str, Any]]

#: The tables of report.json. ``moves`` and the facts are too long; only their Parquet folders hold them.
REPORTED = (
    "movement",
    "balance",
    "recovery",
    "skew",
    "rebalances",
    "owners",
    "deploys",
    "slowest",
    "timeline",
    "standstills",
    "quarantine",
)
TEMPLATE = Path(__file__).with_name("report.html")
#: The most rows of a table on the page; report.json holds more rows, the Parquet folders hold all.
ROWS_SHOWN = 50
#: The most members in the table of owners.
MEMBERS_SHOWN = 200

#: The pictures in the page's order: their titles and notes.
PICTURES: Mapping[str, tuple[str, str]] = {
    "members": ("Members over time", "The group's members after each rebalance."),
    "standstill": (
        "Standstill",
        "Each hour's longest recovery: the time from a partition's assignment to its first new record.",
    ),
    "lag": (
        "Lag",
        "Each hour's highest lag of a single partition, and the sum over all partitions, in records.",
    ),
    "causes": ("Moves by cause", "Tasks per day."),
    "releases": (
        "Releases compared",
        "Moved tasks per round, and the median and longest standstill.",
    ),
    "owners": ("Tasks per member now", "As the newest decision of each group left it, sorted."),
    "balance": (
        "Balance",
        "Most minus fewest active topic partitions of a member. Rounds with warm-ups do not count.",
    ),
    "recovery": (
        "Recovery times by source",
        "A line from the median to the longest, and a dot at 90%, in seconds.",
    ),
    "skew": ("Heaviest partitions", "Each on its worst day."),
}

TITLES: Mapping[str, str] = {
    "rebalances": "Rebalances",
    "owners": "Who owns what now",
    "movement": "Movement per policy and day",
    "balance": "Balance per policy and day",
    "deploys": "Movement per release",
    "recovery": "Recovery times by cause",
    "slowest": "Slowest partitions to recover",
    "skew": "Heaviest partitions",
    "quarantine": "Refused lines",
}
NOTES: Mapping[str, str] = {
    "rebalances": "One row each, the newest first. A task is a partition number of topics that travel "
    "together. Why: tasks whose owner was gone or that had none, and tasks that moved for balance. The "
    "longest recovery is how long the slowest partition of that rebalance took to come back.",
    "owners": "As the newest decision of each group left it: tasks, and topic partitions by topic.",
    "movement": "In topic partitions, over active placements. A cold move landed on a member without the "
    "partition's state.",
    "balance": "Spread: most minus fewest active topic partitions of a member, per decision. Rounds with "
    "warm-ups are counted apart: in these rounds a new member is empty on purpose.",
    "deploys": "In topic partitions. A deploy is what the decisions' config calls <code>deploy</code>.",
    "recovery": "Seconds from start to end of each measured recovery; exact percentiles.",
    "slowest": "The worst time of each partition over the whole ledger.",
    "skew": "Share of the topic's records that day, largest first.",
    "quarantine": "Lines that no table took. They are counted here and nowhere else.",
}


@dataclass(frozen=True)
class About:
    """The origin of a report: its sources, its first and last decision, the total of moved tasks.

    A *task* is a partition number of topics with equal partition counts, which move together; Faust's leader
    topic has no tasks. The tables count topic partitions.
    """

    sources: tuple[str, ...] = ()
    first: datetime | None = None
    last: datetime | None = None
    tasks_moved: int = 0
    tasks_cold: int = 0
    #: The number of days in the report, and in the whole history.
    days: int = 0
    days_in_all: int = 0
    version: str = field(default_factory=lambda: installed_version())

    def lines(self) -> list[tuple[str, str]]:
        """(name, value) pairs for the head of the page."""
        period = f"{_cell(self.first)} to {_cell(self.last)} UTC" if self.first else "no decision"
        older = self.days_in_all - self.days
        return [
            ("period", period),
            *([("older", f"{older:,} days, in the Parquet folders")] if older else ()),
            ("read from", ", ".join(self.sources)),
            ("written by", f"faust-assigner {self.version}"),
        ]


@dataclass(frozen=True)
class Report:
    """The newest days of the history as rows in key order."""

    tables: Mapping[str, Rows]
    #: Active placements whose decision was in no ledger so far.
    without_decision: int = 0
    #: The number of refused lines, including those beyond the limit of the table ``quarantine``.
    refused: int = 0
    about: About = field(default_factory=About)
    #: The generation of the store at the time of the report.
    generation: int = 0
    quality: Quality | None = None

    @property
    def today(self) -> date | None:
        """The last day that is not in the future; None without a report on the quality."""
        return None if self.quality is None else self.quality.today

    def total(self, table: str, column: str) -> int:
        """The sum of a column over all rows of a table."""
        return sum(int(row[column]) for row in self.tables[table])

    def to_json(self) -> bytes:
        """The content of report.json: the rows of each table in ``REPORTED``; times are ISO 8601."""
        tables: dict[str, object] = {
            name: [_plain(row) for row in self.tables[name]] for name in REPORTED
        }
        about = _plain({**asdict(self.about), "generation": self.generation})
        quality = self.quality.to_plain() if self.quality is not None else None
        told = {**tables, "about": about, "quality": quality}
        return json.dumps(told, ensure_ascii=False).encode() + b"\n"

    def headline(self) -> list[tuple[str, str]]:
        """The most important figures as (name, value) pairs."""
        spreads = [
            float(row["max_spread"])
            for row in self.tables["balance"]
            if row["max_spread"] is not None
        ]
        slowest = [float(row["max_s"]) for row in self.tables["recovery"]]
        shares = [float(row["share"]) for row in self.tables["skew"]]
        return [
            ("decisions", f"{self.total('movement', 'decisions'):,}"),
            ("tasks moved", f"{self.about.tasks_moved:,}"),
            ("tasks moved cold", f"{self.about.tasks_cold:,}"),
            ("topic partitions placed", f"{self.total('movement', 'assigned'):,}"),
            ("topic partitions moved", f"{self.total('movement', 'moved'):,}"),
            ("standby hits (topic partitions)", f"{self.total('movement', 'standby_hits'):,}"),
            ("worst spread (topic partitions)", f"{max(spreads):g}" if spreads else "-"),
            ("idle members", f"{self.total('balance', 'idle_members'):,}"),
            ("recoveries", f"{self.total('recovery', 'recoveries'):,}"),
            ("slowest recovery", f"{max(slowest):,.3f} s" if slowest else "-"),
            ("heaviest partition", f"{max(shares):.1%} of its topic" if shares else "-"),
            ("refused lines", f"{self.refused:,}"),
            ("placements without decision", f"{self.without_decision:,}"),
            ("days", f"{self.about.days:,} of {self.about.days_in_all:,}"),
        ]


def installed_version() -> str:
    """The installed version of this package."""
    try:
        return importlib.metadata.version("faust-assigner")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


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


def owner_row(group: Current, member: Member) -> dict[str, object]:
    """The partitions of ``member`` in ``group``: a row of the table ``owners`` without group and decision."""
    mine = {
        topic: numbers for topic, numbers in member.actives.items() if not is_leader_topic(topic)
    }
    tasks = {
        (group.partitions[topic], int(number))
        for topic, numbers in mine.items()
        for number in numbers
    }
    return {
        "member_id": member.member_id,
        "member": member.instance_id or member.member_id,
        "rack": member.rack_id,
        "tasks": len(tasks),
        "active_partitions": sum(len(list(numbers)) for numbers in mine.values()),
        "active": "; ".join(
            f"{topic} {_spans(numbers)}" for topic, numbers in sorted(mine.items())
        ),
        "standby_partitions": sum(len(list(numbers)) for numbers in member.standbys.values()),
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


def _spans(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: ``0-3, 7``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def _plain(row: Mapping[str, object]) -> dict[str, object]:
    return {
        key: value.isoformat() if isinstance(value, date) else value for key, value in row.items()
    }


def to_html(report: Report, plots: Mapping[str, str], *, title: str) -> bytes:
    """The page: answers, pictures, data quality, then the tables; the page loads no files.

    ``plots``: name -> SVG, whose colours are the page's CSS variables.
    """
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = _cell
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
            pictures=[(name, *PICTURES[name], plots[name]) for name in PICTURES if name in plots],
            quality=quality.rows() if quality is not None else [],
            headline=report.headline(),
            sections=[_section(name, report) for name in TITLES],
        )
        .lstrip()
        .encode("utf-8")
    )


def _grid(rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Rows as a table of the page: its columns, whether each holds numbers, its values."""
    columns = list(rows[0]) if rows else []
    numeric = [
        any(isinstance(row[name], (int, float)) for row in rows)
        and all(row[name] is None or isinstance(row[name], (int, float)) for row in rows)
        for name in columns
    ]
    return {
        "columns": columns,
        "numeric": numeric,
        "rows": [list(row.values()) for row in rows],
    }


def _section(name: str, report: Report) -> dict[str, object]:
    rows = report.tables.get(name, ())
    shown = [_SHOWN.get(name, dict)(row) for row in _worst_first(name, rows)[: _rows_shown(name)]]
    return {
        "id": name,
        "title": TITLES[name],
        "note": NOTES[name],
        "total": max(len(rows), report.refused if name == "quarantine" else 0),
        "hidden": max(len(rows), report.refused if name == "quarantine" else 0) - len(shown),
        **_grid(shown),
    }


def _rows_shown(name: str) -> int:
    return MEMBERS_SHOWN if name == "owners" else ROWS_SHOWN


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


def _cell(value: object) -> str:
    """Format a value for the page's tables."""
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else ""
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S}"
    return str(value)
