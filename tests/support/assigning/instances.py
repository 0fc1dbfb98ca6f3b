"""Instances of the assigner service as processes, and consumers that record their commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from faust_assigner.service.client import (
    AbortWarm,
    Access,
    Assigned,
    AssignerClient,
    Lost,
    Registration,
    Release,
    Retry,
    Standbys,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client.operator import Operator
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0
#: Short times to live, because tests wait for them.
QUICK = (
    *(
        "--consumer-ttl-s",
        "3",
        "--leader-ttl-s",
        "3",
        "--election-retry-s",
        "0.3",
        "--debounce-s",
        "0.2",
    ),
    *("--rebalance-delay-s", "0"),
)


class Instance:
    """A ``faust-assigner serve`` on a free port of loopback."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        bind: str = "127.0.0.1:0",
        environment: Mapping[str, str] | None = None,
        module: str = "faust_assigner.cli",
    ) -> None:
        self.log = folder / f"instance-{time.monotonic_ns()}.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, "serve", "--bind", bind, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                # If the system shares out processors by sessions, an instance has its own share.
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "PYTHONUNBUFFERED": "1",
                    **(environment or {}),
                },
            )

    @property
    def said(self) -> str:
        """The output so far."""
        return self.log.read_text(errors="replace")

    def wait(self, pattern: str = r"listening on (\S+)") -> str:
        """Wait until the pattern matches in the output; return its first group."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.said):
                return found[1]
            assert self.process.poll() is None, self.said[-4000:]
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in\n{self.said[-4000:]}")

    @property
    def target(self) -> str:
        """The address for consumers."""
        return self.wait()

    def send(self, number: int) -> None:
        """Send the process a signal."""
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@contextlib.contextmanager
def instances(
    folder: Path, *arguments: str, count: int = 1, module: str = "faust_assigner.cli"
) -> Iterator[list[Instance]]:
    """Start ``count`` instances and wait until they are ready; end them after the block."""
    running = [Instance(folder, *arguments, module=module) for _ in range(count)]
    try:
        for one in running:
            one.wait()
        yield running
    finally:
        for one in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.stop(signal.SIGTERM)


class Sink:
    """The target of all writes; it keeps each partition's highest epoch and refuses lower ones.

    ``refused`` counts refused writes: their writers worked while the next owner did, which never
    happens in strict mode. ``violations`` are two writers under one epoch.
    """

    def __init__(self) -> None:
        self.epochs: dict[TopicPartition, int] = {}
        self.writer: dict[TopicPartition, str] = {}
        self.refused = 0
        self.taken = 0
        self.violations: list[str] = []

    def write(self, name: str, partition: TopicPartition, epoch: int) -> bool:
        """Write a record of a consumer; return whether the sink accepts it."""
        if epoch < self.epochs.get(partition, 0):
            self.refused += 1
            return False
        if epoch == self.epochs.get(partition) and self.writer[partition] != name:
            self.violations.append(
                f"{partition}: {name} and {self.writer[partition]} under epoch {epoch}"
            )
        self.epochs[partition], self.writer[partition] = epoch, name
        self.taken += 1
        return True


class Consumer:
    """A consumer with its client; ``warm_s``: seconds of a warm-up, ``fails``: cold partitions."""

    def __init__(
        self,
        targets: str | Sequence[str],
        name: str,
        *,
        topics: Sequence[str] = (),
        warm_s: float = 0.0,
        fails: frozenset[TopicPartition] = frozenset(),
        registration: Registration | None = None,
        access: Access | None = None,
        release_s: float = 0.0,
        kind: type[AssignerClient] = AssignerClient,
    ) -> None:
        self.client = kind(
            targets,
            name,
            topics=topics,
            registration=registration,
            access=access,
            retry=Retry(first_s=0.05, most_s=0.5, answer_s=2.0),
        )
        self.name = name
        self.warm_s = warm_s
        self.release_s = release_s
        self.fails = fails
        self.working: dict[TopicPartition, int] = {}  # partition -> epoch
        self.warmed: list[TopicPartition] = []
        self.told: list[object] = []
        self.task: asyncio.Task[None] | None = None

    def start(self) -> Consumer:
        """Start the client in a task."""
        self.task = asyncio.create_task(self.client.run(self), name=f"consumer-{self.name}")
        return self

    async def stop(self) -> None:
        """End without a message: the registration remains until its time to live is over."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.working = {}

    async def leave(self) -> None:
        """Hand all partitions over and end."""
        await self.client.leave()
        assert self.task is not None
        await asyncio.wait_for(self.task, PATIENCE_S)

    async def assigned(self, command: Assigned) -> None:
        """Work on the owned partitions."""
        self.told.append(command)
        for partition in command.removed:
            self.working.pop(partition, None)
        self.working |= {grant.partition: grant.epoch for grant in command.added}

    async def warm(self, command: Warm) -> None:
        """Record the command; fail or warm up for ``warm_s``."""
        self.told.append(command)
        if command.partition in self.fails:
            raise OSError("its state cannot be read")
        await asyncio.sleep(self.warm_s)
        self.warmed.append(command.partition)

    async def release(self, command: Release) -> int | None:
        """Record the command; release the partition after ``release_s``."""
        self.told.append(command)
        await asyncio.sleep(self.release_s)
        self.working.pop(command.partition, None)
        return 1000 + command.partition.partition

    async def abort(self, command: AbortWarm) -> None:
        """Record the command."""
        self.told.append(command)

    async def standbys(self, command: Standbys) -> None:
        """Record the command."""
        self.told.append(command)

    async def lost(self, command: Lost) -> None:
        """Stop work on the lost partitions."""
        self.told.append(command)
        for partition in command.partitions:
            self.working.pop(partition, None)

    def write(self, sink: Sink) -> None:
        """Write a record for each partition that the consumer may work on."""
        for partition, epoch in list(self.working.items()):
            if self.client.may_work(partition):
                sink.write(self.name, partition, epoch)


