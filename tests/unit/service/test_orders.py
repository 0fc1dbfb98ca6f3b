"""Orders of an operator to the leader: pause, pin, move, undrain, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.client.operator import Operator
from faust_assigner.service.errors import NotFound, WrongPhase
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading.targets import choose
from faust_assigner.service.records import Consumer, Ended, Pause, Pin, Status
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.serve import running
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from tests.support.assigning.consumers import Bench, Helper, eventually, virtually
from tests.support.assigning.instances import calls_ended
from tests.unit.service.stories import ALL, AT, store, view_of


def staged(story: Callable[[Bench], Awaitable[None]]) -> None:
    """Run a scenario with its own store."""

    async def whole() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            await story(b)
        await kept.close()

    virtually(whole)


def at(number: int, topic: str = "t") -> TopicPartition:
    """A partition of a topic."""
    return TopicPartition(topic, number)


# -- pause -------------------------------------------------------------------------------------------------


def test_while_paused_a_consumer_that_joins_gets_nothing_and_its_share_afterwards() -> None:
    """A paused leader moves no partition for balance."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 4})
        first = await b.consumer(node, "a")
        await b.settles(4)
        await node.orders.pause("a release is under way")
        second = await b.consumer(node, "b")
        await asyncio.sleep(60.0)
        assert (len(first.owned), len(second.owned), b.open_handoffs()) == (4, 0, 0)
        await node.orders.resume()
        await b.settles(2, 2)

    staged(story)


def test_while_paused_a_dead_consumers_partitions_are_given_on() -> None:
    """A pause must not leave a partition without an owner."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 4})
        await b.consumer(node, "a")
        second = await b.consumer(node, "b")
        await b.settles(2, 2)
        await node.orders.pause("")
        await second.expire()
        await eventually(lambda: set(b.owners().values()) == {"a"} and len(b.owners()) == 4)

    staged(story)


def test_while_paused_a_drain_goes_on() -> None:
    """The operator wants no automatic moves, but this consumer drained."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 4})
        await b.consumer(node, "a")
        second = await b.consumer(node, "b")
        await b.settles(2, 2)
        await node.orders.pause("")
        await node.drain("b")
        await eventually(lambda: second.ended is not None, "b is drained")
        assert set(b.owners().values()) == {"a"}

    staged(story)


def test_a_second_pause_changes_the_reason_and_keeps_the_time() -> None:
    """The state shows since when the group is paused."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 1})
        await node.orders.pause("one")
        first = node.view.pause
        assert first is not None
        await asyncio.sleep(10.0)
        await node.orders.pause("two")
        assert node.view.pause == Pause("two", first.since)
        await node.orders.resume()
        await node.orders.resume()
        assert node.view.pause is None

    staged(story)


# -- pins --------------------------------------------------------------------------------------------------


def test_a_pinned_partition_goes_to_its_consumer_and_another_one_comes_back_for_it() -> None:
    """The loads stay even."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 4})
        await b.consumer(node, "a")
        await b.consumer(node, "b")
        await b.settles(2, 2)
        mine = min(one for one, name in b.owners().items() if name == "a")
        await node.orders.pin(mine, "b")
        await eventually(lambda: b.owners().get(mine) == "b", "b has the pinned one")
        await b.settles(2, 2)
        await asyncio.sleep(60.0)
        assert b.owners()[mine] == "b"

    staged(story)


def test_a_pin_waits_for_its_consumer_and_lasts_over_its_absence() -> None:
    """Meanwhile a different consumer owns the partition."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2})
        await b.consumer(node, "a")
        await b.settles(2)
        await node.orders.pin(at(1), "b")
        await asyncio.sleep(10.0)
        assert b.owners() == {at(0): "a", at(1): "a"}
        second = await b.consumer(node, "b")
        await eventually(lambda: b.owners().get(at(1)) == "b")
        await second.expire()
        await eventually(lambda: b.owners().get(at(1)) == "a")
        await b.consumer(node, "b")
        await eventually(lambda: b.owners().get(at(1)) == "b")

    staged(story)


def test_what_travels_with_a_pinned_partition_goes_with_it() -> None:
    """Co-partitioned topics always have the same owner."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 4, "u": 4})
        for name in ("a", "b"):
            await b.consumer(node, name, consumer=Consumer(name=name, co_partitioned=(("t", "u"),)))
        await b.settles(4, 4)
        mine = min(one for one, name in b.owners().items() if name == "a")
        await node.orders.pin(mine, "b")
        await eventually(lambda: b.owners().get(mine) == "b")
        await b.settles(4, 4)
        assert b.owners()[at(mine.partition, "u")] == "b"

    staged(story)


def _pinned(view: View, *pins: Pin) -> View:
    for number, pin in enumerate(pins, 500):
        value = codec.dump_pin(pin)
        key = ALL.pin(pin.at)
        view.apply(Event(key, number, KeyValue(key, value, number, number)))
    return view


