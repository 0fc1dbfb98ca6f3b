"""Processes that use one consumer's name in turn: each gets its partitions with new grants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from faust_assigner.service.commands import Assignment, Warm
from faust_assigner.service.errors import BadRequest, Replaced, ServiceRefused
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import HEARTBEATS, Action, Consumer, Ended, Status
from faust_assigner.service.server.servicer import ENDED
from faust_assigner.service.serving.acks import Answer
from tests.support.assigning.consumers import Bench, Helper, eventually, virtually
from tests.unit.service.stories import AT, store


def process(name: str, incarnation: str, *, returns: bool = False) -> Consumer:
    """The registration of a process."""
    return Consumer(name=name, incarnation=incarnation, returns=returns)


async def begin(
    b: Bench, node: AssignerNode, name: str, incarnation: str, **options: Any
) -> Helper:
    """Start and connect a process."""
    return await b.consumer(node, name, consumer=process(name, incarnation), **options)


def staged(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with its own store, in virtual time."""

    async def play() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            await story(b)
        await kept.close()

    virtually(play)


@pytest.mark.parametrize("incarnation", ["one", ""])
@pytest.mark.parametrize("same_instance", [True, False])
def test_a_process_that_registers_twice_may_register_once_more(
    incarnation: str, same_instance: bool
) -> None:
    """A call that the process gave up may succeed late: its stream ends without a replacement."""

    async def story(b: Bench) -> None:
        first, second = await b.node({"t": 1}), await b.node({"t": 1})
        old = await begin(b, first, "a", incarnation)
        await b.settles(1)
        await begin(b, first if same_instance else second, "a", incarnation)
        await eventually(lambda: old.ended is not None)
        is_named = incarnation == "one"
        assert old.ended is (Ended.AGAIN if is_named else Ended.REPLACED)
        assert ENDED[Ended.AGAIN] is grpc.StatusCode.UNAVAILABLE

    staged(story)


@pytest.mark.parametrize("strict", [True, False])
def test_another_process_of_the_name_gets_every_partition_under_a_new_epoch(strict: bool) -> None:
    """A sink that compares epochs refuses the replaced process."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 3}, strict=strict)
        old = await begin(b, node, "a", "one")
        await b.settles(3)
        new = await begin(b, node, "a", "two")
        await eventually(lambda: len(new.owned) == 3)
        assert old.ended is Ended.REPLACED
        assert all(new.owned[at] > epoch for at, epoch in old.owned.items())

    staged(story)


@pytest.mark.parametrize("strict", [True, False])
def test_in_strict_mode_a_replaced_process_has_its_lease_to_the_end(strict: bool) -> None:
    """In strict mode it may work until then; otherwise only epochs fence it."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 3}, strict=strict, consumer_ttl_s=30.0, consumer_keepalive_s=5.0)
        await begin(b, node, "a", "one")
        await b.settles(3)
        await asyncio.sleep(4.0)  # the last renewal was up to 5 s ago
        new = await begin(b, node, "a", "two")
        await asyncio.sleep(20.0)
        assert (len(new.owned) == 0) is strict
        await asyncio.sleep(12.0)
        assert len(new.owned) == 3

    staged(story)


def test_nobody_else_gets_the_partitions_of_a_replaced_process_early() -> None:
    """Its successor and all consumers die, and a consumer of a different name joins."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 3}, strict=True, consumer_ttl_s=30.0, consumer_keepalive_s=5.0)
        await begin(b, node, "a", "one")
        await b.settles(3)
        new = await begin(b, node, "a", "two")
        await asyncio.sleep(2.0)
        assert new.stream is not None
        await new.expire()
        await asyncio.sleep(4.0)
        third = await begin(b, node, "b", "three")
        await asyncio.sleep(10.0)
        assert not third.owned
        await asyncio.sleep(20.0)
        assert len(third.owned) == 3

    staged(story)


def test_a_process_that_reconnects_keeps_its_partitions_and_epochs() -> None:
    """The incarnation is unchanged."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 3}, strict=True)
        old = await begin(b, node, "a", "one")
        await b.settles(3)
        again = await begin(b, node, "a", "one")
        await eventually(lambda: bool(again.owned))
        assert again.owned == old.owned
        assert len(again.of(Assignment)) == 1

    staged(story)


