"""DescribeConfigs: Apache Kafka and the embedded broker say the same of every config that both have."""

from __future__ import annotations

import time
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import SETTINGS, KafkaServer
from tests.support.raw_client import RawClient

TOPIC, BROKER, GROUP = 2, 4, 32
Described = dict[str, tuple[Any, ...]]
HEARTBEATS = ("group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms")


def described(bootstrap: str, kind: int, name: str) -> Described:
    """Config name -> value, source, type, and the two flags."""
    with RawClient(bootstrap) as client:
        client.call(19, 5, topics=[{"name": "plain", "num_partitions": 1, "replication_factor": 1}])
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        end = time.monotonic() + 20
        while True:
            (result,) = client.call(32, 4, resources=[resource]).results
            if result.error_code == 0 or time.monotonic() > end:  # a fresh Kafka hears of topics late
                break
            time.sleep(0.1)
        assert result.error_code == 0
        return {
            c.name: (c.value, int(c.config_source), int(c.config_type), c.read_only, c.is_sensitive)
            for c in result.configs
        }


@pytest.mark.kafka
@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "plain"), (GROUP, "some-group")])
def test_configs_of_topics_and_groups_are_described_alike(kafka: KafkaServer, kind: int, name: str) -> None:
    """Values, where they come from, and types: what tools show, and what they leave out as a default."""
    with EmbeddedBroker(settings={name: int(SETTINGS[name]) for name in HEARTBEATS}) as broker:
        ours, theirs = described(broker.bootstrap, kind, name), described(kafka.bootstrap, kind, name)
    assert {n: (ours[n], theirs[n]) for n in ours.keys() & theirs.keys() if ours[n] != theirs[n]} == {}


@pytest.mark.kafka
def test_types_of_the_brokers_own_configs_are_kafkas(kafka: KafkaServer) -> None:
    """INT and LONG aside, since bounds may differ."""
    with EmbeddedBroker() as broker:
        ours, theirs = described(broker.bootstrap, BROKER, "1"), described(kafka.bootstrap, BROKER, "1")
    types = {n: (ours[n][2], theirs[n][2]) for n in ours.keys() & theirs.keys()}
    assert {n: pair for n, pair in types.items() if pair[0] != pair[1] and set(pair) != {3, 5}} == {}
