"""Fetches while other partitions are looked up, paused or not yet read, with real clients."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from tests.integration.app.membership.test_coordinator import group, load
from tests.integration.app.rebalance.test_incremental import worker_of
from tests.support.coordination.cooperative_members import TOPIC, Member, Plan
from tests.support.waiting import PATIENCE_S, until
from tests.support.workers.virtual_kafka import VirtualThread

pytestmark = pytest.mark.timeout(150)


class Watched:
    """Record a member's requests about partitions; one kind of request can be held back."""

    def __init__(self, member: Member) -> None:
        self.asked: list[tuple[type, set[int]]] = []
        self.held: type | None = None
        self.may_go = asyncio.Event()
        self._send = member.consumer._client.send
        member.consumer._client.send = self.send

    async def send(self, node: Any, request: Any, **more: Any) -> Any:
        """Record the partitions that the request names."""
        if isinstance(request, FetchRequest | OffsetRequest):
            self.asked.append(
                (type(request), {part[0] for _, parts in request._topics for part in parts})
            )
        elif isinstance(request, OffsetFetchRequest):
            self.asked.append(
                (type(request), {part for _, parts in request._partitions for part in parts})
            )
        if isinstance(request, self.held or ()):
            await self.may_go.wait()
        return await self._send(node, request, **more)

    def of(self, kind: type) -> list[set[int]]:
        """The partitions named in each request of this kind."""
        return [numbers for request, numbers in self.asked if request is kind]


@contextlib.asynccontextmanager
async def owner() -> AsyncIterator[tuple[Plan, Member, Watched]]:
    """A member that owns and reads partitions 0 and 1 of four partitions under a steady load."""
    plan = Plan({"a": {0, 1}})
    async with group(plan, "a") as (broker, (member,)), load(broker):
        await until(lambda: member.offsets(0) and member.offsets(1), "records")
        watched = Watched(member)
        try:
            yield plan, member, watched
        finally:
            watched.may_go.set()


async def give(plan: Plan, member: Member, wanted: set[int]) -> None:
    """Run a round that assigns the partitions ``wanted`` to the member."""
    plan.wanted = {"a": wanted}
    member.coordinator.request_rejoin()
    await until(lambda: member.owned == wanted, "the round")


async def flows(member: Member, partition: int) -> None:
    """Wait until the member has read 20 more records of the partition."""
    seen = len(member.offsets(partition))
    await until(lambda: len(member.offsets(partition)) > seen + 20, "records")


@pytest.mark.parametrize(
    "question", [OffsetFetchRequest, OffsetRequest], ids=["committed", "beginnings"]
)
async def test_what_is_kept_flows_while_what_is_gained_is_looked_up(question: type) -> None:
    """aiokafka fetches from no partition of a broker while a partition there has no position."""
    async with owner() as (plan, member, watched):
        watched.held = question
        await give(plan, member, {0, 1, 2, 3})
        await until(lambda: watched.of(question), "the question")
        await flows(member, 0)
        await flows(member, 1)
        watched.may_go.set()
        await flows(member, 2)
        await flows(member, 3)
        assert watched.of(OffsetFetchRequest) == [{2, 3}], "one request for all"
        for partition in range(4):
            offsets = member.offsets(partition)
            assert offsets == list(range(len(offsets)))


async def test_what_is_looked_up_at_a_former_leader_is_looked_for_anew() -> None:
    """aiokafka repeats the request to the same broker until its metadata expire (5 min)."""
    async with owner() as (plan, member, _):
        client, refused = member.consumer._client, 0
        send, update, is_old = client.send, client._metadata_update, True

        async def moved(node: Any, request: Any, **more: Any) -> Any:
            nonlocal refused
            if not (isinstance(request, OffsetRequest) and is_old):
                return await send(node, request, **more)
            refused += 1
            return SimpleNamespace(
                API_VERSION=1,
                topics=[
                    (topic, [(part[0], NotLeaderForPartitionError.errno, -1, -1) for part in parts])
                    for topic, parts in request._topics
                ],
            )

        async def updated(*what: Any) -> Any:
            nonlocal is_old
            is_old = is_old and not refused
            return await update(*what)

        client.send, client._metadata_update = moved, updated
        await give(plan, member, {0, 1, 2})
        await flows(member, 2)
        assert refused


async def test_what_is_kept_flows_while_a_member_that_joins_looks_at_its_files() -> None:
    """The join opens a database per partition that has only files, then reports their offsets."""
    async with owner() as (plan, member, _):
        looks, may_go, told = threading.Event(), threading.Event(), len(plan.rounds)

        def look(topics: Any) -> None:
            looks.set()
            may_go.wait(10)

        member.assignor.cache_file_offsets = look  # type: ignore[method-assign]
        member.coordinator.request_rejoin()
        try:
            await until(looks.is_set, "the look")
            await flows(member, 0)
            assert len(plan.rounds) == told
        finally:
            may_go.set()
        await until(lambda: len(plan.rounds) > told, "the round")


