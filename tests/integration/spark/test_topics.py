"""Ledger lines in a Kafka topic: both readers, batch and stream, give the results of files."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from faust_assigner.app.ledger.rows import TableRow, decision_rows
from faust_assigner.app.ledger.topic import LedgerTopic
from faust_assigner.errors import ConfigError
from faust_assigner.ledger import TABLES
from faust_assigner.ledger.encoding import encode
from faust_assigner.pipeline.history.job import run
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.ledgers import topics
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.progress import news, plan_full_visit
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.ledgers.rows import accepted_rows
from faust_assigner.pipeline.ledgers.sources import read_ledger, read_visit, rows_of
from faust_assigner.pipeline.ledgers.topic_source import split_sources
from faust_assigner.pipeline.ledgers.topics import has_connector, read_spans
from faust_assigner.testing.kafka import KafkaServer
from tests.integration.spark.ledgers import Ledger, Line, bad_lines, random_rows
from tests.support.pictures import no_pictures as no_pictures
from tests.support.status import AT, MadeGroup
from tests.unit.app.ledger.test_files import sample
from tests.unit.app.ledger.test_pages import line as recovery_line

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

LINES = [*random_rows("g", 9, decisions=4), *bad_lines(), Line(b"")]


@pytest.fixture(scope="module")
def topic(kafka: KafkaServer) -> str:
    """A topic of three partitions with a ledger, transactions, gaps of markers and a tombstone."""
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
    """Return accepted rows by table and group, the places of refused lines, and their number."""
    accepted: Counter[str] = Counter()
    refused = [row["file"] for row in parsed.where("reason is not null").collect()]
    for table in TABLES:
        for row in rows_of(parsed, table).collect():
            accepted[json.dumps(row.asDict(recursive=True), default=str, sort_keys=True)] += 1
    return accepted, set(refused), len(refused)


@pytest.fixture(scope="module")
def of_files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """The result of the same lines in a file; other tests compare files with the model."""
    ledger = Ledger(tmp_path_factory.mktemp("ledger"))
    path = ledger.write("one.jsonl", LINES)
    return told(read_ledger(spark, [str(path)]).persist())[0]


@pytest.mark.parametrize("connector", ["spark", "python"])
def test_topic_gives_what_files_give(
    spark: SparkSession, topic: str, of_files: Counter[str], connector: str
) -> None:
    """Committed records count once, aborted ones never; refused lines have partition and offset."""
    accepted, places, refused = told(read_ledger(spark, [topic], connector=connector).persist())
    assert accepted == of_files
    assert sum(accepted.values()) == sum(line.row is not None for line in LINES)
    assert refused == len(bad_lines())
    assert places == {f"{topic}/{p}" for p in range(3)}


@pytest.mark.parametrize("connector", [pytest.param("spark", marks=pytest.mark.slow), "python"])
def test_stream_of_a_topic_takes_each_offset_once(
    spark: SparkSession, topic: str, of_files: Counter[str], connector: str
) -> None:
    """Two visits take the records of one batch, all of them in the first visit."""
    first = news([topic], {}, {})
    accepted, _, refused = told(read_visit(spark, first, connector=connector).persist())
    assert accepted == of_files
    assert refused == len(bad_lines())
    assert not news([topic], first.state({}), {})


@pytest.mark.usefixtures("no_pictures")
def test_each_record_counts_once_when_the_connector_changes_between_visits(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's jars are missing in the first visit, and there in the second."""
    name, number = f"ledger-{uuid.uuid4().hex[:8]}", count()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    options = HistoryOptions(
        (f"kafka://{kafka.bootstrap}/{name}",), str(tmp_path), stream=True, connector="auto"
    )
    used = []
    for has_jars in (False, True):
        for turn in range(5):
            table, row = sample(0)
            # The sum of powers of 4 shows how often each record was counted.
            row["records_in"] = 4 ** next(number)
            producer.produce(name, encode(table, row), partition=turn % 2)
        producer.flush(30)
        monkeypatch.setattr(
            topics, "has_connector", lambda _, has=has_jars: used.append(has) or has
        )
        (skew,) = run(spark, options).tables["skew"]
    assert used == [False, True]
    assert skew["records_in"] == sum(4**n for n in range(10))


@pytest.fixture(scope="module")
def written(kafka: KafkaServer) -> tuple[str, Counter[str]]:
    """Topic with rows of three of our workers: decisions with standbys and moves, recoveries, samples."""
    name = f"ledger-{uuid.uuid4().hex[:8]}"
    writers = [
        LedgerTopic(name, f"shop-{worker}", lambda: {"bootstrap_servers": kafka.bootstrap})
        for worker in range(3)
    ]
    made, wrote = MadeGroup(), Counter[str]()
    for worker, writer in enumerate(writers):
        rows: list[TableRow] = [sample(partition) for partition in range(700)]
        made.join(f"m{worker}").round()
        assert made.last is not None
        assert made.last.plan is not None
        config = {"deploy": "grün", "app_version": "7"}
        rows += decision_rows(made.last.inputs, made.last.plan, at=AT + worker, config=config)
        recovery = {**json.loads(recovery_line(worker)), "started": AT, "ended": AT + 0.0009}
        rows.append(("recovery", {key: recovery[key] for key in recovery if key != "table"}))
        wrote.update(table for table, _ in rows)
        writer.put(lambda rows=rows: rows)
    for writer in writers:
        writer.close(60.0)
        assert writer.counts.dropped == writer.counts.failed == writer.counts.skipped == 0
    return f"kafka://{kafka.bootstrap}/{name}", wrote


@pytest.mark.parametrize("connector", ["spark", "python"])
def test_every_row_of_our_own_writer_is_accepted(
    spark: SparkSession, written: tuple[str, Counter[str]], connector: str
) -> None:
    """Both connectors read as many rows of each table as were written, and refuse none."""
    ledger, wrote = written
    parsed = read_ledger(spark, [ledger], connector=connector).persist()
    assert parsed.where("reason is not null").count() == 0
    assert {table: rows_of(parsed, table).count() for table in TABLES} == wrote
    [member] = {row["member_id"] for row in rows_of(parsed, "recovery").collect()}
    assert member == "m"


def test_every_row_of_our_own_writer_is_accepted_without_spark_too(
    written: tuple[str, Counter[str]],
) -> None:
    """The result is the same rows, none refused."""
    ledger, wrote = written
    refused = Refused()
    assert Counter(row.table for row in accepted_rows([ledger], refused)) == wrote
    assert refused.lines == 0


def test_connector_on_the_class_path_is_found(spark: SparkSession, topic: str) -> None:
    """By default the job uses Spark's own connector if its jars are on the path."""
    assert has_connector(spark)
    spans = plan_full_visit([topic], Period(), {}).spans
    plan = read_spans(spark, spans, connector="auto")._jdf.queryExecution().toString()
    assert "KafkaRelation" in plan, plan


def test_topic_that_is_not_there_is_an_error(spark: SparkSession, topic: str) -> None:
    """The error has the topic's name and comes without a timeout."""
    with pytest.raises(Exception, match="no topic 'nothing'"):
        read_ledger(spark, [topic.rpartition("/")[0] + "/nothing"], connector="python")


@pytest.mark.parametrize(
    "url", ["kafka://", "kafka://host:1", "kafka://host:1/", "kafka:///topic", "kafka://host:1/a/b"]
)
def test_url_of_a_topic_needs_both_parts(url: str) -> None:
    """Without a cluster or a topic the URL is an error."""
    with pytest.raises(ConfigError, match="is not kafka://"):
        split_sources([url])
