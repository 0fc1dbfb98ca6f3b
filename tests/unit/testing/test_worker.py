"""A fleet's worker without its process: its journal after a failed start, and a fleet at rest."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import fleet as fleet_module
from faust_assigner.testing import worker
from faust_assigner.testing.fleet import Fleet
from faust_assigner.testing.reporting import Part


class Started:
    """Record the calls of the process on its app."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.error: Exception | None = None

    @contextlib.contextmanager
    def configured(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """The settings hold until the app is finalized."""
        self.events.append(settings)
        yield
        self.events.append("configured")

    def load(self, name: str) -> Any:
        """Return an app by its name."""
        self.events.append(name)
        return self

    def finalize(self) -> None:
        """Fail if the test sets an error."""
        if self.error is not None:
            raise self.error
        self.events.append("finalized")

    def main(self) -> None:
        """Record the command line seen by Faust."""
        self.events.append(sys.argv)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    """A process with a journal, settings and an app."""
    made = Started()
    monkeypatch.setenv("KIT_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setenv("KIT_SETTINGS", '{"store": "memory://"}')
    monkeypatch.setenv("KIT_APP", "shop:app")
    monkeypatch.setattr(worker.apps, "configured", made.configured)
    monkeypatch.setattr(worker.apps, "load", made.load)
    monkeypatch.setattr(worker, "report", lambda app, tell: tell({"kind": "reports"}))
    monkeypatch.setattr(worker, "_end_with_parent", lambda: None)
    monkeypatch.setattr(sys, "argv", ["pytest"])
    return made


def journal(folder: Path) -> list[dict[str, Any]]:
    """Return the journal's rows."""
    return [json.loads(line) for line in (folder / "journal").read_bytes().splitlines()]


def test_a_worker_runs_its_app_with_the_settings_of_the_test(
    started: Started, tmp_path: Path
) -> None:
    """The worker reports its rounds from the start."""
    worker.main()
    command = ["faust", "worker", "-l", "info", "--without-web"]
    assert started.events == [
        {"store": "memory://"},
        "shop:app",
        "finalized",
        "configured",
        command,
    ]
    assert journal(tmp_path) == [{"kind": "reports"}]


@pytest.mark.parametrize(
    ("error", "text"), [(ValueError("no such table"), "no such table"), (KeyError(), "KeyError()")]
)
def test_a_worker_that_cannot_start_writes_why_into_its_journal_and_fails(
    started: Started, tmp_path: Path, error: Exception, text: str
) -> None:
    """The rows of its former life stay."""
    (tmp_path / "journal").write_bytes(b'{"kind": "ready"}\n')
    started.error = error
    with pytest.raises(type(error)):
        worker.main()
    assert journal(tmp_path) == [{"kind": "ready"}, {"kind": "failed", "error": text}]
    assert sys.argv == ["pytest"], "it does not run"


# -- a fleet at rest


def resting(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Return a fleet in a round, which ends with two cold partitions, one with rows."""
    made = object.__new__(Fleet)
    state = SimpleNamespace(cold=frozenset({Part("log", 7, 1)}))
    made.workers = {"w0": SimpleNamespace(name="w0", state=state)}  # type: ignore[dict-item]
    made.broker = "127.0.0.1:1"
    made._is_at_rest = False
    made._before = {}

    def settle(self: Fleet, *_: Any, **__: Any) -> Fleet:
        self._is_at_rest = True
        state.cold = frozenset({Part("log", 0, 1), Part("log", 1, 1)})
        return self

    monkeypatch.setattr(Fleet, "settle", settle)
    monkeypatch.setattr(fleet_module.log, "ends", lambda broker, topic: {0: 0, 1: 5, 7: 9})
    return made


def test_cold_moves_amid_a_round_are_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition without rows is never cold; a fleet at rest needs no wait."""
    fleet = resting(monkeypatch)
    assert fleet.cold_moves() == [(Part("log", 1, 1), "w0")]
    monkeypatch.setattr(Fleet, "settle", lambda self: pytest.fail("at rest"))
    assert fleet.cold_moves() == [(Part("log", 1, 1), "w0")]
    with pytest.raises(AssertionError, match="1 cold moves: log-1 to w0"):
        fleet.assert_no_cold_moves()


def test_moves_amid_a_round_are_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owners are read after the fleet is at rest."""
    fleet = resting(monkeypatch)
    seen = []
    monkeypatch.setattr(Fleet, "owners", lambda self: seen.append(self._is_at_rest) or {})
    assert not fleet.moves()
    assert seen == [True]


def test_each_worker_ends_even_if_another_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker ends too; the failure is raised afterwards."""
    fleet = object.__new__(Fleet)
    fleet.processes, fleet._stack = False, contextlib.ExitStack()
    events: list[str] = []
    fleet._stack.callback(events.append, "broker")

    def worker(name: str) -> Any:
        def stop() -> None:
            events.append(name)
            if name == "w2":
                raise AssertionError("waited 60 s for: the worker w2 to stop")

        return SimpleNamespace(alive=True, thaw=lambda: events.append("thaw"), stop=stop)

    fleet.workers = {name: worker(name) for name in ("w1", "w2", "w3")}
    with pytest.raises(AssertionError, match="w2 to stop"):
        fleet.close()
    assert events == ["thaw"] * 3 + ["w3", "w2", "w1", "broker"]


def test_a_fleet_that_does_not_come_to_rest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ``with`` block never starts, so its exit would not run."""
    fleet = object.__new__(Fleet)
    closed: list[bool] = []

    def fails(self: Fleet) -> None:
        raise AssertionError("waited 120 s for: the group to be at rest")

    monkeypatch.setattr(Fleet, "start", fails)
    monkeypatch.setattr(Fleet, "close", lambda self: closed.append(True))
    with pytest.raises(AssertionError, match="at rest"), fleet:
        pytest.fail("it has not started")
    assert closed == [True]
