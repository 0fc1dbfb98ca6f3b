"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, and was at a given time."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.log import LEADER_EPOCH, PartitionLog
from faust_assigner.broker.store import StoreFailed

LIST_OFFSETS: Final = 2
OFFSET_FOR_LEADER_EPOCH: Final = 23
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
UNKNOWN: Final = -1


def list_offsets(call: Call, request: Any) -> Values:
    """One offset per partition: by special timestamp, or of the first record not older than a time."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_partition(call, topic.name, part) for part in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _partition(call: Call, name: str, part: Any) -> Values:
    log = call.node.catalogue.partition(name, part.partition_index)
    values = {
        "partition_index": part.partition_index,
        "timestamp": UNKNOWN,
        "offset": UNKNOWN,
        "leader_epoch": UNKNOWN,
    }
    if log is None:
        return values | {"error_code": ErrorCode.unknown_topic_or_partition}
    if getattr(part, "current_leader_epoch", -1) > LEADER_EPOCH:
        return values | {"error_code": ErrorCode.unknown_leader_epoch}
    try:
        found = _find(log, part.timestamp)
    except StoreFailed:
        return values | {"error_code": ErrorCode.kafka_storage_error}
    if found is not None:
        values |= {"offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}
    return values | {"error_code": ErrorCode.none}


def _find(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    if timestamp == LATEST:
        return log.end_offset, UNKNOWN
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, UNKNOWN
    if timestamp == MAX_TIMESTAMP:
        return log.newest_time()
    if timestamp == LATEST_TIERED:
        return None  # nothing is tiered
    return log.find_time(timestamp)


def offset_for_leader_epoch(call: Call, request: Any) -> Values:
    """There has only ever been one leader epoch: it ends where the log ends."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_epoch_end(call, topic.topic, part) for part in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _epoch_end(call: Call, name: str, part: Any) -> Values:
    log = call.node.catalogue.partition(name, part.partition)
    values = {"partition": part.partition, "leader_epoch": UNKNOWN, "end_offset": UNKNOWN}
    if log is None:
        return values | {"error_code": ErrorCode.unknown_topic_or_partition}
    if part.leader_epoch == LEADER_EPOCH:
        values |= {"leader_epoch": LEADER_EPOCH, "end_offset": log.end_offset}
    return values | {"error_code": ErrorCode.none}


APIS: Final = (
    Api(LIST_OFFSETS, "ListOffsets", 1, 10, list_offsets),
    Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, offset_for_leader_epoch),
)
