"""Unmodified Faust workers run on the embedded broker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.ports import free_port
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.processes
APP = """
import os, faust
app = faust.App("tally", broker="kafka://" + os.environ["BROKER"], store="memory://", topic_partitions=4,
                datadir=os.environ["DATADIR"], broker_session_timeout=6.0, broker_heartbeat_interval=0.5,
                broker_commit_interval=0.3, topic_replication_factor=1, table_standby_replicas=0)
words = app.topic("words", key_type=str, value_type=str, partitions=4)
totals = app.Table("totals", default=int, partitions=4)

@app.agent(words)
async def count(stream):
    async for key, _ in stream.items():
        totals[key] += 1

@app.timer(0.3)
async def show():
    owned = [tp for tp in app.assignor.assigned_actives() if tp.topic == "words"]
    print("TOTAL", sum(totals.values()), len(owned), flush=True)
"""
DEADLINE_S = 60.0
SETTLE_S = 4.0


class Worker:
    """A ``faust worker`` process."""

    def __init__(self, folder: Path, bootstrap: str, name: str) -> None:
        self.output = folder / f"{name}.log"
        environment = {**os.environ, "BROKER": bootstrap, "DATADIR": str(folder / name)}
        command = [
            sys.executable,
            "-m",
            "faust",
            "-A",
            "tally",
            "worker",
            "-l",
            "warn",
            "--web-port",
            str(free_port()),
        ]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=self.output.open("w"),
            stderr=subprocess.STDOUT,
        )

    def latest(self) -> tuple[int, int]:
        """Return the last printed sum of its table and number of its partitions."""
        words = re.sub(r"\[[^\]]*\]|\s+", " ", self.output.read_text())
        found = re.findall(r"TOTAL\s+(\d+)\s+(\d+)", words)
        return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send the process a signal and wait for its end."""
        self.process.send_signal(number)
        self.process.wait(30)


def wait_for_total(workers: list[Worker], total: int) -> None:
    """Wait until the tables add up to ``total`` and each worker has as many partitions.

    Faust may drop or repeat records that arrive during a rebalance or a recovery. So this waits a
    little longer, for the end of the recovery and for the next commit.
    """
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        seen = [w.latest() for w in workers]
        if sum(s for s, _ in seen) == total and {n for _, n in seen} == {4 // len(workers)}:
            time.sleep(SETTLE_S)
            return
        time.sleep(0.1)
    tails = "\n".join(w.output.read_text()[-1_500:] for w in workers)
    pytest.fail(f"wanted {total}, the workers have {[w.latest() for w in workers]}\n{tails}")


@pytest.mark.slow
def test_faust_workers_share_a_table_recover_it_and_outlive_the_broker(tmp_path: Path) -> None:
    """Two workers count; after a SIGKILL the other recovers its part; then the broker restarts."""
    (tmp_path / "tally.py").write_text(APP)
    with EmbeddedBroker(tmp_path / "data", settings={"num.partitions": 4}) as broker:
        broker.call(lambda node: node.catalogue.create("words", 4, {}))
        workers = [Worker(tmp_path, broker.bootstrap, name) for name in ("one", "two")]
        try:
            wait_for_total(workers, 0)
            produce(broker, 400)
            wait_for_total(workers, 400)
            workers.pop(0).stop(signal.SIGKILL)
            wait_for_total(workers, 400)
            broker.restart()
            produce(broker, 200)
            wait_for_total(workers, 600)
        finally:
            for worker in workers:
                worker.stop()
        changelog = broker.call(lambda node: node.catalogue.get("tally-totals-changelog"))
        assert changelog is not None
        assert changelog.configs["cleanup.policy"] == "compact"


def produce(broker: EmbeddedBroker, count: int) -> None:
    """Send records over 20 keys."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce("words", key=f'"k{number % 20}"', value='"x"')
    assert producer.flush(PATIENCE_S) == 0