async def test_records_that_nobody_takes_hold_up_no_other_partition() -> None:
    """aiokafka delays the next fetch by its backoff each time, by default 0.1 s."""
    async with owner() as (_, member, _):
        member.reading.cancel()
        await asyncio.gather(member.reading, return_exceptions=True)
        member.consumer._fetcher._prefetch_backoff = 3600.0
        live, other = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
        taken = list[int]()
        async with asyncio.timeout(PATIENCE_S):
            while len(taken) < 60 or other not in member.consumer._fetcher._records:
                for records in (await member.consumer.getmany(live, timeout_ms=50)).values():
                    taken += [record.offset for record in records]
        assert taken == list(range(taken[0], taken[0] + len(taken)))


async def test_a_fetch_that_ends_while_records_are_taken_is_followed_by_the_next() -> None:
    """aiokafka lists the fetch as in flight for one more step after it has handled the response."""
    async with owner() as (_, member, _):
        fetcher, looks_again, loop = (
            member.consumer._fetcher,
            list[bool](),
            asyncio.get_running_loop(),
        )
        real, raced = fetcher._get_actions_per_node, False

        def late(assignment: Any) -> Any:
            nonlocal raced
            raced = not (raced or fetcher._in_flight or fetcher._pending_tasks)
            if not raced:
                return real(assignment)
            (node,) = member.consumer._client.cluster.brokers()
            fetcher._in_flight.add(node.nodeId)
            loop.call_soon(fetcher._in_flight.discard, node.nodeId)
            found = real(assignment)
            loop.call_soon(
                lambda woken=fetcher._wait_consume_future: looks_again.append(woken.done())
            )
            return found

        fetcher._get_actions_per_node = late
        await flows(member, 0)
        assert len(looks_again) > 5
        assert all(looks_again)


async def test_what_is_paused_is_neither_looked_up_nor_fetched_until_it_is_resumed() -> None:
    """Otherwise a megabyte of a cold changelog would be read before the kept partitions."""
    async with owner() as (plan, member, watched):
        paused, fetcher = {2, 3}, member.consumer._fetcher
        fetcher.is_wanted = lambda tp: tp.partition not in paused
        await give(plan, member, {0, 1, 2, 3})
        member.consumer.seek(TopicPartition(TOPIC, 3), 0)
        await flows(member, 0)
        assert all(numbers <= {0, 1} for _, numbers in watched.asked)
        paused.clear()
        fetcher.wake()
        await flows(member, 2)
        await flows(member, 3)
        assert member.offsets(3)[0] == 0


async def test_a_partition_that_comes_back_while_it_is_looked_up_is_looked_up_anew() -> None:
    """The answer to the lookup of the first ownership is not used for the second."""
    async with owner() as (plan, member, watched):
        watched.held = OffsetRequest
        for wanted in ({0, 1, 2}, {0, 1}, {0, 1, 2}):
            before = len(watched.of(OffsetRequest))
            await give(plan, member, wanted)
            if 2 in wanted:
                await until(lambda n=before: len(watched.of(OffsetRequest)) > n, "it")  # type: ignore[misc]
        watched.may_go.set()
        await flows(member, 2)
        await flows(member, 0)
        assert not member.consumer._fetcher._looked_up


async def test_what_a_worker_resumes_is_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetcher looks again when a partition is resumed; a restored changelog is never wanted."""
    async with worker_of([0]) as worker:
        consumer, seen = worker.app.consumer, list[set[Any]]()

        def wake() -> None:
            seen.append({tp for tp in worker.consumer.positions if consumer.delivery.is_wanted(tp)})

        monkeypatch.setattr(consumer, "fetcher", SimpleNamespace(wake=wake))
        await worker.give([0, 1], standbys=[2])
        assert await worker.until(lambda: worker.at_rest)
        assert await worker.until(
            lambda: seen[-1] == {worker.source(0), worker.source(1), worker.changelog(2)}
        )
        assert all(worker.source(0) in wanted for wanted in seen), "what is kept"


async def test_nobody_complains_that_a_paused_partition_is_not_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faust logs an error five minutes after the start and then every few seconds."""
    missed: list[Any] = []
    monkeypatch.setattr(VirtualThread, "verify_event_path", lambda self, now, tp: missed.append(tp))
    async with worker_of([0]) as worker:
        for tp in [*worker.consumer.positions] * 2:
            worker.app.consumer.verify_event_path(0.0, tp)
        assert missed == [worker.source(0)]


async def test_nobody_complains_that_what_has_just_come_is_not_fetched_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faust's monitor forgets kept partitions in each round, too; the next check reports them."""
    missed: list[Any] = []
    monkeypatch.setattr(VirtualThread, "verify_event_path", lambda self, now, tp: missed.append(tp))
    async with worker_of([0, 1]) as worker:
        for given in ([0, 1], [0], [0, 1], [0, 1]):
            await worker.give(given)
            assert await worker.until(lambda: worker.at_rest)
            missed.clear()
            for complaints in ([], given):
                for tp in sorted(worker.consumer.positions):
                    worker.app.consumer.verify_event_path(0.0, tp)
                assert missed == [worker.source(p) for p in complaints]
