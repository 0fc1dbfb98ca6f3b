"""The Fetch API, with long polls, byte limits, topic ids and sessions (KIP-227)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.answers import Chain
from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.fetch_sessions import (
    NO_SESSION,
    TOPIC_IDS_SINCE,
    asked_in,
    session_of,
)
from faust_assigner.broker.fetch_session import FetchSession, Place
from faust_assigner.broker.limits import MAX_WAITING_PARTITIONS
from faust_assigner.broker.security.acls import READ, TOPIC
from faust_assigner.broker.storage.claims import has_codec
from faust_assigner.broker.storage.log import LEADER_EPOCH, PartitionLog
from faust_assigner.broker.storage.reads import Reading, available, plan_read, present_batches
from faust_assigner.broker.storage.records import ZSTD
from faust_assigner.broker.storage.store import Store, StoreFailed
from faust_assigner.broker.wire import milliseconds

if TYPE_CHECKING:
    from kio.schema.fetch.v18.request import FetchPartition, FetchRequest

FETCH: Final = 1
READ_COMMITTED: Final = 1
ZSTD_SINCE: Final = 10
MAX_WAIT_MS: Final = 300_000
BRIEF_WAIT_MS: Final = 100
NO_PREFERRED_REPLICA: Final = -1
_waiter_ids = itertools.count()


@dataclass(frozen=True, slots=True)
class Want:
    """One requested partition; ``log`` is None if the partition does not exist (see ``error``).

    ``is_committed``: the consumer reads only committed transactions (read_committed).
    """

    topic: Any
    partition: int
    offset: int
    max_bytes: int
    log: PartitionLog | None
    error: ErrorCode
    is_committed: bool = False

    @property
    def beyond(self) -> int | None:
        """The last stable offset, at which read_committed consumers stop; None: read to the end."""
        return self.log.stable_offset if self.log is not None and self.is_committed else None


async def fetch(call: Call, request: FetchRequest) -> Values:
    """Answer at once if min_bytes are available, a partition has an error or the wait is 0; else wait."""
    session, error = session_of(call, request)
    if error is not ErrorCode.none:
        return {"error_code": error}
    parts = asked_in(request, call.version) if session is None else list(session.parts.items())
    wants = await _requested_partitions(
        call, parts, is_committed=request.isolation_level == READ_COMMITTED
    )
    wait_ms = min(milliseconds(request.max_wait), MAX_WAIT_MS)
    min_bytes = max(request.min_bytes, 0)
    sound = bool(wants) and not any(w.error is not ErrorCode.none for w in wants)
    if sound and wait_ms > 0 and sum(map(_available_bytes, wants)) < min_bytes:
        # A wait with a place would stop four long handlers of other clients for the whole wait.
        await call.throttle.wait_outside(_wait(call, wants, min_bytes, wait_ms))
    return await _answer(call, wants, request.max_bytes, session)


async def _requested_partitions(
    call: Call, parts: Iterable[tuple[Place, Any]], *, is_committed: bool
) -> list[Want]:
    """Return the requested partitions, each once, with the last values that the request has for it."""
    catalogue = call.node.catalogue
    wants: dict[Place, Want] = {}
    for (key, number), part in parts:
        if call.version >= TOPIC_IDS_SINCE:
            topic, error = catalogue.by_id(key), ErrorCode.unknown_topic_id
        else:
            topic, error = catalogue.get(key), ErrorCode.unknown_topic_or_partition
        log = None
        name = topic.name if topic is not None else key if isinstance(key, str) else None
        if name is not None and not call.may(READ, TOPIC, name):
            error = ErrorCode.topic_authorization_failed
        elif topic is not None:
            log = topic.partitions[number] if 0 <= number < len(topic.partitions) else None
            error = _check(log, part)
        offset, max_bytes = part.fetch_offset, part.partition_max_bytes
        wants[key, number] = Want(key, number, offset, max_bytes, log, error, is_committed)
        await call.throttle.checkpoint()
    return list(wants.values())


def _check(log: PartitionLog | None, part: FetchPartition) -> ErrorCode:
    if log is None:
        return ErrorCode.unknown_topic_or_partition
    if getattr(part, "current_leader_epoch", -1) > LEADER_EPOCH:
        return ErrorCode.unknown_leader_epoch
    if not log.start_offset <= part.fetch_offset <= log.end_offset:
        return ErrorCode.offset_out_of_range
    return ErrorCode.none


def _available_bytes(want: Want) -> int:
    if want.log is None:
        return 0
    return min(available(want.log, want.offset, want.beyond), max(want.max_bytes, 1))


async def _wait(call: Call, wants: Sequence[Want], min_bytes: int, wait_ms: int) -> None:
    """Wait for data.

    If the waiting fetches have more than MAX_WAITING_PARTITIONS together, wait only BRIEF_WAIT_MS, to
    limit the memory.
    """
    node = call.node
    node.waiting_partitions += len(wants)
    if node.waiting_partitions > MAX_WAITING_PARTITIONS:
        wait_ms = min(wait_ms, BRIEF_WAIT_MS)
    try:
        await _data(wants, min_bytes, wait_ms)
    finally:
        node.waiting_partitions -= len(wants)


async def _data(wants: Sequence[Want], min_bytes: int, wait_ms: int) -> None:
    """Wait until min_bytes are available, a topic is deleted, or the time is over."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    waiter = next(_waiter_ids)
    there = {n: _available_bytes(want) for n, want in enumerate(wants)}
    total = sum(there.values())

    def finish() -> None:
        if not over.done():
            over.set_result(None)

    def watch(number: int, want: Want, log: PartitionLog) -> None:
        def look() -> None:
            nonlocal total
            now = _available_bytes(want)
            total += now - there[number]
            there[number] = now
            if total >= min_bytes or log.deleted:
                finish()

        log.waiters[waiter] = look

    timer = loop.call_later(wait_ms / 1000, finish)
    try:
        for number, want in enumerate(wants):
            if want.log is not None:
                watch(number, want, want.log)
        await over
    finally:
        timer.cancel()
        for want in wants:
            if want.log is not None:
                want.log.waiters.pop(waiter, None)


