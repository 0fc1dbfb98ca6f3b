"""Kafka topics as DataFrames: Spark's own connector, or aiokafka into Arrow where Maven is not to be had.

Both give ``key, value, topic, partition, offset, timestamp``, committed records only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.ledgers.period import SLACK, Period
from faust_assigner.pipeline.ledgers.topic_source import TopicSource as TopicSource
from faust_assigner.pipeline.ledgers.topic_source import split_sources as split_sources
from faust_assigner.pipeline.schema import arrow_schema, columns, spark_schema
from faust_assigner.snapshots.changelog import Changelog, Extent, look_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

FORMAT = "faust_assigner_topic"
#: In a stream's offset beside the numbers of partitions: Kafka's id of the topic.
TOPIC_ID = "topic_id"
#: Partition number, as text -> the next record's offset; and TOPIC_ID, where the broker has ids.
TopicOffset: TypeAlias = dict[str, Any]
CONNECTORS = ("auto", "spark", "python")
FETCH_TIMEOUT_MS = 1000
#: A partition that gives nothing for this long before its end is reported, not waited for.
STALL_S = 60.0

MESSAGE = columns(
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
)
MESSAGE_SCHEMA = spark_schema(MESSAGE)
MESSAGE_ARROW = arrow_schema(MESSAGE)


def has_connector(spark: SparkSession) -> bool:
    """Whether Spark's own Kafka connector is on this session's class path."""
    from py4j.protocol import Py4JJavaError

    try:
        spark._jvm.org.apache.spark.util.Utils.classForName(
            "org.apache.spark.sql.kafka010.KafkaSourceProvider", True, False
        )
    except Py4JJavaError:
        return False
    return True


def read_topic(
    spark: SparkSession,
    source: TopicSource,
    *,
    connector: str = "auto",
    period: Period | None = None,
) -> DataFrame:
    """All committed records of a topic, from its first offset to its end as of now.

    Of a ``period`` the connector's first offset is the first record from then on; aiokafka reads all.
    """
    bounds = {}
    if period is not None and period.since is not None:
        bounds = {
            "startingTimestamp": str(round((period.since - SLACK).timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    return _load(spark, spark.read, source, connector, bounds)


def stream_topic(spark: SparkSession, source: TopicSource, *, connector: str = "auto") -> DataFrame:
    """A topic as an unbounded DataFrame, from its first offset."""
    return _load(spark, spark.readStream, source, connector)


def _load(
    spark: SparkSession,
    reader: Any,
    source: TopicSource,
    connector: str,
    bounds: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    if connector not in CONNECTORS:
        raise ConfigError(f"connector is one of {', '.join(CONNECTORS)}, not {connector!r}")
    if connector == "auto":
        connector = "spark" if has_connector(spark) else "python"
    frame: DataFrame
    if connector == "spark":
        frame = (
            reader.format("kafka")
            .options(
                **{
                    **source.cluster.spark_options(),
                    "subscribe": source.topic,
                    "startingOffsets": "earliest",
                    "kafka.isolation.level": "read_committed",
                    # Retention may drop what a stream has not read yet; a job that dies helps nobody then.
                    "failOnDataLoss": "false",
                    **bounds,
                }
            )
            .load()
        )
    else:
        spark.dataSource.register(TopicDataSource)
        frame = reader.format(FORMAT).options(**source.to_options()).load()
    return frame.select(*MESSAGE_SCHEMA.names)


class _Span(InputPartition):  # type: ignore[misc]
    """Offsets [start, end) of one partition."""

    def __init__(self, partition: int, start: int, end: int) -> None:
        super().__init__((partition, start, end))


class TopicDataSource(DataSource):  # type: ignore[misc]
    """``format("faust_assigner_topic")``: options ``bootstrap``, ``topic``, ``properties_secret`` (JSON)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Key, value and place of a record."""
        return MESSAGE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """All that is there now."""
        return TopicReader(TopicSource.from_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """What is there and what will be produced."""
        return TopicStreamReader(TopicSource.from_options(self.options))


class TopicReader(DataSourceReader):  # type: ignore[misc]
    """Every record between the first offset and the end, once."""

    def __init__(self, source: TopicSource) -> None:
        self.source = source

    def partitions(self) -> Sequence[InputPartition]:
        """One task a partition."""
        return [
            _Span(number, extent.start, extent.end)
            for number, extent in sorted(extents_now(self.source).items())
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one partition."""
        return read_span(self.source, *partition.value)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A growing topic; the offset is, for each partition, the next record's, and the topic's id.

    A topic that was deleted and created again has another id (from a broker without ids: a lower end) and is
    read from its first record.
    """

    def __init__(self, source: TopicSource) -> None:
        self.source = source
        self._ceiling: TopicOffset | None = None

    def initialOffset(self) -> TopicOffset:  # noqa: N802 - Spark's name
        """The first offset still there."""
        log = topic_now(self.source)
        return {str(number): extent.start for number, extent in log.extents.items()} | _identity(
            log
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at the end as it is at the start."""
        self._ceiling = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """No limit: a micro-batch takes all there is."""
        return ReadAllAvailable()

    def latestOffset(self, start: TopicOffset, limit: ReadLimit) -> TopicOffset:  # noqa: N802
        """The end of every partition, never behind ``start`` of the same topic."""
        now = self._ceiling if self._ceiling is not None else self._ends()
        if _is_another(start, now):
            logger.warning(
                "%s was deleted and created again: it is read from its first record",
                self.source.url,
            )
            return now
        known = _numbers(start)
        ends = {number: max(end, known.get(number, 0)) for number, end in _numbers(now).items()}
        return dict(sorted({**start, **now, **ends}.items()))

    def _ends(self) -> TopicOffset:
        log = topic_now(self.source)
        return {str(number): extent.end for number, extent in log.extents.items()} | _identity(log)

    def partitions(self, start: TopicOffset, end: TopicOffset) -> Sequence[InputPartition]:
        """One task for each partition that has something new."""
        known = {} if _is_another(start, end) else _numbers(start)
        return [
            _Span(int(number), known.get(number, 0), last)
            for number, last in sorted(_numbers(end).items())
            if last > known.get(number, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one partition's new offsets."""
        return read_span(self.source, *partition.value)


def _identity(log: Changelog) -> TopicOffset:
    return {} if log.topic_id is None else {TOPIC_ID: log.topic_id}


def _numbers(offset: TopicOffset) -> dict[str, int]:
    """Of the partitions alone."""
    return {number: int(place) for number, place in offset.items() if number != TOPIC_ID}


def _is_another(before: TopicOffset, now: TopicOffset) -> bool:
    """Whether ``now`` is of a topic that was created again under the name of the one before."""
    if TOPIC_ID in before and TOPIC_ID in now:
        return bool(before[TOPIC_ID] != now[TOPIC_ID])
    known = _numbers(before)
    return any(place < known.get(number, 0) for number, place in _numbers(now).items())


def _consumer(source: TopicSource) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(
        **source.cluster.connection(),
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=8 * 1024 * 1024,
    )


def extents_now(source: TopicSource) -> Mapping[int, Extent]:
    """First and end offset of every partition, as a committed reader sees them; SnapshotError: no topic."""
    return topic_now(source).extents


def topic_now(source: TopicSource) -> Changelog:
    """The topic's extents and its id; SnapshotError: no topic."""
    return look_at(source.cluster.connection(), source.topic)


def read_span(
    source: TopicSource, partition: int, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Offsets [start, end) of one partition as Arrow batches, in order; gaps are no error.

    Raises:
        TimeoutError: nothing arrived for a minute before the end.
    """
    if start >= end:
        return
    with asyncio.Runner() as runner:
        consumer, tp = runner.run(_open(source, partition, start))
        try:
            while True:
                records, position = runner.run(_fetch(consumer, tp, end))
                if records:
                    yield _to_arrow(records)
                if position >= end:
                    return
        finally:
            runner.run(consumer.stop())


async def _open(source: TopicSource, partition: int, start: int) -> tuple[Any, Any]:
    from aiokafka import TopicPartition

    consumer, tp = _consumer(source), TopicPartition(source.topic, partition)
    await consumer.start()
    consumer.assign([tp])
    consumer.seek(tp, start)
    return consumer, tp


async def _fetch(consumer: Any, tp: Any, end: int) -> tuple[list[Any], int]:
    """(records before ``end``, position after them); control records move the position alone."""
    before = await consumer.position(tp)
    deadline = asyncio.get_running_loop().time() + STALL_S
    while True:
        fetched = await consumer.getmany(tp, timeout_ms=FETCH_TIMEOUT_MS, max_records=16384)
        records = [record for record in fetched.get(tp, ()) if record.offset < end]
        position = await consumer.position(tp)
        if records or position > before or position >= end:
            return records, position
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"{tp.topic}/{tp.partition} stands at {position}, its end is {end}")


def _to_arrow(records: Sequence[Any]) -> pa.RecordBatch:
    arrays = [
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([record.topic for record in records], pa.string()),
        pa.array([record.partition for record in records], pa.int32()),
        pa.array([record.offset for record in records], pa.int64()),
        pa.array([record.timestamp * 1000 for record in records], pa.int64()).cast(
            pa.timestamp("us", tz="UTC")
        ),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE_ARROW)
