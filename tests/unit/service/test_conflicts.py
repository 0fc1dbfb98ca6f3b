"""A plan that the store refuses, because another write came first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from faust_assigner.service.commands import Assignment
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.leading.advance import advance
from faust_assigner.service.leading.bundles import MAX_BUNDLE, chunks
from faust_assigner.service.leading.moves import rebalance
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.records import Consumer, Ended
from faust_assigner.service.store.base import (
    Compare,
    Delete,
    Put,
    TxnResult,
    Write,
    absent,
    unchanged,
)
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, SETTINGS, view_of

ASSIGNMENTS = ALL.assignment(AT).rpartition("/t")[0]


class Refusing(MemoryStore):
    """Refuses the first assignments, as after a concurrent change."""

    refusals = 3

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Refuse without any write."""
        if self.refusals and any(
            isinstance(write, Put) and write.key.startswith(ASSIGNMENTS) for write in writes
        ):
            self.refusals -= 1
            return TxnResult(False, self.revision)
        return await super().txn(compares, writes)


def test_a_plan_that_is_refused_is_made_again_though_nothing_has_changed() -> None:
    """Each partition gets its owner within seconds."""

    async def story() -> None:
        kept = Refusing(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1}, reconcile_s=60.0)
            await b.consumer(node, "a")
            await asyncio.sleep(20.0)
            assert kept.refusals == 0
            assert b.owners() == {AT: "a"}
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("phase", [Phase.WARMING, Phase.READY])
def test_a_handoffs_orphan_is_given_only_while_its_owner_is_still_gone(phase: Phase) -> None:
    """An owner that registers again keeps its partition."""
    handoff = replace(HANDOFF, phase=phase, strict=True)
    view = view_of(Consumer(name="new"), topics={"t": 1}, owners={AT: "old"}, handoffs=[handoff])
    [bundle] = advance(view, (), SETTINGS, 0.0)
    assert any(write.key == ALL.assignment(AT) for write in bundle.writes)
    assert absent(ALL.consumer("old")) in bundle.compares


class LeavesMeanwhile(MemoryStore):
    """Delays the leader's first assignment until between the two writes of its new owner's leave."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock())
        self.asks, self.lands, self.landed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Hold the assignment back until the consumer's key is about to be deleted."""
        is_give = any(isinstance(w, Put) and w.key.startswith(ASSIGNMENTS) for w in writes)
        if is_give and not self.asks.is_set():
            self.asks.set()
            await self.lands.wait()
            done = await super().txn(compares, writes)
            self.landed.set()
            return done
        if Delete(ALL.consumer("a")) in writes:
            self.lands.set()
            await self.landed.wait()
        return await super().txn(compares, writes)


def test_a_consumer_that_leaves_gets_no_partition_by_a_plan_from_before() -> None:
    """Earlier, the consumer could stop at once, but got the partition of a concurrent plan."""

    async def story() -> None:
        kept = LeavesMeanwhile()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1}, strict=True)
            a = await b.consumer(node, "a")
            await kept.asks.wait()
            await node.deregister("a")
            later = await b.consumer(node, "b")
            await b.settles(1)
            assert (later.owned.keys(), a.owned, a.ended) == ({AT}, {}, Ended.DRAINED)
            assert [command.assigned for command in a.of(Assignment)] == [()]
        await kept.close()

    virtually(story)


def test_a_partition_is_given_only_while_its_new_owner_is_still_who_it_was() -> None:
    """Otherwise a new process of the name would wait for a lease without the partition."""
    view = view_of(Consumer(name="new"), topics={"t": 1})
    [bundle] = rebalance(view, Targets({AT: "new"}, {}), SETTINGS, 0.0)
    assert unchanged(view.consumers["new"].kv) in bundle.compares


def test_partitions_for_one_consumer_share_a_compare_of_its_key() -> None:
    """400 partitions for two consumers are seven transactions; etcd accepts 128 compares."""
    ats = [TopicPartition("t", number) for number in range(400)]
    view = view_of(Consumer(name="a"), Consumer(name="b"), topics={"t": 400})
    wanted = {at: "ab"[at.partition % 2] for at in ats}
    given = list(chunks(list(rebalance(view, Targets(wanted, {}), SETTINGS, 0.0)), MAX_BUNDLE))
    assert len(given) == 7
    for chunk in given:
        assert len({compare for bundle in chunk for compare in bundle.compares}) <= MAX_BUNDLE
