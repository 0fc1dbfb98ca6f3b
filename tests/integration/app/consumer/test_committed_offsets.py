"""A worker starts at its group's committed offsets, or waits until the broker can return them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.protocol.commit import OffsetFetchResponse_v3

from faust_assigner.app.consumer.committed_offsets import _OffsetFetchResponse
from faust_assigner.app.consumer.fetching import seek_committed
from faust_assigner.testing.kafka import KafkaServer

LOADING, NOT_COORDINATOR = 14, 16


@pytest.mark.kafka
@pytest.mark.slow
async def test_offsets_that_a_transaction_is_about_to_commit_are_waited_for(
    kafka: KafkaServer,
) -> None:
    """A worker that does not wait would start before those offsets and repeat records."""
    name = f"stable-{uuid4().hex[:8]}"
    mine, other = TopicPartition(name, 0), TopicPartition(name, 1)
    async with group(kafka.bootstrap, name) as consumer:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=name)
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({mine: 5}, name)
            assert await seek_committed(consumer, {}, [other]) == {other: None}
            asked = asyncio.create_task(seek_committed(consumer, {}))
            done, _ = await asyncio.wait([asked], timeout=0.5)
            assert not done
            await producer.commit_transaction()
            assert await asked == {mine: 5, other: None}
            assert await consumer.position(mine) == 5
        finally:
            await producer.stop()


@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR])
@pytest.mark.parametrize("version", [3, 7])
async def test_a_group_that_is_being_loaded_has_not_committed_nothing(
    embedded_broker: Any, monkeypatch: pytest.MonkeyPatch, code: int, version: int
) -> None:
    """The response has an error and no offsets; aiokafka takes it for "no commit". We ask again."""
    name = f"loading-{uuid4().hex[:8]}"
    tp = TopicPartition(name, 0)
    async with group(embedded_broker.bootstrap, name) as consumer:
        await consumer.commit({tp: 7})
        coordinator, asked = consumer._coordinator, list[int]()
        send = coordinator._send_req

        async def answer(request: Any) -> Any:
            if request.API_KEY != 9:
                return await send(request)
            prepared = request.prepare({9: (0, version)})
            asked.append(prepared.API_VERSION)
            if len(asked) > 1:
                return await send(request)
            if version == 3:
                return OffsetFetchResponse_v3(0, [], code)
            return _OffsetFetchResponse(0, [], code, {})

        monkeypatch.setattr(coordinator, "_send_req", answer)
        found = await seek_committed(consumer, {tp: 3}, [tp])
        assert found == {tp: 7}
        assert asked[0] == version
        assert len(asked) > 1


@asynccontextmanager
async def group(bootstrap: str, name: str) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that owns both partitions of its own new topic."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 2, 1)])
    await admin.close()
    consumer = AIOKafkaConsumer(
        name, bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False
    )
    await consumer.start()
    try:
        while len(consumer.assignment()) < 2:
            await asyncio.sleep(0.05)
        yield consumer
    finally:
        await consumer.stop()
