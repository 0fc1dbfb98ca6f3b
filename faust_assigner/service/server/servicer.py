"""Serves the consumers' RPCs: checks the caller, converts the request, and returns the answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Protocol

import grpc

from faust_assigner.service.commands import Assignment
from faust_assigner.service.digest import Held
from faust_assigner.service.errors import (
    Busy,
    NotReached,
    ServiceRefused,
    StoreError,
    expelled,
    replaced,
)
from faust_assigner.service.faults import code_of
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Ended
from faust_assigner.service.server.auth import Authenticator
from faust_assigner.service.server.convert import messages_of, routed
from faust_assigner.service.server.frequent import FrequentEvent
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.limits import check_counts
from faust_assigner.service.server.requests import by_topic, consumer_of, partition_of
from faust_assigner.service.serving.acks import Acks, Answer
from faust_assigner.service.serving.registry import Stream

if TYPE_CHECKING:
    from faust_assigner.service.server.auth import Context

log = logging.getLogger(__name__)

#: Calls that got no answer because of the store.
_UNANSWERED: Final = FrequentEvent()
#: The gRPC status for each end of a stream. After DRAINED, which has no entry, the status is OK.
ENDED = {
    Ended.REPLACED: grpc.StatusCode.ALREADY_EXISTS,
    Ended.AGAIN: grpc.StatusCode.UNAVAILABLE,
    Ended.EXPELLED: grpc.StatusCode.ABORTED,
    Ended.LEASE_LOST: grpc.StatusCode.UNAVAILABLE,
    Ended.STOPPING: grpc.StatusCode.UNAVAILABLE,
    Ended.CLOSED: grpc.StatusCode.CANCELLED,
}


@contextlib.asynccontextmanager
async def refusals_as_status(context: Context) -> AsyncIterator[None]:
    """Convert a refusal that the block raises into the call's status.

    Store errors and ``Busy`` become UNAVAILABLE: the caller may try again. ``NotReached`` becomes
    OUT_OF_RANGE, which a client must distinguish from an instance that does not answer.
    """
    try:
        yield
    except ServiceRefused as error:
        await context.abort(code_of(error), str(error))
    except Busy as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
    except NotReached as error:
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, str(error))
    except StoreError as error:
        # While the store is silent, each consumer calls several times in a time to live.
        if number := _UNANSWERED.count():
            log.warning(
                "%d calls since the last such line were answered with UNAVAILABLE, and their "
                "callers try again; the last one failed by %s: %s",
                number,
                type(error).__name__,
                error,
            )
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"{type(error).__name__}: {error}")


class OfConsumer(Protocol):
    """A request of one consumer of a group."""

    consumer_name: str
    group: str


class OfHandoff(OfConsumer, Protocol):
    """An answer of one consumer about a hand-off."""

    partition: pb.TopicPartition
    handoff_id: int
    incarnation: str


class ConsumerServicer:
    """``kafka_assigner.v1.KafkaAssigner``: the RPCs for consumers."""

    def __init__(self, groups: Groups, authenticator: Authenticator) -> None:
        self._groups = groups
        self._authenticator = authenticator

    async def Register(
        self, request: pb.RegisterRequest, context: Context
    ) -> AsyncIterator[pb.AssignmentCommand]:
        """Stream commands until the consumer or this instance ends the stream."""
        async with refusals_as_status(context):
            node, identity = self._asked(request, context)
            stream = await node.register(await consumer_of(request, identity))
            try:
                async for message in self._messages(node, stream, with_session=request.heartbeats):
                    yield message
            finally:
                await stream.close()
        if (
            code := ENDED.get(stream.ended or Ended.CLOSED)
        ) is not None and stream.ended is not None:
            await context.abort(code, _end_reason(node, stream, stream.ended))

    def _asked(self, request: OfConsumer, context: Context) -> tuple[AssignerNode, str]:
        """Return the node of the request's group, and the caller's identity there.

        Raises Unauthenticated, WrongCaller, NotFound and BadRequest; the caller is checked first.
        """
        identity = self._authenticator.caller(context).acting_as(
            request.consumer_name, request.group
        )
        return self._groups.of(request.group), identity

    async def _messages(
        self, node: AssignerNode, stream: Stream, *, with_session: bool
    ) -> AsyncIterator[pb.AssignmentCommand]:
        is_first = True
        async for command in stream:
            for message in messages_of(command):
                message.revision = stream.revision
                if is_first and isinstance(command, Assignment) and with_session:
                    message.assignment.session_id = stream.session
                    message.assignment.lives_ms = _to_ms(stream.lives_s)
                    message.assignment.pulse_ms = _to_ms(node.settings.pulse_s)
                is_first = False
                yield message

    async def WatchAssignments(
        self, request: pb.WatchAssignmentsRequest, context: Context
    ) -> AsyncIterator[pb.AssignmentsUpdate]:
        """Stream the partitions' owners until the caller ends the call.

        A caller needs a name that is valid in this group, or in all groups.
        """
        async with refusals_as_status(context):
            self._authenticator.caller(context).watching(request.group)
            node = self._groups.of(request.group)
            check_counts("the watch", flat=[request.topics])
            pulse_ms = _to_ms(node.settings.pulse_s)
            async with contextlib.aclosing(
                node.routes(request.topics, request.least_revision)  # type: ignore[type-var]
            ) as updates:
                async for update in updates:
                    for message in routed(update, pulse_ms):
                        yield message

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """Renew the consumer's registration."""
        async with refusals_as_status(context):
            node, identity = self._asked(request, context)
            said = request.held
            lives_s = await node.heartbeat(
                request.consumer_name,
                request.session_id,
                held=Held(said.count, said.digest) if request.HasField("held") else None,
                identity=identity,
                incarnation=request.incarnation,
            )
            revision = node.revision
        if lives_s is None:
            return pb.HeartbeatResponse(known=False, revision=revision)
        return pb.HeartbeatResponse(known=True, lives_ms=_to_ms(lives_s), revision=revision)

    @contextlib.asynccontextmanager
    async def _answering(
        self, request: OfHandoff, context: Context
    ) -> AsyncIterator[tuple[Acks, Answer]]:
        """Yield the node's :class:`Acks` and the request as an :class:`Answer`."""
        async with refusals_as_status(context):
            node, identity = self._asked(request, context)
            yield (
                node.acks,
                Answer(
                    request.consumer_name,
                    partition_of(request.partition),
                    request.handoff_id or None,
                    identity,
                    request.incarnation,
                ),
            )

    async def PartitionReady(
        self, request: pb.PartitionReadyRequest, context: Context
    ) -> pb.PartitionReadyResponse:
        """Record that the new owner is warm."""
        async with self._answering(request, context) as (acks, answer):
            return pb.PartitionReadyResponse(revision=await acks.ready(answer))

    async def PartitionReleased(
        self, request: pb.PartitionReleasedRequest, context: Context
    ) -> pb.PartitionReleasedResponse:
        """Record that the old owner released the partition."""
        async with self._answering(request, context) as (acks, answer):
            offset = request.final_offset if request.HasField("final_offset") else None
            return pb.PartitionReleasedResponse(revision=await acks.released(answer, offset))

    async def ReleaseFailed(
        self, request: pb.ReleaseFailedRequest, context: Context
    ) -> pb.ReleaseFailedResponse:
        """Record that the old owner cannot release the partition."""
        async with self._answering(request, context) as (acks, answer):
            revision = await acks.release_failed(answer, request.reason, request.epoch or None)
            return pb.ReleaseFailedResponse(revision=revision)

    async def WarmFailed(
        self, request: pb.WarmFailedRequest, context: Context
    ) -> pb.WarmFailedResponse:
        """Record that the new owner cannot warm the partition."""
        async with self._answering(request, context) as (acks, answer):
            return pb.WarmFailedResponse(revision=await acks.warm_failed(answer, request.reason))

    async def ReportProgress(
        self, request: pb.ReportProgressRequest, context: Context
    ) -> pb.ReportProgressResponse:
        """Record the progress of the new owner's warm-up."""
        async with self._answering(request, context) as (acks, answer):
            revision = await acks.progress(answer, request.progress)
            return pb.ReportProgressResponse(revision=revision)

    async def ReportReplicas(
        self, request: pb.ReportReplicasRequest, context: Context
    ) -> pb.ReportReplicasResponse:
        """Record the replicas that the consumer keeps warm."""
        async with refusals_as_status(context):
            node, identity = self._asked(request, context)
            check_counts(
                request.consumer_name, flat=[request.replicas], numbered=[request.replicas_by_topic]
            )
            replicas = await by_topic(request.replicas, request.replicas_by_topic)
            revision = await node.record_replicas(
                request.consumer_name, replicas, identity=identity, incarnation=request.incarnation
            )
        return pb.ReportReplicasResponse(revision=revision)

    async def Deregister(
        self, request: pb.DeregisterRequest, context: Context
    ) -> pb.DeregisterResponse:
        """Let the consumer leave: at once, or after it has handed all partitions over."""
        async with refusals_as_status(context):
            node, identity = self._asked(request, context)
            action = await node.deregister(
                request.consumer_name, identity=identity, incarnation=request.incarnation
            )
            revision = node.revision
        return pb.DeregisterResponse(
            action=pb.DeregisterAction.Name(action.value), revision=revision
        )


def _end_reason(node: AssignerNode, stream: Stream, ended: Ended) -> str:
    """Return the reason for a stream's end, with the process and, if replaced, its successor."""
    name, incarnation = stream.consumer_name, stream.incarnation
    if ended is Ended.EXPELLED:
        return str(expelled(name, incarnation))
    current = node.incarnation(name)
    if ended is Ended.REPLACED and current != incarnation:
        return str(replaced(name, incarnation, current))
    return str(ended.value)


def _to_ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
