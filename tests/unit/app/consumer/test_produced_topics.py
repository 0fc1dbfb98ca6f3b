"""A producer's cluster requests: all its topics, pauses between them, coordinator look-ups."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from faust.transport.drivers import aiokafka as driver
from faust.types.tuples import FutureMessage, PendingMessage

from faust_assigner.app.consumer import produced_topics
from faust_assigner.app.consumer.produced_topics import install
from tests.support.waiting import PATIENCE_S


class Client:
    """Stand in for aiokafka's client: list ``calls``, return or raise ``answers`` in turn."""

    def __init__(self) -> None:
        self._topics = set[str]()
        self.calls, self.answers = list[Any](), list[Any]()

    async def _say(self, *call: Any) -> Any:
        self.calls.append(call)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _wait_on_metadata(self, topic: str) -> Any:
        assert topic in self._topics, "it is asked for before it is waited for"
        return await self._say("wait", topic)

    async def _metadata_update(self, *what: Any) -> Any:
        return await self._say("update", *what)

    async def coordinator_lookup(self, *whose: Any) -> Any:
        """Look up the coordinator."""
        return await self._say("lookup", *whose)


def made(producer: Any) -> Any:
    """Return the aiokafka client that Faust's ``producer`` creates."""
    return producer._new_producer("one", two=2).client


@pytest.fixture
def producer() -> Any:
    """Faust's producer, with a creator for the threaded producer."""
    faust = object.__new__(driver.Producer)
    faust._new_producer = lambda one, two: SimpleNamespace(client=Client(), given=(one, two))
    faust.threaded_producer = object.__new__(driver.ThreadedProducer)
    faust.threaded_producer._new_producer = faust._new_producer
    install(faust)
    return faust


async def test_each_topic_that_is_sent_to_is_asked_for_from_then_on(producer: Any) -> None:
    """Known topics stay in the request: aiokafka would drop them at the first unknown topic."""
    for creator in (producer, producer.threaded_producer):
        client = made(creator)
        client.answers = [{0, 1}, {2}]
        assert await client._wait_on_metadata("orders") == {0, 1}
        assert await client._wait_on_metadata("changelog") == {2}
        assert client._topics == {"orders", "changelog"}
        assert client.calls == [("wait", "orders"), ("wait", "changelog")]


def test_a_producer_without_a_thread_and_one_of_another_driver_are_left_alone() -> None:
    """The thread's creator is absent there, and a foreign driver has no client to wrap."""
    faust = object.__new__(driver.Producer)
    faust._new_producer = lambda: SimpleNamespace(client=Client())
    faust.threaded_producer = None
    install(faust)
    assert faust._new_producer().client._metadata_update.__class__.__name__ == "_WithPauses"
    install(other := SimpleNamespace(_new_producer=None))
    assert other._new_producer is None


@pytest.mark.parametrize("fails", [False, True])
async def test_a_pause_is_between_two_questions(
    producer: Any, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The pause runs from the end of a request to the next, after an answer or an error."""
    now, pauses = 100.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(round(seconds, 6))
        now += seconds

    monkeypatch.setattr(produced_topics, "monotonic", lambda: now)
    monkeypatch.setattr(produced_topics.asyncio, "sleep", sleep)
    client = made(producer)
    client.answers = [UnknownTopicOrPartitionError() if fails else False] * 4
    for elapsed_s in (0.0, 0.0, 0.04, 0.1):
        now += elapsed_s
        if fails:
            with pytest.raises(UnknownTopicOrPartitionError):
                await client._metadata_update("cluster", ["orders"])
        else:
            assert await client._metadata_update("cluster", ["orders"]) is False
    assert pauses == [0.1, 0.06]
    assert client.calls == [("update", "cluster", ["orders"])] * 4


@pytest.mark.parametrize(
    ("error", "asked_again"),
    [
        (KafkaConnectionError("lost"), True),
        (TimeoutError(), True),
        (TopicAuthorizationFailedError(), False),
        (ValueError("a bug"), False),
    ],
)
async def test_a_coordinator_is_looked_for_again_after_a_lost_connection(
    producer: Any, error: Exception, asked_again: bool
) -> None:
    """The look-up raises an error that makes aiokafka retry; unrelated errors stay as they are."""
    client = made(producer)
    client.answers = [3, error]
    assert await client.coordinator_lookup(1, "id") == 3
    with pytest.raises(NodeNotReadyError if asked_again else type(error)):
        await client.coordinator_lookup(1, "id")
    assert client.calls == [("lookup", 1, "id")] * 2


@pytest.mark.parametrize("outcome", ["arrived", "lost", "cancelled", "refused"])
async def test_a_message_of_the_producers_thread_ends_with_its_delivery(
    producer: Any, outcome: str
) -> None:
    """A commit waits for each table change; Faust's thread ends only a copy of the buffered message."""
    threaded, error = producer.threaded_producer, KafkaConnectionError("closed")
    quiet = SimpleNamespace(
        get_topic_name=lambda: "changelog", _on_published=lambda *args, **options: None
    )
    message = FutureMessage(PendingMessage(quiet, b"k", b"v", None, 0, None, None, None, None))

    async def send(**options: Any) -> asyncio.Future[str]:
        """Return the send's future, which ends a moment later as ``outcome`` says."""
        if outcome == "refused":
            raise error
        sent: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        ways = {
            "arrived": lambda: sent.set_result("metadata"),
            "lost": lambda: sent.set_exception(error),
            "cancelled": sent.cancel,
        }
        asyncio.get_running_loop().call_soon(ways[outcome])
        return sent

    async def publish() -> None:
        with suppress(KafkaConnectionError, asyncio.CancelledError):
            await (await threaded.publish_message(message))
        await asyncio.sleep(0)

    threaded._producer = SimpleNamespace(send=send)
    threaded.app = SimpleNamespace(
        sensors=SimpleNamespace(on_send_initiated=lambda *args, **options: None)
    )
    await asyncio.to_thread(asyncio.run, publish())
    await asyncio.wait({message}, timeout=PATIENCE_S)
    if outcome == "arrived":
        assert message.result() == "metadata"
    elif outcome == "cancelled":
        assert message.cancelled()
    else:
        assert message.exception() is error
