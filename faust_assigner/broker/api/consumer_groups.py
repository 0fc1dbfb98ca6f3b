"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the APIs of the consumer group protocol (KIP-848)."""

from __future__ import annotations

import datetime
import functools
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import answers
from faust_assigner.broker.api.call import Api, Call, Encoded, Values
from faust_assigner.broker.api.group_admin import described_groups
from faust_assigner.broker.api.membership import apply_to_group
from faust_assigner.broker.limits import INLINE_ELEMENTS
from faust_assigner.broker.security.acls import DESCRIBE, TOPIC
from faust_assigner.broker.wire import milliseconds
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.consumer.refusals import JOIN
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import ConsumerGroupHeartbeat, Token
from faust_assigner.coordinator.group_views import GroupView, MemberView

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest

CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
MEMBER_BYTES: Final = 300  # estimated size of a member in an answer, without its partitions
PARTITION_BYTES: Final = 4
MEMBER_TYPES: Final = {"classic": 0, "consumer": 1}
HIDDEN_TOPICS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)
NO_ID: Final = uuid.UUID(int=0)
KEPT_ID_CHARS: Final = 256  # ids may have 32,767 characters; answers to longer ids are not cached


async def consumer_group_heartbeat(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> Values | Encoded:
    """Handle a join, a heartbeat, an acknowledgement or a leave. No answer waits for other members."""
    if not call.node.settings.serves_consumer_protocol:
        return {"error_code": ErrorCode.unsupported_version}
    names = request.subscribed_topic_names
    if not all(call.may(DESCRIBE, TOPIC, name) for name in names or ()):
        return {"error_code": ErrorCode.topic_authorization_failed}
    owned = await _owned_partitions(call, request)

    def event(token: Token) -> ConsumerGroupHeartbeat:
        return ConsumerGroupHeartbeat(
            token,
            request.member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            milliseconds(request.rebalance_timeout),
            tuple(names) if names is not None else None,
            getattr(request, "subscribed_topic_regex", None),
            request.server_assignor,
            owned,
            call.client_id,
            call.client_host,
            str(uuid.uuid4()) if not request.member_id else "",
            call.version,
            call.peer.principal,
        )

    reply: fx.ConsumerHeartbeatReply = await apply_to_group(call, request.group_id, event)
    if reply.error is Code.NONE and reply.assignment is None:
        made = (
            _unchanged_answer
            if len(reply.member_id) <= KEPT_ID_CHARS
            else _unchanged_answer.__wrapped__
        )
        return made(call.version, reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms)
    return _reply_values(call, reply)


async def _owned_partitions(call: Call, request: Any) -> Partitions | None:
    """Return the partitions that a member reports, each once; a long list is sorted in a thread."""
    listed = request.topic_partitions
    if listed is None:
        return None
    if request.member_epoch == JOIN:
        # a joining member owns nothing: one partition is enough to refuse the request
        listed = _first_partition(listed)
    if sum(len(topic.partitions) for topic in listed) > INLINE_ELEMENTS:
        return await call.node.crunch(lambda: _partitions_once(listed))
    return _partitions_once(listed)


def _first_partition(listed: Iterable[Any]) -> Iterable[Any]:
    found = next((topic for topic in listed if topic.partitions), None)
    return () if found is None else (replace(found, partitions=found.partitions[:1]),)


def _partitions_once(listed: Iterable[Any]) -> Partitions:
    owned: dict[bytes, set[int]] = {}
    for topic in listed:
        owned.setdefault((topic.topic_id or NO_ID).bytes, set()).update(topic.partitions)
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in owned.items() if numbers}


@functools.lru_cache(maxsize=8_192)
def _unchanged_answer(version: int, member_id: str, epoch: int, interval_ms: int) -> Encoded:
    """Return the answer without a new assignment, cached because most heartbeats get this answer."""
    values = {
        "error_code": ErrorCode.none,
        "member_id": member_id,
        "member_epoch": epoch,
        "heartbeat_interval": datetime.timedelta(milliseconds=interval_ms),
        "assignment": None,
    }
    return Encoded(answers.encode_response(CONSUMER_GROUP_HEARTBEAT, version, values))


