"""Two workers with one ``consumer_group_instance_id``: the replaced worker exits and stays out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from faust_assigner.app.membership import instance
from faust_assigner.app.membership.instance import InstanceFenced, guard_instance
from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import KafkaServer
from tests.support.coordination.cooperative_members import TOPIC, Member, Plan
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(150)

QUIET_S = 1.0


class Guarded(Member):
    """A static member that records the reason why its worker must end."""

    ended: InstanceFenced | None = None

    def __init__(self, broker: Any, plan: Plan, **settings: Any) -> None:
        super().__init__(broker, "a", plan, group_instance_id="till-1", **settings)

    def guard(self) -> None:
        """Install the guard, as the consumer's thread does."""
        guard_instance(self.consumer, self)

    def end(self, reason: InstanceFenced) -> None:
        """Record the reason."""
        self.ended = reason


@pytest.fixture(autouse=True)
def _note_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "_crash", lambda member, reason: member.end(reason))


@contextlib.asynccontextmanager
async def members(broker: Any, **settings: Any) -> AsyncIterator[tuple[Guarded, Guarded]]:
    """A member that owns all partitions, and an unstarted member with the same instance id."""
    plan = Plan({"a": {0, 1, 2, 3}})
    first, second = (Guarded(broker, plan, **settings) for _ in range(2))
    await first.start()
    try:
        await until(lambda: first.owned == {0, 1, 2, 3}, "the first round")
        yield first, second
    finally:
        for member in (first, second):
            await (member.stop() if hasattr(member, "reading") else member.consumer.stop())


async def only_the_first_ends(first: Guarded, second: Guarded) -> None:
    """Assert that the first member ends with the instance id and that the second one stays."""
    await until(lambda: first.ended is not None, "the replaced member to end")
    assert "'till-1'" in str(first.ended)
    assert "FENCED_INSTANCE_ID" in str(first.ended)
    await until(lambda: second.owned == {0, 1, 2, 3}, "the second to own everything")
    who = second.coordinator.member_id
    await asyncio.sleep(QUIET_S)
    assert second.coordinator.member_id == who
    assert second.ended is None


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[EmbeddedBroker]:
    """An embedded broker with the topic."""
    async with EmbeddedBroker() as broker:
        broker.node.catalogue.create(TOPIC, 4, {})
        yield broker


async def test_a_replaced_member_ends_at_its_next_heartbeat() -> None:
    """aiokafka would join again and replace the second member, without an end."""
    async with embedded() as broker, members(broker) as (first, second):
        await second.start()
        await only_the_first_ends(first, second)


async def test_a_replaced_member_ends_at_its_next_commit() -> None:
    """The commit is refused before the next heartbeat."""
    async with (
        embedded() as broker,
        members(broker, heartbeat_interval_ms=29_000) as (first, second),
    ):
        await second.start()
        await until(lambda: second.coordinator.member_id != "", "the second to join")
        assert not await first.commit(0, 3)
        await only_the_first_ends(first, second)


async def test_a_replaced_member_ends_at_its_next_join() -> None:
    """The member joins with its old member id, and the broker returns FENCED_INSTANCE_ID."""
    async with (
        embedded() as broker,
        members(broker, heartbeat_interval_ms=29_000) as (first, second),
    ):
        await second.start()
        await until(lambda: second.coordinator.member_id != "", "the second to join")
        first.coordinator.request_rejoin()
        await only_the_first_ends(first, second)


@pytest.mark.slow
@pytest.mark.kafka
async def test_a_replaced_member_ends_on_kafka(kafka: KafkaServer) -> None:
    """Like the embedded broker, Kafka refuses the heartbeat with both ids."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 4, 1)])
    await admin.close()
    broker = SimpleNamespace(bootstrap=kafka.bootstrap)
    async with members(broker, session_timeout_ms=10_000) as (first, second):
        await second.start()
        await only_the_first_ends(first, second)


@pytest.mark.parametrize("expired", [True, False])
async def test_a_member_that_nobody_replaced_joins_again(expired: bool) -> None:
    """The member joins again after an expired session and after it forgot its member id."""
    async with embedded() as broker, members(broker, session_timeout_ms=1_000) as (first, _):
        who = first.coordinator.member_id
        if expired:
            # A task that is cancelled before its first step ends aiokafka's loop.
            await asyncio.sleep(0)
            first.coordinator._heartbeat_task.cancel()
            await asyncio.sleep(1.5)
        first.coordinator.reset_generation()
        await until(lambda: first.coordinator.member_id not in ("", who), "a new member id")
        await until(lambda: first.owned == {0, 1, 2, 3}, "everything again")
        assert first.ended is None
