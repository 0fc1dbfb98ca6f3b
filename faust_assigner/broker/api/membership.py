"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the APIs of the classic group protocol."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import answers, limits
from faust_assigner.broker.api.call import Again, Api, Call, Encoded, Values
from faust_assigner.broker.groups import group_store
from faust_assigner.broker.node import Node
from faust_assigner.broker.wire import milliseconds
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    Request,
    SyncGroup,
    Token,
)

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.sync_group.v5.request import SyncGroupRequest

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
NO_TOKEN: Final = -1  # a group answers heartbeats at once, so it needs no token for a later answer


async def apply_to_group(call: Call, group_id: str, event_for: Callable[[Token], Request]) -> Any:
    """Apply an event to a group; return the group's reply, after a wait if the group parks the request."""
    replies: list[fx.Reply] = []
    waiting: list[asyncio.Future[fx.Reply]] = []

    def answered(reply: fx.Reply) -> None:
        if not waiting:
            replies.append(reply)
        elif not waiting[0].done():
            waiting[0].set_result(reply)

    call.node.groups.ask(group_id, event_for, answered, call.peer)
    if replies:
        return replies[0]
    waiting.append(asyncio.get_running_loop().create_future())
    return await waiting[0]


async def join_group(call: Call, request: JoinGroupRequest) -> Values:
    """Join a group; the answer waits for the end of the join phase.

    A new member id consists of the client or instance id and a random part.
    """
    instance_id = getattr(request, "group_instance_id", None)
    session_ms = milliseconds(request.session_timeout)
    rebalance_ms = milliseconds(request.rebalance_timeout) if call.version >= 1 else session_ms
    size = sum(len(protocol.metadata) for protocol in request.protocols)
    if (
        len(request.protocols) > limits.MAX_PROTOCOLS_PER_MEMBER
        # no group with such a member can be stored
        or size // group_store.STORED_PER_RECORD > call.node.settings.message_max_bytes
    ):
        return {"error_code": ErrorCode.invalid_request, "member_id": request.member_id}
    prefix = instance_id if instance_id is not None else call.client_id

    def event(token: Token) -> JoinGroup:
        return JoinGroup(
            token,
            request.member_id,
            f"{prefix}-{uuid.uuid4()}",
            tuple(Protocol(p.name, bytes(p.metadata)) for p in request.protocols),
            request.protocol_type,
            session_ms,
            max(rebalance_ms, 0),
            instance_id,
            call.client_id,
            call.client_host,
            getattr(request, "reason", None),
            needs_known_id=call.version >= 4 and instance_id is None,
            can_skip_assignment=call.version >= 9,
        )

    return _join_values(call, await apply_to_group(call, request.group_id, event))


def _join_values(call: Call, reply: fx.JoinReply) -> Values:
    no_name = None if call.version >= 7 else ""
    return {
        "error_code": ErrorCode(reply.error),
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name if reply.protocol_name is not None else no_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {"member_id": m.member_id, "group_instance_id": m.instance_id, "metadata": m.metadata}
            for m in reply.members
        ],
    }


async def sync_group(call: Call, request: SyncGroupRequest) -> Values:
    """Return a member's assignment; followers wait until the leader's assignment is stored."""
    if call.version >= 5 and None in (request.protocol_type, request.protocol_name):
        return {"error_code": ErrorCode.inconsistent_group_protocol}  # required since KIP-559
    assignments = {a.member_id: bytes(a.assignment) for a in request.assignments}

    def event(token: Token) -> SyncGroup:
        return SyncGroup(
            token,
            request.member_id,
            request.generation_id,
            getattr(request, "group_instance_id", None),
            getattr(request, "protocol_type", None),
            getattr(request, "protocol_name", None),
            assignments,
        )

    def values(reply: fx.SyncReply) -> Values:
        return {
            "error_code": ErrorCode(reply.error),
            "protocol_type": reply.protocol_type,
            "protocol_name": reply.protocol_name,
            "assignment": reply.assignment,
        }

    return values(await apply_to_group(call, request.group_id, event))


def heartbeat(call: Call, request: HeartbeatRequest) -> Encoded:
    """Answer a heartbeat at once."""
    return heartbeat_answerer(call.node, call.version, request)()


def heartbeat_answerer(node: Node, version: int, request: HeartbeatRequest) -> Again:
    """Return a function that answers this heartbeat and all identical later heartbeats."""
    group_id, instance_id = request.group_id, getattr(request, "group_instance_id", None)
    event = Heartbeat(NO_TOKEN, request.member_id, request.generation_id, instance_id)
    return lambda: _heartbeat_answer(version, node.groups.heartbeat(group_id, event))


@functools.cache
def _heartbeat_answer(version: int, error: Code) -> Encoded:
    """Return the answer to a heartbeat, cached because it is the most frequent of all answers."""
    return Encoded(answers.encode_response(HEARTBEAT, version, {"error_code": ErrorCode(error)}))


async def leave_group(call: Call, request: Any) -> Values:
    """Remove one member (before version 3) or a list of members."""
    if call.version >= 3 and len(request.members) > limits.MAX_LEAVERS:
        return {"error_code": ErrorCode.invalid_request}
    if call.version >= 3:
        leavers = tuple(
            Leaver(m.member_id, m.group_instance_id, getattr(m, "reason", None))
            for m in request.members
        )
    else:
        leavers = (Leaver(request.member_id),)

    def values(reply: fx.LeaveReply) -> Values:
        error = reply.error
        if call.version < 3 and error is Code.NONE and reply.results:
            error = reply.results[0][2]
        return {
            "error_code": ErrorCode(error),
            "members": [
                {
                    "member_id": member_id,
                    "group_instance_id": instance_id,
                    "error_code": ErrorCode(outcome),
                }
                for member_id, instance_id, outcome in reply.results
            ],
        }

    return values(
        await apply_to_group(call, request.group_id, lambda token: LeaveGroup(token, leavers))
    )


APIS: Final = (
    Api(JOIN_GROUP, "JoinGroup", 0, 9, join_group),
    Api(HEARTBEAT, "Heartbeat", 0, 4, heartbeat, again=heartbeat_answerer),
    Api(LEAVE_GROUP, "LeaveGroup", 0, 5, leave_group),
    Api(SYNC_GROUP, "SyncGroup", 0, 5, sync_group),
)
