"""An agent whose body raises an error: its next run reads on, whatever the agent has created."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.exceptions import ValueDecodeError

from faust_assigner.app.compose import repair
from tests.support.waiting import PATIENCE_S


def through(app: Any, stream: Any) -> Any:
    """Read the values after a second channel."""
    return stream.through(app.channel())


def twice(app: Any, stream: Any) -> Any:
    """Read the values after a third channel."""
    return stream.through(app.channel()).through(app.channel())


def plain(app: Any, stream: Any) -> Any:
    """Read the values from the agent's channel."""
    return stream


async def _ignore(error: BaseException) -> None: ...


WAYS = [plain, through, twice]


class Shop:
    """An app with an agent that reads numbers from a channel in memory and fails at some of them."""

    def __init__(self, folder: Path) -> None:
        self.app: Any = faust.App(
            "shop", web_enabled=False, datadir=str(folder), broker="kafka://127.0.0.1:1"
        )
        repair(self.app)
        self.app.consumer = SimpleNamespace(
            unacked=set(), _unacked_messages=set(), on_task_error=_ignore
        )
        self.app.flow_control.resume()
        self.read: list[int] = []
        #: The values that the agent's processors got.
        self.filtered: list[int] = []
        self.failing: set[int] = set()
        self.runs = 0

    @asynccontextmanager
    async def running(self, fun: Callable[[Any], Any], **options: Any) -> AsyncIterator[Any]:
        """Run an agent."""
        agent = self.app.agent(self.app.channel(), **options)(fun)
        await agent.start()
        try:
            yield agent
        finally:
            self.app._stopped.set()
            await agent.stop()
            for _ in range(5):
                await asyncio.sleep(0)

    async def pass_on(self, agent: Any, *numbers: int) -> None:
        """Send the numbers; wait until the agent has read the last number."""
        for number in numbers:
            await agent.channel.send(value=number)
        await self.wait_for(agent, numbers[-1])

    async def wait_for(self, agent: Any, number: int) -> None:
        """Wait until the agent has read the number, and for its next run."""
        async with asyncio.timeout(PATIENCE_S):
            while number not in self.read:
                await asyncio.sleep(0.001)
        agent.supervisor.wakeup()  # it starts a new run only at its next look, within five seconds
        await asyncio.sleep(0.01)

    def note(self, number: int) -> None:
        """Note a number that the agent has read; raise ValueError for some of them."""
        self.read.append(number)
        if number in self.failing:
            raise ValueError(number)

    def is_wanted(self, number: int) -> bool:
        """Filter the number 3, and note the others."""
        self.filtered.append(number)
        return number != 3


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """An app without a worker."""
    return Shop(tmp_path)


