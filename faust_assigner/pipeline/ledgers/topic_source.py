"""Ledgers in Kafka topics: parse their URLs, and read their lines without Spark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, TopicPartition

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import SAMPLE, group_marker
from faust_assigner.pipeline.cluster import Cluster, cluster_of
from faust_assigner.snapshots.changelog import (
    Changelog,
    Extent,
    consumer_of,
    extents,
    look_at,
    read,
)
from faust_assigner.snapshots.kafka_requests import Connection, run_request

if TYPE_CHECKING:
    import pyarrow as pa
    from aiokafka import ConsumerRecord

#: The columns of a message: the topic's partition as a URL, the offset, the value.
MESSAGE = ("file", "pos", "value")
FETCH_TIMEOUT_MS = 1000
#: The longest wait for the next record, in seconds, if a partition's end is not reached.
STALL_S = 60.0

#: Called with the partition, the offset and the value of each record.
Take = Callable[[int, int, bytes], None]


@dataclass(frozen=True, slots=True)
class TopicSource:
    """One topic of one cluster."""

    cluster: Cluster
    topic: str

    @classmethod
    def from_url(cls, url: str, properties: Mapping[str, str] | None = None) -> TopicSource:
        """Parse ``kafka://host:port[,host:port]/topic``.

        Raises:
            ConfigError: a part is missing.
        """
        bootstrap, _, topic = url.removeprefix("kafka://").partition("/")
        if not bootstrap or not topic or "/" in topic:
            raise ConfigError(f"{url!r} is not kafka://host:port[,host:port]/topic")
        return cls(cluster_of(bootstrap, properties or {}), topic)

    @property
    def url(self) -> str:
        """The topic's URL, as :meth:`from_url` parses it."""
        return f"kafka://{self.cluster.bootstrap}/{self.topic}"


def split_sources(
    ledgers: Sequence[str], properties: Mapping[str, str] | None = None
) -> tuple[list[str], list[TopicSource]]:
    """Split ``ledgers`` into (paths, topics); topics are ``kafka://host:port[,host:port]/topic``."""
    paths = [ledger for ledger in ledgers if not ledger.startswith("kafka://")]
    topics = [
        TopicSource.from_url(ledger, properties)
        for ledger in ledgers
        if ledger.startswith("kafka://")
    ]
    return paths, topics


async def read_lines_of(
    connection: Connection,
    topic: str,
    take: Take,
    *,
    most_records: int | None = None,
    seconds: float | None = None,
) -> str:
    """Pass the lines of ``topic`` to ``take``, in order per partition.

    Returns a sentence that states which rows were not read, or "". Reads for at most ``seconds``, and
    only the newest ``most_records`` records, shared evenly among the partitions. Cost: about 0.2 million
    records a second. Raises UnknownTopicError, UnreachableError and aiokafka's errors.
    """
    began = time.monotonic()
    found = await extents(connection, topic)
    most = None if most_records is None else most_records // max(1, len(found))
    spans = {
        TopicPartition(topic, number): extent
        if most is None
        else Extent(max(extent.start, extent.end - most), extent.end)
        for number, extent in found.items()
    }

    def sink(tp: TopicPartition, records: Sequence[ConsumerRecord[bytes, bytes]], _: int) -> None:
        for record in records:
            if record.value:
                take(tp.partition, record.offset, record.value)

    reached = await read(
        connection,
        spans,
        sink,
        stopped=lambda: seconds is not None and time.monotonic() - began > seconds,
    )
    if any(reached[tp] < span.end for tp, span in spans.items()):
        return f"topic {topic} was not read to its end within {seconds:g} s"
    if any(span.start > found[tp.partition].start for tp, span in spans.items()):
        return f"topic {topic} has older rows that were not read"
    return ""


async def read_story_lines(
    connection: Connection,
    topic: str,
    group_id: str | None,
    *,
    most_records: int | None = None,
    seconds: float | None = None,
) -> tuple[list[bytes], str]:
    """Return a group's lines (all groups' if None) without samples, and :func:`read_lines_of`'s sentence."""
    lines: list[bytes] = []
    mark = b"" if group_id is None else group_marker(group_id)

    def take(_partition: int, _offset: int, line: bytes) -> None:
        if mark in line and not line.startswith(SAMPLE):
            lines.append(line)

    left_out = await read_lines_of(
        connection, topic, take, most_records=most_records, seconds=seconds
    )
    return lines, left_out


def topic_now(source: TopicSource) -> Changelog:
    """Return the topic's id and each partition's offsets; raise SnapshotError for a missing topic."""
    return look_at(source.cluster.connection(), source.topic)


def offsets_since(source: TopicSource, log: Changelog, since: datetime) -> dict[int, int]:
    """Return per partition the offset of the first record at or after ``since``, else the end offset."""
    connection = source.cluster.connection()
    tps = {TopicPartition(source.topic, number): extent for number, extent in log.extents.items()}

    async def find() -> dict[int, int]:
        async with consumer_of(connection) as consumer:
            moment = max(0, round(since.timestamp() * 1000))  # Kafka's times begin in 1970
            found = await consumer.offsets_for_times(dict.fromkeys(tps, moment))
        return {
            tp.partition: extent.end if found.get(tp) is None else found[tp].offset
            for tp, extent in tps.items()
        }

    return run_request(connection, find())


def read_span(
    source: TopicSource, partition: int, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Yield offsets [start, end) of a partition as Arrow batches of ``MESSAGE``; offsets may have gaps.

    Raises:
        TimeoutError: no record arrived for a minute, and the end was not reached.
    """
    if start >= end:
        return
    tp = TopicPartition(source.topic, partition)
    with asyncio.Runner() as runner:
        consumer = runner.run(_consumer_of(source))
        try:
            runner.run(_open(consumer, tp, start))
            while True:
                records, position = runner.run(_fetch(consumer, tp, end))
                if records:
                    yield _to_arrow(source.url, tp, records)
                if position >= end:
                    return
        finally:
            runner.run(consumer.stop())


async def _consumer_of(source: TopicSource) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        **source.cluster.connection(),
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=8 * 1024 * 1024,
    )


async def _open(consumer: AIOKafkaConsumer, tp: TopicPartition, start: int) -> None:
    await consumer.start()
    consumer.assign([tp])
    consumer.seek(tp, start)


async def _fetch(
    consumer: AIOKafkaConsumer, tp: TopicPartition, end: int
) -> tuple[list[ConsumerRecord[bytes, bytes]], int]:
    """Return (records before ``end``, position after them); control records only advance the position."""
    before = await consumer.position(tp)
    deadline = asyncio.get_running_loop().time() + STALL_S
    while True:
        fetched = await consumer.getmany(tp, timeout_ms=FETCH_TIMEOUT_MS, max_records=16384)
        records = [record for record in fetched.get(tp, ()) if record.offset < end]
        position = await consumer.position(tp)
        if records or position > before or position >= end:
            return records, position
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(
                f"could not read {tp.topic}/{tp.partition} to its end {end}; the position is "
                f"{position}"
            )


def _to_arrow(
    url: str, tp: TopicPartition, records: Sequence[ConsumerRecord[bytes, bytes]]
) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [
        pa.array([f"{url}/{tp.partition}"] * len(records), pa.string()),
        pa.array([record.offset for record in records], pa.int64()),
        pa.array([record.value for record in records], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(MESSAGE))
