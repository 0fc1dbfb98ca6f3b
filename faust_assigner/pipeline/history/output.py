"""From parsed lines to everything ``history`` leaves behind: tables, plots, page, and last report.json."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.history import plots, transforms
from faust_assigner.pipeline.history.report import Report, Rows, to_html
from faust_assigner.pipeline.ledgers.quarantine import quarantined, refused_of
from faust_assigner.pipeline.ledgers.refusals import refuse_empty
from faust_assigner.pipeline.schema import HISTORY, HISTORY_KEYS
from faust_assigner.pipeline.sinks import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from faust_assigner.pipeline.history.job import HistoryOptions

TITLE = "faust-assigner: history of the group"
#: The page lists the slowest partitions alone; so many are kept for it.
SLOWEST_KEPT = 1000
#: So many refused lines are told in report.json; the Parquet folder holds them all.
QUARANTINE_KEPT = 1000


def publish(parsed: DataFrame, folder: Folder, options: HistoryOptions) -> Report:
    """Compute the history of ``parsed`` and replace what ``folder`` held; return what it says.

    Everything is staged before the first table is replaced and report.json comes last: a reader who
    sees a new report.json sees the tables it was made from, one who sees ``_REPLACING`` may see tables of
    two runs. Raises EmptyLedger and TooManyRefused before anything is staged.
    """
    with _kept(parsed) as lines:
        refused = refused_of(lines)
        options.max_refused.check(refused)
        refuse_empty(refused, wanted=options.fail_if_empty,
                     replaces=folder.url if folder.exists("report.json") else None)
        decided, placed = transforms.decisions(lines), transforms.actives(lines)
        with _kept(transforms.outcomes(decided, placed)) as outcome:
            report = _stage(lines, outcome, folder)
    pictures = plots.draw(report)
    page = to_html(report, pictures, title=TITLE)
    with folder.replacing():
        for name in HISTORY:
            folder.publish(name)
        for name in HISTORY:
            _put(folder, f"{name}.png", pictures.get(name))
        folder.write("report.html", page)
        folder.write("report.json", report.to_json())
    folder.clear_staging()
    return report


def _stage(lines: DataFrame, outcome: DataFrame, folder: Folder) -> Report:
    """All tables written beside their place, and read from there for the report."""
    recovered = transforms.recoveries(lines)
    tables = {
        "movement": transforms.movement(outcome),
        "balance": transforms.balance(outcome),
        "recovery": transforms.recovery(recovered),
        "skew": transforms.skew(transforms.samples(lines)),
        "quarantine": quarantined(lines),
    }
    rows, refused = {}, 0
    for name, columns in HISTORY.items():
        ordered = tables[name].select(*(column.name for column in columns))
        staged = folder.stage(name, ordered, HISTORY_KEYS[name])
        kept = staged.select(*ordered.columns)
        if name == "quarantine":
            refused = kept.count()
            kept = kept.orderBy(*HISTORY_KEYS[name]).limit(QUARANTINE_KEPT)
        rows[name] = _rows(kept, *HISTORY_KEYS[name])
    slowest = transforms.slowest(recovered).orderBy("max_s", ascending=False).limit(SLOWEST_KEPT)
    details: Mapping[str, Rows] = {
        "deploys": _rows(transforms.movement_by_deploy(outcome), "group_id", "first", "deploy", "policy"),
        "slowest": _rows(slowest, "group_id", "topic", "partition"),
    }
    lost = outcome.where("dt is null").groupBy().sum("assigned").collect()[0][0]
    return Report(rows, details, int(lost or 0), refused)


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """``frame`` computed once for all that is done with it inside the block."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _rows(frame: DataFrame, *keys: str) -> list[dict[str, Any]]:
    """All rows, by key; sorted here, for Spark would read the table twice more to sort it."""
    rows = [row.asDict() for row in frame.collect()]
    return sorted(rows, key=lambda row: tuple(row[key] for key in keys))


def _put(folder: Folder, name: str, content: bytes | None) -> None:
    """A picture, or none where the last run left one."""
    if content is None:
        folder.remove(name)
    else:
        folder.write(name, content)
