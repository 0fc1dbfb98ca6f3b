"""``faust-assigner doctor`` on real workers: a good group, then a worker and a topic with faults."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from faust_assigner.cli import main
from faust_assigner.testing.broker import broker_process
from tests.support.waiting import wait_until
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

PARTITIONS = 4


@dataclass
class Told(Measured):
    """Workers with individual environments."""

    told: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def launch(
        self, name: str, module: str, environment: Mapping[str, str], *, level: str
    ) -> subprocess.Popen[bytes]:
        """Add a ledger and this worker's own settings."""
        ledger = {"FAUST_ASSIGNER_LEDGER": str(self.folder / "ledger")}
        more = ledger | dict(self.told.get(name, {}))
        return super().launch(name, module, {**environment, **more}, level=level)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka])])
def fleet(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Told]:
    """Two well-configured workers that are ready."""
    app_id = f"doctor-{time.time_ns()}"
    with contextlib.ExitStack() as stack:
        broker: Any = (
            stack.enter_context(broker_process())
            if request.param == "embedded"
            else request.getfixturevalue("kafka")
        )
        fleet = Told(app_id, broker.bootstrap, PARTITIONS, tmp_path, session_s=30.0)
        stack.callback(fleet.stop)
        load = Load(broker.bootstrap, app_id, PARTITIONS)
        load.prepare(waiting=5)
        for name in ("a", "b"):
            fleet.start(name)
        ready(fleet, "ab")
        yield fleet


def ready(fleet: Told, names: str) -> None:
    """Wait until these workers are ready."""
    wait_until(
        lambda: all(fleet.status(name, "ready")[0] == 200 for name in names),
        lambda: str([fleet.status(name, "ready") for name in names]),
        seconds=150,
    )


def doctor(fleet: Told, *more: str) -> tuple[int, Any]:
    """(exit code, JSON)."""
    done = CliRunner().invoke(
        main, ["doctor", "--bootstrap", fleet.bootstrap, "--group", fleet.app_id, "--json", *more]
    )
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, json.loads(done.stdout)


def found(fleet: Told, *more: str) -> tuple[int, set[tuple[str, str]]]:
    """(exit code, codes with their levels)."""
    code, told = doctor(fleet, *more)
    return code, {(one["code"], one["level"]) for one in told["findings"]}


def set_policy(fleet: Told, policy: str) -> None:
    """Set the changelog's policy, as an operator who created it by hand."""
    topic = ConfigResource(
        ResourceType.TOPIC,
        f"{fleet.app_id}-totals-changelog",
        incremental_configs=[
            ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    for done in admin.incremental_alter_configs([topic]).values():
        done.result(30)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_a_good_group_passes_and_each_fault_is_found(fleet: Told) -> None:
    """Exit code 0; then 1, for a changelog deleted by age and a worker with other settings."""
    wait_until(lambda: found(fleet) == (0, set()), lambda: str(doctor(fleet)), seconds=90)
    set_policy(fleet, "delete")
    assert found(fleet) == (1, {("FA008", "error")})
    assert found(fleet, "--ignore", "FA008") == (0, set())
    fleet.told["c"] = {
        "FAUST_ASSIGNER_COOPERATIVE": "0",
        "FAUST_ASSIGNER_LEDGER": "off",
        "FAUST_ASSIGNER_RACK": "az-c",
    }
    fleet.start("c")
    ready(fleet, "abc")
    expected = {
        ("FA008", "error"),
        ("FA012", "warning"),
        ("FA014", "warning"),
        ("FA015", "warning"),
        ("FA017", "note"),
    }
    wait_until(lambda: found(fleet) == (1, expected), lambda: str(doctor(fleet)), seconds=90)
    told = doctor(fleet)[1]["findings"]
    by_code = {one["code"]: one for one in told if one["code"] != "FA015"}
    name = fleet.url("c").removeprefix("http://")
    assert by_code["FA014"]["subject"] == name
    assert by_code["FA014"]["text"] == "off: FAUST_ASSIGNER_COOPERATIVE"
    assert by_code["FA012"]["subject"] == "FAUST_ASSIGNER_COOPERATIVE"
    assert by_code["FA017"]["text"] == f"on {name}"
