"""Epochs rise with each new store of a group, independent of the store's revisions."""

from __future__ import annotations

import asyncio

import pytest

from faust_assigner.service.commands import Assignment
from faust_assigner.service.records import Consumer
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, eventually, virtually


async def life(first_revision: int, seconds: float = 5.0) -> tuple[int, int]:
    """Run a group on its own store; return its lowest and highest epoch."""
    kept = MemoryStore(clock=LoopClock(), first_revision=first_revision)
    async with Bench(lambda: kept) as b:
        node = await b.node({"t": 4})
        one = await b.consumer(node, "a")
        await b.settles(4)
        low = min(one.owned.values())
        two = await b.consumer(node, "b")
        await b.settles(2, 2)
        await asyncio.sleep(seconds)
        high = max([*one.owned.values(), *two.owned.values()])
    await kept.close()
    return low, high


@pytest.mark.parametrize("revisions", [(10_000_000, 1), (1, 1), (1, 10_000_000, 1)])
def test_epochs_rise_from_store_to_store(revisions: tuple[int, ...]) -> None:
    """Earlier, epochs fell on a move from memory to etcd, and every sink refused all writes."""

    async def story() -> None:
        await asyncio.sleep(20_000.0)  # seconds after 1970
        highest = 0
        for revision in revisions:
            low, high = await life(revision)
            assert low > highest
            highest = high

    virtually(story)


@pytest.mark.parametrize(
    ("ahead", "is_passed"),
    [(500_000, True), (11_000_000, False)],
    ids=["a raised base", "a fault of a client"],
)
def test_a_consumer_that_had_a_higher_epoch_raises_the_epochs_of_a_new_store(
    ahead: int, is_passed: bool
) -> None:
    """The store is lost, and its base was ahead of the clock, so sinks would refuse all writes."""

    async def story() -> None:
        await asyncio.sleep(20_000.0)
        kept = MemoryStore(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4})
            had = int(LoopClock().wall() * 1000) + ahead
            one = await b.consumer(node, "a")
            await b.settles(4)
            two = await b.consumer(await b.node(), "b", consumer=Consumer(name="b", epoch=had))
            await b.settles(2, 2)
            await asyncio.sleep(5.0)
            epochs = [*one.owned.values(), *two.owned.values()]
            assert (min(epochs) > had) is is_passed
        await kept.close()

    virtually(story)


def test_a_registration_that_raises_the_epochs_begins_above_them() -> None:
    """Earlier, its first grants were below, and a client that compares epochs failed."""

    async def story() -> None:
        await asyncio.sleep(20_000.0)
        kept = MemoryStore(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4})
            had = int(LoopClock().wall() * 1000) + 500_000
            await b.consumer(node, "a")
            stream = await node.register(Consumer(name="b", epoch=had))
            assert node.view.base > had
            await stream.close()
        await kept.close()

    virtually(story)


def test_a_consumer_that_reports_its_present_epoch_raises_no_epochs() -> None:
    """Raised epochs interrupt every owner, and the next stream's instance may be behind."""

    async def story() -> None:
        await asyncio.sleep(20_000.0)
        kept = MemoryStore(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            first, second = await b.node({"t": 4}), await b.node()
            one = await b.consumer(first, "a")
            await b.settles(4)
            before, base = dict(one.owned), first.view.base
            had = max(before.values())
            for node in (first, second):
                again = Consumer(name="a", incarnation="", epoch=had)
                await (await node.register(again)).close()
            assert (first.view.base, second.view.base) == (base, base)
        await kept.close()

    virtually(story)


def test_a_group_that_is_there_keeps_its_epochs() -> None:
    """Raised epochs interrupt every owner, so only a group without consumers raises them."""

    async def story() -> None:
        await asyncio.sleep(20_000.0)
        kept = MemoryStore(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4})
            one = await b.consumer(node, "a")
            await b.settles(4)
            before = dict(one.owned)
            await asyncio.sleep(100.0)
            two = await b.consumer(await b.node(), "b")
            await b.settles(2, 2)
            assert one.owned.items() <= before.items()
            assert min(two.owned.values()) > max(before.values())
        await kept.close()

    virtually(story)


def test_a_clock_that_was_set_back_lowers_no_epoch() -> None:
    """All consumers are gone, and the first returns at an instance whose clock is hours behind."""

    class Behind(LoopClock):
        def wall(self) -> float:
            return super().wall() - 10_000.0

    async def story() -> None:
        await asyncio.sleep(20_000.0)
        kept = MemoryStore(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4})
            one = await b.consumer(node, "a")
            await b.settles(4)
            before = max(one.owned.values())
            await one.disconnect()
            await asyncio.sleep(10.0)
            node._sessions.clock = Behind()
            two = await b.consumer(node, "b")
            await asyncio.sleep(3.0)
            assert min(two.owned.values()) > before
        await kept.close()

    virtually(story)


def test_who_comes_back_under_raised_epochs_is_not_sent_back_to_where_it_began() -> None:
    """The owner has committed since, and would process those records twice."""

    async def story() -> None:
        await asyncio.sleep(20_000.0)
        kept = MemoryStore(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4}, strict=True)
            process = Consumer(name="b", incarnation="one")
            one = await b.consumer(node, "a")
            await b.settles(4)
            two = await b.consumer(node, "b", consumer=process)
            await b.settles(2, 2)
            begun = {owned.offset for told in two.of(Assignment) for owned in told.assigned}
            assert begun == {7}, "where the owner before stopped"
            before = dict(two.owned)
            for helper in (one, two):
                await helper.disconnect()
            await eventually(lambda: not node._mirror.view.consumers)
            again = await b.consumer(node, "b", consumer=process)
            await eventually(lambda: len(again.owned) == 4)
            told = {owned.at: owned for said in again.of(Assignment) for owned in said.assigned}
            assert all(told[at].epoch > epoch for at, epoch in before.items())
            assert {told[at].offset for at in before} == {None}
        await kept.close()

    virtually(story)
