"""Metadata and FindCoordinator: this broker leads all partitions and coordinates all groups."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import answers, internal_topics, limits
from faust_assigner.broker.api.call import Api, Call, Encoded, Values
from faust_assigner.broker.api.operations import cluster_operations, topic_operations
from faust_assigner.broker.api.refusals import refuse
from faust_assigner.broker.security.acls import (
    CLUSTER,
    CREATE,
    DESCRIBE,
    GROUP,
    THE_CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
)
from faust_assigner.broker.storage.log import LEADER_EPOCH
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.topics import Refused, Topic

if TYPE_CHECKING:
    from kio.schema.metadata.v13.request import MetadataRequest

METADATA: Final = 3
FIND_COORDINATOR: Final = 10
GROUP_KEY, TRANSACTION_KEY = 0, 1
IDS_SINCE: Final = 12  # the first version of Metadata that looks topics up by id
PARTITION_BYTES: Final = 40  # estimated size of one partition in an answer
CACHED_TOPICS: Final = 1_000  # requests for more topics are rare and would need long cache keys
#: Key type -> type of resource, and the error for a peer without the right to describe the resource.
COORDINATED: Final = {
    GROUP_KEY: (GROUP, ErrorCode.group_authorization_failed),
    TRANSACTION_KEY: (TRANSACTIONAL_ID, ErrorCode.transactional_id_authorization_failed),
}
#: The internal topic that Kafka creates at the first look-up of each key type.
CREATED: Final = {GROUP_KEY: internal_topics.OFFSETS, TRANSACTION_KEY: internal_topics.TRANSACTIONS}
Wanted = tuple[str | None, uuid.UUID | None]


async def metadata(call: Call, request: MetadataRequest) -> Encoded | Values:
    """Return topics by name or id, each once. A null list (in version 0: an empty list) means all topics.

    Versions 10 and 11 have the fields for topic ids, but only names are valid there, as in Kafka.
    """
    node = call.node
    wanted: tuple[Wanted, ...] | None = None
    if request.topics is not None and (request.topics or call.version > 0):
        wanted = tuple(
            dict.fromkeys((t.name, getattr(t, "topic_id", None)) for t in request.topics)
        )
    if call.version < IDS_SINCE and any(name is None or key for name, key in wanted or ()):
        return refuse(METADATA, call.version, request, ErrorCode.invalid_request)
    may_create = bool(getattr(request, "allow_auto_topic_creation", True))
    barred: frozenset[str] = frozenset()
    if wanted and may_create and node.settings.auto_create_topics_enable:
        barred = await _create_missing_topics(call, wanted)
    host, port = node.address_for(call.peer.local_host, call.peer.protocol)
    wants_operations = bool(getattr(request, "include_topic_authorized_operations", False))
    for_cluster = cluster_operations(call, request)

    async def make() -> bytes:
        values = {
            "brokers": [broker_values(call)],
            "cluster_id": node.cluster_id,
            "controller_id": node.settings.node_id,
            "topics": await _topics(call, request, wanted, barred),
            "cluster_authorized_operations": for_cluster,
        }

        def encode() -> bytes:
            return answers.encode_response(METADATA, call.version, values)

        is_long = answers.is_long(values, limits.INLINE_ELEMENTS, limits.INLINE_BYTES)
        return await node.crunch(encode) if is_long else encode()

    is_checked = node.authorizer is not None  # then the answer depends on the peer's rights
    if is_checked or (wanted is not None and len(wanted) > CACHED_TOPICS):
        return Encoded(await make())
    key = (call.version, wanted, host, port, wants_operations, for_cluster)
    # The call that makes the answer may need a place in the throttle, so a waiting call gives up its own.
    return Encoded(await call.throttle.wait_outside(node.metadata_cache.get(key, make)))


async def _create_missing_topics(call: Call, wanted: Sequence[Wanted]) -> frozenset[str]:
    """Create missing topics; return the names that the peer may describe, but not create."""
    barred = set()
    may_all = call.may(CREATE, CLUSTER, THE_CLUSTER)
    for name, _ in wanted:
        if name and call.node.catalogue.get(name) is None and call.may(DESCRIBE, TOPIC, name):
            if not (may_all or call.may(CREATE, TOPIC, name)):
                barred.add(name)
                continue
            if internal_topics.is_internal(name):
                internal_topics.ensure(call.node.catalogue, call.node.settings, name)
                continue
            try:
                call.node.catalogue.create(name, -1, {})
                call.node.counters["topics_auto_created"] += 1
            except (Refused, StoreFailed):
                continue  # the answer below reports the missing topic
            finally:
                await call.throttle.checkpoint()
    return frozenset(barred)


async def _topics(
    call: Call, request: MetadataRequest, wanted: Sequence[Wanted] | None, barred: frozenset[str]
) -> list[Values]:
    """Return the topics, with an error for each topic that the peer may not describe or create.

    A request for all topics (``wanted`` is None) returns only the topics that the peer may describe.
    """
    catalogue = call.node.catalogue
    if wanted is None:
        wanted = [(t.name, None) for t in catalogue if call.may(DESCRIBE, TOPIC, t.name)]
    answers: dict[tuple[str | None, uuid.UUID | None], Values] = {}
    for name, topic_id in wanted:
        topic = catalogue.get(name) if name is not None else catalogue.by_id(topic_id)
        known = name if topic is None else topic.name
        if known is not None and (known in barred or not call.may(DESCRIBE, TOPIC, known)):
            error = ErrorCode.topic_authorization_failed
            answers[name, topic_id] = {"error_code": error, "name": name, "topic_id": topic_id}
        elif topic is not None:
            if (topic.name, None) not in answers:
                answers[topic.name, None] = _topic_values(
                    call, topic, topic_operations(call, request, topic.name)
                )
                await call.throttle.checkpoint(PARTITION_BYTES * len(topic.partitions))
        elif name is None:
            answers[None, topic_id] = {
                "error_code": ErrorCode.unknown_topic_id,
                "name": None,
                "topic_id": topic_id,
            }
        else:
            legal = limits.topic_name_problem(name) is None
            error = (
                ErrorCode.unknown_topic_or_partition if legal else ErrorCode.invalid_topic_exception
            )
            operations = topic_operations(call, request, name)
            values = {"error_code": error, "name": name, "topic_authorized_operations": operations}
            answers[name, None] = values
            await call.throttle.checkpoint()
    return list(answers.values())


def _topic_values(call: Call, topic: Topic, operations: int) -> Values:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": internal_topics.is_internal(topic.name),
        "topic_authorized_operations": operations,
        "partitions": [partition_values(call, number) for number in range(len(topic.partitions))],
    }


def partition_values(call: Call, number: int) -> Values:
    """Return the metadata of a partition: this broker is its leader and only replica."""
    me = (call.node.settings.node_id,)
    return {
        "error_code": ErrorCode.none,
        "partition_index": number,
        "leader_id": me[0],
        "leader_epoch": LEADER_EPOCH,
        "replica_nodes": me,
        "isr_nodes": me,
    }


def broker_values(call: Call) -> Values:
    """Return this broker's id and address, as advertised to the client."""
    host, port = call.node.address_for(call.peer.local_host, call.peer.protocol)
    return {
        "node_id": call.node.settings.node_id,
        "broker_id": call.node.settings.node_id,
        "host": host,
        "port": port,
        "rack": None,
    }


