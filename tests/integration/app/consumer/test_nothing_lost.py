"""Records that stock Faust loses when the group changes, and that a repaired app does not lose.

Each test runs twice. ``stock`` asserts that the defect exists, and fails on the day Faust fixes it;
``repaired`` asserts the promise. Pauses in Faust's own steps force a rare order of events. A slower
broker or a busier loop produces the same order without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import faust
import pytest
from faust import Event
from faust.tables.recovery import Recovery
from faust.transport.drivers import aiokafka as driver
from faust.types.tuples import ConsumerMessage
from mode.utils.queues import FlowControlEvent

from faust_assigner import PartitionAssignor
from faust_assigner.app.consumer.fetching import FlowControl
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.table_manager import RecoveringTables
from tests.support.waiting import PATIENCE_S
from tests.support.workers.virtual import Worker, running

pytestmark = pytest.mark.timeout(150)
both = pytest.mark.parametrize(
    "repaired",
    [pytest.param(False, id="stock", marks=pytest.mark.slow), pytest.param(True, id="repaired")],
)


def patience_s(repaired: bool) -> float:
    """Seconds to wait for an event that a repaired worker reaches soon and stock never."""
    return PATIENCE_S if repaired else 1.0


def pause_around(target: Any, name: str, *, before: float = 0.0, after: float = 0.0) -> None:
    """Let ``target.name(...)`` begin ``before`` seconds late and return ``after`` seconds late."""
    original = getattr(target, name)

    async def slow(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(before)
        result = await original(*args, **kwargs)
        await asyncio.sleep(after)
        return result

    setattr(target, name, slow)


def seek_amid_a_batch(worker: Worker, handed_over: int, patience_s: float) -> None:
    """Make the seek fall between two orders of one batch; stock yields every 100 records."""
    consumer, seen = worker.app.consumer, []
    getmany, perform_seek = consumer.getmany, consumer.perform_seek

    async def slow(timeout: float) -> AsyncIterator[Any]:
        async for tp, message in getmany(timeout):
            await asyncio.sleep(0.005)
            seen.extend([message] * (tp == worker.source()))
            yield tp, message

    async def late() -> None:
        await worker.until(lambda: len(seen) >= handed_over, patience_s)
        await perform_seek()

    consumer.getmany, consumer.perform_seek = slow, late


@both
async def test_records_waiting_at_a_first_start_are_processed(repaired: bool) -> None:
    """If a table must be recovered and no offset is committed, stock skips some waiting records."""
    worker = Worker(repaired=repaired)
    worker.send_changelog(50)
    worker.send_orders(40)
    async with running(worker):
        pause_around(worker.app.consumer, "perform_seek", before=0.2)
        worker.delay_s = 0.05
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        worker.delay_s = 0.0
        assert (
            await worker.until(lambda: worker.offsets == list(range(40)), patience_s(repaired))
            == repaired
        )


@both
async def test_the_head_of_the_first_batch_after_a_recovery_is_processed(repaired: bool) -> None:
    """Stock clears the streams' queues after the seek has refilled them."""
    worker = Worker(repaired=repaired)
    worker.send_changelog(50)
    worker.send_orders(40)
    worker.logs.committed[worker.source()] = 5
    async with running(worker):
        pause_around(worker.app.consumer, "perform_seek", after=0.2)
        worker.delay_s = 0.05
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        worker.delay_s = 0.0
        assert (
            await worker.until(lambda: worker.offsets == list(range(5, 40)), patience_s(repaired))
            == repaired
        )


@both
async def test_a_generation_commits_what_it_processed(repaired: bool) -> None:
    """The skipped head leaves a gap; stock never commits past it in the whole generation."""
    worker = Worker(repaired=repaired, broker_commit_interval=0.05)
    worker.send_changelog(50)
    worker.send_orders(40)
    worker.logs.committed[worker.source()] = 5
    async with running(worker):
        pause_around(worker.app.consumer, "perform_seek", after=0.2)
        worker.delay_s = 0.05
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        worker.delay_s = 0.0
        worker.send_orders(60)
        assert await worker.until(lambda: 99 in worker.offsets)
        committed = await worker.until(
            lambda: worker.logs.committed[worker.source()] == 100, patience_s(repaired)
        )
        assert committed == repaired


