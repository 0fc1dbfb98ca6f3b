"""The asyncio client for consumers: reconnects, and reports when ownership of partitions ends.

    async with AssignerClient("127.0.0.1:50051", "shop-1", topics=["orders"]) as client:
        async for command in client.commands():
            match command:
                case Assigned(): work.on(command.owned)
                case Warm(): await load(command.partition); await client.ready(command)
                case Release(): await client.released(command, await work.stop(command.partition))
                case AbortWarm() | Lost(): work.forget(command)

Alternatively, with a task for each handoff: ``await client.run(handlers)``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Self

import grpc.aio

from faust_assigner.service.client.calls import Calls
from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.commands import Command, Release, Warm
from faust_assigner.service.client.handlers import Handlers, Jobs, cancel_all
from faust_assigner.service.client.heart import Heart
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.inbox import Inbox
from faust_assigner.service.client.leave import Leave
from faust_assigner.service.client.registration import Registration, Retry
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.client.session import Session
from faust_assigner.service.client.streams import Streams
from faust_assigner.service.clock import seconds
from faust_assigner.service.errors import NotFound, ServiceRefused, WrongPhase
from faust_assigner.service.handoff import TopicPartition

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["Access", "AssignerClient", "Handlers", "Registration", "Retry"]

log = logging.getLogger(__name__)


class AssignerClient:
    """One consumer, registered at any of ``targets`` (``host:port``); see the module's docstring.

    ``clock`` returns seconds and advances while the process is stopped. ``incarnation``
    distinguishes this process from earlier and later processes of the same name; the default is
    random. ``group`` is the group's name, if the service has several groups.
    """

    def __init__(
        self,
        targets: str | Sequence[str],
        name: str,
        *,
        topics: Collection[str] = (),
        registration: Registration | None = None,
        access: Access | None = None,
        retry: Retry | None = None,
        clock: Callable[[], float] = seconds,
        incarnation: str = "",
        group: str = "",
    ) -> None:
        self.name = name
        self.incarnation = incarnation or secrets.token_hex(8)
        self.holdings = Holdings()
        self._clock = clock
        self._retry = retry = retry or Retry()
        self._requests = Requests(name, self.incarnation, group)
        self._calls = Calls(name, access or Access(), retry)
        self._inbox = Inbox(self.holdings, self._repeat)
        self._session = Session(self.holdings, self._inbox, clock)
        mine = (self._calls, self._requests, self.holdings, self._inbox, self._session)
        self._streams = Streams(
            name,
            (targets,) if isinstance(targets, str) else tuple(targets),
            registration or Registration(topics=topics),
            retry,
            clock,
            *mine,
            self._leave_if_begun,
        )
        self._heart = Heart(name, clock, *mine, self._streams)
        self._leave = Leave(name, clock, retry, self._start, *mine, self._streams)
        self._beside: set[asyncio.Task[None]] = set()

    @property
    def streams(self) -> int:
        """The number of registrations so far."""
        return self._session.count

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_all(self._beside)
        await self.close()

    def may_work(self, partition: tuple[str, int]) -> bool:
        """Return whether this consumer may work on the partition now, by its own clock.

        Call this before each commit.
        """
        return self.holdings.may_work(TopicPartition(*partition), self._clock())

    async def commands(self) -> AsyncGenerator[Command, None]:
        """Yield the service's commands until :meth:`leave` is done.

        Raises :class:`ServiceRefused`.
        """
        self._calls.has_ended = False
        tasks = [
            asyncio.create_task(self._streams.hold(), name="assigner-stream"),
            asyncio.create_task(self._heart.beat(), name="assigner-heartbeat"),
            asyncio.create_task(self._heart.fence(), name="assigner-fence"),
        ]
        for task in tasks:
            task.add_done_callback(self._task_ended)
        try:
            while (command := await self._inbox.read()) is not None:
                yield command
        finally:
            self._calls.has_ended = True
            await cancel_all([*tasks, *self._beside])
            await self.close()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Pass a task's error to the reader of commands, which would otherwise wait forever."""
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._inbox.put(error)

    async def run(self, handlers: Handlers) -> None:
        """Call the handler of each command until :meth:`leave` is done.

        If no other consumer can take the partitions, ``release`` is called for each of them at the
        end.
        Raises :class:`ServiceRefused`: stop the work then.
        """
        jobs = Jobs(self, handlers)
        try:
            async with contextlib.aclosing(self.commands()) as commands:
                async for command in commands:
                    await jobs.take(command)
            for command in self._inbox.remaining_commands():
                await jobs.take(command)
            # Without heartbeats, left_s is infinite; leave_s limits the releases.
            within_s = min(max(self._session.left_s, 0.0), self._retry.leave_s)
            await jobs.finish(self.holdings.at_work(), within_s)
            self._session.give_up()
        finally:
            await jobs.close()

    async def ready(self, command: Warm) -> bool:
        """Report to the service that the partition is warm; retry until the service answers.

        Return False if the handoff is over. Then a grant or AbortWarm follows. If a broken stream
        loses AbortWarm, :meth:`run` drops the state without AbortWarm. Raises
        :class:`ServiceRefused`.
        """
        return await self._acknowledge("PartitionReady", self._requests.ready(command), command)

    async def released(self, command: Release, final_offset: int | None = None) -> bool:
        """Acknowledge that work on a partition has stopped. Raises :class:`ServiceRefused`.

        Return False if the handoff is over. If this consumer keeps the partition, the service
        grants the partition again.
        """
        self.holdings.released(command)
        request = self._requests.released(command, final_offset)
        return await self._acknowledge("PartitionReleased", request, command)

    async def release_failed(self, command: Release, reason: str) -> bool:
        """Report that work on a partition has stopped, but could not be flushed.

        In strict mode the service then ends this consumer's session: :meth:`commands` raises
        ``Expelled``. Return False if the handoff is over. Raises :class:`ServiceRefused`.
        """
        epoch = self.holdings.epoch(command.partition)
        self.holdings.released(command)
        request = self._requests.release_failed(command, epoch, reason)
        return await self._send_answer("ReleaseFailed", request)

    async def failed(self, command: Warm, reason: str) -> bool:
        """Report that this consumer cannot warm the partition.

        Return False if the handoff is over. Raises :class:`ServiceRefused`.
        """
        return await self._send_answer("WarmFailed", self._requests.failed(command, reason))

    async def replicas(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Report all replicas that this consumer holds now. Raises :class:`ServiceRefused`."""
        await self._calls.retried("ReportReplicas", self._requests.replicas(partitions))

    async def progress(self, command: Warm, progress: float) -> None:
        """Report the warm-up's progress, from 0 to 1, in a single call whose errors are ignored."""
        with contextlib.suppress(grpc.aio.AioRpcError, ServiceRefused):
            await self._calls.once("ReportProgress", self._requests.progress(command, progress))

    async def leave(self) -> bool:
        """Hand all partitions over; return whether there is any partition to hand over.

        :meth:`commands` ends when the hand-over is done, at the latest after ``Retry.leave_s``. The
        remaining partitions are then reported as :class:`Lost`. Other consumers get these
        partitions when this registration's time to live is over. :meth:`commands` also ends if no
        registration has lived for ``Retry.answer_s``: there is nothing to hand over. If no other
        consumer can take the partitions, :meth:`commands` ends at once, without a command: stop the
        work then, as :meth:`run` does. Raises :class:`ServiceRefused`.
        """
        return await self._leave.ask()

    async def close(self) -> None:
        """Close the connection; without :meth:`leave` the session ends after its time to live."""
        await self._streams.close()

    def _leave_if_begun(self) -> None:
        if self._leave.is_begun:
            self._start(self._leave.again())

    def _start(self, work: Coroutine[object, None, None]) -> None:
        job = asyncio.create_task(work)
        self._beside.add(job)
        job.add_done_callback(self._beside.discard)

    async def _acknowledge(self, method: str, request: Message, command: Warm | Release) -> bool:
        self._inbox.acknowledged(command, method, request)
        return await self._send_answer(method, request)

    async def _send_answer(self, method: str, request: Message) -> bool:
        """Send an answer about a handoff; return whether the handoff was still open.

        A handoff that was aborted meanwhile is not an error of the consumer.
        """
        try:
            await self._calls.retried(method, request)
        except (NotFound, WrongPhase) as error:
            log.info("%s: %s came too late: %s", self.name, method, error)
            return False
        return True

    def _repeat(self, method: str, request: Message) -> None:
        self._start(self._repeat_answer(method, request))

    async def _repeat_answer(self, method: str, request: Message) -> None:
        """Repeat a lost acknowledgement: the service has repeated its command."""
        with contextlib.suppress(ServiceRefused, grpc.aio.AioRpcError):
            await self._calls.once(method, request)
