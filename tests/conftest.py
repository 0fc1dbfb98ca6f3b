"""Fixtures every test may use: one real Apache Kafka for the whole run, one embedded broker for a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faust_assigner.testing.kafka import KafkaServer, kafka_server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A real Apache Kafka, started at its first use and stopped after the last test; name topics apart."""
    with kafka_server() as server:
        yield server


@pytest.fixture
def embedded_broker() -> Iterator[object]:
    """A fresh embedded broker in memory."""
    from faust_assigner.broker import EmbeddedBroker

    with EmbeddedBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker
