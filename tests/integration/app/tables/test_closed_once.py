"""Short runs of the windows story (``tests/soak/closings.py``); ``make windows`` is longer."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.soak.closings import FIRST_S, KEYS, PARTITIONS, Group, story

#: Keys of a partition in the short stories. Their cost grows with the records.
FEW_KEYS = 20


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(120)
def test_windows_that_a_worker_leaves_are_closed_by_the_next_one(tmp_path: Path) -> None:
    """A part of the story below: a worker leaves during its work, and its successor continues."""
    with broker_process(None, "group.initial.rebalance.delay.ms=0") as broker:
        group = Group(broker.bootstrap, tmp_path, "at_least_once")
        try:
            for number in range(4 * KEYS * PARTITIONS):
                partition, key = number % PARTITIONS, number // PARTITIONS % KEYS
                group.send(FIRST_S + number / 40, f"{partition}-{key}", partition)
            group.start("worker-0")
            deadline = time.monotonic() + 60.0
            while not group.closed():
                assert time.monotonic() < deadline, group.log("worker-0")
                time.sleep(0.1)
            group.start("worker-1")  # worker-1 imports and restores while worker-0 stops
            group.end("worker-0", signal.SIGTERM)
            group.dam()
            group.judge()
        finally:
            group.stop()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_each_window_is_closed_with_its_last_value_through_joins_and_kills(tmp_path: Path) -> None:
    """Twelve events with at_least_once, on the embedded broker."""
    with broker_process(None, "group.min.session.timeout.ms=1000") as broker:
        story(broker.bootstrap, tmp_path, "at_least_once", 12, 7, keys=FEW_KEYS)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_each_window_is_closed_once_under_exactly_once_through_joins_and_kills(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    """Twelve events on Apache Kafka."""
    story(kafka.bootstrap, tmp_path, "exactly_once", 12, 9, keys=FEW_KEYS)
