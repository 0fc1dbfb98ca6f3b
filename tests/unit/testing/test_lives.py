"""Workers as processes and in this process: starts, journals and ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import in_process, processes
from faust_assigner.testing.clock import Clock
from faust_assigner.testing.in_process import InProcess
from faust_assigner.testing.processes import Journaled, Processes, Worker, on_loopback
from faust_assigner.testing.reporting import Part, State

# -- processes ------------------------------------------------------------------------------------


class Rows(Journaled):
    """A process that keeps its rows."""

    def _take(self, row: Any) -> None:
        self.rows = [*getattr(self, "rows", []), row]


class Process:
    """A process that records its signals; ``hangs`` counts the waits that time out."""

    def __init__(self, hangs: int = 0, code: int | None = None) -> None:
        self.calls: list[Any] = []
        self.hangs, self.code = hangs, code
        self.stdin = SimpleNamespace(close=lambda: self.calls.append("closed"))

    def poll(self) -> int | None:
        """Return the exit code."""
        return self.code

    def wait(self, timeout: float | None = None) -> None:
        """Record the wait; time out while ``hangs`` is positive."""
        self.calls.append(("wait", timeout))
        if self.hangs:
            self.hangs -= 1
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append((name, *given))


def test_a_journal_is_read_row_by_row_and_an_unfinished_row_later(tmp_path: Path) -> None:
    """Each row is read once; without a journal there are no rows."""
    worker: Any = Rows("w", tmp_path, Process())  # type: ignore[arg-type]
    worker.read_journal()
    journal = tmp_path / "journal"
    journal.write_bytes(b'{"n": 1}\n{"n": 2}\n{"n"')
    worker.read_journal()
    assert (worker.rows, worker.position) == ([{"n": 1}, {"n": 2}], 18)
    journal.write_bytes(journal.read_bytes() + b": 3}\n")
    worker.read_journal()
    worker.read_journal()
    assert worker.rows == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize("hangs", [0, 1])
def test_a_process_that_does_not_stop_in_time_is_killed(tmp_path: Path, hangs: int) -> None:
    """The worker has its own time limit."""
    process = Process(hangs)
    Rows("w", tmp_path, process).stop(7.5)  # type: ignore[arg-type]
    killed = [("kill",), ("wait", None)] if hangs else []
    assert process.calls == [("terminate",), ("wait", 7.5), *killed]


def worker(folder: Path, process: Process, **more: Any) -> Worker:
    """Return a fleet's worker with partitions."""
    made = Worker("w", folder, process, **more)  # type: ignore[arg-type]
    made.state = State(generation=3, ready=3, actives=frozenset({Part("t", 0, 1)}))
    return made


def test_a_frozen_worker_is_thawed_once_and_before_it_is_stopped(tmp_path: Path) -> None:
    """Then its input is closed and its partitions are cleared; the test counts as its end."""
    import signal

    process = Process()
    made = worker(tmp_path, process)
    made.thaw()
    made.freeze()
    assert made.is_frozen
    made.stop(4.0)
    assert process.calls == [
        ("send_signal", signal.SIGSTOP),
        ("send_signal", signal.SIGCONT),
        ("terminate",),
        ("wait", 4.0),
        "closed",
    ]
    assert (made.is_frozen, made.is_ended, made.state.actives) == (False, True, frozenset())


def test_a_killed_worker_is_ended_and_no_longer_frozen(tmp_path: Path) -> None:
    """No SIGCONT is sent."""
    process = Process()
    made = worker(tmp_path, process, is_frozen=True)
    made.kill()
    assert process.calls == [("kill",), ("wait", None), "closed"]
    assert (made.is_frozen, made.is_ended, made.state.generation) == (False, True, -1)


def test_the_rows_of_a_worker_are_its_report_or_its_failure(tmp_path: Path) -> None:
    """The reason of a failed wait is the failure, else the state and the end of the log."""
    made = worker(tmp_path, Process())
    (tmp_path / "log").write_bytes(b"x" * 2_000 + b"\xffend")
    (tmp_path / "journal").write_text('{"kind": "ready", "generation": 8}\n')
    made.read_journal()
    assert made.state.ready == 8
    told = made.why_not()
    assert told.startswith("generation 3, ready 8, waits for 0 copies; the end of its log:\nx")
    assert told.endswith("x\ufffdend")
    assert len(made.log_tail()) == 1_500
    assert made.log_tail(4) == "\ufffdend"
    with (tmp_path / "journal").open("a") as journal:
        journal.write('{"kind": "failed", "error": "no table"}\n')
    made.read_journal()
    assert (made.why_not(), made.state.ready) == ("no table", 8)


def test_a_worker_starts_with_its_orders_and_without_the_journal_of_its_former_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's input ends with this process; its log is appended to."""
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "journal").touch()
    (folder / "log").write_text("first\n")
    started: list[Any] = []

    def popen(command: list[str], **more: Any) -> Any:
        more["stdout"].write(b"second\n")
        started.append((command, more))
        return Process()

    monkeypatch.setattr(processes.subprocess, "Popen", popen)
    state = State(generation=4)
    made = Worker.launch("w", folder, "shop.app", {"store": "rocksdb://"}, state)
    [(command, more)] = started
    assert command == [sys.executable, "-m", "faust_assigner.testing.worker"]
    orders = {name: more["env"][name] for name in ("KIT_APP", "KIT_JOURNAL", "KIT_SETTINGS")}
    assert orders == {
        "KIT_APP": "shop.app",
        "KIT_JOURNAL": str(folder / "journal"),
        "KIT_SETTINGS": json.dumps({"store": "rocksdb://"}),
    }
    assert (more["stdin"], more["stderr"]) == (subprocess.PIPE, subprocess.STDOUT)
    assert not (folder / "journal").exists()
    assert (folder / "log").read_text() == "first\nsecond\n"
    assert (made.state, made.name, made.folder) == (state, "w", folder)


