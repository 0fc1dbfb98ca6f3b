"""All instances are down for longer than the consumers' time to live, on a real etcd."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faust_assigner.service.client import Registration, Warm
from tests.integration.served.conftest import on
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    Instance,
    consumers,
    instances,
    settled,
    until,
)
from tests.support.etcd import EtcdServer

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TTL_S = 3.0
TIMES = QUICK[: QUICK.index("--rebalance-delay-s")]


async def test_after_an_outage_longer_than_the_time_to_live_each_gets_its_own_back(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """Earlier, the first consumer to return got 40 of 60 partitions without their state."""
    flags = (*TIMES, *on(etcd), "--topic", "orders=60")
    with instances(tmp_path, *flags) as (service,):
        bind = service.target
        members = [Consumer(bind, f"c{number}") for number in range(6)]
        async with consumers(*members):
            await settled(members, [10] * 6)
            before = {one.name: set(one.working) for one in members}
            for one in members:
                one.told.clear()
            service.stop()
            await until(lambda: not any(one.working for one in members), seconds=4 * TTL_S)
            await asyncio.sleep(TTL_S)
            again = Instance(tmp_path, *flags, bind=bind)
            try:
                await settled(members, [10] * 6)
                assert {one.name: set(one.working) for one in members} == before
                assert not any(isinstance(told, Warm) for one in members for told in one.told)
            finally:
                again.stop()


async def test_a_restart_in_memory_gives_each_what_it_had(tmp_path: Path) -> None:
    """The state is lost with the process; consumers report their former partitions on registration."""
    flags = (*TIMES, "--topic", "orders=30")
    with instances(tmp_path, *flags) as (service,):
        bind = service.target
        members = [Consumer(bind, f"c{number}") for number in range(3)]
        async with consumers(*members):
            await settled(members, [10] * 3)
            before = {one.name: set(one.working) for one in members}
            service.stop()
            await members[0].stop()
            mine = before["c0"]
            members[0] = Consumer(bind, "c0", registration=Registration(former=lambda: mine))
            again = Instance(tmp_path, *flags, bind=bind)
            try:
                async with consumers(members[0]):
                    await settled(members, [10] * 3)
                    assert {one.name: set(one.working) for one in members} == before
            finally:
                again.stop()
