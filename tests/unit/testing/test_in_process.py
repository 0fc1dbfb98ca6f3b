"""A worker in the test's process with an app that fails before its loop runs."""

from __future__ import annotations

from pathlib import Path
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
