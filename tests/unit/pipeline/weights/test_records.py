"""Weights as records of a topic: created, sent, and read back by a fake client."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.weights import publish
from faust_assigner.pipeline.weights.publish import published_records
from faust_assigner.snapshots.kafka_requests import UnreachableError


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

    async def create_topics(self, topics: list[Any]) -> None:
        """Record the topics."""
        self.calls += [
            (one.name, one.num_partitions, one.replication_factor, one.topic_configs)
            for one in topics
        ]

    async def send_and_wait(self, topic: str, value: bytes, *, key: bytes) -> None:
        """Record the sent record."""
        self.calls.append((topic, key, value))


def sends(monkeypatch: pytest.MonkeyPatch, broker: Broker, replication: int | None) -> list[Any]:
    """Return the calls of a publication of two groups."""
    import asyncio

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


class Reader(Broker):
    """A consumer with scripted answers: records, and the position after them."""

    def __init__(self, end: int, *answers: tuple[list[Any], int]) -> None:
        super().__init__({"weights": 1})
        self.end, self.at, self.answers = end, 0, list(answers)
        self.now = 0.0

    async def topics(self) -> list[str]:
        """Return the topics' names."""
        return list(self.topics_)

    def assign(self, places: Any) -> None:
        """Record the assignment."""
        self.calls.append(("assign", places))

    async def seek_to_beginning(self, place: Any) -> None:
        """Go to the first record."""
        self.calls.append(("seek", place))

    async def end_offsets(self, places: Any) -> dict[Any, int]:
        """Return the end."""
        return dict.fromkeys(places, self.end)

    async def position(self, place: Any) -> int:
        """Return the next offset."""
        return self.at

    async def getmany(self, *, timeout_ms: int) -> dict[Any, Any]:
        """Return the next answer; half a minute passes without records."""
        records, self.at = self.answers.pop(0) if self.answers else ([], self.at)
        self.now += 0.0 if records else 30.0
        return {"weights": records}


def read_back(
    monkeypatch: pytest.MonkeyPatch, reader: Reader, topic: str = "weights"
) -> list[bytes]:
    """Return the published records."""
    monkeypatch.setattr(publish, "AIOKafkaConsumer", reader)
    monkeypatch.setattr(publish, "time", SimpleNamespace(monotonic=lambda: reader.now))
    return published_records(Cluster("a:1"), topic)


def record(key: bytes, value: bytes | None) -> Any:
    """Return a record."""
    return SimpleNamespace(key=key, value=value)


def test_the_newest_record_of_each_group_is_read_up_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups are in order; a tombstone removes its group; the consumer is stopped."""
    first = [record(b"h", b"1"), record(b"g", b"2"), record(b"x", b"3")]
    second = [record(b"h", b"4"), record(b"x", None), record(b"y", None)]
    reader = Reader(9, (first, 3), ([], 5), ([], 6), (second, 9))
    assert read_back(monkeypatch, reader) == [b"2", b"4"]
    place = publish.TopicPartition("weights", 0)
    settings = {**Cluster("a:1").connection(), "enable_auto_commit": False}
    assert reader.calls == [settings, "start", ("assign", [place]), ("seek", place), "close"]
    assert read_back(monkeypatch, Reader(9), "missing") == []
    assert read_back(monkeypatch, Reader(0)) == []


def test_a_topic_that_stands_still_for_a_minute_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Silent brokers do not block the command forever; the consumer is stopped."""
    reader = Reader(9, ([], 4))
    with pytest.raises(UnreachableError, match="could not read topic weights to its end 9"):
        read_back(monkeypatch, reader)
    assert reader.now == 120.0
    assert reader.calls[-1] == "close"
