"""Kafka topics on Spark, read by Spark's own connector or, without its jars, by aiokafka in the tasks.

Both readers return the committed messages with ``file`` (the partition's URL), ``pos`` (offset) and
``value``. The driver decides which offsets are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.ledgers.progress import OffsetSpan
from faust_assigner.pipeline.ledgers.topic_source import TopicSource, read_span
from faust_assigner.pipeline.rows import grouped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTORS = ("auto", "spark", "python")
MESSAGE_SCHEMA = "file string, pos long, value binary"


def has_connector(spark: SparkSession) -> bool:
    """Return whether Spark's Kafka connector is on the session's class path. Cost: one analysis, no job."""
    from pyspark.errors import PySparkException

    # The schema of Kafka's source is fixed, so Spark does not contact a broker.
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
    try:
        return bool(spark.read.format("kafka").options(**nowhere).load().schema.fieldNames())
    except PySparkException:
        return False


def read_spans(spark: SparkSession, spans: Sequence[OffsetSpan], *, connector: str) -> DataFrame:
    """Return the committed records of ``spans``.

    Raises ConfigError for an unknown connector.
    """
    if connector not in CONNECTORS:
        raise ConfigError(f"connector must be one of {', '.join(CONNECTORS)}, got {connector!r}")
    if connector == "auto":
        connector = "spark" if has_connector(spark) else "python"
    if connector == "python":
        return _by_aiokafka(spark, spans)
    topics = grouped(spans, lambda span: span.source.url)
    frames = [_by_connector(spark, mine[0].source, mine) for mine in topics.values()]
    return reduce(lambda left, right: left.unionByName(right), frames)


def _by_aiokafka(spark: SparkSession, spans: Sequence[OffsetSpan]) -> DataFrame:
    """Read the spans with aiokafka, one task per span."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                span = spans[number]
                yield from read_span(span.source, span.partition, span.start, span.end)

    numbers = spark.range(0, len(spans), 1, max(1, len(spans)))
    return numbers.mapInArrow(read, MESSAGE_SCHEMA)


def _by_connector(
    spark: SparkSession, source: TopicSource, spans: Sequence[OffsetSpan]
) -> DataFrame:
    starts = {str(span.partition): span.start for span in spans}
    ends = {str(span.partition): span.end for span in spans}
    frame = (
        spark.read.format("kafka")
        .options(**source.cluster.spark_options())
        .option("assign", json.dumps({source.topic: [span.partition for span in spans]}))
        .option("startingOffsets", json.dumps({source.topic: starts}))
        .option("endingOffsets", json.dumps({source.topic: ends}))
        .option("kafka.isolation.level", "read_committed")
        # Retention may delete records before the job reads them; the job must not fail then.
        .option("failOnDataLoss", "false")
        .load()
    )
    file = F.concat(F.lit(f"{source.url}/"), F.col("partition").cast("string"))
    return frame.select(file.alias("file"), F.col("offset").alias("pos"), "value")
