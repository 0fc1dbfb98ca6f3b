"""Measure rebalances of groups, in both protocols, on our broker and on Apache Kafka 4.3.1, in one run.

    python -m benchmarks.rebalance [--members 10 100 1000] [--only ours|kafka] [--crowd] [--records]

Members are raw requests on one event loop, with a heartbeat a second and two partitions each. Printed for
each size: the time until the group settles after a mass join, a join, a leave (with LeaveGroup) and a death
(beyond its session of 10 s); partitions with two owners at any instant; heartbeats' median and 99th
percentile. ``--crowd`` runs 1,000 members and 1,000 sockets that send a byte every few seconds;
``--records`` reads with librdkafka while a member joins.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.group_members import TOPIC, Connection, Ledger, Member, NewMember, OldMember, span
from faust_assigner.testing.broker import BrokerProcess
from faust_assigner.testing.kafka import kafka_server

SESSION_MS: Final = 10_000
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
}
PROTOCOLS: Final = {"classic": OldMember, "consumer": NewMember}
PATIENCE_S: Final = 300.0
CROWD: Final = 1_000
PRODUCED_A_SECOND: Final = 5_000  # at most


@contextlib.contextmanager
def broker(which: str) -> Iterator[tuple[str, int]]:
    """Start a broker; yield its address and process id."""
    if which == "kafka":
        with kafka_server(SETTINGS) as server:
            yield server.bootstrap, server.process.pid
        return
    with tempfile.TemporaryDirectory(prefix="faust-assigner-bench-") as folder:
        process = BrokerProcess(
            Path(folder), *(f"{name}={value}" for name, value in SETTINGS.items())
        )
        try:
            yield process.bootstrap, process.process.pid
        finally:
            process.kill()


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def make_topic(bootstrap: str, partitions: int) -> uuid.UUID:
    """Create a new topic for the members, after the coordinator answers."""
    connection = Connection()
    await connection.open(bootstrap)
    while (
        await connection.call(12, 4, group_id="probe", generation_id=1, member_id="m")
    ).error_code in (14, 15, 16):
        await connection.call(10, 3, key="probe")
        await asyncio.sleep(0.2)
    await connection.call(20, 6, topics=[{"name": TOPIC, "topic_id": None}], timeout=span(30_000))
    await asyncio.sleep(0.5)
    wanted = {"name": TOPIC, "num_partitions": partitions, "replication_factor": 1}
    answer = await connection.call(19, 7, topics=[wanted], timeout=span(30_000))
    assert answer.topics[0].error_code == 0, answer
    await asyncio.sleep(1)
    connection.close()
    return answer.topics[0].topic_id


class Stage:
    """A group of raw members."""

    def __init__(self, bootstrap: str, protocol: str, members: int, topic_id: uuid.UUID) -> None:
        self.kind = PROTOCOLS[protocol]
        self.bootstrap, self.group = bootstrap, f"bench-{uuid.uuid4().hex[:8]}"
        self.ledger = Ledger(2 * members)
        self.topic_id = topic_id
        self.members: list[Member] = []

    def join(self, count: int) -> None:
        """Add ``count`` members."""
        for _ in range(count):
            member = self.kind(self.bootstrap, self.group, self.ledger)
            if isinstance(member, NewMember):
                member.topic_id = self.topic_id
            member.start()
            self.members.append(member)

    async def settled(self, since: float) -> float:
        """Return the seconds from ``since`` to the last change of a settled group."""
        calm = 0
        while calm < 5:
            if time.monotonic() - since > PATIENCE_S:
                return float("inf")
            await asyncio.sleep(0.1)
            calm = calm + 1 if self.ledger.is_even(len(self.members)) else 0
        return max(self.ledger.changed - since, 0.0)

    async def close(self) -> None:
        """Close all connections."""
        for member in self.members:
            assert member.task is not None
            member.task.cancel()
        await asyncio.gather(
            *(m.task for m in self.members if m.task is not None), return_exceptions=True
        )


async def story(bootstrap: str, protocol: str, members: int) -> str:
    """Run a mass join, a join, a leave and a death; return a row of the table."""
    stage = Stage(bootstrap, protocol, members, await make_topic(bootstrap, 2 * members))
    times = []
    began = time.monotonic()
    stage.join(members)
    times.append(await stage.settled(began))
    began = time.monotonic()
    stage.join(1)
    times.append(await stage.settled(began))
    began = time.monotonic()
    await stage.members.pop(0).die(politely=True)
    times.append(await stage.settled(began))
    began = time.monotonic()
    await stage.members.pop(0).die(politely=False)
    times.append(max(await stage.settled(began) - SESSION_MS / 1000, 0.0))
    await stage.close()
    row = " ".join(f"{seconds:8.2f}" for seconds in times)
    return f"{row} {stage.ledger.doubles:6} {beats(stage.ledger)}"


def beats(ledger: Ledger) -> str:
    """Format median and 99th percentile in ms."""
    if len(ledger.beats) < 100:
        return f"{1000 * statistics.median(ledger.beats):8.1f} {1000 * max(ledger.beats):8.1f}"
    cuts = statistics.quantiles(ledger.beats, n=100)
    return f"{1000 * statistics.median(ledger.beats):8.1f} {1000 * cuts[98]:8.1f}"


async def crowd(bootstrap: str, pid: int, protocol: str, seconds: float = 20.0) -> str:
    """Run 1,000 members and 1,000 slow sockets at once; report heartbeats and the broker's memory."""
    topic_id = await make_topic(bootstrap, 2 * CROWD)
    before = memory_mb(pid)
    stage = Stage(bootstrap, protocol, CROWD, topic_id)
    began = time.monotonic()
    stage.join(CROWD)
    joined = await stage.settled(began)
    slow = [asyncio.create_task(_slow_socket(bootstrap)) for _ in range(CROWD)]
    stage.ledger.beats.clear()
    await asyncio.sleep(seconds)
    row = f"joined in {joined:.1f} s; heartbeat ms (p50, p99) {beats(stage.ledger)}; "
    row += f"memory {before:.0f} -> {memory_mb(pid):.0f} MB; {stage.ledger.doubles} held twice"
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    await stage.close()
    return row


