"""Merge a visit (the lines that one run reads) on Spark.

Tasks parse the lines, a shuffle groups the lines by day, and one task merges each day.

The code uses DataFrames only, so that it runs on a classic session and through Spark Connect. A visit costs
four jobs; their number does not grow with the days of the history.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.history.facts import Key, facts_in
from faust_assigner.pipeline.history.merge import DayChanges, Merged, merge_day, resolve
from faust_assigner.pipeline.history.refused import KEPT, RefusedLines
from faust_assigner.pipeline.history.store import PENDING, Day, Manifest, Store
from faust_assigner.pipeline.ledgers.progress import Visit
from faust_assigner.pipeline.ledgers.sources import read_visit, refused_of
from faust_assigner.pipeline.rows import EPOCH
from faust_assigner.pipeline.schema import LEDGER_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from faust_assigner.pipeline.history.options import HistoryOptions

_EFFECTS = ("decision", "assignment", "recovery")


class OnSpark:
    """Parse and merge a visit's lines on ``spark``; the parsed lines stay cached until :meth:`close`."""

    def __init__(self, spark: SparkSession, visit: Visit, options: HistoryOptions) -> None:
        self._spark = spark
        self._read = read_visit(spark, visit, connector=options.connector).persist()
        #: The lines of the period, and all lines that have no time.
        self._parsed = options.period.on_spark(self._read)

    def close(self) -> None:
        """Release the cached lines."""
        self._read.unpersist()

    @cached_property
    def lines(self) -> RefusedLines:
        """The refused lines and the number of all lines; the first access parses the lines in a job."""
        found = RefusedLines(refused_of(self._read))
        nothing = F.coalesce(*(F.when(F.col(table).isNotNull(), True) for table in TABLES)).isNull()
        rows = self._read.where(nothing).select("file", "chunk", "pos", "line", "reason")
        for row in rows.where("reason is null").collect():
            found.take(**row.asDict())
        if found.counts.lines:
            refused = rows.where("reason is not null").orderBy("file", "chunk", "pos").limit(KEPT)
            for row in refused.collect():
                found.take(**row.asDict())
        return found

    def merge(self, store: Store, manifest: Manifest) -> Merged:
        """Merge each day that the visit touches, with one task per partition of the shuffle."""
        resolved = resolve(store, manifest, self._named())
        changed: dict[str, Day | None] = {}
        done = set()
        for row in self._merged(store.url, manifest, resolved.days, resolved.moves).collect():
            done.add(row.day)
            if row.entry is not None:
                told = json.loads(row.entry)
                changed[row.day] = None if told is None else Day(**told)
        for day in sorted(resolved.moves.days - done):
            entry = manifest.days.get(day)
            after = merge_day(store, day, entry, {}, resolved.moves)
            if after is not entry:
                changed[day] = after
        return Merged(changed, len(done))

    def _named(self) -> dict[Key, datetime | None]:
        """Return each decision that the lines name -> its earliest time; see :func:`resolve`."""
        micros = F.unix_micros(F.min("decision.ts")).alias("micros")
        rows = self._parsed.groupBy(_column("group_id"), _column("decision_id")).agg(micros)
        return {
            (row.group_id, row.decision_id): None
            if row.micros is None
            else EPOCH + timedelta(microseconds=row.micros)
            for row in rows.where("decision_id is not null").collect()
        }

    def _merged(
        self, url: str, manifest: Manifest, days: Mapping[Key, str], moves: DayChanges
    ) -> DataFrame:
        """Return one row (day, entry) per merged day; ``entry`` is JSON, or null for an unchanged day."""
        stands = dict(manifest.days)

        def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store = Store(url)
            for day, parts in _days(batches):
                entry = stands.get(day)
                echo = [part.filter(part.column("echo")) for part in parts]
                own = [part.filter(pc.invert(part.column("echo"))) for part in parts]
                new = facts_in(own)
                after = merge_day(
                    store, day, entry, {**new, "echoes": facts_in(echo)["recoveries"]}, moves
                )
                told = "null" if after is None else json.dumps(asdict(after))
                yield pa.record_batch(
                    {
                        "day": [day],
                        "entry": pa.array([None if after is entry else told], pa.string()),
                    }
                )

        routed = self._routed(days)
        spread = routed.repartition("day").sortWithinPartitions("day")
        return spread.mapInArrow(merge, "day string, entry string")

    def _routed(self, days: Mapping[Key, str]) -> DataFrame:
        """Return the lines by ``day``, and each recovery again, as an ``echo``, on its decision's day."""
        known = self._spark.createDataFrame(
            [(*key, day) for key, day in days.items()],
            "_group string, _decision string, _day string",
        )
        lines = self._parsed.select(*LEDGER_TABLE.values()).where(
            F.coalesce(*(F.when(F.col(table).isNotNull(), True) for table in TABLES))
        )
        of = (_column("group_id") == F.col("_group")) & (
            _column("decision_id") == F.col("_decision")
        )
        told = lines.join(F.broadcast(known), of, "left").withColumn(
            "_day", F.coalesce("_day", F.lit(PENDING))
        )
        date = F.coalesce(
            F.date_format("recovery.started", "yyyy-MM-dd"),
            F.date_format("partition_sample.ts", "yyyy-MM-dd"),
            F.col("_day"),
        )
        tables = list(LEDGER_TABLE.values())
        own = told.select(date.alias("day"), F.lit(False).alias("echo"), *tables)
        echoes = told.where("recovery is not null").select(
            F.col("_day").alias("day"), F.lit(True).alias("echo"), *tables
        )
        return own.unionByName(echoes)


def _column(name: str) -> F.Column:
    return F.coalesce(*(F.col(f"{table}.{name}") for table in _EFFECTS)).alias(name)


def _days(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Split sorted batches into days; one day is in memory at a time."""
    at: str | None = None
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        days = batch.column("day").to_pylist()
        start = 0
        while start < len(days):
            end = start
            while end < len(days) and days[end] == days[start]:
                end += 1
            if at is not None and days[start] != at:
                yield at, parts
                parts = []
            at = days[start]
            parts.append(batch.slice(start, end - start))
            start = end
    if at is not None:
        yield at, parts