@both
async def test_a_commit_never_passes_a_record_that_was_not_processed(repaired: bool) -> None:
    """If the seek falls inside a batch, stock takes the records it drops for a gap in the log."""
    for _ in range(1 if repaired else 3):  # stock's fetch is under way at the seek only sometimes
        if found := await is_record_passed_over(repaired):
            break
    assert found != repaired


async def is_record_passed_over(repaired: bool) -> bool:
    """Return whether a worker commits an offset beyond a record that it has not processed."""
    worker = Worker(partitions=2, repaired=repaired, broker_commit_interval=0.05)
    worker.send_changelog(5)
    worker.send_orders(5)
    worker.logs.committed[worker.source()] = 5
    async with running(worker):

        @worker.app.on_rebalance_complete.connect(weak=False)
        async def orders_arrive(*_: Any, **__: Any) -> None:
            await asyncio.sleep(1.2)  # earlier orders would fall into a fetch under way, see below
            worker.send_orders(55)

        seek_amid_a_batch(worker, handed_over=30, patience_s=1.0 if repaired else 10.0)
        worker.delay_s = 0.4
        await worker.rebalance([0], standbys=[1])
        assert await worker.until(lambda: worker.recovered)
        worker.delay_s = 0.0

        def passed_over() -> set[int]:
            return set(range(5, worker.logs.committed[worker.source()])) - set(worker.offsets)

        await worker.until(
            lambda: passed_over() or worker.logs.committed[worker.source()] == 60, 10.0
        )
        return bool(passed_over())


@both
async def test_a_fetch_under_way_takes_no_records_of_paused_partitions(repaired: bool) -> None:
    """When the last active partition pauses, stock's pending fetch drops all other records."""
    worker = Worker(repaired=repaired)
    worker.send_changelog(50)
    async with running(worker):

        @worker.app.on_rebalance_complete.connect(weak=False)
        async def orders_arrive(*_: Any, **__: Any) -> None:
            worker.send_orders(10)
            await asyncio.sleep(0.2)

        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        worker.send_orders(10)
        assert (
            await worker.until(lambda: worker.offsets == list(range(20)), patience_s(repaired))
            == repaired
        )


@both
@pytest.mark.parametrize("wait_empty", [True, False], ids=["wait for streams", "wait for nobody"])
async def test_the_final_commit_reaches_the_broker(repaired: bool, wait_empty: bool) -> None:
    """Stock drops acknowledged offsets before the commit; the next owner repeats the records."""
    worker = Worker(repaired=repaired, stream_wait_empty=wait_empty)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(20)
        assert await worker.until(lambda: len(worker.offsets) == 20)
        await worker.rebalance([])
        assert worker.logs.committed.get(worker.source()) == (20 if repaired else None)


@both
async def test_the_final_commit_follows_a_commit_under_way(repaired: bool) -> None:
    """A commit that the timer has started does not replace the final commit."""
    worker = Worker(repaired=repaired)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(10)
        assert await worker.until(lambda: len(worker.offsets) == 10)
        pause_around(worker.app.consumer, "_commit", before=0.2)
        by_timer = asyncio.create_task(worker.app.consumer.commit())
        await asyncio.sleep(0.05)
        worker.send_orders(10)
        assert await worker.until(lambda: len(worker.offsets) == 20)
        await worker.rebalance([])
        await by_timer
        assert worker.logs.committed[worker.source()] == (20 if repaired else 10)


@both
@pytest.mark.parametrize("last", ["undecodable", "transaction marker"])
async def test_recovery_ends_although_the_last_record_cannot_be_read(
    repaired: bool, last: str
) -> None:
    """Stock waits for the unreadable record until the worker ends."""
    worker = Worker(repaired=repaired)
    worker.send_changelog(50)
    if last == "undecodable":
        worker.logs.append(worker.changelog(), b"{no json", b"{no json")
    else:
        worker.logs.append_marker(worker.changelog())
    worker.send_orders(5)
    async with running(worker):
        await worker.rebalance([0])
        # Stock looks again after five idle seconds.
        ended = await worker.until(lambda: worker.recovered, PATIENCE_S if repaired else 6.0)
        assert ended == repaired
        assert (
            await worker.until(lambda: len(worker.offsets) == 5, patience_s(repaired)) == repaired
        )
        # Stock writes the records to the table once the recovery ends.
        assert len(worker.counts) == (55 if repaired else 0)


