"""Transactional producers and committed readers of two libraries, on ours and on Apache Kafka."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.virtual_broker import VirtualBroker
from tests.support.clients.raw_client import RawClient
from tests.support.clients.raw_transactions import (
    RawProducer,
    committed_offset,
    fetched,
    milliseconds,
)
from tests.support.waiting import PATIENCE_S

S = 20.0  # seconds that a client may take for a step
Seen = list[tuple[int, bytes]]


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of our broker, and of a real Kafka."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka").bootstrap
        return
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic with two partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(S)
    return name


# -- confluent-kafka ---------------------------------------------------------------------------------


def producer(bootstrap: str, name: str, **more: Any) -> Producer:
    """A transactional producer after InitProducerId."""
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **more})
    made.init_transactions(S)
    return made


def transact(made: Producer, topic: str, *values: bytes, commits: bool) -> None:
    """Run a transaction with these values in partition 0."""
    made.begin_transaction()
    for value in values:
        made.produce(topic, value, partition=0)
    assert made.flush(S) == 0
    (made.commit_transaction if commits else made.abort_transaction)(S)


def consume(bootstrap: str, topic: str, count: int, *, level: str = "read_committed") -> Seen:
    """Return (offset, value) of partition 0: at least ``count``, then a second without a record."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": level,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    seen: Seen = []
    deadline = time.monotonic() + S
    try:
        while time.monotonic() < deadline:
            message = reader.poll(1.0)
            if message is None and len(seen) >= count:
                break
            if message is not None and message.error() is None:
                seen.append((message.offset(), message.value()))
    finally:
        reader.close()
    return seen


def test_librdkafka_reads_what_was_committed(bootstrap: str, topic: str) -> None:
    """Aborted records and markers take offsets; only an uncommitted reader sees the records."""
    made = producer(bootstrap, topic)
    transact(made, topic, b"one", b"two", commits=True)
    transact(made, topic, b"aborted", commits=False)
    transact(made, topic, b"three", commits=True)
    assert consume(bootstrap, topic, 3) == [(0, b"one"), (1, b"two"), (5, b"three")]
    everything = consume(bootstrap, topic, 4, level="read_uncommitted")
    assert everything == [(0, b"one"), (1, b"two"), (3, b"aborted"), (5, b"three")]


def test_librdkafka_fences_a_zombie(bootstrap: str, topic: str) -> None:
    """The id's second producer aborts the first one's transaction; its commit fails fatally."""
    zombie = producer(bootstrap, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"of the zombie", partition=0)
    assert zombie.flush(S) == 0
    heir = producer(bootstrap, topic)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(S)
    assert raised.value.args[0].fatal()
    transact(heir, topic, b"of the heir", commits=True)
    assert [value for _, value in consume(bootstrap, topic, 1)] == [b"of the heir"]


def test_librdkafka_commits_offsets_with_its_records(bootstrap: str, topic: str) -> None:
    """The producer commits as a member (KIP-447), as a consume-process-produce loop does."""
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        plain.produce(topic, b"in-%d" % number, partition=1)
    assert plain.flush(S) == 0
    group = f"group-{topic}"
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made = producer(bootstrap, topic)
    place = TopicPartition(topic, 1)
    try:
        reader.subscribe([topic])
        taken, deadline = 0, time.monotonic() + 2 * S
        while taken < 5 and time.monotonic() < deadline:
            taken += sum(m.error() is None for m in reader.consume(5, 0.5))
        assert taken == 5
        found = []
        for offset, commits in ((3, False), (5, True)):
            made.begin_transaction()
            made.produce(topic, b"out", partition=0)
            made.send_offsets_to_transaction(
                [TopicPartition(topic, 1, offset)], reader.consumer_group_metadata(), S
            )
            (made.commit_transaction if commits else made.abort_transaction)(S)
            found.append(reader.committed([place], S)[0].offset)
        assert found == [-1001, 5]  # -1001 is librdkafka's value for no offset
    finally:
        reader.close()


# -- aiokafka ----------------------------------------------------------------------------------------


def test_aiokafka_reads_what_was_committed(bootstrap: str, topic: str) -> None:
    """The same script; aiokafka commits offsets without its member id (TxnOffsetCommit 0)."""

    async def story() -> tuple[Seen, int | None]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as made:
            async with made.transaction():
                await made.send_and_wait(topic, b"one", partition=0)
                await made.send_offsets_to_transaction({AioPartition(topic, 0): 7}, f"g-{topic}")
            await made.begin_transaction()
            await made.send_and_wait(topic, b"aborted", partition=0)
            await made.send_offsets_to_transaction({AioPartition(topic, 0): 9}, f"g-{topic}")
            await made.abort_transaction()
            async with made.transaction():
                await made.send_and_wait(topic, b"two", partition=0)
        reader = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            group_id=f"g-{topic}",
            enable_auto_commit=False,
        )
        async with reader:
            place = AioPartition(topic, 0)
            reader.assign([place])
            reader.seek(place, 0)
            seen: Seen = []
            while len(seen) < 2:
                message = await asyncio.wait_for(reader.getone(), S)
                seen.append((message.offset, message.value or b""))
            return seen, await reader.committed(place)

    assert asyncio.run(asyncio.wait_for(story(), 3 * S)) == ([(0, b"one"), (4, b"two")], 7)


# -- only ours: these need its clock, its folder or its process -------------------------------


