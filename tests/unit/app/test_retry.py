"""Errors of a silent broker, the retries of a step, and the rate of their log lines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaTimeoutError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)

from faust_assigner.app import retry as module
from faust_assigner.app.retry import SAY_EVERY_S, RateLimitedLog, is_temporary, pause_s, retry


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (KafkaTimeoutError(), True),
        (RequestTimedOutError(), True),
        (CommitFailedError("lost"), False),
        (IllegalStateError("not assigned"), False),
        (TopicAuthorizationFailedError(), False),
        (ValueError(), False),
    ],
)
def test_only_what_may_pass_by_itself_is_silence(error: Exception, is_so: bool) -> None:
    """The same request may succeed later."""
    assert is_temporary(error) is is_so


def test_pauses_double_from_half_a_second_to_eight() -> None:
    """Later pauses are 8 s."""
    assert [pause_s(attempt) for attempt in (0, 1, 2, 3, 4, 5, 10_000)] == [
        0.5,
        1.0,
        2.0,
        4.0,
        8.0,
        8.0,
        8.0,
    ]


def test_trouble_is_logged_every_minute_for_as_long_as_it_lasts() -> None:
    """Each minute counts from the last line; the omitted lines are counted."""
    now = 0.0
    said = RateLimitedLog(lambda: now)
    due = []
    for minute_share in range(9):
        now = minute_share * SAY_EVERY_S / 4
        due.append(said.due("trouble"))
    assert due == [True, False, False, False, True, False, False, False, True]
    assert said.suppressed == {"trouble": 6}
    assert said.due("another")


class Service:
    """A mode service that stops during sleep number ``stops_at``."""

    should_stop = False

    def __init__(self, stops_at: int = 99) -> None:
        self.stops_at, self.slept = stops_at, list[float]()

    async def sleep(self, seconds: float) -> None:
        """Note the sleep."""
        self.slept.append(seconds)
        self.should_stop = len(self.slept) >= self.stops_at


async def test_a_step_is_taken_until_it_is_answered(caplog: Any) -> None:
    """The log has a line a minute with the step's name."""
    answers: list[Any] = [TimeoutError(), KafkaTimeoutError(), "ends"]

    async def step() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    service = Service()
    assert await retry(service, "Ends of changelogs", step) == "ends"
    assert service.slept == [0.5, 1.0]
    assert [record.message.partition(":")[0] for record in caplog.records] == ["Ends of changelogs"]


async def test_a_step_of_a_service_that_stops_is_cancelled() -> None:
    """A silent broker does not delay the cancellation; any other error ends the step at once."""

    async def fail(error: Exception) -> None:
        raise error

    service = Service(stops_at=2)
    with pytest.raises(asyncio.CancelledError):
        await retry(service, "Ends", lambda: fail(TimeoutError()))
    assert len(service.slept) == 2
    service = Service()
    with pytest.raises(ValueError, match="a bug"):
        await retry(service, "Ends", lambda: fail(ValueError("a bug")))
    assert service.slept == []


async def test_each_line_has_the_step_the_wait_and_the_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A line follows each minute; pauses grow to 8 s, and the step may fail in several ways."""
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    clocked = RateLimitedLog(lambda: now)
    monkeypatch.setattr(module, "RateLimitedLog", lambda: clocked)
    errors = [
        ConnectionResetError("gone"),
        TimeoutError(),
        RequestTimedOutError(),
        TimeoutError("x"),
    ]
    tried: list[float] = []

    async def step() -> str:
        nonlocal now
        tried.append(now)
        now += 25.0
        if len(tried) > 9:
            return "answer"
        raise errors[len(tried) % 4]

    service = Service()
    assert await retry(service, "Ends of changelogs", step) == "answer"
    assert tried == [1000.0 + 25.0 * number for number in range(10)]
    assert service.slept == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    said = (
        "Ends of changelogs: the broker has not answered for {} s; this worker keeps trying: {!r}"
    )
    assert caplog.messages == [
        said.format(25, errors[1]),
        said.format(100, errors[0]),
        said.format(175, errors[3]),
    ]
    assert clocked.suppressed == {"Ends of changelogs": 6}


def test_each_trouble_has_its_own_minute_and_count() -> None:
    """The first line of a trouble is due at once, also at time 0."""
    now = 0.0
    said = RateLimitedLog(lambda: now)
    assert [said.due(one) for one in ("a", "b", "a", "a", "b")] == [True, True, False, False, False]
    now = SAY_EVERY_S - 0.5
    assert (said.due("a"), said.due("c")) == (False, True)
    now = SAY_EVERY_S
    assert [said.due(one) for one in ("a", "c", "b")] == [True, False, True]
    assert said.suppressed == {"a": 3, "b": 1, "c": 1}


async def test_a_service_that_stops_in_a_pause_takes_no_further_step() -> None:
    """The pause comes first: a stop during it counts at once."""
    acts: list[Any] = []

    class Stopping:
        """A service that stops while it sleeps."""

        should_stop = False

        async def sleep(self, seconds: float) -> None:
            acts.append(seconds)
            self.should_stop = True

    async def step() -> None:
        acts.append("step")
        raise TimeoutError

    with pytest.raises(asyncio.CancelledError, match="the seek"):
        await retry(Stopping(), "the seek", step)
    assert acts == ["step", 0.5]