def test_a_pin_to_a_consumer_that_cools_down_waits_for_the_end_of_that() -> None:
    """The consumer failed to warm this partition recently."""
    both = [Consumer(name="a"), Consumer(name="b")]
    view = _pinned(view_of(*both, topics={"t": 2}, owners={AT: "a", at(1): "b"}), Pin(AT, "b"))
    assert choose(view, both, replicas=0).owner == {AT: "b", at(1): "a"}
    key = ALL.cooldown(AT, "b")
    view.apply(Event(key, 900, KeyValue(key, codec.dump_until(1.0), 900, 900)))
    assert choose(view, both, replicas=0).owner == {AT: "a", at(1): "b"}


@pytest.mark.parametrize(
    "pin", [Pin(AT, "c"), Pin(at(7), "b"), Pin(at(0, "v"), "b")], ids=["gone", "beyond", "topic"]
)
def test_a_pin_that_cannot_be_kept_is_passed_over(pin: Pin) -> None:
    """Its consumer, its partition or its topic does not exist."""
    both = [Consumer(name="a"), Consumer(name="b")]
    view = view_of(*both, topics={"t": 2}, owners={AT: "a", at(1): "b"})
    assert choose(_pinned(view, pin), both, replicas=0).owner == {AT: "a", at(1): "b"}


def test_a_pin_to_a_consumer_that_does_not_want_the_topic_is_passed_over() -> None:
    """The consumer does not subscribe to the topic."""
    picky = [Consumer(name="a"), Consumer(name="b", topics=("u",))]
    view = view_of(*picky, topics={"t": 1, "u": 1}, owners={AT: "a", at(0, "u"): "b"})
    assert choose(_pinned(view, Pin(AT, "b")), picky, replicas=0).owner[AT] == "a"


@pytest.mark.parametrize("owners", ["ab", "ba", "aabb", "abab", "abba", "baab", "baba", "bbaa"])
def test_the_loads_are_even_whichever_partition_is_pinned(owners: str) -> None:
    """If the plan itself would move the pinned partition, a different one returns in its place."""
    both = [Consumer(name="a"), Consumer(name="b")]
    count = len(owners)
    view = view_of(*both, topics={"t": count}, owners={at(n): who for n, who in enumerate(owners)})
    for number in range(count):
        pinned = _pinned(view, Pin(at(number), "b"))
        found = choose(pinned, both, replicas=0).owner
        assert found[at(number)] == "b"
        assert sorted(found.values()) == sorted(owners)
        view.apply(Event(ALL.pin(at(number)), 999, None))


def test_everything_pinned_to_one_consumer_goes_there() -> None:
    """The loads are uneven, as ordered."""
    both = [Consumer(name="a"), Consumer(name="b")]
    view = view_of(*both, topics={"t": 4}, owners={at(n): "ab"[n % 2] for n in range(4)})
    pins = [Pin(at(n), "b") for n in range(4)]
    assert set(choose(_pinned(view, *pins), both, replicas=0).owner.values()) == {"b"}


# -- moves -------------------------------------------------------------------------------------------------


def test_a_move_is_made_once_also_while_paused() -> None:
    """A pause stops only the leader's own moves."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 4})
        await b.consumer(node, "a")
        await b.consumer(node, "b")
        await b.settles(2, 2)
        mine = min(one for one, name in b.owners().items() if name == "a")
        await node.orders.pause("")
        await node.orders.move(mine, "b")
        await eventually(lambda: b.owners().get(mine) == "b")
        await eventually(lambda: not node.view.pins, "the move is done")
        await asyncio.sleep(60.0)
        assert b.owners()[mine] == "b"

    staged(story)


def test_orders_are_carried_out_after_the_debounce() -> None:
    """Orders do not wait for the leader's next periodic pass."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 4}, reconcile_s=600.0)
        await b.consumer(node, "a")
        await b.consumer(node, "b")
        await b.settles(2, 2)
        mine = min(one for one, name in b.owners().items() if name == "a")
        await asyncio.sleep(5.0)
        await node.orders.move(mine, "b")
        await asyncio.sleep(2.0)
        assert b.owners()[mine] == "b"

    staged(story)


