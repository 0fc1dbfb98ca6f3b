"""End an instance of three of the service; measure lost sessions and the time until all is owned again.

    python -m benchmarks.service_scale [--sizes 1000x100,20000x300,100000x1000] [--end TERM|KILL]
        [--processes 4] [--rest 20] [--planning 1000000]

Runs an etcd, three instances, and consumers in several processes. A size is PARTITIONSxCONSUMERS. Times
depend on other load of the machine; seconds of processor time (CPU-s) do not. A probe asks the two remaining
instances for an unknown session twenty times a second. The CPU-s of the event loop's thread during a probe's
wait bound the loop's longest turn (service_turns.py measures the turns themselves). ``--planning`` makes
a plan of this many partitions in this process, without etcd.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import multiprocessing
import os
import re
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc.aio

from benchmarks.workers.consumers import Notes, consume
from benchmarks.workers.turns import LONG_S
from faust_assigner.service import values as codec
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.leading import moves
from faust_assigner.service.leading.targets import choose
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub
from faust_assigner.service.records import Assigned, Consumer, TopicConfig
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.instances import Instance, instances
from tests.support.etcd import etcd_server

TOPICS = 10
TTL_S = 30
PROBES_A_SECOND = 20
#: The service's command, extended to print the long turns of its event loop.
TIMED = "benchmarks.workers.turns"
#: Seconds for a process of consumers to end.
END_S = 20.0
#: Seconds to wait for all partitions to be owned: at the start, and after the end of an instance.
PATIENCE_S = 280.0


def cpu_s(process_id: int, *, of: str = "stat") -> float:
    """Return the processor seconds so far of a process, or ``of`` a thread of it."""
    fields = Path(f"/proc/{process_id}/{of}").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def probe(instance: Instance, waits: list[float]) -> None:
    """Ask for an unknown session repeatedly; record the instance's CPU-s during each wait."""
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


async def until_owned(notes: Notes, partitions: int, streams: int) -> tuple[float, int]:
    """Wait for all partitions' owners and ``streams`` registrations; return seconds and fewest owned."""
    began, fewest = time.monotonic(), partitions
    while time.monotonic() - began < PATIENCE_S:
        owned = sum(notes.owned)
        fewest = min(fewest, owned)
        if owned == partitions and sum(notes.streams) >= streams and all(notes.owned):
            break
        await asyncio.sleep(0.25)
    return time.monotonic() - began, fewest


def terms(running: Sequence[Instance]) -> int:
    """Count the leaders' terms that have begun."""
    return sum(len(re.findall(r"leads since revision", instance.said)) for instance in running)


async def until_stable(left: Sequence[Instance], terms_before: int) -> None:
    """Wait for the next leader, and then for the lease time of a leader that cannot renew."""
    deadline = time.monotonic() + PATIENCE_S
    while terms(left) == terms_before and time.monotonic() < deadline:
        await asyncio.sleep(0.25)
    await asyncio.sleep(ServiceSettings().leader_ttl_s)


def longest_turns(running: Sequence[Instance], since: Sequence[int]) -> str:
    """Format each event loop's longest turn after a position in the instance's output."""
    found = [
        max(map(int, re.findall(r"turn of (\d+) ms", one.said[begin:])), default=0)
        for one, begin in zip(running, since, strict=True)
    ]
    return ", ".join(str(turn) if turn else f"below {1000 * LONG_S:.0f}" for turn in found)


