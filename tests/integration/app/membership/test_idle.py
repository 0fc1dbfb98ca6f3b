"""A member that took no records for longer than max.poll.interval leaves the group and joins again."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from faust_assigner.app.membership.idle import rejoin_after_idle
from faust_assigner.app.membership.leave_request import IDLE, STOPS
from faust_assigner.broker import EmbeddedBroker
from tests.support.coordination.cooperative_members import TOPIC, Member, Plan
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(150)

ALL = {0, 1, 2, 3}


class LikeFaust(Member):
    """Like Faust, takes records only while it owns partitions and no agent blocks."""

    blocks = False

    def guard(self) -> None:
        """Install the guard, as the consumer's thread does; 0.7 s is only in its log line."""
        rejoin_after_idle(self.consumer, 0.7)

    async def start_eager(self) -> Member:
        """Join with aiokafka's own coordinator."""
        await self.consumer.start()
        self.guard()
        self.consumer.subscribe([TOPIC], listener=self)
        self.reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        while True:
            if self.blocks or not self.owned:
                await asyncio.sleep(0.01)
            else:
                await self.consumer.getmany(timeout_ms=50)


@pytest.mark.parametrize("cooperative", [True, False])
async def test_a_member_that_was_idle_for_too_long_comes_back(
    cooperative: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without partitions the member fetches nothing. The broker gets the reason for the leave."""
    caplog.set_level(logging.DEBUG, "faust_assigner.broker")
    async with EmbeddedBroker() as broker:
        broker.node.catalogue.create(TOPIC, 4, {})
        member = LikeFaust(broker, "a", Plan({"a": ALL}), max_poll_interval_ms=700)
        try:
            await (member.start() if cooperative else member.start_eager())
            await until(lambda: member.owned == ALL, "the first round")
            told, generation = len(member.told), member.coordinator.generation
            member.blocks = True
            await until(lambda: ("given up", frozenset(ALL)) in member.told[told:], "the leaving")
            member.blocks = False
            await until(
                lambda: member.owned == ALL and member.coordinator.generation != generation,
                "the coming back",
            )
            assert caplog.text.count("broker_max_poll_interval is 0.7 s") == 1
        finally:
            await member.stop()
        reasons = [line for line in caplog.text.splitlines() if ": member_left " in line]
        assert [IDLE in line for line in reasons] == [True, False]
        assert STOPS in reasons[1], "a stop is no idleness"


async def test_a_member_that_keeps_its_partitions_does_not_pass_for_busy() -> None:
    """The idle time continues through rounds that other members start."""
    async with EmbeddedBroker() as broker:
        broker.node.catalogue.create(TOPIC, 4, {})
        member = LikeFaust(broker, "a", Plan({"a": ALL}), max_poll_interval_ms=60_000)
        try:
            await member.start()
            await until(lambda: member.owned == ALL, "the first round")
            await until(lambda: member.coordinator._subscription._fetch_count == 1, "a fetch")
            member.blocks = True
            await asyncio.sleep(0.3)
            told = len(member.told)
            member.coordinator.request_rejoin()
            await until(lambda: len(member.told) > told, "the round")
            assert member.coordinator._subscription.fetcher_idle_time > 0.2
        finally:
            await member.stop()


@pytest.mark.parametrize("cooperative", [True, False])
async def test_a_member_without_partitions_stays_in_the_group(
    cooperative: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The member has no record to take; a leave would cost the group a rebalance each time."""
    async with EmbeddedBroker() as broker:
        broker.node.catalogue.create(TOPIC, 4, {})
        member = LikeFaust(broker, "spare", Plan({"a": ALL}), max_poll_interval_ms=500)
        try:
            await (member.start() if cooperative else member.start_eager())
            await until(lambda: ("assigned", frozenset()) in member.told, "the first round")
            told, generation = list(member.told), member.coordinator.generation
            await asyncio.sleep(1.2)
            assert (member.told, member.coordinator.generation) == (told, generation)
            assert "broker_max_poll_interval" not in caplog.text
            # A gained partition counts as idle only from its assignment on.
            member.assignor.plan.wanted = {"spare": ALL}
            asked = time.monotonic()
            member.coordinator.request_rejoin()
            await until(lambda: member.owned == ALL, "the second round")
            idle_s = member.coordinator._subscription.fetcher_idle_time
            assert idle_s <= time.monotonic() - asked
        finally:
            await member.stop()
