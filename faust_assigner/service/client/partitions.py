"""A plain aiokafka consumer on the service's partitions; kept partitions are never interrupted.

The consumer is assigned every partition of its topics once, and pauses all partitions except its
own. A grant or a loss therefore affects neither the fetches nor the queues of its other partitions.
Each owned partition has its own queue and task. A record is processed, and its offset committed,
only while the client may work on the partition. The metadata of each commit contains the epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError

from faust_assigner.service.client.client import AssignerClient
from faust_assigner.service.client.commands import (
    AbortWarm,
    Assigned,
    Grant,
    Lost,
    Release,
    Standbys,
    Warm,
)
from faust_assigner.service.client.handlers import call_app, cancel_all
from faust_assigner.service.client.offsets import first_offset, kafka_partition, with_epoch
from faust_assigner.service.client.worker import NotBegun, Worker
from faust_assigner.service.handoff import TopicPartition

log = logging.getLogger(__name__)

Progress = Callable[[float], Awaitable[None]]
POLL_MS: Final = 100
#: Seconds to wait for an answer of Kafka: aiokafka itself would wait without end. Several such waits
#: must fit into the service's limit for a release (60 s).
ANSWER_S: Final = 10.0
#: Seconds between two questions to a Kafka that does not answer.
RETRY_S: Final = 5.0
T = TypeVar("T")
#: aiokafka's errors if no broker answers; it does not mark them as retriable.
_UNANSWERED: Final = (KafkaError, KafkaTimeoutError)


class Work(Protocol):
    """The app's work on partitions. Each call concerns one partition.

    The calls for a partition do not overlap.
    """

    async def warm(self, partition: TopicPartition, progress: Progress) -> None:
        """Build the state while another consumer owns the partition; an error ends the handoff."""

    async def open(self, grant: Grant) -> int | None:
        """Own the partition, and return the offset of the first record to process.

        Return None to start where the previous owner stopped or committed.
        """

    async def process(self, record: Any, grant: Grant) -> None:
        """Process one record. Send ``grant.epoch`` with writes: a sink can refuse late writes."""

    async def close(self, partition: TopicPartition) -> None:
        """Flush the state: the partition goes to another consumer."""

    async def drop(self, partition: TopicPartition) -> None:
        """Forget a partition that was only warmed, or that was lost; write nothing more."""


class Partitions:
    """Runs ``work`` on the partitions of ``client``; the caller starts and stops the consumer.

    The consumer needs a ``group_id`` for its offsets, ``enable_auto_commit=False`` and no topics. A
    partition is paused while ``queued`` of its records wait for processing.
    """

    def __init__(
        self, client: AssignerClient, consumer: AIOKafkaConsumer, work: Work, *, queued: int = 500
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._work = work
        self._queued = queued
        self._owned: dict[TopicPartition, Worker] = {}
        self._failed: asyncio.Future[None] | None = None
        self._covering = asyncio.Lock()

    async def run(self) -> None:
        """Work until the client has left. Raises the error that ended the work."""
        fetching = asyncio.create_task(self._fetch(), name="assigner-fetch")
        serving = asyncio.create_task(self._client.run(self), name="assigner-serve")
        self._failed = asyncio.get_running_loop().create_future()
        try:
            done, _ = await asyncio.wait(
                (fetching, serving, self._failed), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            self._failed.cancel()
            await cancel_all([serving, *(owned.task for owned in self._owned.values()), fetching])

    def fail(self, error: Exception) -> None:
        """End all work: the app raised an error for a partition, and no record may be skipped."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def assigned(self, command: Assigned) -> None:
        """Start the added partitions; drop the removed partitions without a commit.

        A removed partition already has a new owner.
        """
        for partition in command.removed:
            await self._forget(partition)
        for grant in command.added:
            if (running := self._owned.get(grant.partition)) is not None:
                await self._stop(running)
            self._owned[grant.partition] = Worker(grant, self, self._queued)

    async def warm(self, command: Warm) -> None:
        """Build the state while the owner still works."""
        await self._work.warm(command.partition, lambda done: self._client.progress(command, done))

    async def release(self, command: Release) -> int | None:
        """Finish the current record, flush, commit; return the next offset."""
        owned = self._owned.get(command.partition)
        if owned is None:
            return None
        # Keep the worker listed until the commit: if the partition is granted again meanwhile,
        # assigned() must find and stop the worker.
        await self._stop(owned)
        await self._work.close(command.partition)
        await self.commit(owned)
        if self._owned.get(command.partition) is owned:
            del self._owned[command.partition]
        return owned.next_offset

    async def abort(self, command: AbortWarm) -> None:
        """Forget the warmed state, unless this consumer owns the partition now."""
        if command.partition not in self._owned:
            await self._work.drop(command.partition)

    async def standbys(self, command: Standbys) -> None:
        """Do nothing: the app manages its replicas."""

    async def lost(self, command: Lost) -> None:
        """Stop work on these partitions at once."""
        for partition in command.partitions:
            await self._forget(partition)

    async def _forget(self, partition: TopicPartition) -> None:
        if (owned := self._owned.pop(partition, None)) is not None:
            await self._stop(owned)
            await self._work.drop(partition)

    async def _stop(self, owned: Worker) -> None:
        await owned.stop()
        if owned.fetched is not None:
            owned.fetched = None  # no more fetches for this partition
            self._consumer.pause(kafka_partition(owned.grant.partition))

    async def begin(self, owned: Worker) -> None:
        """Open the partition, find its start offset, and resume its fetches."""
        partition = owned.grant.partition
        await _retry_until_answered(owned, lambda: self._cover(partition))
        start = await call_app(self._work.open(owned.grant))
        if start is None:
            start = await _retry_until_answered(
                owned, lambda: first_offset(self._consumer, owned.grant)
            )
        owned.next_offset = owned.fetched = start
        self._consumer.seek(kafka_partition(partition), start)
        self._consumer.resume(kafka_partition(partition))

    async def _cover(self, partition: TopicPartition) -> None:
        """Assign the partition, with its whole topic, to the aiokafka consumer if necessary."""
        async with self._covering:
            if kafka_partition(partition) in self._consumer.assignment():
                return
            # aiokafka itself knows only the partitions of topics that are assigned already.
            cluster = await self._consumer._client.fetch_all_metadata()
            # Wait for an answer of the group's coordinator: an assignment while aiokafka looks for the
            # coordinator ends its consumer.
            await self._consumer.committed(kafka_partition(partition))
            numbers = cluster.partitions_for_topic(partition.topic) or set()
            known = self._consumer.assignment() | {
                KafkaPartition(partition.topic, n) for n in {*numbers, partition.partition}
            }
            self._consumer.assign(sorted(known))
            self._consumer.pause(*known)
            for one in known:
                # Otherwise aiokafka looks up a position of each paused partition, which fails without
                # a commit if auto_offset_reset is "none". begin() sets the positions that are used.
                self._consumer.seek(one, 0)
            for running in self._owned.values():
                if running.fetched is not None:
                    self._consumer.seek(kafka_partition(running.grant.partition), running.fetched)
                    self._consumer.resume(kafka_partition(running.grant.partition))

    async def commit(self, owned: Worker) -> None:
        """Commit the next offset if it has changed and this consumer may work on the partition."""
        partition, offset = owned.grant.partition, owned.next_offset
        if offset is None or offset == owned.committed or not self.may_work(partition):
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._consumer.commit(
                    {kafka_partition(partition): with_epoch(offset, owned.grant.epoch)}
                )
        except (KafkaError, TimeoutError) as error:
            log.warning(
                "%s: the commit of %d failed; without a later commit, records before this offset may be "
                "processed again: %r",
                partition,
                offset,
                error,
            )
        else:
            owned.committed = offset

    def may_work(self, partition: TopicPartition) -> bool:
        """Return whether the client may work on the partition now."""
        return self._client.may_work(partition)

    async def process(self, record: object, grant: Grant) -> None:
        """Let the app process one record."""
        await call_app(self._work.process(record, grant))

    async def _fetch(self) -> None:
        """Fetch records for all owned partitions, forever."""
        while True:
            self._hold_back()
            for place, records in (await self._consumer.getmany(timeout_ms=POLL_MS)).items():
                if (owned := self._owned.get(TopicPartition(*place))) is not None:
                    owned.enqueue(records)

    def _hold_back(self) -> None:
        """Pause the partitions with full queues, and resume the other owned partitions."""
        paused = self._consumer.paused()
        for partition, owned in self._owned.items():
            if owned.fetched is None:
                continue
            if owned.is_full and kafka_partition(partition) not in paused:
                self._consumer.pause(kafka_partition(partition))
            elif not owned.is_full and kafka_partition(partition) in paused:
                self._consumer.resume(kafka_partition(partition))


async def _retry_until_answered(owned: Worker, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask Kafka until it answers, so that its outage does not end the work on other partitions.

    Raises an error that a repetition does not resolve, and NotBegun if the work must end.
    """
    while True:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await ask()
        except (KafkaError, TimeoutError) as error:
            if isinstance(error, KafkaError) and not (
                error.retriable or type(error) in _UNANSWERED
            ):
                raise
            partition, why = owned.grant.partition, error
        log.warning(
            "%s: could not read its start offset from Kafka, so its work has not begun; trying "
            "again in %g s: %r",
            partition,
            RETRY_S,
            why,
        )
        if await owned.stops_within(RETRY_S):
            raise NotBegun(f"{partition}: Kafka did not answer") from why
