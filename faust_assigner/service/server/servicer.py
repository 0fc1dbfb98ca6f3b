"""The RPCs of a consumer: who calls, what it asks for, what the node answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from faust_assigner.service.commands import Assignment
from faust_assigner.service.errors import (
    MAX_CLAIMS,
    Busy,
    ServiceRefused,
    StoreError,
    TooManyClaims,
    expelled,
    replaced,
)
from faust_assigner.service.faults import code_of
from faust_assigner.service.node import AssignerNode, CommandStream
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Ended
from faust_assigner.service.server.auth import Door
from faust_assigner.service.server.convert import by_topic, consumer_of, messages_of, partition_of
from faust_assigner.service.tasks import ended

log = logging.getLogger(__name__)

#: How a stream ends whose consumer did not end it; DRAINED ends well.
ENDED = {
    Ended.REPLACED: grpc.StatusCode.ALREADY_EXISTS,
    Ended.EXPELLED: grpc.StatusCode.ABORTED,
    Ended.LEASE_LOST: grpc.StatusCode.UNAVAILABLE,
    Ended.STOPPING: grpc.StatusCode.UNAVAILABLE,
    Ended.CLOSED: grpc.StatusCode.CANCELLED,
}


@contextlib.asynccontextmanager
async def spoken(context: Any) -> AsyncIterator[None]:
    """Refusals as the call's status; what the store did not do, and what there is no room for now, as
    UNAVAILABLE: the caller may try again."""
    try:
        yield
    except ServiceRefused as error:
        await context.abort(code_of(error), str(error))
    except Busy as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
    except StoreError as error:
        log.warning("%s: %s", type(error).__name__, error)
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"{type(error).__name__}: {error}")


@dataclass
class Session:
    """A consumer connected here; ``heard_at`` is when it last gave a sign of life, in seconds."""

    stream: CommandStream
    session_id: str
    heard_at: float


class ConsumerServicer:
    """``kafka_assigner.v1.KafkaAssigner``; ``clock`` gives seconds that never go back."""

    def __init__(self, node: AssignerNode, door: Door, clock: Callable[[], float]) -> None:
        self._node = node
        self._door = door
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._count = 0

    async def close(self) -> None:
        """Watch over nobody any more: registrations end with their leases."""
        for task in tuple(self._watches):
            await ended(task)

    async def Register(
        self,
        request: pb.RegisterRequest,
        context: Any,
    ) -> AsyncIterator[pb.AssignmentCommand]:
        """Commands until the consumer, or this instance, ends it."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            stream = await self._node.register(await consumer_of(request, identity))
            session = self._begin(stream)
            watch = self._watched(session) if request.heartbeats else None
            try:
                async for message in self._messages(session, with_session=request.heartbeats):
                    yield message
            finally:
                if self._sessions.get(stream.consumer_name) is session:
                    del self._sessions[stream.consumer_name]
                await stream.close()
                # A connection that broke is found late, and is no sign of life: the watch goes on.
                if watch is not None and stream.ended is not Ended.CLOSED:
                    watch.cancel()
        if (
            code := ENDED.get(stream.ended or Ended.CLOSED)
        ) is not None and stream.ended is not None:
            await context.abort(code, self._why(stream, stream.ended))

    def _why(self, stream: CommandStream, ended: Ended) -> str:
        """The text of a stream's end; it names the process, and the one that replaced it."""
        name, incarnation = stream.consumer_name, stream.incarnation
        if ended is Ended.EXPELLED:
            return str(expelled(name, incarnation))
        current = self._node.incarnation(name)
        if ended is Ended.REPLACED and current != incarnation:
            return str(replaced(name, incarnation, current))
        return str(ended.value)

    def _begin(self, stream: CommandStream) -> Session:
        self._count += 1
        session = Session(stream, f"{self._node.node_id}-{self._count}", self._clock())
        self._sessions[stream.consumer_name] = session
        return session

    async def _messages(
        self, session: Session, *, with_session: bool
    ) -> AsyncIterator[pb.AssignmentCommand]:
        is_first = True
        async for command in session.stream:
            for message in messages_of(command):
                if is_first and isinstance(command, Assignment) and with_session:
                    message.assignment.session_id = session.session_id
                    message.assignment.lives_ms = self._lives_ms(session)
                is_first = False
                yield message

    def _lives_ms(self, session: Session) -> int:
        return max(1, int(session.stream.lives_s * 1000))

    def _watched(self, session: Session) -> asyncio.Task[None]:
        task = asyncio.create_task(self._watch(session), name=f"watch {session.session_id}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        return task

    async def _watch(self, session: Session) -> None:
        """End the registration of a consumer that was not heard of for its time to live, connected or not."""
        ttl = self._node.settings.consumer_ttl_s
        while (left := session.heard_at + ttl - self._clock()) > 0:
            await asyncio.sleep(left)
        if self._sessions.get(session.stream.consumer_name, session) is not session:
            return  # it is back, and that session has a watch of its own
        log.warning("%s was not heard of for %g s", session.stream.consumer_name, ttl)
        await session.stream.expire()

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        """The consumer lives."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            self._node.check(request.consumer_name, identity, request.incarnation)
            session = self._sessions.get(request.consumer_name)
            if (
                session is None
                or session.session_id != request.session_id
                or session.stream.ended is not None
            ):
                return pb.HeartbeatResponse(known=False)
            session.heard_at = self._clock()
            return pb.HeartbeatResponse(known=True, lives_ms=self._lives_ms(session))

    async def PartitionReady(
        self,
        request: pb.PartitionReadyRequest,
        context: Any,
    ) -> pb.PartitionReadyResponse:
        """The new owner is warm."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            await self._node.partition_ready(
                request.consumer_name,
                partition_of(request.partition),
                handoff_id=request.handoff_id or None,
                identity=identity,
                incarnation=request.incarnation,
            )
        return pb.PartitionReadyResponse()

    async def PartitionReleased(
        self,
        request: pb.PartitionReleasedRequest,
        context: Any,
    ) -> pb.PartitionReleasedResponse:
        """The old owner let go."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            offset = request.final_offset if request.HasField("final_offset") else None
            await self._node.partition_released(
                request.consumer_name,
                partition_of(request.partition),
                handoff_id=request.handoff_id or None,
                offset=offset,
                identity=identity,
                incarnation=request.incarnation,
            )
        return pb.PartitionReleasedResponse()

    async def ReleaseFailed(
        self, request: pb.ReleaseFailedRequest, context: Any
    ) -> pb.ReleaseFailedResponse:
        """The old owner cannot release it."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            await self._node.release_failed(
                request.consumer_name,
                partition_of(request.partition),
                reason=request.reason[:1000],
                handoff_id=request.handoff_id or None,
                epoch=request.epoch or None,
                identity=identity,
                incarnation=request.incarnation,
            )
        return pb.ReleaseFailedResponse()

    async def WarmFailed(
        self, request: pb.WarmFailedRequest, context: Any
    ) -> pb.WarmFailedResponse:
        """The new owner cannot warm it."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            await self._node.warm_failed(
                request.consumer_name,
                partition_of(request.partition),
                reason=request.reason[:1000],
                handoff_id=request.handoff_id or None,
                identity=identity,
                incarnation=request.incarnation,
            )
        return pb.WarmFailedResponse()

    async def ReportProgress(
        self,
        request: pb.ReportProgressRequest,
        context: Any,
    ) -> pb.ReportProgressResponse:
        """How far the new owner is."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            await self._node.progress(
                request.consumer_name,
                partition_of(request.partition),
                request.progress,
                handoff_id=request.handoff_id or None,
                identity=identity,
                incarnation=request.incarnation,
            )
        return pb.ReportProgressResponse()

    async def ReportReplicas(
        self,
        request: pb.ReportReplicasRequest,
        context: Any,
    ) -> pb.ReportReplicasResponse:
        """What the consumer keeps warm."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            if len(request.replicas) > MAX_CLAIMS:
                raise TooManyClaims(request.consumer_name, len(request.replicas))
            replicas = await by_topic(request.replicas)
            await self._node.holds(
                request.consumer_name,
                replicas,
                identity=identity,
                incarnation=request.incarnation,
            )
        return pb.ReportReplicasResponse()

    async def Deregister(
        self, request: pb.DeregisterRequest, context: Any
    ) -> pb.DeregisterResponse:
        """Leave: at once, or after everything is handed over."""
        async with spoken(context):
            identity = self._door.caller(context).acting_as(request.consumer_name)
            action = await self._node.deregister(
                request.consumer_name, identity=identity, incarnation=request.incarnation
            )
        return pb.DeregisterResponse(action=pb.DeregisterAction.Name(action.value))
