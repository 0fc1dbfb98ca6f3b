"""The RPCs of consumers: fields for the node, answers for the caller, and a status for each end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from faust_assigner.service.commands import Assignment, Owned, Pulse
from faust_assigner.service.digest import Held
from faust_assigner.service.errors import Busy, NotReached, StoreUnavailable, WrongCaller, expelled
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Action, Consumer, Ended
from faust_assigner.service.server import limits
from faust_assigner.service.server.auth import Caller
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.serving.routes import Route, RouteUpdate
from tests.unit.service.rpcs import AT, OF, PLACE, WHO, Aborted, Context, Node, consumers, operators

HANDOFF = {**WHO, "partition": PLACE, "handoff_id": 7}
ANSWER = Answer("c", AT, 7, **OF)


@pytest.mark.parametrize(
    ("rpc", "request_", "call"),
    [
        ("PartitionReady", pb.PartitionReadyRequest(**HANDOFF), ("ready", (ANSWER,), {})),
        (
            "PartitionReleased",
            pb.PartitionReleasedRequest(**HANDOFF, final_offset=0),
            ("released", (ANSWER, 0), {}),
        ),
        (
            "PartitionReleased",
            pb.PartitionReleasedRequest(**HANDOFF),
            ("released", (ANSWER, None), {}),
        ),
        (
            "ReleaseFailed",
            pb.ReleaseFailedRequest(**HANDOFF, reason="r", epoch=9),
            ("release_failed", (ANSWER, "r", 9), {}),
        ),
        (
            "ReleaseFailed",
            pb.ReleaseFailedRequest(**HANDOFF),
            ("release_failed", (ANSWER, "", None), {}),
        ),
        (
            "WarmFailed",
            pb.WarmFailedRequest(**HANDOFF, reason="r"),
            ("warm_failed", (ANSWER, "r"), {}),
        ),
        (
            "ReportProgress",
            pb.ReportProgressRequest(**HANDOFF, progress=0.5),
            ("progress", (ANSWER, 0.5), {}),
        ),
        (
            "ReportReplicas",
            pb.ReportReplicasRequest(
                **WHO, replicas=[PLACE], replicas_by_topic=[{"topic": "u", "partitions": [2, 1]}]
            ),
            ("record_replicas", ("c", {"t": (3,), "u": (1, 2)}), OF),
        ),
    ],
)
async def test_a_consumers_answer_reaches_the_node_field_by_field(
    rpc: str, request_: Any, call: tuple[str, tuple[Any, ...], dict[str, Any]]
) -> None:
    """A call without a hand-off's id is for any open one; the revision is the node's answer."""
    node = Node()
    answer = await getattr(consumers(node), rpc)(request_, Context())
    assert node.calls == [call]
    assert answer.revision == 42


@pytest.mark.parametrize(
    ("rpc", "kind"),
    [
        ("PartitionReady", pb.PartitionReadyRequest),
        ("PartitionReleased", pb.PartitionReleasedRequest),
        ("ReleaseFailed", pb.ReleaseFailedRequest),
        ("WarmFailed", pb.WarmFailedRequest),
        ("ReportProgress", pb.ReportProgressRequest),
    ],
)
async def test_an_answer_without_a_handoffs_id_is_for_any(rpc: str, kind: Any) -> None:
    """An unset field has the value zero."""
    node = Node()
    await getattr(consumers(node), rpc)(kind(**WHO, partition=PLACE), Context())
    assert node.calls[0][1][0].handoff_id is None


@pytest.mark.parametrize(("name", "may"), [("g/c", True), ("c", True), ("other/c", False)])
async def test_a_caller_acts_in_the_groups_of_its_names_alone(name: str, may: bool) -> None:
    """A name without a group counts in all groups."""
    node = Node()
    call = consumers(node, Caller(frozenset({name}))).PartitionReady(
        pb.PartitionReadyRequest(**HANDOFF), Context()
    )
    if may:
        await call
    else:
        with pytest.raises(Aborted):
            await call
    assert len(node.calls) == may


@pytest.mark.parametrize("held", [None, Held(0, 0), Held(3, 2**63)])
async def test_a_heartbeat_compares_what_the_consumer_says_it_holds(held: Held | None) -> None:
    """An empty holding is a holding too."""
    node = Node(1.5)
    request = pb.HeartbeatRequest(**WHO, session_id="s")
    if held is not None:
        request.held.CopyFrom(pb.Held(count=held.count, digest=held.digest))
    answer = await consumers(node).Heartbeat(request, Context())
    assert node.calls == [("heartbeat", ("c", "s"), {"held": held, **OF})]
    assert answer == pb.HeartbeatResponse(known=True, lives_ms=1_500, revision=41)


@pytest.mark.parametrize(
    ("lives_s", "answer"),
    [
        (None, {"known": False}),
        (0.0004, {"known": True, "lives_ms": 1}),
        (2.9996, {"known": True, "lives_ms": 2_999}),
    ],
)
async def test_a_registration_lives_at_least_as_long_as_the_answer_says(
    lives_s: float | None, answer: dict[str, Any]
) -> None:
    """The time is rounded down, but not to 0, the value of an unset field."""
    found = await consumers(Node(lives_s)).Heartbeat(pb.HeartbeatRequest(**WHO), Context())
    assert found == pb.HeartbeatResponse(revision=41, **answer)


@pytest.mark.parametrize("action", Action)
async def test_a_consumer_that_leaves_hears_whether_it_has_to_wait(action: Action) -> None:
    """The answer to an operator's drain is the same."""
    node = Node(action)
    answer = await consumers(node).Deregister(pb.DeregisterRequest(**WHO), Context())
    assert node.calls == [("deregister", ("c",), OF)]
    assert answer == pb.DeregisterResponse(action=action.value, revision=41)
    drained = await operators(node).Drain(pb.DrainRequest(consumer_name="d", group="g"), Context())
    assert node.calls[1:] == [("drain", ("d",), {})]
    assert drained == pb.DrainResponse(action=action.value, revision=41)


