"""The APIs CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import internal_topics
from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.security.acls import (
    CLUSTER,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    THE_CLUSTER,
    TOPIC,
)
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.topics import Catalogue, Refused, Topic

if TYPE_CHECKING:
    from uuid import UUID

    from kio.schema.create_partitions.v3.request import (
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )
    from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
    from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS = 19, 20, 21, 37
DEFAULT: Final = -1
HIGH_WATERMARK: Final = -1
TOPIC_BYTES: Final = 2_000  # estimated size of a created topic in an answer, with its configs


def _values_or_refusal(action: Callable[..., Values], *arguments: object) -> Values:
    """Run an action: return its values, or the error and message of its refusal."""
    try:
        return {"error_code": ErrorCode.none, "error_message": None, **action(*arguments)}
    except Refused as refused:
        return {"error_code": refused.error, "error_message": refused.message}
    except StoreFailed as failed:
        return {"error_code": ErrorCode.kafka_storage_error, "error_message": str(failed)}


def _refuse_repeated(name: str, times: int) -> None:
    if times > 1:
        raise Refused(ErrorCode.invalid_request, f"topic {name!r} appears more than once")


async def create_topics(call: Call, request: CreateTopicsRequest) -> Values:
    """Create each topic independently; refuse topics beyond this broker's limits, with the reason."""
    names = Counter(topic.name for topic in request.topics)

    def create(wanted: CreatableTopic) -> Values:
        _refuse_repeated(wanted.name, names[wanted.name])
        count = _partition_count(call, wanted)
        configs = {c.name: c.value for c in wanted.configs if c.value is not None}
        topic = call.node.catalogue.create(
            wanted.name, count, configs, validate_only=request.validate_only
        )
        if not call.may(DESCRIBE_CONFIGS, TOPIC, topic.name):
            error = ErrorCode.topic_authorization_failed
            return {"topic_id": topic.topic_id, "topic_config_error_code": error}
        return {
            "topic_id": topic.topic_id,
            "replication_factor": 1,
            "num_partitions": call.node.settings.num_partitions if count == DEFAULT else count,
            "configs": [
                {
                    "name": name,
                    "value": call.node.config(topic, name),
                    "read_only": False,
                    "config_source": 1 if name in topic.configs else 5,
                    "is_sensitive": False,
                }
                for name in call.node.defaults
            ],
        }

    answers = []
    for topic in {t.name: t for t in request.topics}.values():  # a repeated name is answered once
        values = {"name": topic.name, "num_partitions": -1, "replication_factor": -1}
        answers.append({**values, **_values_or_refusal(create, topic)})
        await call.throttle.checkpoint(TOPIC_BYTES)
    return {"topics": answers}


def _partition_count(call: Call, wanted: CreatableTopic) -> int:
    """Check the replication or the manual assignment; return the number of partitions (-1: default)."""
    if wanted.assignments:
        if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
            raise Refused(
                ErrorCode.invalid_request,
                "give either a partition count or a replica assignment, not both",
            )
        numbers = sorted(a.partition_index for a in wanted.assignments)
        if numbers != list(range(len(numbers))):
            raise Refused(
                ErrorCode.invalid_replica_assignment,
                "partitions must be numbered from 0 without gaps",
            )
        _check_replicas(call, wanted.assignments, len(numbers))
        return len(numbers)
    if wanted.replication_factor not in (DEFAULT, 1):
        raise Refused(
            ErrorCode.invalid_replication_factor,
            f"replication factor {wanted.replication_factor} is impossible, because there is 1 "
            "broker",
        )
    return int(wanted.num_partitions)


def _check_replicas(call: Call, assignments: Sequence[Any], partitions: int) -> None:
    """Check that this broker is every partition's only replica. Raises Refused."""
    me = call.node.settings.node_id
    if len(assignments) != partitions:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"the request has {len(assignments)} assignments for {partitions} new partitions",
        )
    if any(tuple(a.broker_ids) != (me,) for a in assignments):
        raise Refused(ErrorCode.invalid_replica_assignment, f"{me} is the only broker")


