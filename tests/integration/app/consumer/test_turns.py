"""The order of fetched records, with a real client: live partitions come before backlogs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from tests.integration.app.consumer.test_fetcher import give
from tests.integration.app.membership.test_coordinator import group
from tests.support.coordination.cooperative_members import TOPIC, Member, Plan
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(150)


@dataclass
class Taker:
    """A member whose records the test takes turn by turn."""

    plan: Plan
    member: Member
    producer: AIOKafkaProducer
    taken: dict[int, list[int]] = field(default_factory=dict)

    async def sent(self, partition: int, count: int) -> None:
        """Send ``count`` records and wait until they are fetched together (or a full fetch)."""
        tp, consumer = TopicPartition(TOPIC, partition), self.member.consumer
        start = await consumer.position(tp)
        for _ in range(count):
            # Send the records one by one, so that a fetch can end after each record.
            last = await self.producer.send_and_wait(TOPIC, b"x", partition=partition)
        await self.fetched(partition)
        while consumer.highwater(tp) <= last.offset:  # the first fetch lacks some
            consumer.seek(tp, start)
            await self.fetched(partition)

    async def fetched(self, partition: int) -> None:
        """Wait until fetched records of the partition wait in the fetcher."""
        await until(lambda: self.has_fetched(partition), "a fetch")

    def has_fetched(self, partition: int) -> bool:
        """Return whether fetched records of the partition wait in the fetcher."""
        return TopicPartition(TOPIC, partition) in self.member.consumer._fetcher._records

    async def turn(self, most: int = 10) -> dict[int, int]:
        """Take one turn; return partition -> number of records."""
        found = await self.member.consumer.getmany(max_records=most)
        for tp, records in found.items():
            self.taken.setdefault(tp.partition, []).extend(record.offset for record in records)
        return {tp.partition: len(records) for tp, records in found.items()}

    async def keep_up(self, *partitions: int) -> None:
        """Send one record to each partition and take it at once."""
        for partition in partitions:
            await self.sent(partition, 1)
            assert await self.turn() == {partition: 1}


@contextlib.asynccontextmanager
async def taker() -> AsyncIterator[Taker]:
    """The taker of a member that owns four empty partitions."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (broker, (member,)):
        member.reading.cancel()
        await asyncio.gather(member.reading, return_exceptions=True)
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        try:
            yield Taker(plan, member, producer)
        finally:
            await producer.stop()


async def test_what_keeps_up_comes_first_and_backlogs_share_the_rest() -> None:
    """aiokafka takes the whole of its oldest fetched batch before it takes any other batch."""
    async with taker() as one:
        await one.keep_up(0, 3)
        for gained, count in ((1, 100), (2, 14)):
            await one.sent(gained, count)
        assert [await one.turn() for _ in range(2)] == [{1: 5, 2: 5}, {1: 5, 2: 5}]
        await one.sent(3, 12)
        await one.sent(0, 1)
        assert await one.turn() == {3: 5, 1: 2, 2: 3}
        assert await one.turn() == {0: 1, 3: 3, 1: 3, 2: 1}
        assert [await one.turn() for _ in range(2)] == [{3: 4, 1: 6}, {1: 10}]


async def test_a_backlog_of_which_a_fetch_has_been_emptied_is_one_still() -> None:
    """A fetch holds few large records; a gained partition would otherwise always come first."""
    async with taker() as one:
        await one.keep_up(0)
        one.member.consumer._fetcher._max_partition_fetch_bytes = 300
        for backlog in (1, 2, 3):
            await one.sent(backlog, 40)
        for _ in range(3):
            few = await one.turn(20)
            assert sum(few.values()) < 20, "whole fetches"
            for backlog in (1, 2, 3):
                await one.fetched(backlog)
        await one.sent(0, 1)
        assert (await one.turn(4))[0] == 1


async def test_who_takes_just_its_share_keeps_up() -> None:
    """The emptied buffer of such a partition still exists, without a record in it."""
    async with taker() as one:
        await one.keep_up(0)
        await one.sent(1, 100)
        await one.sent(0, 5)
        assert await one.turn() == {0: 5, 1: 5}
        assert await one.turn() == {1: 10}
        await one.sent(0, 1)
        assert await one.turn() == {0: 1, 1: 9}


async def test_what_comes_back_counts_as_taken_over() -> None:
    """The partition kept up before its revocation and has a backlog after it returns."""
    async with taker() as one:
        await one.keep_up(0, 1)
        await give(one.plan, one.member, {0, 2, 3})
        await give(one.plan, one.member, {0, 1, 2, 3})
        await one.sent(1, 100)
        await one.sent(0, 1)
        assert await one.turn() == {0: 1, 1: 9}


async def test_one_record_at_a_time_everybody_has_a_turn() -> None:
    """A turn of one record has no rest to share between backlogs."""
    async with taker() as one:
        await one.keep_up(0, 3)
        await one.sent(1, 20)
        for _ in range(12):
            for kept in (0, 3):
                if not one.has_fetched(kept):
                    await one.sent(kept, 1)
            await one.turn(1)
        assert all(len(one.taken[partition]) >= 3 for partition in (0, 1, 3))


async def test_an_error_of_one_partition_costs_no_record_of_another() -> None:
    """The error is raised once; the records of the failed turn come with the next turn."""
    async with taker() as one:
        await one.keep_up(0)
        await one.sent(0, 3)
        one.member.consumer._fetcher._set_error(
            TopicPartition(TOPIC, 1), TopicAuthorizationFailedError(TOPIC)
        )
        with pytest.raises(TopicAuthorizationFailedError):
            await one.turn()
        await one.fetched(0)
        await one.turn()
        assert one.taken == {0: [0, 1, 2, 3]}
