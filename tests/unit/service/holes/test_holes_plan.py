"""Hole 11 of an assigner: topics that are balanced separately.

Each test runs a scenario twice in virtual time: the naive variant fails, and ours does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from faust_assigner.service.commands import Warm
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading.targets import Targets, choose
from faust_assigner.service.records import Consumer
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.view import View
from tests.support.assigning.consumers import Bench, eventually, virtually
from tests.unit.service.stories import store, view_of

# -- 11: topics balanced separately ------------------------------------------------------------------------


def _topic_by_topic(view: View, consumers: Sequence[Consumer], **options: Any) -> Targets:
    """The naive variant: the remainder of each topic goes to the same names."""
    owner: dict[TopicPartition, str] = {}
    for topic, entry in view.topics.items():
        alone = view_of(*consumers, topics={topic: entry.value.partition_count})
        owner |= choose(alone, consumers, **options).owner
    return Targets(owner, {})


@pytest.mark.parametrize(("chooser", "even"), [(choose, True), (_topic_by_topic, False)])
def test_11_two_hundred_topics_of_one_partition_are_spread(chooser: Any, even: bool) -> None:
    """Each of five consumers gets 40 partitions; the naive variant gives all 200 to one."""
    consumers = [Consumer(name=f"c{i}") for i in range(5)]
    view = view_of(*consumers, topics={f"t{i}": 1 for i in range(200)})
    owner = chooser(view, consumers, replicas=0).owner
    loads = sorted(list(owner.values()).count(c.name) for c in consumers)
    assert (loads == [40] * 5) is even


def test_11_topics_travel_together_where_a_consumer_declares_it() -> None:
    """Topics that no consumer declares are balanced separately."""
    consumers = [
        Consumer(name=f"c{i}", co_partitioned=(("a", "b"),) if i == 0 else ()) for i in range(3)
    ]
    view = view_of(*consumers, topics={"a": 6, "b": 6, "c": 6})
    owner = choose(view, consumers, replicas=0).owner
    assert all(owner[TopicPartition("a", n)] == owner[TopicPartition("b", n)] for n in range(6))
    assert sorted(list(owner.values()).count(c.name) for c in consumers) == [6, 6, 6]


def test_11_a_consumer_gets_the_topics_it_named_and_no_others() -> None:
    """A consumer without named topics gets all topics of the service."""
    consumers = [Consumer(name="all"), Consumer(name="one", topics=("a",))]
    view = view_of(*consumers, topics={"a": 4, "b": 4})
    owner = choose(view, consumers, replicas=0).owner
    assert {at.topic for at, name in owner.items() if name == "one"} == {"a"}
    assert sorted(list(owner.values()).count(c.name) for c in consumers) == [4, 4]


def test_11_weights_and_capacities_count() -> None:
    """The owner of a heavy partition gets few others; twice the capacity means twice the load."""
    heavy = {"t": {0: 5.0}}
    consumers = [Consumer(name="a", weights=heavy), Consumer(name="b")]
    view = view_of(*consumers, topics={"t": 6})
    owner = choose(view, consumers, replicas=0).owner
    mine = [at for at, name in owner.items() if name == owner[TopicPartition("t", 0)]]
    assert len(mine) <= 2
    consumers = [Consumer(name="a", capacity=2.0), Consumer(name="b")]
    view = view_of(*consumers, topics={"t": 6})
    owner = choose(view, consumers, replicas=0).owner
    assert list(owner.values()).count("a") == 4


def test_11_a_warm_replica_is_the_preferred_new_owner() -> None:
    """The replica counts for a partition without a living owner."""
    consumers = [Consumer(name="a"), Consumer(name="b", holds={"t": (2, 3)})]
    view = view_of(
        *consumers, topics={"t": 4}, owners={TopicPartition("t", n): "a" for n in (0, 1)}
    )
    owner = choose(view, consumers, replicas=0).owner
    assert [owner[TopicPartition("t", n)] for n in range(4)] == ["a", "a", "b", "b"]


def test_11_replicas_are_given_to_those_that_keep_them_on_another_rack() -> None:
    """Consumers receive their replicas as one list."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4}, replicas=1)
            for name, rack in (("a", "r1"), ("b", "r2")):
                keeps = Consumer(name=name, rack=rack, capabilities=("replicas",))
                await b.consumer(node, name, consumer=keeps)
            await b.settles(2, 2)
            await asyncio.sleep(3.0)
            for one, other in (b.helpers, b.helpers[::-1]):
                assert set(one.replicas) == set(other.owned)
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("fails", [False, True])
def test_11_partitions_that_travel_together_are_handed_over_together_or_not_at_all(
    fails: bool,
) -> None:
    """A pair is never split between two owners; if a warm-up fails, neither partition moves."""

    async def story() -> None:
        kept = store()
        pairs = (("a", "b"),)
        async with Bench(lambda: kept) as b:
            node = await b.node({"a": 4, "b": 4})
            await b.consumer(node, "x", consumer=Consumer(name="x", co_partitioned=pairs))
            await b.settles(8)
            new = await b.consumer(node, "y", warm_s=None)
            await eventually(lambda: len(new.of(Warm)) == 4)
            split: list[int] = []

            def look(changes: object) -> None:
                owners = b.owners()
                split.extend(
                    n
                    for n in range(4)
                    if owners[TopicPartition("a", n)] != owners[TopicPartition("b", n)]
                )

            node._mirror.listeners.append(look)
            for warm in new.of(Warm):
                await asyncio.sleep(1.0)
                if fails and warm.at.topic == "b":
                    await node.acks.warm_failed(Answer("y", warm.at), "no")
                else:
                    await node.acks.ready(Answer("y", warm.at))
            await asyncio.sleep(2.0)
            assert split == []
            assert len(new.owned) == (0 if fails else 4)
        await kept.close()

    virtually(story)
