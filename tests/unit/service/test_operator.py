"""The operators' client: fields of each call, parts of an answer, errors; and the groups' start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.errors import TryAgain
from faust_assigner.service.client import operator
from faust_assigner.service.client.operator import CALL_S, Operator
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import (
    KafkaAssignerAdminServicer,
    add_KafkaAssignerAdminServicer_to_server,
)
from faust_assigner.service.server.groups import Groups
from tests.support.assigning.instances import calls_ended

PLACE = {"topic": "t", "partition": 3}
CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN)


def failed(code: grpc.StatusCode) -> Exception:
    """Return gRPC's error of a call that had no answer of the service."""
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, empty, empty, "connection refused")


class Stub:
    """The service: records each call, and answers with the prepared messages."""

    def __init__(self, told: list[Any], answers: list[Any]) -> None:
        self.told, self.answers = told, answers

    def __getattr__(self, method: str) -> Any:
        def call(request: Any, **options: Any) -> Any:
            self.told.append((method, request, options))
            return _Call(self.answers)

        return call


class _Call:
    """A call with one answer, or with a stream of answers."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers

    def __await__(self) -> Any:
        yield from ()
        if isinstance(self.answers[0], Exception):
            raise self.answers[0]
        return self.answers[0]

    async def __aiter__(self) -> AsyncIterator[Any]:
        for answer in self.answers:
            if isinstance(answer, Exception):
                raise answer
            yield answer


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the calls of the client, and the close of its connection."""
    found: list[Any] = []

    async def close() -> None:
        found.append("closed")

    access = SimpleNamespace(
        open=lambda target, options: SimpleNamespace(close=close), metadata=lambda: (("a", "b"),)
    )
    monkeypatch.setattr(operator, "Access", lambda: access)
    return found


def client(monkeypatch: pytest.MonkeyPatch, told: list[Any], *answers: Any) -> Operator:
    """Return a client of the group ``g`` at a service with these answers."""
    monkeypatch.setattr(operator, "KafkaAssignerAdminStub", lambda _: Stub(told, list(answers)))
    return Operator("h:1", group="g")


@pytest.mark.parametrize(
    ("order", "words", "method", "request_"),
    [
        ("undrain", ("c",), "Undrain", pb.UndrainRequest(consumer_name="c", group="g")),
        ("pause", ("r",), "Pause", pb.PauseRequest(reason="r", group="g")),
        ("resume", (), "Resume", pb.ResumeRequest(group="g")),
        (
            "pin",
            (("t", 3), "c"),
            "Pin",
            pb.PinRequest(partition=PLACE, consumer_name="c", group="g"),
        ),
        ("unpin", (("t", 3),), "Unpin", pb.UnpinRequest(partition=PLACE, group="g")),
        (
            "move",
            (("t", 3), "c"),
            "Move",
            pb.PinRequest(partition=PLACE, consumer_name="c", group="g"),
        ),
        ("set_topic", ("t", 4), "SetTopic", pb.Topic(topic="t", partition_count=4, group="g")),
        ("remove_topic", ("t",), "RemoveTopic", pb.RemoveTopicRequest(topic="t", group="g")),
    ],
)
async def test_an_order_is_sent_to_the_group_with_the_callers_token(
    monkeypatch: pytest.MonkeyPatch,
    told: list[Any],
    order: str,
    words: tuple[Any, ...],
    method: str,
    request_: Any,
) -> None:
    """The call has a deadline; the answer is the revision from which the order holds."""
    service = client(monkeypatch, told, pb.OrderResponse(revision=42))
    assert await getattr(service, order)(*words) == 42
    assert told == [(method, request_, {"metadata": (("a", "b"),), "timeout": CALL_S})]


@pytest.mark.parametrize(("given", "handoff_id"), [({}, 0), ({"handoff_id": 7}, 7)])
async def test_a_handoff_is_given_up_by_its_id(
    monkeypatch: pytest.MonkeyPatch, told: list[Any], given: dict[str, int], handoff_id: int
) -> None:
    """Without an id, the open hand-off is aborted."""
    await client(monkeypatch, told, pb.AbortHandoffResponse()).abort(("t", 3), **given)
    wanted = pb.AbortHandoffRequest(partition=PLACE, handoff_id=handoff_id, group="g")
    assert told[0][:2] == ("AbortHandoff", wanted)


@pytest.mark.parametrize(("action", "waits"), [(pb.WAIT_FOR_DRAIN, True), (pb.SHUTDOWN_NOW, False)])
async def test_a_drain_tells_whether_the_consumer_has_partitions(
    monkeypatch: pytest.MonkeyPatch, told: list[Any], action: Any, waits: bool
) -> None:
    """True means that the consumer must wait for its drain."""
    found = client(monkeypatch, told, pb.DrainResponse(action=action))
    assert await found.drain("c") is waits
    assert told[0][:2] == ("Drain", pb.DrainRequest(consumer_name="c", group="g"))


