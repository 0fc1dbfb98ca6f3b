"""A process of a job that runs once: ``python -m examples.leased_job.job --name export-0``.

Start several processes: the service assigns the job to a single process. docs/how-to/from-leases.md explains
the example step by step.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from pathlib import Path

from examples.leased_job.sink import Sink
from faust_assigner.service.client import (
    AbortWarm,
    Access,
    Assigned,
    AssignerClient,
    Lost,
    Release,
    Standbys,
    Warm,
)
from faust_assigner.service.errors import ServiceRefused


class Job:
    """The work of the job's partition 0: a task that starts and ends with the ownership."""

    def __init__(self, client: AssignerClient, job: str, sink: Sink) -> None:
        self._client, self._at, self._sink = client, (job, 0), sink
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Future[bool] | None = None
        self._is_registered = False
        self.error: BaseException | None = None

    async def _work(self, epoch: int) -> None:
        while self._client.may_work(self._at):
            # Heartbeats use this loop: keep this call short. In stop(), a thread must run a long call.
            if not self._sink.write(self._at[0], epoch, self._client.name, time.time()):
                print("a later owner has written: stopped", flush=True)
                return
            await asyncio.sleep(0.1)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Leave if the work failed: heartbeats continue, so the service would not replace this owner."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = error
            print(f"the work failed: {error}", flush=True)
            self.leave()

    def leave(self) -> None:
        """Leave the group, which hands the job over; run() then returns."""
        self._leaving = asyncio.ensure_future(self._client.leave())

    async def stop(self) -> None:
        """Stop the work if it runs; finish the row that is being written."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
            print("stopped", flush=True)

    async def assigned(self, command: Assigned) -> None:
        """Start, stop or continue the work, like OnStartedLeading."""
        if not self._is_registered:
            self._is_registered = True
            print(f"registered as {self._client.name}", flush=True)
        grant = command.owned.get(self._at)
        if self._at in command.removed or self._at in {one.partition for one in command.added}:
            await self.stop()
        if grant is not None and self._task is None:
            print(f"working under epoch {grant.epoch}", flush=True)
            self._task = asyncio.create_task(self._work(grant.epoch))
            self._task.add_done_callback(self._ended)

    async def warm(self, command: Warm) -> None:
        """Load what the job needs, while the old owner still works."""

    async def release(self, command: Release) -> int | None:
        """Stop before the next owner starts or this process leaves, like OnStoppedLeading."""
        await self.stop()
        return None

    async def lost(self, command: Lost) -> None:
        """Stop at once: the registration has expired."""
        await self.stop()

    async def abort(self, command: AbortWarm) -> None:
        """Drop the loaded state."""

    async def standbys(self, command: Standbys) -> None:
        """Ignore the command: the job has no standbys."""


async def main(options: argparse.Namespace) -> int:
    """Run until SIGTERM; return 1 if the work or a file fails, or if the service refuses this process."""
    access = Access(ca=options.ca, token_file=options.token_file)
    sink = Sink(options.sink)
    targets = options.service.split(",")
    try:
        async with AssignerClient(
            targets, options.name, topics=[options.job], access=access
        ) as client:
            job = Job(client, options.job, sink)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, job.leave)
            try:
                await client.run(job)
            finally:
                await job.stop()
    except (OSError, ServiceRefused) as error:
        print(error, flush=True)
        return 1
    finally:
        sink.close()
    return 0 if job.error is None else 1


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="A job that one process of several does.")
    parser.add_argument(
        "--service", default="127.0.0.1:50051", help="HOST:PORT of each instance, with commas."
    )
    parser.add_argument("--name", required=True, help="This process's, as its pod's.")
    parser.add_argument("--job", default="export", help="The topic that stands for the job.")
    parser.add_argument("--sink", type=Path, default=Path("export.db"))
    parser.add_argument(
        "--ca", type=Path, help="The PEM file with the authority of the service's certificate."
    )
    parser.add_argument("--token-file", type=Path, help="The file with this process's token.")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(read_arguments())))
