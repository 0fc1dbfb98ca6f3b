"""Heartbeats, the fence and the streams of a client, with a fake instance."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.service.client import Grant, Lost, Registration, Retry, TopicPartition
from faust_assigner.service.client.calls import Calls
from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.heart import Heart
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.inbox import Inbox
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.client.session import Session
from faust_assigner.service.client.streams import Streams
from faust_assigner.service.errors import Expelled, NotFound, Replaced, WrongCaller
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.support.assigning.consumers import virtually

T0 = TopicPartition("t", 0)


def unanswered(code: Any = grpc.StatusCode.UNAVAILABLE) -> grpc.aio.AioRpcError:
    """A call without an answer."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, "no answer")


class Stage:
    """A client's parts; ``answers`` are those to its heartbeats in turn, the last one repeated."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[float, str, int, float]] = []
        self.cancelled: list[float] = []
        self.answer_s = 0.0
        self.holdings = Holdings()
        self.inbox = Inbox(self.holdings, lambda method, request: None)
        self.session = Session(self.holdings, self.inbox, lambda: self.now)
        calls: Any = SimpleNamespace(once=self._once)
        streams: Any = SimpleNamespace(cancel=lambda: self.cancelled.append(self.now))
        self.heart = Heart(
            "c",
            lambda: self.now,
            calls=calls,
            requests=Requests("c", "i"),
            holdings=self.holdings,
            inbox=self.inbox,
            session=self.session,
            streams=streams,
        )

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - 1_000.0

    async def _once(self, method: str, request: Any, *, timeout: float = 5.0) -> Any:
        assert method == "Heartbeat"
        self.sent.append((self.now, request.session_id, request.held.count, timeout))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        await asyncio.sleep(self.answer_s)
        if isinstance(answer, Exception):
            raise answer
        return pb.HeartbeatResponse(known=answer > 0, lives_ms=max(0, int(answer * 1_000)))

    def begin(self, name: str = "s1", *, lives_s: float = 12.0, pulse_ms: int = 0) -> None:
        """Begin a session with one partition."""
        said = pb.AssignmentUpdate(
            session_id=name, lives_ms=int(lives_s * 1_000), pulse_ms=pulse_ms
        )
        self.session.begin(said, self.now + lives_s)
        self.session.note_message()
        self.holdings.update([Grant(T0, 5)], ())

    def told(self) -> list[Any]:
        """Return the new commands and errors."""
        found = []
        while not self.inbox._queue.empty():
            found.append(self.inbox._queue.get_nowait())
        return found


def staged(story: Callable[[Stage], Awaitable[None]], *answers: Any) -> None:
    """Run a scenario."""

    async def whole() -> None:
        await story(Stage(*answers))

    virtually(whole)


def test_six_heartbeats_are_sent_in_a_time_to_live() -> None:
    """A heartbeat has the session, the partitions and a timeout; its answer counts from its sending."""

    async def story(s: Stage) -> None:
        beating = asyncio.create_task(s.heart.beat())
        await asyncio.sleep(5.0)
        assert s.sent == []
        s.answer_s = 1.0
        s.begin()
        await asyncio.sleep(7.5)
        assert s.sent == [(7.0, "s1", 1, 2.0), (10.0, "s1", 1, 2.0)]
        assert s.holdings.until == 10.0 + 30.0
        s.begin("s2", lives_s=6.0)
        await asyncio.sleep(4.0)
        assert s.sent[-1][1:] == ("s2", 1, 1.0)
        assert (s.cancelled, s.told()) == ([], [])
        beating.cancel()

    staged(story, 30.0)


@pytest.mark.parametrize("error", [unanswered(), WrongCaller("x"), NotFound("x")])
def test_a_stream_ends_when_half_of_the_time_to_live_is_left(error: Exception) -> None:
    """Unanswered heartbeats before then are repeated."""

    async def story(s: Stage) -> None:
        s.begin()
        beating = asyncio.create_task(s.heart.beat())
        await asyncio.sleep(5.9)
        assert s.cancelled == []
        await asyncio.sleep(0.2)
        assert (s.cancelled, s.told()) == ([6.0], [])
        assert s.holdings.may_work(T0, s.now)
        beating.cancel()

    staged(story, error)


@pytest.mark.parametrize("error", [Replaced("x"), Expelled("x")])
def test_a_replaced_or_expelled_process_stops_at_once_and_beats_no_more(error: Exception) -> None:
    """Its partitions are lost before the error is read."""

    async def story(s: Stage) -> None:
        s.begin()
        await asyncio.wait_for(s.heart.beat(), 10.0)
        assert (s.told(), s.cancelled, len(s.sent)) == ([Lost((T0,)), error], [], 1)

    staged(story, error)


def test_a_session_that_the_service_does_not_know_is_lost() -> None:
    """Other consumers may own its partitions; the stream is cancelled."""

    async def story(s: Stage) -> None:
        s.begin()
        beating = asyncio.create_task(s.heart.beat())
        await asyncio.sleep(2.1)
        assert (s.told(), s.cancelled) == ([Lost((T0,))], [2.0])
        beating.cancel()

    staged(story, -1)


@pytest.mark.parametrize(("answer", "until"), [(30.0, 20.0), (-1, 20.0), (unanswered(), 20.0)])
def test_an_answer_for_the_session_before_changes_nothing(answer: Any, until: float) -> None:
    """The next session began while the heartbeat was in flight."""

    async def story(s: Stage) -> None:
        s.begin()
        s.answer_s = 7.0
        beating = asyncio.create_task(s.heart.beat())
        await asyncio.sleep(8.0)
        s.begin("s2")
        await asyncio.sleep(1.5)
        assert (s.told(), s.cancelled, s.holdings.until) == ([], [], until)
        beating.cancel()

    staged(story, answer)


def test_an_answer_after_the_end_of_the_session_does_not_revive_it() -> None:
    """The partitions are already lost; only the next stream may grant them."""

    async def story(s: Stage) -> None:
        s.begin()
        s.answer_s = 11.0
        beating = asyncio.create_task(s.heart.beat())
        await asyncio.sleep(13.1)
        assert (s.told(), s.cancelled) == ([Lost((T0,))], [13.0])
        assert s.holdings.until == 12.0
        beating.cancel()

    staged(story, 30.0)


@pytest.mark.parametrize(("pulse_ms", "ends"), [(100, True), (0, False)])
def test_a_silent_stream_that_should_pulse_is_left(pulse_ms: int, ends: bool) -> None:
    """The stream ends after half a time to live, although heartbeats are answered."""

    async def story(s: Stage) -> None:
        s.begin(pulse_ms=pulse_ms)
        beating = asyncio.create_task(s.heart.beat())
        await asyncio.sleep(7.9)
        assert s.cancelled == []
        await asyncio.sleep(0.2)
        assert s.cancelled == ([8.0] if ends else [])
        beating.cancel()

    staged(story, 30.0)


def test_a_registration_that_waits_is_not_cancelled_by_heartbeats_or_the_fence() -> None:
    """A new registration would be last in the queue; the partitions are lost on time."""

    async def story(s: Stage) -> None:
        s.begin()
        s.session.is_registered = False
        jobs = [asyncio.create_task(s.heart.beat()), asyncio.create_task(s.heart.fence())]
        await asyncio.sleep(11.9)
        assert s.told() == []
        await asyncio.sleep(1.0)
        assert (s.told(), s.cancelled) == ([Lost((T0,))], [])
        for job in jobs:
            job.cancel()

    staged(story, unanswered())


def test_the_fence_loses_the_partitions_at_their_time_and_ends_the_stream_once() -> None:
    """The same holds for the next session."""

    async def story(s: Stage) -> None:
        s.begin()
        fencing = asyncio.create_task(s.heart.fence())
        await asyncio.sleep(11.9)
        assert (s.told(), s.cancelled) == ([], [])
        await asyncio.sleep(5.0)
        assert s.told() == [Lost((T0,))]
        assert s.cancelled == [pytest.approx(12.0, abs=0.03)]
        s.begin("s2")
        await asyncio.sleep(13.0)
        assert (s.told(), len(s.cancelled)) == ([Lost((T0,))], 2)
        fencing.cancel()

    staged(story, 30.0)


# -- streams -----------------------------------------------------------------------------------------


class Told:
    """A fake stream of an instance: a delay, messages, and an end."""

    def __init__(self, first_s: float, messages: list[Any], end: Any, log: list[str]) -> None:
        self.first_s, self.messages, self.end, self.log = first_s, messages, end, log
        self.is_cancelled = asyncio.Event()

    def cancel(self) -> None:
        """End the stream, like gRPC."""
        self.is_cancelled.set()
        self.log.append("cancelled")

    async def code(self) -> Any:
        """Return the status."""
        return grpc.StatusCode.OK

    def __aiter__(self) -> Any:
        return self._read()

    async def _read(self) -> Any:
        for message in [None, *self.messages]:
            if message is None:
                try:
                    async with asyncio.timeout(self.first_s):
                        await self.is_cancelled.wait()
                    raise asyncio.CancelledError
                except TimeoutError:
                    continue
            yield message
        if isinstance(self.end, float):
            async with asyncio.timeout(self.end):
                await self.is_cancelled.wait()
        if isinstance(self.end, Exception):
            raise self.end


class Instances:
    """Fake streams in turn; each start is recorded with its time, target and request."""

    def __init__(self, *streams: tuple[float, list[Any], Any], **retry: Any) -> None:
        self.streams = list(streams)
        self.log: list[str] = []
        self.begun: list[tuple[float, str, bool]] = []
        self.beats: list[float] = []
        self.stage = stage = Stage(30.0)
        self.closed = 0
        calls: Any = SimpleNamespace(register=self._register, close=self._close, once=stage._once)
        self.streamed = Streams(
            "c",
            ("x:1", "y:1", "z:1"),
            Registration(topics=("t",)),
            Waits(**retry),
            lambda: stage.now,
            calls=calls,
            requests=Requests("c", "i"),
            holdings=stage.holdings,
            inbox=stage.inbox,
            session=stage.session,
            begun=lambda: self.log.append("begun"),
        )

    def _register(self, target: str, request: Any) -> Told:
        self.begun.append((self.stage.now, target, request.returns))
        first_s, messages, end = self.streams.pop(0)
        if isinstance(end, OSError):
            raise end
        return Told(first_s, messages, end, self.log)

    async def _close(self) -> None:
        self.closed += 1


class Waits(Retry):
    """Waits for as many seconds as the number of the attempt."""

    def wait(self, attempt: int, chance: random.Random) -> float:
        """Return the number of the attempt."""
        return float(attempt)


def first(session: str = "s1", lives_s: float = 12.0) -> pb.AssignmentCommand:
    """The first message of a stream."""
    said = pb.AssignmentUpdate(session_id=session, lives_ms=int(lives_s * 1_000))
    return pb.AssignmentCommand(assignment=said)


def held(story: Callable[[Instances], Awaitable[None]], *streams: Any, **retry: Any) -> None:
    """Run a scenario with these streams."""

    async def whole() -> None:
        await story(Instances(*streams, **retry))

    virtually(whole)


def test_one_target_after_another_is_tried_with_longer_waits_until_a_session_begins() -> None:
    """After a session the waits start again at 0; the end of a drained consumer is final."""

    async def story(i: Instances) -> None:
        await i.streamed.hold()
        assert [target for _, target, _ in i.begun] == ["x:1", "y:1", "z:1", "x:1", "y:1"]
        assert [moment for moment, *_ in i.begun] == [0.0, 0.0, 1.0, 2.0, 3.0]
        assert [returns for *_, returns in i.begun] == [False, False, False, True, True]
        assert i.stage.told()[-1] is None

    lost = unanswered()
    held(
        story,
        (0.0, [], lost),
        (0.0, [], lost),
        (1.0, [first()], lost),
        (0.0, [], lost),
        (1.0, [first("s2")], None),
    )


def test_the_patience_for_a_first_answer_doubles_up_to_32_times() -> None:
    """A silent instance costs 2 s, then 4 s, up to 64 s."""

    async def story(i: Instances) -> None:
        holding = asyncio.create_task(i.streamed.hold())
        await asyncio.sleep(1_000.0)
        moments = [moment for moment, *_ in i.begun]
        spent = [b - a for a, b in pairwise(moments)]
        assert [gap - wait for wait, gap in enumerate(spent)][:8] == [2, 4, 8, 16, 32, 64, 64, 64]
        holding.cancel()

    silent = (5_000.0, [], None)
    held(story, *[silent] * 9, answer_s=2.0)


@pytest.mark.parametrize("error", [Replaced("x"), Expelled("x"), WrongCaller("x")])
def test_a_refusal_is_read_and_not_tried_again(error: Exception) -> None:
    """A replaced or expelled process first loses its partitions."""

    async def story(i: Instances) -> None:
        i.stage.begin()
        await i.streamed.hold()
        lost = [] if isinstance(error, WrongCaller) else [Lost((T0,))]
        assert (i.stage.told(), len(i.begun)) == ([*lost, error], 1)

    held(story, (0.0, [], error))


def test_a_missing_file_of_credentials_is_an_error_at_the_start_alone() -> None:
    """Later, a file may be missing while it is replaced."""

    async def story(i: Instances) -> None:
        await i.streamed.hold()
        assert [target for _, target, _ in i.begun] == ["x:1", "y:1", "z:1"]

    held(story, (0.0, [first()], unanswered()), (0.0, [], OSError("gone")), (0.0, [first()], None))
    with pytest.raises(OSError, match="gone"):
        held(story, (0.0, [], OSError("gone")))


def test_a_session_lasts_from_its_request_unless_a_heartbeat_shows_more() -> None:
    """A heartbeat is sent if less than half of the time is left."""

    async def story(i: Instances) -> None:
        holding = asyncio.create_task(i.streamed.hold())
        await asyncio.sleep(6.1)
        assert (i.stage.holdings.until, i.stage.sent) == (12.0, [])
        await asyncio.sleep(7.0)
        assert [beat[1:] for beat in i.stage.sent] == [("s2", 0, 6.0)]
        assert i.stage.holdings.until == pytest.approx(i.stage.sent[0][0] + 30.0)
        assert i.log.count("begun") == 2
        holding.cancel()

    held(
        story, (6.0, [first()], unanswered()), (6.5, [first("s2")], unanswered()), (99.0, [], None)
    )


def test_a_stream_that_has_answered_outlives_the_patience_for_its_answer() -> None:
    """The time limit applies only to the first message."""

    async def story(i: Instances) -> None:
        holding = asyncio.create_task(i.streamed.hold())
        await asyncio.sleep(60.0)
        assert (i.log, len(i.begun)) == (["begun"], 1)
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)

    held(story, (1.0, [first()], 99.0), answer_s=2.0)


def test_failed_tries_are_warned_of_at_the_fifth_and_at_each_doubling(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first four failures may be a restart of the service."""

    async def story(i: Instances) -> None:
        holding = asyncio.create_task(i.streamed.hold())
        await asyncio.sleep(300.0)
        holding.cancel()
        levels = [r.levelno for r in caplog.records if "not registered" in r.message]
        assert [n for n, level in enumerate(levels) if level == logging.WARNING] == [4, 8, 16]

    with caplog.at_level(logging.INFO):
        held(story, *[(0.0, [], unanswered())] * 99)


