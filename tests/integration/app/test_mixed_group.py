"""A group rolls from stock to ours and back, one worker at a time, with either kind leading."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.support.workers.fleet import Fleet
from tests.support.workers.load import Load, judge

PARTITIONS = 6
#: Replaced worker and its new kind; the other worker leads, so both kinds lead a mixed group.
ROLL_FORWARD_AND_BACK = [
    ("worker-1", "ours"),
    ("worker-2", "ours"),
    ("worker-1", "stock"),
    ("worker-2", "stock"),
]


def roll(bootstrap: str, folder: Path) -> None:
    """Replace each worker; assert that all get partitions and that each order is processed."""
    app_id = f"mixed-{time.time_ns()}"
    fleet = Fleet(app_id, bootstrap, PARTITIONS, folder, "stock")
    load = Load(bootstrap, app_id, PARTITIONS)
    try:
        load.prepare(waiting=0)
        fleet.start("worker-1")
        fleet.start("worker-2")
        load.start()
        fleet.settle(workers=2)
        for name, assignor in ROLL_FORWARD_AND_BACK:
            fleet.terminate(name)
            fleet.start(name, assignor)
            fleet.settle(workers=2)
            kinds = {
                worker.name: (worker.assignor, len(worker.actives)) for worker in fleet.living()
            }
            assert kinds[name] == (assignor, PARTITIONS // 2), kinds
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        assert verdict.orders > 0
        for worker in fleet.living():
            assert "Traceback" not in worker.log_tail(1_000_000), worker.log_tail()
    finally:
        load.stop()
        fleet.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_mixed_group_rolls_forward_and_back_on_the_embedded_broker(tmp_path: Path) -> None:
    """No member fails, at any step."""
    with broker_process() as broker:
        roll(broker.bootstrap, tmp_path)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_a_mixed_group_rolls_forward_and_back_on_kafka(kafka: KafkaServer, tmp_path: Path) -> None:
    """The same on Apache Kafka."""
    roll(kafka.bootstrap, tmp_path)
