"""Topics without a configured count: the service asks Kafka when a consumer subscribes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.service.errors import NotFound, StoreUnavailable
from faust_assigner.service.server.discovery import KafkaTopics
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    calls_ended,
    consumers,
    instances,
    settled,
)
from tests.support.waiting import PATIENCE_S


def _administer(broker: EmbeddedBroker, work: Callable[[AdminClient], dict[str, Any]]) -> None:
    """Change topics with an admin client that ends before the broker."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in work(admin).values():
        done.result(PATIENCE_S)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Start a broker with one topic of six partitions."""
    with EmbeddedBroker(settings={"num.partitions": 3}) as one:
        _administer(one, lambda admin: admin.create_topics([NewTopic("shop.orders", 6, 1)]))
        yield one


async def test_a_topic_is_counted_and_none_is_created(broker: EmbeddedBroker) -> None:
    """A count of a missing topic does not create the topic."""
    topics = KafkaTopics(broker.bootstrap)
    try:
        assert await topics.count("shop.orders") == 6
        assert await topics.count("unheard") is None
        assert await topics.count("unheard") is None
    finally:
        await topics.close()


async def test_a_kafka_that_is_silent_is_asked_again() -> None:
    """The count is unknown: the call fails and can be repeated."""
    topics = KafkaTopics("127.0.0.1:1", timeout_s=2)
    with pytest.raises(
        StoreUnavailable, match=r"127\.0\.0\.1:1 did not return the number of partitions of orders"
    ):
        await topics.count("orders")
    await topics.close()


@pytest.mark.processes
async def test_a_consumer_brings_its_topic(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """Dotted topic names work; a topic missing in Kafka is refused."""
    with instances(tmp_path, *QUICK, "--kafka", broker.bootstrap) as (service,):
        members = [Consumer(service.target, name, topics=["shop.orders"]) for name in "ab"]
        async with consumers(*members):
            await settled(members, [3, 3])
            stranger = Consumer(service.target, "c", topics=["unheard"])
            with pytest.raises(NotFound, match="unheard"):
                await stranger.client.run(stranger)
        await calls_ended()


@pytest.mark.processes
async def test_a_topic_that_is_deleted_in_kafka_is_taken_from_its_owners(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    """Owners of deleted partitions worked on or failed; a topic created again is assigned again."""
    flags = ("--kafka", broker.bootstrap, "--topic-refresh-s", "0.3")
    with instances(tmp_path, *QUICK, *flags) as (service,):
        member = Consumer(service.target, "a", topics=["shop.orders"])
        async with consumers(member):
            await settled([member], [6])
            _administer(broker, lambda admin: admin.delete_topics(["shop.orders"]))
            await settled([member], [0])
            _administer(broker, lambda admin: admin.create_topics([NewTopic("shop.orders", 4, 1)]))
            await settled([member], [4])
        await calls_ended()
