"""One of three instances of the assigner service ends: who loses its session, and when all is owned again.

    python -m benchmarks.service_scale [--sizes 1000x100,20000x300,100000x1000] [--end TERM|KILL]
        [--planning 1000000]

An etcd, three instances, and all consumers in this process. A size is PARTITIONSxCONSUMERS. Times count what
else the machine does; seconds of processor time (CPU-s) do not. A probe asks the two instances that stay for
an unknown session twenty times a second: the CPU-s that the thread of one's event loop used while a probe
waited bound how long its loop did nothing else (service_turns.py measures that itself). ``--planning`` makes
one plan of so many partitions in this process, without etcd.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import re
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc.aio

from faust_assigner.service import keys as codec
from faust_assigner.service.client import (
    AssignerClient,
    Lost,
    Release,
    Warm,
)
from faust_assigner.service.client.channel import seconds
from faust_assigner.service.errors import ServiceRefused
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.leading import moves
from faust_assigner.service.leading.targets import choose
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub
from faust_assigner.service.records import Assigned, Consumer, TopicConfig
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from faust_assigner.testing.etcd import etcd_server
from tests.support.assigning.instances import Instance, instances

TOPICS = 10
TTL_S = 30
PROBES_A_SECOND = 20
#: Seconds to wait for all partitions to be owned: at the start, and after the end of an instance.
PATIENCE_S = 280.0


class Member:
    """A consumer that acknowledges at once and counts how often it lost its session."""

    def __init__(self, targets: Sequence[str], name: str) -> None:
        self.client = AssignerClient(targets, name)
        self.lost = 0
        self.task = asyncio.create_task(self._obey(), name=name)

    async def _obey(self) -> None:
        async for command in self.client.commands():
            with contextlib.suppress(ServiceRefused):
                if isinstance(command, Lost):
                    self.lost += 1
                elif isinstance(command, Warm):
                    await self.client.ready(command)
                elif isinstance(command, Release):
                    await self.client.released(command)

    def owned(self) -> int:
        """How many partitions it may work on now."""
        holdings = self.client.holdings
        return len(holdings.owned) if seconds() < holdings.until else 0


def cpu_s(process_id: int, *, of: str = "stat") -> float:
    """Processor seconds of a process so far, or ``of`` one of its threads."""
    fields = Path(f"/proc/{process_id}/{of}").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def probe(instance: Instance, waits: list[float]) -> None:
    """Ask for an unknown session for ever; CPU-s of the instance while each answer was waited for."""
    process_id = instance.process.pid
    thread = f"task/{process_id}/stat"
    async with grpc.aio.insecure_channel(instance.target) as channel:
        stub = KafkaAssignerStub(channel)
        while True:
            before = cpu_s(process_id, of=thread)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await stub.Heartbeat(pb.HeartbeatRequest(consumer_name="probe", session_id="-"))
                waits.append(cpu_s(process_id, of=thread) - before)
            await asyncio.sleep(1 / PROBES_A_SECOND)


async def until_owned(
    members: Sequence[Member], partitions: int, streams: int
) -> tuple[float, int]:
    """Wait until all is owned and ``streams`` registrations were made; seconds, the fewest owned."""
    began, fewest = time.monotonic(), partitions
    while time.monotonic() - began < PATIENCE_S:
        owned = sum(member.owned() for member in members)
        fewest = min(fewest, owned)
        registered = sum(member.client.streams for member in members)
        if owned == partitions and registered >= streams and all(m.owned() for m in members):
            break
        await asyncio.sleep(0.25)
    return time.monotonic() - began, fewest


def terms(running: Sequence[Instance]) -> int:
    """How many terms of a leader have begun."""
    return sum(len(re.findall(r"leads since revision", instance.said)) for instance in running)


async def measure(running: Sequence[Instance], partitions: int, consumers: int, end: int) -> None:
    """Register all, end the leader, and print."""
    targets = [instance.target for instance in running]
    members = [
        Member([*targets[number % 3 :], *targets[: number % 3]], f"c{number:05}")
        for number in range(consumers)
    ]
    took, _ = await until_owned(members, partitions, consumers)
    loads = sorted(member.owned() for member in members)
    print(
        f"{partitions} partitions, {consumers} consumers, 3 instances: all owned after {took:.0f} s, "
        f"{loads[0]} to {loads[-1]} each, "
        f"CPU-s {', '.join(f'{cpu_s(i.process.pid):.0f}' for i in running)}",
        flush=True,
    )
    await asyncio.sleep(5)
    idle = [cpu_s(instance.process.pid) for instance in running]
    await asyncio.sleep(20)
    used = [cpu_s(i.process.pid) - since for i, since in zip(running, idle, strict=True)]
    print(
        f"  at rest: {', '.join(f'{100 * one / 20:.0f} %' for one in used)} of a processor",
        flush=True,
    )
    leader = max(running, key=lambda instance: terms([instance]))
    left = [instance for instance in running if instance is not leader]
    waits: list[float] = []
    probes = [asyncio.create_task(probe(instance, waits)) for instance in left]
    await asyncio.sleep(1)
    lost, streams, began = (
        sum(member.lost for member in members),
        sum(member.client.streams for member in members),
        terms(left),
    )
    before = [cpu_s(instance.process.pid) for instance in left]
    theirs = sum(
        member.client.targets[(member.client._turn - 1) % 3] == leader.target for member in members
    )
    leader.send(end)
    took, fewest = await until_owned(members, partitions, streams + theirs)
    again, _ = await until_owned(members, partitions, streams + theirs)
    print(
        f"  {signal.Signals(end).name} of the leader, where {theirs} consumers were: all owned again after "
        f"{took + again:.0f} s, fewest owned meanwhile {fewest}; "
        f"sessions lost {sum(member.lost for member in members) - lost}; "
        f"registrations {sum(member.client.streams for member in members) - streams}; "
        f"terms of a leader begun {terms(left) - began}",
    )
    used = [cpu_s(i.process.pid) - since for i, since in zip(left, before, strict=True)]
    print(
        f"  CPU-s of the two meanwhile {used[0]:.1f}, {used[1]:.1f}; of one while a probe waited: "
        f"most {max(waits):.2f} of {len(waits)}",
        flush=True,
    )
    for task in (*probes, *(member.task for member in members)):
        task.cancel()
    await asyncio.gather(*probes, *(member.task for member in members), return_exceptions=True)


def run(partitions: int, consumers: int, end: int) -> None:
    """One size, on an etcd of its own."""
    flags = [f for t in range(TOPICS) for f in ("--topic", f"topic-{t}={partitions // TOPICS}")]
    with (
        TemporaryDirectory() as folder,
        etcd_server(options=("--quota-backend-bytes", str(4 << 30), "--unsafe-no-fsync")) as etcd,
        instances(
            Path(folder), *flags, "--consumer-ttl", str(TTL_S), "--etcd", etcd.endpoint, count=3
        ) as running,
    ):
        asyncio.run(measure(running, partitions, consumers, end))


def _group(partitions: int, consumers: int) -> Iterator[tuple[str, bytes]]:
    keys = Keys("/kafka-assigner/")
    for topic in range(TOPICS):
        name = f"topic-{topic}"
        yield keys.topic(name), codec.dump_topic(TopicConfig(name, partitions // TOPICS))
    for number in range(consumers):
        name = f"c{number:05}"
        yield keys.consumer(name), codec.dump_consumer(Consumer(name=name, session="s"))
    for number in range(partitions):
        at = TopicPartition(f"topic-{number % TOPICS}", number // TOPICS)
        yield keys.assignment(at), codec.dump_assigned(Assigned(at, f"c{number % consumers:05}"))


def planning(partitions: int, consumers: int) -> None:
    """What one instance computes for a group at rest."""
    view, steps = View(Keys("/kafka-assigner/")), list[tuple[str, float]]()
    events = [
        Event(key, revision, KeyValue(key, value, revision, revision))
        for revision, (key, value) in enumerate(_group(partitions, consumers), 1)
    ]

    def step(name: str, since: float) -> float:
        steps.append((name, time.process_time() - since))
        return time.process_time()

    now = time.process_time()
    for event in events:
        view.apply(event)
    now = step("read all", now)
    frozen = view.frozen()
    now = step("copy for a plan", now)
    targets = choose(frozen, frozen.ready(), replicas=0)
    now = step("plan", now)
    found = len(list(moves.rebalance(frozen, targets, ServiceSettings(), 0.0)))
    step("compare", now)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{partitions} partitions, {consumers} consumers, in one process without etcd: "
        f"{', '.join(f'{name} {took:.2f} CPU-s' for name, took in steps)}; {found} moves; "
        f"{resident:.0f} MiB",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default="1000x100,20000x300,100000x1000")
    parser.add_argument("--end", default="TERM", choices=("TERM", "KILL"))
    parser.add_argument("--planning", type=int, default=1_000_000, help="0: none")
    said = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    for size in filter(None, said.sizes.split(",")):
        partitions, consumers = map(int, size.split("x"))
        run(partitions, consumers, signal.Signals[f"SIG{said.end}"])
    if said.planning:
        planning(said.planning, 1_000)


if __name__ == "__main__":
    main()
