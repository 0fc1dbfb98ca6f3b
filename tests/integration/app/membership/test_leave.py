"""A stopping worker processes until its successors take over; a static worker moves nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.testing.broker import broker_process
from tests.support.waiting import PATIENCE_S
from tests.support.workers.fleet import Fleet
from tests.support.workers.interleaved import interleaved, read
from tests.support.workers.load import Load, judge

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


@contextlib.contextmanager
def two_workers(folder: Path, **more: Any) -> Iterator[tuple[Fleet, Load]]:
    """Two workers at rest on the embedded broker, under load."""
    app_id = f"leave-{time.time_ns()}"
    with broker_process() as broker:
        fleet = Fleet(
            app_id,
            broker.bootstrap,
            4,
            folder,
            settings={"faust_assigner_cooperative": True, "faust_assigner_leave_s": PATIENCE_S},
            **more,
        )
        load = Load(broker.bootstrap, app_id, 4, orders_per_s=10.0)
        try:
            load.prepare(5)
            for name in ("w1", "w2"):
                fleet.start(name)
            load.start()
            fleet.settle(workers=2, quiet_s=0.3)
            yield fleet, load
        finally:
            load.stop()
            fleet.stop()


@pytest.mark.slow
def test_a_worker_that_is_stopped_hands_over_before_it_leaves(tmp_path: Path) -> None:
    """No record repeats, no partition has two owners, and the remaining worker has all copies."""
    with two_workers(tmp_path) as (fleet, load):
        generation = fleet.generation()
        fleet.terminate("w2")
        fleet.settle(workers=1, after=generation, quiet_s=0.3)
        load.stop()
        fleet.drain(sum(load.sent))
        log = (fleet.workers["w2"].folder / "log").read_text()
        assert (
            log.index("Handed all partitions over") > log.index("LeaveGroup request succeeded") > 0
        )
        verdict = judge(load, fleet.orders(), fleet.totals())
        assert (verdict.lost, verdict.repeated, verdict.wrong_rows) == (0, 0, ())
        assert (
            interleaved(read({name: w.folder / "journal" for name, w in fleet.workers.items()}))
            == []
        )
        assert "8 warm, 0 cold" in (fleet.workers["w1"].folder / "log").read_text()


@pytest.mark.slow
def test_a_static_member_that_is_restarted_moves_nothing(tmp_path: Path) -> None:
    """The worker hands over no partition, and the other worker's partitions keep flowing."""
    with two_workers(tmp_path, static=True) as (fleet, load):
        before = {worker.name: worker.actives for worker in fleet.living()}
        for name in ("w1", "w2"):
            fleet.terminate(name)
            fleet.start(name)
            deadline = time.monotonic() + 60
            while not fleet.at_rest() and time.monotonic() < deadline:
                time.sleep(0.1)
                fleet.living()
            assert (
                "Handed all partitions over" not in (fleet.workers[name].folder / "log").read_text()
            )
        assert {worker.name: worker.actives for worker in fleet.living()} == before
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        assert (verdict.lost, verdict.wrong_rows) == (0, ())


@pytest.mark.slow
def test_a_static_member_that_retires_hands_over_before_it_leaves(tmp_path: Path) -> None:
    """The operator's ``retire`` file makes it leave as a dynamic member does, at once."""
    with two_workers(tmp_path, static=True, session_s=80.0) as (fleet, load):
        generation = fleet.generation()
        (retire,) = (fleet.workers["w2"].folder / "data").glob("v1")
        (retire / "retire").touch()
        fleet.terminate("w2")
        # below the session
        fleet.settle(workers=1, after=generation, quiet_s=0.3, timeout_s=PATIENCE_S)
        load.stop()
        fleet.drain(sum(load.sent))
        log = (fleet.workers["w2"].folder / "log").read_text()
        assert (
            log.index("Handed all partitions over") > log.index("LeaveGroup request succeeded") > 0
        )
        verdict = judge(load, fleet.orders(), fleet.totals())
        assert (verdict.lost, verdict.repeated, verdict.wrong_rows) == (0, 0, ())


@pytest.mark.slow
def test_a_static_member_with_the_least_capacity_is_drained(tmp_path: Path) -> None:
    """The worker returns without a round, so no leader would read its new capacity."""
    with two_workers(tmp_path, static=True) as (fleet, load):
        generation = fleet.generation()
        fleet.terminate("w2")
        fleet.settings = {**fleet.settings, "faust_assigner_capacity": 1e-6}
        fleet.start("w2")
        deadline = time.monotonic() + 60
        while fleet.workers["w2"].actives or fleet.generation() == generation:
            assert time.monotonic() < deadline, fleet.workers["w2"].actives
            time.sleep(0.1)
            fleet.living()
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        assert (verdict.lost, verdict.wrong_rows) == (0, ())
