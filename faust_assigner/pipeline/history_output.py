"""From parsed lines to everything ``history`` leaves behind: tables, plots, page, and last report.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline import history as transforms
from faust_assigner.pipeline import plots
from faust_assigner.pipeline.report import Report, Rows, to_html
from faust_assigner.pipeline.schema import HISTORY, HISTORY_KEYS
from faust_assigner.pipeline.sinks import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "faust-assigner: history of the group"


def publish(parsed: DataFrame, folder: Folder) -> Report:
    """Compute the history of ``parsed`` and replace what ``folder`` held; return what it says.

    Everything is staged before the first table is replaced and report.json comes last: a reader who
    sees a new report.json sees the tables it was made from. ``parsed`` is used several times: persist it.
    """
    tables = transforms.history(parsed)
    staged = {name: folder.stage(name, tables[name].select(*_columns(name)), HISTORY_KEYS[name])
              for name in HISTORY}
    rows = {name: _collect(frame.select(*_columns(name)), *HISTORY_KEYS[name])
            for name, frame in staged.items()}
    report = Report(rows, _details(parsed), transforms.without_decision(parsed).count())
    pictures = plots.draw(report)
    page = to_html(report, pictures, title=TITLE)
    for name in HISTORY:
        folder.publish(name)
    for name in HISTORY:
        _put(folder, f"{name}.png", pictures.get(name))
    folder.write("report.html", page)
    folder.write("report.json", report.to_json())
    folder.clear_staging()
    return report


def _columns(table: str) -> list[str]:
    return [column.name for column in HISTORY[table]]


def _collect(frame: DataFrame, *keys: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.orderBy(*keys).collect()]


def _details(parsed: DataFrame) -> Mapping[str, Rows]:
    """Tables only the page shows: per deploy, and the partitions slowest to come back."""
    decided, placed = transforms.decisions(parsed), transforms.actives(parsed)
    deploys = transforms.movement_by_deploy(decided, placed)
    worst = transforms.slowest(transforms.recoveries(parsed))
    return {
        "deploys": _collect(deploys, "group_id", "first", "deploy", "policy"),
        "slowest": [row.asDict() for row in worst.orderBy(
            worst["max_s"].desc(), "group_id", "topic", "partition").limit(1000).collect()],
    }


def _put(folder: Folder, name: str, content: bytes | None) -> None:
    """A picture, or none where the last run left one."""
    if content is None:
        folder.remove(name)
    else:
        folder.write(name, content)
