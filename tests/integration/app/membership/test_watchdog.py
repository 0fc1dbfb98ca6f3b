"""A worker that cannot continue ends with an error; a worker that waits logs the reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from faust_assigner.app.membership import watchdog
from faust_assigner.app.membership.watchdog import CannotGoOn, aiokafka_problem, must_run
from faust_assigner.app.retry import RateLimitedLog, is_temporary, pause_s, retry
from tests.support.workers.virtual import Worker, running

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_S", 0.02)


def end_task(service: Any, name: str) -> None:
    """End the service's task as a swallowed cancellation does."""
    [task] = [one for one in service._futures if getattr(one.__wrapped__, "__name__", "") == name]
    task.cancel()


def end_membership(worker: Worker) -> None:
    """End aiokafka's coordination task, as an exception in an assignor does."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ended.set_exception(ValueError("in assign()"))
    worker.app.consumer._thread._consumer._coordinator._coordination_task = ended


ENDS: dict[str, Callable[[Worker], None]] = {
    "recovery": lambda worker: end_task(worker.app.tables.recovery, "_restart_recovery"),
    "replay": lambda worker: end_task(worker.app.tables.recovery, "_slurp_changelogs"),
    "fetcher": lambda worker: end_task(worker.app._fetcher, "_fetcher"),
    "membership": end_membership,
    "another room's": lambda worker: must_run(
        worker.app, "its own", lambda: "its thread has ended"
    ),
}


@pytest.mark.parametrize("end", list(ENDS))
async def test_what_has_ended_ends_the_worker(end: str) -> None:
    """Stock stays in the group, sends heartbeats and processes no record."""
    worker = Worker(repaired=True)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        ENDS[end](worker)
        assert await worker.until(lambda: worker.app.crash_reason is not None)
        assert isinstance(worker.app.crash_reason, CannotGoOn)


async def test_a_worker_that_works_is_left_alone() -> None:
    """Rebalances with and without partitions do not end the worker."""
    worker = Worker(partitions=2, repaired=True)
    worker.send_changelog(20)
    async with running(worker):
        for actives in ([0], [], [0, 1]):
            await worker.rebalance(actives)
            assert await worker.until(lambda: worker.recovered)
            await asyncio.sleep(0.3)
        worker.send_orders(5)
        assert await worker.until(lambda: len(worker.offsets) == 5)
        assert worker.app.crash_reason is None


async def test_a_recovery_left_without_an_end_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop takes some errors for the start of another rebalance, which need not follow."""
    from aiokafka.errors import IllegalStateError

    monkeypatch.setattr(watchdog, "STALLED_S", 0.2)
    worker = Worker(repaired=True)
    worker.send_changelog(20)
    worker.send_orders(5)
    async with running(worker):
        highwaters, calls = worker.app.consumer.highwaters, []

        async def once_lost(*tps: Any) -> Any:
            calls.append(tps)
            if len(calls) == 1:
                raise IllegalStateError("not assigned")
            return await highwaters(*tps)

        worker.app.consumer.highwaters = once_lost
        await worker.rebalance([0])
        assert await worker.until(lambda: len(worker.offsets) == 5)


def test_an_error_that_nobody_asks_for_is_a_problem() -> None:
    """aiokafka's coordinator waits until a caller fetches the error; Faust never does."""
    from types import SimpleNamespace

    coordinator = SimpleNamespace(
        _pending_exception=ValueError("not authorised"), _coordination_task=None
    )
    consumer = SimpleNamespace(_closed=False, _coordinator=coordinator, _fetcher=None)
    assert "not authorised" in (aiokafka_problem(consumer) or "")
    coordinator._pending_exception = None
    assert aiokafka_problem(consumer) is None


async def test_a_long_wait_is_said_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log line names the step that is waited for."""
    monkeypatch.setattr(watchdog, "SAY_EVERY_S", 0.1)
    worker = Worker(repaired=True)
    worker.send_changelog(20)
    async with running(worker):

        async def silent(*_: Any) -> Any:
            await asyncio.sleep(30)

        worker.app.consumer.highwaters = silent
        await worker.rebalance([0])
        with caplog.at_level(logging.WARNING):
            said = lambda: [r for r in caplog.records if "Partitions stand still" in r.message]  # noqa: E731
            assert await worker.until(said)
            await asyncio.sleep(0.5)
        assert len(said()) == 1
        assert "build highwaters" in said()[0].message


async def test_a_step_is_taken_again_until_the_broker_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only timeouts are retried; the pause grows to 8 s."""
    from types import SimpleNamespace

    from aiokafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

    assert [pause_s(n) for n in (0, 1, 2, 9)] == [0.5, 1.0, 2.0, 8.0]
    service, errors = (
        SimpleNamespace(should_stop=False),
        [KafkaTimeoutError(), TimeoutError(), None],
    )

    async def sleep(_: float) -> None:
        pass

    async def step() -> str:
        error = errors.pop(0)
        if error is not None:
            raise error
        return "answer"

    service.sleep = sleep
    assert await retry(service, "step", step) == "answer"
    errors.append(TopicAuthorizationFailedError())
    with pytest.raises(TopicAuthorizationFailedError):
        await retry(service, "step", step)
    assert not is_temporary(TopicAuthorizationFailedError())


def test_each_trouble_is_said_at_once_and_then_every_minute() -> None:
    """The test passes in the clock."""
    now = [0.0]
    said = RateLimitedLog(lambda: now[0])
    found = []
    for now[0] in (0.0, 1.0, 59.0, 60.0, 61.0, 120.0):
        found.append(said.due("disk"))
    assert found == [True, False, False, True, False, True]
    assert said.suppressed == {"disk": 3}


async def test_trouble_that_comes_and_goes_ends_no_worker() -> None:
    """Only three failed checks in a row count; a client that sometimes reconnects is healthy."""
    worker = Worker(repaired=True)
    looks = 0

    def every_other_look() -> str | None:
        nonlocal looks
        looks += 1
        return "it is away" if looks % 3 else None

    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        must_run(worker.app, "its own", every_other_look)
        assert await worker.until(lambda: looks > 12)
        assert worker.app.crash_reason is None


def test_one_trouble_holds_back_no_other() -> None:
    """A disk that is full for an hour must not hide that the broker does not answer."""
    said = RateLimitedLog(lambda: 0.0)
    assert [said.due(trouble) for trouble in ("disk", "broker", "disk", "broker")] == [
        True,
        True,
        False,
        False,
    ]
    assert said.suppressed == {"disk": 1, "broker": 1}
