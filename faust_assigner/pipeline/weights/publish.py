"""Write weights to a file in one step, or to a compacted topic with one record per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from faust_assigner.errors import FaustAssignerError
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers.files import file_system
from faust_assigner.pipeline.rows import grouped
from faust_assigner.pipeline.sinks import write_whole
from faust_assigner.snapshots.changelog import UnknownTopicError, extents, read
from faust_assigner.snapshots.kafka_requests import Connection, run_request
from faust_assigner.weights.document import WeightRow, compress, encode

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

#: A broker's default limit for one message is 1 MiB, which includes the record's overhead.
MAX_RECORD_BYTES = 1_000_000


class NotPublished(FaustAssignerError, RuntimeError):
    """The weights could not be written to the file or the topic; the message names the reason."""


def write_file(path: str | Path, document: bytes) -> None:
    """Write ``document`` to ``path`` (or a URL) in one step: a reader sees the old or the new version.

    Raises NotPublished if the file cannot be written.
    """
    try:
        write_whole(*file_system(str(path)), document)
    except (OSError, ImportError, ValueError) as error:
        raise NotPublished(f"{path}: {error}") from error


def publish(
    cluster: Cluster,
    topic: str,
    rows: Sequence[WeightRow],
    *,
    version: int,
    computed_at: datetime,
    sampled_at: Mapping[str, datetime] | None = None,
    replication: int | None = None,
) -> int:
    """Send one record per group (key: group id, value: compressed document); return the number of records.

    A missing topic is created with ``cleanup.policy=compact`` and ``replication`` replicas. Without
    ``replication`` there are three replicas, or one per broker in a smaller cluster.

    Raises UnreachableError and RefusedByKafka. If a group's document is too large for one record, raises
    NotPublished before any record is sent.
    """
    records = {
        group_id: compress(
            encode(
                mine,
                version=version,
                computed_at=computed_at,
                sampled_at={group_id: sampled_at[group_id]} if sampled_at else None,
            )
        )
        for group_id, mine in grouped(rows, attrgetter("group_id")).items()
    }
    for group_id, value in records.items():
        if len(value) > MAX_RECORD_BYTES:
            raise NotPublished(
                f"the weights of group {group_id!r} take {len(value)} bytes, a record at most "
                f"{MAX_RECORD_BYTES}: write them to a file instead (--out)"
            )
    connection = cluster.connection()
    run_request(connection, _send(connection, topic, records, replication))
    return len(records)


def published_records(cluster: Cluster, topic: str) -> list[bytes]:
    """Return the newest record of each group in ``topic``; empty for a missing topic.

    Raises UnreachableError and RefusedByKafka.
    """
    connection = cluster.connection()
    found: dict[bytes, bytes] = run_request(connection, _read(connection, topic))
    return [found[group] for group in sorted(found)]


async def _read(connection: Connection, topic: str) -> dict[bytes, bytes]:
    """Read all partitions of the topic, whose creator may have given it several.

    Raises UnreachableError after a minute without records.
    """
    try:
        spans = await extents(connection, topic)
    except UnknownTopicError:
        return {}
    newest: dict[bytes, ConsumerRecord[bytes, bytes]] = {}

    def sink(_: TopicPartition, records: Sequence[ConsumerRecord[bytes, bytes]], __: int) -> None:
        for record in records:
            known = newest.get(record.key)
            if known is None or record.timestamp >= known.timestamp:
                newest[record.key] = record

    await read(
        connection, {TopicPartition(topic, number): span for number, span in spans.items()}, sink
    )
    return {key: record.value for key, record in newest.items() if record.value is not None}


async def _send(
    connection: Connection, topic: str, records: dict[str, bytes], replication: int | None
) -> None:
    admin = AIOKafkaAdminClient(**connection)
    try:
        await admin.start()
        if topic not in await admin.list_topics():
            brokers = len((await admin.describe_cluster())["brokers"])
            compacted = NewTopic(
                topic,
                1,
                replication or min(3, brokers),
                topic_configs={"cleanup.policy": "compact"},
            )
            answer = await admin.create_topics([compacted])
            for _, code, *_ in answer.topic_errors:
                # Another run may have created the topic in the meantime. After any other error the
                # producer could create the topic with the broker's defaults, which delete old records.
                if code not in (0, TopicAlreadyExistsError.errno):
                    raise for_code(code)(f"topic {topic} does not exist and cannot be created")
    finally:
        await admin.close()
    producer = AIOKafkaProducer(**connection, acks="all", max_request_size=2 * MAX_RECORD_BYTES)
    try:
        await producer.start()
        for group_id in sorted(records):
            await producer.send_and_wait(topic, records[group_id], key=group_id.encode())
    finally:
        await producer.stop()
