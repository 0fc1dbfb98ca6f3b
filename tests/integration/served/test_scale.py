"""1,024 partitions of four topics in strict mode: scale to twenty consumers and to four, few moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.served.conftest import on
from tests.integration.served.group import writing
from tests.support.assigning.history import faults, history
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    consumers,
    instances,
    settled,
    until_state,
)
from tests.support.etcd import EtcdServer

pytestmark = [pytest.mark.processes, pytest.mark.slow]
TOPICS = ("--topic", "a=512", "--topic", "b=256", "--topic", "c=192", "--topic", "d=64")
FLAGS = ("--strict", *TOPICS, "--max-handoffs", "2048", "--max-handoffs-per-consumer", "64")
PARTITIONS = 1024


def loads(count: int) -> list[int]:
    """Even loads of ``count`` consumers."""
    return [PARTITIONS // count + (number < PARTITIONS % count) for number in range(count)]


def owners(members: Sequence[Consumer]) -> dict[object, str]:
    """The working consumer of each partition."""
    return {partition: one.name for one in members for partition in one.working}


@pytest.mark.timeout(600)
async def test_1_to_20_to_4_consumers_on_1024_partitions(
    tmp_path: Path, etcd: EtcdServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """No partition has two owners at once, and the number of moves is minimal."""
    flags, lines = on(etcd), []
    with instances(tmp_path, *QUICK, *flags, *FLAGS, count=2) as running:
        targets = [one.target for one in running]
        members = [Consumer(targets[n % 2 :] + targets[: n % 2], f"c{n:02}") for n in range(20)]
        async with consumers(members[0]), writing(members):
            lines.append(
                f"1 consumer owns all after {await settled(members[:1], [PARTITIONS]):.2f} s"
            )
            before = owners(members)
            async with consumers(*members[1:]):
                took = await settled(members, loads(20), seconds=200)
                after = owners(members)
                moved = sum(before[partition] != after[partition] for partition in after)
                warmed = sum(len(one.warmed) for one in members)
                lines.append(
                    f"1 -> 20: {took:.2f} s, {moved} moved, {warmed} handoffs, the fewest are 972"
                )
                # Each round moves as few as possible. If consumers join in several rounds, the
                # first may keep 51 instead of 52, and a new consumer's partition may move again.
                assert PARTITIONS - moved in (max(loads(20)), min(loads(20)))
                assert moved <= warmed < 2 * moved
                before = after
                began = time.monotonic()
                await asyncio.gather(*(one.leave() for one in members[4:]))
                await settled(members[:4], loads(4), seconds=200)
                took = time.monotonic() - began
                after = owners(members[:4])
                moved = sum(before[partition] != after[partition] for partition in after)
                stay = {one.name for one in members[:4]}
                fewest = sum(owner not in stay for owner in before.values())
                lines.append(
                    f"20 -> 4, drained: {took:.2f} s, {moved} moved, the fewest are {fewest}"
                )
                assert moved == fewest
                await until_state(targets[0], lambda said: not said.handoffs)
                assert (
                    faults(
                        await history(flags[1].removeprefix("http://"), flags[3]),
                        flags[3],
                        strict=True,
                    )
                    == []
                )
    with capsys.disabled():
        print("\n" + "\n".join(lines))
