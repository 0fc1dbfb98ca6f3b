"""Sends JoinGroup and SyncGroup on a separate connection, and heartbeats meanwhile.

Both requests wait for other members. The time from JoinGroup to the answer to SyncGroup is a round.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.protocol.group import JoinGroupRequest
from aiokafka.util import create_task
from mode import get_logger

from faust_assigner.app.membership.beside_round import BESIDE
from faust_assigner.wire.join import COOPERATIVE, EAGER

if TYPE_CHECKING:
    from aiokafka.consumer.group_coordinator import GroupCoordinator
    from aiokafka.protocol.api import Request, RequestStruct, Response

    from faust_assigner.app.membership.cooperative_member import CooperativeMember

logger = get_logger(__name__)

#: The name of the connection for JoinGroup and SyncGroup. Kafka answers the requests of one connection in
#: turn, so commits and heartbeats on the same connection would wait until the round is over.
_ROUNDS = "rounds"


async def send_in_round(
    coordinator: GroupCoordinator,
    member: CooperativeMember,
    heartbeat_s: float,
    request: Request[RequestStruct],
) -> Response:
    """Send JoinGroup or SyncGroup; meanwhile send heartbeats if this member keeps its partitions.

    The member processes kept partitions during the round (KIP-429). An answered heartbeat shows that the
    group still has this member. After a session timeout without an answer the streams stop.

    Raises aiokafka's errors, for example GroupCoordinatorNotAvailableError without a known coordinator.
    """
    if coordinator.coordinator_id is None:
        raise errors.GroupCoordinatorNotAvailableError
    if isinstance(request, JoinGroupRequest):
        # aiokafka sends one JoinGroup for each assignor name; put both names into one request.
        said = [metadata for name, metadata in request._group_protocols if name == EAGER]
        names = (COOPERATIVE, EAGER) if member.offers else (EAGER,)
        # An app's own assignor class may have its own protocol name; its rounds are eager.
        if said:
            request._group_protocols = [(name, said[0]) for name in names]
    kind = type(request).__name__.removesuffix("Request")
    beating = create_task(_send_heartbeats(coordinator, member, heartbeat_s))
    try:
        with member.listener.waiting(f"the answer to {kind}"):
            return await coordinator._client.send(
                coordinator.coordinator_id, request, group=_ROUNDS
            )
    except errors.KafkaError as error:
        logger.error(
            "Error sending %s to node %s [%s]: looking for the coordinator again",
            type(request).__name__,
            coordinator.coordinator_id,
            error,
        )
        coordinator.coordinator_dead()
        raise
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def _send_heartbeats(
    coordinator: GroupCoordinator, member: CooperativeMember, heartbeat_s: float
) -> None:
    """Send heartbeats while partitions are kept; their answers do not affect the round."""
    BESIDE.set(coordinator.generation)
    while member.own() is not None and not member.gave_up:
        await asyncio.sleep(heartbeat_s)
        with contextlib.suppress(errors.KafkaError):
            await coordinator.ensure_coordinator_known()
            await coordinator._do_heartbeat()
