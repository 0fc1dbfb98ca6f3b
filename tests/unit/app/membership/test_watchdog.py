"""The watchdog: counted waits, missing tasks, and the restart of a stalled recovery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.consumer.waits import waits_of
from faust_assigner.app.membership import watchdog
from faust_assigner.app.membership.watchdog import (
    LOOK_S,
    STALLED_S,
    CannotGoOn,
    Watchdog,
    aiokafka_problem,
    must_run,
    runs_task,
)
from faust_assigner.app.retry import SAY_EVERY_S, RateLimitedLog


def test_the_time_that_a_process_was_stopped_counts_as_no_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An hour of sleep adds two looks at most to a wait."""
    counted: list[tuple[float, bool, bool]] = []

    def look(seconds: float, *, group_answers: bool, has_left: bool) -> list[str]:
        counted.append((seconds, group_answers, has_left))
        return ["The commit has waited"]

    monkeypatch.setattr(watchdog, "waits_of", lambda app: SimpleNamespace(advance=look))
    times = iter([1_001.0, 1_001.5, 4_601.0])
    monkeypatch.setattr(watchdog, "monotonic", lambda: next(times))
    manager: Any = SimpleNamespace(app=SimpleNamespace(consumer=None))
    looked = Watchdog(manager)._look_at_waits(1_000.0)
    looked = Watchdog(manager)._look_at_waits(looked)
    manager.app.consumer = SimpleNamespace(group_answers=lambda: False, has_left_group=lambda: True)
    assert Watchdog(manager)._look_at_waits(looked) == 4_601.0
    assert counted == [(1.0, True, False), (0.5, True, False), (2 * LOOK_S, False, True)]
    assert caplog.messages == ["The commit has waited"] * 3


def test_a_stalled_recovery_has_its_time_again_each_time_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The restart does not repeat at each look."""
    begun: list[float] = []
    now = 0.0
    monkeypatch.setattr(watchdog, "monotonic", lambda: now)
    recovery = SimpleNamespace(
        idle=True,
        signal_recovery_start=SimpleNamespace(is_set=lambda: False),
        _generation_id=2,
        completed_generation=1,
        restart_recovery=lambda: begun.append(now),
    )
    consumer = SimpleNamespace(between_generations=False, assignment=lambda: {"orders-0"})
    manager: Any = SimpleNamespace(
        recovery=recovery, app=SimpleNamespace(consumer=consumer, consumer_generation_id=2)
    )
    since: float | None = None
    for look in range(26):
        now = float(look)
        since = Watchdog(manager)._begin_stalled_again(since)
    assert begun == [STALLED_S, 2 * STALLED_S + 1]


# -- required services and threads


def service(*running: str, started: bool = True, stops: bool = False) -> Any:
    """Return a service with tasks; only the tasks in ``running`` still run."""
    tasks = [
        SimpleNamespace(
            __wrapped__=SimpleNamespace(__name__=name), done=lambda name=name: name not in running
        )
        for name in ("_restart_recovery", "_slurp_changelogs", "_fetcher")
    ]
    return SimpleNamespace(started=started, should_stop=stops, _futures=tasks)


@pytest.mark.parametrize(
    ("started", "stops", "is_running"),
    [(True, False, False), (False, False, True), (True, True, True)],
)
def test_a_task_that_has_ended_is_missed_in_a_service_that_runs(
    started: bool, stops: bool, is_running: bool
) -> None:
    """A service before its start or during its stop has no tasks."""
    assert runs_task(service(started=started, stops=stops), "_fetcher") is is_running
    assert runs_task(service("_fetcher"), "_fetcher")
    assert not runs_task(service("_fetcher"), "_another")


@pytest.mark.parametrize("which", ["_coordination_task", "_fetch_task"])
async def test_a_task_of_aiokafkas_that_has_ended_is_a_problem(which: str) -> None:
    """A closed client has no problem."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    consumer = SimpleNamespace(
        _closed=False, _coordinator=SimpleNamespace(), _fetcher=SimpleNamespace()
    )
    part = consumer._fetcher if which == "_fetch_task" else consumer._coordinator
    setattr(part, which, ended)
    assert aiokafka_problem(consumer) is None
    ended.set_exception(ValueError("a bug"))
    problem = aiokafka_problem(consumer)
    assert problem is not None
    assert ("fetching" if which == "_fetch_task" else "membership") in problem
    assert "a bug" in problem
    consumer._closed = True
    assert aiokafka_problem(consumer) is None
    assert aiokafka_problem(None) is None


def test_an_error_that_stops_the_group_coordinator_is_a_problem() -> None:
    """aiokafka keeps the error for a later call, and its coordinator stays idle."""
    coordinator = SimpleNamespace(_pending_exception=ValueError("not authorized"))
    consumer = SimpleNamespace(_closed=False, _coordinator=coordinator, _fetcher=None)
    problem = "the group coordinator gave up: ValueError('not authorized')"
    assert aiokafka_problem(consumer) == problem
    manager = Manager()
    manager.thread._consumer = consumer
    assert list(manager.problems()) == [("aiokafka", problem)]
    manager.thread.should_stop = True
    assert list(manager.problems()) == []


