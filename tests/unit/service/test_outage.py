"""After all consumers were gone for longer than their time to live, each gets its own back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.commands import Warm
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Action, Consumer, Ended
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, Helper, eventually, virtually
from tests.unit.service.stories import ALL, put, store

NAMES = [f"c{number}" for number in range(6)]
DELAY_S = 12.0
TIMES: dict[str, Any] = {
    "consumer_ttl_s": 6.0,
    "consumer_keepalive_s": 1.0,
    "rebalance_delay_s": DELAY_S,
    "strict": True,
}
Story = Callable[[Bench, AssignerNode, MemoryStore], Coroutine[Any, Any, None]]


def staged(story: Story, *, partitions: int = 60, **changes: Any) -> None:
    """Run a story of one instance, on virtual time."""

    async def run() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": partitions}, **{**TIMES, **changes})
            await story(b, node, kept)
        await kept.close()

    virtually(run)


async def begin(
    b: Bench, node: AssignerNode, name: str, incarnation: str = "one", **wishes: Any
) -> Helper:
    """One process of a consumer."""
    wanted = Consumer(name=name, incarnation=incarnation, **wishes)
    return await b.consumer(node, name, consumer=wanted)


async def outage(b: Bench, helpers: Sequence[Helper]) -> dict[TopicPartition, str]:
    """All of them lose their registrations; whose each partition was."""
    before = b.owners()
    for helper in helpers:
        await helper.disconnect()
        b.helpers.remove(helper)
    await eventually(lambda: not b.nodes[0]._mirror.view.consumers)
    await asyncio.sleep(3.0)
    return before


async def settled(b: Bench, node: AssignerNode) -> list[Helper]:
    """Six consumers with ten partitions each."""
    helpers = [await begin(b, node, name) for name in NAMES]
    await b.settles(*[10] * 6)
    return helpers


def of(before: dict[TopicPartition, str], name: str) -> set[TopicPartition]:
    """The partitions of one consumer."""
    return {at for at, owner in before.items() if owner == name}


def test_the_first_consumer_back_gets_its_own_partitions_and_no_others() -> None:
    """It was given everything at once, cold."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        before = await outage(b, await settled(b, node))
        first = await begin(b, node, NAMES[0])
        await asyncio.sleep(DELAY_S - 2.0)
        assert set(first.owned) == of(before, NAMES[0])

    staged(story)


@pytest.mark.parametrize("incarnation", ["one", "two"])
def test_all_that_come_back_in_time_find_what_they_had(incarnation: str) -> None:
    """The same processes, or restarted ones; nothing is moved, and nobody is awaited any more."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        before = await outage(b, await settled(b, node))
        back = []
        for name in NAMES:
            back.append(await begin(b, node, name, incarnation))
            await asyncio.sleep(1.5)
        await eventually(lambda: b.owners() == before)
        assert not any(helper.of(Warm) for helper in back)
        await eventually(lambda: not node._mirror.view.awaiting)

    staged(story)


def test_what_was_a_missing_consumers_is_given_away_when_the_delay_is_over() -> None:
    """Five of six come back: the last one's partitions wait for it as long as it is configured."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        before = await outage(b, await settled(b, node))
        back = [await begin(b, node, name) for name in NAMES[1:]]
        await asyncio.sleep(DELAY_S - 2.0)
        assert b.owners() == {at: name for at, name in before.items() if name != NAMES[0]}
        await asyncio.sleep(4.0)
        await b.settles(*[12] * 5)
        assert not any(helper.of(Warm) for helper in back), "nothing that was at home moved"

    staged(story)


def test_a_new_consumer_does_not_take_what_the_missing_ones_had() -> None:
    """It is the first one there; it gets its share when they are back."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        before = await outage(b, await settled(b, node))
        new = await begin(b, node, "new")
        await asyncio.sleep(3.0)
        assert new.owned == {}
        back = [await begin(b, node, name) for name in NAMES]
        await eventually(lambda: len(new.owned) >= 8)
        stayed = sum(before[at] == name for at, name in b.owners().items())
        assert stayed >= 50
        assert len(back) == 6

    staged(story)


def test_nothing_is_moved_for_balance_while_others_are_awaited() -> None:
    """Two unequal ones are back: the plan without the others would move partitions between them."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        weights = {"t": {number: 9.0 if number % 2 else 1.0 for number in range(60)}}
        helpers = [await begin(b, node, name, weights=weights) for name in NAMES]
        await eventually(lambda: len(b.owners()) == 60 and not b.open_handoffs())
        await asyncio.sleep(5.0)
        before = await outage(b, helpers)
        back = [
            await begin(b, node, name, weights=weights, capacity=capacity)
            for name, capacity in zip(NAMES[:2], (1.0, 9.0), strict=True)
        ]
        await asyncio.sleep(DELAY_S - 3.0)
        assert not any(helper.of(Warm) for helper in back)
        assert all(before[at] == name for at, name in b.owners().items())

    staged(story)


