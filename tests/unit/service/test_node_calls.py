"""Each call of an instance: its checks, the arguments passed on, and its revision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.digest import Held
from faust_assigner.service.errors import (
    BadRequest,
    Expelled,
    NotFound,
    Replaced,
    StoreUnavailable,
    WrongCaller,
    WrongPhase,
)
from faust_assigner.service.handoff import HandoffEvent, TopicPartition
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Action, Consumer
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.serving.answering import Answering
from faust_assigner.service.serving.callers import Callers
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL

AT = TopicPartition("t", 3)
A = Consumer(name="a", incarnation="a2", identity="me", replaced=("a1",))


class Part:
    """A fake part of the instance that records each call and answers with ``answer``."""

    def __init__(self, answer: Any = 5) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def called(*values: Any) -> Any:
            self.calls.append((name, *values))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return called


def made(answer: Any = 5) -> tuple[AssignerNode, Part, Followed]:
    """An instance with a view of "a" under a base of 1,000; all its parts are the same fake."""
    store = Followed()
    node = AssignerNode(store, ServiceSettings(prefix="/g/"), node_id="n1", clock=LoopClock())
    for revision, (key, value) in enumerate(
        {ALL.epochs: codec.dump_base(1_000), ALL.consumer("a"): codec.dump_consumer(A)}.items(), 1
    ):
        node.view.apply(Event(key, revision, KeyValue(key, value, revision, revision)))
    part: Any = Part(answer)
    node.acks.answering = part
    node._beats = node._registered = node._catalogue = node._sessions = part
    return node, part, store


ID: dict[str, str] = {"identity": "me", "incarnation": "a2"}
Call = Callable[[AssignerNode], Awaitable[Any]]
OPEN = (("a", "a2"), AT, 7)
CALLS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "ready": (
        lambda n: n.acks.ready(Answer("a", AT, 7, **ID)), ("take", *OPEN, HandoffEvent.WARM)),
    "released": (
        lambda n: n.acks.released(Answer("a", AT, 7, **ID), 0),
        ("take", *OPEN, HandoffEvent.LET_GO)),
    "release failed": (
        lambda n: n.acks.release_failed(Answer("a", AT, **ID), "why"),
        ("take", ("a", "a2"), AT, None, HandoffEvent.CANNOT)),
    "warm failed": (
        lambda n: n.acks.warm_failed(Answer("a", AT, 7, **ID), "why"),
        ("take", *OPEN, HandoffEvent.GAVE_UP)),
    "progress": (
        lambda n: n.acks.progress(Answer("a", AT, 7, **ID), 0.5),
        ("take", *OPEN, HandoffEvent.WARM)),
    "holds": (
        lambda n: n.record_replicas("a", {"t": [3, 1, 3], "u": []}, **ID),
        ("hold", "a", "a2", {"t": (1, 3), "u": ()})),
}  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), CALLS.values(), ids=CALLS)
async def test_an_answer_reaches_its_part_and_returns_a_revision_above_the_base(
    call: Call, expected: tuple[Any, ...]
) -> None:
    """Each field is passed on."""
    node, part, _ = made()
    assert await call(node) == 1_005
    assert [one[: len(expected)] for one in part.calls] == [expected]


async def test_the_epoch_of_a_failed_release_is_a_revision_above_the_base() -> None:
    """The base is 1,000, and the grant's revision 101."""
    node, part, store = made()
    assert await store.owner(AT, "a", "a2") == 101
    part.check_grant = Answering(store, ALL).check_grant
    answer = Answer("a", AT, 7, **ID)
    with pytest.raises(WrongPhase, match="the epoch of this answer has ended"):
        await node.acks.release_failed(answer, "why", 1_100)
    assert part.calls == []
    assert await node.acks.release_failed(answer, "why", 1_101) == 1_005


