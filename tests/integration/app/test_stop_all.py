"""Real workers that all stop and all return, each to its partitions, warm, in one round."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.app.rebalance.memory_file import NAME
from faust_assigner.testing.broker import BrokerProcess, broker_process
from faust_assigner.testing.kafka import kafka_server
from tests.support.workers.fleet import Fleet
from tests.support.workers.load import Load, judge
from tests.support.workers.measure import Event, State, measure

WORKERS = ("worker-1", "worker-2", "worker-3")
PARTITIONS = 6
#: Long enough for a follow-up round after ``FAUST_ASSIGNER_FOLLOW_UP_S`` of 1 s.
PATIENCE_S = 5.0
#: How long an empty group waits for more members; Kafka's default is 3,000. Here a slow start of a
#: worker must not give its partitions to the other workers.
DELAY_MS = 10_000


def patient_broker() -> contextlib.AbstractContextManager[BrokerProcess]:
    """The embedded broker with that delay."""
    return broker_process(None, f"group.initial.rebalance.delay.ms={DELAY_MS}")


@dataclass
class Return:
    """The outcome of a stop and a start of all workers."""

    event: Event
    lost: int
    wrong_rows: tuple[str, ...]
    follow_ups: int
    loads: list[int]


def state_of(fleet: Fleet) -> State:
    """The owned and the held partitions of each living worker."""
    living = fleet.living()
    return State({w.name: w.actives for w in living}, {w.name: w.held for w in living})


def follow_ups(fleet: Fleet) -> int:
    """Return the number of requested follow-up rounds in the workers' logs."""
    return sum(
        (worker.folder / "log").read_text(errors="replace").count("Requested a follow-up round")
        for worker in fleet.workers.values()
    )


def stop_and_start(
    bootstrap: str,
    folder: Path,
    number: int,
    *,
    between: Callable[[Fleet], object] = lambda fleet: None,
) -> Return:
    """Run three workers with six partitions; signal all, run ``between``, and restart all."""
    app_id = f"again-{time.time_ns()}"
    fleet = Fleet(app_id, bootstrap, PARTITIONS, folder, session_s=15.0)
    load = Load(bootstrap, app_id, PARTITIONS)
    try:
        load.prepare(20)
        for name in WORKERS:
            fleet.start(name)
        load.start()
        fleet.settle(workers=len(WORKERS), quiet_s=2.0)
        before, generation, since = state_of(fleet), fleet.generation(), follow_ups(fleet)
        fleet.end_all(number)
        between(fleet)
        files = {worker.name: worker.on_disk for worker in fleet.workers.values()}
        for name in WORKERS:
            fleet.start(name)
        fleet.settle(workers=len(WORKERS), after=generation)
        time.sleep(PATIENCE_S)
        fleet.settle(workers=len(WORKERS), after=generation)
        after = state_of(fleet)
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        event = measure(
            "stop of all", before, after, files, {}, dict.fromkeys(range(PARTITIONS), 0.0)
        )
        return Return(
            event,
            verdict.lost,
            verdict.wrong_rows,
            follow_ups(fleet) - since,
            sorted(len(owned) for owned in before.actives.values()),
        )
    finally:
        load.stop()
        fleet.stop()


def forget(fleet: Fleet) -> None:
    """Delete the workers' memory, as before a release that kept none."""
    for worker in fleet.workers.values():
        for file in worker.folder.glob(f"data/**/{NAME}"):
            file.unlink()


def comes_back_as_it_was(found: Return) -> None:
    """No partition moved, was restored cold or lost a record; no further round was needed."""
    assert found.loads == [2, 2, 2]
    assert (found.event.moves, found.event.cold, found.event.loads) == (0, 0, (2, 2, 2))
    assert (found.lost, found.wrong_rows, found.follow_ups) == (0, (), 0)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Request follow-up rounds soon."""
    monkeypatch.setenv("FAUST_ASSIGNER_FOLLOW_UP_S", "1")


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_kill_of_everybody_moves_nothing(tmp_path: Path) -> None:
    """SIGKILL to all at once; the new members read from disk which partitions each one owned."""
    with patient_broker() as broker:
        comes_back_as_it_was(stop_and_start(broker.bootstrap, tmp_path, signal.SIGKILL))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_stop_of_everybody_moves_nothing(tmp_path: Path) -> None:
    """SIGTERM to all: the workers do not store the rounds that the first leaver causes."""
    with patient_broker() as broker:
        comes_back_as_it_was(stop_and_start(broker.bootstrap, tmp_path, signal.SIGTERM))


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_on_kafka_nothing_moves_either(tmp_path: Path) -> None:
    """On Apache Kafka, with SIGTERM and with SIGKILL."""
    with kafka_server({"group.initial.rebalance.delay.ms": str(DELAY_MS)}) as kafka:
        for number in (signal.SIGTERM, signal.SIGKILL):
            comes_back_as_it_was(stop_and_start(kafka.bootstrap, tmp_path / number.name, number))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_without_their_memory_workers_come_back_whole(tmp_path: Path) -> None:
    """Without the files the group is still balanced and warm, on any assignment."""
    with patient_broker() as broker:
        found = stop_and_start(broker.bootstrap, tmp_path, signal.SIGKILL, between=forget)
    assert (found.lost, found.wrong_rows) == (0, ())
    assert found.event.loads == (2, 2, 2)


def assignments(fleet: Fleet, name: str) -> list[dict[str, Any]]:
    """Return all assignments of a worker, in order."""
    lines = (fleet.workers[name].folder / "journal").read_bytes().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "assigned"]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_death_off_target_is_set_right_by_one_further_round(tmp_path: Path) -> None:
    """A worker dies as another joins: survivors promote, then the newcomer gets its share warm.

    A move takes two rounds: owners revoke in the first, the newcomer takes over in the second.
    """
    app_id = f"follow-{time.time_ns()}"
    with broker_process() as broker:
        fleet = Fleet(app_id, broker.bootstrap, 12, tmp_path, session_s=20.0)
        load = Load(broker.bootstrap, app_id, 12)
        try:
            load.prepare(20)
            for name in WORKERS:
                fleet.start(name)
            load.start()
            fleet.settle(workers=3, quiet_s=2.0)
            generation = fleet.generation()
            fleet.kill("worker-3")
            fleet.start("worker-4")  # joins within the dead worker's session: one round for both
            fleet.settle(workers=3, after=generation + 1)
            time.sleep(PATIENCE_S)
            fleet.settle(workers=3, after=generation + 1)
            assert sorted(len(worker.actives) for worker in fleet.living()) == [4, 4, 4]
            first, *_, last = assignments(fleet, "worker-4")
            assert first["actives"] == []
            assert set(last["actives"]) <= set(first["standbys"])
            assert (fleet.generation(), follow_ups(fleet)) == (generation + 3, 1)
            load.stop()
            fleet.drain(sum(load.sent))
            verdict = judge(load, fleet.orders(), fleet.totals())
            assert (verdict.lost, verdict.wrong_rows) == (0, ())
        finally:
            load.stop()
            fleet.stop()
