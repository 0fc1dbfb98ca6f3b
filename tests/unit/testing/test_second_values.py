"""Facts of the kit that show only with a second value: zeros, repeated looks, nested packages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import apps, in_process, log, processes, turns, waiting
from faust_assigner.testing.clock import Alarm, Clock
from faust_assigner.testing.in_process import InProcess, Progress
from faust_assigner.testing.moves import move_phrases, moves
from faust_assigner.testing.reporting import Part, State
from tests.unit.testing.made import Process, made
from tests.unit.testing.test_lives import Apps


@pytest.mark.parametrize("value", [0, False, [], {}, 0.0])
def test_a_value_that_is_false_is_written_as_json(value: object) -> None:
    """Only None and bytes are written as they are; an empty text has no bytes."""
    data = log.encoded(value)
    assert isinstance(data, bytes)
    assert (data, log.decoded(data)) == (str(value).lower().encode(), value)
    assert (log.encoded(""), log.encoded(b""), log.encoded(None)) == (b"", b"", None)
    assert (log.decoded(b""), log.decoded(b"0"), log.decoded(b"null")) == ("", 0, None)


def test_a_record_is_appended_with_its_own_time_at_the_brokers_time() -> None:
    """The batch has one record; the broker's clock stamps the append."""
    appended: list[Any] = []

    def append(batch: Any, data: bytes, now_ms: int) -> int:
        appended.append((batch.max_timestamp, data, now_ms))
        return 41

    partitions = [SimpleNamespace(append=None), SimpleNamespace(append=append)]
    topics = {"t": SimpleNamespace(partitions=partitions)}
    node = SimpleNamespace(catalogue=topics, clock=lambda: 77)
    broker: Any = SimpleNamespace(call=lambda work: work(node))
    assert log.append(broker, "t", None, {"v": 1}, 12.3456, 1) == (1, 41)
    [(timestamp, data, now_ms)] = appended
    assert (timestamp, now_ms) == (12_345, 77)
    assert [one[:3] for one in log._decode_records(data, 1, [])] == [(None, {"v": 1}, 12.345)]


def test_moves_are_listed_by_their_tasks() -> None:
    """The order of the workers' reports does not matter."""
    before = {(2, 0): "a", (1, 10): "a", (1, 2): "b", (0, 5): "c"}
    now = {(0, 5): "a", (1, 2): "c", (1, 10): "b", (2, 0): "a"}
    assert move_phrases(moves(before, now)) == [
        *("task 0-5 from c to a", "task 1-2 from b to c", "task 1-10 from a to b")
    ]


def test_a_later_row_replaces_all_facts_but_the_cold_moves() -> None:
    """Copies that have caught up are no longer awaited."""
    state = State(awaited=3, cold=frozenset({Part("log", 9, 1)}))
    row = {
        "kind": "assigned", "generation": 6, "actives": [["t", 1, 2]], "standbys": [],
        "changelogs": [], "claimed": [], "awaited": 0,
    }  # fmt: skip
    state.take(row)
    actives = frozenset({Part("t", 1, 2)})
    assert state == State(6, -1, actives, frozenset(), 0, frozenset({Part("log", 9, 1)}))
    state.take({**row, "actives": [], "standbys": [["u", 0, 3]], "generation": 7})
    assert (state.actives, state.standbys) == (frozenset(), {Part("u", 0, 3)})
    state.begin()
    assert state.cold == frozenset()


@pytest.fixture
def nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Write an app in a package of a package."""
    folder = tmp_path / "kit_nest" / "web"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder.parent / "shared.py").write_text("made = object()\n")
    (folder / "__init__.py").touch()
    (folder / "models.py").write_text("made = object()\n")
    (folder / "app.py").write_text(
        "import faust\nfrom kit_nest import shared\nfrom kit_nest.web import models\n"
        "zeta = faust.App('zeta')\napp = faust.App('kit-nest')\nbeta = faust.App('beta')\n"
        "app.parts = (shared.made, models.made)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "kit_nest.web.app"
    for module in [one for one in sys.modules if one.partition(".")[0] == "kit_nest"]:
        del sys.modules[module]


def test_a_copy_has_the_modules_of_the_apps_own_package_alone(nested: str) -> None:
    """Modules of the packages above are shared by all copies; the apps are listed by name."""
    first, second = (apps.load_copy(nested).parts for _ in range(2))
    assert first[0] is second[0]
    assert first[1] is not second[1]  # although the package had it as an attribute
    with pytest.raises(apps.AppNotFound, match=r"its apps: app, beta, zeta$"):
        apps.load(f"{nested}:shop")


def test_workers_are_idle_after_five_equal_looks_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change after four equal looks begins the count again; each look turns each worker."""
    fleet, _ = made(tmp_path, "w1", "w2")
    looks: list[float] = []
    clock = SimpleNamespace(sleep=looks.append, monotonic=lambda: 0.0)
    monkeypatch.setattr(turns, "time", clock)
    counts = {"w1": 0, "w2": 0}
    for name, begun in (("w1", [3] * 20), ("w2", [5] * 5 + [6] * 9)):
        worker: Any = fleet.workers[name]
        worker.steps = [Progress(0, number, {}) for number in begun]

        def turn(name: str = name) -> Alarm:
            counts[name] += 1
            return Alarm(1.0, False, float("inf"))

        monkeypatch.setattr(worker, "turn", turn)
    turns.run_until_idle(fleet.workers, fleet.broker, fleet.clock)
    assert (len(looks), counts) == (11, {"w1": 11, "w2": 11})


