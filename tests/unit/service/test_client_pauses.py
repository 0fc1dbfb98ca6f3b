"""Pauses between registrations: their length, the client's patience, and their reset."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from faust_assigner.service.client import (
    AssignerClient,
    Grant,
    Lost,
    Release,
    Retry,
    TopicPartition,
)
from faust_assigner.service.client import calls as room
from faust_assigner.service.errors import Expelled, NotFound, Replaced, ServiceRefused
from faust_assigner.service.proto import kafka_assigner_pb2 as pb


class Pauses(Retry):
    """Waits for no time, and records the attempts."""

    def wait(self, attempt: int, chance: random.Random) -> float:
        """Record the attempt."""
        TRIES.append(attempt)
        return 0.0


TRIES: list[int] = []


async def stayed(*outcomes: Any) -> tuple[list[int], list[float], AssignerClient, list[Any]]:
    """Let streams end in turn ("s": after a session, "": before a session), and finally well.

    Return the attempts, the patience of each, the client, and its commands.
    """
    TRIES.clear()
    client = AssignerClient("nowhere:1", "c", retry=Pauses(answer_s=2.0))
    patience: list[float] = []
    left = list(outcomes)

    async def hold_one(patience_s: float) -> bool:
        patience.append(patience_s)
        if not left:
            return True
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        client._session.is_registered = bool(outcome)
        return False

    client._streams.hold_one = hold_one  # type: ignore[method-assign]
    await client._streams.hold()
    told = []
    while not client._inbox._queue.empty():
        told.append(client._inbox._queue.get_nowait())
    return list(TRIES), patience, client, told


async def test_pauses_and_patience_grow_until_a_session_begins() -> None:
    """A consumer that was registered for days waits a moment, not the longest pause."""
    tries, patience, _, told = await stayed("", "", "", "s", "")
    assert tries == [0, 1, 2, 0, 1]
    assert patience == [2.0, 4.0, 8.0, 16.0, 4.0, 8.0]
    assert told == [None], "the last stream ended well: it is drained"


async def test_a_refusal_is_told_and_not_tried_again() -> None:
    """The reader of the commands raises the refusal."""
    refused = NotFound("no such topic")
    tries, _, _, told = await stayed(refused)
    assert (tries, told) == ([], [refused])


@pytest.mark.parametrize("kind", [Replaced, Expelled])
async def test_a_consumer_that_another_process_replaces_may_work_on_nothing(
    kind: type[ServiceRefused],
) -> None:
    """A different process may own its partitions, although its session has time left."""
    client = AssignerClient("nowhere:1", "c", retry=Pauses(), clock=lambda: 0.0)
    at = TopicPartition("t", 0)
    client.holdings.begin(60.0)
    client.holdings.update([Grant(at, 1)], [], snapshot=True, more=False)
    assert client.may_work(at)

    async def hold_one(patience_s: float) -> bool:
        raise kind("it is out")

    client._streams.hold_one = hold_one  # type: ignore[method-assign]
    await client._streams.hold()
    assert not client.may_work(at)


@pytest.mark.parametrize(("lives_ms", "ends_at"), [(10_000, 15.0), (0, float("inf"))])
async def test_a_session_counts_from_when_it_was_asked_for(lives_ms: int, ends_at: float) -> None:
    """The service counts from the request; without a time, the session ends with the stream."""
    now = [9.0]
    client = AssignerClient("nowhere:1", "c", clock=lambda: now[0])
    at = TopicPartition("t", 0)
    said = pb.AssignmentUpdate(session_id="s", lives_ms=lives_ms)
    client._session.begin(said, await client._streams.registration_end(said, 5.0))
    client.holdings.update([Grant(at, 1)], [], snapshot=True)
    for now[0] in (12.0, 14.9, 15.1):
        assert client.may_work(at) == (now[0] < ends_at)


async def test_a_session_that_begins_after_the_last_ones_time_gives_nothing_back() -> None:
    """Other consumers may have owned the partitions, so only the new snapshot counts."""
    client = AssignerClient("nowhere:1", "c", clock=lambda: 20.0)
    at = TopicPartition("t", 0)
    client.holdings.begin(10.0)
    client.holdings.update([Grant(at, 1)], [], snapshot=True)
    client._session.begin(pb.AssignmentUpdate(session_id="s", lives_ms=10_000), until=30.0)
    assert not client.may_work(at)
    assert await client._inbox.read() == Lost((at,))


async def test_an_answer_for_the_session_before_does_not_end_the_next_stream() -> None:
    """The heartbeat was in flight while the consumer registered again."""
    client = AssignerClient("nowhere:1", "c")
    client._session.begin(pb.AssignmentUpdate(session_id="s1", lives_ms=60), until=float("inf"))
    ended: list[str] = []
    client._streams.cancel = lambda: ended.append(client._session.id)  # type: ignore[method-assign]

    async def once(method: str, request: Any, *, timeout: float) -> Any:
        later = pb.AssignmentUpdate(session_id="s2", lives_ms=60_000)
        client._session.begin(later, until=float("inf"))
        return pb.HeartbeatResponse(known=False)

    client._calls.once = once  # type: ignore[method-assign]
    beating = asyncio.create_task(client._heart.beat())
    while client._session.id != "s2":
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    beating.cancel()
    assert ended == []


@pytest.mark.parametrize(
    ("answer", "ends_at"),
    [
        (pb.HeartbeatResponse(known=True, lives_ms=9_000), 26.0),
        (pb.HeartbeatResponse(known=False, lives_ms=9_000), 15.0),
        (NotFound("no connection"), 15.0),
    ],
)
async def test_a_heartbeat_brings_the_time_of_a_late_answer_up_to_date(
    answer: Any, ends_at: float
) -> None:
    """The session counts from the heartbeat at 17 s; the registration's answer ended at 15 s."""
    now = [17.0]
    client = AssignerClient("nowhere:1", "c", clock=lambda: now[0])
    asked: list[tuple[str, Any]] = []

    async def once(method: str, request: Any, *, timeout: float) -> Any:
        asked.append((method, request.session_id))
        now[0] = 19.0  # the answer is slow, and tells of the time of the request
        if isinstance(answer, Exception):
            raise answer
        return answer

    client._calls.once = once  # type: ignore[method-assign]
    said = pb.AssignmentUpdate(session_id="s", lives_ms=10_000)
    assert await client._streams.registration_end(said, 5.0) == ends_at
    assert asked == [("Heartbeat", "s")]


