"""Requests to workers that run as processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import processes
from faust_assigner.testing.processes import ASK_AGAIN_S, Processes


def test_an_earlier_answer_of_a_worker_is_not_taken_for_the_present_one(tmp_path: Path) -> None:
    """The old answer's file is removed before the request; ended workers get no request."""
    answer = tmp_path / "journal.totals"
    count = iter(range(9))

    def tell(_: int) -> None:
        answer.write_text(json.dumps(next(count)))

    worker = SimpleNamespace(
        name="w",
        folder=tmp_path,
        alive=True,
        process=SimpleNamespace(send_signal=tell),
        log_tail=lambda: "",
    )
    fleet: Any = SimpleNamespace(living=lambda: [worker])
    found = [list(Processes.answers(fleet, "totals", 10.0)) for _ in range(3)]
    assert found == [[0], [1], [2]]


@pytest.mark.parametrize(("dies_at", "ended"), [(None, 10.0), (0.9, 1.0)])
def test_a_worker_without_an_answer_is_asked_again_until_the_deadline_or_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: float | None, ended: float
) -> None:
    """The error has the worker's name and the end of its log."""
    now, asked = [100.0], list[Any]()

    def sleep(seconds: float) -> None:
        now[0] += 0.25
        if dies_at is not None and now[0] - 100.0 >= dies_at:
            worker.alive = False

    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(processes.time, "sleep", sleep)
    process = SimpleNamespace(send_signal=lambda number: asked.append((now[0] - 100.0, number)))
    worker = SimpleNamespace(
        name="w", folder=tmp_path, alive=True, process=process, log_tail=lambda: "its end"
    )
    fleet: Any = SimpleNamespace(living=lambda: [worker])
    with pytest.raises(TimeoutError, match="w did not write its totals\nits end"):
        list(Processes.answers(fleet, "totals", 10.0))
    assert ended <= now[0] - 100.0 <= ended + 0.25
    times = [at for at, _ in asked]
    assert times == [n * ASK_AGAIN_S for n in range(len(times))]
    assert {number for _, number in asked} == {signal.SIGUSR1}
    assert times[-1] > ended - ASK_AGAIN_S - 0.25


def test_the_journal_of_an_ended_worker_is_read_too() -> None:
    """Its last lines came after the last look; the running workers are returned by name."""
    read = list[str]()

    def worker(name: str, alive: bool) -> Any:
        return SimpleNamespace(name=name, alive=alive, read_journal=lambda: read.append(name))

    workers = {name: worker(name, name != "b") for name in "cba"}
    fleet: Any = SimpleNamespace(workers=workers)
    assert [one.name for one in Processes.living(fleet)] == ["a", "c"]
    assert sorted(read) == ["a", "b", "c"]
