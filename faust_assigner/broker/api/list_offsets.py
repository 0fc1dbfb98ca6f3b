"""ListOffsets and OffsetForLeaderEpoch: the start and end of a log, and offsets by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.fetch import READ_COMMITTED
from faust_assigner.broker.storage import records
from faust_assigner.broker.storage.log import LEADER_EPOCH, PartitionLog
from faust_assigner.broker.storage.reads import plan_time, present_batches
from faust_assigner.broker.storage.store import StoreFailed

if TYPE_CHECKING:
    from kio.schema.list_offsets.v11.request import ListOffsetsRequest
    from kio.schema.offset_for_leader_epoch.v4.request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )

LIST_OFFSETS: Final = 2
OFFSET_FOR_LEADER_EPOCH: Final = 23
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
UNKNOWN: Final = -1
NEVER: Final = 2**15  # above all versions
#: The first version of ListOffsets that has each special timestamp.
KNOWN_SINCE: Final[Mapping[int, int]] = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}


async def list_offsets(call: Call, request: ListOffsetsRequest) -> Values:
    """Return one offset per partition: of a special timestamp, or of the first record since a time.

    With read_committed, LATEST is the last stable offset, and lookups by time ignore records from there on.
    A partition that is named twice is answered once with INVALID_REQUEST, as in Kafka.
    """
    is_committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    asked: dict[str, dict[int, list[Any]]] = {}
    for topic in request.topics:
        parts = asked.setdefault(topic.name, {})
        for part in topic.partitions:
            parts.setdefault(part.partition_index, []).append(part)
        await call.throttle.checkpoint()
    topics = []
    for name, parts in asked.items():
        answers = []
        for same in parts.values():
            answers.append(await _partition_offset(call, name, same, is_committed=is_committed))
            await call.throttle.checkpoint()
        topics.append({"name": name, "partitions": answers})
    return {"topics": topics}


async def _partition_offset(
    call: Call, name: str, same: Sequence[Any], *, is_committed: bool
) -> Values:
    part = same[0]
    log = call.node.catalogue.partition(name, part.partition_index)
    values = {
        "partition_index": part.partition_index,
        "timestamp": UNKNOWN,
        "offset": UNKNOWN,
        "leader_epoch": UNKNOWN,
    }
    if len(same) > 1:
        return values | {"error_code": ErrorCode.invalid_request}
    if part.timestamp < 0 and call.version < KNOWN_SINCE.get(part.timestamp, NEVER):
        return values | {"error_code": ErrorCode.unsupported_version}
    if log is None:
        return values | {"error_code": ErrorCode.unknown_topic_or_partition}
    if getattr(part, "current_leader_epoch", -1) > LEADER_EPOCH:
        return values | {"error_code": ErrorCode.unknown_leader_epoch}
    try:
        found = await _find_offset(call, log, part.timestamp, is_committed=is_committed)
    except StoreFailed:
        call.node.counters["reads_failed"] += 1
        return values | {"error_code": ErrorCode.kafka_storage_error}
    if found is not None:
        values |= {"offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}
    return values | {"error_code": ErrorCode.none}


async def _find_offset(
    call: Call, log: PartitionLog, timestamp: int, *, is_committed: bool
) -> tuple[int, int] | None:
    end = log.stable_offset if is_committed else log.end_offset
    if timestamp == LATEST:
        return end, UNKNOWN
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, UNKNOWN
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return None  # there is no tiered storage
    if timestamp == MAX_TIMESTAMP:
        newest = log.index.newest_time()
        if newest is None:
            return None
        timestamp = newest
    found = await _offset_at_time(call, log, timestamp)
    return found if found is not None and found[0] < end else None


async def _offset_at_time(call: Call, log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record that is not older than ``timestamp``."""
    reading = plan_time(log, timestamp)
    if reading is None:
        return None

    def find_batch() -> tuple[list[bytes | None], tuple[int, int]]:
        found = log.store.get_many(reading.keys)
        return found, records.find_timestamp(found[0], timestamp) if found[0] is not None else (
            -1,
            -1,
        )

    batches, found = await call.node.aside(find_batch)
    if not present_batches(log, batches, reading):  # trimmed, compacted or deleted during the read
        return None if log.deleted else await _offset_at_time(call, log, timestamp)
    return max(found[0], log.start_offset), found[1]


async def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> Values:
    """Return the log end offset as the end of the only leader epoch."""
    topics = []
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            answers.append(_epoch_end_values(call, topic.topic, part))
            await call.throttle.checkpoint()
        topics.append({"topic": topic.topic, "partitions": answers})
    return {"topics": topics}


def _epoch_end_values(call: Call, name: str, part: OffsetForLeaderPartition) -> Values:
    log = call.node.catalogue.partition(name, part.partition)
    values = {"partition": part.partition, "leader_epoch": UNKNOWN, "end_offset": UNKNOWN}
    if log is None:
        return values | {"error_code": ErrorCode.unknown_topic_or_partition}
    if part.leader_epoch == LEADER_EPOCH:
        values |= {"leader_epoch": LEADER_EPOCH, "end_offset": log.end_offset}
    return values | {"error_code": ErrorCode.none}


APIS: Final = (
    Api(LIST_OFFSETS, "ListOffsets", 1, 11, list_offsets),
    Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, offset_for_leader_epoch),
)
