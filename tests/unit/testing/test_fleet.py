"""A fleet's events and records, with workers that only record their calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.testing import apps, log, turns
from faust_assigner.testing import fleet as fleet_module
from faust_assigner.testing.fleet import Fleet
from faust_assigner.testing.reporting import Part
from tests.unit.testing.made import Noted, Process, made, nothing, own

# -- events ---------------------------------------------------------------------------------------


def test_a_worker_is_started_with_the_tests_settings_over_the_kits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker has its own folder and client id; a static member's instance id is its name."""
    fleet, calls = made(tmp_path, static=True, settings={"broker_session_timeout": 9.0})
    created: list[Any] = []

    class Made(Noted):
        def __init__(self, name: str, *given: Any) -> None:
            super().__init__(name, calls)
            created.append((name, *given[:3]))
            self.cut_off = given[3]

    monkeypatch.setattr(fleet_module, "InProcess", Made)
    fleet._faults.dead |= {"w1", "w2"}
    fleet._launch("w1")
    assert fleet._faults.dead == {"w2"}
    first: Any = fleet.workers["w1"]
    fleet._launch("w1")
    assert fleet.workers == {"w1": first}
    assert created == [("w1", nothing, tmp_path / "w1", fleet.clock)]
    wanted = {
        **apps.SETTINGS,
        "broker": "kafka://a:1",
        "broker_consumer": "kafka://a:1",
        "broker_producer": "kafka://a:1",
        "broker_client_id": "w1",
        "canonical_url": "http://w1:6066",
        "datadir": str(tmp_path / "w1" / "data"),
        "consumer_group_instance_id": "w1",
        "broker_session_timeout": 9.0,
    }
    assert calls == 2 * [("start", "w1", wanted)]
    first.cut_off()
    assert fleet._faults.dead == {"w1", "w2"}


def test_a_process_keeps_the_report_of_its_former_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former cold moves still count; a new worker has no report."""
    fleet, _ = made(tmp_path)
    fleet.app, fleet.processes = "shop.app", True
    launched: list[Any] = []

    class Launched(Process):
        @classmethod
        def launch(cls, name: str, *given: Any) -> Any:
            launched.append((name, *given[:2], given[2]["broker_client_id"], given[3]))
            return cls(name, state=given[3])

    monkeypatch.setattr(fleet_module, "Worker", Launched)
    fleet._launch("w1")
    state = fleet.workers["w1"].state
    state.cold = frozenset({Part("log", 0, 1)})
    fleet._launch("w1")
    assert launched == 2 * [("w1", tmp_path / "w1", "shop.app", "w1", state)]
    assert fleet.workers["w1"].state is state


def test_workers_have_numbers_in_the_order_of_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ended worker keeps its number."""
    fleet, _ = made(tmp_path, "w1", "w2")
    launched: list[str] = []
    monkeypatch.setattr(fleet, "_launch", launched.append)
    fleet.workers["w1"].kill()
    assert fleet.add() == "w3"
    assert launched == ["w3"]
    assert not fleet._is_at_rest


@pytest.mark.parametrize("event", ["stop", "kill", "freeze"])
def test_an_event_hits_the_named_worker_alone(tmp_path: Path, event: str) -> None:
    """The error for an unknown name lists the names."""
    fleet, calls = made(tmp_path, "w1", "w2")
    getattr(fleet, event)("w2")
    assert calls == [(event, "w2")]
    assert not fleet._is_at_rest
    with pytest.raises(AssertionError, match=r"no worker 'w9'; the workers: \['w1', 'w2'\]"):
        getattr(fleet, event)("w9")


