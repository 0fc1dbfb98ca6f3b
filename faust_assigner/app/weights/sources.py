"""The sources of weights: a file that writers replace, or a compacted topic."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from aiokafka import AIOKafkaConsumer, TopicPartition

from faust_assigner.errors import FaustAssignerError
from faust_assigner.snapshots.changelog import consumer_of
from faust_assigner.weights.document import MAX_BYTES

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord


class NoWeights(FaustAssignerError):
    """No document exists; the message names the place that was read."""


#: Seconds until the read of one partition of the topic up to its first end is given up.
READ_S: Final = 60.0

#: The document, the reason for its absence, or None if neither has changed.
Found: TypeAlias = bytes | FaustAssignerError | None


class Source(Protocol):
    """Yields the changed document, the reason for its absence, or None if neither has changed."""

    def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        """Yield an item about every ``poll_s`` seconds or sooner; close resources at the end."""


@dataclass(frozen=True)
class FileSource:
    """A file, checked every few seconds; its writer renames a complete new file into place."""

    path: str

    def __str__(self) -> str:
        return self.path

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        """Yield the file's bytes whenever its size, time or inode has changed."""
        seen: tuple[int, int, int] | None = None
        while True:
            try:
                status = Path(self.path).stat()
                if not stat.S_ISREG(status.st_mode):  # a pipe would block the thread for ever
                    raise OSError("it is not a file")
                now = (status.st_mtime_ns, status.st_size, status.st_ino)
                found: Found = None
                if now != seen:
                    with open(self.path, "rb") as stream:
                        found = stream.read(MAX_BYTES + 1)
                    seen = now
            except OSError as error:
                seen, found = None, NoWeights(f"{self.path}: {error.strerror or error}")
            yield found
            await asyncio.sleep(poll_s)


@dataclass(frozen=True)
class TopicSource:
    """A compacted topic whose newest record under the group's id is the document.

    ``connection`` are aiokafka's keywords; no consumer group is joined and no offset is committed.
    """

    topic: str
    group_id: str
    connection: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"topic {self.topic}"

    async def follow(self, poll_s: float) -> AsyncGenerator[Found, None]:
        """Yield the group's newest record, then every later record; end when the topic gets partitions.

        Raises TimeoutError if the records up to the first ends do not come.
        """
        async with consumer_of(self.connection) as consumer:
            await self._assign(consumer)
            yield await self._read_to_ends(consumer, poll_s)
            # A writer may choose a new partition for the group's later records.
            while not self._has_grown(consumer):
                yield await self._poll_newest(consumer, poll_s)

    def _has_grown(self, consumer: AIOKafkaConsumer) -> bool:
        """Return whether the topic has more partitions than are read, by the client's last metadata."""
        numbers = consumer.partitions_for_topic(self.topic) or ()
        return len(numbers) > len(consumer.assignment())

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        """Seek to the beginning of every partition. Raises NoWeights if there is no topic."""
        # A request for the topic by name would create it on brokers with automatic topic creation.
        cluster = await consumer._client.fetch_all_metadata()
        numbers = cluster.partitions_for_topic(self.topic)
        if not numbers:
            raise NoWeights(f"topic {self.topic} does not exist")
        partitions = [TopicPartition(self.topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)

    async def _read_to_ends(
        self, consumer: AIOKafkaConsumer, poll_s: float
    ) -> bytes | FaustAssignerError:
        """Return the newest record up to the current ends, since any partition may contain it."""
        records: list[ConsumerRecord[bytes, bytes]] = []
        ends = await consumer.end_offsets(consumer.assignment())
        for partition, end in ends.items():
            try:
                async with asyncio.timeout(READ_S):
                    # aiokafka waits without end for the position of a partition without a leader.
                    while await consumer.position(partition) < end:
                        # The partitions' records may arrive in any order.
                        received = await self._poll_group_records(consumer, poll_s)
                        records = _newest_of([*records, *received])
            except TimeoutError as error:
                raise TimeoutError(
                    f"partition {partition.partition} of topic {self.topic} was not read to its end "
                    f"within {READ_S:.0f} s"
                ) from error
        if not records:
            return NoWeights(f"topic {self.topic} has no record of group {self.group_id!r}")
        return self._document_or_error(records[0])

    async def _poll_newest(self, consumer: AIOKafkaConsumer, poll_s: float) -> Found:
        """Return the group's last record received within ``poll_s``; None without a record."""
        records = _newest_of(await self._poll_group_records(consumer, poll_s))
        return self._document_or_error(records[0]) if records else None

    async def _poll_group_records(
        self, consumer: AIOKafkaConsumer, poll_s: float
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the group's records of one poll."""
        batches = await consumer.getmany(timeout_ms=int(poll_s * 1000))
        key = self.group_id.encode()
        return [record for batch in batches.values() for record in batch if record.key == key]

    def _document_or_error(
        self, record: ConsumerRecord[bytes, bytes]
    ) -> bytes | FaustAssignerError:
        value: bytes | None = record.value
        if value is None:
            return NoWeights(f"the weights of {self.group_id!r} were withdrawn")
        return value


def _newest_of(records: list[ConsumerRecord[bytes, bytes]]) -> list[ConsumerRecord[bytes, bytes]]:
    """Return the newest record alone, or no record."""
    return sorted(records, key=lambda record: (record.timestamp, record.offset))[-1:]
