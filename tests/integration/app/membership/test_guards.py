"""Guards of a rebalance that a normal run rarely needs; each test forces its order of events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

import pytest
from faust import Event
from faust.types.tuples import ConsumerMessage

from faust_assigner.app.consumer.fetching import LIVE_BATCH
from tests.support.workers.virtual import Worker, running

pytestmark = pytest.mark.timeout(150)


@pytest.mark.parametrize("committed", [0, 5], ids=["nothing committed", "committed before"])
async def test_a_batch_that_arrives_while_the_flow_is_stopped_is_put_back_whole(
    committed: int,
) -> None:
    """Ten records arrive at once, in two cases: a committed offset may hide a missing seek."""
    worker = Worker(repaired=True)
    worker.send_orders(committed)
    if committed:
        worker.logs.committed[worker.source()] = committed
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        consumer = worker.app.consumer
        fetcher = consumer._thread._consumer._fetcher
        fetched, stopped, waiting = fetcher.fetched_records, list[int](), list[int]()

        async def stop_on_arrival(*args: Any, **kwargs: Any) -> Any:
            while waiting:
                # on the fetching thread, so that the records come at once
                worker.send_orders(waiting.pop())
            records = await fetched(*args, **kwargs)
            batch = records.get(worker.source(), ())
            if len(batch) == 10 and not stopped and consumer.flow_active:
                stopped.append(len(batch))
                consumer.stop_flow()
            return records

        fetcher.fetched_records = stop_on_arrival
        first = committed
        for round_ in range(2):
            stopped.clear()
            waiting.append(10)
            assert await worker.until(lambda: len(stopped) == 1)
            await asyncio.sleep(0.05)
            assert sorted(set(worker.offsets)) == list(range(first, committed + 10 * round_))
            consumer.resume_flow()
            assert len(stopped) == 1
            end = committed + 10 * (round_ + 1)
            # Stock has sought the committed offset by then: records may repeat, but none may be
            # missing.
            assert await worker.until(lambda end=end: {*range(first, end)} == {*worker.offsets}), (
                round_
            )


async def test_a_backlog_is_handed_over_in_parts() -> None:
    """Otherwise a record of another partition would wait until the whole backlog is processed."""
    worker = Worker(repaired=True, partitions=2)
    worker.send_orders(1_000)
    async with running(worker):
        getmany, batches = worker.app.consumer._getmany, list[int]()

        async def counted(**limits: Any) -> Any:
            found = await getmany(**limits)
            batches.append(len(found.get(worker.source(), ())))
            return found

        worker.app.consumer._getmany = counted
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: worker.offsets == list(range(1_000)))
        assert max(batches) <= LIVE_BATCH


async def test_a_recovery_waits_for_a_record_between_fetcher_and_queue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The position is past the record and the queue is empty; the record is not unreadable."""
    worker = Worker(repaired=True)
    worker.send_changelog(50)
    async with running(worker):
        getmany = worker.app.consumer.getmany

        async def slow(timeout: float) -> AsyncIterator[Any]:
            async for tp, message in getmany(timeout):
                if tp == worker.changelog() and message.offset == 49:
                    await asyncio.sleep(2.0)
                yield tp, message

        worker.app.consumer.getmany = slow
        with caplog.at_level(logging.ERROR):
            await worker.rebalance([0])
            assert await worker.until(lambda: worker.recovered)
        assert "no readable record" not in caplog.text
        assert len(worker.counts) == 50