@pytest.mark.parametrize(
    ("before", "wanted"), [("freeze", "thaw"), ("kill", "launch"), ("stop", "launch"), ("", "")]
)
def test_a_worker_is_brought_back_as_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, wanted: str
) -> None:
    """A running worker is left unchanged."""
    fleet, calls = made(tmp_path, "w1", "w2")
    monkeypatch.setattr(fleet, "_launch", lambda name: calls.append(("launch", name)))
    if before:
        getattr(fleet, before)("w2")
    calls.clear()
    fleet._is_at_rest = True
    fleet.bring_back("w2")
    assert calls == ([(wanted, "w2")] if wanted else [])
    assert not fleet._is_at_rest


def test_moves_count_from_the_first_event_after_a_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second event before the rest belongs to the first; the first resets the cold moves."""
    fleet, _ = made(tmp_path, "w1", "w2", "w3")
    own(fleet, "w1", 0, 1, cold=(5,))
    own(fleet, "w2", 2)
    own(fleet, "w3", cold=(6,))
    fleet.kill("w1")
    assert [worker.state.cold for worker in fleet.workers.values()] == [frozenset()] * 3
    own(fleet, "w1")
    own(fleet, "w2", 0, 2, cold=(0,))
    own(fleet, "w3", 1)
    fleet.stop("w3")
    own(fleet, "w3")
    own(fleet, "w2", 0, 1, 2, cold=(0, 1))
    settled: list[None] = []

    def settle(self: Fleet) -> None:
        settled.append(None)
        self._is_at_rest = True

    monkeypatch.setattr(Fleet, "settle", settle)
    monkeypatch.setattr(log, "ends", lambda broker, topic: {0: 3, 1: 0})
    assert fleet.moves() == {(1, 0): ("w1", "w2"), (1, 1): ("w1", "w2")}
    assert fleet.cold_moves() == [(Part("log", 0, 1), "w2")]
    assert len(settled) == 1
    fleet.assert_moves(max=2, min=2)
    text = "2 tasks moved, expected 0 to 1: task 1-0 from w1 to w2, task 1-1 from w1 to w2"
    with pytest.raises(AssertionError, match=text):
        fleet.assert_moves(max=1)
    fleet._before = {}
    fleet.assert_moves(max=0)
    fleet._before = {(1, 0): "w1", (1, 1): "w1"}
    with pytest.raises(AssertionError, match="2 tasks moved, expected 3 to 9"):
        fleet.assert_moves(max=9, min=3)


@pytest.mark.parametrize("event", ["stop", "kill", "freeze", "bring_back"])
def test_moves_count_from_the_owners_before_the_event(tmp_path: Path, event: str) -> None:
    """The event clears the worker's partitions and cold moves of its own."""
    fleet, _ = made(tmp_path, "w1", "w2")
    own(fleet, "w1", 0, 3)
    own(fleet, "w2", 1)
    worker: Any = fleet.workers["w1"]
    if event == "bring_back":
        fleet.workers["w1"].freeze()
        fleet.owners = lambda: {(1, 0): "w9"}  # type: ignore[method-assign]
    for name in ("stop", "kill", "freeze", "thaw"):
        setattr(worker, name, lambda: own(fleet, "w1", 7, cold=(5,)))
    getattr(fleet, event)("w1")
    owners = {(1, 0): "w1", (1, 3): "w1", (1, 1): "w2"}
    assert fleet._before == ({(1, 0): "w9"} if event == "bring_back" else owners)
    assert worker.state.cold == {Part("log", 5, 1)}


def test_a_frozen_worker_owns_nothing(tmp_path: Path) -> None:
    """A frozen worker's report is outdated."""
    fleet, _ = made(tmp_path, "w1", "w2")
    own(fleet, "w1", 0)
    own(fleet, "w2", 1)
    fleet.freeze("w1")
    assert fleet.owners() == {(1, 1): "w2"}


