"""The client for operators: read the service's state, check its health, and give orders."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from faust_assigner.errors import TryAgain
from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.messages import to_message
from faust_assigner.service.faults import refusal
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerAdminStub

if TYPE_CHECKING:
    from google.protobuf.message import Message

CALL_S: Final = 30.0
#: Pings that detect a silent instance or connection: without them, a watch of an idle group would
#: wait forever. The service allows a ping every 5 s.
KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
#: Role -> the name of the service in gRPC's health check.
ROLES: Final[Mapping[str, str]] = {
    "serving": "kafka_assigner.v1.KafkaAssigner",
    "leader": "leader",
    "process": "",
    "readiness": "readiness",
    "liveness": "liveness",
}

#: The errors of a call that no instance has answered.
NO_ANSWER: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Operator:
    """Calls to one service, for one of its groups.

    Every method raises ServiceRefused, TryAgain if the instance does not answer, and OSError if the
    file of the token cannot be read.
    """

    def __init__(self, target: str, access: Access | None = None, *, group: str = "") -> None:
        self._target = target
        self._group = group
        self._access = access or Access()
        self._channel = self._access.open(target, KEEPALIVE)
        self._stub: Any = KafkaAssignerAdminStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def state(self) -> pb.State:
        """Return all topics, consumers, assignments and handoffs."""
        whole = pb.State()
        with self._raising_own_errors():
            async for part in self._stub.GetState(
                pb.GetStateRequest(group=self._group),
                metadata=self._access.metadata(),
                timeout=CALL_S,
            ):
                whole.MergeFrom(part)
        return whole

    async def watch(self) -> AsyncIterator[pb.State]:
        """Yield the state now, and again after every change."""
        whole = pb.State()
        with self._raising_own_errors():
            async for part in self._stub.WatchState(
                pb.GetStateRequest(group=self._group), metadata=self._access.metadata()
            ):
                whole.MergeFrom(part)
                if not part.more:
                    yield whole
                    whole = pb.State()

    async def drain(self, consumer_name: str) -> bool:
        """Exclude a consumer from targets; return whether it has partitions to hand over."""
        answer = await self._call("Drain", pb.DrainRequest(consumer_name=consumer_name))
        return bool(answer.action == pb.WAIT_FOR_DRAIN)

    async def undrain(self, consumer_name: str) -> int:
        """Cancel a drain. Like every order, return the revision from which the order holds."""
        return await self._order("Undrain", pb.UndrainRequest(consumer_name=consumer_name))

    async def pause(self, reason: str = "") -> int:
        """Stop all moves for balance until :meth:`resume`."""
        return await self._order("Pause", pb.PauseRequest(reason=reason))

    async def resume(self) -> int:
        """End a pause."""
        return await self._order("Resume", pb.ResumeRequest())

    async def pin(self, partition: tuple[str, int], consumer_name: str) -> int:
        """Keep the partition on the consumer whenever this consumer is registered."""
        request = pb.PinRequest(partition=to_message(partition), consumer_name=consumer_name)
        return await self._order("Pin", request)

    async def unpin(self, partition: tuple[str, int]) -> int:
        """End a pin, or a move that is still pending."""
        return await self._order("Unpin", pb.UnpinRequest(partition=to_message(partition)))

    async def move(self, partition: tuple[str, int], consumer_name: str) -> int:
        """Hand the partition to the consumer once."""
        request = pb.PinRequest(partition=to_message(partition), consumer_name=consumer_name)
        return await self._order("Move", request)

    async def _order(self, method: str, request: Message) -> int:
        return int((await self._call(method, request)).revision)

    async def abort(self, partition: tuple[str, int], handoff_id: int = 0) -> None:
        """Abort the partition's handoff."""
        await self._call(
            "AbortHandoff",
            pb.AbortHandoffRequest(partition=to_message(partition), handoff_id=handoff_id),
        )

    async def set_topic(self, topic: str, partition_count: int) -> int:
        """Add a topic to the service, or change its partition count."""
        return await self._order("SetTopic", pb.Topic(topic=topic, partition_count=partition_count))

    async def remove_topic(self, topic: str) -> int:
        """Remove a topic from the service; the owners lose its partitions."""
        return await self._order("RemoveTopic", pb.RemoveTopicRequest(topic=topic))

    async def plan(
        self, *, without: Sequence[str] = (), extra: Sequence[str] = ()
    ) -> list[pb.Move]:
        """Return the moves of a rebalance in a dry run; the service writes nothing.

        The plan excludes the consumers ``without`` and includes the consumers ``extra``.
        """
        request = pb.PlanRequest(
            group=self._group,
            without=without,
            extra=[pb.RegisterRequest(consumer_name=name) for name in extra],
        )
        moves: list[pb.Move] = []
        with self._raising_own_errors():
            async for part in self._stub.Plan(
                request, metadata=self._access.metadata(), timeout=CALL_S
            ):
                moves.extend(part.moves)
        return moves

    async def _call(self, method: str, request: Any) -> Any:
        request.group = self._group
        with self._raising_own_errors():
            return await getattr(self._stub, method)(
                request, metadata=self._access.metadata(), timeout=CALL_S
            )

    @contextlib.contextmanager
    def _raising_own_errors(self) -> Any:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            if (refused := refusal(error)) is not None:
                raise refused from error
            raise TryAgain(
                f"the service at {self._target} did not answer: {error.code().name}: "
                f"{error.details()}"
            ) from error


async def is_serving(target: str, role: str, access: Access, *, patience_s: float = 2.0) -> bool:
    """Return whether the instance reports SERVING for the role within ``patience_s`` seconds."""
    return await health_problem(target, role, access, patience_s=patience_s) is None


async def health_problem(
    target: str, role: str, access: Access, *, patience_s: float = 2.0
) -> str | None:
    """Return why the instance does not report SERVING for the role; None if it does.

    The text distinguishes an instance that is not healthy from an instance that does not answer.
    """
    async with access.open(target) as channel:
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=ROLES[role]), timeout=patience_s
            )
        except grpc.aio.AioRpcError as error:
            told = f"{error.code().name}: {error.details()}"
            if error.code() in NO_ANSWER:
                return f"the instance did not answer within {patience_s:g} s: {told}"
            return f"the instance refused the check: {told}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return f"the instance answered {name}"
