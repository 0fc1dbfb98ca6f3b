"""Registrations: a stream's start, and the surviving stream of a name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.commands import Assignment
from faust_assigner.service.errors import NotFound, StoreUnavailable
from faust_assigner.service.records import HEARTBEATS, Action, Assigned, Consumer, Ended
from faust_assigner.service.serving.registry import Registry, Stream
from faust_assigner.service.store.base import Batch, Compare, Delete, TxnResult, Write
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, eventually, virtually
from tests.unit.service.stories import ALL, AT, put, store


class _LateWatch(MemoryStore):
    """A store whose watches are three seconds late."""

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        async for batch in super().watch(prefix, start_revision):
            await asyncio.sleep(3.0)
            yield batch


def test_a_stream_begins_with_what_was_so_when_the_consumer_registered() -> None:
    """The snapshot includes the consumer's earlier answers, even if the instance is behind."""

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
    """The previous stream's lease ends without any effect on the registration."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            first = await b.consumer(node, "a")
            second = await b.consumer(node, "a")
            await asyncio.sleep(6.0)
            assert (first.ended, second.ended) == (Ended.REPLACED, None)
            assert len(kept._leases) == 2  # the leader's lease and the second stream's lease
            assert "a" in node._mirror.view.consumers
        await kept.close()

    virtually(story)


def test_a_draining_consumer_that_comes_back_and_is_alone_may_go() -> None:
    """No consumer is left to take over."""

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
    """The node serves and leads only between its start and its stop."""

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
    """The plan leaves out a registered consumer, or adds a new one."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4})
            for name in "ab":
                await b.consumer(node, name)
            await b.settles(2, 2)
            before = b.owners()
            gone = await node.overview.plan(without=["a"])
            assert [(move.old_owner, move.new_owner) for move in gone] == [(None, "b")] * 2
            more = await node.overview.plan(extra=[Consumer(name="c")])
            assert [move.new_owner for move in more] == ["c"]
            assert await node.overview.plan() == ()
            assert b.owners() == before
            with pytest.raises(NotFound, match="no consumer A"):
                # a typing error must not look like a plan without moves
                await node.overview.plan(without=["A"])
        await kept.close()

    virtually(story)


class _SlowWrites(MemoryStore):
    """A store whose transactions take a second."""

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        await asyncio.sleep(1.0)
        return await super().txn(compares, writes)


@pytest.mark.parametrize("delay", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.5])
def test_who_registers_while_the_instance_stops_is_sent_on(delay: float) -> None:
    """At a stopped instance its stream would get no commands, but keep the registration alive."""

    async def story() -> None:
        kept = _SlowWrites(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            registering = asyncio.create_task(node.register(Consumer(name="a")))
            await asyncio.sleep(delay)
            stopping = asyncio.create_task(node.stop())
            with contextlib.suppress(StoreUnavailable):  # the caller tries a different instance
                stream = await registering
                await stopping
                assert stream.ended is Ended.STOPPING
            await stopping
            await asyncio.sleep(3.0)
            assert not kept._leases, "nobody renews it"
        await kept.close()

    virtually(story)


class _LostAnswer(MemoryStore):
    """A store that writes a registration, and loses the answer once."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock())
        self.loses = False

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Write, then lose the connection."""
        done = await super().txn(compares, writes)
        if self.loses and any(write.key == ALL.consumer("a") for write in writes):
            self.loses = False
            raise StoreUnavailable("the answer was lost")
        return done


def test_a_registration_without_an_answer_keeps_the_consumers_partitions() -> None:
    """The consumer may still work, and a revoked lease would reassign its partitions at once."""

    async def story() -> None:
        kept = _LostAnswer()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2}, consumer_ttl_s=30.0, consumer_keepalive_s=5.0)
            working = Consumer(name="a", incarnation="i", capabilities=(HEARTBEATS,))
            first = await b.consumer(node, "a", consumer=working)
            await b.settles(2)
            epochs = dict(first.owned)
            kept.loses = True
            with pytest.raises(StoreUnavailable):
                await node.register(replace(working, returns=True))
            assert not kept.loses
            await b.consumer(node, "b")
            await asyncio.sleep(10.0)
            assert await kept.get(ALL.consumer("a")) is not None
            found = {at: e.value for at, e in node.view.assignments.items()}
            assert {at for at, one in found.items() if one.owner == "a"}
            assert all(
                one.epoch == epochs[at] - node.view.base
                for at, one in found.items()
                if one.owner == "a"
            )
        await kept.close()

    virtually(story)


async def _closed(stream: Stream) -> None:
    """Do nothing."""


def _stream(session: str, *, limit: int = 10) -> Stream:
    """A stream whose snapshot is an empty assignment."""
    return Stream(
        "a",
        session,
        limit=limit,
        lives=lambda: 1.0,
        snapshot=lambda: [Assignment(full=True)],
        overflowed=lambda: None,
        closed=_closed,
    )


def test_a_stream_that_overflows_sends_its_snapshot_next() -> None:
    """The snapshot replaces the state of the queued commands."""

    async def story() -> None:
        stream = _stream("s", limit=2)
        assert await anext(stream) == Assignment(full=True)
        for _ in range(3):
            stream.offer(Assignment(unassigned=(AT,)))
        assert await anext(stream) == Assignment(full=True)

    virtually(story)


def test_the_late_end_of_an_older_stream_leaves_the_newer_one_of_its_name() -> None:
    """Otherwise the newer stream would get no further commands."""

    async def story() -> None:
        registry, older, newer = Registry(), _stream("s1"), _stream("s2")
        registry.add(older)
        registry.add(newer)
        assert not registry.remove(older)
        assert registry.get("a") is newer
        assert registry.remove(newer)
        assert registry.get("a") is None

    virtually(story)
