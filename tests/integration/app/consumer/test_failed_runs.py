"""An agent that fails in its worker: each record is handed to the agent once, and commits go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from time import monotonic
from typing import Any

import pytest
from faust.types import TP

from tests.support.waiting import PATIENCE_S, until
from tests.support.workers.cooperative import CooperativeWorker, owning

#: A function that reads the records of a run: it yields lists of numbers.
Way = Callable[["Failing", Any], AsyncIterator[list[int]]]


class Failing(CooperativeWorker):
    """A worker whose agent fails at some numbers; ``way`` reads the records."""

    way: Way
    #: The numbers at which the body fails, and the numbers at which its filter fails.
    at: tuple[int, ...] = ()
    in_filter: tuple[int, ...] = ()
    #: Seconds before a later run reads.
    late_s = 0.0

    def declare(self) -> None:
        """Prepare the lists of the numbers that the agent has read, by batch."""
        self.read: list[list[int]] = []
        self.woken_at = 0.0

    async def count(self, orders: Any) -> None:
        """Read all records; keep the iterator in a variable, as many apps do."""
        if self.read:
            await asyncio.sleep(self.late_s)  # the background reader must wait for the next run
        batches = self.way(self, orders)
        async for numbers in batches:
            self.read.append(numbers)
            for number in numbers:
                if number in self.at:
                    raise ValueError(number)

    def is_wanted(self, number: int) -> bool:
        """Fail at some numbers."""
        if number in self.in_filter:
            raise ValueError(number)
        return True

    @property
    def numbers(self) -> list[int]:
        """Return all numbers that the agent has read, in order."""
        return [number for numbers in self.read for number in numbers]

    def has_read(self, last: int) -> bool:
        """Return whether the agent has read the last number; begin each next run soon."""
        if monotonic() > self.woken_at + 0.03:  # two restarts within 0.01 s would end the worker
            self.woken_at = monotonic()
            (agent,) = self.app.agents.values()
            agent.supervisor.wakeup()  # otherwise it looks every five seconds
        return last in self.numbers

    def send(self, *numbers: int) -> None:
        """Send the numbers."""
        for number in numbers:
            self.logs.append(self.source(), b'"key"', str(number).encode())

    async def committed_after(self, count: int) -> int:
        """Send ``count`` numbers, wait until the agent has read the last, and return the committed offset."""
        self.send(*range(count))
        assert await self.until(lambda: self.has_read(count - 1))
        assert await self.until(lambda: not list(self.app.consumer._unacked_messages))
        await self.commit()
        return self.logs.committed[self.source()]


async def values(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
    """Read one by one."""
    reading = orders.filter(worker.is_wanted)
    async for number in reading:
        yield [number]


async def items(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
    """Read pairs."""
    reading = orders.filter(worker.is_wanted).items()
    async for _, number in reading:
        yield [number]


async def take(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
    """Read lists of values."""
    reading = orders.filter(worker.is_wanted).take(3, within=0.05)
    async for numbers in reading:
        yield numbers


async def take_events(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
    """Read lists of events."""
    reading = orders.filter(worker.is_wanted).take_events(3, within=0.05)
    async for events in reading:
        yield [event.value for event in events]


async def take_with_timestamp(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
    """Read lists of values of other types than dict."""
    reading = orders.filter(worker.is_wanted).take_with_timestamp(3, 0.05, "at")
    async for numbers in reading:
        yield numbers


WAYS: list[Way] = [values, items, take, take_events, take_with_timestamp]


@pytest.mark.parametrize("way", WAYS)
async def test_after_errors_of_the_agent_each_record_is_read_once_and_committed(way: Way) -> None:
    """Stock Faust loses the records that it reads before the next run of ``take``.

    It commits nothing after the failed record while the error keeps the iterator alive.
    """
    worker = Failing()
    worker.way, worker.at, worker.late_s = way, (4, 5, 11), 0.05
    async with owning(worker, [0]):
        assert await worker.committed_after(20) == 20
        assert worker.numbers == list(range(20))


@pytest.mark.parametrize("way", WAYS)
async def test_records_that_fail_in_a_filter_are_skipped_and_committed(way: Way) -> None:
    """Stock Faust never acknowledges them; after two in a row no commit passes them."""
    worker = Failing()
    worker.way, worker.in_filter = way, (4, 5, 11)
    async with owning(worker, [0]):
        assert await worker.committed_after(20) == 20
        assert worker.numbers == [number for number in range(20) if number not in (4, 5, 11)]


async def test_records_after_a_failed_batch_of_an_agent_that_acknowledges_by_itself_are_read() -> (
    None
):
    """The failed batch stays unacknowledged, so no commit passes it."""

    async def noack_take(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
        async for events in orders.noack_take(3, within=0.05):
            yield [event.value for event in events]
            for event in events:
                event.ack()

    worker = Failing()
    worker.way, worker.at = noack_take, (4,)
    async with owning(worker, [0]):
        worker.send(*range(20))
        assert await worker.until(lambda: worker.has_read(19))
        assert worker.numbers == list(range(20))
        (failed,) = (numbers for numbers in worker.read if 4 in numbers)
        await worker.commit()
        assert worker.logs.committed[worker.source()] <= failed[0]
        for message in list(worker.app.consumer._unacked_messages):
            worker.app.consumer.ack(message)  # so that the worker need not wait for them


async def test_a_run_that_fails_before_its_first_record_acknowledges_nothing_again() -> None:
    """Otherwise a commit would pass the record while a second agent still processes it."""

    class Shared(Failing):
        """A second agent stays in record 5."""

        runs = 0

        def __init__(self) -> None:
            super().__init__()
            self.released, self.seen = asyncio.Event(), list[int]()
            self.app.agent(self.orders)(self.keep)

        async def keep(self, orders: Any) -> None:
            """Read all records, and wait in record 5."""
            async for number in orders:
                self.seen.append(number)
                if number == 5:
                    await self.released.wait()

        def has_read(self, last: int) -> bool:
            if monotonic() > self.woken_at + 0.03:
                self.woken_at = monotonic()
                for agent in self.app.agents.values():
                    agent.supervisor.wakeup()
            return self.runs >= 3

    async def way(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
        assert isinstance(worker, Shared)
        worker.runs += 1
        if worker.runs == 2:
            raise ConnectionError("no database yet")
        async for numbers in values(worker, orders):
            yield numbers

    worker = Shared()
    worker.way, worker.in_filter = way, (5,)
    async with owning(worker, [0]):
        worker.send(*range(6))
        assert await worker.until(lambda: worker.has_read(5) and 5 in worker.seen)
        await asyncio.sleep(0.1)
        await worker.commit()
        assert worker.logs.committed[worker.source()] == 5
        worker.released.set()


async def test_a_record_that_fails_in_the_filter_while_the_agent_fails_is_acknowledged() -> None:
    """The reader is one record ahead of the failing batch; the next run does not know this record."""

    async def slow(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
        async for numbers in take(worker, orders):
            await asyncio.sleep(0.2)
            yield numbers

    worker = Failing()
    worker.way, worker.at, worker.in_filter = slow, (4,), (5,)
    async with owning(worker, [0]):
        worker.send(0, 1, 2, 3, 4)
        assert await worker.until(lambda: 2 in worker.numbers)
        worker.send(5)
        assert await worker.until(lambda: worker.has_read(4))
        assert await worker.until(lambda: not list(worker.app.consumer._unacked_messages))
        await worker.commit()
        assert worker.logs.committed[worker.source()] == 6


async def test_an_agent_that_calls_take_for_each_batch_gets_each_record_once() -> None:
    """After an error the second call comes before the reader's next record."""

    class OneByOne(Failing):
        """The first batch waits until the reader has collected more records."""

        def declare(self) -> None:
            super().declare()
            self.calls, self.has_batch, self.goes_on = 0, False, asyncio.Event()

    async def one_by_one(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
        assert isinstance(worker, OneByOne)
        while True:
            worker.calls += 1
            async for numbers in orders.take(5, within=0.1):
                worker.has_batch = True
                await worker.goes_on.wait()
                yield numbers
                break

    worker = OneByOne()
    worker.way, worker.at = one_by_one, (0,)
    async with owning(worker, [0]):
        worker.send(0)
        assert await worker.until(lambda: worker.has_batch)
        worker.send(1, 2)
        assert await worker.until(lambda: len(list(worker.app.consumer._unacked_messages)) == 3)
        worker.goes_on.set()
        assert await worker.until(lambda: worker.has_read(2) and worker.calls == 3)
        worker.send(*range(3, 20))
        assert await worker.until(lambda: worker.has_read(19))
        assert worker.numbers == list(range(20))


async def test_records_that_no_run_takes_hold_up_neither_a_rebalance_nor_the_stop() -> None:
    """The agent has left its loop; the reader of its batches has read on."""

    async def two(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
        batches = take(worker, orders)
        yield await anext(batches)
        yield await anext(batches)

    worker = Failing(broker_rebalance_timeout=3600.0)
    worker.way = two
    async with owning(worker, [0]):
        worker.send(*range(10))
        assert await worker.until(lambda: len(worker.read) == 2)
        assert await worker.until(lambda: len(list(worker.app.consumer._unacked_messages)) >= 3)
        async with asyncio.timeout(PATIENCE_S):
            await worker.rebalance([0])
        await worker.commit()
        assert worker.logs.committed[worker.source()] == len(worker.numbers)
        (stream,) = {
            actor.stream for agent in worker.app.agents.values() for actor in agent._actors
        }
        began = monotonic()
    assert monotonic() - began < 20
    await until(
        lambda: stream._ending is not None and stream._ending.done(), "the end of the stream"
    )


async def test_a_run_that_reads_single_records_after_take_fails_and_holds_up_nothing() -> None:
    """The background reader has a part of the records: both would wait for ever."""

    async def turns(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
        assert isinstance(worker, Turning)
        worker.runs += 1
        async for numbers in (values if worker.runs == 2 else take)(worker, orders):
            yield numbers

    class Turning(Failing):
        """The second run reads single records, all other runs read batches."""

        runs = 0

    worker = Turning()
    worker.way, worker.at = turns, (4,)
    async with owning(worker, [0]):
        assert await worker.committed_after(20) == 20
        assert worker.numbers == list(range(20))
        assert worker.runs == 3


@pytest.mark.parametrize("wanted_twice", [False, True])
async def test_a_filter_before_through_and_take_filters_after_an_error(wanted_twice: bool) -> None:
    """The next run's filter is added to the stream of ``through``, whose batches outlive the error."""

    async def through(worker: Failing, orders: Any) -> AsyncIterator[list[int]]:
        copied = orders.filter(lambda number: number % 3).through(worker.app.copies)
        if wanted_twice:
            copied = copied.filter(lambda number: number != 7)
        async for numbers in copied.take(3, within=0.05):
            yield numbers

    class Copying(Failing):
        """The topic of the copies belongs to this worker, too."""

        def roles(self, actives: Iterable[int], standbys: Iterable[int]) -> tuple[set[TP], set[TP]]:
            owned, copied = list(actives), super().roles(actives, standbys)
            return copied[0] | {TP("copies", partition) for partition in owned}, copied[1]

    worker = Copying()
    worker.app.copies = worker.app.topic("copies", key_type=str, value_type=int, partitions=1)
    worker.way, worker.at = through, (4, 10)
    async with owning(worker, [0]):
        assert await worker.committed_after(21) == 21
        await worker.app.consumer.commit()
        assert worker.logs.committed[TP("copies", 0)] == 21
        wanted = [n for n in range(21) if n % 3 and not (wanted_twice and n == 7)]
        assert worker.numbers == wanted