@pytest.mark.parametrize(("processes", "calls"), [(False, "stop"), (True, "kill")])
def test_at_the_end_living_workers_are_thawed_and_stopped_or_killed(
    tmp_path: Path, processes: bool, calls: str
) -> None:
    """All workers are thawed before the first ends; an ended worker is left unchanged."""
    fleet, noted = made(tmp_path, "w1", "w2", "w3")
    fleet.processes = processes
    fleet.workers["w2"].is_alive = False  # type: ignore[attr-defined]
    fleet.freeze("w3")
    noted.clear()
    fleet.close()
    assert noted == [
        *(("thaw", name) for name in ("w3", "w2", "w1")),
        *((calls, name) for name in ("w3", "w1")),
    ]
    noted.clear()
    fleet.close()
    assert [call for call in noted if call[0] != "thaw"] == []


def test_processes_need_the_path_of_an_app(tmp_path: Path) -> None:
    """A process cannot get a function; a path is checked at once."""
    with pytest.raises(apps.AppNotFound, match="needs the path of the app"):
        Fleet(nothing, tmp_path, processes=True)
    with pytest.raises(apps.AppNotFound, match="no module 'nowhere_at_all'"):
        Fleet("nowhere_at_all:app", tmp_path)


def test_a_variable_of_the_caller_stays_and_a_missing_one_is_set_for_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule also holds after a failure."""
    monkeypatch.setenv("KIT_SET", "own")
    monkeypatch.delenv("KIT_UNSET", raising=False)
    monkeypatch.setattr(apps, "ENVIRONMENT", {"KIT_SET": "kit", "KIT_UNSET": "kit"})
    seen: list[str] = []

    def fails() -> None:
        with apps.environment():
            seen.extend((os.environ["KIT_SET"], os.environ["KIT_UNSET"]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert seen == ["own", "kit"]
    assert os.environ["KIT_SET"] == "own"
    assert "KIT_UNSET" not in os.environ


# -- records --------------------------------------------------------------------------------------


def test_a_record_is_written_at_the_fleets_time_or_at_the_given_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time zero is valid; in-process workers are awaited after each record, or once for many."""
    fleet, _ = made(tmp_path, "w1")
    events: list[Any] = []
    monkeypatch.setattr(log, "append", lambda broker, *given: events.append(given))
    monkeypatch.setattr(turns, "run_until_idle", lambda *_: events.append("idle"))
    now = fleet.clock.time()
    fleet.send("t", "v", key="k", partition=3)
    fleet.send("t", "v", at=0.0)
    fleet.send_all("u", [("a", 1), ("b", 2)])
    assert events == [
        ("t", "k", "v", now, 3),
        "idle",
        ("t", None, "v", 0.0, None),
        "idle",
        ("u", "a", 1, now, None),
        ("u", "b", 2, now, None),
        "idle",
    ]
    events.clear()
    fleet.processes = True
    fleet.send("t", "v", at=1.0)
    fleet.send_all("t", [("a", 1)])
    assert events == [("t", None, "v", 1.0, None), ("t", "a", 1, now, None)]


def test_a_table_has_the_last_value_of_each_key_of_its_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last offset decides; window keys are hashable, and re-added keys are last."""
    fleet, _ = made(tmp_path, "w1")
    fleet.app_id = "shop"
    rows = [
        log.Record("a", 1, 9.0, 0, 0),
        log.Record(["k", [1.0, 2.0]], 7, 1.0, 0, 1),
        log.Record("a", 2, 5.0, 0, 2),
        log.Record("b", 3, 1.0, 1, 0),
        log.Record("b", None, 2.0, 1, 1),
        log.Record("c", 4, 2.0, 1, 2),
        log.Record("c", None, 3.0, 1, 3),
        log.Record("c", 0, 4.0, 1, 4),
    ]
    asked: list[str] = []
    monkeypatch.setattr(
        fleet, "records", lambda topic: asked.append(topic) or sorted(rows, key=lambda r: r[2:])
    )
    found = fleet.table("counts")
    assert list(found.items()) == [(("k", (1.0, 2.0)), 7), ("a", 2), ("c", 0)]
    assert asked == ["shop-counts-changelog"]
