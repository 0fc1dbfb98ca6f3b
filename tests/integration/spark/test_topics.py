"""Ledger lines in a Kafka topic: both readers, batch and stream, give what files give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history_job import HistoryOptions, run
from faust_assigner.pipeline.topics import TopicSource, read_topic, split_sources
from faust_assigner.testing.kafka import kafka_server
from tests.integration.spark.ledgers import Line, bad_lines, expected, random_rows
from tests.integration.spark.test_history import assert_tables, read_report

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

LINES = [*random_rows("g", 9, decisions=4), *bad_lines(), Line(b"")]


@pytest.fixture(scope="module")
def topic() -> Iterator[str]:
    """A topic of three partitions with a ledger, transactions, a gap of markers and a tombstone in it."""
    with kafka_server() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for future in admin.create_topics([NewTopic("ledger", 3, 1)]).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "ledger"})
        producer.init_transactions(30)
        for half, commits in ((LINES[::2], True), (LINES[1::2], True), (LINES[:50], False)):
            producer.begin_transaction()
            for number, line in enumerate(half):
                producer.produce("ledger", line.data, partition=number % 3)
            producer.produce("ledger", None, key=b"tombstone", partition=0)
            producer.flush(30)
            producer.commit_transaction(30) if commits else producer.abort_transaction(30)
        yield f"kafka://{server.bootstrap}/ledger"


@pytest.mark.parametrize("connector", ["spark", "python"])
def test_topic_gives_what_the_model_says(
    spark: SparkSession, topic: str, tmp_path: Path, connector: str
) -> None:
    """Committed records once, aborted ones not at all; refused lines under partition and offset."""
    run(spark, HistoryOptions((topic,), str(tmp_path), connector=connector))
    report = read_report(tmp_path)
    assert_tables(report, expected(LINES))
    assert len(report["quarantine"]) == len(bad_lines())
    assert {row["file"] for row in report["quarantine"]} == {f"{topic}/{p}" for p in range(3)}


@pytest.mark.parametrize("connector", ["spark", "python"])
def test_stream_of_a_topic_takes_each_offset_once(
    spark: SparkSession, topic: str, tmp_path: Path, connector: str
) -> None:
    """Two visits take what one batch takes."""
    for _ in range(2):
        run(spark, HistoryOptions((topic,), str(tmp_path), stream=True, connector=connector))
    report = read_report(tmp_path)
    assert_tables(report, expected(LINES))
    assert len(report["quarantine"]) == len(bad_lines())


def test_topic_that_is_not_there_is_an_error(spark: SparkSession, topic: str) -> None:
    """Said by name, not found out by waiting."""
    source = TopicSource.from_url(topic.replace("/ledger", "/nothing"))
    with pytest.raises(Exception, match="no topic 'nothing'"):
        read_topic(spark, source, connector="python").count()


@pytest.mark.parametrize("url", ["kafka://", "kafka://host:1", "kafka://host:1/", "kafka:///topic",
                                 "kafka://host:1/a/b"])
def test_url_of_a_topic_needs_both_parts(url: str) -> None:
    """Cluster and topic; what is not one is said."""
    with pytest.raises(ConfigError, match="is not kafka://"):
        split_sources([url])
