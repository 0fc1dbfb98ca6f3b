"""A client of the assigner service for the conformance test; prints each write with its time.

python -m faust_assigner.service.conformance -- python -m examples.conformance.client
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from faust_assigner.service.client import (
    AbortWarm,
    Assigned,
    AssignerClient,
    Lost,
    Release,
    Standbys,
    TopicPartition,
    Warm,
)
from faust_assigner.service.errors import Expelled, Replaced

EVERY_S = 0.05


class Worker:
    """Write to each owned partition while the client allows it."""

    def __init__(self, client: AssignerClient) -> None:
        self._client = client
        self.epochs: dict[TopicPartition, int] = {}

    async def work(self) -> None:
        """Write forever."""
        while True:
            for partition, epoch in self.epochs.items():
                if self._client.may_work(partition):
                    self.write(partition, epoch)
            await asyncio.sleep(EVERY_S)

    def write(self, partition: TopicPartition, epoch: int) -> None:
        """Print a line for the write."""
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        print("WORK", partition.topic, partition.partition, epoch, f"{now:.6f}", flush=True)

    async def assigned(self, command: Assigned) -> None:
        """Write to the owned partitions only."""
        self.epochs = {partition: grant.epoch for partition, grant in command.owned.items()}

    async def warm(self, command: Warm) -> None:
        """Do nothing: this client loads no state."""

    async def release(self, command: Release) -> int | None:
        """Stop writing to the partition; return its offset."""
        self.epochs.pop(command.partition, None)
        return 1

    async def abort(self, command: AbortWarm) -> None:
        """Do nothing: this client has no loaded state."""

    async def standbys(self, command: Standbys) -> None:
        """Ignore the command: this client has no standbys."""

    async def lost(self, command: Lost) -> None:
        """Stop all writes at once."""
        self.epochs.clear()


async def main() -> None:
    """Run until the service ends this client."""
    target, name = os.environ["ASSIGNER_TARGET"], os.environ["ASSIGNER_NAME"]
    async with AssignerClient(target, name, topics=[os.environ["ASSIGNER_TOPIC"]]) as client:
        worker = Worker(client)
        working = asyncio.create_task(worker.work())
        try:
            await client.run(worker)
        except (Expelled, Replaced) as error:
            print(error, file=sys.stderr)
        finally:
            working.cancel()


if __name__ == "__main__":
    asyncio.run(main())
