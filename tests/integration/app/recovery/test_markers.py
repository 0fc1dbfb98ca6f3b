"""The replay of partitions that lack only the marker of a transaction."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest

from faust_assigner.app.recovery import batched_replay
from faust_assigner.app.recovery.restore_throttle import RestoreThrottle
from faust_assigner.snapshots.changelog import Extent
from tests.support.clients.topics import create_topics


async def test_partitions_that_lack_only_a_marker_wait_for_no_record_and_no_fetch(
    embedded_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions at a time took 0.2 to 0.9 s: a marker is no record, so the turn went on."""
    waits, topic = list[float](), f"markers-{uuid.uuid4().hex[:8]}"
    await create_topics(embedded_broker.bootstrap, {topic: 4})
    producer = AIOKafkaProducer(bootstrap_servers=embedded_broker.bootstrap, transactional_id=topic)
    await producer.start()
    async with producer.transaction():
        for partition in range(4):
            await producer.send(topic, b"", b"key", partition)
    await producer.stop()
    spans = [(TopicPartition(topic, partition), Extent(1, 2)) for partition in range(4)]
    done = list[Any]()
    work: Any = SimpleNamespace(
        tps=[tp for tp, _ in spans],
        is_over=lambda: not spans,
        begin=lambda: spans.pop() if spans else None,
        write=lambda tp, records, position: done.append((tp.partition, records, position)),
        finish=lambda tp: None,
    )
    getmany, send = AIOKafkaConsumer.getmany, AIOKafkaClient.send

    async def take(self: Any, *tps: Any, timeout_ms: int, max_records: int) -> Any:
        waits.append(timeout_ms)
        return await getmany(self, *tps, timeout_ms=timeout_ms, max_records=max_records)

    async def ask(self: Any, node_id: Any, request: Any, **options: Any) -> Any:
        if isinstance(request, FetchRequest):
            waits.append(request._max_wait_ms)
        return await send(self, node_id, request, **options)

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", take)
    monkeypatch.setattr(AIOKafkaClient, "send", ask)
    await batched_replay.replay(
        {"bootstrap_servers": embedded_broker.bootstrap},
        work,
        stopped=lambda: False,
        isolation_level="read_committed",
        pace=RestoreThrottle(),
    )
    assert sorted(done) == [(partition, (), 2) for partition in range(4)]
    assert max(waits) <= 20
