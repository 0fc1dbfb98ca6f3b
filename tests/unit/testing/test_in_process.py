"""A worker in the test's process with an app that fails before its loop runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import in_process
from faust_assigner.testing.clock import Clock
from faust_assigner.testing.in_process import InProcess


def test_the_error_of_an_app_that_cannot_be_imported_is_raised_by_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start raises the error at once, and the thread has ended."""

    def broken(_: Any) -> Any:
        raise ImportError("no such app")

    monkeypatch.setattr(in_process, "PATIENCE_S", 10.0)
    monkeypatch.setattr(in_process.apps, "load_copy", broken)
    source: Any = None
    worker = InProcess("w", source, tmp_path, Clock(), lambda: None)
    for _ in range(2):
        with pytest.raises(ImportError, match="no such app"):
            worker.start({})
        assert worker._thread is None or not worker._thread.is_alive()
        assert worker.loop.is_closed()


def test_each_life_waits_for_its_own_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of the former life does not count, nor do its calls and its error."""
    seen: list[Any] = []

    def thread(**options: Any) -> Any:
        def start() -> None:
            seen.append((options["args"], options["name"], options["daemon"], made._up.is_set()))
            seen.append((made.error, made._calls, made.loop.is_closed()))
            made.loop.close()
            made.error, made._calls = None, 3
            made._up.set()

        return SimpleNamespace(start=start, is_alive=lambda: False, join=lambda seconds: None)

    monkeypatch.setattr(in_process.threading, "Thread", thread)
    source: Any = None
    made = InProcess("w", source, tmp_path, Clock(), lambda: None)
    for number in range(2):
        made.start({"n": number})
    told = ("worker-w", True, False)
    assert seen == [(({"n": 0},), *told), (None, 0, False), (({"n": 1},), *told), (None, 0, False)]
    monkeypatch.setattr(in_process, "PATIENCE_S", 0.0)
    monkeypatch.setattr(made._up, "set", lambda: None)
    with pytest.raises(AssertionError, match="waited 0 s for: the app of w to be imported"):
        made.start({})
