"""Write the newest days of the store as report.html and then as report.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from operator import itemgetter
from typing import Any

import pyarrow.compute as pc

from faust_assigner.pipeline.history import plots
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.page import to_html
from faust_assigner.pipeline.history.quality import quality_of, today_of
from faust_assigner.pipeline.history.report import REPORTED, About, Report
from faust_assigner.pipeline.history.store import PENDING, Manifest, Store
from faust_assigner.pipeline.history.tables import with_day
from faust_assigner.pipeline.ledgers.refusals import Refused, refuse_empty
from faust_assigner.pipeline.rows import Rows, grouped
from faust_assigner.pipeline.schema import HISTORY_KEYS

TITLE = "faust-assigner: history of the group"
#: The number of newest days in the report; the Parquet folders hold all days.
REPORT_DAYS = 31
#: The maximum number of refused lines in report.json.
QUARANTINE_KEPT = 1000
#: The maximum number of rows in the report: the newest rebalances, the slowest recoveries.
ROWS_KEPT: Mapping[str, int] = {"rebalances": 1000, "slowest": 1000}


def check(refused: Refused, before: Manifest, options: HistoryOptions) -> None:
    """Check the refused lines against the options; raises TooManyRefused and EmptyLedger."""
    options.max_refused.check(refused)
    if options.stream and before.generation:
        return  # a visit may find no new lines
    refuse_empty(
        refused, wanted=options.fail_if_empty, replaces=options.out if before.generation else None
    )


def publish(store: Store, manifest: Manifest, options: HistoryOptions, refused: Refused) -> Report:
    """Write the page and report.json of ``manifest``; return the report.

    No file is written if report.json already has this generation and the same results of all gates (limits).
    """
    report = report_of(store, manifest, options, refused)
    folder = store.folder
    if _written(store) == _identity(json.loads(report.to_json())):
        return report
    folder.write("report.html", to_html(report, plots.draw(report), title=TITLE))
    folder.write("report.json", report.to_json())
    return report


def _written(store: Store) -> tuple[int, list[object]] | None:
    """Return the identity of the existing report; None if the report is missing or unreadable."""
    try:
        return _identity(json.loads(store.folder.read("report.json")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _identity(told: Mapping[str, Any]) -> tuple[int, list[object]]:
    """Return the generation and each gate's result, which changes with the age of the data."""
    gates: list[object] = [
        (gate["gate"], gate["limit"], gate["passed"]) for gate in told["quality"]["gates"]
    ]
    return int(told["about"]["generation"]), gates


def report_of(
    store: Store, manifest: Manifest, options: HistoryOptions, refused: Refused
) -> Report:
    """Return the newest days of ``manifest`` as a report. Cost: one read per day and table."""
    now = datetime.now(UTC)
    today = today_of(now)
    days = _report_days(manifest.dates, today)
    tables: dict[str, Rows] = {
        name: _rows(store, manifest, name, days) for name in REPORTED if name != "quarantine"
    }
    tables["owners"] = _newest_of_each_group(tables["owners"], today)
    tables["deploys"] = _over_days(tables["deploys"], ("group_id", "deploy", "policy"))
    tables["slowest"] = _slowest(tables["slowest"])[: ROWS_KEPT["slowest"]]
    tables["quarantine"] = store.read_refused(manifest).slice(0, QUARANTINE_KEPT).to_pylist()
    told = tables["rebalances"]
    tables["rebalances"] = told[-ROWS_KEPT["rebalances"] :]
    times: list[datetime] = [row["ts"] for row in told]
    about = About(
        tuple(options.ledgers),
        min(times, default=None),
        max(times, default=None),
        sum(row["tasks_moved"] for row in told),
        sum(row["tasks_cold"] for row in told),
        len(days),
        len(manifest.dates),
    )
    lost = _count_lost(store, manifest)
    wanted = (options.gates, options.max_refused)
    quality = quality_of(store, manifest, tables, lost, refused, wanted, now)
    return Report(tables, lost, manifest.refused, about, manifest.generation, quality)


def _rows(store: Store, manifest: Manifest, table: str, days: list[str]) -> Rows:
    found = [
        row for day in days for row in with_day(store.read(table, day, manifest.days[day]), day)
    ]
    return sorted(found, key=lambda row: tuple(row[key] for key in HISTORY_KEYS[table]))


def _count_lost(store: Store, manifest: Manifest) -> int:
    """Return the number of active placements whose decision is missing."""
    rows = store.read("placements", PENDING, manifest.days.get(PENDING), ["role"])
    return int(pc.sum(pc.equal(rows["role"], "active")).as_py() or 0)


def _report_days(dates: Sequence[str], today: date) -> list[str]:
    """Return the newest days. Days in the future come from wrong clocks, and only fill the number."""
    return sorted(sorted(dates, key=lambda day: (day <= today.isoformat(), day))[-REPORT_DAYS:])


def _newest_of_each_group(rows: Rows, today: date) -> Rows:
    """Return the rows of each group's newest day. A day in the future counts if there is no other day."""
    newest: dict[str, tuple[bool, date]] = {}
    for row in rows:
        day = (row["dt"] <= today, row["dt"])
        newest[row["group_id"]] = max(day, newest.get(row["group_id"], day))
    return [row for row in rows if row["dt"] == newest[row["group_id"]][1]]


def _over_days(rows: Rows, keys: tuple[str, ...]) -> Rows:
    """Merge rows of several days by ``keys``, sum their counts, and sort by their first decision."""
    found = [
        {
            **dict(zip(keys, key, strict=True)),
            "first": min(row["first"] for row in mine),
            **{
                name: sum(row[name] for row in mine)
                for name in mine[0]
                if name not in (*keys, "first", "dt")
            },
        }
        for key, mine in grouped(rows, itemgetter(*keys)).items()
    ]
    return sorted(found, key=lambda row: (row[keys[0]], row["first"], *(row[key] for key in keys)))


def _slowest(rows: Rows) -> Rows:
    """Return each partition with its longest recovery over all days, longest first."""
    found = []
    for mine in grouped(rows, itemgetter("group_id", "topic", "partition")).values():
        worst = max(mine, key=lambda row: (row["max_s"], row["source"], row["decision_id"]))
        counts = {name: sum(row[name] for row in mine) for name in ("recoveries", "records")}
        found.append({**worst, **counts})
    return sorted(found, key=lambda row: (-row["max_s"], *map(str, list(row.values())[:4])))
