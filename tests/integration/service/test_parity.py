"""The test scenarios of the first assigner, on the in-memory store and on a real etcd."""

from __future__ import annotations

import asyncio

from faust_assigner.service import values as codec
from faust_assigner.service.commands import Assignment, Release, Warm
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.records import Action, Consumer, Ended, Leader
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.store.base import Delete, Put
from tests.integration.service.conftest import Stores, on_both, on_both_always
from tests.support.assigning.consumers import Bench, eventually

EVENTS = {"events": 8}


def bench(stores: Stores) -> Bench:
    """Instances on the test's store."""
    return Bench(stores.open, stores.prefix)


@on_both
async def test_a_single_consumer_gets_everything(stores: Stores) -> None:
    """No hand-off is needed, as no partition has an owner."""
    async with bench(stores) as b:
        only = await b.consumer(await b.node(EVENTS), "c0")
        await b.settles(8)
        assert not only.of(Warm)


@on_both
async def test_two_consumers_that_come_together_split_evenly_without_handoffs(
    stores: Stores,
) -> None:
    """The first plan includes both consumers."""
    async with bench(stores) as b:
        node = await b.node(EVENTS)
        both = [await b.consumer(node, f"c{i}") for i in range(2)]
        await b.settles(4, 4)
        assert not [command for helper in both for command in helper.of(Warm)]


@on_both
async def test_a_consumer_that_joins_is_handed_its_share(stores: Stores) -> None:
    """Half of the partitions are warmed and released; the old owner keeps the rest with their epochs."""
    async with bench(stores) as b:
        node = await b.node(EVENTS)
        old = await b.consumer(node, "c0")
        await b.settles(8)
        before = dict(old.owned)
        new = await b.consumer(node, "c1")
        await b.settles(4, 4)
        assert len(new.of(Warm)) == len(old.of(Release)) == 4
        assert {warm.current_owner for warm in new.of(Warm)} == {"c0"}
        assert old.owned.items() <= before.items()  # the same epochs: the owner was not interrupted


@on_both_always
async def test_a_whole_handoff_is_warming_ready_complete_gone(stores: Stores) -> None:
    """A hand-off stays in each phase until the responsible consumer answers."""
    async with bench(stores) as b:
        node = await b.node({"events": 2})
        old = await b.consumer(node, "c0", releases=False)
        await b.settles(2)
        new = await b.consumer(node, "c1", warm_s=None)
        await eventually(lambda: new.of(Warm))
        warm = new.of(Warm)[0]
        [under_way] = await node.overview.handoffs()
        assert (under_way.handoff.phase, under_way.handoff.old_owner) == (Phase.WARMING, "c0")
        assert node._mirror.view.assignments[warm.at].value.owner == "c0"
        await node.acks.ready(Answer("c1", warm.at, handoff_id=warm.handoff_id))
        await eventually(lambda: old.of(Release))
        [under_way] = await node.overview.handoffs()
        assert under_way.handoff.phase is Phase.COMPLETE
        assert node._mirror.view.assignments[warm.at].value.owner == "c1"
        await node.acks.released(Answer("c0", warm.at, handoff_id=warm.handoff_id))
        old.owned.pop(warm.at, None)
        await b.settles(1, 1)


@on_both
async def test_several_topics_are_balanced_together(stores: Stores) -> None:
    """Three consumers get one partition each."""
    async with bench(stores) as b:
        node = await b.node({"a": 1, "b": 1, "c": 1})
        for i in range(3):
            await b.consumer(node, f"c{i}")
        await b.settles(1, 1, 1)


@on_both
async def test_without_consumers_nothing_is_assigned(stores: Stores) -> None:
    """After the last consumer has left, no living consumer owns a partition."""
    async with bench(stores) as b:
        node = await b.node(EVENTS)
        await asyncio.sleep(0.5)
        assert await node.overview.assignments() == ()
        only = await b.consumer(node, "c0")
        await b.settles(8)
        await only.disconnect()
        await eventually(lambda: not b.owners())


@on_both
async def test_without_topics_nothing_is_assigned(stores: Stores) -> None:
    """The consumer receives an empty full assignment."""
    async with bench(stores) as b:
        only = await b.consumer(await b.node(), "c0")
        await asyncio.sleep(0.5)
        assert only.told == [Assignment(full=True)]


@on_both
async def test_an_assigner_that_starts_after_its_consumers_finds_them(stores: Stores) -> None:
    """Consumers that registered without any leader get their partitions from the next leader."""
    async with bench(stores) as b:
        kept = stores.open()
        leads = Put(Keys(b.prefix).leader, codec.dump_leader(Leader("another", 1)))
        await kept.txn([], [leads])
        relay = await b.node(EVENTS, election_retry_s=1_000.0)
        both = [await b.consumer(relay, f"c{i}") for i in range(2)]
        await asyncio.sleep(1.0)
        assert (await relay.overview.assignments(), relay.leads) == ((), False)
        for task in relay._tasks:
            if task.get_name().endswith("election"):
                task.cancel()
        await kept.txn([], [Delete(leads.key)])
        assert not b.owners()
        late = await b.node()
        await b.settles(4, 4)
        assert (relay.leads, late.leads) == (False, True)
        assert not [command for helper in both for command in helper.of(Warm)]


