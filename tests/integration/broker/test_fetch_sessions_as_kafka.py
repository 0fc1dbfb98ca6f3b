"""Fetch sessions step by step: Apache Kafka and the embedded broker answer the same requests alike."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import KafkaServer
from tests.integration.broker.apis.calls import milliseconds
from tests.support.clients.raw_client import RawClient, batch
from tests.support.waiting import PATIENCE_S

FETCH, METADATA, CREATE_TOPICS = 1, 3, 19
FIRST, FINAL = 0, -1


class Reader:
    """A connection that fetches; answers are noted without ids and times."""

    def __init__(self, client: RawClient, topic: str, version: int) -> None:
        self.client, self.topic, self.version = client, topic, version
        self.session = 0
        found = client.call(METADATA, 12, topics=[{"name": topic}]).topics[0]
        self.name = {"topic_id": found.topic_id} if version >= 13 else {"topic": topic}

    def fetch(
        self, epoch: int, offsets: dict[int, int], *, session: int | None = None, forgets: Any = ()
    ) -> Any:
        """Send a fetch; return the error, whether it has a session, and each partition's answer."""
        parts = [
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": 10_000}
            for number, offset in offsets.items()
        ]
        gone = [{**self.name, "partitions": tuple(forgets)}] if forgets else []
        answer = self.client.call(
            FETCH,
            self.version,
            max_wait=milliseconds(100),
            min_bytes=1,
            max_bytes=10**6,
            session_id=self.session if session is None else session,
            session_epoch=epoch,
            topics=[{**self.name, "partitions": parts}] if parts else [],
            forgotten_topics_data=gone,
        )
        if epoch == FIRST:
            self.session = answer.session_id
        told = [
            (
                part.partition_index,
                int(part.error_code),
                part.high_watermark,
                len(part.records or b""),
            )
            for topic in answer.responses
            for part in topic.partitions
        ]
        return int(answer.error_code), answer.session_id == self.session != 0, sorted(told)


def told(bootstrap: str, version: int) -> dict[str, Any]:
    """The life of a session, and its ends."""
    topic, seen = f"topic-{uuid.uuid4().hex[:8]}", dict[str, Any]()
    with RawClient(bootstrap, 30) as client:
        client.call(
            CREATE_TOPICS, 5, topics=[{"name": topic, "num_partitions": 3, "replication_factor": 1}]
        )
        deadline = time.monotonic() + 60
        for number in range(3):
            while client.produce(topic, number, batch()).error_code:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        reader = Reader(client, topic, version)
        fetch = reader.fetch
        seen["first"] = fetch(FIRST, {0: 0, 1: 1, 2: 1})
        seen["moves on"] = fetch(1, {0: 1})
        seen["nothing new"] = fetch(2, {})
        client.produce(topic, 1, batch())
        seen["a record came"] = fetch(3, {})
        seen["it is read"] = fetch(4, {1: 2})
        seen["forgets"] = fetch(5, {}, forgets=(1,))
        client.produce(topic, 1, batch())
        seen["is not told"] = fetch(6, {})
        seen["wrong offset"] = fetch(7, {0: 77})
        seen["again"] = fetch(8, {})
        seen["right offset"] = fetch(9, {0: 1})
        seen["another partition"] = fetch(10, {1: 2, 9: 0})
        seen["old epoch"] = fetch(10, {})
        seen["far epoch"] = fetch(77, {})
        seen["unknown session"] = fetch(11, {}, session=reader.session ^ 1)
        seen["goes on"] = fetch(11, {}, forgets=(9,))
        seen["forgets all"] = fetch(12, {}, forgets=(0, 1, 2))
        seen["is over"] = fetch(13, {})
        seen["a second one"] = fetch(FIRST, {0: 1})
        seen["ends"] = fetch(FINAL, {0: 0})
        seen["has ended"] = fetch(1, {})
        seen["without"] = fetch(FINAL, {0: 0, 1: 1}, session=0)
    return seen


@pytest.mark.kafka
@pytest.mark.parametrize("version", [12, 13, 17])
def test_a_fetch_session_lives_and_ends_as_in_kafka(kafka: KafkaServer, version: int) -> None:
    """By topic names and ids: the returned partitions, the omitted ones, and each error."""
    theirs = told(kafka.bootstrap, version)
    with EmbeddedBroker() as broker:
        ours = told(broker.bootstrap, version)
    assert {step: (ours[step], theirs[step]) for step in theirs if ours[step] != theirs[step]} == {}


def test_sessions_are_as_many_as_their_slots_and_end_with_their_connections() -> None:
    """A reader without a slot gets full responses."""
    with EmbeddedBroker(settings={"max.incremental.fetch.session.cache.slots": 1}) as broker:
        broker.call(lambda node: node.catalogue.create("t", 3, {}))
        with RawClient(broker.bootstrap) as one, RawClient(broker.bootstrap) as two:
            first, second = Reader(one, "t", 13), Reader(two, "t", 13)
            assert first.fetch(FIRST, {0: 0})[1]
            assert second.fetch(FIRST, {0: 0}) == (0, False, [(0, 0, 0, 0)])
            one.socket.close()
            deadline = time.monotonic() + 60
            while not second.fetch(FIRST, {0: 0})[1]:
                assert time.monotonic() < deadline, "the slot is not free"


def test_a_client_that_uses_sessions_reads_all_records_in_order() -> None:
    """kafka-python reads ten partitions that get records in turn."""
    with EmbeddedBroker(settings={"num.partitions": 10}) as broker:
        broker.call(lambda node: node.catalogue.create("t", 10, {}))
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=20_000,
        )
        for number in range(100):
            producer.send("t", b"%d" % number, partition=number % 10)
            if number % 10 == 9:
                producer.flush(PATIENCE_S)
        seen: dict[int, list[int]] = {}
        for message in consumer:
            seen.setdefault(message.partition, []).append(int(message.value))
            if sum(map(len, seen.values())) == 100:
                break
        sessions = broker.call(lambda node: len(node.fetch_sessions))
        consumer.close()
        producer.close()
    assert seen == {part: list(range(part, 100, 10)) for part in range(10)}
    assert sessions == 1