class Manager(Watchdog):
    """A table manager of a healthy worker."""

    should_stop = False

    def __init__(self, **app: Any) -> None:
        super().__init__(self)
        self.recovery = service("_restart_recovery", "_slurp_changelogs")
        self.recovery.waiting_for = None
        self.mismatch: str | None = None
        self.thread = SimpleNamespace(
            started=True,
            should_stop=False,
            _thread=SimpleNamespace(is_alive=lambda: True),
            _consumer=None,
        )
        self.app = SimpleNamespace(
            should_stop=False,
            _fetcher=service("_fetcher"),
            consumer=SimpleNamespace(_thread=self.thread),
            **app,
        )

    def topic_problem(self) -> str | None:
        """Return the mismatch."""
        return self.mismatch

    async def sleep(self, seconds: float) -> None:
        """Yield to the loop."""
        await asyncio.sleep(0)


def ended_recovery(manager: Any) -> None:
    """End the recovery's first loop."""
    manager.recovery = service("_slurp_changelogs")


def ended_replay(manager: Any) -> None:
    """End the recovery's second loop."""
    manager.recovery = service("_restart_recovery")


def ended_fetcher(manager: Any) -> None:
    """End the fetcher."""
    manager.app._fetcher = service()


def ended_thread(manager: Any) -> None:
    """End the consumer's thread."""
    manager.thread._thread.is_alive = lambda: False


def uneven_topics(manager: Any) -> None:
    """Report a topic mismatch."""
    manager.mismatch = "a mismatch"


def overdue_wait(manager: Any) -> None:
    """Let a commit exceed its deadline."""
    manager.wait = waits_of(manager.app).during("The commit", "an answer", 1.0)
    manager.wait.__enter__()
    waits_of(manager.app).advance(2.0, group_answers=True)


def another_rooms(manager: Any) -> None:
    """Report a problem of a registered check."""
    must_run(manager.app, "its own", lambda: "its thread")


PROBLEMS: list[tuple[Callable[[Any], None], str]] = [
    (ended_recovery, "_restart_recovery has ended"),
    (ended_replay, "_slurp_changelogs has ended"),
    (ended_fetcher, "the fetcher has ended"),
    (ended_thread, "the consumer's thread has ended"),
    (uneven_topics, "a mismatch"),
    (overdue_wait, "The commit has waited"),
    (another_rooms, "its thread"),
]


@pytest.mark.parametrize(("end", "text"), PROBLEMS, ids=[end.__name__ for end, _ in PROBLEMS])
async def test_a_worker_without_something_it_needs_ends_after_three_looks(
    end: Callable[[Any], None], text: str
) -> None:
    """The problem names the missing part; a healthy or stopping worker has none."""
    manager = Manager()
    assert list(manager.problems()) == []
    end(manager)
    assert [found for _, found in manager.problems() if text in found]
    manager.app.should_stop = True
    assert list(manager.problems()) == []


async def looks(found: list[str | None], *, stops: bool = False) -> None:
    """Run a look per entry of ``found``, then stop the service."""

    class Looked(Manager):
        def problems(self) -> Any:
            problem = found.pop(0)
            self.app.should_stop = stops and not found
            return iter([("thread", problem)] if problem else [])

        def _begin_stalled_again(self, since: float | None) -> float | None:
            self.should_stop = not found
            return since

    manager = Looked()
    await manager.watch()


async def test_a_problem_of_three_looks_in_a_row_ends_the_worker() -> None:
    """An interrupted problem does not end the worker, and a stopping worker ignores problems."""
    await looks(["has ended", "has ended", None, "has ended", "has ended"])
    await looks(["has ended", "another", "has ended"])
    await looks(["has ended"] * 3, stops=True)
    with pytest.raises(CannotGoOn, match="has ended"):
        await looks(["has ended"] * 3)


