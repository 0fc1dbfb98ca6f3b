"""A plain aiokafka consumer whose partitions come from the service: what it keeps is never stopped.

The consumer is assigned every partition of its topics once and for all, and all but the owned ones are
paused: when some come or go, the others are not touched, neither their fetches nor their queues. Each owned
partition has a queue and a task of its own. A record is processed, and its offset committed, only while the
client may work on the partition; each commit says in its metadata under which epoch it was made.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from faust_assigner.service.client.client import AssignerClient
from faust_assigner.service.client.commands import (
    AbortWarm,
    Assigned,
    Grant,
    Lost,
    Release,
    Standbys,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client.handlers import end

log = logging.getLogger(__name__)

Progress = Callable[[float], Awaitable[None]]
POLL_MS: Final = 100
COMMIT_S: Final = 2.0
_EPOCH: Final = re.compile(r"epoch=(\d+)")


class Work(Protocol):
    """What an app does with a partition; each call is of one partition, and of one at a time for it."""

    async def warm(self, partition: TopicPartition, progress: Progress) -> None:
        """Build the state while another one owns the partition; an error gives the handoff back."""

    async def open(self, grant: Grant) -> int | None:
        """Own the partition; the offset to start at, None for where the owner before stopped or committed."""

    async def process(self, record: Any, grant: Grant) -> None:
        """One record. What is written elsewhere carries ``grant.epoch``: a late write can be refused."""

    async def close(self, partition: TopicPartition) -> None:
        """Flush: the partition goes to somebody else."""

    async def drop(self, partition: TopicPartition) -> None:
        """Forget what was warmed, or what somebody else owns by now; nothing is to be written any more."""


class Partitions:
    """Runs ``work`` on the partitions that ``client`` is given; the consumer is started and ended elsewhere.

    The consumer has a ``group_id`` for its offsets, ``enable_auto_commit=False`` and no topics. ``queued`` is
    how many records a partition may have waiting before it is paused.
    """

    def __init__(
        self, client: AssignerClient, consumer: AIOKafkaConsumer, work: Work, *, queued: int = 500
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._work = work
        self._queued = queued
        self._owned: dict[TopicPartition, _Owned] = {}
        self._failed: asyncio.Future[None] | None = None
        self._covering = asyncio.Lock()

    async def run(self) -> None:
        """Work until the client has left; raises what ended it otherwise."""
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
            await end([serving, *(owned.task for owned in self._owned.values()), fetching])

    def fail(self, error: Exception) -> None:
        """The app's work on a partition raised: nothing is to be skipped, so all of it ends."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def assigned(self, command: Assigned) -> None:
        """Start what is new; what is gone has a new owner already and is dropped without a commit."""
        for partition in command.removed:
            await self._forget(partition)
        for grant in command.added:
            if (running := self._owned.get(grant.partition)) is not None:
                await self._stop(running)
            self._owned[grant.partition] = _Owned(grant, self, self._queued)

    async def warm(self, command: Warm) -> None:
        """Build the state beside the owner."""
        await self._work.warm(command.partition, lambda done: self._client.progress(command, done))

    async def release(self, command: Release) -> int | None:
        """Finish the record at hand, flush, commit; the next offset."""
        owned = self._owned.get(command.partition)
        if owned is None:
            return None
        # It stays here until all of that is done: who gives it anew meanwhile has to stop it first.
        await self._stop(owned)
        await self._work.close(command.partition)
        await self.commit(owned)
        if self._owned.get(command.partition) is owned:
            del self._owned[command.partition]
        return owned.next_offset

    async def abort(self, command: AbortWarm) -> None:
        """Forget what was warmed, unless it is owned by now."""
        if command.partition not in self._owned:
            await self._work.drop(command.partition)

    async def standbys(self, command: Standbys) -> None:
        """Replicas are the app's own."""

    async def lost(self, command: Lost) -> None:
        """Stop at once."""
        for partition in command.partitions:
            await self._forget(partition)

    async def _forget(self, partition: TopicPartition) -> None:
        if (owned := self._owned.pop(partition, None)) is not None:
            await self._stop(owned)
            await self._work.drop(partition)

    async def _stop(self, owned: _Owned) -> None:
        await owned.stop()
        if owned.fetched is not None:
            owned.fetched = None  # nothing is fetched for it any more
            self._consumer.pause(_kafka(owned.grant.partition))

    async def begin(self, owned: _Owned) -> None:
        """Open the partition, find where to read, and let it be fetched."""
        partition = owned.grant.partition
        await self._cover(partition)
        start = await self._work.open(owned.grant)
        if start is None:
            start = await self._left_at(owned.grant)
        if start is None:
            start = (await self._consumer.beginning_offsets([_kafka(partition)]))[_kafka(partition)]
        owned.next_offset = owned.fetched = start
        self._consumer.seek(_kafka(partition), start)
        self._consumer.resume(_kafka(partition))

    async def _cover(self, partition: TopicPartition) -> None:
        """Have the partition assigned; that its topic is new, or has grown, happens once."""
        async with self._covering:
            known = self._consumer.assignment()
            if _kafka(partition) in known:
                return
            await self._consumer.topics()
            numbers = self._consumer.partitions_for_topic(partition.topic) or set()
            known = known | {
                KafkaPartition(partition.topic, n) for n in {*numbers, partition.partition}
            }
            self._consumer.assign(sorted(known))
            self._consumer.pause(*known)
            for running in self._owned.values():
                if running.fetched is not None:
                    self._consumer.seek(_kafka(running.grant.partition), running.fetched)
                    self._consumer.resume(_kafka(running.grant.partition))
            # aiokafka does not bear a second assignment before it has found the group's coordinator.
            await self._consumer.committed(_kafka(partition))

    async def _left_at(self, grant: Grant) -> int | None:
        """Where this grant's own work has come to, else where the owner before stopped or committed.

        A grant outlives the process and the session that it was first told to: where the owner before stopped
        is behind what was committed since. Raises where a later owner committed: this grant is history.
        """
        found = await self._consumer._coordinator.fetch_committed_offsets([_kafka(grant.partition)])
        said = found.get(_kafka(grant.partition))
        if said is None or said.offset < 0:
            return grant.start_offset
        epoch = _EPOCH.search(said.metadata or "")
        if epoch is not None and int(epoch[1]) > grant.epoch:
            raise RuntimeError(
                f"{grant.partition}: epoch {epoch[1]} has committed, this is {grant.epoch}"
            )
        is_own = epoch is not None and int(epoch[1]) == grant.epoch
        return int(said.offset) if is_own or grant.start_offset is None else grant.start_offset

    async def commit(self, owned: _Owned) -> None:
        """Commit what is processed, if the partition is still this consumer's and there is anything new."""
        partition, offset = owned.grant.partition, owned.next_offset
        if offset is None or offset == owned.committed or not self.may_work(partition):
            return
        try:
            await self._consumer.commit(
                {_kafka(partition): OffsetAndMetadata(offset, f"epoch={owned.grant.epoch}")}
            )
        except KafkaError as error:
            log.warning("%s: the commit of %d failed: %s", partition, offset, error)
        else:
            owned.committed = offset

    def may_work(self, partition: TopicPartition) -> bool:
        """Whether the client may work on it now."""
        return self._client.may_work(partition)

    async def process(self, record: Any, grant: Grant) -> None:
        """One record, by the app."""
        await self._work.process(record, grant)

    async def _fetch(self) -> None:
        """Read for everybody."""
        while True:
            self._hold_back()
            for kafka_partition, records in (
                await self._consumer.getmany(timeout_ms=POLL_MS)
            ).items():
                if (owned := self._owned.get(TopicPartition(*kafka_partition))) is not None:
                    owned.take(records)

    def _hold_back(self) -> None:
        """Pause what has enough to do."""
        paused = self._consumer.paused()
        for partition, owned in self._owned.items():
            if owned.fetched is None:
                continue
            if owned.is_full and _kafka(partition) not in paused:
                self._consumer.pause(_kafka(partition))
            elif not owned.is_full and _kafka(partition) in paused:
                self._consumer.resume(_kafka(partition))