@contextlib.asynccontextmanager
async def consumers(*names_or_consumers: Consumer) -> AsyncIterator[tuple[Consumer, ...]]:
    """Run the consumers during the block."""
    others = asyncio.all_tasks()
    for one in names_or_consumers:
        one.start()
    try:
        yield names_or_consumers
    finally:
        await asyncio.gather(*(one.stop() for one in names_or_consumers))
        await calls_ended(others)


async def calls_ended(others: Collection[object] = ()) -> None:
    """Wait for cancelled calls, which end later in gRPC's tasks; ignore a server's own waiting.

    ``others`` are tasks that may go on.
    """
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(
            "_cython" in repr(task) and "coro=<AioServer." not in repr(task)
            for task in asyncio.all_tasks().difference(others)
        ):
            return
        await asyncio.sleep(0.01)


def counts(members: Sequence[Consumer]) -> list[int]:
    """Return how many partitions each consumer works on, descending."""
    return sorted((len(one.working) for one in members), reverse=True)


def twice(members: Sequence[Consumer]) -> list[TopicPartition]:
    """Return the partitions that several consumers work on."""
    owners = Counter(partition for one in members for partition in one.working)
    return [partition for partition, count in owners.items() if count > 1]


async def until(fact: Callable[[], bool], what: str = "", *, seconds: float = PATIENCE_S) -> float:
    """Wait until ``fact()`` is true; return the seconds."""
    began = time.monotonic()
    while not fact():
        assert time.monotonic() - began < seconds, what or "it did not come true"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def settled(
    members: Sequence[Consumer], loads: Sequence[int], *, seconds: float = PATIENCE_S
) -> float:
    """Wait until the members have these loads and no partition has two; return the seconds."""
    wanted = sorted(loads, reverse=True)

    def fits() -> bool:
        for one in members:
            if one.task is not None and one.task.done():
                one.task.result()
        return counts(members) == wanted and not twice(members)

    began = time.monotonic()
    while not fits():
        assert time.monotonic() - began < seconds, (
            f"{counts(members)}, not {wanted}; twice: {twice(members)}"
        )
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def state(target: str, access: Access | None = None) -> pb.State:
    """Return the service's state."""
    async with Operator(target, access) as operator:
        return await operator.state()


async def until_state(
    target: str, fact: Callable[[pb.State], bool], *, seconds: float = PATIENCE_S
) -> pb.State:
    """Wait until ``fact`` is true of the service's state; return the state."""
    deadline = time.monotonic() + seconds
    while not fact(said := await state(target)):
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.05)
    return said
