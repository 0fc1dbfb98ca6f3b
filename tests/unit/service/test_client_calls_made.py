"""The calls that the methods of the consumers' client make, and the steps of its life."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service.client import (
    Assigned,
    AssignerClient,
    Grant,
    Registration,
    Release,
    TopicPartition,
    Warm,
)
from faust_assigner.service.errors import BadRequest, NotFound, WrongPhase
from faust_assigner.service.faults import Unauthenticated
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

T3, U5 = TopicPartition("t", 3), TopicPartition("u", 5)
WARM, RELEASE = Warm(T3, "b", 7), Release(U5, "d", 9)
WHO = {"consumer_name": "c", "incarnation": "i", "group": "g"}
OF_WARM = {**WHO, "partition": {"topic": "t", "partition": 3}, "handoff_id": 7}
OF_RELEASE = {**WHO, "partition": {"topic": "u", "partition": 5}, "handoff_id": 9}


class Calls:
    """The connection, which records its calls; ``error`` is the answer to the next call."""

    def __init__(self, acts: list[Any]) -> None:
        self.acts = acts
        self.has_ended = False
        self.error: Exception | None = None

    async def _say(self, how: str, method: str, request: Any) -> None:
        self.acts.append((how, method, request))
        if self.error is not None:
            raise self.error

    async def retried(self, method: str, request: Any) -> None:
        """Record the call."""
        await self._say("retried", method, request)

    async def once(self, method: str, request: Any) -> None:
        """Record the call."""
        await self._say("once", method, request)


def client_of(**more: Any) -> tuple[Any, list[Any], Calls]:
    """Return a client that holds both partitions, with its acts and its calls."""
    client: Any = AssignerClient("x:1", "c", incarnation="i", group="g", **more)
    acts: list[Any] = []
    calls = client._calls = Calls(acts)
    note = client._inbox.acknowledged

    def acknowledged(command: Any, method: str, request: Any) -> None:
        acts.append(("acknowledges", command, method, request))
        note(command, method, request)

    client._inbox.acknowledged = acknowledged
    client.holdings.begin(float("inf"))
    client.holdings.update([Grant(T3, 31), Grant(U5, 51)], (), snapshot=True)
    client.holdings.release(RELEASE)
    return client, acts, calls


@pytest.mark.parametrize("error", [None, NotFound("over"), WrongPhase("late")])
async def test_each_answer_to_a_command_is_one_call(error: Exception | None) -> None:
    """An answer that comes too late is no error; only WarmFailed and ReleaseFailed are not repeated."""
    client, acts, calls = client_of()
    calls.error = error
    is_open = error is None
    ready = pb.PartitionReadyRequest(**OF_WARM)
    assert await client.ready(WARM) is is_open
    assert acts == [
        ("acknowledges", WARM, "PartitionReady", ready),
        ("retried", *("PartitionReady", ready)),
    ]
    acts.clear()
    assert await client.failed(WARM, "why") is is_open
    assert acts == [("retried", "WarmFailed", pb.WarmFailedRequest(**OF_WARM, reason="why"))]
    acts.clear()
    assert await client.release_failed(RELEASE, "full") is is_open
    failed = pb.ReleaseFailedRequest(**OF_RELEASE, epoch=51, reason="full")
    assert acts == [("retried", "ReleaseFailed", failed)]
    assert (client.holdings.at_work(), client.may_work(U5)) == ((T3,), False)


@pytest.mark.parametrize("offset", [None, 0, 43])
async def test_a_released_partition_is_no_longer_held_when_the_service_hears_of_it(
    offset: int | None,
) -> None:
    """The answer may take long, and the consumer has stopped its work already."""
    client, acts, _ = client_of()
    retried = client._calls.retried

    async def late(method: str, request: Any) -> None:
        acts.append(client.holdings.at_work())
        await retried(method, request)

    client._calls.retried = late
    assert await client.released(RELEASE, offset)
    request = pb.PartitionReleasedRequest(**OF_RELEASE, final_offset=offset)
    assert acts == [
        ("acknowledges", RELEASE, "PartitionReleased", request),
        (T3,),
        ("retried", "PartitionReleased", request),
    ]


@pytest.mark.parametrize("error", [BadRequest("no"), Unauthenticated("who?")])
async def test_other_refusals_of_an_answer_are_raised(error: Exception) -> None:
    """Progress is reported in one call, whose refusal is no error."""
    client, acts, calls = client_of()
    calls.error = error
    for answering in (
        client.ready(WARM),
        client.released(RELEASE),
        client.failed(WARM, "why"),
        client.release_failed(RELEASE, "why"),
        client.replicas([T3]),
    ):
        with pytest.raises(type(error)):
            await answering
    acts.clear()
    await client.progress(WARM, 0.25)
    assert acts == [("once", "ReportProgress", pb.ReportProgressRequest(**OF_WARM, progress=0.25))]


async def test_replicas_are_reported_until_the_service_answers() -> None:
    """The report has all of them, sorted."""
    client, acts, _ = client_of()
    await client.replicas([("u", 2), ("t", 9), ("t", 4)])
    by_topic = [{"topic": "t", "partitions": [4, 9]}, {"topic": "u", "partitions": [2]}]
    request = pb.ReportReplicasRequest(**WHO, replicas_by_topic=by_topic)
    assert acts == [("retried", "ReportReplicas", request)]


def test_a_client_without_arguments_has_a_name_of_its_own_for_its_process() -> None:
    """Topics are a short form of a registration."""
    one, other = (AssignerClient(["x:1", "y:2"], "c", topics=["t", "u"]) for _ in range(2))
    assert len({one.incarnation, other.incarnation, ""}) == 3
    assert one._streams.request().incarnation == one.incarnation
    streams: Any = one._streams
    assert (streams.targets, streams.registration) == (
        ("x:1", "y:2"),
        Registration(topics=["t", "u"]),
    )
    said = Registration(topics=["v"], rack="r")
    single: Any = AssignerClient("x:1", "c", topics=["t"], registration=said)._streams
    assert (single.targets, single.registration) == (("x:1",), said)


class Working:
    """Streams and heart whose tasks run until they are cancelled, and record it."""

    def __init__(self, acts: list[Any]) -> None:
        self.acts = acts
        self.error: Exception | None = None

    async def _run(self, name: str) -> None:
        try:
            self.acts.append(f"{name} begins")
            if self.error is not None and name == "beat":
                raise self.error
            await asyncio.sleep(1e9)
        finally:
            self.acts.append(f"{name} ends")

    async def hold(self) -> None:
        """Run."""
        await self._run("hold")

    async def beat(self) -> None:
        """Run."""
        await self._run("beat")

    async def fence(self) -> None:
        """Run."""
        await self._run("fence")

    async def close(self) -> None:
        """Record the call."""
        self.acts.append("closes")


async def test_a_client_whose_commands_have_ended_may_be_read_once_more() -> None:
    """The tasks end before the connection; a call between two lives finds no connection."""
    client, acts, calls = client_of()
    working = client._streams = client._heart = Working(acts)
    for _ in range(2):
        acts.clear()
        client._inbox.put(WARM)
        client._inbox.put(None)
        found = []
        async for command in client.commands():
            found.append(command)
            await asyncio.sleep(0)
            client._start(working._run("beside"))
            await asyncio.sleep(0)
            assert not calls.has_ended
        assert (found, calls.has_ended) == ([WARM], True)
        assert acts[:4] == ["hold begins", "beat begins", "fence begins", "beside begins"]
        assert sorted(acts[4:8]) == ["beat ends", "beside ends", "fence ends", "hold ends"]
        assert acts[8:] == ["closes"]


@pytest.mark.parametrize("error", [OSError("no file"), RuntimeError("a bug"), NotFound("x")])
async def test_an_error_of_a_task_reaches_the_reader(error: Exception) -> None:
    """The reader would wait forever otherwise."""
    client, acts, _ = client_of()
    working = client._streams = client._heart = Working(acts)
    working.error = error
    with pytest.raises(type(error)):
        async for _ in client.commands():
            pass
    assert acts[-1] == "closes"


async def test_the_end_of_a_client_ends_what_runs_beside_it_first() -> None:
    """A task beside it may need the connection to end."""
    client, acts, _ = client_of()
    working = client._streams = Working(acts)
    async with client:
        client._start(working._run("beside"))
        await asyncio.sleep(0)
    assert acts == ["beside begins", "beside ends", "closes"]


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_registration_during_a_leave_deregisters_again(is_begun: bool) -> None:
    """The first Deregister went to a session that is over."""
    client, acts, _ = client_of()

    async def again() -> None:
        acts.append("again")

    client._leave = SimpleNamespace(is_begun=is_begun, again=again)
    client._leave_if_begun()
    await asyncio.sleep(0)
    assert acts == (["again"] if is_begun else [])


async def test_all_partitions_at_work_are_released_at_the_end() -> None:
    """A partition whose release has begun is among them; the session is over only afterwards."""
    client, acts, _ = client_of()
    client._streams = client._heart = Working([])

    class Handlers:
        """Handlers that record."""

        async def assigned(self, command: Assigned) -> None:
            """Record the call."""
            acts.append(("assigned", command))

        async def release(self, command: Release) -> int:
            """Record the call, and whether the work was still allowed."""
            acts.append((command, client.may_work(command.partition)))
            return 1

        async def lost(self, command: Any) -> None:
            """Record the call."""
            acts.append(command)

    client._inbox.put(None)
    handlers: Any = Handlers()
    await client.run(handlers)
    releases = [(Release(at, new_owner=""), True) for at in (T3, U5)]
    assert (acts, client.holdings.at_work()) == (releases, ())
