"""Leaves, drains, replicas and orders: the stored keys afterwards, and each refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import BadRequest, NotFound, Replaced, WrongPhase
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.records import Action, Consumer, Pause, Pin, Status
from faust_assigner.service.serving.orders import Orders
from faust_assigner.service.serving.registered import Registered
from faust_assigner.service.store.base import Delete, Put, unchanged
from tests.support.assigning.consumers import virtually
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL

A = Consumer(name="a", incarnation="a1", session="s1", registered_at=5.0)
B = Consumer(name="b", incarnation="b1")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEAVES = replace(A, status=Status.DRAINING, leaves=True)
DRAINED = replace(A, status=Status.DRAINING, by_operator=True)
WAIT, STOP = Action.WAIT_FOR_DRAIN, Action.SHUTDOWN_NOW

Story = Callable[[Followed, Registered, Orders], Awaitable[None]]


def staged(story: Story) -> None:
    """Run a scenario with the topic "t", the consumers "a" and "b", and a wall clock at 77."""

    async def whole() -> None:
        store = Followed()
        mirror: Any = store
        clock: Any = SimpleNamespace(wall=lambda: 77.0)
        registered = Registered(store, ALL, mirror)
        orders = Orders(store, ALL, clock, mirror, registered)
        await store.put(ALL.epochs, codec.dump_base(1_000))
        await store.topic("t", 2)
        await store.consumer(A, 60.0)
        await store.consumer(B, 60.0)
        store.txns.clear()
        await story(store, registered, orders)
        await store.close()

    virtually(whole)


@pytest.mark.parametrize("kind", ["leave", "drain"])
def test_a_leave_and_a_drain_are_marked_under_the_same_lease(kind: str) -> None:
    """A consumer with partitions waits; the mirror has the mark before the answer."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        await store.owner(T0, "a", "a1")
        before = await store.get(ALL.consumer("a"))
        assert before is not None
        if kind == "leave":
            assert await registered.leave("a", "a1") is WAIT
        else:
            assert await registered.drain("a") is WAIT
        kv = await store.get(ALL.consumer("a"))
        assert kv is not None
        assert (await store.registered("a"), kv.lease) == (
            LEAVES if kind == "leave" else DRAINED,
            before.lease,
        )
        assert store.waits == [("reached", kv.mod_revision)]
        assert await store.registered("b") == B

    staged(story)


def test_a_consumer_without_partitions_and_hand_offs_is_deregistered_at_once() -> None:
    """A concurrent change prevents it; partitions of an earlier process do not count."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        await store.owner(T0, "a", "a0")
        assert await registered.leave("a", "a1") is STOP
        assert await store.registered("a") is None
        await registered.leave("b", "b1")
        await store.consumer(B)
        store.meanwhile = [[], [Put(ALL.consumer("b"), codec.dump_consumer(replace(B, rack="r")))]]
        assert await registered.leave("b", "b1") is WAIT
        assert (await store.registered("b") or B).rack == "r"

    staged(story)


def test_a_consumer_whose_partitions_no_other_can_take_is_dismissed() -> None:
    """Its key stays, so no consumer takes over; the mark is in the same transaction."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        await store.owner(T0, "a", "a1")
        await store.consumer(replace(B, topics=("u",)))
        assert await registered.leave("a", "a1") is STOP
        assert await store.registered("a") == replace(LEAVES, dismissed=True)
        kv = await store.get(ALL.departed("a"))
        assert kv is not None
        assert kv.value == b"dismissed"
        assert await store.get(ALL.departed("b")) is None
        assert store.txns[-1][1][1] == Put(ALL.departed("a"), b"dismissed")

    staged(story)


