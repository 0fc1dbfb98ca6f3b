"""Plain aiokafka consumers with an assignor of ours, on the embedded broker and on Apache Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from faust_assigner.clients import (
    CoPartitionedAssignor,
    PlannedAssignor,
    RackAwareAssignor,
    RedundantAssignor,
    StickyAssignor,
)
from tests.support.clients.topics import create_topics
from tests.support.coordination.aiokafka_members import die

DEADLINE_S = 60.0
Owned = set[tuple[str, int]]


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.kafka])]
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the broker."""
    server: Any = request.getfixturevalue(
        "embedded_broker" if request.param == "embedded" else "kafka"
    )
    return server.bootstrap


class Fleet:
    """Consumers of a group with its own topics."""

    def __init__(self, bootstrap: str, **topics: int) -> None:
        self.bootstrap = bootstrap
        self.run = uuid.uuid4().hex[:8]
        self.counts = {f"{name}-{self.run}": count for name, count in topics.items()}
        self.consumers: dict[str, AIOKafkaConsumer] = {}

    async def create(self) -> None:
        """Create the topics."""
        await create_topics(self.bootstrap, self.counts)

    async def join(self, name: str, *assignors: PlannedAssignor) -> None:
        """Add a consumer."""
        consumer = self.consumers[name] = AIOKafkaConsumer(
            *self.counts,
            bootstrap_servers=self.bootstrap,
            group_id=self.run,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
            partition_assignment_strategy=assignors,
        )
        await consumer.start()

    def owned(self, name: str) -> Owned:
        """Return the partitions of a consumer, with topics without the run's id."""
        return {(tp.topic.split("-")[0], tp.partition) for tp in self.consumers[name].assignment()}

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until ``holds`` is true of the group."""
        end = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < end, (
                f"{what}: {[(n, sorted(self.owned(n))) for n in self.consumers]}"
            )
            await asyncio.sleep(0.05)

    async def even(self, *loads: int) -> None:
        """Wait until the consumers have these numbers of partitions."""
        await self.until(
            f"loads {loads}", lambda: sorted(len(self.owned(n)) for n in self.consumers) == [*loads]
        )


@contextlib.asynccontextmanager
async def fleet(bootstrap: str, **topics: int) -> AsyncIterator[Fleet]:
    """A fleet with its topics; all consumers are stopped at the end."""
    made = Fleet(bootstrap, **topics)
    await made.create()
    try:
        yield made
    finally:
        await asyncio.gather(*(consumer.stop() for consumer in made.consumers.values()))


@pytest.mark.slow
async def test_sticky_keeps_what_it_can_over_a_join_and_a_death(bootstrap: str) -> None:
    """Two consumers keep their surplus-free shares; a dead consumer's share is split up."""
    async with fleet(bootstrap, orders=12) as group:
        await group.join("a", StickyAssignor())
        await group.join("b", StickyAssignor())
        await group.even(6, 6)
        before = {name: group.owned(name) for name in "ab"}
        await group.join("c", StickyAssignor())
        await group.even(4, 4, 4)
        assert all(group.owned(name) < before[name] for name in "ab")
        before = {name: group.owned(name) for name in "bc"}
        await die(group.consumers.pop("a"))
        await group.even(6, 6)
        assert all(before[name] < group.owned(name) for name in "bc")


async def test_co_partitioned_topics_travel_together(bootstrap: str) -> None:
    """Orders and payments of one number are on one consumer, after a join, too."""
    async with fleet(bootstrap, orders=6, payments=6, audit=4) as group:
        for name in "abc":
            await group.join(name, CoPartitionedAssignor())
        await group.until(
            "everything owned once",
            lambda: (
                len({tp for n in "abc" for tp in group.owned(n)}) == 16
                and all(group.owned(n) for n in "abc")
            ),
        )
        for name in "abc":
            owned = group.owned(name)
            assert {n for t, n in owned if t == "orders"} == {
                n for t, n in owned if t == "payments"
            }


async def test_redundant_partitions_have_two_readers(bootstrap: str) -> None:
    """Three consumers read six partitions twice: four each, and each partition has two readers."""
    async with fleet(bootstrap, documents=6) as group:
        for name in "abc":
            await group.join(name, RedundantAssignor(2))
        await group.even(4, 4, 4)
        everything = [tp for name in "abc" for tp in group.owned(name)]
        assert all(everything.count(tp) == 2 for tp in everything)


async def test_racks_without_brokers_in_them_leave_an_even_group(bootstrap: str) -> None:
    """The broker has no rack, so only balance decides."""
    async with fleet(bootstrap, orders=6) as group:
        await group.join("a", RackAwareAssignor("az-1"))
        await group.join("b", RackAwareAssignor("az-2"))
        await group.even(3, 3)


async def test_a_strategy_changes_in_a_roll(bootstrap: str) -> None:
    """The old strategy stays until the last consumer without the new strategy has left."""
    async with fleet(bootstrap, orders=4, payments=4) as group:
        await group.join("old", StickyAssignor())
        await group.even(8)
        await group.join("new", CoPartitionedAssignor(), StickyAssignor())
        await group.even(4, 4)
        await group.consumers.pop("old").stop()
        await group.join("newer", CoPartitionedAssignor(), StickyAssignor())
        await group.until(
            "equal numbers together",
            lambda: all(
                len(group.owned(name)) == 4
                and {n for t, n in group.owned(name) if t == "orders"}
                == {n for t, n in group.owned(name) if t == "payments"}
                for name in ("new", "newer")
            ),
        )
