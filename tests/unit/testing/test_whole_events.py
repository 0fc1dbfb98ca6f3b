"""Events of a fleet and of its processes with a second worker, other errors, and all their effects."""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import fleet as fleet_module
from faust_assigner.testing import in_process, log, processes
from faust_assigner.testing.fleet import Fleet
from faust_assigner.testing.processes import Processes, Worker
from faust_assigner.testing.reporting import Part, State
from tests.unit.testing.made import Noted, made, nothing, own
from tests.unit.testing.test_lives import Process, Rows, in_this_process
from tests.unit.testing.test_whole_starts import Stage, Turned


@pytest.mark.parametrize(
    ("static", "given", "instance"),
    [(False, None, None), (True, None, "w2"), (True, "own", "own"), (False, "own", "own")],
)
def test_an_instance_id_is_the_name_of_a_static_worker_or_the_tests_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    static: bool,
    given: str | None,
    instance: str | None,
) -> None:
    """A worker that is not static has no instance id, and a worker is known before it starts."""
    settings = {} if given is None else {"consumer_group_instance_id": given}
    fleet, calls = made(tmp_path, static=static, settings=settings)

    class Made(Noted):
        def __init__(self, name: str, *_: Any) -> None:
            super().__init__(name, calls)

        def start(self, settings: Any) -> None:
            calls.append((settings.get("consumer_group_instance_id"), list(fleet.workers)))

    monkeypatch.setattr(fleet_module, "InProcess", Made)
    fleet._launch("w2")
    assert calls == [(instance, ["w2"])]


def test_the_settings_of_the_test_stay_and_its_partitions_go_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers rest for the usual time; the owners before the first worker are remembered."""
    stage = Stage(monkeypatch)
    given = {"x": "y", "topic_partitions": 9}
    fleet = Fleet(nothing, tmp_path, workers=2, partitions=4, settings=given)
    waited: list[Any] = []

    def launch(name: str) -> None:
        waited.append((name, fleet._is_at_rest))
        fleet.workers[name] = SimpleNamespace(alive=False, thaw=lambda: None)  # type: ignore[assignment]

    monkeypatch.setattr(fleet, "_launch", launch)
    monkeypatch.setattr(
        fleet, "_wait_for_rest", lambda *seconds, is_hurried: waited.append((*seconds, is_hurried))
    )
    fleet._is_at_rest = True
    fleet.start()
    fleet.close()
    assert given == {"x": "y", "topic_partitions": 9}
    assert fleet._settings == {"x": "y", "topic_partitions": 4}
    quiet_s, patience_s = fleet_module.QUIET_S, fleet_module.turns.PATIENCE_S
    assert waited == [("w1", False), ("w2", False), (quiet_s, patience_s, False)]
    assert ("create", "t", 4) in stage.events


def test_a_start_that_the_user_interrupts_ends_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt is raised after the end."""
    fleet, calls = made(tmp_path, "w2", "w1")

    def start() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet, "start", start)
    with pytest.raises(KeyboardInterrupt):
        fleet.__enter__()
    assert [call for call in calls if call[0] == "stop"] == [("stop", "w1"), ("stop", "w2")]
    with pytest.raises(AssertionError, match=r"the workers: \['w1', 'w2'\]"):
        fleet.stop("w7")


def test_cold_moves_are_named_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition of an empty changelog is no cold move."""
    fleet, _ = made(tmp_path, "w1", "w2")
    own(fleet, "w1", cold=(5, 7))
    own(fleet, "w2", cold=(4, 6))
    monkeypatch.setattr(log, "ends", lambda broker, topic: [0, 0, 0, 0, 1, 2, 3, 0])
    places = ((4, "w2"), (5, "w1"), (6, "w2"))
    assert fleet.cold_moves() == [(Part("log", number, 1), name) for number, name in places]
    with pytest.raises(
        AssertionError, match=r"^3 cold moves: log-4 to w2, log-5 to w1, log-6 to w2"
    ):
        fleet.assert_no_cold_moves()


def test_time_stands_from_a_hurried_rest_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes during the wait, also for a fleet that is not in a hurry."""
    for is_hurried in (True, False):
        fleet, _ = made(tmp_path, "w1")
        held: list[Any] = []
        fleet._is_at_rest = False

        def wait(*given: Any, fleet: Fleet = fleet, held: list[Any] = held) -> None:
            held.append(fleet.clock._held_at)

        monkeypatch.setattr(fleet_module, "wait_for_rest", wait)
        fleet._wait_for_rest(0.0, 1.0, is_hurried=is_hurried)
        assert held == [None]
        assert (fleet.clock._held_at is not None, fleet._is_at_rest) == (True, True)