# -- calls -----------------------------------------------------------------------------------------------


class Stub:
    """A fake instance that returns its answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []

    async def Ask(self, request: Any, *, timeout: float, metadata: Any) -> Any:  # noqa: N802
        """Answer or fail."""
        self.asked.append((request, timeout, metadata))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def connected(*answers: Any) -> tuple[Calls, Stub]:
    """Calls with a connection to a fake instance."""
    calls, stub = Calls("c", Access(token="secret"), Waits()), Stub(*answers)
    calls._stub = stub
    return calls, stub


async def test_a_call_sends_its_timeout_and_its_token_and_waits_for_a_connection() -> None:
    """The default timeout is five seconds; without any further connection the call fails."""
    calls, stub = connected("one", "two")
    token = (("authorization", "Bearer secret"),)
    assert await calls.once("Ask", "r1") == "one"
    calls._stub = None
    waiting = asyncio.create_task(calls.once("Ask", "r2", timeout=2.0))
    await asyncio.sleep(0.05)
    calls._stub = stub
    assert await waiting == "two"
    assert stub.asked == [("r1", 5.0, token), ("r2", 2.0, token)]
    calls._stub, calls.has_ended = None, True
    with pytest.raises(NotFound, match="c: the consumer's session and its connection have ended"):
        await calls.once("Ask", "r3")


def test_a_retried_call_is_repeated_until_an_answer_or_a_refusal() -> None:
    """The waits grow; a lost connection and an unreadable token count as no answer."""

    async def story() -> None:
        began = asyncio.get_running_loop().time()
        calls, stub = connected(
            unanswered(), OSError("x"), asyncio.CancelledError(), grpc.aio.UsageError(), "told"
        )
        assert await calls.retried("Ask", "r") == "told"
        assert (len(stub.asked), asyncio.get_running_loop().time() - began) == (5, 6.0)

    virtually(story)


@pytest.mark.parametrize(
    ("lives_ms", "sent_at", "answer", "until", "is_asked"),
    [
        (6_000, 97.0, None, 103.0, False),
        (6_000, 96.5, {"known": True, "lives_ms": 5_000}, 105.0, True),
        (6_000, 96.5, {"known": True, "lives_ms": 1_000}, 102.5, True),
        (6_000, 96.5, {"known": False, "lives_ms": 5_000}, 102.5, True),
        (6_000, 96.5, unanswered(), 102.5, True),
        (6_000, 96.5, NotFound("no"), 102.5, True),
        (6_000, 80.0, {"known": True, "lives_ms": 5_000}, 105.0, True),
        (0, 0.0, None, math.inf, False),
    ],
)
async def test_a_registration_that_was_answered_late_is_renewed_at_once(
    lives_ms: int, sent_at: float, answer: Any, until: float, is_asked: bool
) -> None:
    """A heartbeat is sent if less than half of the time is left, and never shortens the time."""
    asked: list[Any] = []

    async def once(method: str, request: Any, *, timeout: float) -> Any:
        asked.append((method, request.session_id, request.HasField("held"), timeout))
        if isinstance(answer, Exception):
            raise answer
        return pb.HeartbeatResponse(**answer)

    part: Any = SimpleNamespace(once=once)
    streams = Streams(
        "c",
        ("h:1",),
        Registration(),
        Retry(),
        lambda: 100.0,
        calls=part,
        requests=Requests("c", "i"),
        holdings=part,
        inbox=part,
        session=part,
        begun=lambda: None,
    )
    said = pb.AssignmentUpdate(session_id="s1", lives_ms=lives_ms)
    assert await streams.registration_end(said, sent_at) == until
    assert asked == ([("Heartbeat", "s1", False, 3.0)] if is_asked else [])
