"""Where weights are read from: a file that is replaced, or a compacted topic that grows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition

from faust_assigner.errors import FaustAssignerError
from faust_assigner.weights.document import MAX_BYTES


class NoWeights(FaustAssignerError):
    """There is nothing to read; says where it was looked for."""


class Source(Protocol):
    """Yields the document whenever it changed, the reason there is none, or None when time passed."""

    def follow(self, closed: threading.Event, poll_s: float) -> Iterator[bytes | FaustAssignerError | None]:
        """Until ``closed``; at least one item every ``poll_s`` seconds or so."""


@dataclass(frozen=True)
class FileSource:
    """A file, looked at every few seconds; whoever writes it renames a whole new one into place."""

    path: str

    def __str__(self) -> str:
        return self.path

    def follow(self, closed: threading.Event, poll_s: float) -> Iterator[bytes | FaustAssignerError | None]:
        """The file's bytes whenever its size, time or inode changed."""
        seen: tuple[int, int, int] | None = None
        while not closed.is_set():
            try:
                status = Path(self.path).stat()
                now = (status.st_mtime_ns, status.st_size, status.st_ino)
                found: bytes | FaustAssignerError | None = None
                if now != seen:
                    with open(self.path, "rb") as stream:
                        found = stream.read(MAX_BYTES + 1)
                    seen = now
                yield found
            except OSError as error:
                seen = None
                yield NoWeights(f"{self.path}: {error.strerror or error}")
            closed.wait(poll_s)


@dataclass(frozen=True)
class TopicSource:
    """A compacted topic whose newest record under the group's id is the document.

    ``connection`` are aiokafka's keywords; no consumer group is joined and nothing is committed.
    """

    topic: str
    group_id: str
    connection: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"topic {self.topic}"

    def follow(self, closed: threading.Event, poll_s: float) -> Iterator[bytes | FaustAssignerError | None]:
        """The newest record of ours, then every further one; one event loop of this thread's own."""
        loop = asyncio.new_event_loop()
        try:
            consumer = loop.run_until_complete(self._started())
            try:
                yield loop.run_until_complete(self._first(consumer, poll_s))
                while not closed.is_set():
                    yield loop.run_until_complete(self._newest(consumer, poll_s))
            finally:
                loop.run_until_complete(consumer.stop())
        finally:
            loop.close()

    async def _started(self) -> AIOKafkaConsumer:
        """A consumer at the beginning of every partition of the topic."""
        consumer = AIOKafkaConsumer(
            **self.connection, enable_auto_commit=False, auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        try:
            await consumer.start()
            # Asking for the topic by name would create it on brokers that do so.
            cluster = await consumer._client.fetch_all_metadata()
            numbers = cluster.partitions_for_topic(self.topic)
            if not numbers:
                raise NoWeights(f"topic {self.topic} does not exist")
            partitions = [TopicPartition(self.topic, number) for number in sorted(numbers)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    async def _first(self, consumer: AIOKafkaConsumer, poll_s: float) -> bytes | FaustAssignerError:
        """The newest record as the topic stands now: a later partition may hold a newer one."""
        newest: bytes | FaustAssignerError = NoWeights(
            f"topic {self.topic} has no record of group {self.group_id!r}")
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            newest = await self._newest(consumer, poll_s) or newest
        return newest

    async def _newest(self, consumer: AIOKafkaConsumer, poll_s: float) -> bytes | FaustAssignerError | None:
        """The last record of our group among those that came within ``poll_s``; None when there is none."""
        batches = await consumer.getmany(timeout_ms=int(poll_s * 1000))
        key = self.group_id.encode()
        ours = [record for batch in batches.values() for record in batch if record.key == key]
        if not ours:
            return None
        value: bytes | None = max(ours, key=lambda record: (record.timestamp, record.offset)).value
        return value if value is not None else NoWeights(f"the weights of {self.group_id!r} were withdrawn")
