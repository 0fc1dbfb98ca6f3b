"""``exactly_once`` with batches, overlapping records, several apps and several generations.

``stock`` asserts the defect where Faust has it, ``repaired`` asserts the promise.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar

import faust
import pytest
from faust import Event
from faust.streams import _current_event

from faust_assigner.app.consumer import whole_records
from tests.support.waiting import PATIENCE_S
from tests.support.workers.passing_on import PassingOn
from tests.support.workers.passing_on import cluster as cluster
from tests.support.workers.virtual import running

pytestmark = [pytest.mark.timeout(150), pytest.mark.usefixtures("cluster")]
both = pytest.mark.parametrize(
    "repaired",
    [pytest.param(False, id="stock", marks=pytest.mark.slow), pytest.param(True, id="repaired")],
)


class Taking(PassingOn):
    """Pass on the records that the agent takes in batches."""

    def __init__(
        self, how: str, *, most: int = 5, within: float | None = 0.05, **settings: Any
    ) -> None:
        self.how, self.most, self.within = how, most, within
        self.batches: list[list[tuple[int, int]]] = []
        self.fails = False
        self.reading: Any = None
        super().__init__(**settings)

    async def count(self, orders: faust.StreamT[int]) -> None:
        """The agent; the offset of an order is its value, too."""
        self.reading = orders
        extra = ("time",) if self.how == "take_with_timestamp" else ()
        async for batch in getattr(orders, self.how)(self.most, self.within, *extra):
            values = [getattr(one, "value", one) for one in batch]
            self.batches.append([divmod(value, 1000) for value in values])
            for value in values:
                await self.passed_on.send(key=f"key-{value % 1000}", value=value)
                await asyncio.sleep(self.delay_s)
            if self.fails:
                self.fails = False
                raise RuntimeError("the agent fails")
            self.processed.extend(self.batches[-1])
            for one in batch if self.how == "noack_take" else ():
                one.ack()
                await asyncio.sleep(self.delay_s)

    def send_orders(self, count: int, partition: int = 0) -> None:
        """Send orders whose value encodes partition and offset."""
        for _ in range(count):
            offset = self.logs.ends[self.source(partition)]
            self.logs.append(
                self.source(partition),
                f"key-{offset}".encode(),
                str(partition * 1000 + offset).encode(),
            )


@both
@pytest.mark.parametrize("how", ["take", "take_events", "take_with_timestamp", "noack_take"])
async def test_what_a_batch_sends_is_in_the_transaction_that_commits_its_records(
    repaired: bool, how: str
) -> None:
    """Stock reads in the background, so the agent's sends belong to no record's transaction."""
    worker = Taking(how, repaired=repaired, partitions=2, broker_commit_interval=0.05)
    async with running(worker):
        worker.delay_s = 0.01
        await worker.rebalance([0, 1])
        for _ in range(5):
            worker.send_orders(7, 0)
            worker.send_orders(4, 1)
            await asyncio.sleep(0.1)
        assert await worker.until(lambda: len(worker.processed) == 55)
        if not repaired:
            assert len(worker.loose) == 55
            return
        assert await worker.until(
            lambda: [worker.logs.committed.get(worker.source(p)) for p in (0, 1)] == [35, 20]
        )
        assert worker.loose == []
        for partition in (0, 1):
            assert len(worker.of(partition)) > 1
            assert worker.sent_to("passed-on", partition) == worker.covered(partition)
        assert all(len({partition for partition, _ in batch}) == 1 for batch in worker.batches)
        assert max(map(len, worker.batches)) <= 5


async def test_a_batch_without_a_time_is_full() -> None:
    """Without a time limit a batch is handed out only when it is full."""
    worker = Taking("take", repaired=True, most=4, within=None)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(10)
        assert await worker.until(lambda: len(worker.processed) == 8)
        await asyncio.sleep(0.3)
        assert worker.batches == [[(0, o) for o in range(4)], [(0, o) for o in range(4, 8)]]


async def test_records_read_for_a_batch_outlive_an_agent_that_fails() -> None:
    """The next agent takes the remaining records; the failed batch counts as done, as in Faust."""
    worker = Taking("take", repaired=True, partitions=2)
    async with running(worker):
        worker.fails = True
        await worker.rebalance([0, 1])
        worker.send_orders(4, 0)
        worker.send_orders(3, 1)
        assert await worker.until(lambda: sum(map(len, worker.batches)) >= 7)
        assert sorted(pair for batch in worker.batches for pair in batch) == [
            (p, o) for p, count in ((0, 4), (1, 3)) for o in range(count)
        ]


async def test_a_table_changes_with_its_batch() -> None:
    """The change is in the same transaction; stock refuses it without a current event."""
    worker = Taking("take", repaired=True)
    worker.counts.use_partitioner = False
    async with running(worker):
        send = worker.passed_on.send

        async def change_and_send(*, key: str, value: int) -> Any:
            worker.counts[key] += 1
            return await send(key=key, value=value)

        worker.passed_on.send = change_and_send  # type: ignore[method-assign]
        await worker.rebalance([0])
        worker.send_orders(10)
        assert await worker.until(lambda: len(worker.processed) == 10)
        await worker.commit()
        assert worker.sent_to(worker.changelog().topic) == worker.covered() == [list(range(10))]


class TakingInATask(PassingOn):
    """A task of the app takes batches, too, from a stream that belongs to no agent."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(repaired=True, **settings)
        self.taken: list[int] = []
        self.stream = self.orders.stream()
        self.app.task(self.take)

    async def take(self) -> None:
        """The task."""
        async for numbers in self.stream.take(3, within=0.05):
            self.taken += numbers


