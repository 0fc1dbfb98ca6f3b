"""Unmodified clients on the embedded broker: produce, consume in groups, commit, restart, resume."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from faust_assigner.broker import EmbeddedBroker
from tests.support.coordination.aiokafka_members import die
from tests.support.waiting import PATIENCE_S, until


def _create_topic(broker: EmbeddedBroker, name: str, partitions: int) -> None:
    broker.node.catalogue.create(name, partitions, {})


class Member:
    """An aiokafka group member that records its reads and its assignments."""

    def __init__(self, broker: EmbeddedBroker, group: str = "g", **changes: Any) -> None:
        settings = {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 60_000,
            "heartbeat_interval_ms": 100,
            **changes,
        }
        self.consumer = AIOKafkaConsumer("t", bootstrap_servers=broker.bootstrap, **settings)
        self.seen: list[tuple[int, int]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Member:
        """Join and read in the background."""
        await self.consumer.start()
        self._task = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        async for message in self.consumer:
            self.seen.append((message.partition, message.offset))

    @property
    def owned(self) -> set[int]:
        """The current partitions."""
        return {tp.partition for tp in self.consumer.assignment()}

    async def leave(self) -> None:
        """Leave the group."""
        assert self._task is not None
        self._task.cancel()
        await self.consumer.stop()

    async def die(self) -> None:
        """Stop without leaving the group, as a killed process does."""
        assert self._task is not None
        self._task.cancel()
        await die(self.consumer)


@pytest.mark.slow
async def test_an_aiokafka_group_follows_joins_leaves_and_deaths() -> None:
    """After each change every partition has one owner, and every record is read."""
    async with EmbeddedBroker() as broker:
        _create_topic(broker, "t", 6)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(60):
                await producer.send_and_wait("t", b"v", partition=number % 6)
            members = [await Member(broker, session_timeout_ms=3_000).start()]
            await until(lambda: len(members[0].seen) == 60, "the first member reads all")
            members.append(await Member(broker, session_timeout_ms=3_000).start())
            members.append(await Member(broker, session_timeout_ms=3_000).start())
            await until(
                lambda: sorted(len(m.owned) for m in members) == [2, 2, 2],
                "three members, two each",
            )
            await members.pop().leave()
            await until(
                lambda: sorted(len(m.owned) for m in members) == [3, 3], "two members after a leave"
            )
            await members.pop(0).die()
            await until(
                lambda: len(members[0].owned) == 6,
                "the survivor takes over after a session timeout",
            )
            for number in range(6):
                await producer.send_and_wait("t", b"late", partition=number)
            await until(
                lambda: {(p, 10) for p in range(6)} <= set(members[0].seen), "new records are read"
            )
            await members[0].leave()


async def test_an_aiokafka_group_resumes_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    """The commit, the member id and the generation survive; no committed record is read again."""
    broker = EmbeddedBroker(tmp_path)
    async with broker:
        _create_topic(broker, "t", 2)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(10):
                await producer.send_and_wait("t", b"%d" % number, partition=number % 2)
        member = await Member(broker).start()
        await until(lambda: len(member.seen) == 10, "ten records")
        await member.consumer.commit()
        await broker.stop()
        await asyncio.sleep(0.2)
        await broker.start()
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait("t", b"after", partition=0)
        await until(lambda: (0, 5) in member.seen, "the same member reads on")
        assert len(member.seen) == len(set(member.seen)) == 11
        coordinator = member.consumer._coordinator
        await until(lambda: coordinator.coordinator_id is not None, "aiokafka leaves only then")
        await member.leave()
        again = await Member(broker).start()
        committed = await again.consumer.committed(TopicPartition("t", 1))
        assert committed == 5
        await again.leave()


async def test_a_static_aiokafka_member_bounces_without_a_rebalance() -> None:
    """The other member's generation does not change."""
    async with EmbeddedBroker() as broker:
        _create_topic(broker, "t", 4)
        stays = await Member(broker, group_instance_id="i0").start()
        bounces = await Member(broker, group_instance_id="i1").start()
        await until(lambda: len(stays.owned) == len(bounces.owned) == 2, "two each")
        owned, generation = bounces.owned, broker.node.groups.get("g").generation  # type: ignore[union-attr]
        await bounces.die()
        again = await Member(broker, group_instance_id="i1").start()
        await until(lambda: again.owned == owned, "the same partitions")
        assert broker.node.groups.get("g").generation == generation  # type: ignore[union-attr]
        await again.leave()
        await stays.leave()


