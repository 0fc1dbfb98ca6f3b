"""A broker and a raw connection for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faust_assigner.broker import EmbeddedBroker
from tests.support.clients.raw_client import RawClient


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with a topic of two partitions."""
    with EmbeddedBroker() as running:
        running.call(lambda node: node.catalogue.create("t", 2, {}))
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    """A raw connection."""
    with RawClient(broker.bootstrap) as connected:
        yield connected
