"""The writer: changelog records into RocksDB in batches, past Faust's one-by-one recovery loop.

Faust makes a message and an event of every record, passes it through two queues and looks at all
partitions after each. Here records go from a consumer of our own into write batches, the offset in the
same batch: state and offset land together, and a kill leaves no gap.

One thread reads two partitions at a time: while it computes for one, a broker answers for the other. More of
them would not make it quicker, and the first one would flow later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import rocksdict
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.consumer.fetcher import Fetcher

from faust_assigner.app.recovery.decoding import Decoding
from faust_assigner.app.recovery.pace import Pace
from faust_assigner.app.recovery.unreadable import Reason, Unreadable
from faust_assigner.snapshots.asking import Connection, UnreachableError
from faust_assigner.snapshots.changelog import POLL_MS, STALL_S, Extent, consumer_of
from faust_assigner.snapshots.sst import OFFSET_KEY

T = TypeVar("T")

#: Seconds between two looks whether to stop, and for the work to end by itself after one that says so.
LOOK_S, GRACE_S = 0.2, 0.6
#: Partitions that are read at a time, and bytes of each in one answer of a broker.
TOGETHER, FETCH_BYTES = 2, 2 * 1024 * 1024
#: Seconds between two looks for a partition whose turn has not come.
WAIT_S = 0.05


class Work(Protocol):
    """What is to be replayed, and who takes it. Called in the replay's thread."""

    @property
    def tps(self) -> Collection[TopicPartition]:
        """All that may come."""

    def is_over(self) -> bool:
        """Whether nothing comes any more."""

    def begin(self) -> tuple[TopicPartition, Extent] | None:
        """The next partition to read, and what of it; None while there is none."""

    def write(self, tp: TopicPartition, records: Sequence[Any], position: int) -> None:
        """Take ``records``, in order of their offsets; ``position`` is the next one."""

    def finish(self, tp: TopicPartition) -> None:
        """Its end is reached."""


class BareFetcher(Fetcher):  # type: ignore[misc]
    """aiokafka's fetcher, of which records come as they are parsed: key, value, offset, headers."""

    async def _proc_fetch_request(self, assignment: Any, node_id: Any, request: Any) -> Any:
        found = await super()._proc_fetch_request(assignment, node_id, request)
        for result in self._records.values():
            records = getattr(result, "_partition_records", None)
            if records is not None:
                records._consumer_record = _as_parsed
        return found


def _as_parsed(tp: Any, record: Any) -> Any:
    return record


async def replay(
    connection: Connection,
    work: Work,
    *,
    stopped: Callable[[], bool],
    isolation_level: str,
    pace: Pace,
) -> None:
    """Read what ``work`` has to its end, or until ``stopped()``; what was written stays, with its offset.

    Cost: about 3 us and core for each record. Raises UnreachableError when nothing arrives for a minute.
    """
    connection = {"max_partition_fetch_bytes": FETCH_BYTES, **connection}
    async with consumer_of(connection, isolation_level=isolation_level) as consumer:
        consumer._fetcher.__class__ = BareFetcher
        tps = [TopicPartition(*tp) for tp in work.tps]
        consumer.assign(tps)
        consumer.pause(*tps)
        for tp in tps:
            consumer.seek(tp, 0)
        ends: dict[TopicPartition, int] = {}
        moved_at = time.monotonic()
        while not stopped():
            while len(ends) < TOGETHER and (found := work.begin()) is not None:
                tp, extent = (
                    TopicPartition(*found[0]),
                    found[1],
                )  # other named tuples are equal, not enough
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
                raise UnreachableError(f"nothing arrived for {STALL_S:.0f} s from {sorted(ends)}")


async def _take_turn(
    consumer: AIOKafkaConsumer, work: Work, ends: dict[TopicPartition, int], pace: Pace
) -> bool:
    """Read and write what one turn may, then pause; returns whether anything moved."""
    before = {tp: await consumer.position(tp) for tp in ends}
    most = pace.begin()
    fetched = await consumer.getmany(*ends, timeout_ms=POLL_MS, max_records=most)
    moved = False
    for tp, end in tuple(ends.items()):
        position = min(await consumer.position(tp), end)
        records: Sequence[Any] = fetched.get(tp, ())
        if records and records[-1].offset >= end:
            records = [record for record in records if record.offset < end]
        if records or position > before[tp]:
            moved = True
            work.write(tp, records, position)
        if position >= end:
            del ends[tp]
            consumer.pause(tp)
            work.finish(tp)
    pause_s = pace.end(sum(map(len, fetched.values())))
    # At least once around: answers are taken from the network, and the next ones asked for.
    await asyncio.sleep(pause_s)
    return moved


def run_until_stopped(work: Coroutine[Any, Any, T], stopped: Callable[[], bool]) -> T | None:
    """``work``'s result, in an event loop of its own; None when it was cancelled because of ``stopped()``.

    A request to a broker that is silent takes as long as a request may; a worker that ends cannot wait.
    """

    async def race() -> T | None:
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_S)
            if stopped() and not task.done():
                # It looks by itself, between two fetches; what it has written by then it can tell.
                await asyncio.wait({task}, timeout=GRACE_S)
                task.cancel()
                await asyncio.wait({task}, timeout=GRACE_S)
                return task.result() if task.done() and not task.cancelled() else None
        return task.result()

    return asyncio.run(race())


def whole(tp: TopicPartition, record: Any) -> ConsumerRecord[Any, Any]:
    """The record as consumers know it, for a schema of someone's own."""
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
    records: Sequence[Any],
    position: int,
    decoding: Decoding,
    complete: Callable[[Any], Any] = lambda record: record,
) -> tuple[rocksdict.WriteBatch, Sequence[Unreadable]]:
    """The records' last values, deletions, and Faust's offset key saying that ``position`` is next.

    The second part holds the records with a reason not to be in the table; the last one of their key
    without a reason counts. One that poses as the offset is dropped. ``complete`` makes of a bare record
    what the table's schema expects.
    """
    latest: dict[bytes, bytes | None] = {record.key: record.value for record in records}
    latest.pop(OFFSET_KEY, None)
    refused: Sequence[Unreadable] = ()
    values = [value for value in latest.values() if value is not None]
    if None in latest or not decoding.all_decode(list(latest), values):
        latest, refused = _asked_for_each(records, decoding.reason, complete)
    batch = rocksdict.WriteBatch(raw_mode=True)
    for key, value in latest.items():
        if value is None:  # not an empty one, which is a value
            batch.delete(key)
        else:
            batch.put(key, value)
    batch.put(OFFSET_KEY, str(position - 1).encode())
    return batch, refused


def _asked_for_each(
    records: Sequence[Any],
    reason: Reason,
    complete: Callable[[Any], Any],
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
