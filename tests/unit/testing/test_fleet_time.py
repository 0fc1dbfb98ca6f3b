"""A fleet's time, rest and living workers, with workers that only record their calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.testing import apps, log, turns
from faust_assigner.testing import rest as rest_module
from faust_assigner.testing.clock import Alarm
from faust_assigner.testing.fleet import Fleet
from faust_assigner.testing.in_process import Progress
from faust_assigner.testing.rest import living
from tests.unit.testing.made import Process, made


def advanced(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, seconds: float, *alarms: Alarm
) -> tuple[list[float], list[float]]:
    """The clock's steps and the real sleeps while time advances."""
    worker: Any = fleet.workers["w1"]
    worker.alarms = list(alarms)
    steps: list[float] = []
    sleeps: list[float] = []
    move = fleet.clock.move
    monkeypatch.setattr(turns, "run_until_idle", lambda *_: None)
    monkeypatch.setattr(fleet.clock, "move", lambda by: (steps.append(round(by, 6)), move(by)))
    monkeypatch.setattr(
        turns,
        "time",
        SimpleNamespace(sleep=lambda by: sleeps.append(round(by, 6)), monotonic=lambda: 0.0),
    )
    before = fleet.clock.monotonic()
    fleet.advance(seconds)
    assert fleet.clock.monotonic() == pytest.approx(before + seconds)
    return steps, sleeps


FAR = float("inf")


@pytest.mark.parametrize(
    ("seconds", "alarms", "steps"),
    [
        (1.0, [Alarm(0.1, False, FAR)], [0.25] * 4),
        (1.0, [Alarm(0.6, False, FAR)], [0.6, 0.4]),
        (3.0, [Alarm(0.1, False, 2.0), Alarm(0.1, False, 0.0625)], [0.25, *[0.0625] * 44]),
        (0.2, [Alarm(5.0, False, 5.0)], [0.2]),
    ],
    ids=["steps", "the next timer", "a long sleep is exact", "the end"],
)
def test_time_advances_in_steps_that_no_long_sleep_is_later_than(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    alarms: list[Alarm],
    steps: list[float],
) -> None:
    """No real time passes."""
    fleet, _ = made(tmp_path, "w1")
    assert advanced(fleet, monkeypatch, seconds, *alarms) == (pytest.approx(steps), [])


def test_the_long_sleep_of_any_worker_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two workers, the nearest timer and the nearest long sleep decide."""
    fleet, _ = made(tmp_path, "w0", "w1", "w2")
    for name, alarm in (("w0", Alarm(0.9, False, 0.7)), ("w2", Alarm(0.4, False, 5.0))):
        worker: Any = fleet.workers[name]
        worker.alarms = [alarm]
    steps, _ = advanced(fleet, monkeypatch, 1.0, Alarm(0.8, False, FAR))
    assert steps == pytest.approx([0.4, 0.4, 0.2])
    fleet.workers["w2"].alarms = [Alarm(0.8, False, FAR)]  # type: ignore[attr-defined]
    steps, _ = advanced(fleet, monkeypatch, 1.0, Alarm(0.8, False, FAR))
    assert steps == pytest.approx([0.7, 0.3])


def test_without_a_running_worker_time_moves_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No timer is left."""
    fleet, _ = made(tmp_path, "w1")
    fleet.workers["w1"].kill()
    steps, _ = advanced(fleet, monkeypatch, 100.0)
    assert steps == [100.0]


def test_after_the_first_minute_the_steps_are_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps are a quarter of a second, then a second."""
    fleet, _ = made(tmp_path, "w1")
    steps, _ = advanced(fleet, monkeypatch, 63.0, Alarm(0.1, False, FAR))
    assert steps == pytest.approx([0.25] * 240 + [1.0] * 3)


def test_polls_take_real_time_up_to_their_bound_in_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second of polls precedes each step; a poll never passes the end."""
    fleet, _ = made(tmp_path, "w1")
    steps, sleeps = advanced(fleet, monkeypatch, 1.3, Alarm(0.2, True, FAR))
    assert steps == pytest.approx([0.2, 0.2, 0.2, 0.25, 0.2, 0.2, 0.05])
    assert sleeps == pytest.approx([0.2, 0.2, 0.2, 0.2, 0.2, 0.05])


def test_time_of_processes_cannot_be_moved(tmp_path: Path) -> None:
    """The error names the option."""
    fleet, _ = made(tmp_path, "w1")
    fleet.processes = True
    with pytest.raises(AssertionError, match="processes=True"):
        fleet.advance(1.0)


