"""The history as a person reads it: report.json, plots, and one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeAlias

from faust_assigner.pipeline.schema import HISTORY

Rows: TypeAlias = Sequence[Mapping[str, Any]]

TEMPLATE = Path(__file__).with_name("report.html")
#: The page lists this many rows of a long table; report.json and the Parquet folders hold them all.
ROWS_SHOWN = 50

TITLES: Mapping[str, str] = {
    "movement": "Movement per policy and day",
    "balance": "Balance per policy and day",
    "deploys": "Movement per deploy",
    "recovery": "Recovery times by cause",
    "slowest": "Slowest partitions to recover",
    "skew": "Heaviest partitions",
    "quarantine": "Refused lines",
}
NOTES: Mapping[str, str] = {
    "movement": "Over active placements. A cold move landed on a member without the partition's state.",
    "balance": "Spread: most minus fewest active partitions of a member, per decision.",
    "deploys": "A deploy is what the decisions' config calls <code>deploy</code>.",
    "recovery": "Seconds from start to end of each measured recovery; exact percentiles.",
    "slowest": "The worst time of each partition over the whole ledger.",
    "skew": "Share of the topic's records that day, largest first.",
    "quarantine": "Lines that no table took. They are counted here and nowhere else.",
}


@dataclass(frozen=True)
class Report:
    """The history tables as rows in key order, and what only the page shows."""

    tables: Mapping[str, Rows]
    #: ``deploys`` and ``slowest``: further tables of the page.
    details: Mapping[str, Rows] = field(default_factory=dict)
    #: Active placements whose decision the ledger does not hold.
    without_decision: int = 0
    #: Lines that no table took, also those beyond what ``tables`` holds of them.
    refused: int = 0

    def total(self, table: str, column: str) -> int:
        """The sum of a column over all rows of a table."""
        return sum(int(row[column]) for row in self.tables[table])

    def to_json(self) -> bytes:
        """report.json: a list of rows for each table, dates as ``YYYY-MM-DD``."""
        tables = {name: [_plain(row) for row in self.tables[name]] for name in HISTORY}
        return json.dumps(tables, indent=1, ensure_ascii=False).encode() + b"\n"

    def headline(self) -> list[tuple[str, str]]:
        """The few numbers a person looks for first, as (what, value)."""
        moved, cold = self.total("movement", "moved"), self.total("movement", "cold_moves")
        spreads = [float(row["max_spread"]) for row in self.tables["balance"]]
        slowest = [float(row["max_s"]) for row in self.tables["recovery"]]
        shares = [float(row["share"]) for row in self.tables["skew"]]
        return [
            ("decisions", f"{self.total('movement', 'decisions'):,}"),
            ("active placements", f"{self.total('movement', 'assigned'):,}"),
            ("moved", f"{moved:,}"),
            ("moved cold", f"{cold:,}"),
            ("standby hits", f"{self.total('movement', 'standby_hits'):,}"),
            ("worst spread", f"{max(spreads):g}" if spreads else "-"),
            ("idle members", f"{self.total('balance', 'idle_members'):,}"),
            ("recoveries", f"{self.total('recovery', 'recoveries'):,}"),
            ("slowest recovery", f"{max(slowest):,.3f} s" if slowest else "-"),
            ("heaviest partition", f"{max(shares):.1%} of its topic" if shares else "-"),
            ("refused lines", f"{self.refused:,}"),
            ("placements without decision", f"{self.without_decision:,}"),
        ]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.isoformat() if isinstance(value, date) else value for key, value in row.items()}


def to_html(report: Report, plots: Mapping[str, bytes], *, title: str) -> bytes:
    """The page: headline, then each table with its plot; pictures are inside, nothing is fetched."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = _cell
    sections = [_section(name, report, plots.get(name)) for name in TITLES]
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return page.render(title=title, headline=report.headline(), sections=sections).encode("utf-8")


def _section(name: str, report: Report, plot: bytes | None) -> dict[str, Any]:
    rows = report.tables.get(name, report.details.get(name, ()))
    shown = _worst_first(name, rows)[:ROWS_SHOWN]
    return {
        "id": name, "title": TITLES[name], "note": NOTES[name],
        "columns": list(shown[0]) if shown else [], "rows": [list(row.values()) for row in shown],
        "hidden": max(len(rows), report.refused if name == "quarantine" else 0) - len(shown),
        "everything": name in report.tables,
        "plot": base64.b64encode(plot).decode() if plot else None,
    }


def _worst_first(name: str, rows: Rows) -> list[Mapping[str, Any]]:
    if name == "skew":
        return sorted(rows, key=lambda row: -float(row["share"]))
    if name == "slowest":
        return sorted(rows, key=lambda row: -float(row["max_s"]))
    return list(rows)


def _cell(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else ""
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S}"
    return str(value)