async def test_aiokafka_reads_headers_timestamps_and_positions_by_time() -> None:
    """Milliseconds survive; offsets_for_times finds the exact record in an uncompressed batch."""
    async with EmbeddedBroker() as broker:
        _create_topic(broker, "t", 1)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=50) as producer:
            sent = [
                await producer.send(
                    "t",
                    b"%d" % n,
                    key=b"k",
                    partition=0,
                    timestamp_ms=1_700_000_000_123 + n,
                    headers=[("h", b"x%d" % n)],
                )
                for n in range(5)
            ]
            assert [(await s).offset for s in sent] == [0, 1, 2, 3, 4]
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        message = [await consumer.getone() for _ in range(5)][3]
        assert (message.timestamp, message.headers, message.value) == (
            1_700_000_000_126,
            (("h", b"x3"),),
            b"3",
        )
        tp = TopicPartition("t", 0)
        found = await consumer.offsets_for_times({tp: 1_700_000_000_125})
        assert (found[tp].offset, found[tp].timestamp) == (2, 1_700_000_000_125)
        assert await consumer.offsets_for_times({tp: 1_800_000_000_000}) == {tp: None}
        assert (await consumer.beginning_offsets([tp]), await consumer.end_offsets([tp])) == (
            {tp: 0},
            {tp: 5},
        )
        await consumer.stop()


async def test_aiokafka_admin_creates_grows_and_describes() -> None:
    """The calls that Faust and its users make through aiokafka."""
    async with EmbeddedBroker() as broker:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        await admin.create_topics(
            [AioNewTopic("a", 3, 1, topic_configs={"cleanup.policy": "compact"})]
        )
        described = await admin.describe_topics(["a"])
        assert len(described[0]["partitions"]) == 3
        await admin.delete_topics(["a"])
        assert "a" not in await admin.list_topics()
        await admin.close()


def confluent_group(
    broker: EmbeddedBroker, topic: str, wanted: int, members: int
) -> list[set[Any]]:
    """Run a confluent group in threads until ``wanted`` records are read; return reads by member."""
    seen: list[set[Any]] = [set() for _ in range(members)]
    stop = threading.Event()

    def run(number: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "cg",
                "session.timeout.ms": 60_000,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
            }
        )
        consumer.subscribe([topic])
        while not stop.is_set():
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                seen[number].add((message.partition(), message.offset()))
        consumer.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(members)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE_S
    while len(set().union(*seen)) < wanted and time.monotonic() < end:
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    return seen


def test_a_confluent_group_shares_records_and_resumes_from_its_commits(tmp_path: Path) -> None:
    """Three librdkafka members, two runs, a broker restart between them: no record read twice."""
    with EmbeddedBroker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 6, 1)])["t"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(300):
            producer.produce("t", b"v", partition=number % 6)
        assert producer.flush(PATIENCE_S) == 0
        first = set().union(*confluent_group(broker, "t", 300, 3))
        assert len(first) == 300
        broker.restart()
        for number in range(60):
            producer.produce("t", b"w", partition=number % 6)
        assert producer.flush(PATIENCE_S) == 0
        second = set().union(*confluent_group(broker, "t", 60, 2))
        assert second == {(p, o) for p in range(6) for o in range(50, 60)}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_codec_makes_the_round_trip(codec: str) -> None:
    """Batches stay compressed; the consumer gets the same bytes, headers and milliseconds."""
    with EmbeddedBroker() as broker:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20}
        )
        values = [bytes([n]) * 500 for n in range(50)]
        for number, value in enumerate(values):
            producer.produce(
                "c", value, timestamp=1_700_000_000_001 + number, headers=[("n", b"%d" % number)]
            )
        assert producer.flush(PATIENCE_S) == 0
        stored = broker.call(lambda node: node.catalogue.partition("c", 0).size)  # type: ignore[union-attr]
        assert stored > 25_000 if codec == "none" else stored < 10_000
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": codec,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["c"])
        got = []
        while len(got) < 50:
            got += consumer.consume(50 - len(got), timeout=5)
        consumer.close()
        assert [m.value() for m in got] == values
        assert [m.timestamp()[1] for m in got] == [1_700_000_000_001 + n for n in range(50)]
        assert [m.headers() for m in got] == [[("n", b"%d" % n)] for n in range(50)]