def test_a_move_whose_target_cannot_warm_the_partition_is_given_up() -> None:
    """The move is not retried, and the old owner keeps the partition."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2})
        await b.consumer(node, "a")
        second = await b.consumer(node, "b")
        await b.settles(1, 1)
        second.fails = True
        mine = min(one for one, name in b.owners().items() if name == "a")
        await node.orders.move(mine, "b")
        await eventually(lambda: not node.view.pins, "the move is given up")
        assert b.owners()[mine] == "a"

    staged(story)


def test_a_move_that_cannot_be_is_refused() -> None:
    """Each error has its reason."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2, "u": 1})
        await b.consumer(node, "a", warm_s=None)
        await b.consumer(node, "b", consumer=Consumer(name="b", topics=("u",)))
        await eventually(lambda: len(b.owners()) == 3)
        with pytest.raises(NotFound, match="no consumer c"):
            await node.orders.move(AT, "c")
        with pytest.raises(NotFound, match="no partition t/2"):
            await node.orders.move(at(2), "a")
        with pytest.raises(NotFound, match="no partition v/0"):
            await node.orders.pin(at(0, "v"), "a")
        with pytest.raises(WrongPhase, match="b does not subscribe to t"):
            await node.orders.move(AT, "b")
        await node.orders.pin(AT, "a")
        with pytest.raises(WrongPhase, match="t/0 is pinned to a"):
            await node.orders.move(AT, "a")
        await node.orders.unpin(AT)
        assert AT not in node.view.pins
        await node.orders.move(at(0, "u"), "b")
        pin = node.view.pins[at(0, "u")].value
        assert pin == Pin(at(0, "u"), "b", once=True)

    staged(story)


# -- drains ------------------------------------------------------------------------------------------------


async def _draining(b: Bench) -> tuple[Helper, Helper]:
    """``b`` owns half, and ``a`` completes no warm-up, so a drain of ``b`` takes long."""
    node = await b.node({"t": 2})
    first = await b.consumer(node, "a")
    second = await b.consumer(node, "b")
    await b.settles(1, 1)
    first.warm_s = None
    return first, second


def test_a_drain_that_is_taken_back_leaves_the_consumer_what_it_has() -> None:
    """The consumer also receives new partitions."""

    async def story(b: Bench) -> None:
        _, second = await _draining(b)
        node = b.nodes[0]
        await node.drain("b")
        await eventually(lambda: b.open_handoffs() == 1, "the drain begins")
        await node.orders.undrain("b")
        await eventually(lambda: b.open_handoffs() == 0, "the hand-off is aborted")
        await b.settles(1, 1)
        assert second.ended is None
        await node.set_topic("t", 4)
        await b.settles(2, 2)

    staged(story)


@pytest.mark.parametrize("drained", [False, True])
def test_a_process_that_leaves_by_itself_is_not_undrained(drained: bool) -> None:
    """An operator's earlier drain changes nothing, as the process is going to end."""

    async def story(b: Bench) -> None:
        await _draining(b)
        node = b.nodes[0]
        if drained:
            await node.drain("b")
        await node.deregister("b")
        with pytest.raises(WrongPhase, match="b is leaving because its process stops"):
            await node.orders.undrain("b")
        [_, second] = await node.overview.consumers()
        assert second.status is Status.DRAINING
        with pytest.raises(NotFound):
            await node.orders.undrain("c")

    staged(story)


def test_an_operator_undrains_the_next_process_of_a_name_whose_process_left() -> None:
    """The drain covers each process of the name, the leave only its own process."""

    async def story(b: Bench) -> None:
        first, second = await _draining(b)
        node = b.nodes[0]
        await node.drain("b")
        await node.deregister("b")
        first.warm_s = 0.0
        again = await b.consumer(node, "b", consumer=Consumer(name="b", incarnation="next"))
        assert node.view.consumers["b"].value.status is Status.DRAINING
        await node.orders.undrain("b")
        await eventually(lambda: len(again.owned) == 1, "the next process has its share")
        assert second.ended is Ended.REPLACED

    staged(story)


def test_an_order_returns_the_revision_from_which_it_holds() -> None:
    """The revision is on the scale of epochs, so a caller can wait until it sees the order."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 1})
        await b.consumer(node, "a")
        await b.settles(1)
        revision = await node.orders.pause("")
        assert max(b.helpers[0].owned.values()) < revision <= node.revision
        assert node.view.pause is not None

    staged(story)


async def test_every_order_goes_over_the_wire_and_is_seen_in_the_state() -> None:
    """The operator's client, the server and the store run in one process."""
    options = Options.read({"bind": "127.0.0.1:0", "topic": "t=1"}, {})
    async with running(options) as (port, *_), Operator(f"127.0.0.1:{port}") as operator:
        assert not (await operator.state()).HasField("paused")
        revision = await operator.pause("a release")
        state = await operator.state()
        assert state.paused.reason == "a release"
        assert state.revision >= revision
        await operator.resume()
        await operator.pin(("t", 0), "a")
        [pin] = (await operator.state()).pins
        assert (pin.partition.topic, pin.consumer_name, pin.once) == ("t", "a", False)
        await operator.unpin(("t", 0))
        assert not (await operator.state()).pins
        for order in (operator.move(("t", 0), "a"), operator.undrain("a")):
            with pytest.raises(NotFound, match="no consumer a"):
                await order
    await calls_ended()
