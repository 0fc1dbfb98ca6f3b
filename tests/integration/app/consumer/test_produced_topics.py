"""A producer keeps the leaders of every topic it sends to; else ``flush()`` never returns."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import CoordinationType
from aiokafka.errors import InvalidGroupIdError as Refused
from aiokafka.errors import KafkaConnectionError, KafkaError

from faust_assigner.app.consumer.produced_topics import PAUSE_S
from faust_assigner.broker import EmbeddedBroker
from tests.support.faust_group import PartitionAssignor, make_app
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.timeout(150)

#: Seconds that a batch waits for more records; the send to the unknown topic happens meanwhile.
LINGER_S = 0.3


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with one topic; it creates other topics at the first request for them."""
    with EmbeddedBroker() as broker:
        broker.call(lambda node: node.catalogue.create("known", 1, {}))
        yield broker


def worker(broker: EmbeddedBroker, **options: Any) -> Any:
    """A repaired app with a consumer that is created and not started."""
    app = make_app(
        "http://w",
        assignor=PartitionAssignor,
        broker=f"kafka://{broker.bootstrap}",
        producer_linger=LINGER_S,
        **options,
    )
    app.finalize()
    assert app.consumer is not None
    return app


async def test_a_batch_outlives_the_first_send_to_an_unknown_topic(broker: EmbeddedBroker) -> None:
    """A changelog's last change and an agent's first output: ``flush()`` waits for both batches."""
    app = worker(broker)
    await app.producer.start()
    try:
        # Faust does the same after it has created a topic.
        await app.producer._producer.client.force_metadata_update()
        change = await app.producer.send("known", None, b"change", 0, None, None)
        await app.producer.send("unknown", None, b"output", None, None, None)
        await asyncio.wait_for(app.producer.flush(), PATIENCE_S)
        assert (await change).offset == 0
    finally:
        await abandon(app.producer._producer)
        app.producer._producer = None
        await app.producer.stop()


@pytest.mark.parametrize("kind", ["transactional", "in a thread of its own"])
async def test_every_kind_of_producer_asks_for_all_topics_it_sent_to(
    broker: EmbeddedBroker, kind: str
) -> None:
    """The test checks only the client: it begins no transaction."""
    app = worker(broker, producer_threaded=kind != "transactional")

    async def topics_known_after_two_sends() -> set[str]:
        if kind == "transactional":
            producer = app.producer._new_producer("transactional.id")
        else:
            producer = app.producer.threaded_producer._new_producer()
        try:
            await producer.client.bootstrap()
            await producer.client.force_metadata_update()
            for topic in ("known", "unknown"):
                await producer.client._wait_on_metadata(topic)
            return set(producer.client.cluster.topics())
        finally:
            await abandon(producer)

    threaded = app.producer.threaded_producer
    if threaded is None:
        assert await topics_known_after_two_sends() == {"known", "unknown"}
    else:
        found = await asyncio.to_thread(
            run_and_close, threaded.thread_loop, topics_known_after_two_sends()
        )
        assert found == {"known", "unknown"}


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_transactional_producer_outlives_a_connection_lost_at_a_lookup(
    broker: EmbeddedBroker, is_lost: bool
) -> None:
    """The broker restarts during the coordinator lookup; other errors still end the producer."""
    producer = worker(broker).producer._new_producer("transactional.id")
    client, error = producer.client, KafkaConnectionError("closed") if is_lost else Refused()
    answers: list[Any] = [error, 1]

    async def send(node: int, request: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, KafkaError):
            raise answer
        return SimpleNamespace(error_code=0, coordinator_id=answer)

    try:
        await client.bootstrap()
        client.send = send
        finding = producer._sender._find_coordinator(
            CoordinationType.TRANSACTION, "transactional.id"
        )
        if is_lost:
            assert await finding == 1
        else:
            with pytest.raises(KafkaError, match="InvalidGroupId"):
                await finding
    finally:
        await abandon(producer)


def run_and_close(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    """Run ``work`` in the loop of a thread that was never started and return its result."""
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def abandon(producer: Any) -> None:
    """Close ``producer`` without waiting for its batches."""
    producer._closed = True
    await producer._sender.close()
    await producer.client.close()


async def test_a_producer_without_a_leader_pauses_between_two_questions() -> None:
    """A batch for a partition without a leader, and no broker: only a few requests a second."""
    with EmbeddedBroker() as broker:
        broker.call(lambda node: node.catalogue.create("known", 1, {}))
        app = worker(broker)
        await app.producer.start()
        producer = app.producer._producer
        client, asked = producer.client, []
        await client.force_metadata_update()
    ask = client._get_conn
    client._get_conn = lambda *node, **options: asked.append(node) or ask(*node, **options)
    client.cluster.leader_for_partition = lambda partition: None
    try:
        await app.producer.send("known", None, b"change", 0, None, None)
        await asyncio.sleep(10 * PAUSE_S)
        assert len(asked) <= 50
        await until(lambda: len(asked) >= 2, "the next question")
    finally:
        await abandon(producer)
        app.producer._producer = None
        await app.producer.stop()