def test_the_answer_to_a_leave_reflects_the_newest_registration() -> None:
    """The cases: the registration is gone, and a later process has the name."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        await store.owner(T0, "a", "a1")
        reached = store.reached

        async def gone(revision: int) -> None:
            await store.txn([], [Delete(ALL.consumer("a"))])

        store.reached = gone  # type: ignore[method-assign]
        assert await registered.drain("a") is STOP

        async def later(revision: int) -> None:
            await store.consumer(replace(B, incarnation="b2"))

        store.reached = later  # type: ignore[method-assign]
        assert await registered.drain("b") is WAIT
        store.reached = reached  # type: ignore[method-assign]
        assert await store.registered("b") == replace(B, incarnation="b2")

    staged(story)


@pytest.mark.parametrize("hand_off", ["from", "to", "of another process"])
def test_a_consumer_in_a_hand_off_waits_for_its_end(hand_off: str) -> None:
    """The consumer owns no partition, but its release or warm-up is under way."""
    sides = {"from": ("a", "a1", "b", "b1"), "to": ("b", "b1", "a", "a1")}
    old, old_id, new, new_id = sides.get(hand_off, ("a", "a0", "b", "b1"))

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        await store.handoff(
            Handoff(T0, old, new, Phase.READY, 1.0, old_incarnation=old_id, new_incarnation=new_id)
        )
        is_other = hand_off == "of another process"
        assert await registered.leave("a", "a1") is (STOP if is_other else WAIT)
        assert await store.registered("a") == (None if is_other else LEAVES)

    staged(story)


@pytest.mark.parametrize("call", ["leave", "hold"])
def test_a_call_of_a_process_that_is_not_registered_changes_nothing(call: str) -> None:
    """The cases: a different incarnation, no incarnation, an unknown name."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        async def asked(name: str, incarnation: str) -> None:
            if call == "leave":
                await registered.leave(name, incarnation)
            else:
                await registered.hold(name, incarnation, {"t": (1,)})

        for incarnation in ("a0", "a2", ""):
            with pytest.raises(Replaced):
                await asked("a", incarnation)
        await store.consumer(replace(A, name="d", incarnation="~d"))
        with pytest.raises(Replaced):
            await asked("d", "d1")
        with pytest.raises(NotFound, match="no consumer c"):
            await asked("c", "c1")
        await store.put(ALL.consumer("c"), b"?")
        with pytest.raises(NotFound, match="no consumer c"):
            await asked("c", "c1")
        assert store.txns == []
        assert await store.registered("a") == A

    staged(story)


def test_the_replicas_of_a_process_are_replaced_whole() -> None:
    """The answer is the revision of the write or of the equal value; wrong claims are refused."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        revision = await registered.hold("a", "a1", {"t": (1, 0), "u": (3,)})
        assert revision == store.revision
        assert await store.registered("a") == replace(A, holds={"t": (1, 0), "u": (3,)})
        await store.put("/g/x", b"")
        assert await registered.hold("a", "a1", {"t": (1, 0), "u": (3,)}) == revision
        await registered.hold("a", "a1", {"u": (4,)})
        assert await store.registered("a") == replace(A, holds={"u": (4,)})
        with pytest.raises(BadRequest):
            await registered.hold("a", "a1", {"u": (-1,)})
        with pytest.raises(BadRequest, match="bytes about itself"):
            await registered.hold("a", "a1", {f"{n:0249}": () for n in range(4_200)})
        assert await store.registered("a") == replace(A, holds={"u": (4,)})

    staged(story)


def test_a_drain_of_a_wrong_or_unknown_name_is_refused() -> None:
    """The name is checked before the registration."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        with pytest.raises(BadRequest):
            await registered.drain("a b")
        with pytest.raises(NotFound, match="no consumer c"):
            await registered.drain("c")

    staged(story)


# -- orders ------------------------------------------------------------------------------------------