@on_both
async def test_the_partitions_of_a_crashed_consumer_are_given_away_at_once(stores: Stores) -> None:
    """A dead owner cannot hand over, so no hand-off is started."""
    async with bench(stores) as b:
        node = await b.node(EVENTS)
        left, gone = [await b.consumer(node, f"c{i}") for i in range(2)]
        await b.settles(4, 4)
        await gone.disconnect()
        gone.ended = Ended.CLOSED
        await b.settles(8)
        assert not left.of(Warm)


@on_both
async def test_ten_partitions_three_consumers_one_dies_three_move(stores: Stores) -> None:
    """Loads of 4, 3, 3 become 5, 5; only the dead consumer's three partitions move."""
    async with bench(stores) as b:
        node = await b.node({"t": 10})
        helpers = {name: await b.consumer(node, name) for name in "ABC"}
        await b.settles(4, 3, 3)
        before = b.owners()
        assert [len(helpers[name].owned) for name in "ABC"] == [4, 3, 3]
        await helpers["C"].disconnect()
        helpers["C"].ended = Ended.CLOSED
        await b.settles(5, 5)
        after = b.owners()
        assert {at.partition for at in after if after[at] != before[at]} == {7, 8, 9}


@on_both
async def test_a_new_owner_that_crashes_while_warming_gets_nothing(stores: Stores) -> None:
    """The old owner keeps all partitions with their epochs."""
    async with bench(stores) as b:
        node = await b.node(EVENTS)
        old = await b.consumer(node, "c0")
        await b.settles(8)
        before = dict(old.owned)
        new = await b.consumer(node, "c1", warm_s=None)
        await eventually(lambda: new.of(Warm))
        await new.disconnect()
        new.ended = Ended.CLOSED
        await b.settles(8)
        assert old.owned == before


@on_both
async def test_partitions_of_the_dead_move_at_once_and_those_of_the_living_by_handoff(
    stores: Stores,
) -> None:
    """One plan reassigns the dead consumer's three partitions and warms one of a living consumer."""
    async with bench(stores) as b:
        node = await b.node({"events": 9}, debounce_s=1.0)
        helpers = [await b.consumer(node, f"c{i}") for i in range(3)]
        await b.settles(3, 3, 3)
        dead, before = helpers[0], b.owners()
        lost = set(dead.owned)
        assert dead.stream is not None
        await dead.expire()
        new = [await b.consumer(node, f"new{i}", warm_s=0.1) for i in range(2)]
        await eventually(lambda: dead.ended is Ended.LEASE_LOST)
        await b.settles(3, 2, 2, 2)
        warmed = {warm.at for helper in b.helpers for warm in helper.of(Warm)}
        assert lost <= {at for helper in new for at in helper.owned}
        assert warmed == {at for at, owner in b.owners().items() if owner != before[at]} - lost
        assert len(warmed) == 1


@on_both
async def test_a_rapid_scale_up_is_one_plan(stores: Stores) -> None:
    """Eight consumers join within the debounce, and no consumer warms a partition."""
    async with bench(stores) as b:
        node = await b.node({"events": 16}, debounce_s=0.8)
        helpers = [await b.consumer(node, f"c{i}") for i in range(8)]
        await b.settles(*[2] * 8)
        assert not [command for helper in helpers for command in helper.of(Warm)]


@on_both
async def test_a_draining_consumer_hands_off_and_is_told_to_go(stores: Stores) -> None:
    """The consumer warms no partition and releases all, and its stream ends as drained."""
    async with bench(stores) as b:
        node = await b.node(EVENTS)
        leaving, staying = [await b.consumer(node, f"c{i}") for i in range(2)]
        await b.settles(4, 4)
        assert await node.deregister("c0") is Action.WAIT_FOR_DRAIN
        await eventually(lambda: leaving.ended is Ended.DRAINED)
        await b.settles(8)
        assert len(leaving.of(Release)) == len(staying.of(Warm)) == 4
        assert [c.name for c in await node.overview.consumers()] == ["c1"]


@on_both
async def test_a_consumer_drains_though_its_connection_breaks(stores: Stores) -> None:
    """The consumer returns as the draining old owner, and gets the releases of ready partitions."""
    async with bench(stores) as b:
        node = await b.node({"events": 2})
        leaving = await b.consumer(node, "c0")
        await b.settles(2)
        taking = await b.consumer(node, "c1", warm_s=None)
        assert await node.deregister("c0") is Action.WAIT_FOR_DRAIN
        await leaving.disconnect()
        leaving.ended = Ended.CLOSED
        again = await b.consumer(node, "c0")
        await eventually(lambda: len(taking.of(Warm)) >= 2)
        for warm in {warm.at: warm for warm in taking.of(Warm)}.values():
            await node.acks.ready(Answer("c1", warm.at, handoff_id=warm.handoff_id))
        await eventually(lambda: again.ended is Ended.DRAINED)
        assert {release.at.partition for release in again.of(Release)} == {0, 1}


