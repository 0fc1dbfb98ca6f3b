"""Compare the embedded broker with Apache Kafka: records and transactions a second, groups, latencies.

    python -m benchmarks.broker [--records 200000] [--rounds 3] [--no-kafka]
    python -m benchmarks.broker --only-latencies --rounds 5

Rates: a librdkafka producer and a consumer (100-byte values, batched), without TLS and with TLS and SCRAM;
a transactional producer with one record and one offset in each transaction. Groups of aiokafka members with
a heartbeat of 0.3 s: from their common start until each owns its two partitions, and from a leave until all
partitions are owned again. Latencies of an uninvolved client, under load from separate processes: a record
of 100 bytes while four readers fetch the same MiB repeatedly, and ApiVersions while 1,000 members send
heartbeats without a pause. Each figure is the median of ``--rounds``. Our broker runs in its own process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import logging
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.broker_load import api_versions
from benchmarks.broker_peers import KAFKA_VERSION, Peer, embedded, kafka
from faust_assigner.broker import EmbeddedBroker
from tests.support.clients.raw_client import RawClient, batch, one_record

LOAD_S = 5.0
MEMBERS, READERS, LOADERS = 1_000, 4, 2
PARTITIONS = 12
VALUE = b"x" * 100


def create(bootstrap: str, partitions: int) -> str:
    """Create a topic with a new name."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
    time.sleep(0.5)
    return name


def produce(client: Mapping[str, str], topic: str, records: int) -> float:
    """Produce records; return the acknowledged records a second."""
    producer = Producer(
        {
            **client,
            "linger.ms": 5,
            "queue.buffering.max.messages": 10**6,
            "enable.idempotence": True,
        }
    )
    began = time.monotonic()
    for number in range(records):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return records / (time.monotonic() - began)


