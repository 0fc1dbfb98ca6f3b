"""The suites: their requirements, their documented command lines, and their broker's settings.

Only tests of a client against a broker with one listener are run. Tests of schema registries,
sign-in and share groups need other servers or features and are left out by folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The settings assumed by every suite. None restores Kafka's default where our tests' brokers
#: differ: some tests list the changed configs. Clients do not log in, and ANONYMOUS may do
#: everything, so the tests of access lists have an authorizer.
SETTINGS: Mapping[str, str | None] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": None,
    "group.consumer.min.heartbeat.interval.ms": None,
}


@dataclass(frozen=True)
class Suite:
    """A suite: ``folders`` of its checkout at ``revision``, run by ``runner``.

    The runner is pytest (with ``requirements``), go, librdkafka or tools. ``environment`` is
    formatted with ``bootstrap`` and ``protocol``.
    """

    revision: str
    folders: tuple[str, ...]
    runner: str = "pytest"
    requirements: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    protocols: tuple[str, ...] = ("classic",)


SUITES: Mapping[str, Suite] = {
    "confluent": Suite(
        revision="confluentinc/confluent-kafka-python v2.15.0",
        requirements=(
            "confluent-kafka[avro,json,protobuf,schemaregistry]==2.15.0",
            "trivup",
            "pytest<9",
            "pytest-timeout",
            "pytest-asyncio",
        ),
        folders=(
            "tests/integration/admin",
            "tests/integration/consumer",
            "tests/integration/producer",
        ),
        # The deselected test downloads and starts its own Kafka with sign-in.
        arguments=("--deselect", "tests/integration/admin/test_describe_operations.py"),
        environment={"BROKERS": "{bootstrap}", "TEST_CONSUMER_GROUP_PROTOCOL": "{protocol}"},
        protocols=("classic", "consumer"),
    ),
    "kafka-python": Suite(
        revision="dpkp/kafka-python 3.0.11",
        requirements=(
            "kafka-python==3.0.11",
            "pytest<9",
            "pytest-timeout",
            "pytest-mock",
            "lz4",
            "python-snappy",
            "zstandard",
            "crc32c",
        ),
        # The tests of TLS and SASL are left out: they start their own servers.
        folders=(
            "test/integration/test_admin_integration.py",
            "test/integration/test_consumer_integration.py",
            "test/integration/test_producer_integration.py",
        ),
        # The suite's fixture needs a folder of Kafka's scripts even if the fixture starts no Kafka.
        environment={
            "KAFKA_URI": "kafka://{bootstrap}",
            "KAFKA_VERSION": "4.3.1",
            "KAFKA_ROOT": ".",
        },
        # The suite assigns partitions to broker 0, the id in its own fixture.
        settings={"num.partitions": "4", "node.id": "0"},
    ),
    "aiokafka": Suite(
        revision="aio-libs/aiokafka v0.14.0",
        requirements=(
            "aiokafka==0.14.0",
            "cramjam",
            "docker",
            "pytest==9.0.2",
            "pytest-timeout",
            "pytest-mock",
            "pytest-asyncio==1.3.0",
            "pytest-cov",
        ),
        # Tests of broker requests, without TLS and SASL. A failed test's open resources do not
        # affect the next test.
        folders=tuple(
            f"tests/test_{what}.py"
            for what in (
                "admin",
                "client",
                "conn",
                "consumer",
                "coordinator",
                "fetcher",
                "pep492",
                "producer",
                "sender",
                "transactional_consumer",
                "transactional_producer",
            )
        ),
        environment={"SUITE_BOOTSTRAP": "{bootstrap}"},
        arguments=(
            "--docker-image",
            "kafka:4.3.1",
            "-p",
            "suite_aiokafka",
            "-m",
            "not ssl",
            "-W",
            "default::pytest.PytestUnraisableExceptionWarning",
        ),
        settings={"num.partitions": "2", "node.id": "0"},
    ),
    # The group tests run balancers of both protocols side by side, with and without transactions.
    "franz-go": Suite(
        revision="twmb/franz-go adb3a18abe14 (after v1.21.5)",
        folders=("./pkg/kgo",),
        runner="go",
        environment={"KGO_SEEDS": "{bootstrap}", "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"},
        arguments=("-run", "^(TestGroupETL|TestTxnEtl)$"),
        protocols=("both",),
    ),
    # The tests that use a broker, by the names in expected/, each in its quick form. Share groups,
    # TLS, sign-in, several brokers and tests with their own servers are left out.
    "librdkafka": Suite(
        revision="confluentinc/librdkafka v2.15.0",
        folders=(),
        runner="librdkafka",
        arguments=("-Q", "-L"),
        settings={"num.partitions": "4"},
        protocols=("classic", "consumer"),
    ),
    "librdkafka-noautocreate": Suite(
        revision="confluentinc/librdkafka v2.15.0",
        folders=(),
        runner="librdkafka",
        arguments=("-Q", "-L", "-s", "noautocreate"),
        settings={"num.partitions": "4", "auto.create.topics.enable": "false"},
        protocols=("classic", "consumer"),
    ),
    # The steps are in tests/suites/tools.py; no checkout is needed.
    "tools": Suite(
        revision="Apache Kafka 4.3.1, its jars",
        folders=(),
        runner="tools",
        settings={"num.partitions": "4"},
        protocols=("classic", "consumer"),
    ),
}
