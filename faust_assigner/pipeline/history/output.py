"""From what a history says to everything it leaves behind: tables, plots, page, and last report.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.history import plots
from faust_assigner.pipeline.history.kept import keep
from faust_assigner.pipeline.history.report import About, Report, to_html
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Refused, refuse_empty
from faust_assigner.pipeline.schema import HISTORY
from faust_assigner.pipeline.sinks import REPLACING, Results

if TYPE_CHECKING:
    from faust_assigner.pipeline.history.job import HistoryOptions

TITLE = "faust-assigner: history of the group"
#: Where a stream keeps what it took, and beside it what its last report said beyond the tables.
STREAM, SUMMARY = "_stream", "_stream/summary.json"
#: So many refused lines are told in report.json; the Parquet folder holds them all.
QUARANTINE_KEPT = 1000


def check(refused: Refused, folder: Results, options: HistoryOptions) -> None:
    """Raises TooManyRefused and EmptyLedger."""
    options.max_refused.check(refused)
    refuse_empty(
        refused,
        wanted=options.fail_if_empty,
        replaces=folder.url if folder.exists("report.json") else None,
    )


def replace(report: Report, folder: Results, period: Period) -> Report:
    """Bring ``folder`` up to ``report``, whose table ``quarantine`` is staged; returns what then stands.

    Days that ``folder`` holds and that the run does not cover are kept, see kept.py.

    Of the others only days whose rows changed are written. Everything is staged before the first is replaced
    (a full disk leaves all as it was) and report.json comes last: who sees a new report.json sees the
    tables it was made from, one who sees ``_REPLACING`` may see tables of two runs.
    """
    report = keep(report, folder, period)
    days = {name: _changed_days(name, report, folder) for name in HISTORY if name != "quarantine"}
    for name, changed in days.items():
        folder.stage_rows(
            name,
            [
                row
                for row in report.tables[name]
                if changed is None or row["dt"].isoformat() in changed
            ],
        )
    pictures = plots.draw(report)
    files = {f"{name}.png": picture for name, picture in pictures.items()}
    files["report.html"] = to_html(report, pictures, title=TITLE)
    if folder.exists(STREAM):
        summary = {
            "without_decision": report.without_decision,
            "refused": report.refused,
            "about": report.about.to_json(),
        }
        files[SUMMARY] = json.dumps(summary).encode()
    files["report.json"] = report.to_json()
    for name, content in files.items():
        folder.stage_file(name, content)
    with folder.replacing():
        folder.publish("quarantine")
        for name, changed in days.items():
            if changed is None:
                folder.publish(name)
            for day in sorted(changed or ()):
                folder.publish_day(name, day)
        for name in HISTORY:
            if name not in pictures:
                folder.remove(f"{name}.png")  # the last run left one
        for name in files:
            folder.publish(name)
    folder.clear_staging()
    return report


def standing(folder: Results) -> Report | None:
    """What ``folder`` says of the last run: its tables and headline; None where it is not whole."""
    if folder.exists(REPLACING) or not folder.exists("report.json") or not folder.exists(SUMMARY):
        return None
    try:
        tables, told = json.loads(folder.read("report.json")), json.loads(folder.read(SUMMARY))
        return Report(
            {name: tables[name] for name in HISTORY},
            {},
            told["without_decision"],
            told["refused"],
            About.from_json(told["about"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _changed_days(table: str, report: Report, folder: Results) -> set[str] | None:
    """The days of ``table`` whose rows are not those that stand; None: the whole table must be written."""
    if folder.exists(REPLACING) or not folder.exists("report.json") or not folder.exists(table):
        return None
    try:
        before = _by_day(json.loads(folder.read("report.json"))[table])
    except (ValueError, KeyError, TypeError):
        return None
    now = _by_day(json.loads(report.to_json())[table])
    if not before or not now:
        return None
    there = {name.removeprefix("dt=") for name in folder.children(table) if name.startswith("dt=")}
    return {
        day
        for day in before.keys() | now.keys() | there
        if before.get(day) != now.get(day) or (day in now) != (day in there)
    }


def _by_day(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    days: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        days.setdefault(row["dt"], []).append(row)
    return days
