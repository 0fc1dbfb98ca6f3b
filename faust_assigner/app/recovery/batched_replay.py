"""Batched replay: writes changelog records into RocksDB in batches, without Faust's loop.

Faust makes a message and an event of every record, passes both through queues and checks all
partitions after each record. This module reads the records with a separate consumer and writes them
in batches. The offset is in the same batch as the state, so a kill cannot separate the two.

One thread reads two partitions at a time: while the thread writes records of one partition, a
broker sends records of the other. A third partition at a time would not make the replay faster, and
the first partition would be processed later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import rocksdict
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.consumer.fetcher import Fetcher

from faust_assigner.app.host.clients import replace_fetcher
from faust_assigner.app.recovery.decoding import Decoding
from faust_assigner.app.recovery.restore_throttle import RestoreThrottle
from faust_assigner.app.recovery.unreadable import Reason, Unreadable
from faust_assigner.snapshots.changelog import STALL_S, Extent, consumer_of
from faust_assigner.snapshots.kafka_requests import Connection, UnreachableError
from faust_assigner.snapshots.sst import OFFSET_KEY

if TYPE_CHECKING:
    from aiokafka.consumer.subscription_state import Assignment
    from aiokafka.protocol.fetch import FetchRequest
    from aiokafka.record.default_records import DefaultRecord as Parsed
    from faust.types.tuples import TP

T = TypeVar("T")

#: Seconds between two checks for a stop, and seconds that stopped work has to end by itself.
LOOK_S, GRACE_S = 0.2, 0.6
#: Partitions read at a time, and bytes of each partition in one fetch response.
TOGETHER, FETCH_BYTES = 2, 2 * 1024 * 1024
#: Milliseconds of a turn without records, and of a fetch at the end of a log. A transaction's marker is no
#: record, and the next partition's first fetch waits for the fetch in flight.
TURN_MS = 20
#: Seconds between two checks while no partition is ready to be read.
WAIT_S = 0.05


class Work(Protocol):
    """The partitions to replay, and the receiver of their records.

    All methods are called in the replay's thread.
    """

    @property
    def tps(self) -> Collection[TopicPartition]:
        """All partitions that may be replayed."""

    def is_over(self) -> bool:
        """Whether ``begin()`` returns no further partition."""

    def begin(self) -> tuple[TopicPartition, Extent] | None:
        """Return the next partition to read and its range of offsets; None while none is ready."""

    def write(self, tp: TopicPartition, records: Sequence[Parsed], position: int) -> None:
        """Write ``records`` (in the order of their offsets); ``position`` is the next offset."""

    def finish(self, tp: TopicPartition) -> None:
        """Note that the end of ``tp`` is reached."""


class BareFetcher(Fetcher):  # type: ignore[misc]
    """aiokafka's fetcher, changed to return parsed records (key, value, offset, headers)."""

    async def _proc_fetch_request(
        self, assignment: Assignment, node_id: int, request: FetchRequest
    ) -> bool:
        found: bool = await super()._proc_fetch_request(assignment, node_id, request)
        for result in self._records.values():
            records = getattr(result, "_partition_records", None)
            if records is not None:
                records._consumer_record = _as_parsed
        return found


def _as_parsed(tp: TP, record: Parsed) -> Parsed:
    return record


async def replay(
    connection: Connection,
    work: Work,
    *,
    stopped: Callable[[], bool],
    isolation_level: str,
    pace: RestoreThrottle,
) -> None:
    """Replay the partitions of ``work`` until all are complete or ``stopped()`` returns true.

    Written records and offsets stay.

    Cost: about 3 us of one core per record. Raises UnreachableError if no record arrives for a
    minute.
    """
    connection = {
        "max_partition_fetch_bytes": FETCH_BYTES,
        "fetch_max_wait_ms": TURN_MS,
        **connection,
    }
    async with consumer_of(connection, isolation_level=isolation_level) as consumer:
        await replace_fetcher(consumer, BareFetcher)
        tps = [TopicPartition(*tp) for tp in work.tps]
        consumer.assign(tps)
        consumer.pause(*tps)
        for tp in tps:
            consumer.seek(tp, 0)
        ends: dict[TopicPartition, int] = {}
        moved_at = time.monotonic()
        while not stopped():
            while len(ends) < TOGETHER and (found := work.begin()) is not None:
                # aiokafka requires its own TopicPartition
                tp, extent = TopicPartition(*found[0]), found[1]
                consumer.seek(tp, extent.start)
                consumer.resume(tp)
                ends[tp] = extent.end
                moved_at = time.monotonic()
            if not ends:
                if work.is_over():
                    return
                await asyncio.sleep(WAIT_S)
                continue
            if await _take_turn(consumer, work, ends, pace):
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > STALL_S:
                raise UnreachableError(
                    f"no records arrived for {STALL_S:.0f} s from {sorted(ends)}"
                )


