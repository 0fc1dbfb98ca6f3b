"""``faust-assigner status`` on real workers: at rest, frozen, during a rebalance, without leader."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
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

PARTITIONS, SESSION_S = 6, 60.0


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.kafka])],
)
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Measured]:
    """Three workers under load; the session is long, so that a frozen worker stays in the group."""
    folder, app_id = tmp_path_factory.mktemp("status"), f"status-{time.time_ns()}"
    with contextlib.ExitStack() as stack:
        broker: Any = (
            stack.enter_context(broker_process())
            if request.param == "embedded"
            else request.getfixturevalue("kafka")
        )
        fleet = Measured(app_id, broker.bootstrap, PARTITIONS, folder, session_s=SESSION_S)
        load = Load(broker.bootstrap, app_id, PARTITIONS)
        try:
            load.prepare(waiting=5)
            load.start()
            for name in ("a", "b", "c"):
                fleet.start(name)
            wait_until(
                lambda: all(fleet.status(name, "ready")[0] == 200 for name in "abc"), seconds=150
            )
            yield fleet
        finally:
            fleet.stop()
            load.stop()


def command(fleet: Measured, *more: str) -> str:
    """Return the command's output; assert exit code 0."""
    done = CliRunner().invoke(
        main, ["status", "--bootstrap", fleet.bootstrap, "--group", fleet.app_id, *more]
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def report(fleet: Measured, *more: str) -> Any:
    """Return the JSON report, which must match the schema."""
    found = json.loads(command(fleet, "--json", *more))
    jsonschema.validate(found, schema("status"))
    return found


def until(fleet: Measured, fact: Callable[[Any], bool], *more: str, seconds: float = 120.0) -> Any:
    """Return the first report for which ``fact`` is true."""
    last: list[Any] = []

    def look() -> bool:
        last[:] = [report(fleet, *more)]
        return fact(last[0])

    wait_until(look, lambda: json.dumps(last)[:4000], seconds=seconds)
    return last[0]


def is_at_rest(found: Any) -> bool:
    """All three workers are ready, no partition is moving, tables have standbys, lags are known."""
    totals = found["totals"]
    return bool(
        found["is_settled"]
        and totals["ready"] == totals["members"] == 3
        and totals["off_target"] == totals["warmup_partitions"] == 0
        and totals["standby_partitions"] == 2 * PARTITIONS
        and all(copy["is_measured"] for one in found["partitions"] for copy in one["copies"])
        and all(p["lag"] is not None for p in found["partitions"] if p["topic"].endswith("-orders"))
    )


def by_url(found: Any, fleet: Measured, name: str) -> Any:
    """Return a worker's row."""
    (row,) = [one for one in found["members"] if one["url"].rstrip("/") == fleet.url(name)]
    return row


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(280)
def test_a_group_is_shown_from_the_group_and_from_its_workers(fleet: Measured) -> None:
    """Owners, copies, lags and the decision; then a frozen worker, in the table output, too."""
    found = until(fleet, is_at_rest)
    owned = [p for p in found["partitions"] if p["topic"].endswith("-orders")]
    assert [p["partition"] for p in owned] == list(range(PARTITIONS))
    assert all(p["owner"] for p in owned)
    copies = [c for p in found["partitions"] if p["is_changelog"] for c in p["copies"]]
    assert len(copies) == 2 * PARTITIONS
    assert found["rounds"] == "cooperative"
    assert found["decision"]["leader"] in {one["name"] for one in found["members"]}
    assert found["decision"]["tasks"] == PARTITIONS
    assert found["differences"] == []
    frozen = next(name for name in "abc" if not by_url(found, fleet, name)["is_leader"])
    fleet.workers[frozen].process.send_signal(signal.SIGSTOP)
    try:
        found = until(
            fleet, lambda found: found["totals"]["answered"] == 2, "--deadline", "2", seconds=60
        )
        row = by_url(found, fleet, frozen)
        assert (row["answer"], row["ready"]) == ("silent", None)
        assert row["actives"]
        assert row["version"]
        assert [wait["member"] for wait in found["waits"] if wait["kind"] == "answer"] == [
            row["name"]
        ]
        # Line breaks depend on ports and names.
        shown = " ".join(command(fleet, "--deadline", "1", "--partitions").split())
        assert f"group {fleet.app_id}: Stable, 3 members" in shown
        assert "silent" in shown
        assert "removes it after its session timeout (60 s)" in shown
    finally:
        fleet.workers[frozen].process.send_signal(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_a_rebalance_that_waits_for_a_frozen_worker_names_it(fleet: Measured) -> None:
    """The coordinator shows no assignments then; any reachable worker knows the other workers."""
    found = until(fleet, is_at_rest)
    frozen = next(name for name in "abc" if not by_url(found, fleet, name)["is_leader"])
    known = next(name for name in "abc" if name != frozen)
    fleet.workers[frozen].process.send_signal(signal.SIGSTOP)
    try:
        fleet.start("d")
        found = until(
            fleet,
            lambda found: not found["is_settled"] and found["totals"]["answered"] >= 2,
            "--worker",
            fleet.url(known),
            "--deadline",
            "2",
        )
        (wait,) = [wait for wait in found["waits"] if wait["kind"] == "rebalance"]
        row = by_url(found, fleet, frozen)
        assert f"{row['name']} (does not answer)" in wait["text"]
        assert row["answer"] == "silent"
        assert row["actives"], "as a peer knows them"
        owned = [p for p in found["partitions"] if p["topic"].endswith("-orders") and p["owner"]]
        assert len(owned) == PARTITIONS
        assert found["decision"]["tasks"] == PARTITIONS
    finally:
        fleet.workers[frozen].process.send_signal(signal.SIGCONT)
        fleet.terminate("d", timeout_s=60)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_the_last_decision_is_told_when_its_leader_is_dead(fleet: Measured) -> None:
    """The group's record still has the dead leader, and the other workers have the decision."""
    workers = len(fleet.living())
    found = until(
        fleet,
        lambda found: (
            found["is_settled"]
            and found["totals"]["ready"] == found["totals"]["members"] == workers
        ),
    )
    leader = next(name for name in fleet.workers if by_url(found, fleet, name)["is_leader"])
    os.kill(fleet.workers[leader].process.pid, signal.SIGKILL)
    fleet.workers[leader].process.wait()
    after = report(fleet)
    assert after["decision"] == found["decision"]
    row = by_url(after, fleet, leader)
    assert (row["answer"], row["is_leader"]) == ("unreachable", True)
    assert "cannot be reached" in row["detail"]
