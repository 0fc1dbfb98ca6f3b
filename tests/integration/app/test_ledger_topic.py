"""Workers whose ledger is a topic, read from a running group after the writing worker was killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from faust_assigner.cli import main
from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.ledgers.rows import accepted_rows
from faust_assigner.testing.broker import broker_process
from faust_assigner.wire.worker_status import decode_ledger
from tests.integration.app.test_why import PARTITIONS, Written
from tests.support.waiting import wait_until
from tests.support.workers.load import Load


class WithoutDisk(Written):
    """Workers that write their ledgers to a topic."""

    def launch(
        self, name: str, module: str, environment: Mapping[str, str], *, level: str
    ) -> subprocess.Popen[bytes]:
        """Add a ledger in the topic."""
        more = {
            "FAUST_ASSIGNER_LEDGER": f"topic:{self.topic}",
            "FAUST_ASSIGNER_LEDGER_SAMPLE_S": "2",
        }
        return super().launch(name, module, {**environment, **more}, level=level)

    @property
    def topic(self) -> str:
        """The topic of all workers."""
        return f"{self.app_id}-ledger"

    @property
    def ledger(self) -> str:
        """The topic in the form that commands take."""
        return f"kafka://{self.bootstrap}/{self.topic}"

    def leader(self) -> str:
        """The worker whose own lines in memory have the newest decision."""
        newest: dict[str, str] = {}
        for name, worker in self.workers.items():
            if worker.process.poll() is None:
                for line in decode_ledger(self.get(name, "/assignor/ledger")[1].encode()).lines:
                    row = json.loads(line)
                    if row["table"] == "decision":
                        newest[name] = row["ts"]
        return max(newest, key=lambda name: newest[name])

    def why_by_topic(self, subject: str) -> str:
        """Return the command's output for the topic alone."""
        done = CliRunner().invoke(main, ["why", subject, "--ledger", self.ledger])
        return " ".join(done.output.split())


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka])])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WithoutDisk]:
    """Three workers under a load."""
    app_id = f"ledger-topic-{time.time_ns()}"
    with contextlib.ExitStack() as stack:
        broker: Any = (
            stack.enter_context(broker_process())
            if request.param == "embedded"
            else request.getfixturevalue("kafka")
        )
        fleet = WithoutDisk(app_id, broker.bootstrap, PARTITIONS, tmp_path, session_s=15.0)
        stack.callback(fleet.stop)
        load = Load(broker.bootstrap, app_id, PARTITIONS, orders_per_s=5.0)
        load.prepare(waiting=5)
        stack.callback(load.stop)
        load.start()
        for name in ("a", "b", "c"):
            fleet.start(name)
        fleet.wait_until_safe("--rolling", "--members", "3")
        yield fleet


def topic_config(fleet: WithoutDisk) -> dict[str, str]:
    """Return the configs of the ledger's topic from the broker."""
    topic = ConfigResource(ResourceType.TOPIC, fleet.topic)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    [found] = admin.describe_configs([topic]).values()
    return {name: entry.value for name, entry in found.result(30).items()}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(500)
def test_the_ledger_of_a_leader_that_was_killed_is_in_the_topic(fleet: WithoutDisk) -> None:
    """The topic has the killed leader's decisions; the group's commands find all of them there."""
    config = topic_config(fleet)
    assert (config["retention.ms"], config["retention.bytes"]) == ("2592000000", str(64 * 2**20))
    name = fleet.leader()
    killed, was = fleet.workers[name], fleet.url(name).removeprefix("http://")
    place = f"{fleet.app_id}-totals-changelog/{min(killed.actives)}"
    told = fleet.why(place)
    assert was in told, told
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    wait_until(
        lambda: f"moved from {was}" in fleet.why(place) and " is restored: " in fleet.why(place),
        lambda: fleet.why(place),
        seconds=120,
    )
    told = fleet.why(place)
    assert f"{was} left without handing over: killed, cut off" in told
    assert f"{was} still there: it stays with {was}" in told
    assert told == fleet.why_by_topic(place)
    fleet.wait_until_safe("--rolling", "--members", "2", "--ledger", fleet.ledger)
    where = ("--bootstrap", fleet.bootstrap, "--group", fleet.app_id)
    done = CliRunner().invoke(main, ["doctor", *where, "--json"])
    assert "FA017" not in {one["code"] for one in json.loads(done.stdout)["findings"]}
    refused = Refused(keep=5)
    rows = list(accepted_rows([fleet.ledger], refused))
    assert (refused.lines, refused.kept) == (0, [])
    assert {row.table for row in rows} == set(TABLES)
    assert {row.values["group_id"] for row in rows} == {fleet.app_id}
    assert not list(fleet.folder.rglob("*.jsonl*")), "nothing on a disk"
    stopped = next(name for name, one in fleet.workers.items() if one.process.poll() is None)
    fleet.workers[stopped].process.send_signal(signal.SIGTERM)
    assert fleet.workers[stopped].process.wait(60) == 0
    assert "cannot be written" not in (fleet.folder / stopped / "log").read_text()
