"""Up in one roll, back in two: to cooperative rounds and all the way back to stock, under load."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.support.workers.fleet import Fleet
from tests.support.workers.interleaved import interleaved, read
from tests.support.workers.load import Load, judge

COOPERATIVE, EAGER = {"faust_assigner_cooperative": True}, {"faust_assigner_cooperative": False}
NAMES = ("w1", "w2", "w3")


def said(fleet: Fleet, text: str) -> bool:
    """Whether a living worker has said it."""
    return any(text in (worker.folder / "log").read_text() for worker in fleet.living())


def replace(fleet: Fleet, assignor: str, settings: dict[str, bool], names: Sequence[str] = NAMES) -> None:
    """One roll: each worker in turn; every replacement comes to rest."""
    fleet.settings = settings
    for name in names:
        generation = fleet.generation()
        fleet.terminate(name)
        fleet.start(name, assignor)
        fleet.settle(workers=len(NAMES), after=generation)


def roll(bootstrap: str, folder: Path) -> None:
    """Every order is processed and no two workers meet, until stock comes, which is not judged."""
    app_id = f"rolls-{time.time_ns()}"
    fleet = Fleet(app_id, bootstrap, 6, folder, "ours", settings=EAGER)
    load = Load(bootstrap, app_id, 6, orders_per_s=10.0)
    try:
        load.prepare(5)
        for name in NAMES:
            fleet.start(name)
        load.start()
        fleet.settle(workers=3)
        assert not said(fleet, "using faust-cooperative")
        replace(fleet, "ours", COOPERATIVE)
        replace(fleet, "ours", COOPERATIVE, NAMES[-1:])
        assert said(fleet, "using faust-cooperative")
        assert said(fleet, "a second round follows")
        replace(fleet, "ours", EAGER)
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        assert (verdict.lost, verdict.wrong_rows) == (0, ())
        journals = {name: worker.folder / "journal" for name, worker in fleet.workers.items()}
        assert interleaved(read(journals)) == []
        load.resume()
        replace(fleet, "stock", {})
        assert all(worker.actives for worker in fleet.living())
    finally:
        load.stop()
        fleet.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_up_in_one_roll_and_back_in_two(tmp_path: Path) -> None:
    """On the embedded broker."""
    with broker_process() as broker:
        roll(broker.bootstrap, tmp_path)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_up_in_one_roll_and_back_in_two_on_kafka(kafka: KafkaServer, tmp_path: Path) -> None:
    """On Apache Kafka."""
    roll(kafka.bootstrap, tmp_path)