@both
async def test_a_standby_holds_every_changelog_record(repaired: bool) -> None:
    """Stock clears the changelog queue while a standby reads through it, so the copy has gaps."""
    worker = Worker(partitions=2, repaired=repaired)
    worker.send_changelog(5, partition=0)
    worker.send_changelog(300, partition=1)
    async with running(worker):
        worker.replay_delay_s = 0.004
        pause_around(worker.app.consumer, "perform_seek", before=1.2)
        await worker.rebalance([0], standbys=[1])
        assert await worker.until(lambda: worker.recovered)
        worker.send_changelog(1, partition=1)
        recovery = worker.app.tables.recovery
        assert await worker.until(lambda: recovery.standby_offsets[worker.changelog(1)] == 300)
        recovery.flush_buffers()
        assert (len(worker.counts) == 301) == repaired


@both
async def test_a_standby_writes_what_it_reads(repaired: bool) -> None:
    """Stock keeps up to 1,000 records per table in memory; a kill leaves the files far behind."""
    worker = Worker(partitions=2, repaired=repaired)
    worker.send_changelog(100, partition=1)
    async with running(worker):
        await worker.rebalance([0], standbys=[1])
        assert await worker.until(lambda: worker.recovered)
        recovery = worker.app.tables.recovery
        assert await worker.until(lambda: recovery.standby_offsets[worker.changelog(1)] == 99)
        assert (
            await worker.until(lambda: len(worker.counts) == 100, patience_s(repaired)) == repaired
        )


@both
async def test_a_standby_that_catches_up_does_not_stop_the_streams(repaired: bool) -> None:
    """Stock delivers every waiting standby record before it looks for the next order."""
    worker = Worker(partitions=2, repaired=repaired, stream_buffer_maxsize=20)
    worker.send_changelog(2000, partition=1)
    async with running(worker):
        worker.replay_delay_s = 0.002
        await worker.rebalance([0], standbys=[1])
        assert await worker.until(lambda: worker.recovered)
        read = worker.app.tables.recovery.standby_offsets
        assert await worker.until(lambda: (read[worker.changelog(1)] or 0) > 100)
        worker.send_orders(5)
        assert await worker.until(lambda: len(worker.offsets) == 5)
        assert (read[worker.changelog(1)] < 1500) == repaired


@pytest.mark.slow
@both
async def test_no_record_is_processed_before_its_table_is_restored(repaired: bool) -> None:
    """If a full buffer empties during a recovery, stock fetches the paused partition again."""
    worker = Worker(repaired=repaired, stream_wait_empty=False, stream_buffer_maxsize=10)
    async with running(worker):
        await worker.rebalance([0])
        worker.delay_s = 0.4
        worker.send_orders(30)
        assert await worker.until(lambda: worker.app.consumer._buffered_partitions)
        worker.send_changelog(400)
        worker.replay_delay_s = 0.002
        await worker.rebalance([0])
        worker.delay_s = 0.0
        assert await worker.until(lambda: worker.recovered)
        assert (worker.before_recovery == []) == repaired


@both
async def test_a_recovery_overtaken_by_a_rebalance_starts_no_flow(repaired: bool) -> None:
    """Stock resumes the flow between the final commit and the new assignment."""
    worker = Worker(repaired=repaired)
    async with running(worker):
        flowing: list[bool] = []

        @worker.app.on_partitions_revoked.connect(weak=False)
        async def watch(*_: Any, **__: Any) -> None:
            await asyncio.sleep(0.3)
            flowing.append(worker.app.consumer.flow_active)

        pause_around(worker.app.consumer, "perform_seek", before=0.2)
        await worker.rebalance([0])
        await asyncio.sleep(0.05)
        flowing.clear()
        await worker.rebalance([0])
        assert flowing == [not repaired]


@both
async def test_the_fetcher_does_not_oversleep_a_recovery(repaired: bool) -> None:
    """Stock sleeps for a second after an empty fetch, even if partitions are resumed meanwhile."""
    worker = Worker(repaired=repaired)
    worker.send_changelog(5)
    async with running(worker):
        sleeps: list[float] = []
        sleep = worker.app.consumer.sleep
        worker.app.consumer.sleep = lambda seconds: sleeps.append(seconds) or sleep(seconds)

        @worker.app.on_rebalance_complete.connect(weak=False)
        async def last_fetch_ends(*_: Any, **__: Any) -> None:
            await asyncio.sleep(1.2)

        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        assert (1 not in sleeps) == repaired


