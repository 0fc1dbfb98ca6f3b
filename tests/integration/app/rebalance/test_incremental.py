"""Faust's part of a cooperative round, on logs in memory: flows, final commits and restores."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import faust
import pytest

from faust_assigner.app.rebalance.consumer_thread import ThreadListener
from tests.support.waiting import PATIENCE_S
from tests.support.workers.cooperative import CooperativeWorker, owning, worker_of
from tests.support.workers.virtual import running

pytestmark = pytest.mark.timeout(150)


async def test_kept_partitions_flow_while_others_come_and_go() -> None:
    """Their records are neither repeated nor skipped nor reordered."""
    async with worker_of([0, 1]) as worker:
        for given in ([0, 1, 2], [0, 2], [0, 3], [0]):
            worker.send_orders(20)
            await worker.give(given)
            worker.send_orders(20)
            assert await worker.until(
                lambda: len(worker.of(0)) == worker.logs.ends[worker.source()]
            )
        assert worker.of(0) == list(range(160))
        assert await worker.until(lambda: worker.at_rest)


async def test_what_goes_is_committed_up_to_its_last_processed_record() -> None:
    """No record is processed after the commit, and the next owner repeats none."""
    async with worker_of([0, 1]) as worker:
        worker.delay_s = 0.005
        worker.send_orders(60, partition=1)
        assert await worker.until(lambda: len(worker.of(1)) > 5)
        await worker.give([0])
        done = len(worker.of(1))
        assert worker.logs.committed[worker.source(1)] == done
        worker.delay_s = 0.0
        await asyncio.sleep(0.1)
        assert len(worker.of(1)) == done < 60, "what waited in queues is the next owner's"


class Hears(faust.Sensor):
    """A sensor that records the events of rounds."""

    def __init__(self, heard: list[Any]) -> None:
        super().__init__()
        self.heard = heard

    def on_rebalance_start(self, app: Any) -> Any:
        """Record the start of a round."""
        self.heard.append("start")
        return {"is": "state"}

    def on_rebalance_return(self, app: Any, state: Any) -> None:
        """Record that the round is answered."""
        assert state == {"is": "state"}
        self.heard.append("return")

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        """Record the end of the restore."""
        assert state == {"is": "state"}
        self.heard.append("end")


async def test_a_round_is_seen_by_sensors_and_its_partitions_by_handlers() -> None:
    """Handlers see revoked partitions after their commit; an empty round is reported, too."""
    heard = list[Any]()
    async with worker_of([0, 1]) as worker:
        app, source, log = worker.app, worker.source(1), worker.changelog(1)

        async def revoked(app: Any, tps: Any, **_: Any) -> None:
            heard.append(("revoked", tps, worker.logs.committed.get(source), app.rebalancing))

        app.on_partitions_revoked.connect(revoked)
        app.sensors.add(Hears(heard))
        worker.send_orders(4, partition=1)
        assert await worker.until(lambda: len(worker.of(1)) == 4)
        for given in ([0], [0], [0, 1]):
            await worker.give(given)
            assert await worker.until(lambda: not app.rebalancing)
        gone = ("revoked", {source, log}, 4, True)
        round_ = ["start", "return", "end"]
        assert heard == ["start", gone, "return", "end", *round_, *round_]


async def test_a_round_that_is_overtaken_by_another_is_seen_to_its_end() -> None:
    """An eager round ends it, too, so a gauge of rounds under way decreases again."""
    heard = list[Any]()
    async with worker_of([0]) as worker:
        worker.app.sensors.add(Hears(heard))
        worker.send_orders(1)
        for given in ([0, 1], [0, 2], [0, 3]):
            await worker.give(given)
        worker.app.consumer.rounds.begin()
        await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(
                ThreadListener(worker.app.consumer._thread).prepare_full_revocation(),
                worker.consumer.loop,
            )
        )
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: not worker.app.rebalancing)
        assert heard == ["start", "return", "end"] * 5


async def test_what_comes_back_goes_on_where_its_last_owner_stopped() -> None:
    """The worker starts at the committed offset, not at its own old position."""
    async with worker_of([0, 1]) as worker:
        worker.send_orders(10, partition=1)
        assert await worker.until(lambda: len(worker.of(1)) == 10)
        await worker.give([0])
        worker.send_orders(10, partition=1)
        worker.logs.committed[worker.source(1)] = 15  # another worker processed five
        await worker.give([0, 1])
        assert await worker.until(lambda: worker.of(1)[10:] == [15, 16, 17, 18, 19])


@pytest.mark.parametrize("eager", [False, True])
async def test_the_rows_in_memory_of_what_goes_are_dropped(eager: bool) -> None:
    """The next owner changes and deletes these rows; the rows of kept partitions stay."""
    async with worker_of([0, 1, 2]) as worker:
        for partition in range(3):
            worker.logs.append(worker.source(partition), f"from-{partition}".encode(), b"1")
        assert await worker.until(lambda: len(worker.counts) == 3)
        await (worker.rebalance([1]) if eager else worker.give([1]))
        assert await worker.until(lambda: worker.at_rest)
        assert list(worker.counts) == ["from-1"]


async def test_after_an_eager_round_without_partitions_nothing_is_restored() -> None:
    """The partitions of the previous round are no longer assigned."""
    async with worker_of([0]) as worker:
        await worker.rebalance([])
        assert await worker.until(lambda: worker.at_rest)
        assert worker.app.tables.recovery.active_tps == set()


async def test_the_databases_of_kept_partitions_are_not_opened_anew() -> None:
    """A second attempt closes the databases first, and agents write to kept partitions."""
    async with worker_of([0]) as worker:
        databases, opened = worker.app.tables.recovery.databases, set[Any]()
        open_each = databases._open_each
        databases._open_each = lambda tps: opened.update(tps) or open_each(tps)
        await worker.give([0, 1])
        assert await worker.until(lambda: worker.at_rest)
        assert opened == {worker.changelog(1)}


async def test_a_partition_without_a_commit_begins_at_the_beginning() -> None:
    """This holds the second time, too."""
    async with worker_of([0]) as worker:
        worker.send_orders(5, partition=2)
        await worker.give([0, 2])
        assert await worker.until(lambda: worker.of(2) == [0, 1, 2, 3, 4])


async def test_an_eager_round_after_cooperative_ones_loses_nothing() -> None:
    """The eager round gives up all partitions and starts them again."""
    async with worker_of([0, 1]) as worker:
        worker.send_orders(10)
        await worker.give([0, 2])
        worker.send_orders(10, partition=2)
        assert await worker.until(lambda: len(worker.of(2)) == 10 and len(worker.of(0)) == 10)
        await worker.rebalance([0, 2])
        worker.send_orders(10)
        assert await worker.until(lambda: worker.of(0) == list(range(20)))
        assert worker.of(2) == list(range(10))


async def test_a_silent_coordinator_stops_all_streams_and_the_next_round_resumes_them() -> None:
    """The worker processes no record in between."""
    async with worker_of([0]) as worker:
        worker.send_orders(5)
        assert await worker.until(lambda: len(worker.of(0)) == 5)
        consumer = worker.app.consumer
        consumer.incremental.stop_flow_now()
        await consumer.incremental.stand_still()
        assert consumer.fence.is_stale(monotonic()), "a change that is held would be waited for"
        worker.send_orders(5)
        await asyncio.sleep(0.2)
        assert len(worker.of(0)) == 5
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.of(0)[-1] == 9)


class InBatches(CooperativeWorker):
    """An agent that takes a hundred records at a time, without a time limit by default."""

    within: float | None = None

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for batch in orders.take_events(100, within=self.within):
            for event in batch:
                self.processed.append((event.message.partition, event.message.offset))


@pytest.mark.parametrize("within", [None, 3600.0])
@pytest.mark.parametrize("eager", [False, True])
async def test_a_batch_that_is_being_made_is_handed_out_when_its_partitions_go(
    within: float | None, eager: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The hand-over does not wait for a full batch: no record arrives before the round ends."""
    worker = InBatches(partitions=4, broker_rebalance_timeout=3600.0)
    worker.within = within
    async with owning(worker, [0, 1]):
        worker.send_orders(7, partition=1)
        assert await worker.until(lambda: len(worker.app.consumer._unacked_messages) == 7)
        await asyncio.sleep(0.5)
        assert worker.processed == [], "it has as long as it was given while nothing happens"
        await asyncio.wait_for(worker.rebalance([0]) if eager else worker.give([0]), PATIENCE_S)
        assert worker.of(1) == list(range(7))
        assert worker.logs.committed[worker.source(1)] == 7
        assert "the next owner processes these records again" not in caplog.text
        worker.send_orders(100)
        assert await worker.until(lambda: worker.of(0) == list(range(100)))


