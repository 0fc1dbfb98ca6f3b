"""``faust-assigner deploy-check`` on real workers: one worker may stop, two may not."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from docs.generate.schemas import schema
from faust_assigner.cli import main
from faust_assigner.testing.broker import broker_process
from tests.support.waiting import wait_until
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

#: Records: above a partition's records during a round, so that standbys can count as current.
PARTITIONS, ACCEPTABLE = 6, 160
#: The file of ``held_copies.py``.
HOLD = "hold-copies"


@dataclass
class Holding(Measured):
    """Workers with a ledger, whose standbys can be held back."""

    module: str = "tests.support.workers.held_copies"

    def launch(
        self, name: str, module: str, environment: Mapping[str, str], *, level: str
    ) -> subprocess.Popen[bytes]:
        """Add a ledger and a small acceptable lag."""
        more = {
            "FAUST_ASSIGNER_LEDGER": str(self.folder / "ledger"),
            "FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG": str(ACCEPTABLE),
        }
        return super().launch(name, module, {**environment, **more}, level=level)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka])])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holding]:
    """Three workers under a load."""
    app_id = f"deploy-{time.time_ns()}"
    with contextlib.ExitStack() as stack:
        broker: Any = (
            stack.enter_context(broker_process())
            if request.param == "embedded"
            else request.getfixturevalue("kafka")
        )
        fleet = Holding(app_id, broker.bootstrap, PARTITIONS, tmp_path, session_s=30.0)
        stack.callback(fleet.stop)
        load = Load(broker.bootstrap, app_id, PARTITIONS, orders_per_s=10.0)
        load.prepare(waiting=5)
        stack.callback(load.stop)
        load.start()
        for name in ("a", "b", "c"):
            fleet.start(name)
        yield fleet


def check(fleet: Holding, *more: str) -> tuple[int, Any]:
    """Return the exit code and the JSON, which must match the schema."""
    done = CliRunner().invoke(
        main,
        [
            *("deploy-check", "--bootstrap", fleet.bootstrap, "--group", fleet.app_id),
            *("--json", "--ledger", str(fleet.folder / "ledger"), *more),
        ],
    )
    assert done.stdout, done.output
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("deploy"))
    return done.exit_code, found


def until(fleet: Holding, code: int, fact: Callable[[Any], bool], *more: str) -> Any:
    """Wait for an answer with that exit code for which ``fact`` is true, and return it."""
    last: list[Any] = []

    def look() -> bool:
        found_code, found = check(fleet, *more)
        last[:] = [found]
        return found_code == code and fact(found)

    wait_until(look, lambda: json.dumps(last)[:4000], seconds=120)
    return last[0]


def status(fleet: Holding) -> Any:
    """Return the report of faust-assigner status."""
    done = CliRunner().invoke(
        main, ["status", "--bootstrap", fleet.bootstrap, "--group", fleet.app_id, "--json"]
    )
    return json.loads(done.stdout)


def owners(fleet: Holding) -> dict[int, str]:
    """Return partition of the orders -> URL of its owner, as the group reports it."""
    report = status(fleet)
    url = {member["name"]: member["url"].rstrip("/") for member in report["members"]}
    return {
        one["partition"]: url[one["owner"]]
        for one in report["partitions"]
        if one["topic"].endswith("-orders") and one["owner"] in url
    }


def come_back(fleet: Holding, name: str) -> None:
    """Restart a worker: it takes tasks over, and the ledger gets recoveries."""
    wait_until(lambda: len(set(owners(fleet).values())) == len(fleet.workers), seconds=120)
    fleet.workers[name].process.send_signal(signal.SIGTERM)
    assert fleet.workers[name].process.wait(60) == 0
    fleet.start(name)
    wait_until(lambda: fleet.url(name) in owners(fleet).values(), seconds=120)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_the_worker_called_safe_stops_without_a_cold_move_and_the_others_are_refused(
    fleet: Holding,
) -> None:
    """The copies on c are held, so a and b are refused; c stops as predicted."""
    done = CliRunner().invoke(
        main,
        [
            *("deploy-check", "--bootstrap", fleet.bootstrap, "--group", fleet.app_id),
            *("--rolling", "--members", "3", "--wait", "150", "--every", "1"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("SAFE"), done.output
    come_back(fleet, "c")
    (fleet.folder / "c" / HOLD).touch()
    refused = {}
    for name in "ab":
        refused[name] = until(fleet, 1, lambda found: found["behind"] > 0, fleet.url(name))
        (failed,) = [
            one for one in refused[name]["checks"] if one["name"].startswith("every task has")
        ]
        assert failed["state"] == "failed"
        assert "records behind" in failed["text"]
        behind = [move for move in refused[name]["steps"][0]["moves"] if move["is_behind"]]
        assert all(move["records"] > ACCEPTABLE for move in behind)
    safe = until(fleet, 0, lambda found: found["moves"] == 2, fleet.url("c"), "--max-pause", "60")
    assert (safe["cold"], safe["behind"]) == (0, 0)
    assert safe["pause_s"] is not None, "the ledger has recoveries"
    before, session = owners(fleet), status(fleet)["decision"]["generation"]
    fleet.workers["c"].process.send_signal(signal.SIGTERM)
    assert fleet.workers["c"].process.wait(60) == 0
    wait_until(lambda: len(set(owners(fleet).values())) == 2, seconds=60)
    after = owners(fleet)
    url = {row["name"]: row["url"].rstrip("/") for row in status(fleet)["members"]}
    predicted = {
        move["partition"]: url[move["to"]]
        for move in safe["steps"][0]["moves"]
        if any(topic.endswith("-orders") for topic in move["topics"])
    }
    moved = {number: owner for number, owner in after.items() if before[number] != owner}
    assert moved == predicted
    last = status(fleet)["decision"]
    assert last["generation"] > session
    assert last["cold"] == 0
