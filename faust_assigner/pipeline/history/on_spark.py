"""The history on Spark: parsed lines -> rows of all tables, by the functions of ``transforms.py``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.history import output, transforms
from faust_assigner.pipeline.history.output import check, replace
from faust_assigner.pipeline.history.report import About, Report, Rows, owner_rows, rebalance_row
from faust_assigner.pipeline.ledgers.current import current_on_spark
from faust_assigner.pipeline.ledgers.quarantine import quarantined, refused_of
from faust_assigner.pipeline.schema import HISTORY, HISTORY_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from faust_assigner.pipeline.history.job import HistoryOptions
    from faust_assigner.pipeline.sinks import Folder

#: The page lists the slowest partitions and the newest rebalances alone; so many are kept for it.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SLOWEST_KEPT = 1000
REBALANCES_KEPT = 1000


def publish(parsed: DataFrame, folder: Folder, options: HistoryOptions) -> Report:
    """Compute the history of ``parsed`` and bring what ``folder`` holds up to it; return what it says.

    Raises EmptyLedger and TooManyRefused before anything is staged.
    """
    with _kept(parsed) as lines:
        check(refused_of(lines), folder, options)
        decided, placed = transforms.decisions(lines), transforms.actives(lines)
        with _kept(transforms.outcomes(decided, placed)) as outcome:
            report = _report(lines, outcome, folder, options)
    return replace(report, folder, options.period)


def _report(
    lines: DataFrame, outcome: DataFrame, folder: Folder, options: HistoryOptions
) -> Report:
    """All tables as rows; the refused lines, which may be millions, are staged from where they are."""
    recovered = transforms.recoveries(lines)
    tables = {
        "movement": transforms.movement(outcome),
        "balance": transforms.balance(outcome),
        "recovery": transforms.recovery(recovered),
        "skew": transforms.skew(transforms.samples(lines)),
    }
    rows = {
        name: _rows(table.select(*(column.name for column in HISTORY[name])), *HISTORY_KEYS[name])
        for name, table in tables.items()
    }
    staged = folder.stage("quarantine", quarantined(lines).select("file", "line", "reason"))
    rows["quarantine"] = _rows(
        staged.orderBy(*HISTORY_KEYS["quarantine"]).limit(output.QUARANTINE_KEPT),
        *HISTORY_KEYS["quarantine"],
    )
    slowest = transforms.slowest(recovered).orderBy("max_s", ascending=False).limit(SLOWEST_KEPT)
    told = outcome.where("dt is not null")
    newest = told.join(
        transforms.longest_recoveries(recovered), list(transforms.DECISION_KEY), "left"
    )
    newest = newest.orderBy("ts", ascending=False).limit(REBALANCES_KEPT)
    sums = told.agg(*transforms.sums()).collect()[0]
    details: Mapping[str, Rows] = {
        "rebalances": [
            rebalance_row(row) for row in _rows(newest, "ts", "group_id", "decision_id")
        ],
        "owners": owner_rows(current_on_spark(lines)),
        "deploys": _rows(
            transforms.movement_by_deploy(outcome), "group_id", "first", "deploy", "policy"
        ),
        "slowest": _rows(slowest, "group_id", "topic", "partition"),
    }
    lost = outcome.where("dt is null").groupBy().sum("assigned").collect()[0][0]
    about = About(
        tuple(options.ledgers),
        _utc(sums.first),
        _utc(sums.last),
        int(sums.tasks_moved or 0),
        int(sums.tasks_cold or 0),
    )
    return Report(rows, details, int(lost or 0), staged.count(), about)


def _utc(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


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
    from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
    from pyspark.sql.types import TimestampType

    # Spark hands a timestamp to Python as local time without a zone, which is no order either.
    times = [field.name for field in frame.schema if isinstance(field.dataType, TimestampType)]
    frame = frame.withColumns({name: F.unix_micros(name) for name in times})
    rows = [row.asDict() for row in frame.collect()]
    for row in rows:
        row.update({name: _utc(row[name]) for name in times})
    return sorted(rows, key=lambda row: tuple(row[key] for key in keys))
