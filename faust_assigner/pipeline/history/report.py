"""The report of the history: its tables, its origin, its headline, and the content of report.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from faust_assigner.pipeline.jars import installed
from faust_assigner.pipeline.rows import Rows
from faust_assigner.pipeline.schema import is_leader_topic

if TYPE_CHECKING:
    from faust_assigner.model import Member
    from faust_assigner.pipeline.history.quality import Quality
    from faust_assigner.pipeline.ledgers.current import GroupState

#: The tables of report.json. ``moves`` and the facts are too long: they are only in Parquet folders.
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
    version: str = field(default_factory=lambda: installed("faust-assigner") or "(not installed)")

    def lines(self) -> list[tuple[str, str]]:
        """(name, value) pairs for the head of the page."""
        period = f"{cell(self.first)} to {cell(self.last)} UTC" if self.first else "no decision"
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
    #: The number of active placements whose decision was not found in any ledger so far.
    without_decision: int = 0
    #: The number of refused lines, including those beyond the limit of the table ``quarantine``.
    refused: int = 0
    about: About = field(default_factory=About)
    #: The generation of the store at the time of the report.
    generation: int = 0
    quality: Quality | None = None

    @property
    def today(self) -> date | None:
        """The last day that is not in the future; None if the quality was not computed."""
        return None if self.quality is None else self.quality.today

    def total(self, table: str, column: str) -> int:
        """Return the sum of a column over all rows of a table."""
        return sum(int(row[column]) for row in self.tables[table])

    def to_json(self) -> bytes:
        """Return the content of report.json: the rows of each table in ``REPORTED``; times are ISO 8601."""
        tables: dict[str, object] = {
            name: [_plain(row) for row in self.tables[name]] for name in REPORTED
        }
        about = _plain({**asdict(self.about), "generation": self.generation})
        quality = _plain(asdict(self.quality)) if self.quality is not None else None
        told = {**tables, "about": about, "quality": quality}
        return json.dumps(told, ensure_ascii=False).encode() + b"\n"

    def headline(self) -> list[tuple[str, str]]:
        """Return the most important figures as (name, value) pairs."""
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


def owner_row(group: GroupState, member: Member) -> dict[str, object]:
    """Return a row of the table ``owners`` for ``member``, without the group's and the decision's id."""
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


def cell(value: object) -> str:
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