def test_one_that_dies_alone_is_not_awaited() -> None:
    """Its partitions are given on at once, as long as others live."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        helpers = await settled(b, node)
        await helpers[0].disconnect()
        b.helpers.remove(helpers[0])
        await asyncio.sleep(TIMES["consumer_ttl_s"] + 3.0)
        assert sorted(b.loads()) == [12] * 5

    staged(story)


def test_a_consumer_that_said_goodbye_is_not_awaited() -> None:
    """The last one leaves, its partitions left behind; a deploy gives its successor another name."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        last = await begin(b, node, "old")
        await b.settles(60)
        assert await node.deregister("old", incarnation="one") is Action.SHUTDOWN_NOW
        await outage(b, [last])
        assert await kept.get(ALL.departed("old")) is not None
        new = await begin(b, node, "new")
        await asyncio.sleep(2.0)
        assert len(new.owned) == 60
        await eventually(lambda: not node._mirror.view.departed)

    staged(story)


def test_consumers_that_said_goodbye_together_are_not_awaited() -> None:
    """A deployment is scaled to none: the first one is told to wait for the second, which leaves, too."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        both = [await begin(b, node, name) for name in ("a", "b")]
        await b.settles(30, 30)
        assert await node.deregister("a", incarnation="one") is Action.WAIT_FOR_DRAIN
        assert await node.deregister("b", incarnation="one") is Action.SHUTDOWN_NOW
        await eventually(lambda: all(one.ended is Ended.DRAINED for one in both))
        await outage(b, both)
        new = await begin(b, node, "new")
        await asyncio.sleep(2.0)
        assert len(new.owned) == 60
        await eventually(lambda: not node._mirror.view.departed)

    staged(story)


def test_who_comes_back_under_a_name_that_said_goodbye_is_awaited_again() -> None:
    """The mark belongs to the process that left."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        last = await begin(b, node, "old")
        await b.settles(60)
        assert await node.deregister("old", incarnation="one") is Action.SHUTDOWN_NOW
        await outage(b, [last])
        again = await begin(b, node, "old", "two")
        await eventually(lambda: len(again.owned) == 60)
        assert await kept.get(ALL.departed("old")) is None
        await outage(b, [again])
        new = await begin(b, node, "new")
        await asyncio.sleep(DELAY_S - 2.0)
        assert new.owned == {}

    staged(story)


def test_without_a_delay_the_first_consumer_back_gets_everything() -> None:
    """Who would rather have cold owners than none says so."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        await outage(b, await settled(b, node))
        first = await begin(b, node, NAMES[0])
        await asyncio.sleep(3.0)
        assert len(first.owned) == 60

    staged(story, rebalance_delay_s=0.0)


def test_a_group_that_begins_waits_for_nobody() -> None:
    """Nobody was there before."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        first = await begin(b, node, NAMES[0])
        await asyncio.sleep(2.0)
        assert len(first.owned) == 60

    staged(story)


def test_an_instance_that_leads_later_waits_as_well() -> None:
    """The mark is in the store: it does not depend on who saw the group empty."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        before = await outage(b, await settled(b, node))
        first = await begin(b, node, NAMES[0])
        second = await b.node(**TIMES)
        await node.stop()
        b.nodes[:] = [second]
        await eventually(lambda: second.leads)
        await first.disconnect()
        again = await begin(b, second, NAMES[0])
        await asyncio.sleep(4.0)
        assert set(again.owned) == of(before, NAMES[0])

    staged(story)


# -- a store that has forgotten -----------------------------------------------------------------------------


def test_where_the_store_has_forgotten_each_gets_what_it_says_it_had() -> None:
    """An instance with its state in memory was restarted; partitions that nobody claims wait."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        former = {"t": tuple(range(0, 60, 3))}
        first = await begin(b, node, "a", former=former)
        await asyncio.sleep(3.0)
        assert {at.partition for at in first.owned} == set(former["t"])
        second = await begin(b, node, "b", former={"t": tuple(range(1, 60, 3))})
        await asyncio.sleep(3.0)
        assert {at.partition for at in second.owned} == set(range(1, 60, 3))
        await asyncio.sleep(DELAY_S)
        await b.settles(30, 30)

    staged(story)


def test_what_the_store_knows_goes_before_what_a_consumer_says() -> None:
    """A hint may be old, or a lie: an owner that is awaited keeps what is its own."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        before = await outage(b, await settled(b, node))
        first = await begin(b, node, NAMES[0], former={"t": tuple(range(60))})
        await asyncio.sleep(5.0)
        assert set(first.owned) == of(before, NAMES[0])

    staged(story)


def test_a_hint_is_kept_only_while_others_are_awaited() -> None:
    """It would be older than anything the store learns later."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        await begin(b, node, "a")
        await b.settles(60)
        await begin(b, node, "b", former={"t": (1, 2, 3)})
        kv = await kept.get(ALL.consumer("b"))
        assert kv is not None
        assert codec.load_consumer(kv.value).former == {}

    staged(story)


def test_a_hint_of_partitions_that_there_are_not_is_passed_over() -> None:
    """A topic may have been made anew with fewer."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        first = await begin(b, node, "a", former={"t": (1, 77), "gone": (0,)})
        await asyncio.sleep(3.0)
        assert set(first.owned) == {TopicPartition("t", 1)}
        await asyncio.sleep(DELAY_S)
        assert len(first.owned) == 60

    staged(story)


def test_a_mark_that_nobody_can_read_does_no_harm() -> None:
    """Somebody wrote the key by hand."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        first = await begin(b, node, "a")
        await put(kept, ALL.awaiting, b"\xff")
        await asyncio.sleep(3.0)
        assert len(first.owned) == 60
        assert await kept.get(ALL.awaiting) is None

    staged(story)