@pytest.mark.parametrize(("call", "_"), CALLS.values(), ids=CALLS)
async def test_an_answer_of_another_caller_reaches_no_part(call: Call, _: Any) -> None:
    """The cases: a different identity, and a replaced process."""
    node, part, _store = made()
    for changes, error in (({"identity": "x"}, WrongCaller), ({"incarnation": "a1"}, Replaced)):
        saved = dict(ID)
        ID.update(changes)
        try:
            with pytest.raises(error):
                await call(node)
        finally:
            ID.update(saved)
    assert part.calls == []


@pytest.mark.parametrize(("call", "_"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("is_expelled", [True, False])
async def test_every_refusal_of_an_expelled_process_says_so(
    call: Call, _: Any, is_expelled: bool
) -> None:
    """Other processes get the original refusal."""
    node, _part, store = made(WrongPhase("no"))
    await store.put(ALL.expelled("a", "a2" if is_expelled else "a3"), b"x")
    with pytest.raises(Expelled if is_expelled else WrongPhase):
        await call(node)


@pytest.mark.parametrize(
    ("lives", "is_expelled", "answer"),
    [(9.5, True, 9.5), (None, False, None), (None, True, Expelled)],
)
async def test_a_heartbeat_returns_the_time_that_its_session_lives(
    lives: float | None, is_expelled: bool, answer: Any
) -> None:
    """An expelled process gets the error only after the end of its session."""
    node, part, store = made(lives)
    if is_expelled:
        await store.put(ALL.expelled("a", "a2"), b"x")
    beat = node.heartbeat("a", "s", held=Held(1, 2), **ID)
    if answer is Expelled:
        with pytest.raises(Expelled):
            await beat
    else:
        assert await beat == answer
    assert part.calls == [("beat", "a", "me", "a2", "s", Held(1, 2))]


async def test_a_leave_of_an_unknown_consumer_may_stop_at_once() -> None:
    """For a known consumer, the part answers."""
    node, part, _ = made(Action.WAIT_FOR_DRAIN)
    assert await node.deregister("a", **ID) is Action.WAIT_FOR_DRAIN
    assert part.calls == [("leave", "a", "a2")]
    node, _, _ = made(NotFound("x"))
    assert await node.deregister("b") is Action.SHUTDOWN_NOW


async def test_an_operators_calls_reach_their_parts() -> None:
    """Invalid topics are refused before."""
    node, part, _ = made()
    found = [
        await node.acks.abort(AT, 7),
        await node.set_topic("t", 9),
        await node.remove_topic("t"),
        await node.drain("a"),
    ]
    assert found == [1_005, 1_005, 1_005, 5]
    assert [one[:5] for one in part.calls] == [
        ("take", None, AT, 7, HandoffEvent.GAVE_UP),
        ("set", "t", 9),
        ("remove", "t"),
        ("drain", "a"),
    ]
    for call in (
        node.set_topic("a b", 9),
        node.remove_topic("a b"),
        node.record_replicas("a", {"..": ()}, **ID),
    ):
        with pytest.raises(BadRequest):
            await call
    with pytest.raises(BadRequest):
        node.routes(["a b"], 0)
    assert (node.incarnation("a"), node.incarnation("b"), node.revision) == ("a2", "", 1_000)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a b"},
        {"incarnation": "-"},
        {"endpoint": "a b"},
        {"capacity": 0.0},
        {"topics": ("..",)},
    ],
)
async def test_a_registration_with_a_wrong_part_is_refused_before_the_topics(
    changes: dict[str, Any],
) -> None:
    """Neither Kafka nor the store gets a request."""
    node, part, _ = made()
    with pytest.raises(BadRequest):
        await node.register(replace(A, **changes))
    assert part.calls == []


