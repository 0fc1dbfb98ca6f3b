"""The replies to ``ask()``, ``map()`` and ``join()``: the channel that reads them, and late replies."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.agents.models import ReqRepResponse
from faust.agents.replies import ReplyConsumer

from faust_assigner.app.compose import repair
from faust_assigner.app.consumer.replies import read_replies_once


def app_in(folder: Path) -> Any:
    """Return a stock Faust app, not started."""
    return faust.App("shop", web_enabled=False, datadir=str(folder), broker="kafka://127.0.0.1:1")


@pytest.mark.parametrize("repaired", [False, True])
async def test_the_channel_of_replies_that_is_subscribed_is_the_one_that_is_read(
    tmp_path: Path, repaired: bool
) -> None:
    """Stock Faust subscribes with a second channel; its queue keeps each reply, unread."""
    app = app_in(tmp_path)
    if repaired:
        read_replies_once(app)
    orders = app.topic("orders")
    assert not orders.is_iterator, "other topics stay as Faust creates them"
    subscribed = ReplyConsumer(app)._reply_topic("replies")
    app.topics.add(subscribed)
    read = subscribed.stream().channel
    channels = {id(channel) for channel in app.topics if "replies" in channel.topics}
    assert channels == ({id(read)} if repaired else {id(subscribed), id(read)})
    assert (subscribed.get_topic_name(), subscribed.partitions, subscribed.deleting) == (
        "replies",
        1,
        True,
    )


class Asked:
    """An app with an agent whose requests are noted, and the reader of its replies."""

    def __init__(self, folder: Path, *, repaired: bool = True) -> None:
        self.app = app_in(folder)
        if repaired:
            repair(self.app)
        #: The correlation ids of all requests, in order.
        self.sent: list[str] = []
        self.arrived: asyncio.Queue[ReqRepResponse] = asyncio.Queue()

        @self.app.agent(self.app.topic("orders"))  # type: ignore[untyped-decorator]
        async def price(orders: Any) -> None: ...

        self.agent = price
        price.channel.send = self._send
        self.app.maybe_start_client = self._nothing
        self.replies = self.app._reply_consumer
        self.replies._fetchers["replies"] = None
        self.stream = self._take()
        self.reading = asyncio.ensure_future(
            self.replies._drain_replies(SimpleNamespace(stream=lambda: self.stream))
        )

    async def _send(self, *, headers: Any, force: bool, **_: object) -> None:
        assert force, "the caller waits for the reply"
        self.sent.append(dict(headers)["Faust-Ag-CorrelationId"].decode())

    async def _nothing(self) -> None: ...

    async def _take(self) -> Any:
        while True:
            yield await self.arrived.get()

    async def answer(self, *numbers: int) -> None:
        """Let the replies to these requests arrive; the value is the number of the request."""
        for number in numbers:
            self.arrived.put_nowait(ReqRepResponse("0", number, self.sent[number]))
        while not (self.arrived.empty() or self.reading.done()):
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def begin(self, request: Any, count: int) -> Any:
        """Start ``request`` and wait until it has sent ``count`` requests."""
        task = asyncio.ensure_future(request)
        while len(self.sent) < count:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    async def stop(self) -> None:
        """Stop the reader."""
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)
        await self.stream.aclose()


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    """A repaired app."""
    made = Asked(tmp_path)
    yield made
    assert not made.reading.done(), "the reader of replies goes on"
    await made.stop()


def requests(agent: Any, count: int) -> list[Any]:
    """Return a request of each kind with a single caller, for ``count`` values."""
    return [agent.join(range(count), reply_to="replies"), first_of(agent, count)]


async def first_of(agent: Any, count: int) -> list[Any]:
    """Return all replies in the order of their arrival."""
    return [value async for value in agent.map(range(count), reply_to="replies")]


async def test_stock_faust_ends_its_reader_after_a_cancelled_request(tmp_path: Path) -> None:
    """With the reader, the worker ends."""
    made = Asked(tmp_path, repaired=False)
    task = await made.begin(made.agent.ask(1, reply_to="replies"), 1)
    promise = task._fut_waiter
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await made.answer(0)
    assert isinstance(made.reading.exception(), asyncio.InvalidStateError)
    assert promise.cancelled()
    await made.stop()


async def test_a_reply_that_no_request_waits_for_is_dropped(asked: Asked) -> None:
    """The request was cancelled, or has its reply already; the caller may keep the promise."""
    late = await asked.begin(asked.agent.ask(1, reply_to="replies"), 1)
    promise = late._fut_waiter
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    found = await asked.begin(asked.agent.ask(2, reply_to="replies"), 2)
    await asked.answer(0, 1, 1)
    assert await found == 1
    assert promise.cancelled()


async def test_no_request_leaves_anything_behind(asked: Asked) -> None:
    """Stock Faust keeps a kilobyte for each reply."""
    for number in range(3):
        found = await asked.begin(asked.agent.ask(1, reply_to="replies"), number + 1)
        await asked.answer(number)
        assert await found == number
    del found
    gc.collect()
    assert len(asked.replies.promises) == 0
    assert set(asked.replies._waiting) <= {""}


@pytest.mark.parametrize("kind", [0, 1])
async def test_cancelled_requests_for_many_values_drop_their_replies(
    asked: Asked, kind: int
) -> None:
    """In stock Faust the last reply ends the reader."""
    request, other = requests(asked.agent, 2)[:: -1 if kind else 1]
    other.close()
    task = await asked.begin(request, 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asked.answer(0, 1)
    assert task.cancelled()


@pytest.mark.parametrize("kind", [0, 1])
async def test_more_than_a_thousand_values_are_no_error(asked: Asked, kind: int) -> None:
    """In stock Faust the reader ends with QueueFull."""
    request, other = requests(asked.agent, 1_500)[:: -1 if kind else 1]
    other.close()
    task = await asked.begin(request, 1_500)
    await asked.answer(*reversed(range(1_500)))
    assert await task == (list(reversed(range(1_500))) if kind else list(range(1_500)))


async def test_a_second_reply_counts_for_no_other_value(asked: Asked) -> None:
    """In stock Faust the result of the missing reply is None."""
    task = await asked.begin(asked.agent.join(range(2), reply_to="replies"), 2)
    await asked.answer(0, 0)
    assert not task.done()
    await asked.answer(1)
    assert await task == [0, 1]


async def test_map_yields_a_reply_while_it_still_sends(asked: Asked) -> None:
    """Its values may come without an end."""

    async def pairs() -> Any:
        for number in range(3):
            if number:
                await asked.answer(number - 1)
            yield None, number

    sending = pairs()
    replies = asked.agent.kvmap(sending, reply_to="replies")
    assert await anext(replies) == 0
    assert len(asked.sent) == 2
    await replies.aclose()
    await sending.aclose()


async def test_no_values_have_no_replies(asked: Asked) -> None:
    """Nothing is sent."""
    assert [await request for request in requests(asked.agent, 0)] == [[], []]
    assert asked.sent == []


async def test_cancelling_the_first_request_does_not_stop_the_start_of_the_reader(
    tmp_path: Path,
) -> None:
    """Stock Faust marks the topic as read before it has started the reader."""
    asked = Asked(tmp_path)
    replies, started = asked.replies, asyncio.Event()

    class Topic:
        """The topic of replies."""

        topics, maybe_declare = ("more",), asked._nothing

        def stream(self) -> Any:
            """Return a stream of the arriving replies."""
            asked.stream = asked._take()
            return asked.stream

    topic = Topic()
    replies._reply_topic = lambda name: topic

    async def sleep(seconds: float) -> None:
        await started.wait()

    replies.sleep, replies.add_future = sleep, asyncio.ensure_future
    early = await asked.begin(asked.agent.ask(1, reply_to="more"), 1)
    early.cancel()
    await asyncio.gather(early, return_exceptions=True)
    late = await asked.begin(asked.agent.ask(2, reply_to="more"), 2)
    asked.reading.cancel()  # otherwise the fixture's reader takes the reply
    await asyncio.gather(asked.reading, return_exceptions=True)
    started.set()
    await replies._starts["more"]
    assert topic in asked.app.topics
    asked.reading = replies._fetchers["more"]
    await asked.answer(1)
    async with asyncio.timeout(30.0):
        assert await late == 1
    await asked.stop()


class Price(faust.Record):  # type: ignore[misc]
    """The model of a reply, as this worker knows it."""

    cents: int


async def test_a_reply_whose_model_has_other_fields_is_an_error_of_its_request(
    asked: Asked,
) -> None:
    """The agent has an older version of the app; in stock Faust the reply ends the worker."""
    task = await asked.begin(asked.agent.ask(1, reply_to="replies"), 1)
    older = {"__faust": {"ns": Price._options.namespace}, "euros": 1}
    asked.arrived.put_nowait(ReqRepResponse("0", older, asked.sent[0]))
    with pytest.raises(TypeError, match="cents"):
        await task


async def test_a_reader_that_could_not_start_is_started_by_the_next_request(tmp_path: Path) -> None:
    """In stock Faust all later requests wait for a reader that does not exist."""
    asked = Asked(tmp_path)
    declared = list[int]()

    class Topic:
        """A topic of replies that can be declared at the second attempt."""

        topics = ("more",)

        async def maybe_declare(self) -> None:
            """Fail once."""
            declared.append(1)
            if len(declared) == 1:
                raise ConnectionError("no broker")

        def stream(self) -> Any:
            """Return a stream of the arriving replies."""
            return asked._take()

    asked.replies._reply_topic = lambda name: Topic()
    asked.replies.sleep = lambda seconds: asyncio.sleep(0)
    with pytest.raises(ConnectionError):
        await asked.agent.ask(1, reply_to="more")
    late = await asked.begin(asked.agent.ask(2, reply_to="more"), 2)
    await asked.replies._starts["more"]
    assert len(declared) == 2
    late.cancel()
    reader = asked.replies._fetchers["more"]
    reader.cancel()
    await asyncio.gather(late, reader, return_exceptions=True)
    await asked.stop()
