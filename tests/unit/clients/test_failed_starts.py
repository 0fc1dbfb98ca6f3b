"""Clients of Kafka whose start fails are closed: aiokafka would report them as unclosed."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from faust_assigner.clients.groups import _end_offsets
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers.topic_source import TopicSource, read_span
from faust_assigner.pipeline.weights import publish
from faust_assigner.testing.ports import free_port

AWAY = f"127.0.0.1:{free_port()}"
CONNECTION = {"bootstrap_servers": AWAY}


@pytest.mark.parametrize(
    "use",
    [
        lambda: asyncio.run(_end_offsets(CONNECTION, [TopicPartition("t", 0)])),
        lambda: asyncio.run(publish._read(CONNECTION, "t")),
        lambda: asyncio.run(publish._send(CONNECTION, "t", {"g": b"w"}, None)),
        lambda: list(read_span(TopicSource(Cluster(AWAY), "t"), 0, 0, 1)),
    ],
    ids=["groups describe", "published weights", "publish weights", "ledger in a topic"],
)
def test_a_client_whose_start_fails_is_closed(
    use: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    """Its command prints one line about the broker."""
    with pytest.raises(KafkaConnectionError):
        use()
    gc.collect()
    said = [one.message for one in caplog.records if one.levelno >= logging.ERROR]
    assert not [one for one in said if "Unclosed" in one]


async def test_a_producer_whose_start_fails_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic exists, and the broker ends between two connections."""

    class Admin:
        def __init__(self, **_: object) -> None: ...

        async def start(self) -> None: ...

        async def close(self) -> None: ...

        async def list_topics(self) -> list[str]:
            return ["t"]

    monkeypatch.setattr(publish, "AIOKafkaAdminClient", Admin)
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    with pytest.raises(KafkaConnectionError):
        await publish._send(CONNECTION, "t", {"g": b"w"}, None)
    gc.collect()
    assert said == []
