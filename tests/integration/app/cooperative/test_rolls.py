"""Up in one roll, back in two: from stock to cooperative rounds and all the way back, under load."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.support.workers.fleet import Fleet
from tests.support.workers.interleaved import interleaved, read
from tests.support.workers.load import Load, judge

COOPERATIVE, EAGER = {"faust_assigner_cooperative": True}, {"faust_assigner_cooperative": False}
#: (kind, settings) of each roll; in each the workers are replaced one after the other.
ROLLS = (("ours", COOPERATIVE), ("ours", EAGER), ("stock", {}))
NAMES = ("w1", "w2", "w3")


def said(fleet: Fleet, text: str) -> bool:
    """Whether a living worker has said it."""
    return any(text in (worker.folder / "log").read_text() for worker in fleet.living())


def roll(bootstrap: str, folder: Path) -> None:
    """Each replacement settles; in the end every order was processed, and rows lack none."""
    app_id = f"rolls-{time.time_ns()}"
    fleet = Fleet(app_id, bootstrap, 6, folder, "stock")
    load = Load(bootstrap, app_id, 6, orders_per_s=10.0)
    try:
        load.prepare(5)
        for name in NAMES:
            fleet.start(name)
        load.start()
        fleet.settle(workers=3)
        for assignor, settings in ROLLS:
            fleet.settings = settings
            for name in NAMES:
                generation = fleet.generation()
                fleet.terminate(name)
                fleet.start(name, assignor)
                fleet.settle(workers=3, after=generation)
            if settings is COOPERATIVE:
                generation = fleet.generation()
                fleet.terminate("w3")
                fleet.start("w3", assignor)
                fleet.settle(workers=3, after=generation)
                assert said(fleet, "using faust-cooperative")
                assert said(fleet, "a second round follows")
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        assert verdict.lost == 0
        missing = [row for row in verdict.wrong_rows if "'missing': 0" not in row]
        assert missing == []
        # Stock workers stop as stock does; ours never meet.
        ours = {name: worker.folder / "journal" for name, worker in fleet.workers.items()}
        assert not interleaved(read(ours))
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
