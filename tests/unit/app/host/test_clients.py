"""Our fetcher and coordinator of a consumer get the options of aiokafka's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer import consumer as aiokafkas
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator

from faust_assigner.app.host.clients import options_of, replace_coordinator, replace_fetcher

#: Each option differs from aiokafka's default, so that a forgotten option shows.
SETTINGS: dict[str, Any] = {
    "group_id": "g",
    "group_instance_id": "g-1",
    "fetch_max_wait_ms": 77,
    "fetch_max_bytes": 1_234_567,
    "fetch_min_bytes": 3,
    "max_partition_fetch_bytes": 54_321,
    "retry_backoff_ms": 123,
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "auto_commit_interval_ms": 4_321,
    "check_crcs": False,
    "partition_assignment_strategy": ("ours",),
    "max_poll_interval_ms": 99_000,
    "rebalance_timeout_ms": 22_000,
    "session_timeout_ms": 11_000,
    "heartbeat_interval_ms": 2_000,
    "consumer_timeout_ms": 350,
    "exclude_internal_topics": False,
    "isolation_level": "read_committed",
    "key_deserializer": bytes.decode,
    "value_deserializer": bytes.upper,
    "client_rack": "r1",
}


class Made:
    """Keep aiokafka's options."""

    def __init__(self, client: Any, subscription: Any, **options: Any) -> None:
        self.options = options


@pytest.fixture
async def consumer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer without a broker, not started."""
    made = AIOKafkaConsumer(bootstrap_servers="127.0.0.1:1", **SETTINGS)

    async def bootstrap() -> None:
        """Ask no broker."""

    monkeypatch.setattr(made._client, "bootstrap", bootstrap)
    yield made
    made._closed = True


async def test_the_options_are_those_that_the_consumer_passes_itself(
    consumer: AIOKafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All options match, regardless of their attributes' names."""
    expected = {kind: options_of(consumer, kind) for kind in (Fetcher, GroupCoordinator)}
    monkeypatch.setattr(aiokafkas, "Fetcher", Made)
    monkeypatch.setattr(aiokafkas, "GroupCoordinator", Made)
    await consumer.start()
    made: dict[type, Any] = {Fetcher: consumer._fetcher, GroupCoordinator: consumer._coordinator}
    assert {kind: one.options for kind, one in made.items()} == expected
    assert len(expected[Fetcher]) > 10 < len(expected[GroupCoordinator])


async def test_the_former_parts_are_closed_and_see_no_metadata(consumer: AIOKafkaConsumer) -> None:
    """Else two coordinators would react to the same change of topics."""
    await consumer.start()
    former = consumer._fetcher, consumer._coordinator
    made = (
        await replace_fetcher(consumer, Fetcher),
        await replace_coordinator(consumer, GroupCoordinator),
    )
    assert (consumer._fetcher, consumer._coordinator) == made
    assert former[0].error_future.done()
    assert former[1]._coordination_task.done()
    assert consumer._client.cluster._listeners == {made[1]._handle_metadata_update}
    await asyncio.gather(made[0].close(), made[1].close())