def test_a_pause_begins_once_and_ends_once() -> None:
    """A new reason keeps the time; a repeated pause or resume writes nothing."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        first = await orders.pause("a\nb")
        assert (store.view.pause, first) == (Pause("a b", 77.0), 1_000 + store.revision)
        await store.put(ALL.paused, codec.dump_pause(Pause("x", 5.0)))
        second = await orders.pause("y" * 501)
        assert store.view.pause == Pause("y" * 500, 5.0)
        assert await orders.pause("y" * 500) == second == 1_000 + store.revision
        await store.put(ALL.paused, b"?")
        await orders.pause("z")
        assert store.view.pause == Pause("z", 77.0)
        ended = await orders.resume()
        assert (store.view.pause, ended) == (None, 1_000 + store.revision)
        assert await orders.resume() == 1_000
        assert store.waits[-2:] == [("reached", ended - 1_000), ("reached", 0)]

    staged(story)


def test_a_pin_replaces_a_move_and_ends_by_its_partition() -> None:
    """Each partition has one order; an equal order writes nothing; the consumer may be absent."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        def pins() -> list[Pin]:
            return [entry.value for _, entry in sorted(store.view.pins.items())]

        moved = await orders.move(T0, "b")
        assert await orders.move(T0, "b") == moved
        assert await orders.move(T0, "a") == moved + 1
        assert await orders.pin(T1, "absent") == moved + 2
        assert pins() == [Pin(T0, "a", once=True), Pin(T1, "absent")]
        pinned = await orders.pin(T0, "a")
        assert (pins()[0], pinned) == (Pin(T0, "a"), 1_000 + store.revision)
        with pytest.raises(WrongPhase, match="t/0 is pinned to a: unpin it first"):
            await orders.move(T0, "b")
        await orders.unpin(T0)
        assert pins() == [Pin(T1, "absent")]
        assert await orders.unpin(T0) == 1_000

    staged(story)


@pytest.mark.parametrize(
    ("at", "name", "error", "text"),
    [
        (TopicPartition("t", 2), "a", NotFound, "no partition t/2"),
        (TopicPartition("u", 0), "a", NotFound, "no partition u/0"),
        (T0, "c", NotFound, "no consumer c"),
        (T0, "a b", BadRequest, "name"),
        (T0, "leaves", WrongPhase, "is leaving, so it gets no partitions"),
        (T0, "other", WrongPhase, "other does not subscribe to t"),
    ],
)
def test_a_move_that_no_plan_can_make_is_refused(
    at: TopicPartition, name: str, error: type[Exception], text: str
) -> None:
    """A pin is refused only for a missing partition or an invalid name."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        await store.consumer(replace(A, name="leaves", status=Status.DRAINING))
        await store.consumer(replace(A, name="other", topics=("u",)))
        with pytest.raises(error, match=text):
            await orders.move(at, name)
        if at == T0 and error is not BadRequest:
            await orders.pin(at, name)
        else:
            with pytest.raises(error, match=text):
                await orders.pin(at, name)
        assert len(store.txns) == (at == T0 and error is not BadRequest)

    staged(story)


@pytest.mark.parametrize(
    ("consumer", "error"),
    [
        (DRAINED, None),
        (A, None),
        (LEAVES, "is leaving because its process stops"),
        (replace(DRAINED, leaves=True), "is leaving because its process stops"),
        (replace(A, status=Status.DRAINING), "is leaving because its process stops"),
        (replace(DRAINED, dismissed=True), "command to stop"),
    ],
)
def test_only_a_drain_that_an_operator_ordered_is_taken_back(
    consumer: Consumer, error: str | None
) -> None:
    """A ready consumer stays unchanged."""

    async def story(store: Followed, registered: Registered, orders: Orders) -> None:
        await store.consumer(consumer)
        before = store.revision
        if error is not None:
            with pytest.raises(WrongPhase, match=error):
                await orders.undrain("a")
            assert await store.registered("a") == consumer
        else:
            assert await orders.undrain("a") == 1_000 + store.revision
            assert await store.registered("a") == A
            assert store.revision == before + (consumer != A)

    staged(story)


async def test_a_registration_that_changed_meanwhile_is_changed_from_its_new_value() -> None:
    """The concurrent change is kept; the write compares the value that it read."""
    store = Followed()
    mirror: Any = store
    await store.consumer(A)
    kv = await store.get(ALL.consumer("a"))
    assert kv is not None
    store.meanwhile = [[Put(ALL.consumer("a"), codec.dump_consumer(replace(A, rack="r")))]]
    await Registered(store, ALL, mirror).hold("a", "a1", {"t": (1,)})
    assert await store.registered("a") == replace(A, rack="r", holds={"t": (1,)})
    assert store.txns[0][0] == (unchanged(kv),)
    await asyncio.sleep(0)
