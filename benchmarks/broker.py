"""The embedded broker beside Apache Kafka: records a second, and seconds until a group is whole again.

    python -m benchmarks.broker [--records 200000] [--no-kafka]

One producer and one consumer (librdkafka, 100-byte values, batched), and groups of aiokafka members with a
heartbeat of 0.3 s: from the start of all until each owns its two partitions, and from one leave until all
partitions are owned again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import kafka_server

PARTITIONS = 12
VALUE = b"x" * 100


def create(bootstrap: str, partitions: int) -> str:
    """A fresh topic."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
    time.sleep(0.5)
    return name


def produce(bootstrap: str, topic: str, records: int) -> float:
    """Records a second, acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
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


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Records a second, from the first to the last."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read, began = 0, 0.0
    while read < records:
        found = consumer.consume(10_000, timeout=1.0)
        began = began or (time.monotonic() if found else 0.0)
        read += len(found)
    took = time.monotonic() - began
    consumer.close()
    return records / took


async def rebalance(bootstrap: str, members: int) -> tuple[float, float]:
    """Seconds until all members own partitions, and until the rest is whole after one left."""
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
    """Wait at most a minute."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.01)


def measure(bootstrap: str, records: int) -> list[str]:
    """One column of the table."""
    topic = create(bootstrap, PARTITIONS)
    rates = [produce(bootstrap, topic, records), consume(bootstrap, topic, records)]
    cells = [f"{rate:,.0f}/s" for rate in rates]
    for members in (10, 50):
        joined, left = asyncio.run(rebalance(bootstrap, members))
        cells += [f"{joined:.2f} s", f"{left:.2f} s"]
    return cells


def main() -> None:
    """Measure and print."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--no-kafka", action="store_true")
    options = parser.parse_args()
    rows = ["produced", "consumed", "10 members join", "1 of 10 leaves", "50 members join", "1 of 50 leaves"]
    columns: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(folder) as broker:
        columns["embedded, on disk"] = measure(broker.bootstrap, options.records)
    with EmbeddedBroker() as broker:
        columns["embedded, in memory"] = measure(broker.bootstrap, options.records)
    if not options.no_kafka:
        with kafka_server() as server:
            columns["Apache Kafka 4.3.1"] = measure(server.bootstrap, options.records)
    table = Table(title=f"{options.records:,} records of {len(VALUE)} bytes, load {os.getloadavg()[0]:.1f}")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for number, row in enumerate(rows):
        table.add_row(row, *(column[number] for column in columns.values()))
    with contextlib.suppress(BrokenPipeError):
        Console().print(table)


if __name__ == "__main__":
    main()