def _says(node: AssignerNode, handoff_id: int, incarnation: str) -> dict[str, Any]:
    who: dict[str, Any] = {"incarnation": incarnation}
    at = {**who, "handoff_id": handoff_id}
    return {
        "ready": lambda: node.acks.ready(Answer("b", AT, **at)),
        "released": lambda: node.acks.released(Answer("b", AT, **at)),
        "failed": lambda: node.acks.warm_failed(Answer("b", AT, **at), "no"),
        "progress": lambda: node.acks.progress(Answer("b", AT, **at), 0.5),
        "replicas": lambda: node.record_replicas("b", {"t": [0]}, **who),
        "deregister": lambda: node.deregister("b", **who),
        "register": lambda: node.register(process("b", incarnation)),
    }


@pytest.mark.parametrize(
    "call", ["ready", "released", "failed", "progress", "replicas", "deregister", "register"]
)
def test_a_replaced_process_is_refused_whatever_it_says(call: str) -> None:
    """All calls raise the same error with both incarnations, and the successor is unharmed."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, strict=True)
        await begin(b, node, "a", "x")
        await b.settles(2)
        old = await begin(b, node, "b", "one", warm_s=None)
        await eventually(lambda: old.of(Warm))
        await begin(b, node, "b", "two", warm_s=None)
        with pytest.raises(Replaced, match="b: incarnation one is replaced by two"):
            await _says(node, old.of(Warm)[0].handoff_id, "one")[call]()
        [_, successor] = await node.overview.consumers()
        assert (successor.incarnation, successor.status) == ("two", Status.READY)

    staged(story)


@pytest.mark.parametrize("call", ["register", "deregister", "replicas"])
def test_a_process_that_was_replaced_twice_is_refused_as_replaced(call: str) -> None:
    """A retry of its first registration must not take the name back."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, strict=True)
        for incarnation in ("one", "two", "three"):
            await begin(b, node, "b", incarnation)
        with pytest.raises(Replaced, match="b: incarnation one is replaced by three"):
            await _says(node, 1, "one")[call]()
        [consumer] = await node.overview.consumers()
        assert (consumer.incarnation, consumer.replaced) == ("three", ("two", "one"))

    staged(story)


def test_a_handoff_begins_anew_when_its_new_owner_is_another_process() -> None:
    """The successor is not warm, as its predecessor's state is gone."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, strict=True)
        await begin(b, node, "a", "x")
        await b.settles(2)
        old = await begin(b, node, "b", "one", warm_s=None)
        await eventually(lambda: old.of(Warm))
        new = await begin(b, node, "b", "two", warm_s=None)
        await eventually(lambda: new.of(Warm))
        first, second = old.of(Warm)[0], new.of(Warm)[0]
        assert second.handoff_id != first.handoff_id
        with contextlib.suppress(ServiceRefused):
            await node.acks.ready(Answer("b", first.at, handoff_id=first.handoff_id))
        await asyncio.sleep(1.0)
        assert not new.owned

    staged(story)


def test_a_successor_is_not_asked_to_release_what_its_predecessor_works_on() -> None:
    """Its answer would come at once, while the frozen predecessor may still work."""

    async def story(b: Bench) -> None:
        node = await b.node(
            {"t": 2},
            strict=True,
            consumer_ttl_s=30.0,
            consumer_keepalive_s=5.0,
            handoff_timeout_s=60.0,
        )
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(2)
        taker = await begin(b, node, "b", "x")
        await eventually(lambda: any(type(c).__name__ == "Release" for c in old.told))
        successor = await begin(b, node, "a", "two")
        await asyncio.sleep(10.0)
        assert [type(command) for command in successor.told] == [Assignment]
        assert not taker.owned
        await asyncio.sleep(25.0)
        assert len(taker.owned) == len(successor.owned) == 1

    staged(story)


@pytest.mark.parametrize("by_operator", [True, False])
def test_a_drain_ends_with_its_process_unless_an_operator_drained_the_name(
    by_operator: bool,
) -> None:
    """A pod that left, was killed and restarted should work again."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, strict=False)
        await begin(b, node, "a", "one", releases=False)
        await begin(b, node, "b", "x", warm_s=None)
        await asyncio.sleep(1.0)
        said = node.drain("a") if by_operator else node.deregister("a", incarnation="one")
        assert await said is Action.WAIT_FOR_DRAIN
        await begin(b, node, "a", "two")
        [first, _] = await node.overview.consumers()
        expected = Status.DRAINING if by_operator else Status.READY
        assert (first.incarnation, first.status) == ("two", expected)

    staged(story)


