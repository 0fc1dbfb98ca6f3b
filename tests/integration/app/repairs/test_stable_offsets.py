"""Under ``exactly_once`` a worker begins after what the transactions before it commit."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from faust_assigner.app.repairs.fetching import seek_committed
from faust_assigner.app.repairs.stable_offsets import UnstableOffsetsError, until_stable
from faust_assigner.testing.kafka import KafkaServer


@pytest.mark.kafka
@pytest.mark.slow
async def test_offsets_that_a_transaction_is_about_to_commit_are_waited_for(kafka: KafkaServer) -> None:
    """Who asks in between would begin before them, and process them twice; others do not wait."""
    name = f"stable-{uuid4().hex[:8]}"
    mine, other = TopicPartition(name, 0), TopicPartition(name, 1)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 2, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=name)
    consumer = AIOKafkaConsumer(name, bootstrap_servers=kafka.bootstrap, group_id=name)
    await producer.start()
    await consumer.start()
    try:
        while consumer.assignment() != {mine, other}:
            await asyncio.sleep(0.05)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({mine: 5}, name)
        await until_stable(consumer._coordinator, [other])
        with pytest.raises(UnstableOffsetsError, match=f"{name}-0"):
            await seek_committed(consumer, {}, is_stable=True)
        asked = asyncio.create_task(seek_committed(consumer, {}, is_stable=True))
        await producer.commit_transaction()
        assert await asked == {mine: 5, other: None}
        assert await consumer.position(mine) == 5
    finally:
        await consumer.stop()
        await producer.stop()


async def test_a_broker_that_cannot_tell_is_not_waited_for() -> None:
    """Before Kafka 2.5 nobody could."""

    class Old:
        """A coordinator of aiokafka, connected to a broker of long ago."""

        group_id, asked = "g", 0

        async def ensure_coordinator_known(self) -> None:
            """It is."""

        async def _send_req(self, request: object) -> object:
            self.asked += 1
            return request.prepare({9: (0, 6)})  # type: ignore[attr-defined]

    coordinator = Old()
    await until_stable(coordinator, [TopicPartition("orders", 0)])
    assert coordinator.asked == 1