async def find_coordinator(call: Call, request: Any) -> Values:
    """Return this broker as the coordinator of every group and every transactional id."""
    key_type = int(getattr(request, "key_type", GROUP_KEY))
    if call.version < 4:
        return _coordinator(call, request.key, key_type)
    coordinators = []
    for key in dict.fromkeys(request.coordinator_keys):
        coordinators.append(_coordinator(call, key, key_type))
        await call.throttle.checkpoint()
    return {"coordinators": coordinators}


def _coordinator(call: Call, key: str, key_type: int) -> Values:
    error, message = ErrorCode.none, None
    if key_type not in (GROUP_KEY, TRANSACTION_KEY):
        error, message = ErrorCode.invalid_request, f"unknown coordinator key type {key_type}"
    elif key_type == GROUP_KEY and not limits.is_group_id(key):
        error, message = ErrorCode.invalid_group_id, "the group id is empty or too long"
    elif not limits.is_group_id(key):
        error, message = ErrorCode.invalid_request, "the transactional id is empty or too long"
    else:
        kind, denied = COORDINATED[key_type]
        if not call.may(DESCRIBE, kind, key):
            error, message = denied, "the client lacks the right to describe this id"
    if error is not ErrorCode.none:
        return {
            "key": key,
            "error_code": error,
            "error_message": message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    internal_topics.ensure(call.node.catalogue, call.node.settings, CREATED[key_type])
    return {"key": key, "error_code": error, "error_message": None, **broker_values(call)}


APIS: Final = (
    Api(METADATA, "Metadata", 0, 13, metadata),
    Api(FIND_COORDINATOR, "FindCoordinator", 0, 6, find_coordinator),
)