class Stream:
    """A registration's stream of two commands, with a reason for its end."""

    consumer_name, incarnation, session = "c", "i", "s"
    revision, lives_s = 77, 1.5

    def __init__(self, ended: Ended | None, *commands: Any) -> None:
        self.ended, self.commands, self.is_closed = ended, commands, False

    async def __aiter__(self) -> AsyncIterator[Any]:
        for command in self.commands:
            yield command

    async def close(self) -> None:
        """Note the end."""
        self.is_closed = True


SNAPSHOT, LATER = Assignment((Owned(AT, 8),), full=True), Assignment((Owned(AT, 9),))


async def registered(
    stream: Stream, node: Node | None = None, **more: Any
) -> tuple[list[Any], Any]:
    """Return the messages of a registration, and its status."""
    node = node or Node()
    node.answer = stream
    found: list[Any] = []
    try:
        async for message in consumers(node).Register(pb.RegisterRequest(**WHO, **more), Context()):
            found.append(message)
    except Aborted as end:
        return found, end.args
    return found, None


@pytest.mark.parametrize("heartbeats", [True, False])
async def test_only_the_first_message_of_a_stream_with_heartbeats_has_its_session(
    heartbeats: bool,
) -> None:
    """The message also has the session's times; each message has the stream's revision."""
    stream = Stream(Ended.DRAINED, SNAPSHOT, LATER, Pulse())
    found, status = await registered(stream, heartbeats=heartbeats)
    assert (status, stream.is_closed, len(found)) == (None, True, 3)
    said = [(m.assignment.session_id, m.assignment.lives_ms, m.assignment.pulse_ms) for m in found]
    assert said == [("s", 1_500, 250) if heartbeats else ("", 0, 0), ("", 0, 0), ("", 0, 0)]
    assert [message.revision for message in found] == [77, 77, 77]


async def test_a_session_is_told_in_no_later_message() -> None:
    """A stream that starts without an assignment sends no session."""
    found, _ = await registered(Stream(None, Pulse(), SNAPSHOT), heartbeats=True)
    assert [message.assignment.session_id for message in found] == ["", ""]


async def test_a_registration_carries_the_callers_identity() -> None:
    """The registration reaches the node of its group."""
    node = Node()
    await registered(Stream(None), node, rack="r")
    [(name, (consumer,), _)] = node.calls
    assert (name, consumer) == (
        "register",
        Consumer(name="c", rack="r", identity="c", incarnation="i"),
    )


@pytest.mark.parametrize(
    ("ended", "code", "words"),
    [
        (Ended.REPLACED, grpc.StatusCode.ALREADY_EXISTS, "other"),
        (Ended.AGAIN, grpc.StatusCode.UNAVAILABLE, Ended.AGAIN.value),
        (Ended.EXPELLED, grpc.StatusCode.ABORTED, str(expelled("c", "i"))),
        (Ended.LEASE_LOST, grpc.StatusCode.UNAVAILABLE, Ended.LEASE_LOST.value),
        (Ended.STOPPING, grpc.StatusCode.UNAVAILABLE, Ended.STOPPING.value),
        (Ended.CLOSED, grpc.StatusCode.CANCELLED, Ended.CLOSED.value),
    ],
)
async def test_the_end_of_a_stream_has_its_own_status(
    ended: Ended, code: grpc.StatusCode, words: str
) -> None:
    """A client decides by the status whether to register again; a successor is named."""
    node = Node()
    node.incarnation = lambda name: "other"  # type: ignore[method-assign]
    stream = Stream(ended, SNAPSHOT)
    _, (found, said) = await registered(stream, node)
    assert (found, words in said, stream.is_closed) == (code, True, True)


