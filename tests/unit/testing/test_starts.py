"""A broker's process and an in-process worker's life, with fake processes and apps."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from faust_assigner.testing import broker as broker_module
from faust_assigner.testing import in_process
from faust_assigner.testing.broker import BrokerProcess, BrokerUnavailable, broker_process
from faust_assigner.testing.clock import Clock
from faust_assigner.testing.in_process import InProcess

# -- a broker -------------------------------------------------------------------------------------


class Process:
    """A broker's process: its line, its signals and its exit code."""

    line = "listening on PLAINTEXT://127.0.0.1:9093\n"
    made: ClassVar[list[Any]] = []

    def __init__(self, command: list[str], *, stderr: Any, **more: Any) -> None:
        self.command, self.more = command, more
        self.stdout = io.StringIO(self.line)
        self.calls: list[Any] = []
        self.code: int | None = None
        stderr.write("first words, ")
        self.stderr = stderr
        self.made.append(self)

    def poll(self) -> int | None:
        """Return the exit code."""
        return self.code

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the end."""
        self.calls.append(("wait", seconds))
        return 7

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append((name, *given))


@pytest.fixture
def popen(monkeypatch: pytest.MonkeyPatch) -> type[Process]:
    """The processes of brokers."""

    class Own(Process):
        made: ClassVar[list[Any]] = []

    monkeypatch.setattr(broker_module.subprocess, "Popen", Own)
    return Own


def test_a_broker_has_the_kits_settings_under_the_given_ones(popen: type[Process]) -> None:
    """A value may contain an equals sign; the first line has the broker's address."""
    made = BrokerProcess(Path("/data"), "a=b=c", "group.initial.rebalance.delay.ms=5", port=17)
    process: Any = made.process
    assert process.command == [
        *(sys.executable, "-m", "faust_assigner.cli", "broker", "--port", "17"),
        *("--data", "/data", "--set", "group.initial.rebalance.delay.ms=5"),
        *("--set", "group.min.session.timeout.ms=1000", "--set", "a=b=c"),
    ]
    assert (made.bootstrap, made.port) == ("127.0.0.1:9093", 9093)
    assert process.calls == []
    process.stderr.write("last words")
    assert made.errors() == "first words, last words"
    assert made.stop(signal.SIGINT) == 7
    assert process.calls == [("send_signal", signal.SIGINT), ("wait", 20)]
    assert "--data" not in BrokerProcess().process.command  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", [Process.line, "no port\n"])
def test_the_deadline_of_a_start_ends_with_the_first_line(
    popen: type[Process], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """A broker that listens is not killed START_S after its start."""
    timers: list[Any] = []

    class Timer:
        def __init__(self, seconds: float, act: Any) -> None:
            timers.append([seconds])

        def start(self) -> None:
            timers[-1].append("started")

        def cancel(self) -> None:
            timers[-1].append("cancelled")

    monkeypatch.setattr(broker_module.threading, "Timer", Timer)
    popen.line = line
    with pytest.raises(BrokerUnavailable) if line != Process.line else contextlib.nullcontext():
        BrokerProcess()
    assert timers == [[broker_module.START_S, "started", "cancelled"]]


@pytest.mark.parametrize("line", ["", "listening on 10.0.0.1:9\n", "no port\n"])
def test_a_broker_that_does_not_listen_on_loopback_is_killed(
    popen: type[Process], line: str
) -> None:
    """The error has the printed line and the broker's log."""
    popen.line = line
    with pytest.raises(BrokerUnavailable) as failure:
        BrokerProcess()
    assert str(failure.value) == f"the broker printed {line!r}, first words, "
    assert popen.made[0].calls == [("kill",), ("wait", None)]


@pytest.mark.parametrize(("code", "calls"), [(None, [("kill",), ("wait", None)]), (0, [])])
def test_a_broker_of_a_block_is_killed_at_its_end_unless_it_ended(
    popen: type[Process], code: int | None, calls: list[Any]
) -> None:
    """The broker is killed after a failure too."""
    seen: list[Any] = []

    def fails() -> None:
        with broker_process(None, "x=y", port=3) as made:
            seen.append(made.process)
            made.process.code = code  # type: ignore[attr-defined]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert seen[0].calls == calls
    assert seen[0].command[5] == "3"


# -- a worker in this process ---------------------------------------------------------------------


class App:
    """An app with a consumer's thread; the app starts, stops or crashes."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.crash_reason: BaseException | None = None
        self.stopping = 0

        async def nothing(*_: Any, **__: Any) -> None:
            """Do no work."""

        self.consumer = self._consumer = SimpleNamespace(
            _getmany=nothing, _thread=SimpleNamespace(call_thread=nothing, _fetch_records=nothing)
        )
        del self._consumer._thread
        self.consumer._thread = SimpleNamespace(call_thread=nothing, _fetch_records=nothing)
        self.producer = SimpleNamespace(send=nothing, send_and_wait=nothing)
        self.assignor = SimpleNamespace()
        self.tables: dict[str, Any] = {}
        signal_ = SimpleNamespace(connect=lambda receiver, *, weak: self.events.append("report"))
        self.on_partitions_assigned = self.on_rebalance_complete = signal_

    def finalize(self) -> None:
        """Configure the app."""
        self.events.append("finalize")
        self._crashed = asyncio.Event()

    async def start(self) -> None:
        """Run until the end."""
        self.events.append("start")

    async def stop(self) -> None:
        """Stop after a second of the loop's time."""
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1.0)
        self.events.append(f"stop after {asyncio.get_running_loop().time() - began >= 1.0}")

    def crash(self, error: BaseException) -> None:
        """End with an error."""
        self.crash_reason = error
        self._crashed.set()


