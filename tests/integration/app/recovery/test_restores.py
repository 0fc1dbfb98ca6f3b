"""Tables through cooperative rounds, on logs in memory: restored, followed and read again."""

from __future__ import annotations

import asyncio
from asyncio import Event
from typing import Any

import pytest

from tests.support.workers.cooperative import CooperativeWorker, worker_of
from tests.support.workers.virtual import running

pytestmark = pytest.mark.timeout(150)


async def test_kept_partitions_flow_while_a_cold_one_is_restored() -> None:
    """The restore takes long; the cold partition waits only for its own table."""
    async with worker_of([0]) as worker:
        worker.replay_delay_s = 0.01
        worker.send_changelog(60, partition=1)
        worker.send_orders(5, partition=1)
        worker.send_orders(5, partition=2)
        await worker.give([0, 1, 2])
        worker.send_orders(20)
        assert await worker.until(
            lambda: len(worker.of(0)) == 20 and worker.of(2) == [0, 1, 2, 3, 4]
        )
        assert worker.of(1) == [], "its table is not restored yet"
        assert await worker.until(lambda: worker.of(1) == [0, 1, 2, 3, 4])
        assert worker.counts["old-59"] == 7


async def test_at_a_first_start_a_stream_waits_for_its_own_table_only() -> None:
    """A cold partition does not stop a worker's warm partitions, in eager rounds either."""
    worker = CooperativeWorker(partitions=2)
    async with running(worker):
        worker.replay_delay_s = 0.01
        worker.send_changelog(80, partition=1)
        for partition in (0, 1):
            worker.send_orders(5, partition)
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: worker.of(0) == [0, 1, 2, 3, 4])
        assert worker.of(1) == []
        assert not worker.recovered, "whoever waits for all tables still waits"
        assert await worker.until(lambda: worker.of(1) == [0, 1, 2, 3, 4])
        assert await worker.until(lambda: worker.recovered)


async def test_at_a_first_start_a_changelog_without_a_leader_stops_its_own_number_only() -> None:
    """Its table is restored as soon as a broker with a replica is back."""
    worker = CooperativeWorker(partitions=2)
    async with running(worker):
        worker.consumer.leaderless = {worker.changelog(1)}
        worker.send_changelog(8, partition=1)
        for partition in (0, 1):
            worker.send_orders(5, partition)
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: worker.of(0) == [0, 1, 2, 3, 4])
        assert worker.of(1) == []
        worker.consumer.leaderless.clear()
        assert await worker.until(lambda: worker.of(1) == [0, 1, 2, 3, 4])
        assert worker.counts["old-7"] == 7


async def test_a_round_within_a_recovery_begins_only_what_is_not_done() -> None:
    """Restored partitions flow on; the others are restored from their last offset."""
    async with worker_of([0]) as worker:
        worker.replay_delay_s = 0.01
        worker.send_changelog(60, partition=1)
        await worker.give([0, 1])
        await asyncio.sleep(0.1)
        await worker.give([0, 1, 2])
        worker.send_orders(10)
        worker.send_orders(3, partition=1)
        assert await worker.until(lambda: len(worker.of(0)) == 10)
        assert await worker.until(lambda: worker.of(1) == [0, 1, 2])
        assert worker.counts["old-0"] == worker.counts["old-59"] == 7


async def test_a_standby_becomes_active_from_where_it_has_read() -> None:
    """The standby is restored to the end before its source flows."""
    async with worker_of([0]) as worker:
        worker.send_changelog(20, partition=1)
        await worker.give([0], standbys=[1])
        recovery = worker.app.tables.recovery
        assert await worker.until(lambda: recovery.standby_offsets.get(worker.changelog(1)) == 19)
        worker.send_changelog(5, partition=1)
        worker.send_orders(3, partition=1)
        await worker.give([0, 1])
        assert await worker.until(lambda: worker.of(1) == [0, 1, 2])
        assert worker.counts["old-24"] == 7


async def test_a_restore_whose_partition_goes_is_reported_no_longer() -> None:
    """Otherwise the worker would log those records as remaining for the rest of its life."""
    async with worker_of([0]) as worker:
        worker.replay_delay_s = 0.1
        worker.send_changelog(60, partition=1)
        progress = worker.app.tables.recovery.progress
        await worker.give([0, 1])
        assert await worker.until(lambda: not progress.is_idle)
        await worker.give([0])
        worker.send_orders(3)
        assert await worker.until(lambda: len(worker.of(0)) == 3 and worker.at_rest)
        assert progress.is_idle


async def test_what_a_standby_has_fetched_is_not_applied_once_it_becomes_active() -> None:
    """Those records would follow the replayed rows and hide the records in between."""
    async with worker_of([0]) as worker:
        recovery, may_ask = worker.app.tables.recovery, Event()
        log, ask = worker.changelog(1), recovery.actives._extents.ends

        async def ask_late(tps: Any) -> Any:
            await may_ask.wait()
            return await ask(tps)

        await worker.give([0], standbys=[1])
        assert await worker.until(lambda: worker.at_rest)
        worker.replay_delay_s = 0.1
        worker.send_changelog(8, partition=1)
        assert await worker.until(lambda: recovery.standby_offsets.get(log) == 1)
        recovery.actives._extents.ends = ask_late
        await worker.give([0, 1])
        assert await worker.until(lambda: log in recovery.active_tps)
        worker.replay_delay_s = 0.0
        before = recovery.active_offsets[log]
        await asyncio.sleep(1.0)
        assert recovery.active_offsets[log] == before
        assert not any(recovery.buffers.values())
        may_ask.set()
        worker.send_orders(3, partition=1)
        assert await worker.until(lambda: worker.of(1) == [0, 1, 2])
        assert worker.counts["old-7"] == 7


