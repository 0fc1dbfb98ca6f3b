"""Fetch: long poll, byte limits, topic ids. No fetch sessions: session id 0 tells the client so (KIP-227)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import records
from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.log import LEADER_EPOCH, PartitionLog
from faust_assigner.broker.store import StoreFailed
from faust_assigner.broker.wire import milliseconds

FETCH: Final = 1
FINAL_EPOCH: Final = -1
ZSTD_SINCE: Final = 10
MAX_WAIT_MS: Final = 300_000
NO_PREFERRED_REPLICA: Final = -1
_waiter_ids = itertools.count()


@dataclass(frozen=True, slots=True)
class Want:
    """One partition a reader asks for; ``log`` is None where ``error`` says why."""

    topic: Any
    partition: int
    offset: int
    max_bytes: int
    log: PartitionLog | None
    error: ErrorCode


def fetch(call: Call, request: Any) -> Values | asyncio.Future[Values]:
    """Answer at once when min_bytes are there, something is wrong or the wait is 0; else when data comes."""
    if getattr(request, "session_id", 0) != 0 and getattr(request, "session_epoch", FINAL_EPOCH) > 0:
        return {"error_code": ErrorCode.fetch_session_id_not_found}
    wants = list(_wants(call, request))
    wait_ms = min(milliseconds(request.max_wait), MAX_WAIT_MS)
    limit = min(request.max_bytes, call.node.settings.fetch_max_bytes)
    if wait_ms <= 0 or any(w.error is not ErrorCode.none for w in wants) or not wants:
        return _answer(call, wants, limit)
    if _available(wants) >= max(request.min_bytes, 0):
        return _answer(call, wants, limit)
    return _park(call, wants, limit, request.min_bytes, wait_ms)


def _wants(call: Call, request: Any) -> Iterator[Want]:
    catalogue = call.node.catalogue
    for wanted in request.topics:
        if call.version >= 13:
            topic, key, missing = (
                catalogue.by_id(wanted.topic_id),
                wanted.topic_id,
                ErrorCode.unknown_topic_id,
            )
        else:
            topic, key = catalogue.get(wanted.topic), wanted.topic
            missing = ErrorCode.unknown_topic_or_partition
        for part in wanted.partitions:
            log, error = None, missing
            if topic is not None:
                number = part.partition
                log = topic.partitions[number] if 0 <= number < len(topic.partitions) else None
                error = _check(log, part)
            yield Want(key, part.partition, part.fetch_offset, part.partition_max_bytes, log, error)


def _check(log: PartitionLog | None, part: Any) -> ErrorCode:
    if log is None:
        return ErrorCode.unknown_topic_or_partition
    if getattr(part, "current_leader_epoch", -1) > LEADER_EPOCH:
        return ErrorCode.unknown_leader_epoch
    if not log.start_offset <= part.fetch_offset <= log.end_offset:
        return ErrorCode.offset_out_of_range
    return ErrorCode.none


def _available(wants: list[Want]) -> int:
    return sum(min(w.log.available(w.offset), max(w.max_bytes, 1)) for w in wants if w.log is not None)


def _park(call: Call, wants: list[Want], limit: int, min_bytes: int, wait_ms: int) -> asyncio.Future[Values]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Values] = loop.create_future()
    waiter = next(_waiter_ids)
    logs = [w.log for w in wants if w.log is not None]

    def finish() -> None:
        if not answer.done():
            answer.set_result(_answer(call, wants, limit))

    def look() -> None:
        if _available(wants) >= min_bytes or any(log.deleted for log in logs):
            finish()

    def clean(_: asyncio.Future[Values]) -> None:
        timer.cancel()
        for log in logs:
            log.waiters.pop(waiter, None)

    timer = loop.call_later(wait_ms / 1000, finish)
    for log in logs:
        log.waiters[waiter] = look
    answer.add_done_callback(clean)
    return answer


def _answer(call: Call, wants: list[Want], limit: int) -> Values:
    left = limit
    topics: dict[Any, list[Values]] = {}
    for want in wants:
        values, size = _read(call, want, left, first=left == limit)
        left -= size
        topics.setdefault(want.topic, []).append(values)
    name = "topic_id" if call.version >= 13 else "topic"
    return {
        "error_code": ErrorCode.none,
        "session_id": 0,
        "responses": [{name: key, "partitions": parts} for key, parts in topics.items()],
    }


def _read(call: Call, want: Want, left: int, *, first: bool) -> tuple[Values, int]:
    log, error, data = want.log, want.error, b""
    if log is not None and log.deleted:
        error = ErrorCode.unknown_topic_or_partition  # while the reader waited
    if log is not None and error is ErrorCode.none:
        try:
            # The very first batch is given whatever its size, or a reader could never pass it (KIP-74).
            data = log.read(want.offset, min(want.max_bytes, left), at_least_one=first)
        except StoreFailed:
            call.node.counters["reads_failed"] += 1
            error = ErrorCode.kafka_storage_error
    if call.version < ZSTD_SINCE and records.has_codec(data, records.ZSTD):
        error, data = ErrorCode.unsupported_compression_type, b""
    sound = log is not None and error is ErrorCode.none
    end, start = (log.end_offset, log.start_offset) if log is not None and sound else (-1, -1)
    values = {
        "partition_index": want.partition,
        "error_code": error,
        "high_watermark": end,
        "last_stable_offset": end,
        "log_start_offset": start,
        "aborted_transactions": None,
        "preferred_read_replica": NO_PREFERRED_REPLICA,
        "records": data,
    }
    return values, len(data)


APIS: Final = (Api(FETCH, "Fetch", 4, 17, fetch),)
