"""An agent that fails in its worker: each record is handed to the agent once, and commits go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import pytest

from tests.support.workers.cooperative import CooperativeWorker, owning

#: A function that reads the records of a run: it yields lists of numbers.
Way = Callable[["Failing", Any], AsyncIterator[list[int]]]


class Failing(CooperativeWorker):
    """A worker whose agent fails at some numbers; ``way`` reads the records."""

    way: Way
    #: The numbers at which the body fails, and the numbers at which its filter fails.
    at: tuple[int, ...] = ()
    in_filter: tuple[int, ...] = ()

    def declare(self) -> None:
        """Prepare the lists of the numbers that the agent has read, by batch."""
        self.read: list[list[int]] = []
        self.woken_at = 0.0

    async def count(self, orders: Any) -> None:
        """Read all records; keep the iterator in a variable, as many apps do."""
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

    async def committed_after(self, count: int) -> int:
        """Send ``count`` numbers, wait until the agent has read the last, and return the committed offset."""
        for number in range(count):
            self.logs.append(self.source(), b'"key"', str(number).encode())
        assert await self.until(lambda: self.has_read(count - 1))
        assert await self.until(lambda: not list(self.app.consumer._unacked_messages))
        await self.app.consumer.commit()
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
    worker.way, worker.at = way, (4, 5, 11)
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
        for number in range(20):
            worker.logs.append(worker.source(), b'"key"', str(number).encode())
        assert await worker.until(lambda: worker.has_read(19))
        assert worker.numbers == list(range(20))
        (failed,) = (numbers for numbers in worker.read if 4 in numbers)
        await worker.app.consumer.commit()
        assert worker.logs.committed[worker.source()] <= failed[0]
        for message in list(worker.app.consumer._unacked_messages):
            worker.app.consumer.ack(message)  # so that the worker need not wait for them
