"""Under exactly_once a cooperative round ends transactions of revoked partitions only."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest
from faust.exceptions import ProducerSendError
from faust.streams import _current_event

from tests.support.workers.cooperative import CooperativeWorker, owning
from tests.support.workers.passing_on import PassingOn, cluster  # noqa: F401


class Passing(CooperativeWorker, PassingOn):
    """A worker that passes orders on through cooperative rounds."""

    @property
    def producers(self) -> Mapping[str, Any]:
        """The transactions' producers, by transactional id."""
        found: Mapping[str, Any] = self.app.consumer.transactions.producer._transaction_producers
        return found

    def passed(self, partition: int) -> list[tuple[int, int]]:
        """Return (committed offset, number of passed-on orders) of each transaction of the partition."""
        return [
            (one.offset, sum(sent.topic == "passed-on" for sent in one.sent))
            for one in self.transactions
            if one.partition == partition
        ]


@pytest.mark.usefixtures("cluster")
async def test_a_round_ends_what_goes_and_begins_what_comes() -> None:
    """A kept partition keeps its producer and transaction; each order is passed on once."""
    worker = Passing(partitions=2)
    async with owning(worker, [0, 1]):
        worker.delay_s = 0.005
        for partition in (0, 1):
            worker.send_orders(30, partition)
        assert await worker.until(lambda: len(worker.of(0)) > 3 and len(worker.of(1)) > 3)
        kept, gone = (worker.producers[f"virtual-0-{partition}"] for partition in (0, 1))
        await worker.give([0])
        assert worker.producers == {"virtual-0-0": kept}
        assert gone.open is None
        assert kept.open is not None
        assert sum(count for _, count in worker.passed(1)) == len(worker.of(1))
        assert await worker.until(lambda: worker.of(0) == list(range(30)))
        await worker.give([0, 1])
        assert await worker.until(lambda: len(worker.of(1)) == 30)
        assert worker.producers["virtual-0-0"] is kept
        assert worker.producers["virtual-0-1"] is not gone
        await worker.give([])
        assert worker.producers == {}
        for partition in (0, 1):
            assert worker.passed(partition)[-1][0] == 30
            assert sum(count for _, count in worker.passed(partition)) == 30


@pytest.mark.usefixtures("cluster")
async def test_a_group_id_that_changes_early_touches_no_transaction_under_way() -> None:
    """The assignor knows the next round's groups while records of this round are processed."""
    worker = Passing(partitions=2)
    async with owning(worker, [0, 1]):
        worker.delay_s = 0.005
        worker.send_orders(30)
        assert await worker.until(lambda: len(worker.of(0)) > 3)
        worker.app.assignor.group_id = 7
        assert await worker.until(lambda: worker.of(0) == list(range(30)))
        await worker.commit()
        assert worker.producers.keys() == {"virtual-0-0", "virtual-0-1"}
        assert worker.passed(0)[-1][0] == 30
        assert sum(count for _, count in worker.passed(0)) == 30


@pytest.mark.usefixtures("cluster")
async def test_what_is_open_under_the_old_id_is_committed_before_the_new_one_begins() -> None:
    """A kept partition whose group is merged into another passes each order on once."""
    worker = Passing(partitions=2)
    async with owning(worker, [0, 1]):
        worker.delay_s = 0.005
        worker.send_orders(30)
        assert await worker.until(lambda: len(worker.of(0)) > 3)
        old, begun = dict(worker.producers), list[tuple[str, int]]()
        create = worker.app.producer._new_producer

        def noted(transactional_id: str) -> Any:
            begun.append((transactional_id, sum(one.open is not None for one in old.values())))
            return create(transactional_id=transactional_id)

        worker.app.producer._new_producer = noted
        worker.app.assignor.group_id = 7
        await worker.give([0, 1], torn=[0, 1])
        assert begun == [("virtual-7-0", 0), ("virtual-7-1", 0)], "an old one was still open"
        assert worker.producers.keys() == {"virtual-7-0", "virtual-7-1"}
        assert await worker.until(lambda: worker.of(0) == list(range(30)))
        await worker.commit()
        assert worker.passed(0)[-1][0] == 30
        assert sum(count for _, count in worker.passed(0)) == 30


