"""The tests in docs/how-to/broker.md, one per Python client, run as a reader would run them."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from tests.support.pages import ALL

PAGE = "docs/how-to/broker.md"
CLIENTS = ("aiokafka", "confluent_kafka", "faststream", "kafka_python")
BLOCKS = [block for block in ALL if block.page == PAGE and "\ndef test_" in block.text]


def test_the_guide_shows_a_test_of_each_client() -> None:
    """A client removed from the page must be removed from this list, too."""
    assert len(BLOCKS) == len(CLIENTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_guides_test_of_a_client_passes(client: str, embedded_broker: EmbeddedBroker) -> None:
    """The test writes a record to the embedded broker and reads it back."""
    (block,) = [block for block in BLOCKS if f"\ndef test_{client}_" in block.text]
    names: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    test(embedded_broker)