async def test_a_full_queue_lets_go_of_what_leaves() -> None:
    """A record that waits for room is not put into the queue after its partition was revoked."""
    async with worker_of([0, 1], stream_buffer_maxsize=4) as worker:
        worker.delay_s = 0.01
        worker.send_orders(40)
        worker.send_orders(40, partition=1)
        assert await worker.until(lambda: len(worker.of(1)) > 2)
        await worker.give([0])
        done = len(worker.of(1))
        worker.delay_s = 0.0
        assert await worker.until(lambda: worker.of(0) == list(range(40)))
        assert len(worker.of(1)) == done == worker.logs.committed[worker.source(1)]


class Concurrent(CooperativeWorker):
    """An agent with several records of a partition in progress at a time."""

    agent_options = {"concurrency": 3}  # noqa: RUF012


async def test_all_records_under_way_are_waited_for() -> None:
    """With concurrency several records are in progress."""
    worker = Concurrent(partitions=2)
    async with owning(worker, [0, 1]):
        worker.delay_s = 0.01
        worker.send_orders(30, partition=1)
        assert await worker.until(lambda: len(worker.of(1)) > 6)
        await worker.give([0])
        assert worker.logs.committed[worker.source(1)] == len(worker.of(1))


class Isolated(CooperativeWorker):
    """A worker with one actor per partition."""

    agent_options = {"isolated_partitions": True}  # noqa: RUF012