async def test_a_recovery_waits_for_the_record_at_the_position(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The position equals the last offset, so that record is not fetched yet despite idle polls."""
    worker = Worker(repaired=True)
    worker.send_changelog(50)
    async with running(worker):
        consumer = worker.app.consumer._thread._consumer
        fetched, late = consumer._fetcher.fetched_records, asyncio.Event()

        async def without_the_last(*args: Any, **kwargs: Any) -> Any:
            records = await fetched(*args, **kwargs)
            log = worker.changelog()
            if not late.is_set() and consumer.positions.get(log, 0) > 49:
                consumer.positions[log] = 49
                records[log] = [record for record in records.get(log, ()) if record.offset < 49]
                if not records[log]:
                    del records[log]
                    await asyncio.sleep(0.01)
            return records

        consumer._fetcher.fetched_records = without_the_last
        with caplog.at_level(logging.ERROR):
            await worker.rebalance([0])
            await asyncio.sleep(2.5)
            assert not worker.recovered
            late.set()
            assert await worker.until(lambda: worker.recovered)
        assert "no readable record" not in caplog.text
        assert len(worker.counts) == 50


async def test_a_changelog_record_of_an_old_generation_is_left_out() -> None:
    """The old record would count as progress of the new generation."""
    worker = Worker(repaired=True)
    async with running(worker):
        for _ in range(2):
            old = worker.app.consumer_generation_id
            await worker.rebalance([0])
            assert await worker.until(lambda: worker.recovered)
            message = ConsumerMessage(
                *worker.changelog(),
                offset=99,
                timestamp=0.0,
                timestamp_type=0,
                headers=None,
                key=b'"old"',
                value=b"7",
                checksum=None,
                tp=worker.changelog(),
                generation_id=old,
            )
            worker.app.tables.changelog_queue.force_put_nowait(
                Event(worker.app, "old", 7, {}, message)
            )
            await asyncio.sleep(0.05)
            worker.app.tables.recovery.flush_buffers()
            assert "old" not in worker.counts


async def test_the_recovery_of_an_old_generation_resumes_nothing() -> None:
    """Its rebalance was replaced before tables learned of it; all stays paused for the next one."""
    worker = Worker(repaired=True)
    async with running(worker):
        consumer, recovery = worker.app.consumer, worker.app.tables.recovery
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        for _ in range(2):
            consumer.between_generations = True
            recovery.signal_recovery_start.clear()
            old = worker.app.consumer_generation_id - 1
            await recovery.on_rebalance({worker.source()}, set(), set(), generation_id=old)
            assert consumer.between_generations
            consumer.stop_flow()
            consumer.resume_flow()
            assert not consumer.flow_active


class TwoAtATime(Worker):
    """Two agents: a record may be done before its predecessor is done."""

    agent_options: ClassVar[Mapping[str, Any]] = {"concurrency": 2}

    def __init__(self, *, hole_at: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        self.hole_at, self.hole = hole_at, asyncio.Event()

    async def count(self, orders: Any) -> None:
        """Process orders; the order at ``hole_at`` takes until ``hole`` is set."""
        async for event in orders.events():
            if event.message.offset == self.hole_at:
                await self.hole.wait()
            self.processed.append((event.message.partition, event.message.offset))


@pytest.mark.parametrize(
    "repaired",
    [pytest.param(False, id="stock", marks=pytest.mark.slow), pytest.param(True, id="repaired")],
)
@pytest.mark.parametrize("committed", [0, 5], ids=["nothing committed", "committed before"])
async def test_a_commit_does_not_pass_the_record_under_way_before_those_done(
    repaired: bool, committed: int
) -> None:
    """Stock commits past the next record while it is being processed; a SIGKILL then loses it."""
    worker = TwoAtATime(repaired=repaired, hole_at=committed)
    worker.send_orders(committed)
    if committed:
        worker.logs.committed[worker.source()] = committed
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(10)
        assert await worker.until(lambda: len(worker.processed) == 9)
        await worker.commit()
        worker.hole.set()
        assert worker.logs.committed.get(worker.source(), 0) == (
            committed if repaired else committed + 10
        )
        assert await worker.until(lambda: len(worker.processed) == 10)
        await worker.commit()
        assert worker.logs.committed[worker.source()] == committed + 10


async def test_nothing_acknowledged_beyond_a_hole_outlives_its_generation() -> None:
    """A partition that returns restarts at the hole; records after the hole are repeated."""
    worker = TwoAtATime(repaired=True, stream_wait_empty=False)
    async with running(worker):
        consumer, tp = worker.app.consumer, worker.source()
        worker.send_orders(10)
        for _ in range(2):
            worker.hole.clear()
            await worker.rebalance([0])
            assert await worker.until(lambda: consumer._acked_index[tp] == set(range(1, 10)))
            consumer._gap[tp].addi(20, 30)
            await worker.rebalance([])
            books = (
                consumer._gap,
                consumer._acked,
                consumer._acked_index,
                consumer._read_offset,
                consumer._committed_offset,
            )
            assert [tp in book for book in books] == [False] * 5
            assert worker.logs.committed.get(tp, 0) == 0
            worker.hole.set()
            await asyncio.sleep(0.05)
            for book in books:  # entries left by the late end of the old record
                book.pop(tp, None)


async def test_no_pause_or_full_buffer_outlives_its_generation() -> None:
    """After a second rebalance no revoked partition is paused, active or buffered."""
    worker = Worker(partitions=2, repaired=True)
    async with running(worker):
        consumer = worker.app.consumer
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: worker.recovered)
        for kept in (0, 1):
            consumer._buffered_partitions |= {worker.source(0), worker.source(1)}
            await worker.rebalance([kept])
            assert await worker.until(lambda: worker.recovered)
            assert consumer._active_partitions == {worker.source(kept)}
            assert consumer._paused_partitions == {worker.changelog(kept)}
            assert not consumer._buffered_partitions
            assert not consumer.between_generations
