"""The start of a fleet, and one turn of a worker in this process, with all effects in their order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.settings.table import ACCEPTABLE_FROM_NOTHING, FOLLOW_UP_S
from faust_assigner.testing import fleet as fleet_module
from faust_assigner.testing import in_process, turns
from faust_assigner.testing.clock import Alarm, Clock
from faust_assigner.testing.fleet import Fleet
from faust_assigner.testing.in_process import InProcess, Progress
from tests.unit.testing.made import nothing

VARIABLES = (ACCEPTABLE_FROM_NOTHING.name, FOLLOW_UP_S.name)


def agent(*topics: str, partitions: int | None = None, **more: Any) -> Any:
    """Return an agent with its channel."""
    return SimpleNamespace(channel=SimpleNamespace(topics=topics, partitions=partitions, **more))


class Stage:
    """The parts of a start, as one list of events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[Any] = []
        self.server = object()
        self.bootstrap = "a:1"
        self.agents = {
            "one": agent("t", "u"),
            "two": agent("v", partitions=7),
            "three": SimpleNamespace(channel=SimpleNamespace(topics=None)),
        }
        self.conf = SimpleNamespace(topic_partitions="5", id="shop")
        monkeypatch.setattr(fleet_module, "EmbeddedBroker", self.broker)
        monkeypatch.setattr(
            fleet_module, "with_faults", lambda *given: self.events.append(("faults", *given))
        )
        monkeypatch.setattr(fleet_module.apps, "configured", self.configured)
        monkeypatch.setattr(fleet_module.apps, "load_copy", self.load)
        monkeypatch.setattr(
            fleet_module.log, "create", lambda at, *given: self.events.append(("create", *given))
        )
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        self.time = time.time

    @contextlib.contextmanager
    def broker(self, *, clock: Any) -> Iterator[Any]:
        """A broker whose clock is the machine's, even while the fleet's clock replaces it."""
        self.clock = clock
        self.events.append("broker")
        yield self
        self.events.append("no broker")

    def call(self, work: Any) -> None:
        """Run the work on the broker's loop."""
        work(None)

    @contextlib.contextmanager
    def configured(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """The settings hold while the app is loaded."""
        wanted = ("broker_client_id", "datadir", "broker", "x")
        self.events.append({name: settings[name] for name in wanted})
        yield
        self.events.append("configured")

    def load(self, source: Any) -> Any:
        """Return an app."""
        self.events.append(("load", source))
        return self

    def finalize(self) -> None:
        """Note the call."""
        self.events.append("finalize")


@pytest.mark.parametrize(
    ("workers", "processes", "partitions", "count", "rest"),
    [(1, False, None, 5, (0.0, True)), (3, True, 4, 4, (fleet_module.QUIET_S, False))],
)
def test_a_fleet_starts_its_broker_its_topics_and_its_workers_in_this_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    processes: bool,
    partitions: int | None,
    count: int,
    rest: tuple[float, bool],
) -> None:
    """The kit's variables hold until the end, and this process has the fleet's time if it works here."""
    stage = Stage(monkeypatch)
    monkeypatch.setattr(
        fleet_module.apps,
        "check",
        lambda app, *, needs_path: stage.events.append(("check", app, needs_path)),
    )
    fleet = Fleet(
        "shop.app" if processes else nothing,
        tmp_path,
        workers=workers,
        processes=processes,
        partitions=partitions,
        settings={"x": "y"},
    )
    worker = SimpleNamespace(alive=False, thaw=lambda: None)

    def launch(name: str) -> None:
        seen = [os.environ.get(variable) for variable in VARIABLES]
        stage.events.append(("launch", name, seen, time.time == stage.time))
        fleet.workers[name] = worker  # type: ignore[assignment]

    def wait(quiet_s: float, timeout_s: float, *, is_hurried: bool) -> None:
        stage.events.append(("wait", quiet_s, timeout_s, is_hurried))

    monkeypatch.setattr(fleet, "_launch", launch)
    monkeypatch.setattr(fleet, "_wait_for_rest", wait)
    fleet.start()
    wanted = {
        "broker_client_id": "topics",
        "datadir": str(tmp_path / "data"),
        "broker": "kafka://a:1",
        "x": "y",
    }
    assert stage.events == [
        ("check", fleet.app, processes),
        "broker",
        ("faults", stage.server, fleet._faults),
        wanted,
        *(("load", fleet.app), "finalize", "configured"),
        *(("create", topic, number) for topic, number in (("t", count), ("u", count), ("v", 7))),
        *(("launch", f"w{n + 1}", ["0", "1"], processes) for n in range(workers)),
        ("wait", rest[0], turns.PATIENCE_S, rest[1]),
    ]
    assert (fleet.app_id, fleet._settings) == ("shop", {"x": "y", "topic_partitions": count})
    assert abs(stage.clock() / 1000 - stage.time()) < 60
    fleet.clock.move(7_200)
    assert abs(stage.clock() / 1000 - stage.time()) < 60
    stage.events.clear()
    fleet.close()
    assert (stage.events, time.time) == (["no broker"], stage.time)
    assert [os.environ.get(variable) for variable in VARIABLES] == [None, None]