async def measure(
    running: Sequence[Instance], notes: Notes, partitions: int, end: int, rest_s: float
) -> None:
    """Wait until all is owned, end the leader, wait again, and print."""
    consumers = len(notes.owned)
    took, _ = await until_owned(notes, partitions, consumers)
    print(
        f"{partitions} partitions, {consumers} consumers, 3 instances: all owned after {took:.0f} s, "
        f"{min(notes.owned)} to {max(notes.owned)} each, "
        f"CPU-s {', '.join(f'{cpu_s(i.process.pid):.0f}' for i in running)}; load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    await asyncio.sleep(5)
    idle = [cpu_s(instance.process.pid) for instance in running]
    await asyncio.sleep(rest_s)
    used = [cpu_s(i.process.pid) - since for i, since in zip(running, idle, strict=True)]
    print(
        f"  at rest: {', '.join(f'{100 * one / rest_s:.0f} %' for one in used)} of a processor",
        flush=True,
    )
    leader = max(running, key=lambda instance: terms([instance]))
    left = [instance for instance in running if instance is not leader]
    waits: list[float] = []
    probes = [asyncio.create_task(probe(instance, waits)) for instance in left]
    await asyncio.sleep(1)
    lost, streams, began = sum(notes.lost), sum(notes.streams), terms(left)
    before = [cpu_s(instance.process.pid) for instance in left]
    said = [len(instance.said) for instance in left]
    theirs = list(notes.at).count(running.index(leader))
    leader.send(end)
    took, fewest = await until_owned(notes, partitions, streams + theirs)
    again, _ = await until_owned(notes, partitions, streams + theirs)
    owned = sum(notes.owned)
    await until_stable(left, began)
    print(
        f"  {signal.Signals(end).name} of the leader, where {theirs} consumers were: "
        f"{owned} of {partitions} owned and all registered after {took + again:.0f} s, "
        f"fewest owned meanwhile {fewest}; "
        f"sessions lost {sum(notes.lost) - lost}; "
        f"registrations {sum(notes.streams) - streams}; "
        f"terms of a leader begun {terms(left) - began}; load {os.getloadavg()[0]:.0f}"
    )
    used = [cpu_s(i.process.pid) - since for i, since in zip(left, before, strict=True)]
    print(
        f"  CPU-s of the two meanwhile {used[0]:.1f}, {used[1]:.1f}; of one while a probe waited: "
        f"most {1000 * max(waits):.0f} ms of {len(waits)}; longest turns of their loops "
        f"{longest_turns(left, said)} ms",
        flush=True,
    )
    for task in probes:
        task.cancel()
    await asyncio.gather(*probes, return_exceptions=True)


@contextlib.contextmanager
def consuming(targets: Sequence[str], consumers: int, processes: int) -> Iterator[Notes]:
    """Run the consumers in several processes; end them after the block."""
    spawn = multiprocessing.get_context("spawn")
    notes = Notes.of(spawn, consumers)
    running = [
        spawn.Process(target=consume, args=(targets, range(first, consumers, processes), notes))
        for first in range(min(processes, consumers))
    ]
    for one in running:
        one.start()
    try:
        yield notes
    finally:
        notes.is_over.set()
        for one in running:
            one.join(END_S)
            if one.exitcode is None:
                one.kill()


def run(partitions: int, consumers: int, end: int, processes: int, rest_s: float) -> None:
    """Measure a size with its own etcd."""
    flags = [f for t in range(TOPICS) for f in ("--topic", f"topic-{t}={partitions // TOPICS}")]
    flags += ["--consumer-ttl-s", str(TTL_S)]
    with (
        TemporaryDirectory() as folder,
        etcd_server(options=("--quota-backend-bytes", str(4 << 30), "--unsafe-no-fsync")) as etcd,
        instances(Path(folder), *flags, "--etcd", etcd.endpoint, count=3, module=TIMED) as running,
        consuming([instance.target for instance in running], consumers, processes) as notes,
    ):
        asyncio.run(measure(running, notes, partitions, end, rest_s))


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
        yield (
            keys.assignment(at),
            codec.dump_assigned(Assigned(at, f"c{number // TOPICS % consumers:05}")),
        )


def planning(partitions: int, consumers: int) -> None:
    """Time an instance's computations for a group at rest."""
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
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default="1000x100,20000x300,100000x1000")
    parser.add_argument("--end", default="TERM", choices=("TERM", "KILL"))
    parser.add_argument("--processes", type=int, default=4, help="that hold the consumers")
    parser.add_argument("--rest", type=float, default=20.0, help="seconds of the group at rest")
    parser.add_argument("--planning", type=int, default=1_000_000, help="0: none")
    said = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    for size in filter(None, said.sizes.split(",")):
        partitions, consumers = map(int, size.split("x"))
        run(partitions, consumers, signal.Signals[f"SIG{said.end}"], said.processes, said.rest)
    if said.planning:
        planning(said.planning, 1_000)


if __name__ == "__main__":
    main()
