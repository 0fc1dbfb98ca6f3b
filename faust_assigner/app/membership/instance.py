"""Static members (KIP-345): end a replaced member, and accept a former assignment after a new subscription.

Two workers with the same ``consumer_group_instance_id`` would replace each other for ever, and each would
process records of the other. Kafka answers FENCED_INSTANCE_ID to the replaced worker, but only if its request
carries the instance id. aiokafka's heartbeats and commits do not carry the id, so the broker answers
UNKNOWN_MEMBER_ID, as after an expired session. aiokafka then joins again as a new member, which replaces the
other worker. So before a static member joins again, it sends a heartbeat with its member id and its instance
id. The answer shows whether a different worker holds the instance id.

A static member that returns within its session timeout gets its former assignment without a rebalance, even
if its subscription has changed. If the assignment has an unsubscribed topic, for example after a deploy that
removes an agent, aiokafka's coordination task ends for good. This module removes the unsubscribed topics from
the assignment. ``FollowUp`` then requests a rebalance for the new subscription.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import GroupCoordinatorNotAvailableError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.types import Int16, Int32, Schema, String
from mode import get_logger

if TYPE_CHECKING:
    from aiokafka.consumer.group_coordinator import GroupCoordinator
    from aiokafka.protocol.api import RequestStruct, Response
    from faust.types.app import AppT
    from faust.types.transports import ConsumerT

logger = get_logger(__name__)

#: Kafka's code of FENCED_INSTANCE_ID, which aiokafka does not know.
FENCED_INSTANCE_ID = 82


class InstanceFenced(Exception):
    """A different worker has joined the group with this worker's instance id."""


class HeartbeatResponse(Response):  # type: ignore[misc]
    """The answer to Heartbeat, version 3."""

    API_KEY = 12
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16))


class HeartbeatRequestV3(RequestStruct):  # type: ignore[misc]
    """Heartbeat version 3, the first version with an instance id."""

    API_KEY = 12
    API_VERSION = 3
    RESPONSE_TYPE = HeartbeatResponse
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("generation_id", Int32),
        ("member_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
    )


class StaticHeartbeat(Request[HeartbeatRequestV3]):  # type: ignore[misc]
    """A heartbeat that carries the instance id."""

    API_KEY = 12

    def __init__(self, *fields: object) -> None:
        self._fields = fields

    def build(self, request_struct_class: type[HeartbeatRequestV3]) -> HeartbeatRequestV3:
        """Return the request as aiokafka encodes it."""
        return request_struct_class(*self._fields)


class InstanceGuard:
    """The sender of the requests of a static member's group coordinator.

    If a different worker holds the instance id, the guard calls ``end`` with the reason, on the consumer's
    thread.
    """

    def __init__(
        self, coordinator: GroupCoordinator, end: Callable[[InstanceFenced], None]
    ) -> None:
        self._coordinator, self._end = coordinator, end
        #: The generation and member id of the last join. None before the first join, and after a heartbeat
        #: has shown that no other worker holds the instance id.
        self._joined: tuple[int, str] | None = None

    async def send(self, request: Request[RequestStruct]) -> Response:
        """Send ``request``; if a different worker holds the instance id, end this worker instead."""
        is_join = isinstance(request, JoinGroupRequest)
        if is_join and self._joined and request._member_id == JoinGroupRequest.UNKNOWN_MEMBER_ID:
            await self._ask(*self._joined)
            self._joined = None
        response = await self._send(request)
        if is_join and response.error_code == 0:
            self._joined = response.generation_id, response.member_id
        elif isinstance(request, JoinGroupRequest | SyncGroupRequest):
            await self._check(response)
        return response

    async def _send(self, request: Request[RequestStruct]) -> Response:
        return await type(self._coordinator)._send_req(self._coordinator, request)

    async def _ask(self, generation: int, member_id: str) -> None:
        coordinator = self._coordinator
        await self._check(
            await self._send(
                StaticHeartbeat(
                    coordinator.group_id, generation, member_id, coordinator._group_instance_id
                )
            )
        )

    async def _check(self, response: Response) -> None:
        if response.error_code != FENCED_INSTANCE_ID:
            return
        coordinator = self._coordinator
        reason = InstanceFenced(
            f"Another worker has joined the group {coordinator.group_id} with this worker's "
            f"consumer_group_instance_id {coordinator._group_instance_id!r} (FENCED_INSTANCE_ID). "
            "This worker ends and processes nothing more. Give each worker an instance id of its own"
        )
        logger.error("%s", reason)
        self._end(reason)
        await coordinator._closing  # this future is done when the worker ends
        raise GroupCoordinatorNotAvailableError


def guard_instance(consumer: ConsumerT, app: AppT) -> None:
    """Make ``consumer`` end ``app`` once a different worker holds its instance id.

    The consumer has been started and has no subscription yet. Without an instance id this has no effect.
    """
    coordinator = consumer._coordinator
    if getattr(coordinator, "_group_instance_id", None) is not None:
        coordinator._send_req = InstanceGuard(coordinator, partial(_crash, app)).send
        coordinator._on_join_complete = partial(_complete, coordinator)


async def _complete(
    coordinator: GroupCoordinator, generation: int, member_id: str, protocol: str, answer: bytes
) -> None:
    """Accept the group's answer, without the topics to which this member does not subscribe."""
    topics = coordinator._subscription.subscription.topics
    await type(coordinator)._on_join_complete(
        coordinator, generation, member_id, protocol, _keep_subscribed(answer, topics)
    )


def _keep_subscribed(answer: bytes, topics: Collection[str]) -> bytes:
    said = ConsumerProtocolMemberAssignment.decode(answer)
    kept = [(topic, numbers) for topic, numbers in said.assignment if topic in topics]
    if len(kept) == len(said.assignment):
        return answer
    logger.info(
        "The group's answer contains topics to which this static member subscribed before its "
        "restart; they are left out: %s",
        sorted({topic for topic, _ in said.assignment} - set(topics)),
    )
    within: bytes = ConsumerProtocolMemberAssignment(said.version, kept, said.user_data).encode()
    return within


def _crash(app: AppT, reason: InstanceFenced) -> None:
    asyncio.run_coroutine_threadsafe(app.crash(reason), app.loop)
