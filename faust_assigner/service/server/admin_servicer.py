"""Serves the operators' RPCs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.auth import Authenticator
from faust_assigner.service.server.convert import plans, states
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.limits import check_plan
from faust_assigner.service.server.requests import consumer_of, partition_of
from faust_assigner.service.server.servicer import refusals_as_status
from faust_assigner.service.serving.orders import Orders
from faust_assigner.service.tasks import first

if TYPE_CHECKING:
    from faust_assigner.service.server.auth import Context

#: Seconds between two states of a watch. Within this time all callers get the same state.
TOGETHER_S: Final = 0.2
#: Seconds between two states of a watch while the store does not answer.
SILENT_S: Final = 15.0


class OfGroup(Protocol):
    """A request to one group."""

    group: str


class AdminServicer:
    """``kafka_assigner.v1.KafkaAssignerAdmin``: for administrators.

    Without authentication every caller is an administrator.
    """

    def __init__(self, groups: Groups, authenticator: Authenticator) -> None:
        self._groups = groups
        self._authenticator = authenticator
        self._made: dict[str, tuple[int, float, list[pb.State]]] = {}

    def _asked(self, request: OfGroup, context: Context) -> AssignerNode:
        """Return the node of the request's group.

        Raises WrongCaller, Unauthenticated, NotFound and BadRequest.
        """
        self._authenticator.caller(context).administering()
        return self._groups.of(request.group)

    async def GetState(
        self, request: pb.GetStateRequest, context: Context
    ) -> AsyncIterator[pb.State]:
        """Stream the current state."""
        async with refusals_as_status(context):
            node = self._asked(request, context)
            for part in await self._state(request.group, node):
                yield part

    async def WatchState(
        self, request: pb.GetStateRequest, context: Context
    ) -> AsyncIterator[pb.State]:
        """Stream the state now and after every change, until the caller ends the call.

        While the store does not answer, stream the last known state every :data:`SILENT_S` seconds.
        """
        async with refusals_as_status(context):
            node = self._asked(request, context)
            with node.overview.changes() as changed:
                while True:
                    changed.clear()
                    for part in await self._state(request.group, node):
                        yield part
                    await _news(node, changed)
                    await asyncio.sleep(TOGETHER_S)

    async def _state(self, group: str, node: AssignerNode) -> list[pb.State]:
        """Return the state's messages, computed once for all callers to save processor time."""
        revision, now = node.revision, asyncio.get_running_loop().time()
        made_of, made_at, parts = self._made.get(group, (-1, 0.0, []))
        if made_of != revision or now > made_at + TOGETHER_S:
            leader = await node.overview.leader()
            parts = list(
                states(
                    leader.holder if leader else "",
                    revision,
                    await node.overview.topics(),
                    await node.overview.consumers(),
                    await node.overview.assignments(),
                    await node.overview.handoffs(),
                    [entry.value for _, entry in sorted(node.view.pins.items())],
                    node.view.pause,
                    group=group,
                    age_s=node.condition.silence_s,
                )
            )
            self._made[group] = (revision, now, parts)
        return parts

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        """Exclude a consumer from targets."""
        async with refusals_as_status(context):
            node = self._asked(request, context)
            action = await node.drain(request.consumer_name)
            revision = node.revision
        return pb.DrainResponse(action=pb.DeregisterAction.Name(action.value), revision=revision)

    async def Undrain(self, request: pb.UndrainRequest, context: Context) -> pb.OrderResponse:
        """Cancel a drain."""
        return await self._ordered(
            request, context, lambda orders: orders.undrain(request.consumer_name)
        )

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.OrderResponse:
        """Stop moves for balance."""
        return await self._ordered(request, context, lambda orders: orders.pause(request.reason))

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.OrderResponse:
        """End a pause."""
        return await self._ordered(request, context, lambda orders: orders.resume())

    async def Pin(self, request: pb.PinRequest, context: Context) -> pb.OrderResponse:
        """Keep a partition on a consumer."""
        return await self._ordered(
            request,
            context,
            lambda orders: orders.pin(partition_of(request.partition), request.consumer_name),
        )

    async def Unpin(self, request: pb.UnpinRequest, context: Context) -> pb.OrderResponse:
        """End a pin or a pending move."""
        return await self._ordered(
            request, context, lambda orders: orders.unpin(partition_of(request.partition))
        )

    async def Move(self, request: pb.PinRequest, context: Context) -> pb.OrderResponse:
        """Hand a partition to a consumer once."""
        return await self._ordered(
            request,
            context,
            lambda orders: orders.move(partition_of(request.partition), request.consumer_name),
        )

    async def _ordered(
        self, request: OfGroup, context: Context, order: Callable[[Orders], Awaitable[int]]
    ) -> pb.OrderResponse:
        async with refusals_as_status(context):
            node = self._asked(request, context)
            revision = await order(node.orders)
        return pb.OrderResponse(revision=revision)

    async def AbortHandoff(
        self, request: pb.AbortHandoffRequest, context: Context
    ) -> pb.AbortHandoffResponse:
        """Abort a handoff."""
        async with refusals_as_status(context):
            node = self._asked(request, context)
            revision = await node.acks.abort(
                partition_of(request.partition), request.handoff_id or None
            )
        return pb.AbortHandoffResponse(revision=revision)

    async def SetTopic(self, request: pb.Topic, context: Context) -> pb.SetTopicResponse:
        """Add a topic, or change its partition count."""
        async with refusals_as_status(context):
            node = self._asked(request, context)
            revision = await node.set_topic(request.topic, request.partition_count)
        return pb.SetTopicResponse(revision=revision)

    async def RemoveTopic(
        self, request: pb.RemoveTopicRequest, context: Context
    ) -> pb.RemoveTopicResponse:
        """Remove a topic."""
        async with refusals_as_status(context):
            node = self._asked(request, context)
            revision = await node.remove_topic(request.topic)
        return pb.RemoveTopicResponse(revision=revision)

    async def Plan(
        self, request: pb.PlanRequest, context: Context
    ) -> AsyncIterator[pb.PlanResponse]:
        """Stream the moves of a rebalance in a dry run."""
        async with refusals_as_status(context):
            node = self._asked(request, context)
            check_plan(request)
            revision = node.revision
            moves = await node.overview.plan(
                without=list(request.without),
                extra=[await consumer_of(one) for one in request.extra],
            )
            for part in plans(moves, revision):
                yield part


async def _news(node: AssignerNode, changed: asyncio.Event) -> None:
    """Return after a change; while the store does not answer, return every :data:`SILENT_S`."""
    while True:
        await first(changed.wait(), asyncio.sleep(SILENT_S))
        if changed.is_set() or not node.condition.hears_store:
            return