# -- a worker in this process ---------------------------------------------------------------------


class Turned(InProcess):
    """A worker whose loop is the test's own, with a second loop of the consumer's thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__("w", lambda: None, folder, Clock(), lambda: None)
        self.events: list[Any] = []
        self.thread = SimpleNamespace(
            thread_loop=self, _ensure_consumer=lambda: self, call_thread=self.call
        )
        self.consumer = SimpleNamespace(_thread=self.thread, _unacked_messages={1, 2, 3})
        self.app = SimpleNamespace(
            consumer=self.consumer,
            _consumer=self.consumer,
            tables=SimpleNamespace(changelog_topics={"log"}),
            monitor=SimpleNamespace(messages_received_total=8),
        )
        self.loop = self  # type: ignore[assignment]

    async def call(self, function: Any) -> Any:
        """Run a function of the consumer's thread."""
        return await function()

    def assignment(self) -> Any:
        """Return the partitions of the consumer."""
        places = (("t", 1), ("log", 0), ("u", 0))
        return [Place(topic, number) for topic, number in places]

    async def position(self, place: Any) -> int:
        """Return the next offset."""
        return 10 * len(place.topic) + int(place.partition)

    def call_soon_threadsafe(self, function: Any) -> None:
        """Note the callback."""
        self.events.append(function)

    async def run_in_executor(self, executor: None, function: Any, seconds: float) -> None:
        """One call of the consumer's thread ends."""
        self.events.append((function, seconds))
        self._calls -= 1

    def next_alarm(self) -> Alarm:
        """Return the next timer."""
        return Alarm(0.5, False, 2.5)


class Place(tuple[str, int]):
    """A partition."""

    topic = property(lambda self: self[0])
    partition = property(lambda self: self[1])

    def __new__(cls, topic: str, partition: int) -> Place:
        """Return a partition, which is a pair."""
        return super().__new__(cls, (topic, partition))


async def test_the_progress_of_a_worker_has_its_source_topics_alone(tmp_path: Path) -> None:
    """Changelogs are read by the recovery; records under way and begun are the app's."""
    made = Turned(tmp_path)
    assert await made._progress() == Progress(3, 8, {("t", 1): 11, ("u", 0): 10})
    made.consumer._unacked_messages = set()
    assert (await made._progress()).under_way == 0


async def test_a_turn_runs_the_other_loop_then_its_own_and_awaits_the_threads_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer's loop may have ended; the turn returns the next timer."""
    made = Turned(tmp_path)
    made._calls = 2
    here = asyncio.get_running_loop()
    rounds: list[int] = []

    def run(coroutine: Any, loop: Any) -> Any:
        coroutine.close()
        made.events.append(loop)
        raise RuntimeError("the loop is closed")

    def count(left: int) -> None:
        rounds.append(left)
        if left:
            here.call_soon(count, left - 1)

    here.call_soon(count, in_process.ROUNDS - 2)
    monkeypatch.setattr(in_process.asyncio, "run_coroutine_threadsafe", run)
    assert await made._turn() == Alarm(0.5, False, 2.5)
    assert rounds[-1] == 0
    pause = (time.sleep, in_process.PAUSE_S / 4)
    assert made.events == [made, pause, pause]


async def test_a_turn_does_not_wait_for_ever_for_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second the calls are left to the next turn; an app may have no consumer yet."""
    made = Turned(tmp_path)
    made._calls = 9
    made.app._consumer = None
    now = iter((0.0, 0.9, 1.0))
    clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: next(now))
    monkeypatch.setattr(in_process, "time", clock)
    assert await made._turn() == Alarm(0.5, False, 2.5)
    assert made._calls == 8


def test_a_frozen_worker_stops_both_of_its_loops(tmp_path: Path) -> None:
    """The same gate opens for both of them, also after a second freeze."""
    made = Turned(tmp_path)
    made.freeze()
    gate = made._gate
    assert gate is not None
    made.freeze()
    assert made._gate is gate
    assert made.events == [gate.wait, gate.wait]
    assert not gate.is_set()
    made.thaw()
    assert (gate.is_set(), made._gate) == (True, None)


@pytest.mark.parametrize("crash", [None, KeyError("table")])
def test_work_of_a_worker_fails_with_its_crash_or_the_works_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: Exception | None
) -> None:
    """A late answer is an error with the name of the work."""
    made = Turned(tmp_path)
    made.app.crash_reason = crash
    made._thread = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
    errors: list[Exception] = [RuntimeError("no loop"), TimeoutError()]

    def run(coroutine: Any, loop: Any) -> Any:
        def result(seconds: float) -> Any:
            assert (loop, seconds) == (made, in_process.PATIENCE_S)
            raise errors.pop(0)

        coroutine.close()
        return SimpleNamespace(result=result)

    monkeypatch.setattr(in_process.asyncio, "run_coroutine_threadsafe", run)
    with pytest.raises(RuntimeError if crash is None else KeyError) as failure:
        made.run(made._progress(), "the positions")
    assert failure.value is crash or str(failure.value) == "no loop"
    with pytest.raises(AssertionError, match="waited 60 s for: the positions"):
        made.run(made._progress(), "the positions")