@pytest.mark.usefixtures("cluster")
async def test_a_record_whose_partition_is_gone_sends_into_no_transaction() -> None:
    """The next owner repeats the record, so no transaction and no reader may see its sends."""
    worker = Passing(partitions=2)
    async with owning(worker, [0, 1]):
        await worker.give([1])
        event = Mock(app=worker.app, raises_refusals=False)
        event.message.tp, event.message.offset = worker.source(0), 1
        _current_event.set(weakref.ref(event))
        loose = len(worker.loose)
        transactions = worker.app.consumer.transactions
        refused = await transactions.send("passed-on", b"k", b"1", None, None, None)
        with pytest.raises(ProducerSendError, match="abandoned"):
            await refused
        _current_event.set(None)
        assert len(worker.loose) == loose


class SlowPassing(Passing):
    """A worker whose agent waits for ``may_end`` before it passes an order of partition 0 on."""

    def declare(self) -> None:
        """Make the topic and the event."""
        super().declare()
        self.may_end = asyncio.Event()

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.processed.append((event.message.partition, event.message.offset))
            if event.message.partition == 0:
                await self.may_end.wait()
            await self.passed_on.send(key=event.key, value=1)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("eager", [False, True])
async def test_a_record_whose_partition_came_back_sends_into_no_later_transaction(
    eager: bool,
) -> None:
    """The record is processed again; with the late send the order would be passed on twice."""
    worker = SlowPassing(partitions=2, broker_rebalance_timeout=0.4, stream_wait_empty=not eager)
    async with owning(worker, [0, 1]):
        worker.send_orders(1)
        assert await worker.until(lambda: len(worker.of(0)) == 1)
        for given in ([1], [0, 1]):
            await (worker.rebalance(given) if eager else worker.give(given))
        assert await worker.until(lambda: worker.at_rest)
        worker.may_end.set()
        assert await worker.until(lambda: worker.of(0) == [0, 0])
        assert await worker.until(lambda: not worker.app.consumer._unacked_messages)
        await worker.commit()
        assert worker.passed(0) == [(1, 1)]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("found_by", ["a commit", "a send"])
async def test_a_worker_whose_producer_was_fenced_joins_again(
    found_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker stays and commits nothing more; the open records are processed again."""
    worker = Passing(partitions=2)
    async with owning(worker, [0, 1]):
        worker.delay_s = 0.005
        worker.send_orders(30)
        worker.send_orders(30, 1)
        assert await worker.until(lambda: len(worker.of(0)) > 3 and len(worker.of(1)) > 3)
        asked = list[bool]()
        coordinator = worker.consumer._coordinator
        coordinator.request_rejoin = lambda: asked.append(True)
        worker.producers["virtual-0-1"].fenced = True
        if found_by == "a commit":
            worker.delay_s = 10.0
            assert not await worker.app.consumer.commit()
            worker.delay_s = 0.005
        assert await worker.until(lambda: asked == [True])
        committed = [worker.passed(p) for p in (0, 1)]
        await worker.commit()
        assert [worker.passed(p) for p in (0, 1)] == committed
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: {*worker.of(0)} == {*worker.of(1)} == {*range(30)})
        await worker.commit()
        for partition in (0, 1):
            assert worker.passed(partition)[-1][0] == 30
            assert sum(count for _, count in worker.passed(partition)) == 30
        assert worker.app.crash_reason is None
        assert caplog.text.count("The producer of virtual-0-1 was fenced") == 1


@pytest.mark.usefixtures("cluster")
async def test_a_gained_partition_flows_only_after_its_transaction_has_begun() -> None:
    """The last round's recovery is still running, and resumes each source without a restore."""
    worker = Passing(partitions=3)
    async with owning(worker, [0]):
        recovery, restored, began = worker.app.tables.recovery, asyncio.Event(), asyncio.Event()
        extents = recovery.actives._extents
        ends, create = extents.ends, worker.app.producer._new_producer

        async def late_ends(tps: Any) -> Any:
            await restored.wait()
            return await ends(tps)

        def late_producer(transactional_id: str) -> Any:
            producer = create(transactional_id=transactional_id)
            producer.start = began.wait
            return producer

        extents.ends = late_ends
        await worker.give([0, 1])
        worker.app.producer._new_producer = late_producer
        worker.send_orders(10, 2)
        giving = asyncio.create_task(worker.give([0, 1, 2]))
        assert await worker.until(
            lambda: worker.source(2) in worker.app.consumer._paused_partitions
        )
        restored.set()
        await asyncio.sleep(0.2)
        assert worker.source(2) in worker.app.consumer._paused_partitions
        began.set()
        await giving
        assert await worker.until(lambda: worker.of(2) == list(range(10)))