@pytest.mark.parametrize(
    ("error", "returns", "asked"),
    [
        (None, False, ["u", "t"]),
        (NotFound("x"), False, ["u"]),
        (StoreUnavailable("x"), False, ["u"]),
        (NotFound("x"), True, ["u", "t"]),
        (StoreUnavailable("x"), True, ["u"]),
    ],
)
async def test_a_new_process_needs_all_its_topics_and_a_returning_one_does_not(
    error: Exception | None, returns: bool, asked: list[str]
) -> None:
    """If Kafka does not answer, it is asked only once."""
    node, part, _ = made()
    topics: Any = Part(error)
    node._catalogue = topics
    request = replace(A, topics=("u", "t"), returns=returns)
    if error is not None and not returns:
        with pytest.raises(type(error)):
            await node.register(request)
        assert part.calls == []
    else:
        assert await node.register(request) == 5
        assert part.calls == [("register", request)]
    assert topics.calls == [("need", topic) for topic in asked]


# -- callers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("registered", "identity", "incarnation", "error"),
    [
        (A, "me", "a2", None),
        (A, "me", "a9", None),
        (A, "", "a2", WrongCaller),
        (A, "me", "a1", Replaced),
        (replace(A, identity=""), "anybody", "a2", None),
        (replace(A, replaced=("",)), "me", "", Replaced),
        (replace(A, incarnation="~x", replaced=("",)), "me", "", None),
        (replace(A, incarnation="~x", replaced=("~w",)), "me", "~w", Replaced),
        (None, "x", "~y", None),
        (None, "x", "a/b", BadRequest),
        (None, "x", "~~y", BadRequest),
    ],
)
def test_a_caller_is_checked_against_the_registration(
    registered: Consumer | None, identity: str, incarnation: str, error: type[Exception] | None
) -> None:
    """A process without an incarnation is replaced only by one with its own incarnation."""
    store = Followed()
    if registered is not None:
        value = codec.dump_consumer(registered)
        store.view.apply(Event(ALL.consumer("a"), 5, KeyValue(ALL.consumer("a"), value, 5, 5)))
    mirror: Any = store
    callers = Callers(store, ALL, mirror)
    if error is None:
        callers.check("a", identity, incarnation)
    else:
        with pytest.raises(error):
            callers.check("a", identity, incarnation)
    with pytest.raises(BadRequest):
        callers.check("a b", identity, "")


# -- the life of an instance -----------------------------------------------------------------------------


def test_an_instance_serves_leads_and_lives_from_its_start_to_its_stop() -> None:
    """The leader's metrics are cleared at the end of its term, and its key is deleted at once."""

    async def story() -> None:
        calls: list[tuple[Any, ...]] = []

        class Metrics:
            """Records the calls about the leader."""

            def __getattr__(self, name: str) -> Callable[..., None]:
                return lambda *values: calls.append((name, *values))

        store = Followed()
        metrics: Any = Metrics()
        node = AssignerNode(
            store,
            ServiceSettings(prefix="/g/", election_retry_s=3.0),
            node_id="n1",
            topics={"t": 2},
            clock=LoopClock(),
            metrics=metrics,
        )
        assert (node.serving, node.lives, node.leads) == (False, False, False)
        await node.start()
        await asyncio.sleep(5.0)
        assert (node.serving, node.lives, node.leads) == (True, True, True)
        assert ("leading", True) in calls
        calls.clear()
        await store.revoke(node._election.term.lease.lease_id)  # type: ignore[union-attr]
        await asyncio.sleep(12.0)
        end = calls.index(("leading", False))
        assert calls[end : end + 3] == [("leading", False), ("handoffs", {}), ("stuck", 0)]
        assert node.leads is True
        await node.stop()
        assert (node.serving, node.lives, node.leads) == (False, False, False)
        assert await store.get(ALL.leader) is None
        await store.close()

    virtually(story)


def test_a_task_that_ended_ends_the_life_of_an_instance() -> None:
    """Only a restart helps, although the store answers."""

    async def story() -> None:
        store = Followed()
        node = AssignerNode(store, ServiceSettings(prefix="/g/"), node_id="n1", clock=LoopClock())
        await node.start()
        await asyncio.sleep(1.0)
        node._tasks[2].cancel()
        await asyncio.sleep(1.0)
        assert (node.serving, node.lives) == (True, False)
        await node.stop()
        await store.close()

    virtually(story)
