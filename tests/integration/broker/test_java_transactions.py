"""Java's transactional producer on the embedded broker chooses the second transaction version."""

from __future__ import annotations

import subprocess

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.node import Node
from faust_assigner.coordinator.transactions import State
from faust_assigner.testing.kafka import kafka_jars

RECORDS = 300


@pytest.mark.slow
@pytest.mark.kafka
def test_javas_producer_raises_its_epoch_with_each_transaction() -> None:
    """Each transaction of 50 ms has its own epoch; all records are committed."""
    with EmbeddedBroker() as broker:
        broker.call(lambda node: node.catalogue.create("t", 1, {}))
        options = {
            "--topic": "t",
            "--num-records": str(RECORDS),
            "--record-size": "10",
            "--throughput": "600",
            "--transactional-id": "java",
            "--transaction-duration-ms": "50",
            "--producer-props": f"bootstrap.servers={broker.bootstrap}",
        }
        words = [word for option in options.items() for word in option]
        program = ["java", "-Xmx256m", "-cp", f"{kafka_jars()}/*"]
        done = subprocess.run(
            [*program, "org.apache.kafka.tools.ProducerPerformance", *words],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr

        def seen(node: Node) -> tuple[int, int, bool, State | None, bool]:
            log = node.catalogue.partition("t", 0)
            known = node.transactions.get("java")
            assert log is not None
            assert known is not None
            ends = node.counters["transactions_committed"]
            return (
                known.epoch - ends,
                log.end_offset - ends,
                known.is_bumped,
                known.state,
                log.stable_offset == log.end_offset,
            )

        assert broker.call(seen) == (0, RECORDS, True, State.COMPLETE_COMMIT, True)
        assert broker.call(lambda node: node.counters["transactions_committed"]) > 1