FIRST = pb.State(leader="n", topics=[{"topic": "a"}], more=True)
SECOND = pb.State(leader="n", topics=[{"topic": "b"}])
LATER = pb.State(leader="m", topics=[{"topic": "c"}])


async def test_the_parts_of_a_state_are_put_together(
    monkeypatch: pytest.MonkeyPatch, told: list[Any]
) -> None:
    """All parts of a list are kept, and the call has a deadline."""
    found = await client(monkeypatch, told, FIRST, SECOND).state()
    assert [one.topic for one in found.topics] == ["a", "b"]
    [(method, request, options)] = told
    assert (method, request, options["timeout"]) == (
        "GetState",
        pb.GetStateRequest(group="g"),
        CALL_S,
    )


async def test_a_watch_yields_whole_states_that_are_not_mixed(
    monkeypatch: pytest.MonkeyPatch, told: list[Any]
) -> None:
    """A watch has no deadline, as a group may be idle for days."""
    service = client(monkeypatch, told, FIRST, SECOND, LATER)
    found = [[one.topic for one in state.topics] async for state in service.watch()]
    assert found == [["a", "b"], ["c"]]
    [(method, request, options)] = told
    assert (method, request, options) == (
        "WatchState",
        pb.GetStateRequest(group="g"),
        {"metadata": (("a", "b"),)},
    )


async def test_a_dry_run_has_all_parts_of_its_moves(
    monkeypatch: pytest.MonkeyPatch, told: list[Any]
) -> None:
    """Leaving and joining consumers are not swapped."""
    parts = [pb.PlanResponse(moves=[{"to_owner": name}]) for name in "xy"]
    moves = await client(monkeypatch, told, *parts).plan(without=["a"], extra=["b", "c"])
    assert [move.to_owner for move in moves] == ["x", "y"]
    extra = [{"consumer_name": "b"}, {"consumer_name": "c"}]
    assert told[0][:2] == ("Plan", pb.PlanRequest(group="g", without=["a"], extra=extra))


@pytest.mark.parametrize("call", ["state", "plan", "resume"])
@pytest.mark.parametrize("code", CODES, ids=str)
async def test_a_service_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, told: list[Any], call: str, code: grpc.StatusCode
) -> None:
    """The error allows a retry, and the connection is closed."""

    async def work() -> None:
        async with client(monkeypatch, told, failed(code)) as service:
            await getattr(service, call)()

    with pytest.raises(TryAgain, match=f"h:1 did not answer: {code.name}: connection refused"):
        await work()
    assert told[-1] == "closed"


@pytest.mark.parametrize(("fails", "stopped"), [("b", ["a"]), ("a", []), ("", [])])
async def test_nodes_that_were_started_are_stopped_if_another_one_does_not_start(
    fails: str, stopped: list[str]
) -> None:
    """Nodes that were not started are left alone."""
    told: list[str] = []

    def node(name: str) -> Any:
        async def start() -> None:
            if name == fails:
                raise ZeroDivisionError

        async def stop() -> None:
            told.append(name)

        return SimpleNamespace(start=start, stop=stop)

    groups = Groups({name: node(name) for name in "abc"})
    if fails:
        with pytest.raises(ZeroDivisionError):
            await groups.start()
        assert told == stopped
    else:
        await groups.start()
        assert told == []
        await groups.stop()
        assert told == ["a", "b", "c"]


class _Idle(KafkaAssignerAdminServicer):
    """A service whose state never changes after the first message."""

    async def WatchState(  # noqa: N802 - gRPC's name
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.State]:
        """Stream one state, then wait."""
        yield pb.State(leader="x")
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def _relayed(port: int, is_silent: asyncio.Event) -> AsyncIterator[int]:
    """Relay connections to ``port``, and drop all bytes once ``is_silent`` is set; yield the port."""
    ends: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if not is_silent.is_set():
                writer.write(data)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        ends.extend((writer, far_writer))
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for end in ends:
            end.close()


async def test_a_watch_ends_if_the_connection_has_become_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No byte arrives, and the connection stays open: an idle group would look the same for ever."""
    times = {name: value and 1_000 for name, value in operator.KEEPALIVE}
    assert list(times.values()) == [1_000, 1_000, 1_000, 0]
    monkeypatch.setattr(operator, "KEEPALIVE", tuple(times.items()))
    server = grpc.aio.server()
    add_KafkaAssignerAdminServicer_to_server(_Idle(), server)
    port, is_silent = server.add_insecure_port("127.0.0.1:0"), asyncio.Event()
    await server.start()
    seen: list[str] = []

    async def watch(admin: Operator) -> None:
        async for state in admin.watch():
            seen.append(state.leader)
            is_silent.set()

    async with _relayed(port, is_silent) as near, Operator(f"127.0.0.1:{near}") as admin:
        with pytest.raises(TryAgain, match="ping timeout"):
            await asyncio.wait_for(watch(admin), 60.0)
    assert seen == ["x"]
    await server.stop(None)
    await calls_ended()
