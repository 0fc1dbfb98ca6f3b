"""Places for hand-offs: priorities, and limits on consumers that never get ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service.commands import AbortWarm, Warm
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading.moves import rebalance
from faust_assigner.service.leading.record import Record, unreserved_places
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Consumer, Ended, Status
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.store.base import KeyValue
from faust_assigner.service.view import Change, Entry
from tests.support.assigning.consumers import Bench, Helper, eventually, virtually
from tests.unit.service.stories import AT, SETTINGS, store, view_of

#: A tenth of the timeout is 30 s: so long a consumer may show no progress.
TIMES: dict[str, Any] = {
    "handoff_timeout_s": 300.0,
    "cooldown_s": 60.0,
    "max_handoffs": 4,
    "max_handoffs_per_consumer": 2,
    "consumer_ttl_s": 30.0,
    "consumer_keepalive_s": 5.0,
}


def staged(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with its own store, in virtual time."""

    async def play() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            await story(b)
        await kept.close()

    virtually(play)


async def healthy(b: Bench, node: AssignerNode, count: int, partitions: int) -> list[Helper]:
    """Start this many consumers, and wait until no hand-off is open."""
    found = [await b.consumer(node, f"c{number}") for number in range(count)]
    await b.settles(*[partitions // count] * count)
    return found


def opened(b: Bench, name: str) -> int:
    """The number of open hand-offs to a consumer."""
    handoffs = b.nodes[0]._mirror.view.handoffs.values()
    return sum(entry.value.new_owner == name for entry in handoffs)


async def within(seconds: float, holds: Callable[[], bool]) -> None:
    """Wait at most this long until ``holds`` returns true."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.1)


def test_two_that_never_get_ready_do_not_keep_a_consumer_from_leaving() -> None:
    """Both consumers hold all allowed places, and lose their hand-offs after 30 s without progress."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 48}, **TIMES)
        leaving, *_ = await healthy(b, node, 3, 48)
        for name in ("bad0", "bad1"):
            await b.consumer(node, name, warm_s=None)
        await asyncio.sleep(3.0)
        await node.deregister("c0")
        await asyncio.sleep(10.0)
        assert len(leaving.owned) <= 3
        await asyncio.sleep(25.0)
        assert leaving.ended is Ended.DRAINED

    staged(story)


def test_partitions_of_a_consumer_that_leaves_go_before_those_that_move_for_balance() -> None:
    """The leaving consumer's partition gets the only place, although its number is higher."""
    last = TopicPartition("t", 1)
    view = view_of(
        Consumer(name="stays"),
        Consumer(name="leaves", status=Status.DRAINING),
        Consumer(name="new"),
        topics={"t": 2},
        owners={AT: "stays", last: "leaves"},
    )
    wanted = Targets({AT: "new", last: "new"}, {})
    [bundle] = rebalance(view, wanted, replace(SETTINGS, max_handoffs=1), 0.0)
    assert [write.key for write in bundle.writes] == [view.keys.handoff(last)]


def test_a_consumer_that_has_shown_nothing_yet_gets_no_place_that_is_kept() -> None:
    """A consumer leaves while a stuck one joins, which must not block the other hand-offs."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 30}, **TIMES | {"max_handoffs_per_consumer": 100})
        leaving, *_ = await healthy(b, node, 3, 30)
        await b.consumer(node, "bad", warm_s=None)
        await node.deregister("c0")
        await asyncio.sleep(10.0)
        assert (opened(b, "bad"), len(leaving.owned)) == (3, 3)

    staged(story)


def test_a_quarter_of_the_places_is_kept_for_consumers_that_leave() -> None:
    """Moves for balance get 6 of 8 places; a leaving consumer's hand-offs begin at once."""

    async def story(b: Bench) -> None:
        node = await b.node(
            {"t": 30}, **TIMES | {"max_handoffs": 8, "max_handoffs_per_consumer": 100}
        )
        await healthy(b, node, 3, 30)
        await b.consumer(node, "slow", warm_s=200.0)
        await asyncio.sleep(3.0)
        assert b.open_handoffs() == 6
        for helper in b.helpers:
            helper.warm_s = 200.0
        await node.deregister("c0")
        await asyncio.sleep(3.0)
        assert b.open_handoffs() >= 6
        await asyncio.sleep(30.0)
        assert b.open_handoffs() == 8
        assert {warm.current_owner for one in b.helpers[1:3] for warm in one.of(Warm)} == {"c0"}

    staged(story)


@pytest.mark.parametrize(("places", "left"), [(1, 1), (2, 1), (4, 3), (7, 6), (8, 6), (256, 192)])
def test_a_quarter_is_one_at_least_and_never_the_only_one(places: int, left: int) -> None:
    """A single place is open to all hand-offs."""
    assert unreserved_places(places) == left


def test_a_consumer_whose_hand_offs_failed_has_one_place_until_it_gets_one_ready() -> None:
    """Earlier, it had as many as allowed for the whole timeout, and again after each cooldown."""

    async def story(b: Bench) -> None:
        node = await b.node(
            {"t": 30},
            **TIMES | {"max_handoffs": 100, "max_handoffs_per_consumer": 8, "cooldown_s": 60.0},
        )
        await healthy(b, node, 2, 30)
        bad = await b.consumer(node, "bad", warm_s=None)
        await asyncio.sleep(3.0)
        assert opened(b, "bad") == 8
        most = 0
        await asyncio.sleep(300.0)
        for _ in range(600):
            await asyncio.sleep(2.0)
            most = max(most, opened(b, "bad"))
        assert most == 1
        bad.warm_s = 1.0
        await within(400.0, lambda: opened(b, "bad") > 1)

    staged(story)


def test_a_new_process_is_not_judged_by_the_one_before() -> None:
    """A restart repairs a stuck consumer."""

    async def story(b: Bench) -> None:
        node = await b.node(
            {"t": 30}, **TIMES | {"max_handoffs": 100, "max_handoffs_per_consumer": 8}
        )
        await healthy(b, node, 2, 30)
        bad = Consumer(name="bad", incarnation="one")
        await b.consumer(node, "bad", consumer=bad, warm_s=None)
        await asyncio.sleep(380.0)
        assert opened(b, "bad") == 1
        await b.consumer(node, "bad", consumer=replace(bad, incarnation="two"), warm_s=None)
        await within(10.0, lambda: opened(b, "bad") == 8)

    staged(story)


def test_each_failure_in_a_row_is_remembered_twice_as_long() -> None:
    """The first failure counts for one cooldown; readiness ends the series."""
    view = view_of(Consumer(name="old"), Consumer(name="new"), topics={"t": 1})
    record, kv = Record(SETTINGS), KeyValue("/g/cooldowns/t/0/new", b"{}", 9, 9)
    failure = Change("cooldowns", (AT, "new"), None, Entry(kv, 0.0))

    def is_stuck(now: float) -> bool:
        return "new" in record.standing(view, now).stuck

    record.on_changes(view, failure, 100.0)
    assert [is_stuck(100.0 + s) for s in (59.0, 61.0)] == [True, False]
    record.on_changes(view, failure, 200.0)
    assert [is_stuck(200.0 + s) for s in (119.0, 121.0)] == [True, False]
    for _ in range(20):
        record.on_changes(view, failure, 500.0)
    assert [is_stuck(500.0 + s) for s in (3_839.0, 3_841.0)] == [True, False]


def test_the_next_leader_knows_who_failed() -> None:
    """The next leader has recorded the failures too, and grants the stuck consumer no more places."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 30}, **TIMES | {"max_handoffs": 100})
        other = await b.node(**TIMES | {"max_handoffs": 100})
        await b.consumer(other, "c0")
        await b.consumer(other, "c1")
        await b.settles(15, 15)
        await b.consumer(other, "bad", warm_s=None)
        await asyncio.sleep(303.0)
        assert opened(b, "bad") == 1
        await node.stop()
        b.nodes.remove(node)
        await eventually(lambda: other.leads)
        await asyncio.sleep(100.0)
        assert opened(b, "bad") == 1

    staged(story)


def test_a_group_in_which_all_warm_up_slowly_begins_each_hand_off_once() -> None:
    """No hand-off was overtaken, so slow ones continue."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 8}, **TIMES | {"max_handoffs": 100})
        leaving, *_ = await healthy(b, node, 4, 8)
        for helper in b.helpers:
            helper.warm_s = 200.0
        await node.deregister("c0")
        await asyncio.sleep(230.0)
        assert leaving.ended is Ended.DRAINED
        asked = [warm.at for one in b.helpers for warm in one.of(Warm)]
        assert len(asked) == len(set(asked)) == 2

    staged(story)


def test_a_slow_consumer_that_reports_progress_is_counted_on() -> None:
    """Its hand-offs do not count as stuck, and none moves to a different consumer."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 12}, **TIMES | {"max_handoffs": 100})
        leaving, *_ = await healthy(b, node, 3, 12)
        new = await b.consumer(node, "new", warm_s=100.0)
        await eventually(lambda: len(new.of(Warm)) == 2)
        await node.deregister("c0")
        for _ in range(20):
            for warm in new.of(Warm):
                if (at := warm.at) not in new.owned:
                    await node.acks.progress(Answer("new", at, handoff_id=warm.handoff_id), 0.1)
            await asyncio.sleep(6.0)
        assert new.of(AbortWarm) == []
        assert len(new.owned) >= 2
        await within(200.0, lambda: leaving.ended is Ended.DRAINED)

    staged(story)


def test_an_orphan_takes_no_place() -> None:
    """All places are held, but partitions of a dead owner are assigned at once."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 30}, **TIMES)
        _, dead, _ = await healthy(b, node, 3, 30)
        await b.consumer(node, "bad", warm_s=None)
        await asyncio.sleep(5.0)
        lost = set(dead.owned)
        await dead.disconnect()
        await asyncio.sleep(32.0)
        assert not {at for at in lost if b.owners()[at] == dead.name}

    staged(story)
