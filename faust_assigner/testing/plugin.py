"""A pytest plugin for app authors, which pytest loads without a line in ``conftest.py``.

The plugin imports only pytest until a test uses one of its fixtures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from faust_assigner.broker import EmbeddedBroker
    from faust_assigner.testing.apps import AppSource
    from faust_assigner.testing.fleet import Fleet, StartFleet
    from faust_assigner.testing.kafka import KafkaServer
    from faust_assigner.testing.virtual_broker import VirtualBroker


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A real Apache Kafka, which starts at its first use and stops after the last test.

    Use unique topic names, because all tests share this Kafka.
    """
    from faust_assigner.testing.kafka import kafka_server

    with kafka_server() as server:
        yield server


@pytest.fixture
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """A new embedded broker in memory; ``embedded_broker.bootstrap`` is its address."""
    from faust_assigner.broker import EmbeddedBroker

    with EmbeddedBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture
def virtual_broker() -> Iterator[VirtualBroker]:
    """An embedded broker whose time advances only by ``advance()``, with faults for single clients."""
    from faust_assigner.testing.virtual_broker import VirtualBroker

    with VirtualBroker() as broker:
        yield broker


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[StartFleet]:
    """``fleet("shop.app", workers=3)`` starts workers of an app on a separate embedded broker.

    Every fleet is stopped at the end of the test, also if the test fails or is interrupted.
    """
    from faust_assigner.settings.extras import needs

    with needs("faust"):
        from faust_assigner.testing.fleet import Fleet

    numbers = count()

    def start(app: AppSource, **options: Any) -> Fleet:
        one = Fleet(app, tmp_path / f"fleet-{next(numbers)}", **options)
        fleets.callback(one.close)
        one.start()
        return one

    with contextlib.ExitStack() as fleets:
        yield start
