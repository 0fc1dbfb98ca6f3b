"""The suites: what each needs installed, how its own documents say it is run, what its broker is set to.

Only what a client says to a broker with one listener is run: schema registries, sign-in and share groups are
other servers' and other features' business, and are left out by folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What every suite takes for granted; the rest are defaults.
SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}


@dataclass(frozen=True)
class Suite:
    """One suite of tests in pytest: ``folders`` of its checkout at ``revision``.

    ``environment`` and ``arguments`` are formatted with ``bootstrap``, ``host``, ``port`` and ``protocol``.
    """

    revision: str
    requirements: tuple[str, ...]
    folders: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    protocols: tuple[str, ...] = ("classic",)


SUITES: Mapping[str, Suite] = {
    "confluent": Suite(
        revision="confluentinc/confluent-kafka-python v2.15.0",
        requirements=(
            "confluent-kafka[avro,json,protobuf,schemaregistry]==2.15.0", "trivup", "pytest<9", "pytest-timeout",
            "pytest-asyncio",
        ),
        folders=("tests/integration/admin", "tests/integration/consumer", "tests/integration/producer"),
        environment={"BROKERS": "{bootstrap}", "TEST_CONSUMER_GROUP_PROTOCOL": "{protocol}"},
        protocols=("classic", "consumer"),
    ),
    "kafka-python": Suite(
        revision="dpkp/kafka-python 3.0.11",
        requirements=("kafka-python==3.0.11", "pytest<9", "pytest-timeout", "pytest-mock", "lz4", "python-snappy",
                      "zstandard", "crc32c"),
        folders=("test/integration",),
        environment={"KAFKA_URI": "kafka://{bootstrap}", "KAFKA_VERSION": "4.3.1"},
        settings={"num.partitions": "4"},
    ),
    "aiokafka": Suite(
        revision="aio-libs/aiokafka v0.14.0",
        requirements=("aiokafka==0.14.0", "cramjam", "docker", "pytest<10", "pytest-timeout", "pytest-mock",
                      "pytest-asyncio<2"),
        folders=("tests",),
        environment={"SUITE_BOOTSTRAP": "{bootstrap}"},
        arguments=("--docker-image", "kafka:4.3.1", "-p", "suite_aiokafka"),
        settings={"num.partitions": "2"},
    ),
}