async def test_a_task_without_an_agent_takes_batches() -> None:
    """Such a stream is read in the background by Faust's own task."""
    worker = TakingInATask()
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(5)
        assert await worker.until(lambda: len(worker.taken) == 5)
        assert await worker.until(lambda: len(worker.offsets) == 5)
        await worker.commit()
        assert worker.logs.committed[worker.source()] == 5


class FourAtATime(PassingOn):
    """Four records of a partition at a time, each of which is processed further after its send."""

    agent_options: ClassVar[Mapping[str, Any]] = {"concurrency": 4}

    async def count(self, orders: faust.StreamT[int]) -> None:
        """Count the orders; neighbouring records take different times to process."""
        async for event in orders.events():
            self.counts[event.key] += 1
            await self.passed_on.send(key=event.key, value=event.message.offset)
            await asyncio.sleep(self.delay_s * (1 + event.message.offset * 7 % 5 / 3.7))
            self.processed.append((event.message.partition, event.message.offset))


@pytest.mark.slow
async def test_a_commit_comes_while_records_flow_that_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records overlap all the time, so a commit must hold back new records for a moment."""
    monkeypatch.setattr(whole_records, "LONGEST_S", 1e9)
    worker = FourAtATime(repaired=True, broker_commit_interval=0.1)
    async with running(worker):
        worker.delay_s = 0.05
        await worker.rebalance([0])
        worker.send_orders(4)
        flowing = asyncio.create_task(keep_sending(worker, 196))
        assert await worker.until(lambda: len(worker.transactions) >= 3)
        assert not flowing.done()
        await flowing
        assert await worker.until(lambda: worker.logs.committed.get(worker.source()) == 200)
        assert [sorted(offsets) for offsets in worker.sent_to("passed-on")] == worker.covered()


@pytest.mark.slow
async def test_a_commit_follows_as_soon_as_the_records_are_done_that_held_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test requests one commit; the timer's next commit is a minute away."""
    monkeypatch.setattr(whole_records, "LONGEST_S", 1e9)
    monkeypatch.setattr(whole_records, "PATIENCE_S", 0.02)
    worker = FourAtATime(repaired=True)
    async with running(worker):
        worker.delay_s = 0.2
        await worker.rebalance([0])
        flowing = asyncio.create_task(keep_sending(worker, 60))
        assert await worker.until(lambda: len(worker.processed) >= 8)
        await worker.app.consumer.commit()
        assert worker.transactions == []
        assert await worker.until(lambda: len(worker.transactions) == 1)
        assert not flowing.done()
        await flowing
        assert [sorted(sent) for sent in worker.sent_to("passed-on")] == worker.covered()


async def keep_sending(worker: PassingOn, count: int) -> None:
    """Send ``count`` orders, so that some orders always wait."""
    for number in range(count):
        worker.send_orders(1)
        await worker.until(lambda: worker.logs.ends[worker.source()] - len(worker.processed) < 8)
        assert number < count


class Attaching(PassingOn):
    """Send and change no table; ``stream_publish_on_commit`` holds sends until the commit."""

    async def count(self, orders: faust.StreamT[int]) -> None:
        """The agent."""
        async for event in orders.events():
            await self.passed_on.send(key=event.key, value=event.message.offset)
            await asyncio.sleep(self.delay_s)
            self.processed.append((event.message.partition, event.message.offset))


@both
async def test_what_is_published_on_commit_is_in_that_transaction(repaired: bool) -> None:
    """Stock publishes outside the transaction, together with sends of the next record."""
    worker = Attaching(repaired=repaired, stream_publish_on_commit=True)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(10)
        assert await worker.until(lambda: len(worker.offsets) == 10)
        worker.delay_s = 0.5
        worker.send_orders(1)
        await asyncio.sleep(0.1)
        await worker.commit()
        assert len(worker.loose) == (0 if repaired else 11)
        assert (worker.sent_to("passed-on") == [list(range(10))]) == repaired


