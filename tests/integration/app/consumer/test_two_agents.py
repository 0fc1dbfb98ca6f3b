"""Two agents of one topic, of which one is slower: its queued records hold up no rebalance and no stop."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from tests.support.workers.cooperative import CooperativeWorker, owning
from tests.support.workers.passing_on import PassingOn, cluster  # noqa: F401


class TwoSpeeds(CooperativeWorker):
    """Each agent keeps its last event in a variable, as Faust's iterators do, too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.fast, self.slow = list[int](), list[int]()
        #: The slow agent waits in each record until this event is set.
        self.goes_on = asyncio.Event()
        self.app.agent(self.orders, name="slow")(self.read_slowly)

    async def count(self, orders: Any) -> None:
        """Read all records at once."""
        async for event in orders.events():
            self.fast.append(event.value)

    async def read_slowly(self, orders: Any) -> None:
        """Stay in each record."""
        async for event in orders.events():
            self.slow.append(event.value)
            await self.goes_on.wait()

    async def lag(self) -> None:
        """Send ten records; the slow agent is in its first record, the other agent has ended all."""
        for number in range(10):
            self.logs.append(self.source(), b'"key"', str(number).encode())
        assert await self.until(lambda: len(self.fast) == 10 and len(self.slow) == 1)


@pytest.mark.parametrize("cooperative", [True, False])
async def test_records_that_only_the_slow_agent_has_not_begun_hold_up_no_revocation(
    cooperative: bool,
) -> None:
    """Faust drops the slow agent's queue, so no code would end these records; they are read again."""
    worker = TwoSpeeds(partitions=2)
    async with owning(worker, [0, 1]):
        await worker.lag()
        round_ = asyncio.ensure_future(
            worker.give([1]) if cooperative else worker.rebalance([0, 1])
        )
        await asyncio.sleep(0.1)
        assert not round_.done(), "the round waits for the record in progress"
        worker.goes_on.set()
        began = monotonic()
        done, _ = await asyncio.wait({round_}, timeout=60)
        assert done, "the revocation waits for records that no code ends"
        assert monotonic() - began < 20
        assert worker.logs.committed[worker.source()] == 1
        if cooperative:
            await worker.give([0, 1])
        assert await worker.until(lambda: set(worker.slow) == set(range(10)))
        assert worker.slow == list(range(10)), "the slow agent gets each record once"


async def test_the_stop_waits_for_the_record_in_progress_only() -> None:
    """The next worker reads the queued records."""
    worker = TwoSpeeds()
    async with owning(worker, [0]):
        await worker.lag()
        asyncio.get_running_loop().call_later(0.2, worker.goes_on.set)
    assert worker.logs.committed[worker.source()] == 1
    assert worker.slow == [0]


class PassingTwo(CooperativeWorker, PassingOn):
    """Under ``exactly_once``: one agent passes records on, the other agent is slow."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.goes_on, self.slow = asyncio.Event(), list[int]()
        self.app.agent(self.orders, name="slow")(self.read_slowly)

    async def read_slowly(self, orders: Any) -> None:
        """Stay in each record."""
        async for event in orders.events():
            self.slow.append(event.message.offset)
            await self.goes_on.wait()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("cooperative", [True, False])
async def test_exactly_once_the_outputs_of_such_records_are_repeated_with_them(
    cooperative: bool,
) -> None:
    """The transaction with outputs of the dropped records is aborted."""
    worker = PassingTwo(partitions=2)
    async with owning(worker, [0, 1]):
        worker.send_orders(10)
        assert await worker.until(lambda: len(worker.processed) == 10 and worker.slow == [0])
        await worker.app.consumer.commit()  # leaves the transaction open
        asyncio.get_running_loop().call_later(0.1, worker.goes_on.set)
        async with asyncio.timeout(60):
            await (worker.give([1]) if cooperative else worker.rebalance([0, 1]))
            if cooperative:
                await worker.give([0, 1])
        assert await worker.until(lambda: set(worker.slow) == set(range(10)), 60.0)
        assert await worker.until(lambda: not list(worker.app.consumer._unacked_messages), 60.0)
        await worker.app.consumer.commit()
        visible = [
            sent.key
            for one in worker.transactions
            for sent in one.sent
            if sent.topic == "passed-on"
        ]
        assert len(visible) == len(set(visible)) == 10, "each output is visible once"
