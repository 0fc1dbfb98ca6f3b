"""A static member bounces within its session, on both brokers: nothing moves and nobody stops.

Real consumers join with the assignors of real apps; the restarted one has a new app that remembers nothing.
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
    """Counts how often a member had to give everything back."""

    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, revoked: Any) -> None:
        """A rebalance begins; the first one takes nothing."""
        self.count += bool(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Nothing to do."""


class Worker:
    """One member: an app's assignor in a consumer of its own."""

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
        # What Faust's app offers the assignor: the way to Kafka's generation.
        app._consumer = type("C", (), {"_thread": type("T", (), {"_consumer": self.consumer})})

    async def start(self) -> None:
        """Join."""
        await self.consumer.start()
        guard_instance(self.consumer, self._app)
        self.consumer.subscribe(self._topics, listener=self.stops)

    async def kill(self) -> None:
        """Gone without a word: a static member never says that it leaves."""
        await self.consumer.stop()

    @property
    def owned(self) -> set[tuple[str, int]]:
        """What the assignor says it owns, once the consumer has it too."""
        given = {(tp.topic, tp.partition) for tp in self.consumer.assignment()}
        return {(tp.topic, tp.partition) for tp in self.assignor.assigned_actives()} & given

    @property
    def generation(self) -> int:
        """Kafka's."""
        generation: int = self.consumer._coordinator.generation
        return generation


@asynccontextmanager
async def workers(
    bootstrap: str, names: str
) -> AsyncIterator[tuple[dict[str, Worker], Callable[..., Worker]]]:
    """Joined workers by name, and how to make another."""
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
    """It is given back its partitions at once, in the same generation; so it is at the next rebalance."""
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
        # And nobody forgets: a fourth joins, and each gives up no more than it must.
        await another("d").start()
        await until(lambda: all(len(w.owned) == 6 for w in found.values()), "four equal shares")
        assert all(found[n].owned < before[n] for n in before)


@pytest.mark.parametrize(
    "broker", ["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
async def test_a_bounced_member_that_subscribes_to_less_keeps_the_rest(
    broker: str, request: pytest.FixtureRequest
) -> None:
    """As a deploy that removes a table: the group gives it its former partitions, that table's too."""
    server = request.getfixturevalue("kafka" if broker == "kafka" else "embedded_broker")
    async with workers(server.bootstrap, "abc") as (found, another):
        before = {place for place in found["b"].owned if place[0] != LOG}
        await found["b"].kill()
        await another("b", without=LOG).start()
        await until(lambda: found["b"].owned == before, "the bounced member's other partitions")
        assert not found["b"].assignor.awaited.follows
        assert found["b"].assignor.is_unheard
        # A round that anyone causes tells the leader: then the others have the table.
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
