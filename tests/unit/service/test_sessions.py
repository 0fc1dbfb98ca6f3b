"""Registrations: what a stream begins with, and which of two streams lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from faust_assigner.service import keys as codec
from faust_assigner.service.commands import Assignment
from faust_assigner.service.records import Action, Assigned, Consumer, Ended
from faust_assigner.service.store.base import Batch, Delete
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, eventually, virtually
from tests.unit.service.stories import ALL, AT, put, store


class _LateWatch(MemoryStore):
    """Its watches are three seconds behind."""

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        async for batch in super().watch(prefix, start_revision):
            await asyncio.sleep(3.0)
            yield batch


def test_a_stream_begins_with_what_was_so_when_the_consumer_registered() -> None:
    """However far behind the instance is: what the consumer said elsewhere is in it."""

    async def story() -> None:
        kept = _LateWatch(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1}, reconcile_s=1_000.0, consumer_ttl_s=30.0)
            await put(kept, ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "a")))
            stream = await node.register(Consumer(name="a"))
            first = await anext(aiter(stream))
            assert isinstance(first, Assignment)
            assert [owned.at for owned in first.assigned] == [AT]
            await stream.close()
        await kept.close()

    virtually(story)


def test_only_the_last_stream_of_a_name_is_kept_alive() -> None:
    """The lease of the one before runs out, and takes nothing along."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            first = await b.consumer(node, "a")
            second = await b.consumer(node, "a")
            await asyncio.sleep(6.0)
            assert (first.ended, second.ended) == (Ended.REPLACED, None)
            assert len(kept._leases) == 2  # the leader's and the second one's
            assert "a" in node._mirror.view.consumers
        await kept.close()

    virtually(story)


def test_a_draining_consumer_that_comes_back_and_is_alone_may_go() -> None:
    """Nobody is left to relieve it."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            one, two = [await b.consumer(node, name) for name in "ab"]
            await b.settles(1, 1)
            two.warm_s = None
            assert await node.drain("a") is Action.WAIT_FOR_DRAIN
            await one.disconnect()
            await two.disconnect()
            await kept.txn([], [Delete(ALL.consumer("b"))])
            await asyncio.sleep(0.1)
            assert "a" in node._mirror.view.consumers
            again = await b.consumer(node, "a")
            await eventually(lambda: again.ended is Ended.DRAINED)
        await kept.close()

    virtually(story)


def test_a_node_says_whether_it_serves_and_whether_it_leads() -> None:
    """Before its start neither, afterwards both, at the end neither."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1}, start=False)
            assert (node.serving, node.leads) == (False, False)
            await node.start()
            await asyncio.sleep(1.0)
            assert (node.serving, node.leads) == (True, True)
            await node.stop()
            assert (node.serving, node.leads) == (False, False)
        await kept.close()

    virtually(story)


def test_a_dry_run_says_what_would_move_and_moves_nothing() -> None:
    """Without one that is there, and with one that is not."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4})
            for name in "ab":
                await b.consumer(node, name)
            await b.settles(2, 2)
            before = b.owners()
            gone = await node.plan(without=["a"])
            assert [(move.old_owner, move.new_owner) for move in gone] == [(None, "b")] * 2
            more = await node.plan(extra=[Consumer(name="c")])
            assert [move.new_owner for move in more] == ["c"]
            assert await node.plan() == ()
            assert b.owners() == before
        await kept.close()

    virtually(story)
