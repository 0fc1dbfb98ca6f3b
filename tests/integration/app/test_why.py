"""``faust-assigner why`` on a running group: one worker is killed, another one is stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.testing.broker import broker_process
from tests.support.waiting import wait_until
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

PARTITIONS = 6


@dataclass
class Written(Measured):
    """Workers with their default ledgers."""

    def wait_until_safe(self, *question: str) -> None:
        """Wait until the group is at rest and its standbys are current."""
        where = ("--bootstrap", self.bootstrap, "--group", self.app_id)
        done = CliRunner().invoke(
            main, ["deploy-check", *where, *question, "--wait", "200", "--every", "1"]
        )
        assert done.exit_code == 0, done.output
        for worker in self.workers.values():
            worker.read_journal()

    def why(self, subject: str) -> str:
        """Return the command's output for the running group, without line breaks, or its error."""
        where = ("--bootstrap", self.bootstrap, "--group", self.app_id)
        return " ".join(CliRunner().invoke(main, ["why", subject, *where]).output.split())

    def why_by_files(self, subject: str) -> str:
        """Return the output from the files of all workers, ended workers included."""
        folders = [str(self.folder / name / "data/ledger") for name in self.workers]
        ledgers = [word for folder in folders for word in ("--ledger", folder)]
        return " ".join(CliRunner().invoke(main, ["why", subject, *ledgers]).output.split())


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka])])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Written]:
    """Three workers under load with two partitions each, so that no move causes a second move."""
    app_id = f"why-{time.time_ns()}"
    with contextlib.ExitStack() as stack:
        broker: Any = (
            stack.enter_context(broker_process())
            if request.param == "embedded"
            else request.getfixturevalue("kafka")
        )
        fleet = Written(app_id, broker.bootstrap, PARTITIONS, tmp_path, session_s=15.0)
        stack.callback(fleet.stop)
        load = Load(broker.bootstrap, app_id, PARTITIONS, orders_per_s=5.0)
        load.prepare(waiting=5)
        stack.callback(load.stop)
        load.start()
        for name in ("a", "b", "c"):
            fleet.start(name)
        fleet.wait_until_safe("--rolling", "--members", "3")
        yield fleet


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(500)
def test_a_worker_that_was_killed_and_one_that_was_stopped_have_their_stories(
    fleet: Written,
) -> None:
    """The answer has the new owner, the reason, the restore, and each member by its URL.

    The killed worker is the leader, whose ledger is lost with it.
    """
    leads = {
        name: json.loads(fleet.get(name, "/assignor/status")[1])["is_leader"] for name in "abc"
    }
    leader = next(name for name in "abc" if leads[name])
    killed = fleet.workers[leader]
    place = f"{fleet.app_id}-totals-changelog/{min(killed.actives)}"
    was = fleet.url(leader).removeprefix("http://")
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    wait_until(
        lambda: f"moved from {was}" in fleet.why(place) and " is restored: " in fleet.why(place),
        lambda: fleet.why(place),
        seconds=120,
    )
    told = fleet.why(place)
    assert f"{was} left without handing over: killed, cut off" in told
    assert "session timeout of 15 s" in told
    assert "warm: the new owner had a copy of its table" in told
    assert "from its standby" in told
    assert f"{was} still there: it stays with {was}" in told
    status = {n: json.loads(fleet.get(n, "/assignor/status")[1]) for n in "abc" if n != leader}
    (follower,) = [name for name, said in status.items() if not said["is_leader"]]
    stopped = fleet.workers[follower]
    fleet.wait_until_safe(fleet.url(follower))
    place = f"{fleet.app_id}-totals-changelog/{min(stopped.actives)}"
    was = fleet.url(follower).removeprefix("http://")
    stopped.process.send_signal(signal.SIGTERM)
    assert stopped.process.wait(60) == 0
    wait_until(
        lambda: f"moved from {was}" in fleet.why(place), lambda: fleet.why(place), seconds=60
    )
    told = fleet.why(place)
    assert f"{was} stopped (SIGTERM) and handed over" in told
    assert "session timeout of" not in told
    assert told == fleet.why_by_files(place)
    assert "is not in the group" in fleet.why(fleet.url(follower))
