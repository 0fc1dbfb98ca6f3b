"""Measure a service instance with many consumers: its memory, and the latency of an event.

    python benchmarks/service.py [--consumers 1000] [--partitions 2000] [--rounds 20]

The consumers are streams of a single process beside the service. An event is a partition's handoff, timed
from the acknowledgement that completes it until the new owner's assignment arrives. Times include the work
of the consumers' process.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from faust_assigner.service.client import (
    AbortWarm,
    Assigned,
    AssignerClient,
    Lost,
    Release,
    Standbys,
    Warm,
)
from faust_assigner.service.client.operator import Operator
from tests.support.assigning.instances import Instance, instances


class Member:
    """A consumer that records the times of its acknowledgements and of the assignments that follow."""

    def __init__(self, target: str, name: str) -> None:
        self.client = AssignerClient(target, name)
        self.owned: set[tuple[str, int]] = set()
        self.acknowledged: dict[tuple[str, int], float] = {}
        self.latencies: list[float] = []

    async def assigned(self, command: Assigned) -> None:
        """Record the latency of each new partition."""
        now = time.perf_counter()
        self.owned = set(command.owned)
        for grant in command.added:
            if (since := self.acknowledged.pop(grant.partition, None)) is not None:
                self.latencies.append(now - since)

    async def warm(self, command: Warm) -> None:
        """Acknowledge at once; record the time."""
        self.acknowledged[command.partition] = time.perf_counter()

    async def release(self, command: Release) -> None:
        """Release the partition at once."""
        self.owned.discard(command.partition)

    async def abort(self, command: AbortWarm) -> None:
        """Do nothing: this consumer keeps no state."""

    async def standbys(self, command: Standbys) -> None:
        """Ignore the command: this consumer has no standbys."""

    async def lost(self, command: Lost) -> None:
        """Clear the owned partitions."""
        self.owned = set()


def resident_mib(process_id: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no VmRSS of {process_id}")


async def until_owned(members: Sequence[Member], partitions: int) -> float:
    """Wait until all partitions are owned, evenly; return the seconds."""
    began = time.perf_counter()
    low, high = partitions // len(members), -(-partitions // len(members))
    while True:
        loads = [len(member.owned) for member in members]
        if sum(loads) == partitions and low <= min(loads) and max(loads) <= high:
            return time.perf_counter() - began
        await asyncio.sleep(0.02)


async def measure(service: Instance, consumers: int, partitions: int, rounds: int) -> None:
    """Connect the consumers, let some leave and join, and print the figures."""
    target, process_id = service.target, service.process.pid
    empty = resident_mib(process_id)
    members = [Member(target, f"c{number:05}") for number in range(consumers)]
    tasks = {member: asyncio.create_task(member.client.run(member)) for member in members}
    took = await until_owned(members, partitions)
    full = resident_mib(process_id)
    print(f"{consumers} consumers, {partitions} partitions: all in and even after {took:.1f} s")
    print(
        f"memory of the service: {empty:.0f} MiB empty, {full:.0f} MiB with them, "
        f"{(full - empty) * 1024 / consumers:.0f} KiB each"
    )
    for member in members:
        member.latencies.clear()
    async with Operator(target) as operator:
        for number in range(rounds):
            gone = members[number % consumers]
            await operator.drain(gone.client.name)
            await tasks.pop(gone)
            fresh = Member(target, gone.client.name)
            members[number % consumers] = fresh
            tasks[fresh] = asyncio.create_task(fresh.client.run(fresh))
            await until_owned(members, partitions)
    latencies = 1000 * np.array([one for member in members for one in member.latencies])
    print(
        f"{rounds} drains and joins: {len(latencies)} handoffs, from acknowledgement to assignment "
        f"p50 {np.percentile(latencies, 50):.1f} ms, p99 {np.percentile(latencies, 99):.1f} ms, "
        f"most {latencies.max():.1f} ms"
    )
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--consumers", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--debounce-s", default="2", help="seconds in which joins are gathered")
    said = parser.parse_args(arguments)
    with (
        TemporaryDirectory() as folder,
        instances(
            Path(folder),
            "--topic",
            f"orders={said.partitions}",
            "--debounce-s",
            said.debounce_s,
            "--consumer-ttl-s",
            "60",
        ) as (service,),
    ):
        asyncio.run(measure(service, said.consumers, said.partitions, said.rounds))


if __name__ == "__main__":
    main()