@both
async def test_a_changelog_record_of_no_table_of_ours_is_left_out(repaired: bool) -> None:
    """Stock warns of the unknown partition and applies the record to whichever table came last."""
    worker = Worker(partitions=2, repaired=repaired)
    worker.send_changelog(3)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        message = ConsumerMessage(
            *worker.changelog(1),
            offset=99,
            timestamp=0.0,
            timestamp_type=0,
            headers=None,
            key=b'"stray"',
            value=b"7",
            checksum=None,
            tp=worker.changelog(1),
            generation_id=worker.app.consumer_generation_id,
        )
        worker.app.tables.changelog_queue.force_put_nowait(
            Event(worker.app, "stray", 7, {}, message)
        )
        await asyncio.sleep(0.05)
        worker.app.tables.recovery.flush_buffers()
        assert ("stray" not in worker.counts) == repaired


@both
async def test_a_changelog_the_cluster_has_not_told_of_yet_ends_no_agent(repaired: bool) -> None:
    """Stock takes a new changelog for a topic with 0 partitions, and its agent fails."""
    worker = Worker(repaired=repaired)
    worker.send_orders(5)
    async with running(worker):
        snapshot = worker.app.consumer._thread._consumer._coordinator._metadata_snapshot
        snapshot |= {worker.source().topic: 1, worker.changelog().topic: 0}
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        assert (
            await worker.until(lambda: worker.offsets == list(range(5)), patience_s(repaired))
            == repaired
        )


FIRST_TOUCHES = {
    "settings": lambda app: app.conf,
    "table": lambda app: app.Table("counts", default=int),
    "agent": lambda app: app.agent()(lambda stream: stream),
    "topics": lambda app: app.topics.clear(),
    "flow control": lambda app: app.flow_control,
}
OURS = "faust_assigner:PartitionAssignor"
STOCK = "faust.assignor:PartitionAssignor"


def is_repaired(app: faust.App) -> bool:
    """Return whether the consumer, the tables and the flow control are the repaired classes."""
    return (
        isinstance(app.tables, RecoveringTables)
        and isinstance(app.tables.recovery, RecoveryLoop)
        and isinstance(app.consumer, RepairedConsumer)
        and isinstance(app.flow_control, FlowControl)
    )


@pytest.mark.parametrize("touch", FIRST_TOUCHES.values(), ids=FIRST_TOUCHES)
async def test_one_line_of_settings_repairs_the_app(touch: Any) -> None:
    """The repair does not depend on which part of the app reads the settings first."""
    app = faust.App("repaired", PartitionAssignor=OURS, web_enabled=False)
    touch(app)
    assert is_repaired(app)


async def test_other_apps_of_the_process_stay_as_they_are() -> None:
    """An app with the stock assignor keeps Faust's own classes beside an app with ours."""
    ours, stock = (
        faust.App(name, PartitionAssignor=name, web_enabled=False) for name in (OURS, STOCK)
    )
    assert is_repaired(ours)
    assert type(stock.consumer) is driver.Consumer
    assert type(stock.tables.recovery) is Recovery
    assert type(stock.flow_control) is FlowControlEvent


async def test_the_repairs_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAUST_ASSIGNER_REPAIRS=0 keeps Faust's own flow control, commits and recovery."""
    monkeypatch.setenv("FAUST_ASSIGNER_REPAIRS", "0")
    app = faust.App("unrepaired", PartitionAssignor=OURS, web_enabled=False)
    assert not isinstance(app.consumer, RepairedConsumer)
    assert type(app.flow_control) is FlowControlEvent


async def test_without_the_entry_point_a_warning_says_that_nothing_is_repaired(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Faust creates the assignor when the consumer starts, too late for the repair."""
    monkeypatch.setattr(faust.App, "_init_fixups", lambda self: [])
    app = faust.App("uninstalled", PartitionAssignor=OURS, web_enabled=False)
    assert not isinstance(app.consumer, RepairedConsumer)
    assert isinstance(app.assignor, PartitionAssignor)
    assert "install faust_assigner with pip" in caplog.text