@pytest.fixture
def life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[InProcess, App, list[str]]]:
    """A worker with an app, and whether it was cut off."""
    app, cut = App(), []
    app.consumer._thread.thread_loop = None
    monkeypatch.setattr(in_process.apps, "load_copy", lambda source: app)
    monkeypatch.setattr(in_process, "PATIENCE_S", 30.0)
    made = InProcess("w", lambda: None, tmp_path, Clock(), lambda: cut.append("cut"))
    monkeypatch.setattr(made, "_loops", lambda: iter([made.loop]))
    yield made, app, cut
    made.thaw()
    if made.alive:
        made.stop()


def test_a_worker_starts_reports_works_and_stops(
    life: tuple[InProcess, App, list[str]], tmp_path: Path
) -> None:
    """Its own folder exists; timers of its stop take little real time; its partitions clear."""
    made, app, cut = life
    made.start({"x": "y"})
    assert (tmp_path / "data").is_dir()
    assert (made.alive, made.is_frozen) == (True, False)

    async def where() -> tuple[str, Any]:
        return threading.current_thread().name, asyncio.get_running_loop()

    assert made.run(where(), "a question") == ("worker-w", made.loop)
    made.state.generation = 4
    made.stop()
    assert app.events == ["finalize", "report", "report", "start", "stop after True"]
    assert (made.alive, made.state.generation, cut) == (False, -1, [])
    assert made.loop.is_closed()
    made.stop()


def test_a_killed_worker_is_cut_off_before_it_stops(life: tuple[InProcess, App, list[str]]) -> None:
    """The group gets no LeaveGroup."""
    made, app, cut = life
    made.start({})
    seen: list[list[str]] = []
    stop = made.stop
    made.stop = lambda: (seen.append(list(cut)), stop())  # type: ignore[assignment,method-assign]
    made.kill()
    assert seen == [["cut"]]
    assert app.events[-1] == "stop after True"
    made.stop = stop  # type: ignore[method-assign]


def test_a_frozen_worker_stands_until_it_is_thawed(life: tuple[InProcess, App, list[str]]) -> None:
    """A frozen worker takes no work; a stop thaws the worker."""
    made, _, _ = life
    made.start({})
    made.freeze()
    assert made.is_frozen

    async def work() -> int:
        return 3

    with pytest.raises(AssertionError, match="the worker w does not run"):
        made.run(work(), "work")
    made.thaw()
    assert not made.is_frozen
    assert made.run(work(), "work") == 3
    made.freeze()
    made.stop()
    assert (made.alive, made.is_frozen) == (False, False)


def test_the_crash_of_an_app_is_the_error_of_its_worker(
    life: tuple[InProcess, App, list[str]],
) -> None:
    """The error stays until the next life."""
    made, app, _ = life
    made.start({})
    error = KeyError("table")

    async def crash() -> None:
        app.crash(error)

    made.run(crash(), "the crash")
    assert made._thread is not None
    made._thread.join(30.0)
    assert not made.alive
    made._join()
    assert made.error is error
    assert made.why_not() == "KeyError: 'table'"
    app.crash_reason = None
    made.start({})
    assert made.error is None


def test_an_app_that_refuses_to_start_is_the_error_of_its_worker(
    life: tuple[InProcess, App, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong setting ends a worker at its start, without a crash of a running app."""
    made, app, _ = life
    error = ValueError("a topic pattern")

    async def start() -> None:
        raise error

    monkeypatch.setattr(app, "start", start)
    made.start({})
    assert made._thread is not None
    made._thread.join(10.0)
    assert not made.alive
    assert made.error is error
    assert app.events[-1] == "stop after True"


def test_an_error_of_a_start_that_a_stop_interrupts_does_not_count(
    life: tuple[InProcess, App, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed worker loses its broker while it starts."""
    made, app, _ = life

    async def start() -> None:
        await made._over.wait()
        raise ConnectionError

    monkeypatch.setattr(app, "start", start)
    made.start({})
    made.kill()
    assert made.error is None


def test_a_stop_that_never_ends_is_left_after_a_third_of_the_patience(
    life: tuple[InProcess, App, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop gains time at each pause, and the tasks of the life are cancelled."""
    made, app, _ = life
    ended: list[Any] = []
    pauses: list[float] = []

    async def stop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(made.loop.extra_s)

    monkeypatch.setattr(app, "stop", stop)
    made.start({})
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), sleep=pauses.append)
    monkeypatch.setattr(in_process, "time", clock)
    made.stop()
    assert pauses == [in_process.PAUSE_S] * 9
    assert ended == pytest.approx([9 * in_process.HURRY_S])
    assert (made.alive, made.error) == (False, None)
