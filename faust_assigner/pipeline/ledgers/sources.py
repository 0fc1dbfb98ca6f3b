"""Ledgers as Spark DataFrames of parsed lines: files by our reader, topics by either connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.ledgers.files import Chunk, pack
from faust_assigner.pipeline.ledgers.parse import parse_chunks, parse_messages
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.progress import Visit, whole
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.ledgers.topics import read_spans
from faust_assigner.pipeline.schema import parsed_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A task reads about so many bytes: half a second of parsing, far more than a task costs.
TASK_BYTES = 8 * 1024 * 1024


def read_visit(spark: SparkSession, visit: Visit, *, connector: str = "auto") -> DataFrame:
    """The lines of ``visit`` in the parsed schema."""
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
    """Every line of ``ledgers`` as it is now, in the parsed schema; of ``period`` alone where one is given.

    Raises:
        LedgerPathError: a path that is not there, said before anything is read.
    """
    period = period or Period()
    visit = whole(ledgers, period, properties or {})
    return period.on_spark(read_visit(spark, visit, connector=connector))


def read_checked(
    spark: SparkSession,
    ledgers: Sequence[str],
    tolerance: Tolerance,
    properties: Mapping[str, str],
    period: Period | None = None,
) -> tuple[DataFrame, Refused]:
    """:func:`read_ledger`, and how many lines were refused; one pass over the ledger for that.

    Raises LedgerPathError and, where ``tolerance`` does not take so many refused lines, TooManyRefused.
    """
    parsed = read_ledger(spark, ledgers, properties=properties, period=period)
    refused = refused_of(parsed)
    tolerance.check(refused)
    return parsed, refused


def refused_of(parsed: DataFrame) -> Refused:
    """How many lines of ``parsed`` tables took and refused; one pass, one row."""
    accepted = F.coalesce(*(F.when(F.col(table).isNotNull(), True) for table in TABLES))
    place = F.concat_ws(": ", "file", "reason")
    found = parsed.agg(
        F.count_if(accepted).alias("accepted"),
        F.count("reason").alias("lines"),
        F.min(F.when(F.col("reason").isNotNull(), place)).alias("first"),
    ).collect()[0]
    return Refused(found.accepted, found.lines, found.first)


def read_chunks(spark: SparkSession, loads: Sequence[tuple[Chunk, ...]]) -> DataFrame:
    """One task for each load of ``loads``, in the parsed schema."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from parse_chunks(loads[number])

    # A range has one row per partition and so one load per task: no shuffle has to spread them.
    return spark.range(0, len(loads), 1, max(1, len(loads))).mapInArrow(read, parsed_schema())