async def _take_turn(
    consumer: AIOKafkaConsumer, work: Work, ends: dict[TopicPartition, int], pace: RestoreThrottle
) -> bool:
    """Read and write the records of one turn, then pause; return whether a position moved."""
    before = {tp: await consumer.position(tp) for tp in ends}
    most = pace.begin()
    fetched = await consumer.getmany(*ends, timeout_ms=TURN_MS, max_records=most)
    moved = False
    for tp, end in tuple(ends.items()):
        position = min(await consumer.position(tp), end)
        records: Sequence[Parsed] = fetched.get(tp, ())
        if records and records[-1].offset >= end:
            records = [record for record in records if record.offset < end]
        if position > before[tp]:
            moved = True
            work.write(tp, records, position)
        if position >= end:
            del ends[tp]
            consumer.pause(tp)
            work.finish(tp)
    pause_s = pace.end(sum(map(len, fetched.values())))
    # Sleep even for 0 s: meanwhile the event loop receives responses and sends the next fetches.
    await asyncio.sleep(pause_s)
    return moved


def run_until_stopped(work: Coroutine[object, None, T], stopped: Callable[[], bool]) -> T | None:
    """Run ``work`` in its own event loop; return its result, or None if ``stopped()`` ended it.

    A request to a silent broker takes up to the request timeout; a stopping worker cannot wait so
    long.
    """

    async def race() -> T | None:
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_S)
            if stopped():
                # The work checks for a stop between two fetches, and can report the records written
                # so far.
                await asyncio.wait({task}, timeout=GRACE_S)
                task.cancel()
                await asyncio.wait({task}, timeout=GRACE_S)
                return task.result() if task.done() and not task.cancelled() else None
        return task.result()

    return asyncio.run(race())


def to_consumer_record(tp: TopicPartition, record: Parsed) -> ConsumerRecord[bytes, bytes]:
    """Convert the record into a ConsumerRecord, as a schema class of the app expects."""
    sizes = (-1 if part is None else len(part) for part in (record.key, record.value))
    return ConsumerRecord(
        tp.topic,
        tp.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.checksum,
        *sizes,
        tuple(record.headers),
    )


def to_batch(
    records: Sequence[Parsed],
    position: int,
    decoding: Decoding,
    complete: Callable[[Parsed], Parsed | ConsumerRecord[bytes, bytes]] = lambda record: record,
) -> tuple[rocksdict.WriteBatch, Sequence[Unreadable]]:
    """Build a write batch with each key's last value or deletion, and with Faust's offset key.

    The stored offset is ``position - 1``. The second part of the result holds the records that must
    not be in the table, each with its error. Of each key the last record without such an error is
    written. A record under Faust's offset key is dropped. ``complete`` turns a bare record into the
    type that the table's schema expects.
    """
    latest: dict[bytes, bytes | None] = {record.key: record.value for record in records}
    latest.pop(OFFSET_KEY, None)
    refused: Sequence[Unreadable] = ()
    values = [value for value in latest.values() if value is not None]
    if None in latest or not decoding.all_decode(list(latest), values):
        latest, refused = _check_each_record(records, decoding.reason, complete)
    batch = rocksdict.WriteBatch(raw_mode=True)
    for key, value in latest.items():
        if value is None:  # an empty value is not a deletion
            batch.delete(key)
        else:
            batch.put(key, value)
    batch.put(OFFSET_KEY, str(position - 1).encode())
    return batch, refused


def _check_each_record(
    records: Sequence[Parsed],
    reason: Reason,
    complete: Callable[[Parsed], Parsed | ConsumerRecord[bytes, bytes]],
) -> tuple[dict[bytes, bytes | None], Sequence[Unreadable]]:
    latest: dict[bytes, bytes | None] = {}
    refused: list[Unreadable] = []
    for record in reversed(records):
        if record.key in latest or record.key == OFFSET_KEY:
            continue
        error = reason(complete(record))
        if error is None:
            latest[record.key] = record.value
        else:
            refused.append((record.offset, record.key, record.value, error))
    return latest, refused[::-1]
