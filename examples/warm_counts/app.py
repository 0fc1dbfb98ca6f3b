"""Counts words. Each partition's counts lie in RocksDB and are warmed from a changelog before they move.

faust-assigner broker --port 9092
faust-assigner serve --topic words=4
python -m examples.warm_counts.app --name counter-1 --data ./counter-1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as KafkaPartition

from examples.warm_counts.store import Counts
from faust_assigner.service.client import AssignerClient, Grant, TopicPartition
from faust_assigner.service.client.partitions import Partitions, Progress

CHANGELOG = "{}-counts-changelog"


class Counting:
    """The work on partitions: the protocol of :class:`Partitions`."""

    def __init__(self, bootstrap: str, data: Path, journal: Path | None = None) -> None:
        self.bootstrap = bootstrap
        self.data = data
        self.stores: dict[TopicPartition, Counts] = {}
        self.producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        self._journal = journal

    async def warm(self, partition: TopicPartition, progress: Progress) -> None:
        """Replay the changelog while its owner still writes to it."""
        await self._replay(partition, progress)
        self.say("warm", partition, counted=self.stores[partition].next_offset)

    async def open(self, grant: Grant) -> int:
        """Replay the rest, which is short after a warm-up, and return the next offset to count."""
        await self._replay(grant.partition)
        store = self.stores[grant.partition]
        self.say("open", grant.partition, counted=store.next_offset, epoch=grant.epoch)
        return store.next_offset

    async def process(self, record: Any, grant: Grant) -> None:
        """Count a word: first in the changelog, then in the database. A replay repairs a crash in between."""
        word, store = record.value.decode(), self.stores[grant.partition]
        change = store.change(word, record.offset, grant.epoch)
        sent = await self.producer.send_and_wait(
            CHANGELOG.format(grant.partition.topic),
            change,
            key=word.encode(),
            partition=grant.partition.partition,
        )
        store.take(word, change, sent.offset)
        self.say("counted", grant.partition, offset=record.offset, epoch=grant.epoch)

    async def close(self, partition: TopicPartition) -> None:
        """Close the files: the changelog has every change, and the next owner reads it to its end."""
        self.say("close", partition, counted=self.stores[partition].next_offset)
        self.stores.pop(partition).close()

    async def drop(self, partition: TopicPartition) -> None:
        """Delete a partition that has another owner: the next warm-up starts from an empty database."""
        if (store := self.stores.pop(partition, None)) is not None:
            store.remove()

    async def _replay(self, partition: TopicPartition, progress: Progress | None = None) -> None:
        """Replay the changelog from the database's position to its current end."""
        store = self.stores.get(partition)
        if store is None:
            store = self.stores[partition] = Counts(
                self.data / f"{partition.topic}-{partition.partition}"
            )
        source = KafkaPartition(CHANGELOG.format(partition.topic), partition.partition)
        reader = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        await reader.start()
        try:
            reader.assign([source])
            last = (await reader.end_offsets([source]))[source]
            first = position = min(store.read, last)
            reader.seek(source, position)
            while position < last:
                for record in (await reader.getmany(source, timeout_ms=500)).get(source, ()):
                    store.take(record.key.decode(), record.value, record.offset)
                position = await reader.position(source)
                if progress is not None:
                    await progress((position - first) / (last - first))
        finally:
            await reader.stop()

    def say(self, kind: str, partition: TopicPartition, **row: Any) -> None:
        """Append a line to the journal, if a journal is configured."""
        if self._journal is not None:
            with self._journal.open("a") as out:
                out.write(
                    json.dumps({"kind": kind, "partition": partition.partition, **row}) + "\n"
                )


async def run(
    service: str, bootstrap: str, name: str, topic: str, data: Path, journal: Path | None = None
) -> None:
    """Count until SIGTERM or Ctrl-C, then hand all partitions over and end."""
    work = Counting(bootstrap, data, journal)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id="warm-counts", enable_auto_commit=False
    )
    async with work.producer, consumer, AssignerClient(service, name, topics=[topic]) as client:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: asyncio.ensure_future(client.leave()))
        print("counting", flush=True)
        await Partitions(client, consumer, work).run()
    for store in work.stores.values():
        store.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--service", default="127.0.0.1:50051")
    parser.add_argument("--kafka", default="127.0.0.1:9092")
    parser.add_argument("--name", required=True)
    parser.add_argument("--topic", default="words")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--journal", type=Path)
    said = parser.parse_args(arguments)
    asyncio.run(run(said.service, said.kafka, said.name, said.topic, said.data, said.journal))


if __name__ == "__main__":
    main()
