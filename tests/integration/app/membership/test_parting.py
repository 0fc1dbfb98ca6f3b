"""The time that partitions stand still after a SIGTERM: the steps of the leaver and the successors."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.membership.shutdown import _done_within
from faust_assigner.testing.broker import BrokerProcess
from tests.support.workers.troubled import troubled
from tests.support.workers.virtual import Worker, running

pytestmark = pytest.mark.timeout(120)

STUCK = "tests.support.workers.stuck"


@pytest.mark.slow
def test_a_worker_leaves_the_group_before_it_closes_its_tables(tmp_path: Path) -> None:
    """Stock closes its tables first, so the group reassigns its partitions a second later."""
    with troubled(tmp_path, preload=200) as it:
        it.start()
        it.load.start()
        assert it.until(lambda _: it.done > 40)
        it.fleet.terminate("worker-1")
        log = it.log()
        assert 0 < log.index("LeaveGroup request succeeded") < log.index("Closing rocksdb on stop")
        it.load.stop()
        it.start()
        assert it.until(lambda _: it.done == sum(it.load.sent))
        repeated = len(it.worker.orders) - it.done
        assert repeated == 0


@pytest.mark.slow
def test_a_worker_with_a_stuck_agent_ends_without_its_broker(tmp_path: Path) -> None:
    """Faust's wait for the streams ignores a cancellation, and this worker waited for ever."""
    broker = BrokerProcess()
    worker = subprocess.Popen(
        [sys.executable, "-m", STUCK, "worker", "--without-web"],
        env=os.environ | {"BROKER": broker.bootstrap, "FOLDER": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert worker.stdout is not None
        assert any("STUCK" in line for line in worker.stdout)
        broker.kill()
        worker.terminate()
        worker.communicate(timeout=60)
    finally:
        broker.kill()
        worker.kill()
        worker.communicate()


@pytest.mark.slow
def test_a_worker_that_stops_in_a_rebalance_commits_and_leaves(tmp_path: Path) -> None:
    """Faust closed its client on a wrong event loop, so its partitions stood still for a session timeout."""
    broker, workers = BrokerProcess(), []

    def start(name: str) -> subprocess.Popen[str]:
        workers.append(
            subprocess.Popen(
                [sys.executable, "-m", STUCK, "worker", "--without-web", "-l", "info"],
                env=os.environ
                | {"BROKER": broker.bootstrap, "FOLDER": f"{tmp_path}/{name}"}
                | {"GO": f"{tmp_path}/go"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return workers[-1]

    try:
        stopping = start("w1")
        assert stopping.stdout is not None
        assert any("STUCK" in line for line in stopping.stdout)
        stopping.terminate()
        start("w2")
        assert any("Revoking previously assigned" in line for line in stopping.stdout)
        (tmp_path / "go").touch()
        log, _ = stopping.communicate(timeout=60)
        assert "LeaveGroup request succeeded" in log
    finally:
        broker.kill()
        for worker in workers:
            worker.kill()
            worker.communicate()


async def test_committed_offsets_are_asked_for_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka fetches the offsets partition by partition before any partition flows."""
    worker = Worker(partitions=3, repaired=True)
    worker.send_orders(10)
    worker.logs.committed[worker.source()] = 5
    async with running(worker):
        asked: list[list[TP]] = []

        async def fetch(tps: list[TP]) -> dict[TP, Any]:
            asked.append(list(tps))
            return {tp: SimpleNamespace(offset=worker.logs.committed.get(tp, -1)) for tp in tps}

        worker.app.consumer._thread._consumer._coordinator.fetch_committed_offsets = fetch
        with caplog.at_level(logging.WARNING):
            await worker.rebalance([0, 1, 2])
            assert await worker.until(lambda: worker.offsets == [5, 6, 7, 8, 9])
        assert [len(tps) for tps in asked] == [3]


@pytest.mark.parametrize("failure", [asyncio.CancelledError(), RuntimeError("of a client"), None])
async def test_a_client_that_fails_at_its_stop_ends_no_thread_without_a_word(failure: Any) -> None:
    """aiokafka's own cancelled tasks raise here; the app then waits a minute for that thread."""

    async def stop() -> None:
        if failure is not None:
            raise failure

    assert await _done_within(1.0, stop) == (failure is None)
    ours = asyncio.ensure_future(_done_within(5.0, asyncio.Event().wait))
    await asyncio.sleep(0)
    ours.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ours
