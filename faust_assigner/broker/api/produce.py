"""Produce and InitProducerId."""

from __future__ import annotations

import datetime
import uuid
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import records
from faust_assigner.broker.api.call import CLOSE, NO_RESPONSE, Api, Call, Values
from faust_assigner.broker.log import PartitionLog
from faust_assigner.broker.records import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, ZSTD, BadBatch, Batch
from faust_assigner.broker.store import StoreFailed
from faust_assigner.broker.topics import Topic

PRODUCE: Final = 0
INIT_PRODUCER_ID: Final = 22
NO_OFFSET: Final = -1


def produce(call: Call, request: Any) -> Values | object:
    """Append one batch per partition. acks: 0 no answer, 1 and -1 after it is stored (one replica)."""
    answers = [_topic(call, request, topic) for topic in request.topic_data]
    if request.acks == 0:
        # Nobody reads an error code: a closed connection is how such a producer learns of one, as in Kafka.
        refused = any(p["error_code"] for a in answers for p in a["partition_responses"])
        return CLOSE if refused else NO_RESPONSE
    return {"responses": answers}


def _topic(call: Call, request: Any, wanted: Any) -> Values:
    catalogue = call.node.catalogue
    if call.version >= 13:
        topic_id: uuid.UUID | None = wanted.topic_id
        topic, missing = catalogue.by_id(topic_id), ErrorCode.unknown_topic_id
        names: dict[str, Any] = {"topic_id": topic_id}
    else:
        topic, missing = catalogue.get(wanted.name), ErrorCode.unknown_topic_or_partition
        names = {"name": wanted.name}
    parts = [_partition(call, request, topic, missing, p) for p in wanted.partition_data]
    return names | {"partition_responses": parts}


def _partition(call: Call, request: Any, topic: Topic | None, missing: ErrorCode, wanted: Any) -> Values:
    if request.acks not in (-1, 0, 1):
        return _refusal(wanted.index, ErrorCode.invalid_required_acks, f"acks={request.acks}")
    if topic is None:
        return _refusal(wanted.index, missing, None)
    if not 0 <= wanted.index < len(topic.partitions):
        return _refusal(wanted.index, ErrorCode.unknown_topic_or_partition, None)
    log = topic.partitions[wanted.index]
    try:
        base_offset, stamped = _append(call, topic, log, bytes(wanted.records or b""))
    except _Refusal as refusal:
        call.node.counters["batches_refused"] += 1
        return _refusal(wanted.index, refusal.error, str(refusal))
    return {
        "index": wanted.index,
        "error_code": ErrorCode.none,
        "base_offset": base_offset,
        "log_append_time": stamped,
        "log_start_offset": log.start_offset,
    }


class _Refusal(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


def _check(call: Call, topic: Topic, data: bytes) -> Batch:
    """The one sound batch in ``data``. Raises _Refusal with Kafka's error."""
    node = call.node
    if len(data) > int(node.config(topic, "max.message.bytes")):
        raise _Refusal(
            ErrorCode.message_too_large,
            f"{len(data)} bytes, max.message.bytes is {node.config(topic, 'max.message.bytes')}",
        )
    try:
        batch = records.parse_batch(data)
    except BadBatch as bad:
        error = ErrorCode.corrupt_message if bad.corrupt else ErrorCode.invalid_record
        raise _Refusal(error, str(bad)) from None
    if batch.attributes & CONTROL:
        raise _Refusal(ErrorCode.invalid_record, "control batches come from transaction coordinators only")
    if batch.attributes & TRANSACTIONAL:
        raise _Refusal(ErrorCode.invalid_txn_state, "this broker has no transactions")
    if batch.codec == ZSTD and call.version < 7:
        raise _Refusal(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7")
    if batch.attributes & LOG_APPEND_TIME:
        raise _Refusal(ErrorCode.invalid_timestamp, "only the broker may write its own time")
    return batch


def _append(call: Call, topic: Topic, log: PartitionLog, data: bytes) -> tuple[int, datetime.datetime | None]:
    """Check and append one batch; its base offset, and the broker's time where the topic wants that."""
    node, now = call.node, call.node.clock()
    batch = _check(call, topic, data)
    stamped: datetime.datetime | None = None
    if node.config(topic, "message.timestamp.type") == "LogAppendTime":
        data = records.stamp(data, now)
        batch = records.parse_batch(data)
        stamped = datetime.datetime.fromtimestamp(now / 1000, datetime.UTC)
    verdict = log.producers.judge(batch)
    if verdict.duplicate_of is not None:
        node.counters["batches_repeated"] += 1
        return verdict.duplicate_of, stamped
    if verdict.error is not ErrorCode.none:
        raise _Refusal(verdict.error, f"producer {batch.producer_id} sequence {batch.base_sequence}")
    try:
        flush_every = int(node.config(topic, "flush.messages"))
        return log.append(batch, data, now, flush_every=flush_every), stamped
    except StoreFailed as failed:
        raise _Refusal(ErrorCode.kafka_storage_error, str(failed)) from failed


def _refusal(index: int, error: ErrorCode, message: str | None) -> Values:
    return {
        "index": index,
        "error_code": error,
        "error_message": message,
        "base_offset": NO_OFFSET,
        "log_start_offset": NO_OFFSET,
    }


def init_producer_id(call: Call, request: Any) -> Values:
    """A fresh id for an idempotent producer (also for one that asks for a new epoch, KIP-360)."""
    if request.transactional_id is not None:
        return {
            "error_code": ErrorCode.transactional_id_authorization_failed,
            "producer_id": -1,
            "producer_epoch": -1,
        }
    try:
        producer_id = call.node.new_producer_id()
    except StoreFailed:
        return {
            "error_code": ErrorCode.coordinator_not_available,
            "producer_id": -1,
            "producer_epoch": -1,
        }
    return {"error_code": ErrorCode.none, "producer_id": producer_id, "producer_epoch": 0}


APIS: Final = (
    # Version 0 is advertised though 3 is the oldest served, as Kafka 4 does: librdkafka wants to see it.
    Api(PRODUCE, "Produce", 3, 13, produce, advertised_low=0),
    Api(INIT_PRODUCER_ID, "InitProducerId", 0, 5, init_producer_id),
)
