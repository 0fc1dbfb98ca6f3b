"""Real workers with Faust's Prometheus monitor: figures and probes over HTTP, healthy and frozen."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.app.metrics.figure import PREFIX
from faust_assigner.app.metrics.figures import FIGURES, TRIGGERS
from faust_assigner.testing.broker import broker_process
from tests.support.waiting import wait_until
from tests.support.workers.fleet import Fleet
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

PARTITIONS, SESSION_S = 4, 6.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """Two workers under a load, each with copies of the other's tables."""
    folder, app_id = tmp_path_factory.mktemp("measured"), f"measured-{time.time_ns()}"
    with broker_process() as broker:
        fleet = Measured(app_id, broker.bootstrap, PARTITIONS, folder, session_s=SESSION_S)
        fleet.broker = broker
        load = Load(broker.bootstrap, app_id, PARTITIONS)
        try:
            load.prepare(waiting=5)
            load.start()
            fleet.start("a")
            fleet.start("b")
            yield fleet
        finally:
            fleet.stop()
            load.stop()


def at_rest(fleet: Measured) -> None:
    """Wait until both workers are ready and keep standbys of each other's tables."""

    def is_at_rest() -> bool:
        return all(
            fleet.status(name, "ready")[0] == 200
            and fleet.value(name, "standby_partitions") > 0
            and fleet.scrape(name).get("standby_lag_records")
            for name in ("a", "b")
        )

    wait_until(is_at_rest, seconds=90)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(150)
def test_a_real_worker_shows_its_figures_on_faust_s_page(fleet: Measured) -> None:
    """Every metric by name; partitions have one owner; standbys have a lag; probes answer 200."""
    at_rest(fleet)
    both = {name: fleet.scrape(name) for name in ("a", "b")}
    for name, found in both.items():
        _, text = fleet.get(name, "/metrics")
        assert {f"# TYPE {figure.exported} {figure.kind}" for figure in FIGURES} <= set(
            text.splitlines()
        )
        assert found["ready"] == {(): 1.0}
        assert found["rounds_led_total"].keys() == {(trigger,) for trigger in TRIGGERS}
        assert found["round_seconds_count"][()] >= 1
        assert found["disk_free_bytes"][()] > 0
        assert all(lag < 1000 for lag in found["standby_lag_records"].values())
        assert fleet.status(name, "live") == (200, [])
    owned = [place for found in both.values() for place in found["owned_changelog_partition"]]
    assert len(owned) == len(set(owned)) == 2 * PARTITIONS
    copies = {place for found in both.values() for place in found["standby_lag_records"]}
    assert copies == set(owned)
    assert sorted(found["leads"][()] for found in both.values()) == [0.0, 1.0]
    assert [found["members"] for found in both.values() if "members" in found] == [{(): 2.0}]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(200)
def test_a_frozen_worker_is_seen_by_the_others_and_says_so_when_it_is_back(fleet: Measured) -> None:
    """Its probes fail; the leader counts a leave; on return it counts a fence and is ready."""
    at_rest(fleet)
    leader = next(name for name in ("a", "b") if fleet.value(name, "leads") == 1.0)
    other = "b" if leader == "a" else "a"
    left = fleet.value(leader, "rounds_led_total", "leave")
    fleet.workers[other].process.send_signal(signal.SIGSTOP)
    try:
        assert fleet.status(other, "live") == (0, [])
        wait_until(lambda: fleet.value(leader, "rounds_led_total", "leave") == left + 1, seconds=60)
        wait_until(lambda: fleet.value(leader, "standby_partitions") == 0)
        assert "standby_lag_records" not in fleet.scrape(leader), "labels of copies that went"
    finally:
        fleet.workers[other].process.send_signal(signal.SIGCONT)
    wait_until(lambda: fleet.value(other, "fences_total") >= 1, seconds=60)
    at_rest(fleet)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(200)
def test_a_worker_whose_group_is_silent_is_live_and_not_ready(fleet: Measured) -> None:
    """The broker is frozen beyond a session; the probe has the reason; the worker recovers."""
    at_rest(fleet)
    fleet.broker.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: fleet.status("a", "ready")[0] == 503, seconds=60)
        assert "the group coordinator has answered no heartbeat" in fleet.status("a", "ready")[1][0]
        assert fleet.status("a", "live") == (200, [])
        wait_until(lambda: fleet.value("a", "ready") == 0.0)
        assert fleet.value("a", "standing_partitions", "group") > 0
    finally:
        fleet.broker.process.send_signal(signal.SIGCONT)
    at_rest(fleet)


def exported(fleet: Fleet, name: str) -> dict[str, list[Any]]:
    """Return the data points of our metrics in the worker's last whole export, by name without prefix."""
    written = Path(f"{fleet.workers[name].folder}/journal.metrics").read_text()
    whole = written.rpartition("\n")[0].splitlines()  # the worker may be writing the next line
    if not whole:
        return {}
    (resource,) = json.loads(whole[-1])["resource_metrics"]
    return {
        metric["name"].removeprefix(PREFIX): metric["data"]["data_points"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
        if metric["name"].startswith(PREFIX)
    }


def is_ready(fleet: Fleet, name: str) -> bool:
    """Return whether the worker's last export says that it is ready."""
    fleet.living()
    if fleet.workers[name].ready < 0:
        return False
    (ready,) = exported(fleet, name).get("ready", [{"value": 0}])
    return bool(ready["value"] == 1.0)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(200)
def test_a_real_worker_shows_its_figures_through_faust_s_opentelemetry_monitor(
    tmp_path: Path,
) -> None:
    """The SDK exports each figure that has a value, with the app's name."""
    with broker_process() as broker:
        app_id = f"told-{time.time_ns()}"
        Load(broker.bootstrap, app_id, PARTITIONS).prepare(waiting=5)
        told = Fleet(app_id, broker.bootstrap, PARTITIONS, tmp_path, session_s=SESSION_S)
        told.module = "tests.support.workers.with_otel"
        told.start("a")
        try:
            wait_until(lambda: is_ready(told, "a"), seconds=120)
            found = exported(told, "a")
        finally:
            told.terminate("a")
    always = {figure.name for figure in FIGURES if figure.starts} - {
        "round_answer_seconds",
        "round_seconds",
        "plan_seconds",
    }
    assert always <= found.keys()
    assert {point["attributes"]["app"] for points in found.values() for point in points} == {app_id}
    owned = {
        (point["attributes"]["topic"], point["attributes"]["partition"])
        for point in found["owned_changelog_partition"]
    }
    assert len(owned) == 2 * PARTITIONS
    assert {point["attributes"]["trigger"] for point in found["rounds_led"]} == set(TRIGGERS)
    assert [point["value"] for point in found["leads"]] == [1.0]