async def _answer(
    call: Call, wants: list[Want], max_bytes: int, session: FetchSession | None
) -> Values:
    left = min(max_bytes, call.node.settings.fetch_max_bytes, call.node.room_for_answer())
    readings: dict[int, Reading] = {}
    aborted: dict[int, list[Values]] = {}
    for number, want in enumerate(wants):
        if want.log is None or want.error is not ErrorCode.none or want.log.deleted:
            pass
        elif want.offset < want.log.start_offset:  # trimmed while the consumer waited
            wants[number] = replace(want, error=ErrorCode.offset_out_of_range)
        else:
            # The first batch is returned regardless of its size, so that the consumer can pass it (KIP-74).
            reading = plan_read(
                want.log,
                want.offset,
                min(want.max_bytes, left),
                at_least_one=not readings,
                beyond=want.beyond,
            )
            if reading is not None:
                readings[number] = reading
                if want.is_committed:
                    aborted[number] = _aborted_transactions(want.log, want.offset, reading)
                left -= reading.size
        await call.throttle.checkpoint()
    found = await _read_batches(call, wants, readings)
    topics: dict[Any, list[Values]] = {}
    for number, want in enumerate(wants):
        values = _partition_values(call, want, found.get(number, ()), aborted.get(number, []))
        if session is None or session.note((want.topic, want.partition), values):
            topics.setdefault(want.topic, []).append(values)
        await call.throttle.checkpoint()
    name = "topic_id" if call.version >= TOPIC_IDS_SINCE else "topic"
    return {
        "error_code": ErrorCode.none,
        "session_id": NO_SESSION if session is None else session.session_id,
        "responses": [{name: key, "partitions": parts} for key, parts in topics.items()],
    }


async def _read_batches(
    call: Call, wants: Sequence[Want], readings: Mapping[int, Reading]
) -> dict[int, Sequence[bytes] | StoreFailed]:
    """Return the batches by index in ``wants``. A thread reads the batches that are not in memory."""
    found: dict[int, Sequence[bytes] | StoreFailed] = {}
    cold: list[tuple[int, PartitionLog, Reading]] = []
    for number, reading in readings.items():
        log = wants[number].log
        assert log is not None
        data = log.store.cached(reading.keys)
        if data is None:
            cold.append((number, log, reading))
        else:
            found[number] = data

    def load() -> list[list[bytes | None] | StoreFailed]:
        return [_load(log.store, reading) for _, log, reading in cold]

    if cold:
        for (number, log, reading), batches in zip(cold, await call.node.aside(load), strict=True):
            try:
                if isinstance(batches, StoreFailed):
                    raise batches
                found[number] = present_batches(log, batches, reading)
            except StoreFailed as failed:
                call.node.counters["reads_failed"] += 1
                found[number] = failed
    return found


def _load(store: Store, reading: Reading) -> list[bytes | None] | StoreFailed:
    try:
        return store.get_many(reading.keys)
    except StoreFailed as failed:
        return failed


def _partition_values(
    call: Call, want: Want, data: Sequence[bytes] | StoreFailed, aborted: Sequence[Values]
) -> Values:
    log, error = want.log, want.error
    if log is not None and log.deleted:
        error = ErrorCode.unknown_topic_or_partition  # deleted while the consumer waited
    elif isinstance(data, StoreFailed):
        error = ErrorCode.kafka_storage_error
    elif call.version < ZSTD_SINCE and any(has_codec(b, ZSTD) for b in data):
        error = ErrorCode.unsupported_compression_type
    sound = log is not None and error is ErrorCode.none
    end, stable, start = (
        (log.end_offset, log.stable_offset, log.start_offset)
        if log is not None and sound
        else (-1, -1, -1)
    )
    return {
        "partition_index": want.partition,
        "error_code": error,
        "high_watermark": end,
        "last_stable_offset": stable,
        "log_start_offset": start,
        "aborted_transactions": aborted if sound and want.is_committed else None,
        "preferred_read_replica": NO_PREFERRED_REPLICA,
        "records": Chain(data) if sound and not isinstance(data, StoreFailed) else b"",
    }


def _aborted_transactions(log: PartitionLog, offset: int, reading: Reading) -> list[Values]:
    """Return the aborted transactions of a planned read. Call before the read: a trim may remove some."""
    found = log.aborted(offset, reading.beyond)
    return [{"producer_id": one.producer_id, "first_offset": one.first} for one in found]


APIS: Final = (Api(FETCH, "Fetch", 4, 18, fetch),)
