"""The working directory of a command, and fake looks and sleeps that take no time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.cli import deploy_check, scaler, status
from faust_assigner.pipeline import console as pipeline_console
from faust_assigner.pipeline.simulate import console as simulate_console
from faust_assigner.pipeline.simulate import job as simulate_job
from faust_assigner.pipeline.weights import job as weights_job
from faust_assigner.status import collect
from tests.unit.cli.looks import KAFKA, Looks


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file of Kafka's client properties."""
    lines = [f"{name}={value}\n" for name, value in KAFKA.items()]
    (tmp_path / "client.properties").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> type[Looks]:
    """Replace the looks of every command."""
    for name, value in (("made", []), ("answers", []), ("ledger", ([], ())), ("asked", [])):
        monkeypatch.setattr(Looks, name, value, raising=False)
    monkeypatch.setattr(collect, "Looks", Looks)
    return Looks


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The commands' sleeps, which take no time, and a clock that advances by them."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    faked = SimpleNamespace(run=asyncio.run, sleep=sleep)
    for module in (status, deploy_check, scaler):
        monkeypatch.setattr(module, "asyncio", faked)
    clock = SimpleNamespace(monotonic=lambda: 100.0 + sum(found), time=time.time)
    monkeypatch.setattr(deploy_check, "time", clock)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests of ``weights`` and ``simulate``; reports are shown unchanged."""
    found: list[Any] = []

    def note(*request: Any) -> dict[str, Any]:
        found.append(request[0])
        return {"a": 1}

    monkeypatch.setattr(weights_job, "learn_here", note)
    monkeypatch.setattr(simulate_job, "simulate_here", note)
    monkeypatch.setattr(simulate_job, "what_if_here", lambda *asked: note(asked))
    for module, name in ((pipeline_console, "show_weights"), (simulate_console, "show_what_if")):
        monkeypatch.setattr(module, name, lambda report: print("shown", report))
    monkeypatch.setattr(simulate_console, "show_simulation", lambda *told: print("shown", *told))
    return found
