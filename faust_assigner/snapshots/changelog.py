"""Reads changelogs with aiokafka: their extents, their tombstone retention, their records.

By default an end is the end that a consumer with ``read_committed`` sees. A connection is described by
keyword arguments of ``AIOKafkaConsumer`` (``bootstrap_servers``, ``security_protocol``, ...).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError

from faust_assigner.concurrency.cancellation import is_cancelled
from faust_assigner.snapshots.kafka_requests import (
    Connection,
    UnreachableError,
    is_retriable,
    run_request,
)
from faust_assigner.snapshots.manifest import DEFAULT_DELETE_RETENTION_MS, SnapshotError
from faust_assigner.snapshots.topic_ids import topic_ids

POLL_MS = 200
FETCH_BYTES_PER_PARTITION = 4 * 1024 * 1024
#: Seconds without a new record after which a read fails before its end.
STALL_S = 60.0
_ADMIN_NAMES = frozenset(
    {
        "bootstrap_servers",
        "security_protocol",
        "ssl_context",
        "sasl_mechanism",
        "sasl_plain_username",
        "sasl_plain_password",
        "sasl_kerberos_service_name",
        "sasl_kerberos_domain_name",
        "sasl_oauth_token_provider",
        "request_timeout_ms",
    }
)


@dataclass(frozen=True)
class Extent:
    """Offsets of a partition: the first available offset, and the offset after the last committed record."""

    start: int
    end: int


@dataclass(frozen=True)
class Changelog:
    """The current state of a changelog: extents by partition, tombstone retention, topic id."""

    topic: str
    extents: Mapping[int, Extent]
    delete_retention_ms: int
    #: None if the broker has no topic ids.
    topic_id: str | None = None


class UnknownTopicError(SnapshotError):
    """The cluster has no such topic."""

    exit_code = 2


#: Called with a batch of aiokafka records in offset order, and the next offset after the batch.
Sink = Callable[[TopicPartition, Sequence[Any], int], None]


@contextlib.asynccontextmanager
async def consumer_of(
    connection: Connection, *, isolation_level: str = "read_committed"
) -> AsyncIterator[AIOKafkaConsumer]:
    """Provide a started consumer without a group, stopped at the end."""
    consumer = AIOKafkaConsumer(
        **{"max_partition_fetch_bytes": FETCH_BYTES_PER_PARTITION, **connection},
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await _stop_consumer(consumer)


async def _stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """Stop the consumer; a cancellation of aiokafka's own tasks must not count as our cancellation."""
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        if is_cancelled():
            raise


@contextlib.asynccontextmanager
async def _admin_of(connection: Connection) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(
        **{name: value for name, value in connection.items() if name in _ADMIN_NAMES}
    )
    # aiokafka sends each request to a random broker, also while this broker is away.
    admin._send_request = partial(_send_to_any_node, admin)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def _send_to_any_node(admin: Any, request: Any, node_id: int | None = None) -> Any:
    """Return the answer of the first broker that can be reached, or of the broker ``node_id``."""
    nodes = [broker.nodeId for broker in admin._client.cluster.brokers()]
    error: Exception = NodeNotReadyError("the cluster names no broker")
    for node in random.sample(nodes, len(nodes)) if node_id is None else [node_id]:
        try:
            return await admin._client.send(node, request)
        except (NodeNotReadyError, KafkaConnectionError) as away:
            error = away
    raise error


def look_at(connection: Connection, topic: str) -> Changelog:
    """Return a topic's current state; raises UnreachableError, RefusedByKafka or UnknownTopicError."""
    return run_request(connection, changelogs(connection, [topic]))[topic]


async def changelogs(
    connection: Connection, topics: Sequence[str], only: Collection[TopicPartition] | None = None
) -> dict[str, Changelog]:
    """Return the current state of each of ``topics``. Raises UnknownTopicError.

    The extents are those of all partitions, or of the partitions ``only``. A request for a partition
    without a leader takes the whole request timeout and fails.

    For a broker that refuses to describe settings, Kafka's default retention is assumed. The id is read last:
    if a topic is recreated meanwhile, the result has the new id and the old ends. Snapshots of the old topic
    are then refused.
    """
    async with _admin_of(connection) as admin:
        partitions = await _topic_partitions(admin, connection, topics)
        if only is not None:
            partitions = [tp for tp in partitions if tp in only]
        retention: dict[str, int] = {}
        try:
            retention = await _delete_retention_ms(admin, topics)
        except Exception as error:  # aiokafka raises various errors for the broker's answer
            if is_retriable(error):
                raise
        found = await extents_of(connection, partitions)
        ids = await topic_ids(admin, topics)
    return {
        topic: Changelog(
            topic,
            {tp.partition: extent for tp, extent in found.items() if tp.topic == topic},
            retention.get(topic, DEFAULT_DELETE_RETENTION_MS),
            ids.get(topic),
        )
        for topic in topics
    }