@on_both
async def test_an_unknown_consumer_may_shut_down(stores: Stores) -> None:
    """An unknown consumer owns nothing; the last consumer has no successor."""
    async with bench(stores) as b:
        node = await b.node(EVENTS)
        assert await node.deregister("nobody") is Action.SHUTDOWN_NOW
        last = await b.consumer(node, "c0")
        await b.settles(8)
        assert await node.deregister("c0") is Action.SHUTDOWN_NOW
        await eventually(lambda: last.ended is Ended.DRAINED and not b.owners())


@on_both
async def test_a_slow_download_stays_warming_until_it_is_done(stores: Stores) -> None:
    """The old owner processes until the warm-up is complete."""
    async with bench(stores) as b:
        node = await b.node({"events": 2})
        old = await b.consumer(node, "c0")
        await b.settles(2)
        await b.consumer(node, "c1", warm_s=1.5)
        await eventually(b.open_handoffs)
        await asyncio.sleep(0.7)
        [under_way] = await node.overview.handoffs()
        assert (under_way.handoff.phase, len(old.owned)) == (Phase.WARMING, 2)
        await b.settles(1, 1)


@on_both
async def test_a_consumer_that_reconnects_at_once_keeps_what_it_has(stores: Stores) -> None:
    """The new stream starts with the full assignment, under unchanged epochs."""
    async with bench(stores) as b:
        node = await b.node(EVENTS)
        one, two = [await b.consumer(node, f"c{i}") for i in range(2)]
        await b.settles(4, 4)
        owned, before = dict(one.owned), b.owners()
        await one.disconnect()
        one.ended = Ended.CLOSED
        again = await b.consumer(node, "c0")
        await eventually(lambda: again.owned == owned)
        first = again.told[0]
        assert isinstance(first, Assignment)
        assert first.full
        await asyncio.sleep(2.5)
        assert b.owners() == before
        assert not two.of(Warm)


@on_both
async def test_a_reconnected_consumer_is_told_its_open_handoffs_again(stores: Stores) -> None:
    """The hand-offs keep their ids, also at a different instance."""
    async with bench(stores) as b:
        node, other = await b.node({"events": 2}), await b.node()
        await b.consumer(node, "c0")
        await b.settles(2)
        new = await b.consumer(node, "c1", warm_s=None)
        await eventually(lambda: new.of(Warm))
        await new.disconnect()
        new.ended = Ended.CLOSED
        again = await b.consumer(other, "c1", warm_s=0)
        await eventually(lambda: again.of(Warm))
        assert again.of(Warm)[0] == new.of(Warm)[0]
        await b.settles(1, 1)


@on_both
async def test_crashes_one_after_another_converge(stores: Stores) -> None:
    """The group shrinks from four consumers to one, with even loads after each crash."""
    async with bench(stores) as b:
        node = await b.node({"events": 12})
        helpers = [await b.consumer(node, f"c{i}") for i in range(4)]
        await b.settles(3, 3, 3, 3)
        for left in (3, 2, 1):
            dead = helpers.pop()
            await dead.disconnect()
            dead.ended = Ended.CLOSED
            await b.settles(*[12 // left] * left)


@on_both
async def test_from_one_consumer_to_twenty_each_gets_two_of_forty(stores: Stores) -> None:
    """The consumers register at two instances, and each owns exactly two partitions."""
    async with bench(stores) as b:
        node, other = await b.node({"events": 40}), await b.node()
        await b.consumer(node, "c0")
        await b.settles(40)
        for i in range(1, 20):
            await b.consumer((node, other)[i % 2], f"c{i}")
        await b.settles(*[2] * 20)


@on_both
async def test_from_twenty_consumers_to_four_each_gets_ten(stores: Stores) -> None:
    """Sixteen consumers drain at the same time, and all their streams end as drained."""
    async with bench(stores) as b:
        node, other = await b.node({"events": 40}), await b.node()
        helpers = [await b.consumer((node, other)[i % 2], f"c{i:02}") for i in range(20)]
        await b.settles(*[2] * 20)
        for helper in helpers[4:]:
            await helper.node.deregister(helper.name)
        await b.settles(*[10] * 4)
        assert all(helper.ended is Ended.DRAINED for helper in helpers[4:])


@on_both
async def test_an_unknown_topic_is_looked_up_in_kafka(stores: Stores) -> None:
    """The service stores Kafka's partition count, notices growth and assigns the new partitions."""
    counts = {"found": 3}

    async def count(topic: str) -> int | None:
        return counts.get(topic)

    async with bench(stores) as b:
        node = await b.node(count=count)
        await b.consumer(node, "c0", consumer=Consumer(name="c0", topics=("found",)))
        await b.settles(3)
        counts["found"] = 5
        await b.settles(5)
        assert TopicPartition("found", 4) in b.owners()