def test_workers_are_idle_after_five_looks_without_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread records count as a coming change; each look takes a millisecond."""
    fleet, _ = made(tmp_path, "w1", "w2")
    place, other = TopicPartition("t", 1), TopicPartition("t", 0)
    for name, steps in (
        ("w1", [Progress(1, 5, {}), Progress(0, 5, {})]),
        (
            "w2",
            [
                *[Progress(0, 0, {other: 9, place: at}) for at in [3] * 8],
                Progress(0, 0, {other: 9, place: 4}),
            ],
        ),
    ):
        worker: Any = fleet.workers[name]
        worker.steps, worker.alarms = steps, [Alarm(1.0, False, FAR)]
    monkeypatch.setattr(log, "ends", lambda broker, topic: [9, 4])
    looks: list[float] = []
    monkeypatch.setattr(turns, "time", SimpleNamespace(sleep=looks.append, monotonic=lambda: 0.0))
    before = fleet.clock.monotonic()
    turns.run_until_idle(fleet.workers, fleet.broker, fleet.clock)
    # Eight looks at the unread record, the first look at the rest, and five without a change.
    assert looks == [0.001] * 14
    assert fleet.clock.monotonic() == pytest.approx(before + 0.014)


def test_agents_that_never_end_fail_the_wait_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait has a deadline."""
    fleet, _ = made(tmp_path, "w1")
    clock = iter((0.0, 119.0, 121.0))
    monkeypatch.setattr(
        turns, "time", SimpleNamespace(sleep=lambda _: None, monotonic=lambda: next(clock))
    )
    worker: Any = fleet.workers["w1"]
    worker.steps, worker.alarms = [Progress(1, 1, {})], [Alarm(1.0, False, FAR)]
    with pytest.raises(AssertionError, match="waited 120 s for: the agents to be done"):
        turns.run_until_idle(fleet.workers, fleet.broker, fleet.clock)


@pytest.mark.parametrize("call", [turns.running, living])
def test_the_error_of_any_worker_is_raised(
    tmp_path: Path, call: Callable[[Mapping[str, Any]], list[Any]]
) -> None:
    """An ended worker's error counts too; else the living and thawed workers are returned."""
    fleet, _ = made(tmp_path, "w1", "w2", "w3")
    fleet.workers["w2"].kill()
    fleet.freeze("w3")
    assert [worker.name for worker in call(fleet.workers)] == ["w1"]
    fleet.workers["w2"].error = KeyError("broken")  # type: ignore[attr-defined]
    with pytest.raises(KeyError, match="broken"):
        call(fleet.workers)


def test_a_process_that_ended_by_itself_or_failed_to_start_is_an_error(tmp_path: Path) -> None:
    """A worker ended by the test is not an error; all journals are read."""
    fleet, _ = made(tmp_path)
    fleet.workers = {
        "a": Process("a"),
        "b": Process("b", is_alive=False, is_ended=True),
        "c": Process("c", is_frozen=True),
    }
    assert [worker.name for worker in living(fleet.workers)] == ["a"]
    assert [worker.read for worker in fleet.workers.values()] == [1, 1, 1]  # type: ignore[attr-defined]
    fleet.workers["b"].is_ended = False  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="the worker b ended: the end of its log"):
        living(fleet.workers)
    fleet.workers["a"].failure = "no such table"  # type: ignore[attr-defined]
    with pytest.raises(apps.AppNotFound, match="no such table"):
        living(fleet.workers)


# -- rest -----------------------------------------------------------------------------------------


def rested(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, states: list[Any], wait: Callable[[], None]
) -> int:
    """Return the number of looks until the fleet rests; a second passes at each look."""
    now = [0.0]
    looks: list[Any] = []

    def rest(living: Any, broker: Any) -> Any:
        now[0] += 1.0
        looks.append(living)
        return states.pop(0) if len(states) > 1 else states[0]

    def wait_until(fact: Callable[[], bool], what: Any, *, seconds: float) -> None:
        while not fact():
            if now[0] > seconds:
                raise AssertionError(what())

    monkeypatch.setattr(rest_module, "owners_at_rest", rest)
    monkeypatch.setattr(rest_module, "wait_until", wait_until)
    monkeypatch.setattr(rest_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    wait()
    return len(looks)


def test_a_fleet_is_at_rest_after_a_quiet_time_in_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another state restarts the quiet time; afterwards the clock is held."""
    fleet, _ = made(tmp_path, "w1")
    fleet._is_at_rest = False
    runs: list[None] = []
    monkeypatch.setattr(fleet.clock, "run", lambda: runs.append(None))
    first, second = (4, {(1, 0): "a"}), (5, {(1, 0): "b"})
    states = [first, first, None, first, second, second]
    looks = rested(fleet, monkeypatch, states, lambda: fleet.settle(quiet_s=2.0))
    assert looks == 7  # the fifth look sees the lasting state
    assert (fleet._is_at_rest, len(runs)) == (True, 1)
    before = fleet.clock.monotonic()
    assert fleet.clock.monotonic() == before


def test_a_single_worker_in_this_process_starts_in_a_hurry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pauses are shortened by 20 ms at each look; no quiet time follows."""
    fleet, _ = made(tmp_path, "w1")
    moved: list[float] = []
    monkeypatch.setattr(fleet.clock, "move", moved.append)
    states = [None, None, (4, {})]
    looks = rested(
        fleet, monkeypatch, states, lambda: fleet._wait_for_rest(0.0, 9.0, is_hurried=True)
    )
    assert (looks, moved) == (3, [0.02] * 3)
    fleet.processes = True
    moved.clear()
    rested(fleet, monkeypatch, [(4, {})], lambda: fleet._wait_for_rest(0.0, 9.0, is_hurried=True))
    assert moved == []


def test_a_fleet_that_does_not_rest_tells_the_state_of_each_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker has a line."""
    fleet, _ = made(tmp_path, "w1", "w2")
    with pytest.raises(AssertionError) as failure:
        rested(fleet, monkeypatch, [None], lambda: fleet.settle(timeout_s=3.0))
    state = "generation 4, ready 4, waits for 0 copies"
    assert str(failure.value) == f"the group to be at rest\nw1: {state}\nw2: {state}"
