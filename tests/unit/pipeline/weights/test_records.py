"""Weights as records of a topic: created and sent by a fake client, and read back from a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.weights import publish
from faust_assigner.pipeline.weights.publish import published_records


class Broker:
    """The clients of a topic, with the order of their calls."""

    def __init__(self, topics: Mapping[str, Any], brokers: int = 5) -> None:
        self.topics_, self.brokers = topics, brokers
        self.calls: list[Any] = []

    def __call__(self, **settings: Any) -> Broker:
        """Create a client."""
        self.calls.append(settings)
        return self

    async def start(self) -> None:
        """Connect."""
        self.calls.append("start")

    async def close(self) -> None:
        """Disconnect the admin client."""
        self.calls.append("close")

    stop = close

    async def list_topics(self) -> list[str]:
        """Return the topics' names."""
        return list(self.topics_)

    async def describe_cluster(self) -> dict[str, Any]:
        """Return the brokers."""
        return {"brokers": [{}] * self.brokers}

    async def create_topics(self, topics: list[Any]) -> Any:
        """Record the topics; none is refused."""
        self.calls += [
            (one.name, one.num_partitions, one.replication_factor, one.topic_configs)
            for one in topics
        ]
        return SimpleNamespace(topic_errors=[(one.name, 0, "") for one in topics])

    async def send_and_wait(self, topic: str, value: bytes, *, key: bytes) -> None:
        """Record the sent record."""
        self.calls.append((topic, key, value))


def sends(monkeypatch: pytest.MonkeyPatch, broker: Broker, replication: int | None) -> list[Any]:
    """Return the calls of a publication of two groups."""
    monkeypatch.setattr(publish, "AIOKafkaAdminClient", broker)
    monkeypatch.setattr(publish, "AIOKafkaProducer", broker)
    records = {"h": b"2", "g": b"1"}
    where = {"bootstrap_servers": ["a:1"]}
    asyncio.run(publish._send(where, "weights", records, replication))
    return broker.calls


SENT = [
    {"bootstrap_servers": ["a:1"], "acks": "all", "max_request_size": 2_000_000},
    "start",
    ("weights", b"g", b"1"),
    ("weights", b"h", b"2"),
    "close",
]


@pytest.mark.parametrize(
    ("brokers", "replication", "wanted"), [(5, None, 3), (2, None, 2), (5, 4, 4), (2, 1, 1)]
)
def test_a_missing_topic_is_created_compacted_before_the_records_are_sent(
    monkeypatch: pytest.MonkeyPatch, brokers: int, replication: int | None, wanted: int
) -> None:
    """The topic has one partition, and three replicas if there are enough brokers."""
    calls = sends(monkeypatch, Broker({}, brokers), replication)
    created = ("weights", 1, wanted, {"cleanup.policy": "compact"})
    assert calls == [{"bootstrap_servers": ["a:1"]}, "start", created, "close", *SENT]


def test_a_topic_with_a_longer_name_is_another_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records' own topic is created."""
    calls = sends(monkeypatch, Broker({"weights-old": 1, "old-weights": 1}, 2), None)
    assert calls[2] == ("weights", 1, 2, {"cleanup.policy": "compact"})


def test_a_topic_that_exists_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """The existing topic's settings belong to its owner."""
    calls = sends(monkeypatch, Broker({"weights": 1}), None)
    assert calls == [{"bootstrap_servers": ["a:1"]}, "start", "close", *SENT]


async def _publish(bootstrap: str, records: list[tuple[bytes, bytes | None, int]]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for key, value, partition in records:
            await producer.send_and_wait("weights", value, key, partition=partition)


def test_the_newest_record_of_each_group_is_read_from_all_partitions() -> None:
    """Groups are in order; a tombstone removes its group; a missing topic has no record."""
    records: list[tuple[bytes, bytes | None, int]] = [
        (b"h", b"1", 2), (b"g", b"2", 0), (b"x", b"3", 1),
        (b"h", b"4", 2), (b"x", None, 1), (b"y", None, 0),
    ]  # fmt: skip
    with EmbeddedBroker(settings={"num.partitions": 3}) as broker:
        cluster = Cluster(broker.bootstrap)
        assert published_records(cluster, "weights") == []
        asyncio.run(_publish(broker.bootstrap, records))
        assert published_records(cluster, "weights") == [b"2", b"4"]
