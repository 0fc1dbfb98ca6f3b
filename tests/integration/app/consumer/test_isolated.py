"""An agent with isolated partitions: errors, moves of partitions, and the topic's subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tests.support.workers.cooperative import CooperativeWorker, owning


class Isolated(CooperativeWorker):
    """A worker whose agent has a run for each partition, and fails at some numbers."""

    agent_options: ClassVar[dict[str, Any]] = {"isolated_partitions": True}

    def declare(self) -> None:
        """Prepare the numbers that the agent has read, by partition."""
        self.read: dict[int, list[int]] = {0: [], 1: []}
        self.failing: set[int] = set()
        self.fails_at_start = False
        self.runs = 0
        #: The numbers in whose processing the agent stays.
        self.slow: set[int] = set()

    async def count(self, orders: Any) -> None:
        """Read all records; each run must get the records of one partition."""
        self.runs += 1
        own: set[int] = set()
        if self.fails_at_start:
            self.fails_at_start = False
            raise ConnectionError("no database yet")
        async for event in orders.events():
            own.add(event.message.partition)
            assert len(own) == 1
            self.read[event.message.partition].append(event.value)
            if event.value in self.slow:
                await asyncio.sleep(60)
            if event.value in self.failing:
                self.failing.discard(event.value)
                raise ValueError(event.value)

    async def pass_on(self, partition: int, *numbers: int) -> None:
        """Send numbers to a partition; wait until the agent has read them."""
        for number in numbers:
            self.logs.append(self.source(partition), b'"key"', str(number).encode())
        assert await self.until(lambda: self.read[partition][-len(numbers) :] == [*numbers])

    async def subscribe_again(self) -> None:
        """Let Faust's conductor subscribe, as it does 45 s after a change of its channels."""
        await self.app.consumer.subscribe(await self.app.topics._update_indices())


Round = Callable[[Isolated, list[int]], Any]
EAGER_OR_NOT = pytest.mark.parametrize("rebalance", [Isolated.give, Isolated.rebalance])


@EAGER_OR_NOT
async def test_a_partition_is_read_after_an_error_a_rebalance_and_a_second_error(
    rebalance: Round,
) -> None:
    """In stock Faust a record of the partition whose run has failed ends the worker with KeyError."""
    worker = Isolated(partitions=2)
    async with owning(worker, [0, 1]):
        worker.failing = {1, 11}
        await worker.pass_on(0, 0, 1, 2)
        await rebalance(worker, [0, 1])
        await worker.pass_on(1, 10, 11, 12)
        await worker.subscribe_again()
        await worker.pass_on(0, 3)
        await worker.pass_on(1, 13)
        assert worker.read == {0: [0, 1, 2, 3], 1: [10, 11, 12, 13]}
        assert worker.runs == 4


@EAGER_OR_NOT
async def test_a_partition_that_goes_and_returns_has_a_new_run(rebalance: Round) -> None:
    """The former run has ended, although it had begun again after an error, and leaves nothing behind."""
    worker = Isolated(partitions=2)
    async with owning(worker, [0, 1]):
        (agent,) = worker.app.agents.values()
        worker.failing = {1}
        await worker.pass_on(0, 0, 1, 2)
        former = next(run for run in agent._runs if worker.source(0) in run.active_partitions)
        left = []
        for number in range(3, 6):
            await rebalance(worker, [1])
            assert await worker.until(former.actor_task.done)
            await rebalance(worker, [0, 1])
            await worker.pass_on(0, number)
            left.append((len(agent.supervisor._services), len(agent.beacon.children)))
        await worker.pass_on(1, 10)
        assert (worker.read, worker.runs) == ({0: [0, 1, 2, 3, 4, 5], 1: [10]}, 6)
        assert left == [left[0]] * 3


async def test_an_agent_without_partitions_keeps_its_topic() -> None:
    """In stock Faust the worker drops the topic 45 s later, and gets no partition of it any more."""
    worker = Isolated(partitions=2)
    async with owning(worker, [0]):
        worker.failing = {1}
        await worker.pass_on(0, 0, 1, 2)
        await worker.subscribe_again()
        assert "orders" in worker.consumer.subscription()
        await worker.give([])
        await worker.subscribe_again()
        assert "orders" in worker.consumer.subscription()
        await worker.give([0, 1])
        await worker.pass_on(0, 3)
        await worker.pass_on(1, 10)


async def test_an_agent_that_fails_before_its_first_partition_reads_it() -> None:
    """In stock Faust the first assignment ends the worker, because the agent has two runs."""
    worker = Isolated(partitions=2)
    worker.fails_at_start = True
    async with owning(worker, [0, 1]):
        await worker.pass_on(0, 0)
        await worker.pass_on(1, 10)


async def test_a_run_that_is_cancelled_because_its_partition_goes_does_not_begin_again() -> None:
    """The worker does not wait for the record; the new owner processes it again."""
    worker = Isolated(partitions=2, stream_wait_empty=False)
    worker.slow = {1}
    async with owning(worker, [0, 1]):
        await worker.pass_on(0, 0, 1)
        await worker.rebalance([1])
        (agent,) = worker.app.agents.values()
        agent.supervisor.wakeup()
        await worker.pass_on(1, 10)
        assert worker.runs == 2
        worker.slow.clear()
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: worker.read[0][-1] == 1)
        await worker.pass_on(0, 2)
