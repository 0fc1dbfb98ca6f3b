"""After all consumers were gone for longer than their time to live, each gets its partitions back."""

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
    """Run a scenario with one instance, in virtual time."""

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
    """Start a process of a consumer."""
    wanted = Consumer(name=name, incarnation=incarnation, **wishes)
    return await b.consumer(node, name, consumer=wanted)


async def outage(b: Bench, helpers: Sequence[Helper]) -> dict[TopicPartition, str]:
    """End all registrations; return the owners before."""
    before = b.owners()
    for helper in helpers:
        await helper.disconnect()
        b.helpers.remove(helper)
    await eventually(lambda: not b.nodes[0]._mirror.view.consumers)
    await asyncio.sleep(3.0)
    return before


async def settled(b: Bench, node: AssignerNode) -> list[Helper]:
    """Start six consumers with ten partitions each."""
    helpers = [await begin(b, node, name) for name in NAMES]
    await b.settles(*[10] * 6)
    return helpers


def of(before: dict[TopicPartition, str], name: str) -> set[TopicPartition]:
    """The partitions of this consumer."""
    return {at for at, owner in before.items() if owner == name}


def test_the_first_consumer_back_gets_its_own_partitions_and_no_others() -> None:
    """Earlier, the first consumer got all partitions at once, without their state."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        before = await outage(b, await settled(b, node))
        first = await begin(b, node, NAMES[0])
        await asyncio.sleep(DELAY_S - 2.0)
        assert set(first.owned) == of(before, NAMES[0])

    staged(story)


@pytest.mark.parametrize("incarnation", ["one", "two"])
def test_all_that_come_back_in_time_find_what_they_had(incarnation: str) -> None:
    """Unchanged and restarted processes count; no partition moves, and the mark is deleted."""

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
    """Five of six return: the missing consumer's partitions wait for the configured delay."""

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
    """The consumer registers first, but gets its share only after the previous consumers' return."""

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
    """The plan for the two unequal consumers alone would move partitions between them."""

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
    """Its partitions are reassigned at once, as other consumers live."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        helpers = await settled(b, node)
        await helpers[0].disconnect()
        b.helpers.remove(helpers[0])
        await asyncio.sleep(TIMES["consumer_ttl_s"] + 3.0)
        assert sorted(b.loads()) == [12] * 5

    staged(story)


def test_a_consumer_that_said_goodbye_is_not_awaited() -> None:
    """The last consumer leaves its partitions behind, and its successor has a new name."""

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
    """A deployment is scaled to zero: the first must wait for the second, which leaves too."""

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
    """The mark belongs only to the process that left."""

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
    """An operator may prefer owners without state to unowned partitions."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        await outage(b, await settled(b, node))
        first = await begin(b, node, NAMES[0])
        await asyncio.sleep(3.0)
        assert len(first.owned) == 60

    staged(story, rebalance_delay_s=0.0)


def test_a_group_that_begins_waits_for_nobody() -> None:
    """The group never had consumers."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        first = await begin(b, node, NAMES[0])
        await asyncio.sleep(2.0)
        assert len(first.owned) == 60

    staged(story)


def test_an_instance_that_leads_later_waits_as_well() -> None:
    """The mark is in the store, whichever instance found the group empty."""

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


# -- a store without its state ------------------------------------------------------------------------------


def test_where_the_store_has_forgotten_each_gets_what_it_says_it_had() -> None:
    """An instance with in-memory state restarted; partitions that no consumer claims wait."""

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
    """A claim may be old or false, so awaited owners keep their partitions."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        before = await outage(b, await settled(b, node))
        first = await begin(b, node, NAMES[0], former={"t": tuple(range(60))})
        await asyncio.sleep(5.0)
        assert set(first.owned) == of(before, NAMES[0])

    staged(story)


def test_a_hint_is_kept_only_while_others_are_awaited() -> None:
    """Later it would be older than the store's own data."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        await begin(b, node, "a")
        await b.settles(60)
        await begin(b, node, "b", former={"t": (1, 2, 3)})
        kv = await kept.get(ALL.consumer("b"))
        assert kv is not None
        assert codec.load_consumer(kv.value).former == {}

    staged(story)


def test_a_hint_of_partitions_that_there_are_not_is_passed_over() -> None:
    """A topic may have been recreated with fewer partitions."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        first = await begin(b, node, "a", former={"t": (1, 77), "gone": (0,)})
        await asyncio.sleep(3.0)
        assert set(first.owned) == {TopicPartition("t", 1)}
        await asyncio.sleep(DELAY_S)
        assert len(first.owned) == 60

    staged(story)


def test_a_mark_that_nobody_can_read_does_no_harm() -> None:
    """The key was written by hand."""

    async def story(b: Bench, node: AssignerNode, kept: MemoryStore) -> None:
        first = await begin(b, node, "a")
        await put(kept, ALL.awaiting, b"\xff")
        await asyncio.sleep(3.0)
        assert len(first.owned) == 60
        assert await kept.get(ALL.awaiting) is None

    staged(story)