async def test_an_active_that_is_given_away_is_followed() -> None:
    """The changes of the next owner arrive here."""
    async with worker_of([0, 1]) as worker:
        await worker.give([0], standbys=[1])
        worker.send_changelog(4, partition=1)
        recovery = worker.app.tables.recovery
        last = worker.logs.ends[worker.changelog(1)] - 1
        assert await worker.until(lambda: recovery.standby_offsets.get(worker.changelog(1)) == last)


async def test_after_a_table_failed_streams_go_on_from_what_is_committed() -> None:
    """Queued records were dropped when the flow stopped; they are read again."""
    async with worker_of([0, 1]) as worker:
        worker.delay_s = 0.01
        worker.send_orders(40)
        assert await worker.until(lambda: len(worker.of(0)) > 5)
        worker.app.tables.recovery.tables_failed("counts", OSError("no space"))
        assert await worker.until(lambda: set(worker.of(0)) == set(range(40)))
        assert await worker.until(lambda: worker.at_rest)


async def test_a_round_that_comes_while_the_first_recovery_begins_is_the_one_that_counts() -> None:
    """The eager round's partitions do not replace those of the later cooperative round."""
    worker = CooperativeWorker(partitions=2)
    async with running(worker):
        recovery, may_go = worker.app.tables.recovery, asyncio.Event()
        stop_and_wait, waiting = recovery.stop_and_wait, list[bool]()

        async def slowly() -> None:
            if recovery.is_flowing and not waiting:
                waiting.append(True)
                await may_go.wait()
            await stop_and_wait()

        recovery.stop_and_wait = slowly
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: bool(waiting))
        round_ = asyncio.create_task(worker.give([0]))
        await asyncio.sleep(0.1)
        may_go.set()
        await round_
        await asyncio.sleep(0.3)
        assert await worker.until(lambda: worker.at_rest)
        assert {tp.partition for tp in recovery.active_tps} == {0}
        worker.send_orders(3)
        assert await worker.until(lambda: worker.of(0) == [0, 1, 2])


@pytest.mark.parametrize("when", ["before", "within"])
async def test_a_round_that_comes_while_tables_are_restored_anew_is_the_one_that_counts(
    when: str,
) -> None:
    """The round was cooperative because streams ran at its start; a table has failed since."""
    async with worker_of([0]) as worker:
        recovery, seeks, may_seek, may_ask = (
            worker.app.tables.recovery,
            list[bool](),
            Event(),
            Event(),
        )
        extents = recovery.actives._extents
        seek, ask = recovery._seek_offsets, extents.ends

        async def seek_late(*args: Any) -> None:
            seeks.append(True)
            await may_seek.wait()
            await seek(*args)

        async def ask_late(tps: Any) -> Any:
            await may_ask.wait()
            return await ask(tps)

        recovery._seek_offsets, extents.ends = seek_late, ask_late
        worker.send_orders(3)
        recovery.tables_failed("counts", OSError("no space"))
        if when == "within":
            assert await worker.until(lambda: bool(seeks))
        await worker.give([0, 1])
        for may_go in (may_seek, may_ask):
            await asyncio.sleep(0.1)
            may_go.set()
        worker.send_orders(3, partition=1)
        # A record in progress when the table failed is waited for, up to ten seconds.
        assert await worker.until(lambda: set(worker.of(0)) == {0, 1, 2} == set(worker.of(1)))
        assert await worker.until(lambda: worker.at_rest)
        assert {tp.partition for tp in recovery.active_tps} == {0, 1}


async def test_what_goes_while_it_is_about_to_flow_does_not_flow() -> None:
    """The partition is revoked while its offsets are being sought."""
    async with worker_of([0]) as worker:
        consumer, sought, may_go = worker.app.consumer, asyncio.Event(), asyncio.Event()
        seek = consumer.incremental.seek_some

        async def slowly(tps: set[Any]) -> None:
            await seek(tps)
            sought.set()
            await may_go.wait()

        consumer.incremental.seek_some = slowly
        await worker.give([0, 1])
        await sought.wait()
        await consumer.incremental.revoke({worker.source(1), worker.changelog(1)})
        may_go.set()
        await asyncio.sleep(0.1)
        assert worker.source(1) not in consumer._active_partitions, (
            "between letting go and the next answer"
        )
        await worker.give([0])
        worker.send_orders(3, partition=1)
        worker.send_orders(3)
        assert await worker.until(lambda: worker.of(0) == [0, 1, 2])
        assert worker.of(1) == []


async def test_what_is_on_its_way_to_a_copy_is_read_again_in_order() -> None:
    """A held-up batch has later records of the changelog, which must not hide earlier ones."""
    async with worker_of([0], stream_buffer_maxsize=4) as worker:
        log, recovery = worker.changelog(1), worker.app.tables.recovery
        await worker.give([0], standbys=[1])
        assert await worker.until(lambda: worker.at_rest)
        worker.replay_delay_s, worker.delay_s = 0.1, 0.5
        worker.send_changelog(30, partition=1)
        worker.send_orders(8)
        assert await worker.until(lambda: (recovery.standby_offsets.get(log) or 0) > 0)
        await worker.give([0, 1])
        worker.replay_delay_s = 0.01
        assert await worker.until(lambda: worker.at_rest)
        assert {worker.counts.get(f"old-{number}") for number in range(30)} == {7}