class _Owned:
    """One partition at work: its records in order, and how far it is.

    ``fetched`` is the next offset to read, ``next_offset`` the next to process; None before it was opened.
    """

    def __init__(self, grant: Grant, partitions: Partitions, queued: int) -> None:
        self.grant = grant
        self.fetched: int | None = None
        self.next_offset: int | None = None
        self.committed: int | None = None
        self._partitions = partitions
        self._queued = queued
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._stopping = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name=f"assigner-{grant.partition}")

    @property
    def is_full(self) -> bool:
        """Whether enough records wait."""
        return self._queue.qsize() >= self._queued

    def take(self, records: list[Any]) -> None:
        """Records that follow those taken before."""
        for record in records:
            if self.fetched is not None and record.offset >= self.fetched:
                self._queue.put_nowait(record)
                self.fetched = record.offset + 1

    async def stop(self) -> None:
        """End after the record at hand."""
        self._stopping.set()
        await asyncio.wait((self.task,))

    async def _run(self) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await self._partitions.begin(self)
            loop = asyncio.get_running_loop()
            due = loop.time() + COMMIT_S
            while not self._stopping.is_set():
                if loop.time() >= due:
                    await self._partitions.commit(self)
                    due = loop.time() + COMMIT_S
                if not self._queue.empty():
                    record = self._queue.get_nowait()
                elif (found := await self._next(stopping, due - loop.time())) is not None:
                    record = found
                else:
                    continue
                if not self._partitions.may_work(self.grant.partition):
                    return
                await self._partitions.process(record, self.grant)
                self.next_offset = record.offset + 1
        except Exception as error:
            log.exception("work on %s ended", self.grant.partition)
            self._partitions.fail(error)
        finally:
            stopping.cancel()

    async def _next(self, stopping: asyncio.Task[bool], patience_s: float) -> Any | None:
        getting = asyncio.create_task(self._queue.get())
        await asyncio.wait(
            (getting, stopping), timeout=max(patience_s, 0.0), return_when=asyncio.FIRST_COMPLETED
        )
        if getting.done():
            return getting.result()
        getting.cancel()
        return None


def _kafka(partition: TopicPartition) -> KafkaPartition:
    return KafkaPartition(partition.topic, partition.partition)