async def delete_topics(call: Call, request: Any) -> Values:
    """Delete topics by name, or by id since version 6, together with their committed offsets."""
    catalogue = call.node.catalogue
    if call.version >= 6:
        wanted = [(t.name, t.topic_id) for t in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    times = Counter(wanted)

    def delete(name: str | None, topic_id: UUID | None) -> Values:
        if times[name, topic_id] > 1:
            raise Refused(ErrorCode.invalid_request, "the topic appears more than once")
        if name is not None and topic_id is not None:
            raise Refused(ErrorCode.invalid_request, "give either a name or an id")
        if not call.node.settings.delete_topic_enable:
            raise Refused(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false")
        topic = catalogue.get(name) if name is not None else catalogue.by_id(topic_id)
        _check_deletion(call, name, topic)
        if topic is None:
            error = (
                ErrorCode.unknown_topic_or_partition
                if name is not None
                else ErrorCode.unknown_topic_id
            )
            raise Refused(error, "there is no such topic")
        catalogue.delete(topic)
        return {"name": topic.name, "topic_id": topic.topic_id}

    answers = []
    for name, topic_id in times:
        answer = {"name": name, "topic_id": topic_id, **_values_or_refusal(delete, name, topic_id)}
        answers.append(answer)
        if answer["error_code"] is ErrorCode.none:
            await call.throttle.wait_outside(call.node.drop_topic_offsets(answer["name"]))
        await call.throttle.checkpoint()
    call.node.space.freed()
    return {"responses": answers}


def _check_deletion(call: Call, name: str | None, topic: Topic | None) -> None:
    """Check the right to delete; a missing topic needs only the right to describe. Raises Refused."""
    known = name if topic is None else topic.name
    if known is None or call.may(DELETE, CLUSTER, THE_CLUSTER):
        return
    needed = DESCRIBE if topic is None else DELETE
    if not call.may(needed, TOPIC, known):
        raise Refused(
            ErrorCode.topic_authorization_failed, "the client lacks the right to delete this topic"
        )


async def create_partitions(call: Call, request: CreatePartitionsRequest) -> Values:
    """Add partitions to topics."""
    names = Counter(topic.name for topic in request.topics)

    def grow(wanted: CreatePartitionsTopic) -> Values:
        _refuse_repeated(wanted.name, names[wanted.name])
        topic = _existing_topic(call.node.catalogue, wanted.name)
        added = wanted.count - len(topic.partitions)
        if wanted.assignments is not None and added > 0:  # an invalid count is refused below
            _check_replicas(call, wanted.assignments, added)
        call.node.catalogue.grow(topic, wanted.count, validate_only=request.validate_only)
        return {}

    results = []
    for topic in {t.name: t for t in request.topics}.values():
        results.append({"name": topic.name, **_values_or_refusal(grow, topic)})
        await call.throttle.checkpoint()
    return {"results": results}


def _existing_topic(catalogue: Catalogue, name: str) -> Topic:
    topic = catalogue.get(name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
    return topic


async def delete_records(call: Call, request: DeleteRecordsRequest) -> Values:
    """Move log starts forward, for -1 to the high watermark.

    If a request names a partition several times, the last offset counts.
    """
    asked: dict[str, dict[int, Any]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(
            (part.partition_index, part) for part in topic.partitions
        )
    topics = []
    for name, parts in asked.items():
        answers = []
        for part in parts.values():
            answers.append(_trim_partition(call, name, part))
            await call.throttle.checkpoint()
        topics.append({"name": name, "partitions": answers})
    call.node.space.freed()
    return {"topics": topics}


def _trim_partition(call: Call, name: str, part: DeleteRecordsPartition) -> Values:
    topic = call.node.catalogue.get(name)
    log: PartitionLog | None = call.node.catalogue.partition(name, part.partition_index)
    values = {"partition_index": part.partition_index, "low_watermark": -1}
    if internal_topics.is_internal(name):
        return values | {"error_code": ErrorCode.invalid_topic_exception}
    if topic is None or log is None:
        return values | {"error_code": ErrorCode.unknown_topic_or_partition}
    policy = call.node.config(topic, "cleanup.policy")
    if "compact" in policy and "delete" not in policy:
        return values | {"error_code": ErrorCode.policy_violation}
    target = log.end_offset if part.offset == HIGH_WATERMARK else part.offset
    if not 0 <= target <= log.end_offset:
        return values | {"error_code": ErrorCode.offset_out_of_range}
    try:
        log.trim(target)
    except StoreFailed:
        return values | {"error_code": ErrorCode.kafka_storage_error}
    return values | {"low_watermark": log.start_offset, "error_code": ErrorCode.none}


APIS: Final = (
    Api(CREATE_TOPICS, "CreateTopics", 2, 7, create_topics),
    Api(DELETE_TOPICS, "DeleteTopics", 1, 6, delete_topics),
    Api(DELETE_RECORDS, "DeleteRecords", 0, 2, delete_records),
    Api(CREATE_PARTITIONS, "CreatePartitions", 0, 3, create_partitions),
)
