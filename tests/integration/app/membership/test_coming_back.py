"""Partitions that return at once, or restart without a committed offset, on logs in memory."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.tables.files import keep_uncommitted
from tests.integration.app.rebalance.test_incremental import worker_of
from tests.support.workers.cooperative import CooperativeWorker, owning
from tests.support.workers.virtual import Worker, running

pytestmark = pytest.mark.timeout(150)


class Waiting(CooperativeWorker):
    """A worker whose agent waits at the first record of partition 0."""

    def __init__(self, **settings: Any) -> None:
        self.may_go = asyncio.Event()
        super().__init__(**settings)

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            if event.message.partition == 0:
                await self.may_go.wait()
            self.processed.append((event.message.partition, event.message.offset))


async def test_what_comes_back_while_a_batch_is_held_up_is_read_from_its_commit() -> None:
    """The rest of the old batch, fetched before the revocation, does not hide earlier records."""
    worker = Waiting(partitions=2, stream_buffer_maxsize=4)
    async with owning(worker, [0, 1]):
        worker.send_orders(20)
        worker.send_orders(20, partition=1)
        assert await worker.until(
            lambda: worker.source(0) in worker.app.consumer._buffered_partitions
        )
        await asyncio.sleep(0.1)
        await worker.give([0])
        await worker.give([0, 1])
        assert await worker.until(lambda: worker.at_rest)
        worker.may_go.set()
        assert await worker.until(lambda: worker.of(0) == list(range(20)))
        assert await worker.until(lambda: worker.of(1) == list(range(20))), worker.of(1)


async def test_a_client_without_a_group_gets_the_answers_to_what_it_asked() -> None:
    """A client-only app has no assignment, and its consumer still reads the reply topic."""
    async with worker_of([]) as worker:
        consumer, delivered = worker.app.consumer, list[Any]()

        async def deliver(message: Any) -> None:
            delivered.append(message)

        worker.app.client_only = True
        try:
            message = SimpleNamespace(tp=TP("replies", 0))
            await consumer._deliver(deliver, message)
        finally:
            worker.app.client_only = False
        assert delivered == [message]


class FullDisk(Worker):
    """A worker whose first table change fails, as with a full disk."""

    has_failed = False

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            if not self.has_failed:
                self.has_failed = True
                keep_uncommitted(self.app, event)
                self.app.tables.recovery.tables_failed("counts", OSError("no space"))
                raise OSError("no space")
            self.processed.append((event.message.partition, event.message.offset))


class FullDiskByState(FullDisk, CooperativeWorker):
    """The same worker in cooperative rounds."""


@pytest.mark.parametrize("worker_of_kind", [partial(FullDisk, repaired=True), FullDiskByState])
async def test_after_a_table_failed_at_its_first_records_they_are_read_again(
    worker_of_kind: Any,
) -> None:
    """No offset is committed yet, and all fetched records were dropped when the flow stopped."""
    worker = worker_of_kind(partitions=1)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        worker.send_orders(10)
        assert await worker.until(lambda: worker.has_failed)
        worker.send_orders(10)
        assert await worker.until(lambda: worker.offsets == list(range(20))), worker.offsets
