"""The suites: what each needs installed, how its own documents say it is run, what its broker is set to.

Only what a client says to a broker with one listener is run: schema registries, sign-in and share groups are
other servers' and other features' business, and are left out by folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What every suite takes for granted. None is the default, which our tests' brokers have changed otherwise:
#: some tests list the configs that differ from it. Clients do not log in, and ANONYMOUS may do everything, so
#: that tests of access lists have an authorizer.
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
    """One suite: ``folders`` of its checkout at ``revision``, run by ``runner``.

    That is pytest (with ``requirements``), go, librdkafka or tools. ``environment`` is formatted with
    ``bootstrap`` and ``protocol``.
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
        # One test starts a Kafka with sign-in of its own, which it downloads.
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
        # Without its tests of TLS and SASL, which start servers of their own.
        folders=(
            "test/integration/test_admin_integration.py",
            "test/integration/test_consumer_integration.py",
            "test/integration/test_producer_integration.py",
        ),
        # Its fixture wants a folder of Kafka's scripts even when it starts no Kafka.
        environment={
            "KAFKA_URI": "kafka://{bootstrap}",
            "KAFKA_VERSION": "4.3.1",
            "KAFKA_ROOT": ".",
        },
        # It assigns partitions to broker 0 by hand, which is what its own fixture calls its broker.
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
        # What speaks to a broker, without TLS and SASL. What a failed test leaves open is no neighbour's.
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
    # Its tests of groups run balancers of both protocols side by side: without and with transactions.
    "franz-go": Suite(
        revision="twmb/franz-go adb3a18abe14 (after v1.21.5)",
        folders=("./pkg/kgo",),
        runner="go",
        environment={"KGO_SEEDS": "{bootstrap}", "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"},
        arguments=("-run", "^(TestGroupETL|TestTxnEtl)$"),
        protocols=("both",),
    ),
    # Its tests that talk to a broker, by the names in expected/, the quick form of each. Left out: share
    # groups, those that start servers of their own, those of TLS, sign-in and several brokers.
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
    # Its steps are those of tests/suites/tools.py; nothing needs to be checked out.
    "tools": Suite(
        revision="Apache Kafka 4.3.1, its jars",
        folders=(),
        runner="tools",
        settings={"num.partitions": "4"},
        protocols=("classic", "consumer"),
    ),
}
