"""DescribeTopicPartitions: topics by name, in pages of a limited number of partitions (KIP-966)."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import internal_topics, limits
from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.metadata import PARTITION_BYTES, partition_values
from faust_assigner.broker.api.operations import authorized
from faust_assigner.broker.security.acls import DESCRIBE, TOPIC
from faust_assigner.broker.topics import Topic

DESCRIBE_TOPIC_PARTITIONS: Final = 75
#: The replica lists of a partition: empty and not null, because Kafka's tools fail on null.
NO_ELR: Final[Values] = {"eligible_leader_replicas": (), "last_known_elr": ()}
MAX_PARTITIONS: Final = 2_000  # in one page: Kafka's max.request.partition.size.limit


async def describe_topic_partitions(call: Call, request: Any) -> Values:
    """Return one page; an empty list means all topics. A full page ends with a cursor to the next page."""
    names, hidden = _asked_topics(call, request)
    first, cursor = 0, request.cursor
    if cursor is not None:
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            return {
                "topics": [
                    _refusal_values(t.name, ErrorCode.invalid_request) for t in request.topics
                ]
            }
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    room = max(min(request.response_partition_limit, MAX_PARTITIONS), 1)
    topics: list[Values] = []
    for name in names:
        if room <= 0:
            return {"topics": topics, "next_cursor": _cursor_values(name, 0)}
        begin, first = first, 0  # the cursor's partition applies only to the cursor's topic
        topic = None if name in hidden else call.node.catalogue.get(name)
        if topic is None:
            error = ErrorCode.topic_authorization_failed
            topics.append(_refusal_values(name, error) if name in hidden else _missing(call, name))
            await call.throttle.checkpoint()
            continue
        shown = range(len(topic.partitions))[begin : begin + room]
        topics.append(_topic_values(call, topic, shown))
        await call.throttle.checkpoint(PARTITION_BYTES * len(shown))
        room -= len(shown)
        if begin + len(shown) < len(topic.partitions):
            return {"topics": topics, "next_cursor": _cursor_values(name, begin + len(shown))}
    return {"topics": topics, "next_cursor": None}


def _asked_topics(call: Call, request: Any) -> tuple[list[str], set[str]]:
    """Return the names in order, and the hidden names: the peer may not describe these topics.

    A request for all topics omits the hidden names without an error.
    """
    asked = {t.name for t in request.topics}
    names = sorted(asked or {t.name for t in call.node.catalogue})
    hidden = {name for name in names if not call.may(DESCRIBE, TOPIC, name)}
    return (names, hidden) if asked else ([name for name in names if name not in hidden], set())


def _cursor_values(name: str, partition: int) -> Values:
    return {"topic_name": name, "partition_index": partition}


def _topic_values(call: Call, topic: Topic, shown: range) -> Values:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": internal_topics.is_internal(topic.name),
        "partitions": [{**partition_values(call, number), **NO_ELR} for number in shown],
        "topic_authorized_operations": authorized(call, TOPIC, topic.name),
    }


def _refusal_values(name: str, error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "name": name, "topic_id": None}


def _missing(call: Call, name: str) -> Values:
    legal = limits.topic_name_problem(name) is None
    error = ErrorCode.unknown_topic_or_partition if legal else ErrorCode.invalid_topic_exception
    return _refusal_values(name, error) | {
        "topic_authorized_operations": authorized(call, TOPIC, name)
    }


APIS: Final = (
    Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, describe_topic_partitions),
)
