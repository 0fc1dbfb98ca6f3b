"""A worker that subscribes to a further topic while it runs, as the first ``agent.ask()`` does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faust_assigner.testing.broker import BrokerProcess

pytestmark = pytest.mark.timeout(120)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cooperative", "guarantee"),
    [("1", "at_least_once"), ("0", "at_least_once"), ("1", "exactly_once")],
)
def test_a_topic_added_to_a_running_worker_repeats_no_record(
    tmp_path: Path, cooperative: str, guarantee: str
) -> None:
    """Faust could not commit the records processed so far, and processed them again.

    Under ``exactly_once`` Faust sent the task's messages in transactions that were never committed.
    """
    broker = BrokerProcess()
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.support.workers.live_topics", "worker", "--without-web"],
        env=os.environ
        | {"BROKER": broker.bootstrap, "FOLDER": str(tmp_path)}
        | {"FAUST_ASSIGNER_COOPERATIVE": cooperative, "GUARANTEE": guarantee},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        log, _ = worker.communicate(timeout=60)
    finally:
        broker.kill()
        worker.kill()
        worker.communicate()
    found = [word for word in log.split() if word.startswith(("FIRST-", "SECOND-"))]
    assert found == [*(f"FIRST-{number}" for number in range(20)), "SECOND-7"]