def consume(client: Mapping[str, str], topic: str, records: int) -> float:
    """Consume records; return the records a second from the first to the last."""
    consumer = Consumer({**client, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while not (read := len(consumer.consume(1, timeout=1.0))):
        pass
    began = time.monotonic()
    while read < records:
        # consume() waits for the requested number of records: a larger number would wait for the timeout.
        read += len(consumer.consume(min(10_000, records - read), timeout=1.0))
    took = time.monotonic() - began
    consumer.close()
    return records / took


def transact(client: Mapping[str, str], topic: str) -> tuple[float, float, float]:
    """Run transactions of one record and one offset for LOAD_S; return rate, p50 and p99 in ms."""
    producer = Producer({**client, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
    member = Consumer({**client, "group.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    place, numbers = TopicPartition(topic, 1), itertools.count(1)

    def one() -> None:
        producer.begin_transaction()
        producer.produce(topic, VALUE, partition=0)
        place.offset = next(numbers)
        group = member.consumer_group_metadata()
        producer.send_offsets_to_transaction([place], group, 30)
        producer.commit_transaction(30)

    began = time.monotonic()
    p50, p99 = quantiles(one)
    rate = (next(numbers) - 1) / (time.monotonic() - began)
    member.close()
    return rate, p50, p99


async def rebalance(bootstrap: str, members: int) -> tuple[float, float]:
    """Return the seconds until all members own partitions, and until recovery from a leave."""
    topic = await asyncio.to_thread(create, bootstrap, 2 * members)
    group = [
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            heartbeat_interval_ms=300,
            session_timeout_ms=10_000,
            enable_auto_commit=False,
        )
        for _ in range(members)
    ]
    began = time.monotonic()
    await asyncio.gather(*(member.start() for member in group))
    await until(lambda: all(len(m.assignment()) == 2 for m in group))
    joined = time.monotonic() - began
    began = time.monotonic()
    await group.pop().stop()
    await until(lambda: sum(len(m.assignment()) for m in group) == 2 * members)
    left = time.monotonic() - began
    await asyncio.gather(*(member.stop() for member in group))
    return joined, left


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, at most a minute."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.01)


@contextlib.contextmanager
def load(kind: str, bootstrap: str, *arguments: object) -> Iterator[None]:
    """Run processes of benchmarks.broker_load during the block."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.broker_load",
        kind,
        bootstrap,
        *map(str, arguments),
    ]
    loaders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(LOADERS)]
    for loader in loaders:
        assert loader.stdout is not None
        assert loader.stdout.readline() == "loaded\n"
    try:
        yield
    finally:
        for loader in loaders:
            loader.communicate()


def quantiles(ask: Callable[[], object], pause_s: float = 0.0) -> tuple[float, float]:
    """Return p50 and p99 in ms of ``ask()``, repeated while the load lasts."""
    times: list[float] = []
    end = time.monotonic() + LOAD_S
    while time.monotonic() < end:
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
        time.sleep(pause_s)
    times.sort()
    return times[len(times) // 2] * 1000, times[len(times) * 99 // 100] * 1000


def latencies(bootstrap: str) -> list[tuple[float, float]]:
    """Return p50 and p99 in ms of a produce beside readers and of a request beside members."""
    read, written = create(bootstrap, 1), create(bootstrap, 1)
    with RawClient(bootstrap, 60) as client:
        for _ in range(11):
            client.produce(read, 0, batch(one_record(os.urandom(95_000))))
        record = batch(one_record(VALUE))
        with load("read", bootstrap, read, READERS // LOADERS, LOAD_S + 1):
            beside_readers = quantiles(lambda: client.produce(written, 0, record), 0.005)
        while client.call(10, 3, key="beaten").error_code:
            time.sleep(0.1)

        def ask() -> None:
            client.socket.sendall(api_versions())
            client._read(struct.unpack(">i", client._read(4))[0])

        with load("beat", bootstrap, MEMBERS // LOADERS, LOAD_S + 1):
            return [beside_readers, quantiles(ask)]


SECOND, RATE, MS = "{:.2f} s", "{:,.0f}/s", "{:.1f} / {:.1f} ms"
#: The table's rows with their formats; without records, the rows of the latencies only.
RATES = (
    ("start of the process", SECOND),
    ("produced", RATE),
    ("produced with TLS", RATE),
    ("consumed", RATE),
    ("consumed with TLS", RATE),
    ("transactions, p50 / p99", f"{RATE}, {MS}"),
    ("transactions with TLS, p50 / p99", f"{RATE}, {MS}"),
    ("10 members join", SECOND),
    ("1 of 10 leaves", SECOND),
    ("50 members join", SECOND),
    ("1 of 50 leaves", SECOND),
)
LATENCIES = (
    ("one record produced beside 4 readers, p50 / p99", MS),
    ("ApiVersions beside 1,000 members, p50 / p99", MS),
)


def rates(peer: Peer, records: int) -> list[tuple[float, ...]]:
    """Measure each figure of ``RATES`` once."""
    topics = {client: create(peer.bootstrap, PARTITIONS) for client in ("plain", "tls")}
    found: list[tuple[float, ...]] = [(peer.start_s,)]
    for step in (produce, consume):
        for client, topic in topics.items():
            found.append((step(getattr(peer, client), topic, records),))
    found += [transact(getattr(peer, client), topic) for client, topic in topics.items()]
    for members in (10, 50):
        found += [(seconds,) for seconds in asyncio.run(rebalance(peer.bootstrap, members))]
    return found


def measure(peer: Peer, records: int, rounds: int) -> list[tuple[float, ...]]:
    """Measure a column of the table: medians of ``rounds``; 0 records measures latencies only."""
    found = [
        [*(rates(peer, records) if records else ()), *latencies(peer.bootstrap)]
        for _ in range(rounds)
    ]
    return [
        tuple(statistics.median(figures) for figures in zip(*row, strict=True))
        for row in zip(*found, strict=True)
    ]


def start_in_process_ms() -> float:
    """Return the median time in ms until an in-memory broker in this process has its address."""
    times = []
    for _ in range(20):
        began = time.perf_counter()
        with EmbeddedBroker():
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def main() -> None:
    """Run the measurements and print the table."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3, help="figures are medians of so many")
    parser.add_argument("--only-latencies", action="store_true")
    parser.add_argument("--no-kafka", action="store_true")
    options = parser.parse_args()
    records, rounds = 0 if options.only_latencies else options.records, options.rounds
    rows = (*RATES, *LATENCIES) if records else LATENCIES
    columns: dict[str, list[tuple[float, ...]]] = {}
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as peer:
        columns["embedded, on disk"] = measure(peer, records, rounds)
    with embedded(None) as peer:
        columns["embedded, in memory"] = measure(peer, records, rounds)
    if not options.no_kafka:
        with kafka() as peer:
            columns[f"Apache Kafka {KAFKA_VERSION}"] = measure(peer, records, rounds)
    table = Table(title=f"{records:,} records of {len(VALUE)} bytes, load {os.getloadavg()[0]:.1f}")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for number, (row, form) in enumerate(rows):
        table.add_row(row, *(form.format(*column[number]) for column in columns.values()))
    with contextlib.suppress(BrokenPipeError):
        Console().print(table)
        print(
            f"EmbeddedBroker() in a process that has imported it starts in {start_in_process_ms():.1f} ms"
        )


if __name__ == "__main__":
    main()