class Apps(Processes[Any]):
    """Two workers of a module."""

    root = Path("/")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers = {name: Rows(name, folder / name, Process()) for name in "ba"}  # type: ignore[arg-type]


def test_workers_are_ended_by_their_names(tmp_path: Path) -> None:
    """All workers get the signal before the first wait; a kill hits a single worker."""
    made = Apps(tmp_path)
    calls = {name: one.process.calls for name, one in made.workers.items()}
    order: list[str] = []
    for name, one in made.workers.items():
        one.process.terminate = lambda name=name: order.append(f"terminate {name}")
        one.stop = lambda seconds, name=name: order.append(f"stop {name} {seconds}")
    made.terminate("a", "b", timeout_s=3.0)
    assert order == ["terminate a", "terminate b", "stop a 3.0", "stop b 3.0"]
    made.kill("b")
    assert (calls["a"], calls["b"]) == ([], [("kill",), ("wait", None)])
    made.workers["a"].process.code = 1
    assert [one.name for one in made.living()] == ["b"]
    assert on_loopback(7) == (
        "--web-port", "7", "--web-bind", "127.0.0.1", "--web-host", "127.0.0.1"
    )  # fmt: skip


def test_an_app_starts_with_its_options_and_continues_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app runs in the modules' folder with the given variables."""
    started: list[Any] = []
    monkeypatch.setattr(
        processes.subprocess, "Popen", lambda *given, **more: started.append((*given, more))
    )
    Apps(tmp_path).launch("c", "shop.app", {"KIT_X": "y"}, level="warn")
    [(command, more)] = started
    assert command == [*(sys.executable, "-m", "shop.app", "worker", "-l", "warn", "--without-web")]
    assert (more["cwd"], more["env"]["KIT_X"]) == (Path("/"), "y")
    assert more["stderr"] == subprocess.STDOUT
    assert (tmp_path / "c" / "log").exists()


# -- a worker in this process ---------------------------------------------------------------------


def in_this_process(folder: Path) -> InProcess:
    """Return a worker without a life."""
    return InProcess("w", lambda: None, folder, Clock(), lambda: None)


async def test_records_of_the_app_have_the_fleets_time_unless_they_have_their_own(
    tmp_path: Path,
) -> None:
    """Time zero is valid; both ways to send pass on all other arguments; a pending send is counted."""
    made = in_this_process(tmp_path)
    made._clock.hold()
    sent: list[Any] = []

    def taker(kind: str) -> Any:
        async def take(*given: Any, **more: Any) -> None:
            sent.append((kind, given, more, made._calls))

        return take

    producer = SimpleNamespace(send=taker("send"), send_and_wait=taker("wait"))
    made._stamp(producer)
    await producer.send("t", b"k", b"v", 3, None, {"h": b"1"}, transactional_id="x")
    await producer.send_and_wait("t", b"k", b"v", None, 0.0, None)
    await producer.send("u", None, b"w", None, 0.0, None)
    await producer.send_and_wait("u", None, b"w", 2, None, None)
    now, with_headers = made._clock.time(), {"h": b"1"}
    assert sent == [
        ("send", ("t", b"k", b"v", 3, now, with_headers), {"transactional_id": "x"}, 1),
        ("wait", ("t", b"k", b"v", None, 0.0, None), {}, 0),
        ("send", ("u", None, b"w", None, 0.0, None), {}, 1),
        ("wait", ("u", None, b"w", 2, now, None), {}, 0),
    ]
    assert made._calls == 0


async def test_polls_are_short_and_other_calls_of_the_consumers_thread_are_counted(
    tmp_path: Path,
) -> None:
    """A call counts until its end, even after an error."""
    made = in_this_process(tmp_path)
    counts: list[int] = []

    async def fetch() -> None:
        """Poll."""

    async def position() -> None:
        """Ask for the position."""

    async def call(function: Any, *args: Any, **options: Any) -> Any:
        counts.append(made._calls)
        if args == ("bad",):
            raise ZeroDivisionError
        return (function, args, options)

    async def getmany(*, active_partitions: Any, timeout: float) -> Any:
        return active_partitions, timeout

    thread = SimpleNamespace(_fetch_records=fetch, call_thread=call)
    producer = SimpleNamespace(send=None, send_and_wait=None)
    consumer = SimpleNamespace(_getmany=getmany, _thread=thread)
    made.app = SimpleNamespace(consumer=consumer, producer=producer)
    made._use_the_tests_time()
    assert await consumer._getmany({"tp"}, 5.0) == ({"tp"}, 0.01)
    assert await consumer._getmany({"tp"}, 0.001) == ({"tp"}, 0.001)
    assert await thread.call_thread(position, 1, a=2) == (position, (1,), {"a": 2})
    await thread.call_thread(fetch)
    with pytest.raises(ZeroDivisionError):
        await thread.call_thread(position, "bad")
    assert (counts, made._calls) == ([1, 0, 1], 0)


def test_a_worker_that_does_not_run_takes_no_work(tmp_path: Path) -> None:
    """The error has the worker's state, or the worker's own error."""
    made = in_this_process(tmp_path)

    async def work() -> None:
        """Do no work."""

    with pytest.raises(AssertionError, match="the worker w does not run: generation -1, ready -1"):
        made.run(work(), "a turn")
    made.error = KeyError("x")
    assert made.why_not() == "KeyError: 'x'"
    assert (made.alive, made.is_frozen) == (False, False)
    assert in_process.POLL_S < 1
