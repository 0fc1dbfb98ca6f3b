"""The work on one owned partition: its queue of records, its task and its offsets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final, Protocol

from faust_assigner.service.client.commands import Grant
from faust_assigner.service.handoff import TopicPartition

log = logging.getLogger(__name__)

#: Seconds between two commits.
COMMIT_S: Final = 2.0


class NotBegun(RuntimeError):
    """The work on a partition cannot begin; no fault if the partition is to be released anyway."""


class GrantOutdated(NotBegun):
    """A later owner of the partition has committed."""


class Owner(Protocol):
    """The part of a consumer that the work on its partitions uses."""

    async def begin(self, owned: Worker) -> None:
        """Open the partition, find its start offset, and resume its fetches."""

    async def commit(self, owned: Worker) -> None:
        """Commit the next offset if it has changed."""

    def may_work(self, partition: TopicPartition) -> bool:
        """Return whether the consumer may work on the partition now."""

    async def process(self, record: object, grant: Grant) -> None:
        """Let the app process one record."""

    def fail(self, error: Exception) -> None:
        """End all work of the consumer."""


class Worker:
    """Processes the records of one partition, one at a time.

    ``fetched`` is the next offset to read, ``next_offset`` the next offset to process. Both are
    None before the partition is opened.
    """

    def __init__(self, grant: Grant, owner: Owner, queued: int) -> None:
        self.grant = grant
        self.fetched: int | None = None
        self.next_offset: int | None = None
        self.committed: int | None = None
        self._owner = owner
        self._is_ahead = False  # whether the log has ended before ``fetched``
        self._queued = queued
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._stopping = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name=f"assigner-{grant.partition}")

    @property
    def is_full(self) -> bool:
        """Whether the queue has reached its limit."""
        return self._queue.qsize() >= self._queued

    def enqueue(self, records: list[Any]) -> None:
        """Queue the records at and above the offset ``fetched``, and advance ``fetched``."""
        if self.fetched is None or not records:
            return
        is_ahead = records[-1].offset < self.fetched
        if is_ahead and not self._is_ahead:
            log.warning(
                "%s: skips records up to offset %d, because the next offset to process is %d. If the "
                "topic was deleted and created again, remove it from the service and add it again",
                self.grant.partition,
                records[-1].offset,
                self.fetched,
            )
        self._is_ahead = is_ahead
        for record in records:
            if record.offset >= self.fetched:
                self._queue.put_nowait(record)
                self.fetched = record.offset + 1

    async def stop(self) -> None:
        """End the work after the current record."""
        self._stopping.set()
        await asyncio.wait((self.task,))

    async def stops_within(self, seconds: float) -> bool:
        """Wait for :meth:`stop` for at most ``seconds``; return whether the work must end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _run(self) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await self._owner.begin(self)
            loop = asyncio.get_running_loop()
            due = loop.time() + COMMIT_S
            while not self._stopping.is_set():
                if loop.time() >= due:
                    await self._owner.commit(self)
                    due = loop.time() + COMMIT_S
                if not self._queue.empty():
                    record = self._queue.get_nowait()
                elif (found := await self._next(stopping, due - loop.time())) is not None:
                    record = found
                else:
                    continue
                if not self._owner.may_work(self.grant.partition):
                    return
                await self._owner.process(record, self.grant)
                self.next_offset = record.offset + 1
        except Exception as error:
            if isinstance(error, NotBegun) and self._stopping.is_set():
                # Without strict mode the next owner works already when this consumer must release.
                log.info("%s; the work on it ends before its first record", error)
                return
            log.exception(
                "work on %s ended with an error; all work of this consumer ends",
                self.grant.partition,
            )
            self._owner.fail(error)
        finally:
            stopping.cancel()

    async def _next(self, stopping: asyncio.Task[bool], patience_s: float) -> Any | None:
        getting = asyncio.create_task(self._queue.get())
        try:
            await asyncio.wait(
                (getting, stopping),
                timeout=max(patience_s, 0.0),
                return_when=asyncio.FIRST_COMPLETED,
            )
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()