async def _slow_socket(bootstrap: str) -> None:
    host, port = bootstrap.rsplit(":", 1)
    _, writer = await asyncio.open_connection(host, int(port))
    try:
        for byte in (b"\0", b"\0", b"\1", b"\0"):  # the size of a frame whose body never arrives
            writer.write(byte)
            await asyncio.sleep(4)
        await asyncio.sleep(60)
    finally:
        writer.close()


def records(bootstrap: str, protocol: str) -> str:
    """Report records a second of ten librdkafka members before, during and after a join."""
    from tests.support.coordination.librdkafka_members import Cluster, until
    from tests.support.coordination.librdkafka_members import Ledger as Owners
    from tests.support.coordination.librdkafka_members import Member as Reader

    config = {"group.protocol": protocol, "fetch.wait.max.ms": 50}
    if protocol == "classic":
        config |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1000}
        config["partition.assignment.strategy"] = "range"
    cluster, owners, group = Cluster(bootstrap), Owners(), f"bench-{uuid.uuid4().hex[:8]}"
    topic = f"records-{uuid.uuid4().hex[:8]}"
    cluster.create(topic, 20)
    over = threading.Event()
    producing = threading.Thread(target=_produce, args=(bootstrap, topic, over))
    producing.start()
    with contextlib.ExitStack() as stack:
        stack.callback(over.set)

        def start(name: str) -> Reader:
            return stack.enter_context(Reader(bootstrap, group, [topic], owners, name, **config))

        readers = [start(f"r{n}") for n in range(10)]
        until(lambda: len(owners.owner) == 20, "all partitions")

        def rate(seconds: float) -> float:
            count, began = sum(len(r.seen) for r in readers), time.monotonic()
            time.sleep(seconds)
            return (sum(len(r.seen) for r in readers) - count) / (time.monotonic() - began)

        time.sleep(2)
        before = rate(3.0)
        readers.append(start("new"))
        began = time.monotonic()
        during = rate(2.0)
        until(
            lambda: len(readers[-1].owned) > 0 and len(owners.owner) == 20, "the newcomer's share"
        )
        took = time.monotonic() - began
        after = rate(3.0)
    producing.join()
    cluster.close()
    row = f"{before:9.0f} {during:9.0f} {after:9.0f}"
    return f"{row}   (settled in {took:.1f} s, {len(owners.doubles)} held twice)"


def _produce(bootstrap: str, topic: str, over: threading.Event) -> None:
    """Produce at a steady rate, equal for both brokers."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    while not over.is_set():
        for number in range(PRODUCED_A_SECOND // 100):
            producer.produce(topic, b"x" * 100, partition=number % 20)
        producer.poll(0)
        time.sleep(0.01)
    producer.flush(30)


def main() -> None:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--members", type=int, nargs="*", default=[10, 100, 1_000])
    parser.add_argument("--only", choices=("ours", "kafka"))
    parser.add_argument("--crowd", action="store_true", help="1,000 members and 1,000 slow sockets")
    parser.add_argument("--records", action="store_true", help="records a second while one joins")
    options = parser.parse_args()
    print(
        "seconds until settled      mass      one      one      one   held     heartbeat ms",
        flush=True,
    )
    print(
        "                           join    joins   leaves     dies  twice      p50      p99",
        flush=True,
    )
    for which in ("ours", "kafka"):
        if options.only not in (None, which):
            continue
        with broker(which) as (bootstrap, pid):
            for protocol in PROTOCOLS:
                for members in options.members:
                    row = asyncio.run(story(bootstrap, protocol, members))
                    print(f"{which:6} {protocol:9} {members:5} {row}", flush=True)
                if options.records:
                    row = records(bootstrap, protocol)
                    print(
                        f"{which:6} {protocol:9} records/s before, during, after: {row}", flush=True
                    )
                if options.crowd:
                    print(
                        f"{which:6} {protocol:9} crowd: {asyncio.run(crowd(bootstrap, pid, protocol))}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
