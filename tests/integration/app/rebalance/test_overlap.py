"""Overlapping joins, SIGTERM, SIGKILL and SIGSTOP: no partition has two workers, no record is lost."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.support.workers.fleet import Fleet
from tests.support.workers.interleaved import Done, Journals, interleaved, read, together
from tests.support.workers.load import Load, judge

SESSION_S = 6.0


def play(bootstrap: str, folder: Path, *, rounds: int) -> None:
    """Play events 0.3 s apart, then rest; compare journals pairwise, and tables with the model."""
    app_id = f"overlap-{time.time_ns()}"
    fleet = Fleet(
        app_id,
        bootstrap,
        8,
        folder,
        session_s=SESSION_S,
        settings={"faust_assigner_cooperative": True},
    )
    load = Load(bootstrap, app_id, 8, orders_per_s=5.0)
    try:
        load.prepare(10)
        for name in ("w1", "w2", "w3"):
            fleet.start(name)
        load.start()
        fleet.settle(workers=3)
        for number in range(rounds):
            stopped = fleet.workers["w1"].process
            fleet.start("w4")
            time.sleep(0.3)
            fleet.kill("w3")
            time.sleep(0.3)
            stopped.send_signal(signal.SIGSTOP)
            fleet.start("w3")
            time.sleep(0.3)
            fleet.terminate("w2")
            fleet.start("w2")
            time.sleep(SESSION_S + 2.0 if number % 2 == 0 else 1.0)
            stopped.send_signal(signal.SIGCONT)
            time.sleep(0.3)
            fleet.terminate("w4")
            fleet.settle(workers=3)
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        assert (verdict.lost, verdict.wrong_rows) == (0, ())
        assert (
            interleaved(read({name: w.folder / "journal" for name, w in fleet.workers.items()}))
            == []
        )
    finally:
        load.stop()
        for worker in fleet.living():
            worker.process.send_signal(signal.SIGCONT)
        fleet.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(280)
def test_no_two_workers_process_one_partition_at_a_time(tmp_path: Path) -> None:
    """On the embedded broker."""
    with broker_process() as broker:
        play(broker.bootstrap, tmp_path, rounds=2)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(280)
def test_no_two_workers_process_one_partition_at_a_time_on_kafka(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    """On Apache Kafka."""
    play(kafka.bootstrap, tmp_path, rounds=2)


def test_a_worker_that_goes_on_beside_another_is_seen() -> None:
    """A worker that gets a partition back does not count as such."""
    both = [Done(0.0, 3, 7, "a", 0.0), Done(2.0, 3, 8, "b", 1.9), Done(4.0, 3, 8, "a", 3.9)]
    assert interleaved(Journals(both)) == ["partition 3: a began 8, after b was done with 8"]
    stood = [*both[:2], Done(4.0, 3, 8, "a", 0.05)]
    assert interleaved(Journals(stood)) == [], (
        "it began before the other was done with it, and stood still"
    )
    back = [*both[:2], Done(4.0, 3, 9, "a", 3.9), Done(5.0, 3, 10, "a", 4.9)]
    assert interleaved(Journals(back)) == []


def test_a_partition_that_comes_back_uncommitted_is_repeated_by_right() -> None:
    """Its owner was killed; a worker assigned before those records must not process them."""
    done = [Done(0.0, 3, 7, "a", 0.0), Done(2.0, 3, 8, "b", 1.9), Done(4.0, 3, 8, "a", 3.9)]
    assert interleaved(Journals(done, {"a": [(1.0, frozenset()), (3.0, frozenset({3}))]})) == []
    assert interleaved(Journals(done, {"a": [(1.0, frozenset({3})), (3.0, frozenset({2}))]})) != []
    assert interleaved(Journals(done, {"b": [(3.0, frozenset({3}))]})) != []


def test_two_records_of_a_partition_that_are_under_way_at_once_are_seen() -> None:
    """A worker whose process stood still meanwhile may finish the record that it began."""
    late = Done(5.0, 3, 7, "a (1)", 1.0)
    both = [late, Done(3.0, 3, 7, "b (1)", 2.5), Done(4.0, 3, 8, "b (1)", 3.5)]
    assert together(Journals(both), {}) == [
        "partition 3: b (1) began 7 2.500 s before a (1) was done with 7",
        "partition 3: b (1) began 8 1.500 s before a (1) was done with 7",
    ]
    assert together(Journals(both), {"a": [(1.1, 4.5)]}) == []
    assert together(Journals(both), {"a": [(1.1, 5.5)]}) != []
    apart = [late, Done(6.0, 3, 8, "b (1)", 5.0), Done(3.0, 2, 1, "b (1)", 2.0)]
    assert together(Journals(apart), {}) == []
