"""A cluster that requires TLS and a password: every command logs in, or reports its failure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from faust_assigner.cli import main
from faust_assigner.pipeline.cluster import Cluster, client_properties, cluster_of
from faust_assigner.pipeline.ledgers.progress import news
from faust_assigner.pipeline.ledgers.sources import read_ledger, read_visit
from faust_assigner.pipeline.snapshots.run import take_snapshot
from faust_assigner.testing.kafka import KafkaServer, kafka_server
from faust_assigner.testing.kafka_security import SecuredListener
from tests.integration.spark.ledgers import SAMPLE

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    """A Kafka with two listeners: tests write to the open one, our commands use the secured one."""
    with kafka_server(with_secured=True) as server:
        yield server


@pytest.fixture
def secured(server: KafkaServer) -> SecuredListener:
    """The listener with TLS and SCRAM."""
    assert server.secured is not None
    return server.secured


@pytest.fixture(params=["pem", pytest.param("jks", marks=pytest.mark.slow)])
def config(request: pytest.FixtureRequest, secured: SecuredListener, tmp_path: Path) -> str:
    """A properties file in the format of Kafka's own tools."""
    return str(secured.write_properties(tmp_path / "client.properties", jks=request.param == "jks"))


@pytest.fixture(scope="module")
def topic(server: KafkaServer) -> str:
    """A topic with three samples of a ledger, each under its own key."""
    name = f"app-{uuid.uuid4().hex[:6]}-changelog"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(3):
        row = json.dumps({**SAMPLE, "partition": number, "ts": now}).encode()
        producer.produce(name, row, str(number).encode(), 0)
    assert producer.flush(30) == 0
    return name


def run(*arguments: str, **environment: str) -> Result:
    """Run ``faust-assigner``."""
    return CliRunner().invoke(main, arguments, env=environment)


def test_kafkas_own_tools_come_in_with_the_same_file(
    server: KafkaServer, config: str, topic: str
) -> None:
    """This proves that the file is a valid Kafka client configuration."""
    assert server.secured is not None
    told = server.tool(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        server.secured.bootstrap,
        "--command-config",
        config,
        "--list",
    )
    assert topic in told.split()


def test_snapshot_and_verify_come_in(config: str, topic: str, tmp_path: Path) -> None:
    """The file may contain ``bootstrap.servers``."""
    asked = ("--config", config, "--topic", topic, "--to", str(tmp_path / "s"))
    taken = run("snapshot", *asked, "--no-spark", "--json")
    assert taken.exit_code == 0, taken.output
    assert [each["keys"] for each in json.loads(taken.stdout)] == [3]
    verified = run("snapshot", *asked, "verify")
    assert (verified.exit_code, " ok" in verified.output) == (0, True), verified.output


def test_the_environment_says_it_too(secured: SecuredListener, topic: str, tmp_path: Path) -> None:
    """Variables have single properties or the file's name; a password needs no file."""
    variables = {
        "FAUST_ASSIGNER_KAFKA_BOOTSTRAP_SERVERS": secured.bootstrap,
        "FAUST_ASSIGNER_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "FAUST_ASSIGNER_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "FAUST_ASSIGNER_KAFKA_SASL_USERNAME": secured.user,
        "FAUST_ASSIGNER_KAFKA_SASL_PASSWORD": secured.password,
        "FAUST_ASSIGNER_KAFKA_SSL_TRUSTSTORE_CERTIFICATES": secured.certificate.read_text(),
    }
    asked = ("snapshot", "--topic", topic, "--to", str(tmp_path), "--no-spark")
    assert run(*asked, **variables).exit_code == 0
    path = secured.write_properties(tmp_path / "c.properties")
    assert run(*asked, FAUST_ASSIGNER_KAFKA_CONFIG=str(path)).exit_code == 0


def test_weights_are_published(config: str, tmp_path: Path) -> None:
    """The command creates the topic and writes to it."""
    sample = {**SAMPLE, "ts": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")}
    (tmp_path / "w.jsonl").write_text(json.dumps(sample) + "\n")
    done = run(
        "weights",
        "--ledger",
        str(tmp_path),
        "--config",
        config,
        "--topic",
        f"weights-{uuid.uuid4().hex[:6]}",
        "--no-spark",
        "--json",
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["records_published"] == 1


def test_who_may_not_come_in_is_told_and_need_not_try_again(
    secured: SecuredListener, topic: str, tmp_path: Path
) -> None:
    """A wrong password or an untrusted certificate: exit code 1, and no password in the output."""
    asked = ("snapshot", "--topic", topic, "--to", str(tmp_path / "s"), "--no-spark", "--config")
    wrong = replace(secured, password="not-the-one").write_properties(tmp_path / "wrong")
    refused = run(*asked, str(wrong))
    assert (refused.exit_code, "not-the-one" in refused.output) == (1, False), refused.output
    assert "authentication" in refused.output.lower()
    lines = [line for line in wrong.read_text().splitlines() if "truststore" not in line]
    wrong.write_text("\n".join(lines))
    untrusted = run(*asked, str(wrong))
    assert (untrusted.exit_code, "certificate" in untrusted.output.lower()) == (1, True), (
        untrusted.output
    )


@pytest.mark.parametrize("connector", ["spark", "python"])
def test_sparks_connector_and_ours_come_in(
    spark: SparkSession, config: str, topic: str, tmp_path: Path, connector: str
) -> None:
    """A snapshot, a whole ledger and its new lines; the cluster's text has no password."""
    properties = client_properties(config, {})
    cluster = cluster_of(None, properties)
    [manifest] = take_snapshot(
        cluster, topic, str(tmp_path / "s"), spark=spark, connector=connector
    )
    assert manifest.keys == 3
    url = f"kafka://{cluster.bootstrap}/{topic}"
    parsed = read_ledger(spark, [url], connector=connector, properties=properties)
    assert parsed.where("partition_sample is not null").count() == 3
    visited = read_visit(spark, news([url], {}, properties), connector=connector)
    assert visited.where("partition_sample is not null").count() == 3
    assert "password" not in repr(Cluster(cluster.bootstrap, properties))