def test_a_transaction_is_aborted_when_its_time_is_over() -> None:
    """The producer is fenced, and committed readers continue."""
    with VirtualBroker() as broker, RawClient(broker.bootstrap) as client:
        broker.broker.call(lambda node: node.catalogue.create("t", 1, {}))
        made = RawProducer(client, "tx", "t")
        assert [made.init(timeout_ms=10_000), *made.add(0)] == [0, 0]
        assert made.write(timestamp_ms=broker.now_ms) == 0
        broker.advance(9_999)
        before = fetched(client, "t", committed=True)[:4]
        broker.advance(1)
        after = fetched(client, "t", committed=True)[:4]
        assert (before, after) == ((0, 1, 0, []), (0, 2, 2, [(0, 1)]))
        assert made.write(timestamp_ms=broker.now_ms) == 47
        assert [made.end(commits=True), *made.add(0)] == [90, 90]
        assert [made.init(), *made.add(0)] == [0, 0]
        assert made.write(timestamp_ms=broker.now_ms) == 0
        assert made.end(commits=True) == 0


def test_a_committed_reader_that_waits_is_answered_when_the_transaction_ends() -> None:
    """A record or another open transaction does not answer it; the end of the oldest one does."""
    with EmbeddedBroker() as broker, RawClient(broker.bootstrap) as client:
        broker.call(lambda node: node.catalogue.create("t", 1, {}))
        made = RawProducer(client, "tx", "t")
        answers: list[tuple[int, int]] = []

        def wait() -> None:
            with RawClient(broker.bootstrap) as reader:
                part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10**6}
                answer = reader.call(
                    1,
                    11,
                    max_wait=milliseconds(600_000),
                    min_bytes=1,
                    max_bytes=10**7,
                    isolation_level=1,
                    topics=[{"topic": "t", "partitions": [part]}],
                )
                found = answer.responses[0].partitions[0]
                answers.append((found.last_stable_offset, len(bytes(found.records or b""))))

        assert [made.init(), *made.add(0)] == [0, 0]
        thread = threading.Thread(target=wait)
        thread.start()
        assert [made.write(), made.write()] == [0, 0]
        thread.join(1.0)
        assert answers == []
        assert made.end(commits=True) == 0
        thread.join(PATIENCE_S)
        assert [(stable, size > 0) for stable, size in answers] == [(3, True)]


def test_a_broker_that_is_killed_amid_transactions_has_all_of_each_or_nothing(
    tmp_path: Path,
) -> None:
    """Open transactions continue after kill -9; ended ones keep offsets and records together."""
    with broker_process(tmp_path / "data") as before:
        with RawClient(before.bootstrap) as client:
            client.call(19, 5, topics=[{"name": "t", "num_partitions": 2, "replication_factor": 1}])
            makers = {name: RawProducer(client, name, "t") for name in ("open", "done", "void")}
            for number, (name, made) in enumerate(makers.items()):
                assert [made.init(), *made.add(0, 1), made.write(0), made.write(1)] == [0] * 5
                assert made.add_group(name) == made.commit_offset(name, 10 + number) == 0
            assert makers["done"].end(commits=True) == makers["void"].end(commits=False) == 0
        before.kill()
    with broker_process(tmp_path / "data") as after, RawClient(after.bootstrap) as client:
        for partition in (0, 1):
            found = fetched(client, "t", committed=True, partition=partition)
            assert found[:4] == (0, 5, 0, [])
        offsets = [
            committed_offset(client, name, "t", stable=True) for name in ("open", "done", "void")
        ]
        assert offsets == [(88, -1), (0, 11), (0, -1)]
        still, done = makers["open"], makers["done"]
        still.client = done.client = client
        assert [still.write(0), still.end(commits=True)] == [0, 0]
        assert fetched(client, "t", committed=True)[:4] == (0, 7, 7, [(2, 1)])
        assert committed_offset(client, "open", "t", stable=True) == (0, 10)
        assert [done.twin().init(), *done.add(0)] == [0, 90]


def test_transactional_ids_are_listed_by_what_is_asked() -> None:
    """By state, producer, age and pattern; the answer names an unknown state."""
    with EmbeddedBroker() as broker:
        broker.call(lambda node: node.catalogue.create("t", 1, {}))
        with RawClient(broker.bootstrap) as client:
            open_, idle = (RawProducer(client, name, "t") for name in ("shop-1", "bank-1"))
            assert (open_.init(), idle.init(), open_.add(0)) == (0, 0, [0])

            def listed(version: int = 2, **filters: Any) -> tuple[list[str], tuple[str, ...]]:
                given = {"state_filters": (), "producer_id_filters": (), **filters}
                answer = client.call(66, version, **given)
                assert int(answer.error_code) == 0
                names = sorted(one.transactional_id for one in answer.transaction_states)
                return names, answer.unknown_state_filters

            assert listed() == (["bank-1", "shop-1"], ())
            assert listed(0, state_filters=("Ongoing",)) == (["shop-1"], ())
            assert listed(0, state_filters=("Empty", "Strange")) == (["bank-1"], ("Strange",))
            assert listed(0, producer_id_filters=(idle.producer_id,)) == (["bank-1"], ())
            # As in Apache Kafka, an id without a transaction counts as old.
            assert listed(1, duration_filter=600_000) == (["bank-1"], ())
            assert listed(2, transactional_id_pattern="shop-.*") == (["shop-1"], ())