def test_confluents_admin_client_sees_and_changes_what_there_is() -> None:
    """The test covers topics, configs, partitions, groups, offsets and the cluster."""
    with EmbeddedBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "5000"})])["t"].result(
            PATIENCE_S
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
        configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
        assert configs["retention.ms"].value == "5000"
        assert configs["cleanup.policy"].value == "delete"
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, NewPartitions

        change = ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[change])
        admin.incremental_alter_configs([changed])[changed].result(PATIENCE_S)
        assert (
            admin.describe_configs([resource])[resource].result(PATIENCE_S)["retention.ms"].value
            == "7000"
        )
        admin.create_partitions([NewPartitions("t", 5)])["t"].result(PATIENCE_S)
        assert len(admin.list_topics(timeout=PATIENCE_S).topics["t"].partitions) == 5
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"v", partition=3)
        assert producer.flush(PATIENCE_S) == 0
        confluent_group(broker, "t", 1, 1)
        assert [g.group_id for g in admin.list_consumer_groups().result(PATIENCE_S).valid] == ["cg"]
        assert admin.describe_consumer_groups(["cg"])["cg"].result(PATIENCE_S).state.name == "EMPTY"
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = ConsumerGroupTopicPartitions("cg", [ConfluentPartition("t", 3)])
        (listed,) = admin.list_consumer_group_offsets([asked]).values()
        assert listed.result(PATIENCE_S).topic_partitions[0].offset == 1
        admin.delete_consumer_groups(["cg"])["cg"].result(PATIENCE_S)
        assert admin.list_consumer_groups().result(PATIENCE_S).valid == []
        deleted = admin.delete_records([ConfluentPartition("t", 3, 1)])
        assert next(iter(deleted.values())).result(PATIENCE_S).low_watermark == 1
        admin.delete_topics(["t"])["t"].result(PATIENCE_S)
        assert "t" not in admin.list_topics(timeout=PATIENCE_S).topics
        assert len(admin.describe_cluster().result(PATIENCE_S).nodes) == 1


def test_a_kafka_python_group_reads_commits_and_resumes() -> None:
    """Two members in threads, then a member that reads only the new records.

    kafka-python 3.0.12 sometimes ignores the response to its SyncGroup and expires (1 of 12 runs,
    on Apache Kafka too). The other member then rightly ends with all partitions.
    """
    with EmbeddedBroker(settings={"num.partitions": 4}) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for number in range(200):
            producer.send(
                "t",
                b"v",
                partition=number % 4,
                headers=[("h", b"x")],
                timestamp_ms=1_700_000_000_007,
            )
        producer.flush(PATIENCE_S)
        seen: list[set[Any]] = [set(), set()]
        owned: list[set[int]] = [set(), set()]
        done = threading.Event()

        def run(number: int) -> None:
            consumer = KafkaConsumer(
                "t",
                bootstrap_servers=broker.bootstrap,
                group_id="g",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
                session_timeout_ms=6_000,
            )
            while not done.is_set():
                for records in consumer.poll(50).values():
                    seen[number] |= {(m.partition, m.offset) for m in records}
                owned[number] = {tp.partition for tp in consumer.assignment()}
            consumer.commit()
            consumer.close()

        threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            shared = [len(o) for o in owned] == [2, 2] or time.monotonic() > end - PATIENCE_S / 2
            if shared and len(seen[0] | seen[1]) == 200 and len(owned[0] | owned[1]) == 4:
                break
            time.sleep(0.02)
        done.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert len(seen[0] | seen[1]) == 200
        assert owned[0] | owned[1] == {0, 1, 2, 3}
        producer.send("t", b"new", None, [("h", b"y")], 2, 1_700_000_000_009).get(PATIENCE_S)
        producer.close()
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            consumer_timeout_ms=round(PATIENCE_S * 1000),
        )
        message = next(consumer)
        assert (message.value, message.partition, message.offset) == (b"new", 2, 50)
        assert (message.headers, message.timestamp) == ([("h", b"y")], 1_700_000_000_009)
        consumer.close()


def test_kafka_pythons_admin_client_sees_topics_and_groups() -> None:
    """A third client library checks the answers for administrators."""
    with EmbeddedBroker(settings={"num.partitions": 3}) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        producer.send("t", b"v").get(PATIENCE_S)
        producer.close()
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        assert admin.list_topics() == ["t"]
        assert len(admin.describe_topics(["t"])[0]["partitions"]) == 3
        admin.close()