class Slow(CooperativeWorker):
    """A worker whose agent waits for ``may_end`` before it changes a row for partition 0."""

    def declare(self) -> None:
        """Make the event."""
        self.may_end = asyncio.Event()

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.processed.append((event.message.partition, event.message.offset))
            if event.message.partition == 0:
                await self.may_end.wait()
            self.counts[event.key] += 1


@pytest.mark.parametrize(("eager", "waits"), [(False, True), (False, False), (True, False)])
async def test_a_record_that_outlives_its_revocation_changes_no_table(
    eager: bool, waits: bool
) -> None:
    """Its change would follow the next owner's change; an eager round waits for it if it may."""
    worker = Slow(partitions=2, broker_rebalance_timeout=0.4, stream_wait_empty=waits)
    async with owning(worker, [0, 1]):
        worker.send_orders(1)
        assert await worker.until(lambda: len(worker.of(0)) == 1)
        await (worker.rebalance([1]) if eager else worker.give([1]))
        worker.logs.append(worker.changelog(0), b'"key-0"', b"9")
        worker.may_end.set()
        worker.send_orders(1, partition=1)
        assert await worker.until(lambda: worker.logs.ends[worker.changelog(1)] == 1)
        assert [record.value for record in worker.logs.records[worker.changelog(0)]] == [b"9"]


async def test_a_record_that_ends_while_its_partition_is_handed_over_is_not_committed() -> None:
    """Its change was refused, so the next owner must process the record again."""
    worker = Slow(partitions=2, broker_rebalance_timeout=0.4)
    async with owning(worker, [0, 1]):
        worker.send_orders(1)
        assert await worker.until(lambda: len(worker.of(0)) == 1)
        consumer = worker.app.consumer
        under_way = consumer.maybe_wait_for_commit_to_finish

        async def end_meanwhile() -> bool:
            if consumer.kept_back.given_up:
                worker.may_end.set()
                await asyncio.sleep(0.2)
            return bool(await under_way())

        consumer.maybe_wait_for_commit_to_finish = end_meanwhile
        await worker.give([1])
        assert worker.may_end.is_set()
        assert worker.source(0) not in worker.logs.committed


async def test_isolated_partitions_get_an_actor_when_they_come() -> None:
    """A revoked partition's actor ends; the actors of kept partitions continue."""
    worker = Isolated(partitions=3)
    async with running(worker):
        await worker.rebalance([0, 1])
        for given, there in (([0, 1], (0, 1)), ([0, 2], (0, 2)), ([0, 1, 2], (0, 1, 2))):
            await worker.give(given)
            expected = {p: len(worker.of(p)) + 4 for p in there}
            for partition in there:
                worker.send_orders(4, partition)
            assert await worker.until(lambda e=expected: {p: len(worker.of(p)) for p in e} == e)  # type: ignore[misc]
        assert worker.of(0) == list(range(12))
        assert worker.of(1) == list(range(8))


async def test_a_backlog_that_was_taken_over_does_not_hold_up_what_was_kept() -> None:
    """Records of kept partitions alternate with the backlog, although they arrive later."""
    async with worker_of([0]) as worker:
        worker.send_orders(400, partition=1)
        worker.delay_s = 0.002
        await worker.give([0, 1])
        assert await worker.until(lambda: len(worker.of(1)) > 20)
        worker.send_orders(5)
        assert await worker.until(lambda: len(worker.of(0)) == 5)
        assert len(worker.of(1)) < 300, "the backlog was worked off first"