def _reply_values(call: Call, reply: fx.ConsumerHeartbeatReply) -> Values:
    if reply.error is not Code.NONE:
        return {"error_code": ErrorCode(reply.error), "error_message": reply.error_message}
    return {
        "error_code": ErrorCode.none,
        "member_id": reply.member_id,
        "member_epoch": reply.member_epoch,
        "heartbeat_interval": datetime.timedelta(milliseconds=reply.heartbeat_interval_ms),
        "assignment": {
            "topic_partitions": [
                {"topic_id": uuid.UUID(bytes=topic_id), "partitions": numbers}
                for topic_id, numbers in (reply.assignment or {}).items()
            ]
        },
    }


async def consumer_group_describe(call: Call, request: ConsumerGroupDescribeRequest) -> Values:
    """Describe consumer groups: epochs, assignor, and members with current and target assignments."""
    return await described_groups(call, request, request.group_ids, _describe, _member_size)


def _member_size(member: Values) -> int:
    parts = (
        *member["assignment"]["topic_partitions"],
        *member["target_assignment"]["topic_partitions"],
    )
    return MEMBER_BYTES + PARTITION_BYTES * sum(len(part["partitions"]) for part in parts)


def _describe(call: Call, group_id: str) -> Values:
    if not call.node.settings.serves_consumer_protocol:
        return {"group_id": group_id, "error_code": ErrorCode.unsupported_version}
    if not group_id:
        return {"group_id": group_id, "error_code": ErrorCode.invalid_group_id}
    group = call.node.groups.get(group_id)
    if group is None or group.group_type != "consumer":
        why = "not found" if group is None else "is not a consumer group"
        return {
            "group_id": group_id,
            "error_code": ErrorCode.group_id_not_found,
            "error_message": f"Group {group_id} {why}.",
        }
    view: GroupView = group.describe()
    if call.node.authorizer is not None and not _may_describe_all(call, view):
        return {
            "group_id": group_id,
            "error_code": ErrorCode.topic_authorization_failed,
            "error_message": HIDDEN_TOPICS,
        }
    return {
        "error_code": ErrorCode.none,
        "group_id": group_id,
        "group_state": view.state,
        "group_epoch": view.epoch,
        "assignment_epoch": view.target_epoch,
        "assignor_name": view.protocol_name,
        "members": [_member_values(call, member) for member in view.members],
    }


def _may_describe_all(call: Call, view: GroupView) -> bool:
    """Whether the peer may describe all topics that the members subscribe to, hold or are to get."""
    names = {name for member in view.members for name in member.subscribed_topic_names}
    for member in view.members:
        for partitions in (_partitions_of(member), member.target):
            names.update(topic["topic_name"] for topic in _with_topic_names(call, partitions))
    return all(call.may(DESCRIBE, TOPIC, name) for name in names)


def _member_values(call: Call, member: MemberView) -> Values:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": {"topic_partitions": _with_topic_names(call, _partitions_of(member))},
        "target_assignment": {"topic_partitions": _with_topic_names(call, member.target)},
        "member_type": MEMBER_TYPES[member.protocol],
    }


def _partitions_of(member: MemberView) -> Partitions:
    """Return a member's partitions, including partitions whose revocation is unconfirmed."""
    held = dict(member.assigned)
    for topic_id, numbers in member.revoking.items():
        held[topic_id] = tuple(sorted({*held.get(topic_id, ()), *numbers}))
    return held


def _with_topic_names(call: Call, partitions: Partitions) -> list[Values]:
    """Add topic names to partitions; omit deleted topics, as Kafka does."""
    named: list[Values] = []
    for key, numbers in partitions.items():
        topic = call.node.catalogue.by_id(uuid.UUID(bytes=key))
        if topic is not None:
            named.append(
                {"topic_id": topic.topic_id, "topic_name": topic.name, "partitions": numbers}
            )
    return named


APIS: Final = (
    Api(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, consumer_group_heartbeat),
    Api(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, consumer_group_describe),
)
