"""A consumer's leave: its requests, its time limits and its end, on a virtual clock."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service.client import Grant, Lost, Release, Retry, TopicPartition, Warm
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.inbox import Inbox
from faust_assigner.service.client.leave import Leave
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.client.session import Session
from faust_assigner.service.errors import NotFound, WrongCaller
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.support.assigning.consumers import virtually
from tests.unit.service.test_client_heart import Stage as Heartbeats
from tests.unit.service.test_client_jobs import MISSED_S, T0, T1, WARM
from tests.unit.service.test_client_jobs import staged as jobs_staged

WAIT, STOP = pb.WAIT_FOR_DRAIN, pb.SHUTDOWN_NOW
RETRY = Retry(answer_s=3.5, leave_s=20.0)
FAREWELL = pb.DeregisterRequest(consumer_name="c", incarnation="i", group="g")


class Stage:
    """A leave; ``answers`` are those of the service in turn, each after ``answer_s``."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.answer_s = 0.0
        self.asked: list[tuple[float, str, Any]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.streams: Any = SimpleNamespace(is_open=False)
        self.holdings = Holdings()
        self.inbox = Inbox(self.holdings, lambda method, request: None)
        self.session = Session(self.holdings, self.inbox, lambda: self.now)
        calls: Any = SimpleNamespace(retried=self._retried)
        self.leave = Leave(
            "c",
            lambda: self.now,
            RETRY,
            self._start,
            calls,
            Requests("c", "i", "g"),
            self.holdings,
            self.inbox,
            self.session,
            self.streams,
        )

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - 1_000.0

    def _start(self, work: Coroutine[object, None, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def _retried(self, method: str, request: Any) -> Any:
        self.asked.append((self.now, method, request))
        answer = self.answers.pop(0)
        await asyncio.sleep(self.answer_s)
        if isinstance(answer, Exception):
            raise answer
        return pb.DeregisterResponse(action=answer)

    def begin(self, lives_s: float = 1_000.0) -> None:
        """Begin a session with a partition."""
        said = pb.AssignmentUpdate(session_id="s", lives_ms=int(lives_s * 1_000))
        self.session.begin(said, self.now + lives_s)
        self.holdings.update([Grant(T0, 5)], ())

    def told(self) -> list[Any]:
        """Return the new commands; None is the end."""
        found = []
        while not self.inbox._queue.empty():
            found.append(self.inbox._queue.get_nowait())
        return found

    async def end(self) -> None:
        """Cancel the tasks."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def staged(story: Callable[[Stage], Awaitable[None]], *answers: Any) -> None:
    """Run a scenario."""

    async def whole() -> None:
        stage = Stage(*answers)
        await story(stage)
        await stage.end()

    virtually(whole)


@pytest.mark.parametrize(
    ("answer", "is_registered", "is_open", "waits", "told"),
    [
        (WAIT, True, True, True, []),
        (STOP, True, True, False, [None]),
        (STOP, False, False, False, [None]),
        (STOP, False, True, False, []),
        (NotFound("gone"), True, True, False, []),
    ],
)
def test_the_answer_to_a_leave_says_whether_there_is_something_to_hand_over(
    answer: Any, is_registered: bool, is_open: bool, waits: bool, told: list[Any]
) -> None:
    """A first registration that is still on its way must be left, too, so the end waits for it."""

    async def story(s: Stage) -> None:
        if is_registered:
            s.begin()
        s.streams.is_open = is_open
        assert await s.leave.ask() is waits
        assert (s.asked, s.leave.is_begun) == ([(0.0, "Deregister", FAREWELL)], True)
        assert (s.told(), len(s.tasks)) == (told, 1)

    staged(story, answer)


def test_a_repeated_leave_asks_again_and_keeps_its_first_limit() -> None:
    """The limit counts from the first call; what is left is lost at once, before the end."""

    async def story(s: Stage) -> None:
        s.begin()
        assert await s.leave.ask()
        await asyncio.sleep(15.0)
        assert await s.leave.ask()
        assert [at for at, *_ in s.asked] == [0.0, 15.0]
        await asyncio.sleep(4.75)
        assert (s.told(), len(s.tasks)) == ([], 1)
        await asyncio.sleep(0.5)
        assert s.told() == [Lost((T0,)), None]
        assert (s.session.left_s, s.holdings.owned) == (-math.inf, {})

    staged(story, WAIT, WAIT)


def test_a_leave_without_an_answer_ends_after_its_time() -> None:
    """The request is given up then."""

    async def story(s: Stage) -> None:
        s.begin()
        s.answer_s = 90.0
        assert await s.leave.ask() is False
        assert s.now == 20.0

    staged(story, WAIT)


def test_another_refusal_of_a_leave_is_raised() -> None:
    """The caller learns that it may not act as this consumer."""

    async def story(s: Stage) -> None:
        with pytest.raises(WrongCaller):
            await s.leave.ask()

    staged(story, WrongCaller("who"))


def test_a_leave_ends_if_no_registration_has_lived_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is nothing to hand over; a registration in between begins the time again."""

    async def story(s: Stage) -> None:
        assert await s.leave.ask()
        await asyncio.sleep(2.5)
        s.begin(1.0)
        s.session.is_registered = False
        await asyncio.sleep(4.0)
        assert s.told()[-1:] != [None]
        await asyncio.sleep(0.75)
        assert (s.told()[-1:], s.now) == ([None], 7.25)

    with caplog.at_level(logging.WARNING):
        staged(story, WAIT)
    said = [one.getMessage() for one in caplog.records if one.name.endswith("client.leave")]
    assert said == [
        "c: leaves without an answer: its registration has expired, and no instance has answered "
        "for 3.5 s"
    ]


@pytest.mark.parametrize(
    ("answer", "told"), [(STOP, [None]), (WAIT, []), (NotFound("x"), []), (WrongCaller("x"), [])]
)
def test_a_leave_of_the_next_session_ends_only_if_nothing_is_left(
    answer: Any, told: list[Any]
) -> None:
    """A refusal is no error of the task: the limit ends the leave."""

    async def story(s: Stage) -> None:
        await s.leave.again()
        assert (s.asked, s.told()) == ([(0.0, "Deregister", FAREWELL)], told)

    staged(story, answer)


# -- the fence


@pytest.mark.parametrize("lives_s", [0.25, 2.75, 0.01])
def test_a_session_that_nobody_renews_is_over_at_its_end(lives_s: float) -> None:
    """The consumer may not work from then on, and learns it within 20 ms."""

    async def whole() -> None:
        s = Heartbeats()
        s.begin(lives_s=lives_s)
        fencing = asyncio.create_task(s.heart.fence())
        began = s.now
        assert isinstance(await s.inbox.read(), Lost)
        assert s.now - began == pytest.approx(max(lives_s, 0.02), abs=1e-3)
        assert s.cancelled == [s.now]
        fencing.cancel()

    virtually(whole)


# -- the handlers' tasks


def test_a_warm_up_goes_on_if_the_release_before_it_is_cancelled() -> None:
    """The loss of the session ends the release alone."""

    async def story(s: Any) -> None:
        s.release_s, s.warm_s = 50.0, 1.0
        await s.jobs.take(Release(T0, "b", 6))
        await asyncio.sleep(1.0)
        await s.jobs.take(WARM)
        await asyncio.sleep(1.0)
        await s.jobs.take(Lost((T1,)))
        await asyncio.sleep(5.0)

    assert jobs_staged(story) == [
        (0.0, "release", T0, "b"),
        (2.0, "release cancelled", T0),
        (2.0, "warm", T0, 3),
        (2.0, "lost", T1),
        (3.0, "warmed", T0),
        (3.0, "ready", 3),
    ]


@pytest.mark.parametrize("refusal", [NotFound("over"), WrongCaller("who")])
def test_no_task_of_a_hand_off_ends_with_an_error(refusal: Exception) -> None:
    """Nobody would read it: the service's refusals and the handlers' errors end in the log."""

    async def story(s: Any) -> None:
        s.error, s.refusal = OSError("disk"), refusal
        await s.jobs.take(WARM)
        warming = s.jobs._warming[T0]
        await asyncio.sleep(1.0)
        assert warming.exception() is None
        s.error, s.refusal, s.is_open = None, None, False
        other = TopicPartition("t", 7)
        await s.jobs.take(Warm(other, "b", 8))
        await asyncio.sleep(1.0)
        s.error = OSError("disk")
        await asyncio.sleep(MISSED_S)
        dropping = s.jobs._dropping[other]
        await asyncio.sleep(1.0)
        assert dropping.exception() is None

    jobs_staged(story)
