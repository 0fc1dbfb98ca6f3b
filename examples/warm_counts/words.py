"""Sends words: ``python -m examples.warm_counts.words --count 1000``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from itertools import cycle, islice

from aiokafka import AIOKafkaProducer

WORDS = (
    "a",
    "partition",
    "moves",
    "when",
    "its",
    "state",
    "is",
    "warm",
    "and",
    "never",
    "before",
    "that",
)


async def send(bootstrap: str, topic: str, count: int) -> None:
    """Send words in turn, partitioned by key."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for word in islice(cycle(WORDS), count):
            await producer.send(topic, word.encode(), key=word.encode())
    print(f"{count} words sent")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="words")
    parser.add_argument("--count", type=int, default=1000)
    said = parser.parse_args(arguments)
    asyncio.run(send(said.kafka, said.topic, said.count))


if __name__ == "__main__":
    main()
