"""The simulated service: its messages, and its answers at exact moments."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from faust_assigner.service.conformance import simulated_service as part_module
from faust_assigner.service.conformance.simulated_service import (
    OpenStream,
    SimulatedService,
    Timeout,
    until,
)
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.support.assigning.consumers import virtually
from tests.unit.service.puppet import Context, Refused


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The part's clock, at 50 s."""
    found = SimpleNamespace(now=50.0)
    monkeypatch.setattr(part_module, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def registered(part: SimulatedService, when: float) -> OpenStream:
    """A new stream of the part."""
    stream = OpenStream(len(part.streams) + 1, pb.RegisterRequest(), when)
    part.streams.append(stream)
    return stream


def of(number: int) -> pb.TopicPartition:
    """A partition of the topic."""
    return pb.TopicPartition(topic="conformance", partition=number)


def granting(*owned: tuple[int, int], **more: Any) -> pb.AssignmentCommand:
    """Grants of (partition, epoch)."""
    keep = more.pop("keep", False)
    grants = [pb.Grant(partition=of(n), epoch=epoch, keep=keep) for n, epoch in owned]
    assigned = [of(n) for n, _ in owned]
    return pb.AssignmentCommand(
        assignment=pb.AssignmentUpdate(assigned=assigned, grants=grants, **more)
    )


def test_the_part_makes_the_commands_of_a_service() -> None:
    """Every field of each command, with all numbers different."""
    part = SimulatedService(lives_s=4.5, pulse_s=0.25)
    registered(part, 1.0)
    registered(part, 2.0)
    two = ((0, 5), (3, 8))
    session = {"session_id": "s2", "lives_ms": 4500, "pulse_ms": 250}
    handoff: dict[str, Any] = {"partition": of(7), "handoff_id": 78, "strict": True}
    assert [
        part.grants(iter(two)),
        part.grants(two, keep=True),
        part.snapshot(two, more=True),
        part.snapshot(two),
        part.snapshot([(1, 6)], first=False),
        part.snapshot([(1, 6)], first=False, more=True),
        part.takes(7),
        part.warm(7, 78),
        part.release(7, 78),
    ] == [
        granting(*two),
        granting(*two, keep=True),
        granting(*two, snapshot=True, more=True, **session),
        granting(*two, snapshot=True, **session),
        granting((1, 6)),
        granting((1, 6), more=True),
        pb.AssignmentCommand(assignment=pb.AssignmentUpdate(unassigned=[of(7)])),
        pb.AssignmentCommand(warm=pb.WarmPartition(current_owner="another", **handoff)),
        pb.AssignmentCommand(release=pb.ReleasePartition(new_owner="another", **handoff)),
    ]
    assert part.later().WhichOneof("command") is None
    assert part.later().SerializeToString() == part_module._LATER


def test_a_snapshot_renews_from_the_time_of_its_request(clock: Any) -> None:
    """A later heartbeat keeps its time, and a part of a snapshot renews nothing."""
    part = SimulatedService()
    registered(part, 41.0)
    stream = registered(part, 43.0)
    part.snapshot([(0, 1)], first=False)
    assert part.renewed_at == -float("inf")
    part.snapshot([(0, 1)])
    assert part.renewed_at == 43.0
    part.renewed_at = 44.0
    part.snapshot([(0, 1)])
    assert (part.renewed_at, stream.session) == (44.0, "s2")


@pytest.mark.parametrize(
    ("session", "when", "knows", "answer", "renewed"),
    [
        ("s2", 50.0, True, (True, 4500), 50.0),
        ("s2", 50.5, True, (True, 4500), 50.5),
        ("s2", 50.6, True, (False, 0), 46.0),
        ("s1", 50.0, True, (False, 0), 46.0),
        ("", 50.0, True, (False, 0), 46.0),
        ("s2", 50.0, False, (False, 4500), 50.0),
    ],
)
async def test_a_heartbeat_renews_the_newest_session_in_time(
    clock: Any, session: str, when: float, knows: bool, answer: tuple[bool, int], renewed: float
) -> None:
    """At the exact end of its time a session still lives."""
    part = SimulatedService(lives_s=4.5, knows=knows, renewed_at=46.0)
    registered(part, 45.0)
    registered(part, 46.0)
    clock.now = when
    request = pb.HeartbeatRequest(session_id=session)
    found = await part.Heartbeat(request, Context())  # type: ignore[arg-type]
    assert (found.known, found.lives_ms) == answer
    assert part.renewed_at == renewed
    assert [(call.when, call.method, call.request) for call in part.calls] == [
        (when, "Heartbeat", request)
    ]


async def test_without_a_registration_no_session_is_known(clock: Any) -> None:
    """Not even the empty one."""
    part = SimulatedService(renewed_at=49.0)
    request = pb.HeartbeatRequest(session_id="s1")
    assert not (await part.Heartbeat(request, Context())).known  # type: ignore[arg-type]


def test_a_silent_part_answers_later_by_the_time_of_the_request(clock: Any) -> None:
    """The time of a renewal is that of the request, also if the answer is late."""

    async def story() -> None:
        part = SimulatedService(answers=False, renewed_at=49.0)
        registered(part, 49.0)
        request = pb.HeartbeatRequest(session_id="s1")
        beating = asyncio.create_task(part.Heartbeat(request, Context()))  # type: ignore[arg-type]
        await asyncio.sleep(1.0)
        clock.now = 53.0
        assert not beating.done()
        part.answers = True
        assert (await beating).known
        assert part.renewed_at == 50.0

    virtually(story)


@pytest.mark.parametrize("method", ["Heartbeat", "PartitionReady", "Deregister", "Register"])
async def test_a_refusing_part_refuses_every_call_and_notes_it(clock: Any, method: str) -> None:
    """A silent part refuses at once, too."""
    part: Any = SimulatedService(refuses=grpc.StatusCode.ABORTED, answers=False)
    request = getattr(pb, f"{method}Request")()
    called = getattr(part, method)(request, Context())
    with pytest.raises(Refused) as refused:
        await (anext(called) if method == "Register" else called)
    assert refused.value.args == (grpc.StatusCode.ABORTED,)
    assert [(call.method, call.request) for call in part.calls] == [(method, request)]
    assert part.streams == []


@pytest.mark.parametrize("method", ["PartitionReady", "PartitionReleased", "ReportProgress"])
async def test_other_calls_get_their_own_empty_answers(clock: Any, method: str) -> None:
    """The part is no object with any attribute."""
    part: Any = SimulatedService()
    found = await getattr(part, method)(getattr(pb, f"{method}Request")(), Context())
    assert found == getattr(pb, f"{method}Response")()
    with pytest.raises(AttributeError, match="partitionReady"):
        _ = part.partitionReady


async def test_a_stream_ends_with_its_status(clock: Any) -> None:
    """Commands go to the newest stream, in order."""
    part = SimulatedService()
    requests = [pb.RegisterRequest(consumer_name=name) for name in ("a", "b")]
    first, second = (part.Register(one, Context()) for one in requests)  # type: ignore[arg-type]
    waiting = asyncio.ensure_future(anext(first))
    await asyncio.sleep(0)
    taking = asyncio.ensure_future(anext(second))
    await asyncio.sleep(0)
    clock.now = 51.0
    told = part.tell(part.takes(1), part.takes(2), grpc.StatusCode.NOT_FOUND)
    assert (told, await taking, await anext(second)) == (51.0, part.takes(1), part.takes(2))
    with pytest.raises(Refused) as refused:
        await anext(second)
    assert refused.value.args == (grpc.StatusCode.NOT_FOUND,)
    assert [(one.number, one.session, one.when) for one in part.streams] == [
        (1, "s1", 50.0),
        (2, "s2", 50.0),
    ]
    assert [one.request for one in part.streams] == requests
    assert not waiting.done()
    waiting.cancel()


async def test_calls_are_heard_by_their_method_and_time(clock: Any) -> None:
    """A call at the exact time counts."""
    part: Any = SimulatedService()
    for now, method in ((1.0, "Deregister"), (2.0, "PartitionReady"), (3.0, "Deregister")):
        clock.now = now
        await getattr(part, method)(getattr(pb, f"{method}Request")(), Context())
    assert [call.when for call in part.received("Deregister")] == [1.0, 3.0]
    assert [call.when for call in part.received("Deregister", 1.5)] == [3.0]
    assert [call.when for call in part.received("Deregister", 3.0)] == [3.0]
    assert part.received("Heartbeat") == []


def test_a_condition_is_awaited_to_the_end_of_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition that holds at last is no timeout; the error has the condition and the time."""

    async def story() -> None:
        now = asyncio.get_running_loop().time
        monkeypatch.setattr(part_module, "time", SimpleNamespace(monotonic=now))
        began = now()
        await until(lambda: now() >= began + 2.4, 2.5, "in time")
        with pytest.raises(Timeout, match=r"^the end comes, within 2\.5 s$"):
            await until(lambda: False, 2.5, "the end comes")
        assert 4.9 < now() - began < 5.0
        await until(lambda: True, -1.0, "at once")

    virtually(story)
