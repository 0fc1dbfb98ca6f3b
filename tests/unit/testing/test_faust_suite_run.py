"""The Python environment for Faust's own tests: its first build and its rebuilds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.testing import faust_suite_run


def test_a_failed_build_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run rebuilds the environment; a complete build is reused."""
    commands: list[str] = []
    fails = [True, False]

    def run(command: list[Any], *, check: bool) -> None:
        assert check
        commands.append("venv" if "venv" in command else "install")
        if commands[-1] == "venv":
            Path(command[-1]).mkdir(exist_ok=True)
        elif fails.pop(0):
            raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(subprocess.CalledProcessError):
        faust_suite_run.environment(tmp_path)
    for _ in range(2):
        faust_suite_run.environment(tmp_path)
    assert commands == ["venv", "install", "venv", "install"]