# -- a worker in this process ---------------------------------------------------------------------


async def test_positions_are_asked_on_the_consumers_thread(tmp_path: Path) -> None:
    """aiokafka's client belongs to that thread."""
    worker = Turned(tmp_path)
    asked: list[str] = []

    async def call(function: Any) -> Any:
        asked.append(function.__name__)
        return await function()

    worker.thread.call_thread = call
    await worker._progress()
    assert asked == ["positions"]


@pytest.mark.parametrize("error", [FileNotFoundError("journal"), ValueError("x")])
def test_an_error_of_the_work_itself_is_raised_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Only a late answer is an error of the wait."""
    worker = Turned(tmp_path)
    worker._thread = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]

    def run(coroutine: Any, loop: Any) -> Any:
        def result(seconds: float) -> None:
            raise error

        coroutine.close()
        return SimpleNamespace(result=result)

    monkeypatch.setattr(in_process.asyncio, "run_coroutine_threadsafe", run)
    with pytest.raises(type(error)) as failure:
        worker.run(worker._progress(), "the positions")
    assert failure.value is error


def test_work_that_is_not_taken_is_closed(tmp_path: Path) -> None:
    """Otherwise Python would warn about a coroutine that was never awaited."""
    worker = in_this_process(tmp_path)

    async def work() -> None:
        """Do no work."""

    coroutine = work()
    with pytest.raises(AssertionError, match="the worker w does not run"):
        worker.run(coroutine, "work")
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


# -- processes ------------------------------------------------------------------------------------


def test_a_journal_is_read_by_its_bytes_up_to_the_first_unfinished_row(tmp_path: Path) -> None:
    """A name of several bytes a letter moves no row; a row that cannot be taken is not read again."""
    refused = ["no"]

    class Refusing(Rows):
        def _take(self, row: Any) -> None:
            if refused and row == {"n": 2}:
                raise ValueError(refused.pop())
            super()._take(row)

    worker: Any = Refusing("w", tmp_path, Process())  # type: ignore[arg-type]
    lines = ('{"n": "fünf €"}\n'.encode(), b'{"n": 2}\n', b'{"n": 3}\n')
    (tmp_path / "journal").write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match="no"):
        worker.read_journal()
    assert worker.position == len(lines[0]) + len(lines[1])
    worker.read_journal()
    assert worker.rows == [{"n": "fünf €"}, {"n": 3}]


def test_each_worker_is_asked_for_its_own_answer(tmp_path: Path) -> None:
    """The answers come in the order of the workers."""

    def worker(name: str) -> Any:
        folder = tmp_path / name
        folder.mkdir()

        def tell(number: int) -> None:
            (folder / "journal.totals").write_text(json.dumps([name, int(number)]))

        return SimpleNamespace(
            name=name, folder=folder, alive=True, process=SimpleNamespace(send_signal=tell)
        )

    workers = [worker(name) for name in ("a", "b", "c")]
    fleet: Any = SimpleNamespace(living=lambda: workers, workers=dict(enumerate(workers[::-1])))
    answers = list(Processes.answers(fleet, "totals", 5.0))
    assert answers == [[name, int(signal.SIGUSR1)] for name in ("a", "b", "c")]


def test_a_worker_process_imports_from_the_tests_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders are absolute, because the process may have another working folder."""
    started: list[Any] = []
    monkeypatch.setattr(
        processes.subprocess, "Popen", lambda command, **more: started.append(more["env"])
    )
    monkeypatch.setattr(sys, "path", ["", "apps", "/usr/lib/x"])
    Worker.launch("w", tmp_path / "deep" / "w", "shop.app", {}, State())
    here = os.getcwd()
    assert started[0]["PYTHONPATH"].split(os.pathsep) == [here, f"{here}/apps", "/usr/lib/x"]


def test_a_failure_is_found_in_the_journal_by_the_check(tmp_path: Path) -> None:
    """The row of a failure changes no other fact of the worker, and a frozen process is so at once."""
    from faust_assigner.testing.apps import AppNotFound

    process = Process(code=3)
    taken: list[Any] = []
    state: Any = SimpleNamespace(take=taken.append)
    worker = Worker("w", tmp_path, process, state=state)  # type: ignore[arg-type]
    (tmp_path / "log").write_bytes(b"x" * 40)
    with pytest.raises(AssertionError, match="x" * 40):
        worker.check()
    worker.freeze()
    assert worker.is_frozen
    (tmp_path / "journal").write_text('{"kind": "failed", "error": "no table"}\n')
    with pytest.raises(AppNotFound, match=r"^no table$"):
        worker.check()
    assert (taken, worker.failure) == ([], "no table")
