"""One whole life of a worker in this process: its loop, its thread, and what the app leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import in_process
from faust_assigner.testing.clock import Clock, MovedLoop
from faust_assigner.testing.in_process import InProcess
from tests.unit.testing.test_starts import App


class LeavingApp(App):
    """An app that never ends its start, and leaves a task and an open generator behind."""

    def __init__(self) -> None:
        super().__init__()
        self.consumer._thread.thread_loop = None

    async def start(self) -> None:
        """Leave a task and a generator behind, and wait for ever."""
        self.beside = [asyncio.ensure_future(self.wait(f"task {n}")) for n in (1, 2)]
        self.rows = self.generate()
        await anext(self.rows)
        await self.wait("start")

    async def wait(self, name: str) -> None:
        """Wait for ever; note the cancellation."""
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append(f"end of {name}")

    async def generate(self) -> AsyncIterator[int]:
        """Yield a number; note the end."""
        try:
            while True:
                yield 3
        finally:
            self.events.append("end of rows")

    async def stop(self) -> None:
        """Stop at once, after a call on the loop's executor."""
        await asyncio.get_running_loop().run_in_executor(None, self.events.append, "stop")


def made_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, app: Any
) -> tuple[InProcess, dict[str, Any]]:
    """Return a worker of the app below a folder that does not exist yet, and the sights of its load."""
    seen: dict[str, Any] = {}

    def load(source: Any) -> Any:
        seen.update(
            source=source,
            loop=asyncio.get_event_loop_policy().get_event_loop(),
            thread=threading.current_thread(),
        )
        if isinstance(app, BaseException):
            raise app
        return app

    monkeypatch.setattr(in_process.apps, "load_copy", load)
    monkeypatch.setattr(in_process, "PATIENCE_S", 9.0)
    made = InProcess("w", "shop.app", folder / "deep" / "w", Clock(), lambda: None)
    monkeypatch.setattr(made, "_loops", lambda: iter([made.loop]))
    return made, seen


def test_all_that_the_app_leaves_behind_ends_with_its_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app is imported on the worker's loop; the thread and the executor end with the loop."""
    app = LeavingApp()
    made, seen = made_in(tmp_path, monkeypatch, app)
    shut: list[str] = []
    shutdown = MovedLoop.shutdown_default_executor

    async def shut_executor(loop: Any) -> None:
        shut.append("executor")
        await shutdown(loop)

    monkeypatch.setattr(MovedLoop, "shutdown_default_executor", shut_executor)
    send = app.producer.send
    made.start({})
    assert seen == {"source": "shop.app", "loop": made.loop, "thread": made._thread}
    assert (made.folder / "data").is_dir()

    async def none() -> None:
        """Let the app start."""

    for _ in range(3):
        made.run(none(), "a pass of the loop")
    assert app.producer.send is not send
    assert app.events == ["finalize", "report", "report"]
    made.freeze()
    assert (made.alive, made.is_frozen) == (True, True)
    made.stop()
    assert app.events[3:5] == ["stop", "end of start"]
    assert sorted(app.events[5:]) == ["end of rows", "end of task 1", "end of task 2"]
    assert (made.error, made.loop.is_closed(), shut) == (None, True, ["executor"])
    assert seen["thread"].daemon


def test_an_app_that_ends_the_process_at_its_import_fails_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SystemExit and KeyboardInterrupt are errors of the worker, too."""
    error = SystemExit("no broker is configured")
    made, _ = made_in(tmp_path, monkeypatch, error)
    with pytest.raises(SystemExit) as failure:
        made.start({})
    assert (failure.value, made.error, made.alive) == (error, error, False)
    with pytest.raises(SystemExit):
        made.check()


def test_a_worker_keeps_its_settings_although_the_test_changes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread gets a copy."""
    given: list[Any] = []

    def thread(**options: Any) -> Any:
        given.append(options["args"])
        made._up.set()
        return SimpleNamespace(start=lambda: made._up.set())

    made, _ = made_in(tmp_path, monkeypatch, None)
    monkeypatch.setattr(in_process.threading, "Thread", thread)
    settings = {"x": 1}
    made.start(settings)
    made.loop.close()
    settings["x"] = 2
    assert given == [({"x": 1},)]


async def test_pending_sends_are_added_up(tmp_path: Path) -> None:
    """Two sends at the same time are two calls, and a failed send counts no longer."""
    made = InProcess("w", lambda: None, tmp_path, Clock(), lambda: None)
    gates = [asyncio.Event(), asyncio.Event()]
    counts: list[int] = []

    async def send(topic: str, *given: object) -> None:
        await gates[int(topic)].wait()
        counts.append(made._calls)
        if topic == "0":
            raise ZeroDivisionError

    producer = SimpleNamespace(send=send, send_and_wait=send)
    made._stamp(producer)
    sends = [asyncio.ensure_future(producer.send(topic, *4 * [None])) for topic in "01"]
    await asyncio.sleep(0)
    assert made._calls == 2
    for gate, send_ in zip(gates, sends, strict=True):
        gate.set()
        await asyncio.wait({send_})
    assert (counts, made._calls) == ([2, 1], 0)
    assert isinstance(sends[0].exception(), ZeroDivisionError)


class QuietApp(App):
    """An app whose start ends at once, as a client's without agents does."""

    async def stop(self) -> None:
        """Note the end of the life."""
        self.events.append("stop")


def test_a_life_goes_on_after_the_apps_start_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a stop or a crash ends it."""
    app = QuietApp()
    app.consumer._thread.thread_loop = None
    made, _ = made_in(tmp_path, monkeypatch, app)
    made.start({})

    async def passes() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    made.run(passes(), "passes of the loop")
    assert app.events == ["finalize", "report", "report", "start"]
    made.stop()
    assert app.events[4:] == ["stop"]
