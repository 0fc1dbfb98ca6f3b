"""Calls a consumer's handlers for the service's commands; each handoff has its own task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Collection, Iterable
from typing import Final, Protocol, TypeVar

from faust_assigner.concurrency.cancellation import is_cancelled
from faust_assigner.service.client.commands import (
    AbortWarm,
    Assigned,
    Command,
    Lost,
    Release,
    Standbys,
    Warm,
)
from faust_assigner.service.errors import ServiceRefused
from faust_assigner.service.handoff import TopicPartition

T = TypeVar("T")
log = logging.getLogger(__name__)

#: Seconds to wait for AbortWarm or a grant after the service has answered that a hand-off is over.
#: After this time the message is lost: a stream broke, or a snapshot replaced the queued commands.
MISSED_S: Final = 10.0


class Handlers(Protocol):
    """The consumer's reactions to commands; each handoff runs in its own task."""

    async def assigned(self, command: Assigned) -> None:
        """Work on these partitions from now on. Return soon: later commands wait for this call."""

    async def warm(self, command: Warm) -> None:
        """Return once the partition is warm. An error is reported as WarmFailed.

        The task is cancelled if the handoff is aborted. The task is also cancelled if the old owner
        is gone and :meth:`assigned` grants the partition early. The consumer then loads the missing
        state when it opens the partition.
        """

    async def release(self, command: Release) -> int | None:
        """Stop, flush, and return the next offset, if known.

        ``command.new_owner`` is empty if this consumer leaves and no other consumer can take the
        partition. The service is then not informed of the offset or of an error.

        An error is reported as ReleaseFailed. In strict mode the service then ends this consumer's
        session, all its partitions are lost, and ``run`` raises ``Expelled``. Retry temporary
        errors inside this handler.
        """

    async def abort(self, command: AbortWarm) -> None:
        """Drop the warmed state."""

    async def standbys(self, command: Standbys) -> None:
        """Hold exactly these replicas."""

    async def lost(self, command: Lost) -> None:
        """Stop at once: other consumers may own these partitions."""


async def cancel_all(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel all tasks, and wait until they have ended."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)


async def call_app(work: Awaitable[T]) -> T:
    """Await the app's code. Raises RuntimeError if the app's own code cancelled the call.

    Otherwise such a cancellation would end a partition's task without a log line or a report.
    """
    try:
        return await work
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise RuntimeError("the app's own code cancelled this call") from None


class Answers(Protocol):
    """The answers to commands; each may raise ServiceRefused. ``AssignerClient`` documents them."""

    async def ready(self, command: Warm) -> bool:
        """Report that the partition is warm; return False if the handoff is over."""

    async def failed(self, command: Warm, reason: str) -> bool:
        """Report that this consumer cannot warm the partition."""

    async def released(self, command: Release, final_offset: int | None = None) -> bool:
        """Report that work on the partition has stopped."""

    async def release_failed(self, command: Release, reason: str) -> bool:
        """Report that work on the partition has stopped, but could not be flushed."""


class Jobs:
    """The handlers' tasks, one for each partition's handoff."""

    def __init__(self, answers: Answers, handlers: Handlers) -> None:
        self._answers = answers
        self._handlers = handlers
        self._warming: dict[TopicPartition, asyncio.Task[None]] = {}
        self._releasing: dict[TopicPartition, asyncio.Task[None]] = {}
        self._dropping: dict[TopicPartition, asyncio.Task[None]] = {}

    async def take(self, command: Command) -> None:
        """Start the command's handler."""
        match command:
            case Assigned():
                for grant in command.added:
                    await self._stop(self._releasing, grant.partition)
                    # The old owner is gone: end the warm-up before the partition is opened.
                    await self._stop(self._warming, grant.partition)
                await self._handlers.assigned(command)
            case Warm():
                await self._stop(self._warming, command.partition)
                self._warming[command.partition] = asyncio.create_task(self._warm(command))
            case Release():
                await self._stop(self._releasing, command.partition)
                self._releasing[command.partition] = asyncio.create_task(self._release(command))
            case AbortWarm():
                await self._stop(self._warming, command.partition)
                await self._handlers.abort(command)
            case Standbys():
                await self._handlers.standbys(command)
            case Lost():
                await cancel_all(self._releasing.values())
                await self._handlers.lost(command)

    async def _warm(self, command: Warm) -> None:
        if (releasing := self._releasing.get(command.partition)) is not None:
            await asyncio.wait((releasing,))
        try:
            await call_app(self._handlers.warm(command))
        except Exception as error:
            log.exception(
                "Could not load the state of %s; the service is informed, and the hand-off ends",
                command.partition,
            )
            with contextlib.suppress(ServiceRefused):
                await self._answers.failed(command, f"{type(error).__name__}: {error}")
            return
        with contextlib.suppress(ServiceRefused):
            if not await self._answers.ready(command):
                await self._forget(command)

    async def _forget(self, command: Warm) -> None:
        """Drop the state of a hand-off that is over, if neither AbortWarm nor a grant arrives.

        Either command cancels this task, but waits for a drop that has begun (:meth:`_stop`).
        """
        await asyncio.sleep(MISSED_S)
        log.info("%s: its hand-off is over; dropping the warmed state", command.partition)
        self._dropping[command.partition] = asyncio.create_task(self._drop(command))

    async def _drop(self, command: Warm) -> None:
        try:
            await self._handlers.abort(AbortWarm(command.partition, command.handoff_id))
        except Exception:
            log.exception("The handler that drops the warmed state of %s failed", command.partition)

    async def _release(self, command: Release) -> None:
        try:
            offset = await call_app(self._handlers.release(command))
        except Exception as error:
            log.exception("Could not release %s; the service is informed", command.partition)
            with contextlib.suppress(ServiceRefused):
                reason = f"{type(error).__name__}: {error}"
                await self._answers.release_failed(command, reason)
            return
        with contextlib.suppress(ServiceRefused):
            await self._answers.released(command, offset)

    async def _stop(
        self, jobs: dict[TopicPartition, asyncio.Task[None]], partition: TopicPartition
    ) -> None:
        if (task := jobs.pop(partition, None)) is not None:
            await cancel_all([task])
        if (dropping := self._dropping.pop(partition, None)) is not None:
            await asyncio.wait((dropping,))  # otherwise the app could reuse half-dropped state

    async def finish(self, at_work: Collection[TopicPartition], within_s: float) -> None:
        """Release the partitions of a consumer that leaves, and wait for all its releases.

        The consumer owns the partitions for ``within_s`` more seconds. Partitions that are not
        released by then are reported as lost. A release that fails is logged.
        """
        tasks = {
            partition: self._releasing.get(partition)
            or asyncio.create_task(self._release_last(partition))
            for partition in at_work
        }
        if not tasks:
            return
        await asyncio.wait(tasks.values(), timeout=within_s)
        late = tuple(sorted(p for p, task in tasks.items() if not task.done()))
        await cancel_all(tasks.values())
        if late:
            log.warning("Could not release %s before the time to live was over", late[:5])
            await self._handlers.lost(Lost(late))

    async def _release_last(self, partition: TopicPartition) -> None:
        try:
            await call_app(self._handlers.release(Release(partition, new_owner="")))
        except Exception:
            log.exception("Could not release %s", partition)

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = (self._warming, self._releasing, self._dropping)
        await cancel_all(task for some in tasks for task in some.values())
