"""The demo's script under our assignor, on both brokers: the tables equal the model's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from faust_assigner.testing.kafka import kafka_server

ROOT = Path(__file__).resolve().parents[3]


def run_demo(*arguments: str) -> str:
    """The demo's output; it must end by itself with exit code 0 in under three minutes."""
    done = subprocess.run([sys.executable, "-m", "examples.orders.demo", "--assignor", "ours", *arguments],
                          cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.kafka
def test_demo_ends_with_equal_tables_on_kafka() -> None:
    """A join, a bounce, a SIGKILL and a return on Apache Kafka lose no order and count none twice."""
    with kafka_server() as kafka:  # of its own: the demo's topics have fixed names
        assert "equal, 480 records" in run_demo("--bootstrap", kafka.bootstrap)


@pytest.mark.processes
@pytest.mark.timeout(200)
def test_demo_ends_with_equal_tables_on_the_embedded_broker() -> None:
    """The same on the embedded broker, which the demo starts and stops itself."""
    assert "equal, 480 records" in run_demo()