async def extents(connection: Connection, topic: str) -> dict[int, Extent]:
    """The extent of each partition of ``topic``; raises UnknownTopicError."""
    async with _admin_of(connection) as admin:
        tps = await _topic_partitions(admin, connection, [topic])
    return {tp.partition: extent for tp, extent in (await extents_of(connection, tps)).items()}


async def _topic_partitions(
    admin: AIOKafkaAdminClient, connection: Connection, topics: Sequence[str]
) -> list[TopicPartition]:
    # List all topics first: a request for a missing topic would create it on many brokers.
    missing = sorted(set(topics) - set(await admin.list_topics()))
    if missing:
        raise UnknownTopicError(
            f"{connection.get('bootstrap_servers')} has no topic {missing[0]!r}"
        )
    described = await admin.describe_topics(list(topics))
    return sorted(
        TopicPartition(topic["topic"], partition["partition"])
        for topic in described
        for partition in topic["partitions"]
    )


async def extents_of(
    connection: Connection,
    tps: Sequence[TopicPartition],
    *,
    isolation_level: str = "read_committed",
) -> dict[TopicPartition, Extent]:
    """Return the extents of existing partitions, as a reader of this isolation level sees them."""
    tps = [TopicPartition(*tp) for tp in tps]  # aiokafka requires its own class of named tuples
    async with consumer_of(connection, isolation_level=isolation_level) as consumer:
        starts = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
    return {tp: Extent(starts[tp], ends[tp]) for tp in tps}


async def _delete_retention_ms(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> dict[str, int]:
    """Return ``delete.retention.ms`` of each topic; absent if the broker does not report it."""
    name = "delete.retention.ms"
    answers = await admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {name: None}) for topic in topics]
    )
    found = {}
    for answer in answers:
        for error, _, _, topic, entries, *_ in answer.resources:
            for entry in entries if error == 0 else ():
                if entry[0] == name and entry[1] is not None:
                    found[topic] = int(entry[1])
    return found


async def read(
    connection: Connection,
    spans: Mapping[TopicPartition, Extent],
    sink: Sink,
    *,
    stopped: Callable[[], bool] = lambda: False,
    isolation_level: str = "read_committed",
) -> dict[TopicPartition, int]:
    """Feed every record of ``spans`` to ``sink``; return the position reached in each partition.

    A position is the span's end unless ``stopped()`` became true; gaps (control records, compacted
    records) are skipped. Cost: about 0.3-0.5M records/s. Raises UnreachableError after a minute without
    records.
    """
    open_spans = {TopicPartition(*tp): span for tp, span in spans.items() if span.start < span.end}
    positions = {tp: span.start for tp, span in spans.items()}
    if not open_spans:
        return positions
    async with consumer_of(connection, isolation_level=isolation_level) as consumer:
        consumer.assign(list(open_spans))
        for tp, span in open_spans.items():
            consumer.seek(tp, span.start)
        moved_at = time.monotonic()
        while open_spans and not stopped():
            fetched = await consumer.getmany(*open_spans, timeout_ms=POLL_MS)
            before = dict(positions)
            for tp in list(open_spans):
                end = open_spans[tp].end
                positions[tp] = min(await consumer.position(tp), end)
                records = fetched.get(tp, [])
                if records and records[-1].offset >= end:
                    records = [record for record in records if record.offset < end]
                if records or positions[tp] != before[tp]:
                    sink(tp, records, positions[tp])
                if positions[tp] == end:
                    del open_spans[tp]
                    consumer.pause(tp)
            if positions != before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > STALL_S:
                raise UnreachableError(
                    f"no record arrived for {STALL_S:.0f} s from {sorted(open_spans)}"
                )
            await asyncio.sleep(0)
    return positions