async def test_a_rebalance_of_one_app_leaves_the_transactions_of_another_open() -> None:
    """Faust's driver keeps the producers of all apps of a process in one dict."""
    workers = [PassingOn(repaired=True, stream_wait_empty=False) for _ in range(2)]
    first, second = workers
    shared: dict[str, Any] = {}
    for worker in workers:
        worker.app.transport.Producer._transaction_producers = shared
    async with running(first), running(second):
        for worker in workers:
            worker.delay_s = 1.0
            await worker.rebalance([0])
            worker.send_orders(1)
        opened = second.app.producer._transaction_producers
        assert await second.until(lambda: any(producer.open for producer in opened.values()))
        await first.rebalance([0])
        assert any(producer.open for producer in opened.values())


async def test_a_record_of_another_app_owns_nothing_here() -> None:
    """The record's transaction belongs to the other app; sends through this app go as in stock."""
    here, there = PassingOn(repaired=True), PassingOn(repaired=True)
    async with running(here), running(there):
        events: list[Event] = []
        await there.rebalance([0])
        await here.rebalance([0])
        there.delay_s = 0.5
        original = there.passed_on.send

        async def keep(**message: Any) -> Any:
            events.append(faust.current_event())
            return await original(**message)

        there.passed_on.send = keep  # type: ignore[method-assign]
        there.send_orders(1)
        assert await there.until(lambda: bool(events))
        token = _current_event.set(weakref.ref(events[0]))
        await here.passed_on.send(key="key-0", value=0)
        _current_event.reset(token)
        assert len(here.loose) == 1


async def test_nothing_of_a_generation_is_left_in_the_one_after_the_next() -> None:
    """Shares, holds, clocks and attachments; the first rebalance may clear them by luck."""
    worker = PassingOn(repaired=True, stream_wait_empty=False, stream_publish_on_commit=False)
    async with running(worker):
        worker.delay_s = 0.3
        consumer = worker.app.consumer
        own = consumer.transactions
        for round_ in range(2):
            await worker.rebalance([0])
            worker.send_orders(1)
            assert await worker.until(lambda: bool(own._shares))
            (transactional_id,) = own._shares
            own.held.hold(transactional_id)
            consumer.boundaries._late_since[transactional_id] = -100.0
            worker.app._attachments._pending[worker.source()] = [(10**9, None)]
            await worker.rebalance([0])
            left = (
                own._shares,
                own._closed,
                own.held._held,
                consumer.boundaries._late_since,
                worker.app._attachments._pending,
            )
            assert not any(left), f"round {round_}: {left}"


class TakingTwoAtATime(Taking):
    """Two agents make batches of one partition; records alternate between them."""

    agent_options: ClassVar[Mapping[str, Any]] = {"concurrency": 2}


async def test_a_commit_does_not_wait_until_a_batch_is_full() -> None:
    """One agent's batch is done; an earlier record waits in the other's, which never gets full."""
    worker = TakingTwoAtATime("take", repaired=True, most=3, within=None)
    async with running(worker):
        await worker.rebalance([0])
        for _ in range(5):
            worker.send_orders(1)
            await asyncio.sleep(0.02)
        assert await worker.until(lambda: len(worker.processed) == 3)
        assert len(worker.processed) == 3
        source = worker.source()
        async with asyncio.timeout(PATIENCE_S):
            while worker.logs.committed.get(source) != 5:
                await worker.commit()
                await asyncio.sleep(0.2)
        assert [sorted(sent) for sent in worker.sent_to("passed-on")] == worker.covered()


async def test_a_revocation_does_not_wait_until_a_batch_is_full() -> None:
    """The records of the unfinished batch are processed and committed before the revocation."""
    worker = Taking("take", repaired=True, most=100, within=None, broker_rebalance_timeout=3600.0)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(7)
        assert await worker.until(
            lambda: worker.reading is not None and len(worker.reading._buffer.filling) == 7
        )
        assert worker.processed == []
        given_away = asyncio.create_task(worker.rebalance([]))
        _, waiting = await asyncio.wait({given_away}, timeout=PATIENCE_S)
        if waiting:  # let the test end
            worker.reading._buffer.full.set()
        assert not waiting
        assert worker.logs.committed.get(worker.source()) == 7
        assert worker.sent_to("passed-on") == worker.covered() == [list(range(7))]


async def test_records_read_in_the_last_generation_are_in_no_batch_of_this_one() -> None:
    """The worker did not wait for its streams; the next owner reads those records again."""
    worker = Taking("take", repaired=True, most=3, within=None, stream_wait_empty=False)
    async with running(worker):
        worker.delay_s = 0.3
        await worker.rebalance([0])
        worker.send_orders(6)
        assert await worker.until(lambda: len(worker.batches) == 1)
        await asyncio.sleep(0.1)
        await worker.rebalance([])
        await asyncio.sleep(1.5)
        assert worker.batches == [[(0, 0), (0, 1), (0, 2)]]