def test_a_leave_beside_the_registration_of_a_successor_does_not_end_that_registration() -> None:
    """Earlier, the leave deleted the successor's key and ended its stream."""

    async def story(b: Bench) -> None:
        node = await b.node()
        await begin(b, node, "a", "one")
        reached = node._mirror.reached

        async def late(revision: int) -> None:
            node._mirror.reached = reached  # type: ignore[method-assign]
            await begin(b, node, "a", "two")
            await reached(revision)

        node._mirror.reached = late  # type: ignore[method-assign]
        assert await node.deregister("a", incarnation="one") is Action.WAIT_FOR_DRAIN
        await asyncio.sleep(1.0)
        assert node.incarnation("a") == "two"

    staged(story)


def test_a_process_that_was_away_too_long_does_not_replace_its_successor() -> None:
    """Its lease ended before the successor registered, so the store has forgotten it."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, strict=True)
        old = await begin(b, node, "a", "one")
        await b.settles(2)
        assert old.stream is not None
        await old.expire()
        await asyncio.sleep(0.5)
        new = await begin(b, node, "a", "two")
        await eventually(lambda: len(new.owned) == 2)
        with pytest.raises(Replaced, match="incarnation one is replaced by two"):
            await node.register(process("a", "one", returns=True))
        assert new.ended is None

    staged(story)


@pytest.mark.parametrize(("capabilities", "is_same"), [((), True), ((HEARTBEATS,), False)])
def test_registrations_without_an_incarnation(capabilities: tuple[str, ...], is_same: bool) -> None:
    """Clients of the first proto count as one process; with heartbeats, each is its own."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, strict=True)
        wishes = Consumer(name="a", capabilities=capabilities)
        old = await b.consumer(node, "a", consumer=wishes)
        await b.settles(2)
        new = await b.consumer(node, "a", consumer=wishes)
        await eventually(lambda: len(new.owned) == 2)
        assert (new.owned == old.owned) is is_same

    staged(story)


@pytest.mark.parametrize("incarnation", ["a/b", "~n0-1", "-", "x" * 129])
def test_an_incarnation_that_cannot_be_a_key_is_refused(incarnation: str) -> None:
    """Incarnations in the format of the service itself are refused too."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 1})
        with pytest.raises(BadRequest, match="an incarnation is"):
            await node.register(process("a", incarnation))

    staged(story)


def test_a_client_without_an_incarnation_is_replaced_by_a_process_that_has_one() -> None:
    """Every call of the replaced client raises Replaced."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await b.consumer(node, "a", consumer=Consumer(name="a"))
            await b.consumer(node, "a", consumer=Consumer(name="a", incarnation="next"))
            with pytest.raises(Replaced):
                node._callers.check("a", "", "")
        await kept.close()

    virtually(story)