@pytest.mark.parametrize("reason", ["busy", "due", "complete", "old", "between", "nothing"])
def test_a_recovery_is_not_begun_again_while_somebody_runs_it(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """A complete recovery and an empty assignment cause no restart either."""
    now = 0.0
    monkeypatch.setattr(watchdog, "monotonic", lambda: now)
    recovery = SimpleNamespace(
        idle=reason != "busy",
        signal_recovery_start=SimpleNamespace(is_set=lambda: reason == "due"),
        _generation_id=1 if reason == "old" else 2,
        completed_generation=2 if reason == "complete" else 1,
    )
    consumer = SimpleNamespace(
        between_generations=reason == "between",
        assignment=lambda: set() if reason == "nothing" else {"orders-0"},
    )
    manager: Any = SimpleNamespace(
        recovery=recovery, app=SimpleNamespace(consumer=consumer, consumer_generation_id=2)
    )
    for now in (0.0, STALLED_S, 3 * STALLED_S):  # noqa: B007
        assert Watchdog(manager)._begin_stalled_again(0.0) is None


def test_each_step_that_a_recovery_waits_for_is_logged_after_a_minute(caplog: Any) -> None:
    """The same step of a later recovery has its own line."""
    said, manager = RateLimitedLog(), Manager()
    for since, lines in ((SAY_EVERY_S - 5.0, 0), (SAY_EVERY_S + 5.0, 1), (SAY_EVERY_S + 9.0, 2)):
        waiting = ("seek offsets", watchdog.monotonic() - since)
        manager.recovery.waiting_for = waiting
        for _ in range(2):
            manager._log_wait(said)
        assert caplog.text.count("seek offsets") == lines


def test_every_problem_is_found_by_its_name_in_order() -> None:
    """All problems are listed; only a dead thread hides the problem of its client."""
    manager = Manager()
    consumer = SimpleNamespace(
        _closed=False,
        _coordinator=SimpleNamespace(_pending_exception=ValueError("refused")),
        _fetcher=None,
    )
    manager.thread._consumer = consumer
    for end in (uneven_topics, overdue_wait, another_rooms, ended_fetcher):
        end(manager)
    must_run(manager.app, "well", lambda: None)
    must_run(manager.app, "second", lambda: "its second")
    must_run(manager.app, "second", lambda: "its third")
    manager.recovery = service()
    client = ("aiokafka", "the group coordinator gave up: ValueError('refused')")
    found = [
        ("_restart_recovery", "the recovery's _restart_recovery has ended"),
        ("_slurp_changelogs", "the recovery's _slurp_changelogs has ended"),
        ("fetcher", "the fetcher has ended"),
        client,
        ("topics", "a mismatch"),
        ("waits", "The commit has waited for 1 s for an answer"),
        ("its own", "its thread"),
        ("second", "its third"),
    ]
    assert list(manager.problems()) == found
    ended_thread(manager)
    thread = ("thread", "the consumer's thread has ended")
    assert list(manager.problems()) == [thread if one == client else one for one in found]
    manager.should_stop = True
    assert list(manager.problems()) == []


@pytest.mark.parametrize("reason", ["not started", "stops", "no thread", "no consumer"])
def test_a_consumers_thread_that_does_not_run_yet_or_any_more_has_no_problem(reason: str) -> None:
    """The check skips its client as well."""
    manager = Manager()
    ended_thread(manager)
    if reason == "not started":
        manager.thread.started = False
    elif reason == "stops":
        manager.thread.should_stop = True
    elif reason == "no thread":
        manager.thread._thread = None
    else:
        manager.app.consumer = None
    assert list(manager.problems()) == []


async def test_a_task_that_was_cancelled_has_no_reason_and_other_objects_are_no_tasks() -> None:
    """A client without a group has no coordination task."""
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    consumer = SimpleNamespace(
        _closed=False,
        _coordinator=SimpleNamespace(_coordination_task="no task"),
        _fetcher=SimpleNamespace(_fetch_task=cancelled),
    )
    assert aiokafka_problem(consumer) == "aiokafka's fetching has ended: None"
    assert aiokafka_problem(SimpleNamespace(_closed=False)) is None


@pytest.mark.parametrize("stops", ["the service", "the app"])
async def test_each_look_counts_the_waits_and_tries_the_recovery(
    monkeypatch: pytest.MonkeyPatch, stops: str
) -> None:
    """Each look gets the last look's result, once a second, until the service or its app stops."""
    acts: list[Any] = []

    class Looked(Manager):
        async def sleep(self, seconds: float) -> None:
            acts.append(("sleep", seconds))

        def _look_at_waits(self, looked: float) -> float:
            acts.append(("waits", looked))
            return looked + 1.0

        def _begin_stalled_again(self, since: float | None) -> float | None:
            acts.append(("stalled", since))
            return 7.0 if since is None else since + 1.0

        def _log_wait(self, said: RateLimitedLog) -> None:
            acts.append("say")
            is_over = acts.count("say") == 2
            self.should_stop = is_over and stops == "the service"
            self.app.should_stop = is_over and stops == "the app"

    monkeypatch.setattr(watchdog, "monotonic", lambda: 50.0)
    await Looked().watch()
    assert acts == [
        ("sleep", LOOK_S),
        ("waits", 50.0),
        ("stalled", None),
        "say",
        ("sleep", LOOK_S),
        ("waits", 51.0),
        ("stalled", 7.0),
        "say",
    ]


def test_a_recovery_that_waits_for_nothing_has_no_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait below a minute has no line; at a minute the line has the seconds."""
    manager, said = Manager(), RateLimitedLog()
    manager._log_wait(said)
    monkeypatch.setattr(watchdog, "monotonic", lambda: 500.0)
    for since in (500.0 - SAY_EVERY_S + 0.5, 500.0 - SAY_EVERY_S):
        manager.recovery.waiting_for = ("seek offsets", since)
        manager._log_wait(said)
    assert caplog.messages == [
        "Partitions stand still: the recovery has waited for 60 s: seek offsets"
    ]