def test_an_answer_to_an_earlier_handoff_is_not_sent_for_the_next_one() -> None:
    """The client has not yet answered the partition's second hand-off."""
    client = AssignerClient("nowhere:1", "c")
    at = TopicPartition("t", 0)
    sent: list[Any] = []

    client._inbox._repeat = lambda method, request: sent.append(request)
    first, second = Release(at, "d", 1, True), Release(at, "d", 2, True)
    client._inbox.take_handoff(first)
    client._inbox.acknowledged(first, "PartitionReleased", "the first")
    client._inbox.take_handoff(first)
    client._inbox.take_handoff(second)
    client._inbox.take_handoff(second)
    assert sent == ["the first"]


async def test_a_partition_that_is_let_go_is_owned_no_more_before_anybody_is_told() -> None:
    """The acknowledgement may take long, and no offset may be committed meanwhile."""
    client = AssignerClient("nowhere:1", "c", clock=lambda: 0.0)
    at = TopicPartition("t", 0)
    client.holdings.begin(60.0)
    client.holdings.update([Grant(at, 1)], [], snapshot=True)
    release = Release(at, "d", 1, True)
    client._inbox.take_handoff(release)
    seen: list[bool] = []

    async def acknowledge(method: str, request: Any, command: Any) -> bool:
        seen.append(at in client.holdings.owned)
        return True

    client._acknowledge = acknowledge  # type: ignore[method-assign]
    assert await client.released(release)
    assert seen == [False]


class Stream:
    """A stream with one assignment."""

    async def __aiter__(self) -> AsyncIterator[pb.AssignmentCommand]:
        yield pb.AssignmentCommand(assignment=pb.AssignmentUpdate(session_id="s", snapshot=True))

    def cancel(self) -> None:
        """Do nothing."""

    async def code(self) -> None:
        """Do nothing."""


async def test_a_process_that_was_registered_before_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the service would regard it as a process that was replaced."""
    asked: list[bool] = []

    class Stub:
        def __init__(self, channel: object) -> None:
            pass

        def Register(self, request: Any, metadata: object) -> Stream:  # noqa: N802 - gRPC's name
            asked.append(request.returns)
            return Stream()

    monkeypatch.setattr(room, "KafkaAssignerStub", Stub)
    client = AssignerClient("127.0.0.1:1", "c")
    for _ in range(3):
        assert await client._streams.hold_one(5.0)
    await client.close()
    assert asked == [False, True, True]


async def test_a_handoff_that_was_called_off_is_told_anew_when_it_comes_again() -> None:
    """Otherwise the client would send its old answer without a warm-up."""
    client = AssignerClient("nowhere:1", "c")
    partition = pb.TopicPartition(topic="t", partition=0)
    warm = pb.AssignmentCommand(warm=pb.WarmPartition(partition=partition, handoff_id=1))
    abort = pb.AssignmentCommand(abort_warm=pb.AbortWarm(partition=partition, handoff_id=1))
    for message in (warm, warm, abort, warm):
        client._inbox.take(message, is_first=False)
    told = []
    while not client._inbox._queue.empty():
        told.append(type(client._inbox._queue.get_nowait()).__name__)
    assert told == ["Warm", "AbortWarm", "Warm"]


async def test_a_late_stream_is_not_given_up_during_its_first_heartbeat() -> None:
    """The first message ends the wait for an answer; only then the heartbeat is sent."""
    client = AssignerClient("nowhere:1", "c", clock=lambda: 9.0)
    acts: list[str] = []

    async def registration_end(said: pb.AssignmentUpdate, sent_at: float) -> float:
        acts.append("heartbeat")
        return sent_at + 10.0

    async def stream() -> AsyncIterator[pb.AssignmentCommand]:
        for number in range(2):
            acts.append(f"message {number}")
            said = pb.AssignmentUpdate(session_id="s", lives_ms=10_000)
            yield pb.AssignmentCommand(assignment=said)

    class Patience:
        def cancel(self) -> None:
            acts.append("no more wait")

    client._streams.registration_end = registration_end  # type: ignore[method-assign]
    client._inbox.take = lambda message, *, is_first: acts.append(f"taken {is_first}")  # type: ignore[method-assign]
    await client._streams._read(stream(), Patience(), 5.0)  # type: ignore[arg-type]
    assert acts == [
        "message 0", "no more wait", "heartbeat", "taken True", "message 1", "taken False"
    ]  # fmt: skip
