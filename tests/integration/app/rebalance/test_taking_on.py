"""The order in which a worker starts its gained partitions, on logs in memory."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.integration.app.rebalance.test_incremental import worker_of

pytestmark = pytest.mark.timeout(150)


async def test_what_is_taken_over_flows_before_the_files_of_copies_are_open() -> None:
    """No active partition waits for a standby; the standby is followed afterwards."""
    async with worker_of([0]) as worker:
        recovery, may_open, waiting = worker.app.tables.recovery, asyncio.Event(), list[int]()
        open_ = recovery.databases.open_beside_streams

        async def late(tps: Any, *given: Any, **how: Any) -> None:
            if any(tp.partition == 2 for tp in tps):
                waiting.append(2)
                await may_open.wait()
            await open_(tps, *given, **how)

        recovery.databases.open_beside_streams = late
        worker.send_changelog(20, partition=1)
        worker.send_changelog(20, partition=2)
        worker.send_orders(3, partition=1)
        await worker.give([0, 1], standbys=[2])
        assert await worker.until(lambda: worker.of(1) == [0, 1, 2])
        assert await worker.until(lambda: waiting)
        assert not worker.at_rest
        worker.send_orders(3)
        assert await worker.until(lambda: worker.of(0) == [0, 1, 2])
        may_open.set()
        assert await worker.until(lambda: recovery.standby_offsets.get(worker.changelog(2)) == 19)
        assert worker.at_rest


async def test_a_round_is_spoken_of_where_it_brought_something(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line counts the changelogs to restore; a round without a change logs no line."""
    caplog.set_level(logging.INFO, logger="faust_assigner")
    said = list[list[str]]()
    async with worker_of([0]) as worker:
        for standbys in ([], [], [2]):
            caplog.clear()
            await worker.give([0, 1], standbys=standbys)
            assert await worker.until(lambda: worker.at_rest)
            said.append(
                [m.partition(" in ")[0] for m in caplog.messages if m.startswith("Assigned ")]
            )
    assert said == [
        ["Assigned 1 active and 0 standby changelogs"],
        [],
        ["Assigned 0 active and 1 standby changelogs"],
    ]


async def test_what_copies_have_read_is_written_while_a_round_is_under_way() -> None:
    """A round lasts as long as its slowest member; a worker killed meanwhile keeps its copies."""
    async with worker_of([0]) as worker:
        await worker.give([0], standbys=[1])
        assert await worker.until(lambda: worker.at_rest)
        worker.app.consumer.rounds.begin()
        worker.send_changelog(3, partition=1)
        recovery, log = worker.app.tables.recovery, worker.changelog(1)
        assert await worker.until(lambda: recovery.standby_offsets.get(log) == 2)
        assert await worker.until(lambda: not any(recovery.buffers.values()))
        assert worker.app.rebalancing
