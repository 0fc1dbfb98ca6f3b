"""Print the writers' records without late records: ``python -m examples.single_writer.reader``.

Without transactions, a writer may freeze between the coordinator's answer and its write. When the process
wakes, it writes a single late record behind the records of the next writer. Each record carries the
generation in which its writer was elected, and generations only rise. The reader drops a record whose
generation is below that of an earlier record in its partition.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from aiokafka import AIOKafkaConsumer

GENERATION = "generation"


class Turns:
    """The highest generation in each partition; use a single instance for a topic, from its first offset."""

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}
        self.late = 0

    def passed(self, records: Iterable[Any]) -> Iterator[Any]:
        """Yield records by offset, without late records; yield every record that has no generation."""
        for record in records:
            said = dict(record.headers).get(GENERATION)
            if said is not None:
                generation = int(said)
                if generation < self._highest.get(record.partition, generation):
                    self.late += 1
                    continue
                self._highest[record.partition] = generation
            yield record


async def main(options: argparse.Namespace) -> None:
    """Print each record with its writer's name, forever."""
    turns = Turns()
    consumer = AIOKafkaConsumer(
        options.topic,
        bootstrap_servers=options.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        while True:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in turns.passed(records):
                    print(record.partition, record.offset, record.value.decode(), flush=True)
    finally:
        await consumer.stop()


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="What the writers wrote, in turn.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="written")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(read_arguments()))