async def test_a_process_that_was_replaced_by_itself_reads_so() -> None:
    """Its successor has the same incarnation, so none is named."""
    node = Node()
    node.incarnation = lambda name: "i"  # type: ignore[method-assign]
    _, (_, said) = await registered(Stream(Ended.REPLACED), node)
    assert said == Ended.REPLACED.value


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (WrongCaller("no"), grpc.StatusCode.PERMISSION_DENIED, "no"),
        (Busy("later"), grpc.StatusCode.UNAVAILABLE, "later"),
        (StoreUnavailable("silent"), grpc.StatusCode.UNAVAILABLE, "StoreUnavailable: silent"),
        (NotReached("behind"), grpc.StatusCode.OUT_OF_RANGE, "behind"),
    ],
)
async def test_an_error_of_the_node_is_the_status_of_the_call(
    error: Exception, code: grpc.StatusCode, words: str
) -> None:
    """Calls of consumers and of operators get the same status."""
    ready = pb.PartitionReadyRequest(**HANDOFF)
    for call in (
        consumers(Node(error)).PartitionReady(ready, Context()),
        operators(Node(error)).Resume(pb.ResumeRequest(group="g"), Context()),
    ):
        with pytest.raises(Aborted) as ended:
            await call
        assert ended.value.args == (code, words)


NUMBERS = {"topic": "t", "partitions": [1, 2]}


@pytest.mark.parametrize(
    ("rpc", "request_", "is_accepted"),
    [
        ("WatchAssignments", pb.WatchAssignmentsRequest(topics=["t"] * 4, group="g"), True),
        ("WatchAssignments", pb.WatchAssignmentsRequest(topics=["t"] * 5, group="g"), False),
        ("ReportReplicas", pb.ReportReplicasRequest(**WHO, replicas=[PLACE] * 4), True),
        ("ReportReplicas", pb.ReportReplicasRequest(**WHO, replicas=[PLACE] * 5), False),
        (
            "ReportReplicas",
            pb.ReportReplicasRequest(**WHO, replicas=[PLACE], replicas_by_topic=[NUMBERS]),
            True,
        ),
        (
            "ReportReplicas",
            pb.ReportReplicasRequest(**WHO, replicas=[PLACE] * 2, replicas_by_topic=[NUMBERS]),
            False,
        ),
        (
            "ReportReplicas",
            pb.ReportReplicasRequest(**WHO, replicas_by_topic=[{"topic": "t"}] * 5),
            False,
        ),
        ("Register", pb.RegisterRequest(**WHO, topics=["t"] * 4), True),
        ("Register", pb.RegisterRequest(**WHO, topics=["t"] * 2, former=[NUMBERS]), False),
    ],
)
async def test_a_request_has_a_limited_number_of_entries(
    monkeypatch: pytest.MonkeyPatch, rpc: str, request_: Any, is_accepted: bool
) -> None:
    """All lists count together, an empty entry counts as well, and the node gets no call."""
    monkeypatch.setattr(limits, "MAX_CLAIMS", 4)
    node = Node(Stream(Ended.DRAINED) if rpc == "Register" else 42)
    asked: list[Any] = []

    async def routes(topics: Any, least: int) -> AsyncIterator[RouteUpdate]:
        asked.append(topics)
        yield RouteUpdate(5, full=True)

    node.routes = routes  # type: ignore[method-assign]
    called = getattr(consumers(node), rpc)(request_, Context())

    async def work() -> None:
        if rpc == "ReportReplicas":
            await called
        else:
            async for _ in called:
                pass

    if is_accepted:
        await work()
        assert len(node.calls) + len(asked) == 1
    else:
        with pytest.raises(Aborted) as ended:
            await work()
        assert ended.value.args[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert (node.calls, asked) == ([], [])


@pytest.mark.parametrize(
    ("names", "is_admin", "may_watch"),
    [
        (None, False, True),
        ({"c"}, False, True),
        ({"g/c"}, False, True),
        ({"other/c"}, False, False),
        ({"other/c", "g/d"}, False, True),
        ({"other/c"}, True, True),
    ],
)
async def test_owners_are_read_by_names_of_the_group(
    names: set[str] | None, is_admin: bool, may_watch: bool
) -> None:
    """A name without a group may read too; the parts of an update have the group's pulse."""
    node = Node()
    asked: list[Any] = []

    async def routes(topics: Any, least: int) -> AsyncIterator[RouteUpdate]:
        asked.append((list(topics), least))
        yield RouteUpdate(5, (Route(AT, "a", 8),), full=True)

    node.routes = routes  # type: ignore[method-assign]
    caller = Caller(None if names is None else frozenset(names), is_admin)
    request = pb.WatchAssignmentsRequest(topics=["t"], least_revision=9, group="g")
    watching = consumers(node, caller).WatchAssignments(request, Context())
    if may_watch:
        [part] = [part async for part in watching]
        assert (part.revision, part.pulse_ms, asked) == (5, 250, [(["t"], 9)])
    else:
        with pytest.raises(Aborted):
            await anext(watching)
