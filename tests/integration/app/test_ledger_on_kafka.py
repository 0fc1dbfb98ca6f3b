"""The ledger's own producer on Apache Kafka: its requests for the topic, and Kafka's failures."""

from __future__ import annotations

import json
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import faust
import pytest
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from faust_assigner.app.ledger.install import MARK, install
from faust_assigner.app.ledger.topic import LedgerTopic
from faust_assigner.ledger import Row
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.ledgers.rows import accepted_rows
from faust_assigner.testing.kafka import KafkaServer, kafka_server
from tests.support.waiting import PATIENCE_S, wait_until
from tests.unit.app.ledger.test_files import sample
from tests.unit.app.ledger.test_topic import administer, decision

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    """A Kafka for these tests alone, which they restart; it creates no topic on demand."""
    with kafka_server({"auto.create.topics.enable": "false"}, with_secured=True) as server:
        yield server


@pytest.fixture
def topic() -> str:
    """A new topic name."""
    return f"ledger-{uuid.uuid4().hex[:8]}"


def partitions(server: KafkaServer, topic: str) -> int:
    """Return the topic's number of partitions."""
    [described] = administer(server, lambda admin: admin.describe_topics([topic]))
    return len(described["partitions"])


def found(server: KafkaServer, topic: str) -> list[Row]:
    """Return the rows; assert that none is refused."""
    refused = Refused(keep=3)
    rows = list(accepted_rows([f"kafka://{server.bootstrap}/{topic}"], refused))
    assert refused.kept == []
    return rows


def numbers(server: KafkaServer, topic: str) -> list[int]:
    """Return the partition numbers of the samples."""
    return sorted(row.values["partition"] for row in found(server, topic))


def written(topic: str, server: KafkaServer, act: Callable[[LedgerTopic], None]) -> LedgerTopic:
    """Return a ledger that ``act`` has used, closed."""
    writer = LedgerTopic(topic, "shop-w", lambda: {"bootstrap_servers": server.bootstrap})
    try:
        act(writer)
        writer.drain()
    finally:
        writer.close(10.0)
    return writer


def config_of(server: KafkaServer, topic: str) -> dict[str, str]:
    """Return the topic's configs."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    [answer] = administer(server, lambda admin: admin.describe_configs([resource]))
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


def test_kafka_makes_the_topic_with_our_bounds(server: KafkaServer, topic: str) -> None:
    """Kafka 4 refuses segments below 1 MiB, so a small bound does not request smaller ones."""
    for name, total in ((topic, 256 * 2**20), (f"{topic}-small", 1000)):
        writer = LedgerTopic(
            name, "w", lambda: {"bootstrap_servers": server.bootstrap}, total_bytes=total
        )
        writer.put(lambda: [sample(1)])
        writer.drain()
        writer.close(10.0)
        assert writer.counts.written == 1
        config = config_of(server, name)
        assert config["cleanup.policy"] == "delete"
        assert config["retention.ms"] == str(30 * 86_400_000)
        assert int(config["retention.bytes"]) == max(2**20, total // 4)
        assert int(config["segment.bytes"]) == max(2**20, min(16 * 2**20, total // 4))
        assert partitions(server, name) == 4


def test_kafka_is_restarted_and_no_row_is_lost(topic: str) -> None:
    """Rows that arrive while Kafka is down are kept until it returns."""
    with kafka_server() as server:

        def act(writer: LedgerTopic) -> None:
            writer.put(lambda: (sample(number) for number in range(1000)))
            writer.drain()
            server.end()
            writer.put(lambda: (sample(number) for number in range(1000, 2000)))
            server.start_again()

        writer = written(topic, server, act)
        assert writer.counts.dropped == 0
        assert sorted(set(numbers(server, topic))) == list(range(2000))


def test_a_topic_that_is_deleted_is_made_again_with_our_bounds(
    server: KafkaServer, topic: str
) -> None:
    """Later rows are in the new topic."""

    def act(writer: LedgerTopic) -> None:
        writer.put(lambda: [sample(1)])
        writer.drain()
        administer(server, lambda admin: admin.delete_topics([topic]))
        wait_until(lambda: topic not in administer(server, lambda admin: admin.list_topics()))
        writer.put(lambda: [sample(2), sample(3)])

    writer = written(topic, server, act)
    assert writer.counts.dropped == 0
    assert numbers(server, topic) == [2, 3]
    assert partitions(server, topic) == 4


def test_kafka_takes_large_decisions_within_the_topics_limit(
    server: KafkaServer, topic: str
) -> None:
    """20,000 rows in small batches; a decision too large to pack loses its inputs."""
    small = NewTopic(topic, 2, 1, topic_configs={"max.message.bytes": "4000"})
    administer(server, lambda admin: admin.create_topics([small]))

    def act(writer: LedgerTopic) -> None:
        writer.put(lambda: (sample(number) for number in range(20_000)))
        writer.put(lambda: [decision(30_000, asked=1), decision(30_000, why=1), sample(20_000)])

    writer = written(topic, server, act)
    rows = found(server, topic)
    assert (writer.counts.written, writer.counts.dropped) == (20_002, 1)
    assert [row.table for row in rows if row.table != "partition_sample"] == ["decision"]
    samples = [row.values["partition"] for row in rows if row.table == "partition_sample"]
    assert samples == list(range(20_001)), "in order, in one partition"


def test_a_decision_of_several_mebibytes_is_packed_below_kafkas_default_limit(
    server: KafkaServer, topic: str
) -> None:
    """Text compresses well: the line exceeds max.message.bytes, its batch does not."""
    table, row = decision(10, asked=1)
    large = {**row, "asked": {"runs": [f"topic-{n}: 0-{n}" for n in range(200_000)]}}
    assert len(json.dumps(large)) > 3 * 2**20
    writer = written(topic, server, lambda writer: writer.put(lambda: [(table, large), sample(1)]))
    assert (writer.counts.written, writer.counts.dropped) == (2, 0)
    assert {row.table for row in found(server, topic)} == {"decision", "partition_sample"}


def test_the_apps_own_credentials_let_the_ledger_in(
    server: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS and SCRAM settings of Faust; a wrong password loses the rows, not the app."""
    secured = server.secured
    assert secured is not None

    def sensor_of(password: str) -> Any:
        context = ssl.create_default_context(cafile=str(secured.certificate))
        context.check_hostname = False
        app = faust.App(
            f"app-{uuid.uuid4().hex[:6]}",
            broker=f"kafka://{secured.bootstrap}",
            broker_credentials=faust.SASLCredentials(
                username=secured.user,
                password=password,
                ssl_context=context,
                mechanism="SCRAM-SHA-512",
            ),
            PartitionAssignor="faust_assigner:PartitionAssignor",
            faust_assigner_ledger=f"topic:{topic}",
        )
        sensor = getattr(app, MARK, None) or install(app)
        assert sensor is not None
        return sensor

    # The first connection may take long on a busy machine; a refused one is tried for three seconds.
    for password, send_s, outcome in (
        (secured.password, PATIENCE_S, (1, 0)),
        ("wrong", 3.0, (0, 1)),
    ):
        monkeypatch.setattr("faust_assigner.app.ledger.topic.SEND_S", send_s)
        writer = sensor_of(password).writer
        writer.put(lambda: [sample(1)])
        writer.drain()
        began = time.monotonic()
        writer.close(2.0)
        assert time.monotonic() - began < PATIENCE_S
        assert (writer.counts.written, writer.counts.dropped) == outcome
    assert numbers(server, topic) == [1]
