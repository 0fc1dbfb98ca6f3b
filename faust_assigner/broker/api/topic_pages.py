"""DescribeTopicPartitions: topics by name, in pages of a limited number of partitions (KIP-966)."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import internal_topics, limits
from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.metadata import PARTITION_BYTES, partition_values
from faust_assigner.broker.api.operations import authorized
from faust_assigner.broker.security.acls import DESCRIBE, TOPIC

DESCRIBE_TOPIC_PARTITIONS: Final = 75
NO_ELR: Final[Values] = {
    "eligible_leader_replicas": (),
    "last_known_elr": (),
}  # Kafka's tools fail on null
MAX_PARTITIONS: Final = 2_000  # of one page, Kafka's max.request.partition.size.limit


async def describe_topic_partitions(call: Call, request: Any) -> Values:
    """Return one page; an empty list means all topics. A full page ends with a cursor to the next one."""
    catalogue, cursor = call.node.catalogue, request.cursor
    names = sorted({t.name for t in request.topics} or {t.name for t in catalogue})
    hidden = {name for name in names if not call.may(DESCRIBE, TOPIC, name)}
    if not request.topics:
        names, hidden = [name for name in names if name not in hidden], set()
    first = 0
    if cursor is not None:
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            refused = [
                {"error_code": ErrorCode.invalid_request, "name": t.name} for t in request.topics
            ]
            return {"topics": refused}
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    room = max(min(request.response_partition_limit, MAX_PARTITIONS), 1)
    topics: list[Values] = []
    for name in names:
        if room <= 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        begin, first = first, 0  # the cursor's partition counts in its own topic alone
        if name in hidden:
            error = ErrorCode.topic_authorization_failed
            topics.append({"error_code": error, "name": name, "topic_id": None})
            await call.throttle.turn()
            continue
        topic = catalogue.get(name)
        if topic is None:
            topics.append(_missing(call, name))
            await call.throttle.turn()
            continue
        shown = range(len(topic.partitions))[begin : begin + room]
        topics.append(
            {
                "error_code": ErrorCode.none,
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": internal_topics.is_internal(name),
                "partitions": [{**partition_values(call, number), **NO_ELR} for number in shown],
                "topic_authorized_operations": authorized(call, TOPIC, name),
            }
        )
        await call.throttle.turn(PARTITION_BYTES * len(shown))
        room -= len(shown)
        if begin + len(shown) < len(topic.partitions):
            cursor_values = {"topic_name": name, "partition_index": begin + len(shown)}
            return {"topics": topics, "next_cursor": cursor_values}
    return {"topics": topics, "next_cursor": None}


def _missing(call: Call, name: str) -> Values:
    legal = limits.topic_name_problem(name) is None
    error = ErrorCode.unknown_topic_or_partition if legal else ErrorCode.invalid_topic_exception
    operations = authorized(call, TOPIC, name)
    return {
        "error_code": error,
        "name": name,
        "topic_id": None,
        "topic_authorized_operations": operations,
    }


APIS: Final = (
    Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, describe_topic_partitions),
)
