"""The client for consumers: asyncio, reconnecting, aware of when its ownership ends.

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
import math
import random
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio

from faust_assigner.service.client.channel import Access, seconds
from faust_assigner.service.client.commands import (
    AbortWarm,
    Command,
    Release,
    Standbys,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client.handlers import Handlers, Jobs, end
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.messages import grants_of, other_command, partition_of
from faust_assigner.service.client.registration import Registration, Retry
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.errors import (
    Expelled,
    NotFound,
    Replaced,
    ServiceRefused,
    WrongPhase,
)
from faust_assigner.service.faults import refusal
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub

__all__ = ["Access", "AssignerClient", "Handlers", "Registration", "Retry"]

log = logging.getLogger(__name__)

#: Timeout of a call, in seconds; the client then repeats the call.
CALL_S: Final = 5.0
#: Most doublings of the wait for a first answer: slow instances then get enough time.
MOST_DOUBLED: Final = 5
#: A handoff by command type and partition: only the newest command of each key is kept.
_Key = tuple[type[Warm | Release], TopicPartition]


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
        self.targets = (targets,) if isinstance(targets, str) else tuple(targets)
        self.name = name
        self.incarnation = incarnation or secrets.token_hex(8)
        self.holdings = Holdings()
        self.group = group
        self._requests = Requests(name, self.incarnation, group)
        self.streams = 0  # number of registrations so far
        self._registration = registration or Registration(topics=topics)
        self._access = access or Access()
        self._retry = retry or Retry()
        self._clock = clock
        self._chance = random.Random()
        self._queue: asyncio.Queue[Command | BaseException | None] = asyncio.Queue()
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None
        self._stream: Any = None
        self._session_id = ""  # of the last registration; renewed while the next one waits
        self._is_registered = False  # the stream has answered
        self._lives_s = math.inf
        self._is_pulsing = False
        self._heard_at = -math.inf
        self._has_ended = False
        self._is_leaving = False
        self._told: dict[_Key, Warm | Release] = {}
        self._acked: dict[_Key, tuple[str, Any]] = {}
        self._again: set[asyncio.Task[None]] = set()
        self._standbys: list[TopicPartition] = []  # the parts received so far
        self._turn = 0
        self._wake = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await end(self._again)
        await self.close()

    def may_work(self, partition: tuple[str, int]) -> bool:
        """Return whether this consumer may work on the partition now, as far as it can know.

        Call this before each commit.
        """
        return self.holdings.may_work(TopicPartition(*partition), self._clock())

    async def commands(self) -> AsyncGenerator[Command, None]:
        """Yield the service's commands until :meth:`leave` is done.

        Raises :class:`ServiceRefused`.
        """
        self._has_ended = False
        tasks = [
            asyncio.create_task(self._stay(), name="assigner-stream"),
            asyncio.create_task(self._beat(), name="assigner-heartbeat"),
            asyncio.create_task(self._fence(), name="assigner-fence"),
        ]
        for task in tasks:
            task.add_done_callback(self._ended)
        try:
            while (said := await self._queue.get()) is not None:
                if isinstance(said, BaseException):
                    raise said
                yield said
        finally:
            self._has_ended = True
            await end([*tasks, *self._again])
            await self.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Pass a task's error to the reader of commands, which would otherwise wait forever."""
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._queue.put_nowait(error)

    async def run(self, handlers: Handlers) -> None:
        """Call the handler of each command until :meth:`leave` is done.

        Raises :class:`ServiceRefused`.
        """
        jobs = Jobs(self, handlers)
        try:
            async with contextlib.aclosing(self.commands()) as commands:
                async for command in commands:
                    await jobs.take(command)
        finally:
            await jobs.close()

    async def ready(self, command: Warm) -> bool:
        """Acknowledge a partition as warm; retry until the service answers.

        Return False if the handoff is over: it was aborted, and AbortWarm follows. Raises
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
        return await self._answered("ReleaseFailed", request)

    async def failed(self, command: Warm, reason: str) -> bool:
        """Report that this consumer cannot warm the partition.

        Return False if the handoff is over. Raises :class:`ServiceRefused`.
        """
        return await self._answered("WarmFailed", self._requests.failed(command, reason))

    async def replicas(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Report all replicas that are held now. Raises :class:`ServiceRefused`."""
        await self._call("ReportReplicas", self._requests.replicas(partitions))

    async def progress(self, command: Warm, progress: float) -> None:
        """Report the warm-up's progress, from 0 to 1, in a single call whose errors are ignored."""
        with contextlib.suppress(grpc.aio.AioRpcError, ServiceRefused):
            await self._once("ReportProgress", self._requests.progress(command, progress))

    async def leave(self) -> bool:
        """Hand all partitions over; return whether there is any partition to hand over.

        :meth:`commands` ends when the hand-over is done, at the latest after ``Retry.leave_s``. The
        remaining partitions are then reported as :class:`Lost`. They go to other consumers when
        this registration's time to live is over. Raises :class:`ServiceRefused`.
        """
        if not self._is_leaving:
            self._is_leaving = True
            self._beside(self._leave_late())
        try:
            async with asyncio.timeout(self._retry.leave_s):
                answer = await self._call("Deregister", self._requests.farewell())
        except (TimeoutError, NotFound):
            return False
        if answer.action == pb.SHUTDOWN_NOW:
            self._queue.put_nowait(None)
            return False
        return True

    async def _leave_late(self) -> None:
        """End a leave after ``Retry.leave_s``."""
        await asyncio.sleep(self._retry.leave_s)
        left = sorted(self.holdings.owned)
        log.warning(
            "%s: could not hand over all partitions within %g s: %d partitions (%s) go to other "
            "consumers when this registration's time to live is over",
            self.name,
            self._retry.leave_s,
            len(left),
            ", ".join(map(str, left[:5])),
        )
        self._give_up()
        self._queue.put_nowait(None)

    async def close(self) -> None:
        """Close the connection; without :meth:`leave` the session lives for its time to live."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.cancel()
            await stream.code()  # gRPC's own tasks end with the stream
        if self._channel is not None:
            channel, self._channel, self._stub = self._channel, None, None
            await channel.close()

    async def _stay(self) -> None:
        """Hold one stream after another, until this consumer is drained or refused."""
        attempt = 0
        while True:
            try:
                if await self._hold_one(self._retry.answer_s * 2.0 ** min(attempt, MOST_DOUBLED)):
                    # Status OK: leave() or an operator has drained this consumer.
                    self._queue.put_nowait(None)
                    return
                log.info("%s: the service does not answer", self.name)
            except ServiceRefused as error:
                if isinstance(error, Replaced | Expelled):
                    self._give_up()
                self._queue.put_nowait(error)
                return
            except grpc.aio.AioRpcError as error:
                log.info("%s: %s: %s", self.name, error.code().name, error.details())
            except OSError as error:
                if not self.streams:
                    raise
                # The file of a token or a certificate may be missing while it is replaced.
                log.warning("%s: cannot register again: %s", self.name, error)
            attempt = 0 if self._is_registered else attempt
            self._is_registered, self._stream = False, None
            await asyncio.sleep(self._retry.wait(attempt, self._chance))
            attempt += 1

    async def _hold_one(self, patience_s: float) -> bool:
        """Register, and read until the stream ends.

        Return True after status OK, False without an answer. Raises the stream's error.
        """
        await self.close()
        self._channel = self._access.open(self.targets[self._turn % len(self.targets)])
        self._turn += 1
        self._stub = KafkaAssignerStub(self._channel)
        sent_at, is_first = self._clock(), True
        request = self._registration.message(
            self.name,
            self.incarnation,
            returns=self.streams > 0,
            former=self.holdings.former(),
        )
        request.group = self.group
        self._stream = self._stub.Register(request, metadata=self._access.metadata())
        # A stopped instance accepts the call and never answers. Later, heartbeats detect it.
        patience = asyncio.get_running_loop().call_later(patience_s, self._stream.cancel)
        try:
            async for message in self._stream:
                self._heard_at = self._clock()
                if is_first:
                    patience.cancel()
                    lives = await self._lives_until(message.assignment, sent_at)
                    self._registered(message.assignment, lives)
                self._take(message, is_first=is_first)
                is_first = False
        except asyncio.CancelledError:
            # Either the silent stream was cancelled, or this task.
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            return False
        except grpc.aio.AioRpcError as error:
            if (refused := refusal(error)) is not None:
                raise refused from error
            raise
        finally:
            patience.cancel()
        return True

    async def _lives_until(self, said: pb.AssignmentUpdate, sent_at: float) -> float:
        """Return the time until which the new registration surely lives.

        The time counts from the request, and a busy service answers late. A heartbeat then shows
        that the registration lives; without the heartbeat its time would be over at once.
        """
        # The first service sends no lives_ms: its registration lives as long as the stream.
        lives_s = said.lives_ms / 1000 if said.lives_ms else math.inf
        until, now = sent_at + lives_s, self._clock()
        if until - now < lives_s / 2:
            with contextlib.suppress(grpc.aio.AioRpcError, ServiceRefused):
                request = self._requests.heartbeat(said.session_id, None)
                answer = await self._once("Heartbeat", request, timeout=lives_s / 2)
                if answer.known:
                    until = max(until, now + answer.lives_ms / 1000)
        return until

    def _registered(self, said: pb.AssignmentUpdate, until: float) -> None:
        self.streams += 1
        self._standbys.clear()
        self._session_id, self._is_registered = said.session_id, True
        self._check_time()
        self._lives_s = said.lives_ms / 1000 if said.lives_ms else math.inf
        self._is_pulsing = said.pulse_ms > 0
        self.holdings.begin(until)
        self._wake.set()
        if self._is_leaving:
            self._beside(self._leave_again())

    def _take(self, message: pb.AssignmentCommand, *, is_first: bool) -> None:
        if message.HasField("assignment"):
            said = message.assignment
            change = self.holdings.update(
                grants_of(said),
                map(partition_of, said.unassigned),
                snapshot=said.snapshot or is_first,
                more=said.more,
            )
            if change is not None and (is_first or change.added or change.removed):
                self._queue.put_nowait(change)
            return
        if message.HasField("standby"):
            self._standbys.extend(map(partition_of, message.standby.standbys))
            if not message.standby.more:
                self._queue.put_nowait(Standbys(tuple(self._standbys)))
                self._standbys.clear()
            return
        command = other_command(message)
        if isinstance(command, Warm | Release):
            self._take_handoff(command)
        elif command is not None:
            if isinstance(command, AbortWarm):
                self._told.pop((Warm, command.partition), None)
            self._queue.put_nowait(command)

    def _take_handoff(self, command: Warm | Release) -> None:
        """Queue a new command; for a repeated command, repeat the acknowledgement, if any."""
        key = (type(command), command.partition)
        if self._told.get(key) == command:
            if (acked := self._acked.get(key)) is not None:
                self._beside(self._acknowledge_again(*acked))
            return
        self._told[key] = command
        self._acked.pop(key, None)
        if isinstance(command, Release):
            self.holdings.release(command)
        self._queue.put_nowait(command)

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.create_task(work)
        self._again.add(job)
        job.add_done_callback(self._again.discard)

    async def _leave_again(self) -> None:
        """Deregister again: the first Deregister went to a session that is over."""
        with contextlib.suppress(ServiceRefused, grpc.aio.AioRpcError):
            answer = await self._once("Deregister", self._requests.farewell())
            if answer.action == pb.SHUTDOWN_NOW:
                self._queue.put_nowait(None)

    async def _beat(self) -> None:
        """Send six heartbeats in each time to live; end the stream on failure or silence.

        A registration waits for its turn if many arrive at once. Meanwhile the heartbeats renew the
        previous session, at the same instance.
        """
        while True:
            if not self._session_id or self._lives_s == math.inf:
                self._wake.clear()
                await self._wake.wait()
                continue
            every = self._lives_s / 6
            await asyncio.sleep(every)
            sent_at, session = self._clock(), self._session_id
            try:
                request = self._requests.heartbeat(session, self.holdings.held())
                answer = await self._once("Heartbeat", request, timeout=every)
            except (Replaced, Expelled) as error:
                self._give_up()
                self._queue.put_nowait(error)
                return
            except (grpc.aio.AioRpcError, ServiceRefused):
                is_well = self._clock() < self.holdings.until - self._lives_s / 2
            else:
                is_well = answer.known
                if self._check_time():
                    is_well = False  # too late: the lost partitions need a new registration
                elif is_well and session == self._session_id:
                    self.holdings.confirm(sent_at + answer.lives_ms / 1000)
            if not self._is_registered or session != self._session_id or self._stream is None:
                continue
            is_deaf = self._is_pulsing and self._clock() - self._heard_at > self._lives_s / 2
            if is_deaf:
                log.info("%s: the stream is silent; connecting to another instance", self.name)
            if is_deaf or not is_well:
                self._stream.cancel()

    async def _fence(self) -> None:
        """Report the lost partitions when the session's time is over; begin a new session."""
        while True:
            left = self.holdings.until - self._clock()
            await asyncio.sleep(min(max(left, 0.02), 1.0))
            # A registration that waits for its turn begins a new session anyway.
            if self._check_time() and self._is_registered and self._stream is not None:
                self._stream.cancel()

    def _give_up(self) -> None:
        """End the session now: all partitions are lost, even if time is left."""
        self.holdings.begin(-math.inf)
        self._check_time()

    def _check_time(self) -> bool:
        """Return whether the session's time has just ended; queue its partitions as Lost."""
        lost = self.holdings.expire(self._clock())
        if lost is None:
            return False
        # Forget the releases: the service repeats the commands whose answers it still awaits.
        self._told = {key: command for key, command in self._told.items() if key[0] is Warm}
        self._queue.put_nowait(lost)
        return True

    async def _acknowledge(self, method: str, request: Any, command: Warm | Release) -> bool:
        self._acked[type(command), command.partition] = (method, request)
        return await self._answered(method, request)

    async def _answered(self, method: str, request: Any) -> bool:
        """Send an answer; return whether the handoff was still open.

        A handoff that was aborted meanwhile is not an error of the consumer.
        """
        try:
            await self._call(method, request)
        except (NotFound, WrongPhase) as error:
            log.info("%s: %s came too late: %s", self.name, method, error)
            return False
        return True

    async def _acknowledge_again(self, method: str, request: Any) -> None:
        """Repeat an acknowledgement that was lost: the service has repeated its command."""
        with contextlib.suppress(ServiceRefused, grpc.aio.AioRpcError):
            await self._once(method, request)

    async def _call(self, method: str, request: Any) -> Any:
        """Retry until an answer comes. Raises ServiceRefused."""
        attempt = 0
        while True:
            try:
                return await self._once(method, request)
            except grpc.aio.AioRpcError as error:
                log.info("%s: %s: %s", method, error.code().name, error.details())
            await asyncio.sleep(self._retry.wait(attempt, self._chance))
            attempt += 1

    async def _once(self, method: str, request: Any, *, timeout: float = CALL_S) -> Any:
        while self._stub is None:
            if self._has_ended:
                raise NotFound(f"{self.name}: its session has ended, and its connection")
            await asyncio.sleep(0.02)
        try:
            return await getattr(self._stub, method)(
                request, timeout=timeout, metadata=self._access.metadata()
            )
        except OSError as error:
            raise _unavailable(f"could not read the token: {error}") from error
        except grpc.aio.AioRpcError as error:
            if (refused := refusal(error)) is not None:
                raise refused from error
            raise
        except (asyncio.CancelledError, grpc.aio.UsageError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The channel was closed during the call: a new stream has replaced it.
            raise _unavailable("the connection ended") from None


def _unavailable(why: str) -> grpc.aio.AioRpcError:
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, why)
