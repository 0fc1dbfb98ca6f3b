"""A static member restarts within its session, on both brokers: no move and no revocation.

Real consumers join with the assignors of real apps; the restarted one has a new app without memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from faust_assigner.app.membership.instance import guard_instance
from tests.support.faust_group import make_app
from tests.support.waiting import until

LOG = "shop-totals-changelog"


class Stops(ConsumerRebalanceListener):  # type: ignore[misc]
    """Count how often a member gives all its partitions up."""

    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Count rebalances with a revocation; the first has none."""
        self.count += bool(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Ignore the assignment."""


class Worker:
    """A group member: an app's assignor in a consumer of its own."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], name: str) -> None:
        app = make_app(f"http://{name}", tables=["totals"], consumer_group_instance_id=name)
        self.assignor = app.assignor
        self.stops = Stops()
        self._topics, self._app = topics, app
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=name,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
            enable_auto_commit=False,
            partition_assignment_strategy=[self.assignor],
        )
        # Give the assignor Kafka's generation the way Faust's app does.
        app._consumer = type("C", (), {"_thread": type("T", (), {"_consumer": self.consumer})})

    async def start(self) -> None:
        """Join."""
        await self.consumer.start()
        guard_instance(self.consumer, self._app)
        self.consumer.subscribe(self._topics, listener=self.stops)

    async def kill(self) -> None:
        """Stop the consumer; a static member sends no LeaveGroup."""
        await self.consumer.stop()

    @property
    def owned(self) -> set[tuple[str, int]]:
        """The partitions that both the assignor and the consumer own."""
        given = {(tp.topic, tp.partition) for tp in self.consumer.assignment()}
        return {(tp.topic, tp.partition) for tp in self.assignor.assigned_actives()} & given

    @property
    def generation(self) -> int:
        """The generation in Kafka."""
        generation: int = self.consumer._coordinator.generation
        return generation


@asynccontextmanager
async def workers(
    bootstrap: str, names: str
) -> AsyncIterator[tuple[dict[str, Worker], Callable[..., Worker]]]:
    """Yield the joined workers by name, and a function that makes another worker."""
    group = f"static-{uuid4().hex[:8]}"
    topics = [f"{group}-orders", LOG]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topics[0], 12, 1)])
    if LOG not in await admin.list_topics():
        await admin.create_topics([NewTopic(LOG, 12, 1)])
    await admin.close()
    found: dict[str, Worker] = {}

    def another(name: str, *, without: str = "") -> Worker:
        found[name] = Worker(bootstrap, group, [t for t in topics if t != without], name)
        return found[name]

    try:
        for name in names:
            await another(name).start()
        share = 24 // len(names)
        await until(lambda: all(len(w.owned) == share for w in found.values()), "everybody's share")
        yield found, another
    finally:
        for worker in found.values():
            await worker.consumer.stop()


@pytest.mark.parametrize(
    "broker", ["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
@pytest.mark.parametrize("name", ["a", "b"], ids=["the leader", "a follower"])
async def test_a_bounce_within_the_session_moves_nothing_and_stops_nobody(
    broker: str, name: str, request: pytest.FixtureRequest
) -> None:
    """The member gets its partitions back at once, in the same generation and in later rounds."""
    server = request.getfixturevalue("kafka" if broker == "kafka" else "embedded_broker")
    async with workers(server.bootstrap, "abc") as (found, another):
        before = {n: w.owned for n, w in found.items()}
        stops = {n: w.stops.count for n, w in found.items()}
        generation = found["c"].generation
        await found[name].kill()
        await another(name).start()
        await until(lambda: found[name].owned == before[name], "the bounced member's partitions")
        await asyncio.sleep(1)
        others = set(found) - {name}
        assert {n: found[n].stops.count for n in others} == {n: stops[n] for n in others}
        assert found[name].generation == found["c"].generation == generation
        # A fourth member joins, and each member gives up no more than necessary.
        await another("d").start()
        await until(lambda: all(len(w.owned) == 6 for w in found.values()), "four equal shares")
        assert all(found[n].owned < before[n] for n in before)


@pytest.mark.parametrize(
    "broker", ["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
async def test_a_bounced_member_that_subscribes_to_less_keeps_the_rest(
    broker: str, request: pytest.FixtureRequest
) -> None:
    """As after a deploy that removes a table: the group still returns that table's partitions."""
    server = request.getfixturevalue("kafka" if broker == "kafka" else "embedded_broker")
    async with workers(server.bootstrap, "abc") as (found, another):
        before = {place for place in found["b"].owned if place[0] != LOG}
        await found["b"].kill()
        await another("b", without=LOG).start()
        await until(lambda: found["b"].owned == before, "the bounced member's other partitions")
        assert not found["b"].assignor.awaited.follows
        assert found["b"].assignor.is_unheard
        # The next round informs the leader, and the other members get the table.
        await another("d").start()
        await until(lambda: all(w.owned for w in found.values()), "everybody's share")
        await until(
            lambda: (
                not any(topic == LOG for topic, _ in found["b"].owned)
                and len({place for w in found.values() for place in w.owned}) == 24
            ),
            "all partitions to be owned",
        )
        assert not found["b"].assignor.is_unheard
