"""DescribeConfigs: Apache Kafka and the embedded broker agree on every config that both have."""

from __future__ import annotations

import time
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import SETTINGS, KafkaServer
from tests.support.clients.raw_client import RawClient

TOPIC, BROKER, GROUP = 2, 4, 32
Described = dict[str, tuple[Any, ...]]
HEARTBEATS = ("group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms")


def described(bootstrap: str, kind: int, name: str) -> Described:
    """Return config name -> value, source, type, and the two flags."""
    with RawClient(bootstrap) as client:
        client.call(19, 5, topics=[{"name": "plain", "num_partitions": 1, "replication_factor": 1}])
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        end = time.monotonic() + 60
        while True:
            (result,) = client.call(32, 4, resources=[resource]).results
            if (
                result.error_code == 0 or time.monotonic() > end
            ):  # a fresh Kafka learns of topics late
                break
            time.sleep(0.1)
        assert result.error_code == 0
        return {
            c.name: (c.value, int(c.config_source), int(c.config_type), c.read_only, c.is_sensitive)
            for c in result.configs
        }


@pytest.mark.kafka
@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "plain"), (GROUP, "some-group")])
def test_configs_of_topics_and_groups_are_described_alike(
    kafka: KafkaServer, kind: int, name: str
) -> None:
    """Values, sources and types are equal, and so are the omitted defaults."""
    with EmbeddedBroker(settings={name: int(SETTINGS[name]) for name in HEARTBEATS}) as broker:
        ours, theirs = (
            described(broker.bootstrap, kind, name),
            described(kafka.bootstrap, kind, name),
        )
    assert {
        n: (ours[n], theirs[n]) for n in ours.keys() & theirs.keys() if ours[n] != theirs[n]
    } == {}


def altered(bootstrap: str) -> list[Any]:
    """Return the errors of requests that change configs, in both ways, and the final configs."""
    log: list[Any] = []
    with RawClient(bootstrap) as client:
        client.call(
            19, 5, topics=[{"name": "altered", "num_partitions": 1, "replication_factor": 1}]
        )
        end = time.monotonic() + 60
        set_one = {"name": "retention.ms", "value": "7000", "config_operation": 0}
        for key, version in ((33, 2), (44, 1)):
            for kind, name, changes in (
                (TOPIC, "altered", [set_one]),
                (TOPIC, "altered", [{**set_one, "value": "x"}]),
                (TOPIC, "altered", [{**set_one, "value": None}]),
                (TOPIC, "altered", [{**set_one, "value": "7_000"}]),
                (TOPIC, "altered", [{**set_one, "name": "preallocate", "value": "TRUE"}]),
                (TOPIC, "altered", [{**set_one, "name": "preallocate", "value": "yes"}]),
                (
                    TOPIC,
                    "altered",
                    [{**set_one, "name": "cleanup.policy", "value": "delete,delete"}],
                ),
                (
                    TOPIC,
                    "altered",
                    [{**set_one, "name": "min.cleanable.dirty.ratio", "value": "0_1"}],
                ),
                (TOPIC, "altered", [set_one, set_one]),
                (TOPIC, "altered", [{**set_one, "name": "no.such"}]),
                (TOPIC, "altered", [{**set_one, "name": "cleanup.policy", "value": ""}]),
                (TOPIC, "nowhere", [set_one]),
                (
                    GROUP,
                    "altered",
                    [{**set_one, "name": "consumer.session.timeout.ms", "value": "50000"}],
                ),
                (
                    GROUP,
                    "altered",
                    [{**set_one, "name": "consumer.session.timeout.ms", "value": "1"}],
                ),
                (
                    GROUP,
                    "altered",
                    [{**set_one, "name": "consumer.session.timeout.ms", "value": None}],
                ),
                (
                    GROUP,
                    "altered",
                    [{**set_one, "name": "consumer.session.timeout.ms", "value": "50_000"}],
                ),
                (GROUP, "altered", [{**set_one, "name": "no.such"}]),
            ):
                changes = [dict(c) for c in changes]
                if key == 33:
                    for change in changes:
                        del change["config_operation"]
                resource = {"resource_type": kind, "resource_name": name, "configs": changes}
                error = 3
                while error == 3 and (name == "altered" or not log) and time.monotonic() < end:
                    (answer,) = client.call(
                        key, version, resources=[resource], validate_only=False
                    ).responses
                    error = int(answer.error_code)
                log.append((key, kind, name, changes, error))
    for kind, source in ((TOPIC, 1), (GROUP, 8)):
        log.append(
            {n: c for n, c in described(bootstrap, kind, "altered").items() if c[1] == source}
        )
    return log


@pytest.mark.kafka
def test_configs_are_altered_alike(kafka: KafkaServer) -> None:
    """As a whole and one by one: the same errors and the same final configs."""
    with EmbeddedBroker() as broker:
        ours, theirs = altered(broker.bootstrap), altered(kafka.bootstrap)
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.kafka
def test_types_of_the_brokers_own_configs_are_kafkas(kafka: KafkaServer) -> None:
    """INT and LONG count as equal, since bounds may differ."""
    with EmbeddedBroker() as broker:
        ours, theirs = (
            described(broker.bootstrap, BROKER, "1"),
            described(kafka.bootstrap, BROKER, "1"),
        )
    types = {n: (ours[n][2], theirs[n][2]) for n in ours.keys() & theirs.keys()}
    assert {
        n: pair for n, pair in types.items() if pair[0] != pair[1] and set(pair) != {3, 5}
    } == {}