def test_the_variables_of_an_app_replace_those_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further variables of the test stay."""
    monkeypatch.setenv("KIT_X", "old")
    monkeypatch.setenv("KIT_Y", "kept")
    started: list[Any] = []
    monkeypatch.setattr(
        processes.subprocess, "Popen", lambda command, **more: started.append(more["env"])
    )
    Apps(tmp_path).launch("c", "shop.app", {"KIT_X": "new"}, level="warn")
    assert [(env["KIT_X"], env["KIT_Y"]) for env in started] == [("new", "kept")]


def test_a_wait_ends_at_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fact is asked for before each pause, and the name of the fact may be a text."""
    now, asked = [50.0], list[float]()

    def sleep(seconds: float) -> None:
        assert seconds == 0.005
        now[0] += 1.0

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(waiting, "time", clock)
    with pytest.raises(AssertionError, match=r"^waited 3 s for: a fact$"):
        waiting.wait_until(lambda: bool(asked.append(now[0])), "a fact", seconds=3.0)
    assert asked == [50.0, 51.0, 52.0, 53.0, 54.0]
    waiting.wait_until(lambda: True, seconds=-1.0)


def test_a_wait_pauses_for_twice_the_time_of_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command as the fact would else take the processor from the workers that it waits for."""
    now, pauses, looks = [0.0], list[float](), [0.001, 0.2, 3.0, 0.0]

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    def look() -> bool:
        now[0] += looks.pop(0)
        return not looks

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    waiting.wait_until(look)
    assert pauses == [pytest.approx(pause) for pause in (0.005, 0.4, 1.0)]


def test_an_app_is_loaded_and_configured_within_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings are a copy; the reports begin after the configuration."""
    events: list[Any] = []
    made_ = InProcess("w", "shop.app", tmp_path, Clock(), lambda: None)

    @contextlib.contextmanager
    def configured(settings: Mapping[str, Any]) -> Iterator[None]:
        events.append(settings)
        yield
        events.append("configured")

    app = SimpleNamespace(finalize=lambda: events.append("finalize"))

    def load(source: Any) -> Any:
        events.append(source)
        return app

    def report(reported: Any, take: Any) -> None:
        events.append(("report", reported, take == made_.state.take))
        raise ZeroDivisionError

    monkeypatch.setattr(in_process.apps, "configured", configured)
    monkeypatch.setattr(in_process.apps, "load_copy", load)
    monkeypatch.setattr(in_process, "report", report)
    with pytest.raises(ZeroDivisionError):
        made_.start({"x": "y"})
    assert events == [*({"x": "y"}, "shop.app", "finalize", "configured"), ("report", app, True)]


def test_only_workers_that_run_in_this_process_are_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen worker, a dead one and a process would never answer; each other is turned each time."""
    fleet, _ = made(tmp_path, "w1", "w2", "frozen", "dead")
    fleet.workers["process"] = Process("process")
    turned: list[str] = []
    for name in ("w1", "w2", "frozen", "dead"):
        worker: Any = fleet.workers[name]
        worker.is_ice, worker.is_alive = name == "frozen", name != "dead"
        worker.steps = [Progress(0, 3, {})]
        monkeypatch.setattr(worker, "turn", lambda name=name: turned.append(name))
    monkeypatch.setattr(turns, "time", SimpleNamespace(sleep=lambda _: None, monotonic=lambda: 0.0))
    turns.run_until_idle(fleet.workers, fleet.broker, fleet.clock)
    assert turned == 6 * ["w1", "w2"]
