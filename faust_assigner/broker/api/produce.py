"""The Produce API: check and append record batches."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import internal_topics
from faust_assigner.broker.api.call import CLOSE, NO_RESPONSE, Api, Call, Values
from faust_assigner.broker.limits import INLINE_BATCH_BYTES
from faust_assigner.broker.security.acls import TOPIC, TRANSACTIONAL_ID, WRITE
from faust_assigner.broker.storage import claims, records
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.records import CONTROL, ZSTD, BadBatch, Batch, RecordRules
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.topics import Topic
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.transactions.events import AddAndWriteRecords, WriteRecords

if TYPE_CHECKING:
    from kio.schema.produce.v7.request import PartitionProduceData

PRODUCE: Final = 0
NO_OFFSET: Final = -1
BARRED: Final = ErrorCode.transactional_id_authorization_failed
NO_NAME: Final = "the request has a transactional batch, but no transactional id"
NO_RIGHT: Final = "the right to write with this transactional id is missing"
ADDING_SINCE: Final = 12  # since this version, a batch adds its partition (KIP-890)
ABORTABLE_SINCE: Final = 11  # older clients do not know TRANSACTION_ABORTABLE


async def produce(call: Call, request: Any) -> Values | object:
    """Append one batch per partition. With acks=0, send no answer; with 1 or -1, answer after the append.

    Each partition has its own result. A batch whose check takes too long is refused before the append; an
    appended batch is acknowledged, however late. All batches of the request share one wait for the disk
    (flush.messages). If a request names a partition several times, the last batch counts, as in Kafka. The
    whole request is refused if it has a transactional batch, but no
    transactional id or no right to the id.
    """
    asked: dict[Any, dict[int, Any]] = {}
    for topic in request.topic_data:
        key = topic.topic_id if call.version >= 13 else topic.name
        asked.setdefault(key, {}).update((part.index, part) for part in topic.partition_data)
    answers = []
    results: list[dict[str, object]] = []
    unflushed: list[tuple[PartitionLog, dict[str, object]]] = []
    transactional_id = request.transactional_id
    may_transact = transactional_id is not None and call.may(
        WRITE, TRANSACTIONAL_ID, transactional_id
    )
    is_barred = not may_transact and any(
        claims.claims_transaction(bytes(part.records or b""))
        for parts in asked.values()
        for part in parts.values()
    )
    reason = NO_NAME if transactional_id is None else NO_RIGHT
    for key, parts in asked.items():
        topic, missing, names = _find_topic(call, key)
        first = len(results)
        for part in parts.values():
            values = (
                _refusal_values(part.index, BARRED, reason)
                if is_barred
                else await _produce_to_partition(call, request, topic, missing, part)
            )
            results.append(values)
            if topic is not None and not values["error_code"]:
                log = topic.partitions[part.index]
                if needs_flush(call, topic, log):
                    unflushed.append((log, values))
            await call.throttle.give_way()
        answers.append(names | {"partition_responses": results[first:]})
    await _flush_results(call, unflushed)
    refused = any(values["error_code"] for values in results)
    if request.acks == 0:
        # With acks=0 the producer reads no answer; only a closed connection signals an error, as in Kafka.
        return CLOSE if refused else NO_RESPONSE
    return {"responses": answers}


def _find_topic(call: Call, key: Any) -> tuple[Topic | None, ErrorCode, dict[str, object]]:
    """Return the topic, the error to answer if the topic is None, and the topic's fields in the answer."""
    catalogue = call.node.catalogue
    if call.version >= 13:
        topic, missing, names = catalogue.by_id(key), ErrorCode.unknown_topic_id, {"topic_id": key}
    else:
        topic, missing = catalogue.get(key), ErrorCode.unknown_topic_or_partition
        names = {"name": key}
    name = topic.name if topic is not None else names.get("name")
    if name is not None and not call.may(WRITE, TOPIC, name):
        return None, ErrorCode.topic_authorization_failed, names
    return topic, missing, names


async def _produce_to_partition(
    call: Call, request: Any, topic: Topic | None, missing: ErrorCode, wanted: PartitionProduceData
) -> dict[str, object]:
    if request.acks not in (-1, 0, 1):
        return _refusal_values(
            wanted.index,
            ErrorCode.invalid_required_acks,
            f"acks={request.acks} is none of -1, 0, 1",
        )
    if topic is None:
        return _refusal_values(wanted.index, missing, None)
    if not 0 <= wanted.index < len(topic.partitions):
        return _refusal_values(wanted.index, ErrorCode.unknown_topic_or_partition, None)
    if internal_topics.is_internal(topic.name):
        why = f"clients cannot write to the internal topic {topic.name}"
        return _refusal_values(wanted.index, ErrorCode.invalid_topic_exception, why)
    log = topic.partitions[wanted.index]
    try:
        data = bytes(wanted.records or b"")
        base_offset, stamped = await _append_batch(call, topic, log, data, request.transactional_id)
    except BadBatch as bad:
        call.node.counters["batches_refused"] += 1
        return {
            **_refusal_values(wanted.index, bad.error, str(bad)),
            "record_errors": _record_errors(bad),
        }
    return {
        "index": wanted.index,
        "error_code": ErrorCode.none,
        "base_offset": base_offset,
        "log_append_time": stamped,
        "log_start_offset": log.start_offset,
    }


