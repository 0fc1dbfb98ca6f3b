"""Ledgers as Spark DataFrames of parsed lines; ``topics.py`` has the two connectors for topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.ledgers.chunks import Chunk, pack
from faust_assigner.pipeline.ledgers.parse import parse_chunks, parse_messages
from faust_assigner.pipeline.ledgers.period import Period, without_future_on_spark
from faust_assigner.pipeline.ledgers.progress import Visit, plan_full_visit
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.ledgers.topics import read_spans
from faust_assigner.pipeline.schema import parsed_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The approximate bytes per task: half a second of parsing, which is far more than a task's overhead.
TASK_BYTES = 8 * 1024 * 1024


def read_visit(spark: SparkSession, visit: Visit, *, connector: str = "auto") -> DataFrame:
    """Return the lines of ``visit`` in the parsed schema."""
    frames = []
    if visit.spans:
        messages = read_spans(spark, visit.spans, connector=connector)
        frames.append(messages.mapInArrow(parse_messages, parsed_schema()))
    if visit.chunks or not frames:
        size = sum(chunk.end - chunk.start for chunk in visit.chunks)
        frames.append(read_chunks(spark, pack(visit.chunks, 1 + size // TASK_BYTES)))
    return reduce(lambda left, right: left.unionByName(right), frames)


def read_ledger(
    spark: SparkSession,
    ledgers: Sequence[str],
    *,
    connector: str = "auto",
    properties: Mapping[str, str] | None = None,
    period: Period | None = None,
) -> DataFrame:
    """Return all current lines of ``ledgers`` in ``period``, in the parsed schema.

    Raises:
        LedgerPathError: a path is missing; raised before any line is read.
    """
    period = period or Period()
    visit = plan_full_visit(ledgers, period, properties or {})
    return period.on_spark(read_visit(spark, visit, connector=connector))


def read_checked(
    spark: SparkSession,
    ledgers: Sequence[str],
    tolerance: Tolerance,
    properties: Mapping[str, str],
    period: Period | None = None,
    *,
    now: datetime | None = None,
) -> tuple[DataFrame, Refused]:
    """Return :func:`read_ledger`'s lines, and the counts of all lines, also of lines outside the period.

    With ``now``, lines from clocks that are ahead are left out, see ``without_future``. Cost: one or two more
    passes over the ledger. Raises LedgerPathError for a missing path, and TooManyRefused if
    the refused lines exceed ``tolerance``.
    """
    period = period or Period()
    lines = read_visit(spark, plan_full_visit(ledgers, period, properties))
    refused = refused_of(lines)
    tolerance.check(refused)
    parsed = period.on_spark(lines)
    return parsed if now is None else without_future_on_spark(parsed, now), refused


def rows_of(parsed: DataFrame, table: str) -> DataFrame:
    """Return the accepted lines of one table, in the table's columns."""
    return parsed.where(F.col(table).isNotNull()).select(f"{table}.*")


def refused_of(parsed: DataFrame) -> Refused:
    """Count the accepted and refused lines in ``parsed``. Cost: one pass, one collected row."""
    accepted = F.coalesce(*(F.when(F.col(table).isNotNull(), True) for table in TABLES))
    place = F.concat_ws(": ", "file", "reason")
    found = parsed.agg(
        F.count_if(accepted).alias("accepted"),
        F.count("reason").alias("lines"),
        F.min(F.when(F.col("reason").isNotNull(), place)).alias("first"),
    ).collect()[0]
    return Refused(found.accepted, found.lines, found.first)


def read_chunks(spark: SparkSession, loads: Sequence[tuple[Chunk, ...]]) -> DataFrame:
    """Return the lines of ``loads`` in the parsed schema, with one task per load."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from parse_chunks(loads[number])

    # The range has one row per partition, so each task gets one load without a shuffle.
    return spark.range(0, len(loads), 1, max(1, len(loads))).mapInArrow(read, parsed_schema())
