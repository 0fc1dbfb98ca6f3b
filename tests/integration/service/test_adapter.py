"""The adapter for aiokafka's consumer, with a real consumer on the embedded broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.service.client import Assigned, Grant, TopicPartition, partitions, worker
from faust_assigner.service.client.partitions import Partitions
from faust_assigner.testing import log
from tests.support.assigning.instances import until
from tests.support.waiting import PATIENCE_S


class Everything:
    """A client and an app that allow everything, begin at offset 0 and note the offsets of records."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def may_work(self, partition: TopicPartition) -> bool:
        """Return True."""
        return True

    async def open(self, grant: Grant) -> int:
        """Begin at the beginning."""
        return 0

    async def process(self, record: Any, grant: Grant) -> None:
        """Note the offset."""
        self.offsets.append(record.offset)

    async def run(self, handlers: Any) -> None:
        """Grant a partition, until its record is processed."""
        grant = Grant(TopicPartition("orders", 1), 5)
        await handlers.assigned(Assigned({grant.partition: grant}, (grant,)))
        await until(lambda: self.offsets == [0])


async def test_the_first_grant_of_a_topic_assigns_the_whole_topic() -> None:
    """Earlier, the second grant assigned it again, and the first partition was fetched anew."""
    with EmbeddedBroker() as broker:
        log.create(broker, "orders", 3)
        consumer: Any = AIOKafkaConsumer(
            group_id="g", bootstrap_servers=broker.bootstrap, enable_auto_commit=False
        )
        await consumer.start()
        assignments: list[int] = []
        assign = consumer.assign
        consumer.assign = lambda found: (assignments.append(len(found)), assign(found))
        every: Any = Everything()
        adapter = Partitions(every, consumer, every)
        for number in range(3):
            grant = Grant(TopicPartition("orders", number), 5)
            await adapter.assigned(Assigned({grant.partition: grant}, (grant,)))
            await until(lambda: all(one.fetched == 0 for one in adapter._owned.values()))
        assert assignments == [3]
        for owned in adapter._owned.values():
            await owned.stop()
        await consumer.stop()


async def test_a_consumer_without_a_reset_needs_no_offset_of_other_partitions() -> None:
    """Earlier, the work ended with NoOffsetForPartitionError for a partition of another consumer."""
    with EmbeddedBroker() as broker:
        log.create(broker, "orders", 3)
        log.append(broker, "orders", None, "v", 1.0, 1)
        consumer = AIOKafkaConsumer(
            group_id="g", bootstrap_servers=broker.bootstrap, enable_auto_commit=False,
            auto_offset_reset="none",
        )  # fmt: skip
        await consumer.start()
        try:
            every: Any = Everything()
            await Partitions(every, consumer, every).run()
        finally:
            await consumer.stop()


async def test_a_topic_that_is_deleted_before_the_commit_does_not_stop_its_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier, aiokafka repeated the commit without end, and the consumer followed no further command."""
    monkeypatch.setattr(worker, "COMMIT_S", 0.3)
    monkeypatch.setattr(partitions, "ANSWER_S", 0.3)
    with EmbeddedBroker() as broker:
        log.create(broker, "orders", 3)
        log.append(broker, "orders", None, "v", 1.0, 1)

        class Deleting(Everything):
            async def run(self, handlers: Any) -> None:
                await super().run(handlers)
                broker.call(lambda node: node.catalogue.delete(node.catalogue.get("orders")))
                await asyncio.sleep(0.5)
                gone = (TopicPartition("orders", 1),)
                await asyncio.wait_for(handlers.assigned(Assigned({}, (), gone)), PATIENCE_S)

            async def drop(self, partition: TopicPartition) -> None:
                self.offsets.append(-1)

        consumer = AIOKafkaConsumer(
            group_id="g", bootstrap_servers=broker.bootstrap, enable_auto_commit=False
        )
        await consumer.start()
        try:
            every: Any = Deleting()
            await Partitions(every, consumer, every).run()
        finally:
            await consumer.stop()
        assert every.offsets == [0, -1]
