"""A pytest plugin for app authors: a real Kafka, the embedded broker, one whose clock and faults are yours.

pytest -p faust_assigner.testing.plugin          # or: pytest_plugins = ["faust_assigner.testing.plugin"]
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import KafkaServer, kafka_server
from faust_assigner.testing.virtual_broker import VirtualBroker


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A real Apache Kafka, started at its first use and stopped after the last test; name topics apart."""
    with kafka_server() as server:
        yield server


@pytest.fixture
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """A fresh embedded broker in memory; ``embedded_broker.bootstrap`` is where it listens."""
    with EmbeddedBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def virtual_broker() -> Iterator[VirtualBroker]:
    """An embedded broker whose time stands still until ``advance()``, and that has faults to order."""
    with VirtualBroker() as broker:
        yield broker
