"""What is fetched while other partitions are looked up, are paused or wait to be taken, with real clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from tests.integration.app.cooperative.test_coordinator import group, load
from tests.support.coordination.cooperative_members import TOPIC, Member, Plan
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(60)


class Watched:
    """A member's requests to brokers, of which some kind may wait."""

    def __init__(self, member: Member) -> None:
        self.fetched: set[int] = set()
        self.asked: set[int] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._send = member.consumer._client.send
        member.consumer._client.send = self.send

    async def send(self, node: Any, request: Any, **more: Any) -> Any:
        """Note the partitions; hold back questions for offsets."""
        if isinstance(request, FetchRequest):
            self.fetched |= numbers_of(request)
        if isinstance(request, OffsetRequest):
            self.asked |= numbers_of(request)
            await self.may_answer.wait()
        return await self._send(node, request, **more)


def numbers_of(request: Any) -> set[int]:
    """The partitions it names."""
    return {partition[0] for _, partitions in request._topics for partition in partitions}


@contextlib.asynccontextmanager
async def owner(**settings: Any) -> AsyncIterator[tuple[Plan, Member]]:
    """A member that owns 0 and 1 and reads them, of four partitions with a steady load."""
    plan = Plan({"a": {0, 1}})
    async with group(plan, "a", **settings) as (broker, (member,)), load(broker):
        await until(lambda: member.offsets(0) and member.offsets(1), "records")
        yield plan, member


async def flows(member: Member, partition: int) -> None:
    """Wait for more of it."""
    seen = len(member.offsets(partition))
    await until(lambda: len(member.offsets(partition)) > seen + 20, "records of what is kept")


async def test_what_is_kept_flows_while_committed_offsets_of_what_is_gained_are_asked_for() -> None:
    """aiokafka fetches nothing from a broker as long as one of its partitions has no position."""
    async with owner() as (plan, member):
        real, asked, may_answer = member.coordinator._do_fetch_commit_offsets, list[Any](), asyncio.Event()

        async def late(tps: Any) -> Any:
            asked.append(sorted(tp.partition for tp in tps))
            await may_answer.wait()
            return await real(tps)

        member.coordinator._do_fetch_commit_offsets = late
        plan.wanted = {"a": {0, 1, 2, 3}}
        member.coordinator.request_rejoin()
        await until(lambda: asked, "the question")
        await flows(member, 0)
        await flows(member, 1)
        may_answer.set()
        await until(lambda: member.offsets(2) and member.offsets(3), "records of what is gained")
        assert asked == [[2, 3]], "one request for all"
        assert member.offsets(2)[:20] == list(range(len(member.offsets(2)[:20])))


async def test_what_is_kept_flows_while_the_beginnings_of_what_is_gained_are_asked_for() -> None:
    """Of partitions that nobody has committed: the same node is asked twice."""
    async with owner() as (plan, member):
        watched = Watched(member)
        watched.may_answer.clear()
        plan.wanted = {"a": {0, 1, 2}}
        member.coordinator.request_rejoin()
        await until(lambda: 2 in watched.asked, "the question")
        await flows(member, 0)
        assert 2 not in watched.fetched
        watched.may_answer.set()
        await flows(member, 2)


async def test_records_that_nobody_takes_hold_up_no_other_partition() -> None:
    """aiokafka waits with the next fetch for as long as it was told, 0.1 s of each time."""
    async with owner() as (_, member):
        member.reading.cancel()
        await asyncio.gather(member.reading, return_exceptions=True)
        member.consumer._fetcher._prefetch_backoff = 3600.0
        live, other = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
        taken = list[int]()
        async with asyncio.timeout(20):
            while len(taken) < 60 or other not in member.consumer._fetcher._records:
                for records in (await member.consumer.getmany(live, timeout_ms=50)).values():
                    taken += [record.offset for record in records]
        assert taken == list(range(taken[0], taken[0] + len(taken)))


async def test_what_is_paused_is_neither_looked_up_nor_fetched_until_it_is_resumed() -> None:
    """A cold changelog of a megabyte beside what is kept would come first."""
    async with owner() as (plan, member):
        watched, paused, fetcher = Watched(member), {2, 3}, member.consumer._fetcher
        fetcher.is_wanted = lambda tp: tp.partition not in paused
        plan.wanted = {"a": {0, 1, 2, 3}}
        member.coordinator.request_rejoin()
        await until(lambda: member.owned == {0, 1, 2, 3}, "the round")
        member.consumer.seek(TopicPartition(TOPIC, 3), 0)
        await flows(member, 0)
        assert (watched.fetched, watched.asked) == ({0, 1}, set())
        paused.clear()
        fetcher.wake()
        await flows(member, 2)
        await flows(member, 3)
        assert member.offsets(3)[0] == 0


async def test_a_partition_that_comes_back_while_it_is_looked_up_is_looked_up_anew() -> None:
    """What was asked for its former stay answers nothing now."""
    async with owner() as (plan, member):
        watched = Watched(member)
        watched.may_answer.clear()
        for wanted in ({0, 1, 2}, {0, 1}, {0, 1, 2}):
            watched.asked.clear()
            plan.wanted = {"a": wanted}
            member.coordinator.request_rejoin()
            await until(lambda wanted=wanted: member.owned == wanted, "the round")  # type: ignore[misc]
            if 2 in wanted:
                await until(lambda: 2 in watched.asked, "the question")
        watched.may_answer.set()
        await flows(member, 2)
        await flows(member, 0)
        assert not member.consumer._fetcher._looked_up