def _check(data: bytes, rules: RecordRules, version: int, max_bytes: int) -> tuple[bytes, Batch]:
    """Return the one valid batch in ``data``, ready to store. Raises BadBatch with Kafka's error."""
    data = records.cut_batch(data)
    if len(data) > max_bytes:
        raise BadBatch(
            f"the batch has {len(data)} bytes, max.message.bytes is {max_bytes}",
            ErrorCode.message_too_large,
        )
    batch = records.parse_batch(data)
    if batch.codec == ZSTD and version < 7:
        raise BadBatch(
            "zstd compression needs version 7 of the Produce request",
            ErrorCode.unsupported_compression_type,
        )
    if batch.base_offset:
        raise BadBatch(
            f"the batch has base offset {batch.base_offset}, a producer's batch must have 0"
        )
    if batch.attributes & CONTROL:
        raise BadBatch("a producer must not send control batches")
    return records.check_records(data, batch, rules)


async def _append_batch(
    call: Call, topic: Topic, log: PartitionLog, data: bytes, transactional_id: str | None
) -> tuple[int, datetime.datetime | None]:
    """Check and append one batch; return its base offset and, for LogAppendTime topics, the time."""
    node, now = call.node, call.node.clock()
    rules = node.rules(topic, now)
    max_bytes = int(node.config(topic, "max.message.bytes"))
    if len(data) <= INLINE_BATCH_BYTES and not claims.has_any_codec(data):
        data, batch = _check(data, rules, call.version, max_bytes)
    else:
        data, batch = await node.aside(lambda: _check(data, rules, call.version, max_bytes))
    try:
        call.throttle.check_time()
    except TimeoutError as late:
        raise BadBatch(f"the batch was not appended: {late}", ErrorCode.request_timed_out) from None
    if log.deleted:
        raise BadBatch("the topic was deleted meanwhile", ErrorCode.unknown_topic_or_partition)
    _check_transaction(call, topic, log, batch, transactional_id)
    stamped = datetime.datetime.fromtimestamp(now / 1000, datetime.UTC) if rules.stamps else None
    verdict = log.producers.judge(batch)
    if verdict.error is not ErrorCode.none:
        raise BadBatch(
            f"sequence {batch.base_sequence} of producer {batch.producer_id}: {verdict.error.name}",
            verdict.error,
        )
    base = verdict.duplicate_of
    try:
        if base is None:
            base = log.append(batch, data, now)
        else:
            node.counters["batches_repeated"] += 1
    except StoreFailed as failed:
        node.space.reclaim_if_low()
        raise BadBatch(str(failed), ErrorCode.kafka_storage_error) from failed
    return base, stamped


def _check_transaction(
    call: Call, topic: Topic, log: PartitionLog, batch: Batch, transactional_id: str | None
) -> None:
    """Check a batch against its producer's transaction (KIP-890). Raises BadBatch.

    Before ADDING_SINCE, a transactional batch needs an open transaction with this partition. Later
    clients do not add partitions themselves: their batch adds its partition.

    The coordinator checks every transactional batch, so a fenced producer can write no further record.
    """
    if not batch.is_transactional:
        if log.has_open(batch.producer_id):
            why = f"producer {batch.producer_id} has a transaction open in this partition"
            raise BadBatch(why, ErrorCode.invalid_txn_state)
        return
    assert transactional_id is not None, "such a request was refused as a whole"
    place = (topic.topic_id.bytes, log.number)
    adds = call.version >= ADDING_SINCE
    kind = AddAndWriteRecords if adds else WriteRecords
    event = kind(batch.producer_id, batch.producer_epoch, place)
    code = call.node.transactions.ask(transactional_id, event)
    if code is Code.TRANSACTION_ABORTABLE and call.version < ABORTABLE_SINCE:
        code = Code.INVALID_TXN_STATE
    if code is not Code.NONE:
        why = f"producer {batch.producer_id} epoch {batch.producer_epoch} of {transactional_id!r}"
        raise BadBatch(f"{why} may not write here: {ErrorCode(code).name}", ErrorCode(code))


def needs_flush(call: Call, topic: Topic, log: PartitionLog) -> bool:
    """Whether as many records as flush.messages, or more, may not be on the disk yet."""
    flush_every = int(call.node.config(topic, "flush.messages"))
    return not log.deleted and log.end_offset - log.flushed_to >= flush_every


async def flush(call: Call, logs: Sequence[PartitionLog]) -> None:
    """Wait once until all records of some logs are on the disk. Raises StoreFailed."""
    if not logs:
        return
    ends = [log.end_offset for log in logs]
    call.throttle.end()  # a slow disk must not delay long requests of other clients
    await call.node.flushing.flushed()
    for log, end in zip(logs, ends, strict=True):
        log.flushed_to = max(log.flushed_to, end)


async def _flush_results(
    call: Call, unflushed: Sequence[tuple[PartitionLog, dict[str, object]]]
) -> None:
    """Wait for the disk, or turn the results of the partitions into refusals.

    A repeated batch waits, too, because the first wait may have failed.
    """
    try:
        await flush(call, [log for log, _ in unflushed])
    except StoreFailed as failed:
        call.node.space.reclaim_if_low()
        for _, values in unflushed:
            call.node.counters["batches_refused"] += 1
            refusal = _refusal_values(values["index"], ErrorCode.kafka_storage_error, str(failed))
            values.update(refusal, record_errors=[], log_append_time=None)


def _record_errors(bad: BadBatch) -> list[Values]:
    return [
        {"batch_index": number, "batch_index_error_message": why} for number, why in bad.records
    ]


def _refusal_values(index: object, error: ErrorCode, message: str | None) -> dict[str, object]:
    return {
        "index": index,
        "error_code": error,
        "error_message": message,
        "base_offset": NO_OFFSET,
        "log_start_offset": NO_OFFSET,
    }


APIS: Final = (
    # The oldest served version is 3, but Kafka 4 advertises 0, too: librdkafka expects this.
    Api(PRODUCE, "Produce", 3, 13, produce, advertised_low=0),
)
