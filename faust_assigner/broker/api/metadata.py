"""Metadata and FindCoordinator: where everything is (here)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import limits, wire
from faust_assigner.broker.api.call import Api, Call, Encoded, Values
from faust_assigner.broker.log import LEADER_EPOCH
from faust_assigner.broker.store import StoreFailed
from faust_assigner.broker.topics import Refused, Topic

METADATA: Final = 3
FIND_COORDINATOR: Final = 10
GROUP_KEY, TRANSACTION_KEY = 0, 1
UNKNOWN_OPERATIONS: Final = -(2**31)
CACHED_TOPICS: Final = 1_000  # longer questions are rare, and would make long keys
Wanted = tuple[str | None, uuid.UUID | None]


def metadata(call: Call, request: Any) -> Encoded:
    """Topics by name or id; all of them for null (in version 0: for an empty list)."""
    node = call.node
    wanted: tuple[Wanted, ...] | None = None
    if request.topics is not None and (request.topics or call.version > 0):
        wanted = tuple((t.name, getattr(t, "topic_id", None)) for t in request.topics)
    may_create = bool(getattr(request, "allow_auto_topic_creation", True))
    if wanted and may_create and node.settings.auto_create_topics_enable:
        _auto_create(call, wanted)

    def make() -> bytes:
        return wire.encode_response(
            METADATA,
            call.version,
            0,
            {
                "brokers": [broker_values(call)],
                "cluster_id": node.cluster_id,
                "controller_id": node.settings.node_id,
                "topics": _topics(call, wanted),
            },
        )

    if wanted is not None and len(wanted) > CACHED_TOPICS:
        return Encoded(make())
    return Encoded(node.cached_metadata((call.version, wanted), make))


def _auto_create(call: Call, wanted: Sequence[Wanted]) -> None:
    for name, _ in wanted:
        if name and call.node.catalogue.get(name) is None:
            try:
                call.node.catalogue.create(name, -1, {})
                call.node.counters["topics_auto_created"] += 1
            except (Refused, StoreFailed):
                continue  # the answer below says that it is not there


def _topics(call: Call, wanted: Sequence[Wanted] | None) -> list[Values]:
    catalogue = call.node.catalogue
    if wanted is None:
        return [_topic(call, topic) for topic in catalogue]
    answers: list[Values] = []
    for name, topic_id in wanted:
        topic = catalogue.get(name) if name is not None else catalogue.by_id(topic_id)
        if topic is not None:
            answers.append(_topic(call, topic))
        elif name is None:
            answers.append({"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": topic_id})
        else:
            legal = limits.topic_name_problem(name) is None
            error = ErrorCode.unknown_topic_or_partition if legal else ErrorCode.invalid_topic_exception
            answers.append({"error_code": error, "name": name})
    return answers


def _topic(call: Call, topic: Topic) -> Values:
    me = (call.node.settings.node_id,)
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "topic_authorized_operations": UNKNOWN_OPERATIONS,
        "partitions": [
            {
                "error_code": ErrorCode.none,
                "partition_index": number,
                "leader_id": me[0],
                "leader_epoch": LEADER_EPOCH,
                "replica_nodes": me,
                "isr_nodes": me,
            }
            for number in range(len(topic.partitions))
        ],
    }


def broker_values(call: Call) -> Values:
    """This broker, as metadata names it."""
    return {
        "node_id": call.node.settings.node_id,
        "broker_id": call.node.settings.node_id,
        "host": call.node.host,
        "port": call.node.port,
        "rack": None,
    }


def find_coordinator(call: Call, request: Any) -> Values:
    """This broker for every group; transactions are refused, so that a producer fails at once."""
    key_type = int(getattr(request, "key_type", GROUP_KEY))
    if call.version >= 4:
        return {"coordinators": [_coordinator(call, key, key_type) for key in request.coordinator_keys]}
    return _coordinator(call, request.key, key_type)


def _coordinator(call: Call, key: str, key_type: int) -> Values:
    error, message = ErrorCode.none, None
    if key_type == TRANSACTION_KEY:
        error, message = ErrorCode.transactional_id_authorization_failed, "this broker has no transactions"
    elif key_type != GROUP_KEY:
        error, message = ErrorCode.invalid_request, f"unknown coordinator key type {key_type}"
    elif not limits.is_group_id(key):
        error, message = ErrorCode.invalid_group_id, "the group id is empty or too long"
    if error is not ErrorCode.none:
        return {
            "key": key,
            "error_code": error,
            "error_message": message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    return {"key": key, "error_code": error, "error_message": None, **broker_values(call)}


APIS: Final = (
    Api(METADATA, "Metadata", 0, 13, metadata),
    Api(FIND_COORDINATOR, "FindCoordinator", 0, 6, find_coordinator),
)