@pytest.mark.parametrize("yields", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_that_failed_reads_the_next_records_each_once(
    shop: Shop, way: Callable[[Any, Any], Any], yields: bool
) -> None:
    """In stock Faust an agent with ``through`` ends; a filter runs once more after each failure."""

    async def numbers(stream: Any) -> None:
        shop.runs += 1
        async for number in way(shop.app, stream.filter(shop.is_wanted)):
            shop.note(number)

    async def yielding(stream: Any) -> AsyncIterator[int]:
        shop.runs += 1
        async for number in way(shop.app, stream.filter(shop.is_wanted)):
            shop.note(number)
            yield number

    shop.failing = {1, 4}
    async with shop.running(yielding if yields else numbers) as agent:
        await shop.pass_on(agent, 0, 1, 2)
        await shop.pass_on(agent, 3, 4, 5)
        await shop.pass_on(agent, 6)
    assert shop.read == [0, 1, 2, 4, 5, 6]
    assert shop.filtered == [0, 1, 2, 3, 4, 5, 6]
    assert shop.runs == 3


async def test_the_source_is_read_on_after_a_record_that_cannot_be_decoded(shop: Shop) -> None:
    """The error ends the task that reads the source, and the agent's run; both begin again."""

    async def numbers(stream: Any) -> None:
        async for number in stream.through(shop.app.channel()):
            shop.note(number)

    async with shop.running(numbers) as agent:
        await shop.pass_on(agent, 0)
        source = next(iter(agent._actors)).stream.channel
        await source.throw(ValueDecodeError("not a number"))
        await asyncio.sleep(0.01)
        await shop.pass_on(agent, 1, 2)
    assert shop.read == [0, 1, 2]


async def test_the_next_run_of_an_agent_groups_by_its_own_key(shop: Shop) -> None:
    """The function of the failed run may need objects that this run has closed."""
    open_runs: set[int] = set()

    async def numbers(stream: Any) -> None:
        shop.runs += 1
        run = shop.runs

        def key(number: int) -> str:
            assert run in open_runs
            return str(number)

        open_runs.add(run)
        try:
            async for number in stream.group_by(key, name="g", topic=grouped):
                shop.note(number)
        finally:
            open_runs.discard(run)

    grouped, shop.failing = shop.app.channel(), {1}
    async with shop.running(numbers) as agent:
        await shop.pass_on(agent, 0, 1)
        await shop.pass_on(agent, 2)
    assert shop.read == [0, 1, 2]


async def test_a_failed_agent_leaves_its_source_in_the_middle_of_a_record(shop: Shop) -> None:
    """A record that is on its way to the second channel is neither lost nor sent twice."""
    second, hold, sent = shop.app.channel(), asyncio.Event(), list[int]()
    send = second.send

    async def slow(**options: Any) -> Any:
        if options["value"] == 2:
            await hold.wait()
        sent.append(options["value"])
        return await send(**options)

    second.send = slow

    async def numbers(stream: Any) -> None:
        shop.runs += 1
        async for number in stream.through(second):
            await asyncio.sleep(0.01)
            shop.note(number)

    shop.failing = {1}
    async with shop.running(numbers) as agent:
        for number in range(3):
            await agent.channel.send(value=number)
        await shop.wait_for(agent, 1)
        hold.set()
        await shop.pass_on(agent, 3)
    assert (sent, shop.read, shop.runs) == ([0, 1, 2, 3], [0, 1, 2, 3], 2)


async def test_a_stopping_app_ends_the_tasks_that_read_the_sources(shop: Shop) -> None:
    """Each stream of the chain has stopped, and no task of a stream is left."""
    streams: list[Any] = []

    async def numbers(stream: Any) -> None:
        streams.append(stream)
        for _ in range(2):
            streams.append(streams[-1].through(shop.app.channel()))
        async for number in streams[-1]:
            shop.note(number)

    async with shop.running(numbers) as agent:
        await shop.pass_on(agent, 0)
    assert [bool(stream._futures) for stream in streams] == [False] * 3


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_stops_at_once_after_an_error(
    shop: Shop, way: Callable[[Any, Any], Any]
) -> None:
    """The supervisor has not started the new run yet, but the run reads."""

    async def numbers(stream: Any) -> None:
        async for number in way(shop.app, stream):
            shop.note(number)

    shop.failing = {1}
    async with asyncio.timeout(PATIENCE_S) as limit, shop.running(numbers) as agent:
        for number in range(3):
            await agent.channel.send(value=number)
        while 2 not in shop.read:
            await asyncio.sleep(0.001)
    assert not limit.expired(), "Faust suppresses the cancellation by the limit"


async def test_runs_of_an_agent_that_fail_together_begin_again(shop: Shop) -> None:
    """In stock Faust the second restart within 10 ms ends the worker."""

    async def numbers(stream: Any) -> None:
        async for number in stream:
            shop.read.append(number)
            if number < 3:
                await all_have_one.wait()
                raise ConnectionError("the database is down")

    all_have_one = asyncio.Event()
    async with shop.running(numbers, concurrency=3) as agent:
        for number in range(3):
            await agent.channel.send(value=number)
        while len(shop.read) < 3:
            await asyncio.sleep(0.001)
        all_have_one.set()
        await shop.pass_on(agent, 3, 4)
        assert not agent.supervisor.crashed
        assert len({run.index for run in agent._runs}) == len(agent._runs) == 3
    assert shop.read == [0, 1, 2, 3, 4]


async def test_an_ended_run_is_freed_with_the_objects_of_its_failed_record(shop: Shop) -> None:
    """Stock Faust keeps each failed run, with the frames of its error, until the worker ends."""

    class Order:
        """An object that the agent creates for each record."""

    kept: list[weakref.ref[Order]] = []

    async def numbers(stream: Any) -> None:
        async for number in stream:
            order = Order()
            kept.append(weakref.ref(order))
            shop.note(number)

    shop.failing = {0, 1, 2}
    logging.disable()  # pytest keeps the log records, with the errors
    try:
        async with shop.running(numbers) as agent:
            for number in range(4):
                await shop.pass_on(agent, number)
            gc.collect()
            assert [order() is None for order in kept] == [True, True, True, False]
    finally:
        logging.disable(logging.NOTSET)


async def test_an_eager_rebalance_keeps_the_error_of_a_source(shop: Shop) -> None:
    """The agent processes a record meanwhile; without the error it would wait for ever."""
    busy, released = asyncio.Event(), asyncio.Event()

    async def numbers(stream: Any) -> None:
        async for number in stream.through(shop.app.channel()):
            if number == 0:
                busy.set()
                await released.wait()
            shop.note(number)

    async with shop.running(numbers) as agent:
        await agent.channel.send(value=0)
        await busy.wait()
        source = next(iter(agent._actors)).stream
        await source.channel.throw(ValueDecodeError("not a number"))
        await asyncio.sleep(0.01)
        shop.app.flow_control.suspend()
        shop.app.flow_control.clear()
        released.set()
        shop.app.flow_control.resume()
        await asyncio.sleep(0.01)
        await shop.pass_on(agent, 2, 3)
    assert shop.read == [0, 2, 3]
