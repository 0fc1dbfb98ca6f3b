"""Ledger lines in a Kafka topic: both readers, batch and stream, give what files give."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.history.stream import take_available
from faust_assigner.pipeline.history.stream_lines import taken
from faust_assigner.pipeline.history.transforms import rows
from faust_assigner.pipeline.ledgers.quarantine import quarantined
from faust_assigner.pipeline.ledgers.sources import read_ledger
from faust_assigner.pipeline.ledgers.topics import (
    TopicSource,
    has_connector,
    read_topic,
    split_sources,
)
from faust_assigner.pipeline.sinks import Folder
from faust_assigner.testing.kafka import KafkaServer
from tests.integration.spark.ledgers import Ledger, Line, bad_lines, random_rows

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

LINES = [*random_rows("g", 9, decisions=4), *bad_lines(), Line(b"")]


@pytest.fixture(scope="module")
def topic(kafka: KafkaServer) -> str:
    """A topic of three partitions with a ledger, transactions, a gap of markers and a tombstone in it."""
    name = f"ledger-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_topics([NewTopic(name, 3, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for half, commits in ((LINES[::2], True), (LINES[1::2], True), (LINES[:50], False)):
        producer.begin_transaction()
        for number, line in enumerate(half):
            producer.produce(name, line.data, partition=number % 3)
        producer.produce(name, None, key=b"tombstone", partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)
    return f"kafka://{kafka.bootstrap}/{name}"


def told(parsed: DataFrame) -> tuple[Counter[str], set[str], int]:
    """What lines came to: accepted rows by table and group, where refused ones are, how many those are."""
    accepted: Counter[str] = Counter()
    refused = [row["file"] for row in quarantined(parsed).collect()]
    for table in TABLES:
        for row in rows(parsed, table).collect():
            accepted[json.dumps(row.asDict(recursive=True), default=str, sort_keys=True)] += 1
    return accepted, set(refused), len(refused)


@pytest.fixture(scope="module")
def of_files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """What the same lines come to when they are in a file; the model judges files elsewhere."""
    ledger = Ledger(tmp_path_factory.mktemp("ledger"))
    path = ledger.write("one.jsonl", LINES)
    return told(read_ledger(spark, [str(path)]).persist())[0]


@pytest.mark.parametrize("connector", ["spark", "python"])
def test_topic_gives_what_files_give(
    spark: SparkSession, topic: str, of_files: Counter[str], connector: str
) -> None:
    """Committed records once, aborted ones not at all; refused lines under partition and offset."""
    accepted, places, refused = told(read_ledger(spark, [topic], connector=connector).persist())
    assert accepted == of_files
    assert sum(accepted.values()) == sum(line.row is not None for line in LINES)
    assert refused == len(bad_lines())
    assert places == {f"{topic}/{p}" for p in range(3)}


@pytest.mark.parametrize("connector", [pytest.param("spark", marks=pytest.mark.slow), "python"])
def test_stream_of_a_topic_takes_each_offset_once(
    spark: SparkSession, topic: str, of_files: Counter[str], tmp_path: Path, connector: str
) -> None:
    """Two visits take what one batch takes."""
    folder = Folder(spark, str(tmp_path))
    for _ in range(2):
        take_available(spark, [topic], folder, connector=connector)
    accepted, _, refused = told(taken(spark, folder).persist())
    assert accepted == of_files
    assert refused == len(bad_lines())


def test_connector_on_the_class_path_is_found(spark: SparkSession, topic: str) -> None:
    """Left to itself the job takes Spark's own connector where its jars are."""
    assert has_connector(spark)
    plan = read_topic(spark, TopicSource.from_url(topic))._jdf.queryExecution().toString()
    assert "KafkaRelation" in plan, plan


def test_topic_that_is_not_there_is_an_error(spark: SparkSession, topic: str) -> None:
    """Said by name, not found out by waiting."""
    source = TopicSource.from_url(topic.rpartition("/")[0] + "/nothing")
    with pytest.raises(Exception, match="no topic 'nothing'"):
        read_topic(spark, source, connector="python").count()


@pytest.mark.parametrize(
    "url", ["kafka://", "kafka://host:1", "kafka://host:1/", "kafka:///topic", "kafka://host:1/a/b"]
)
def test_url_of_a_topic_needs_both_parts(url: str) -> None:
    """Cluster and topic; what is not one is said."""
    with pytest.raises(ConfigError, match="is not kafka://"):
        split_sources([url])
