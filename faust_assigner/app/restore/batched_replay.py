"""The writer: changelog records into RocksDB in batches, past Faust's one-by-one recovery loop.

Faust makes a message and an event of every record, passes it through two queues and looks at all
partitions after each. Here records go from a consumer of our own into one write batch per fetch, the
offset in the same batch: state and offset land together, and a kill leaves no gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import rocksdict
from aiokafka import TopicPartition

from faust_assigner.app.restore.unreadable import Reason, Unreadable
from faust_assigner.snapshots.asking import Connection
from faust_assigner.snapshots.changelog import Extent, read
from faust_assigner.snapshots.sst import OFFSET_KEY

T = TypeVar("T")

#: Seconds between two looks whether to stop, and for the work to end by itself after one that says so.
LOOK_S, GRACE_S = 0.2, 0.6


def write_in_batches(
    connection: Connection, databases: Mapping[TopicPartition, Any],
    spans: Mapping[TopicPartition, Extent], *, stopped: Callable[[], bool], isolation_level: str,
    reasons: Mapping[TopicPartition, Reason], unreadable: Callable[[Any, Sequence[Unreadable]], None],
) -> dict[TopicPartition, tuple[int, int]]:
    """Bring each database up to its span's end; returns (last offset applied, bytes read) of each.

    To be run in a thread of its own. ``stopped`` is asked a few times a second, whatever the broker does.
    What was applied before a stop or an error stays, with its offset. ``unreadable`` is told of records
    that have a reason, in ``reasons``, not to be in their table. Cost: about 3 us and core for each record,
    and its decoding for the last one of each key of a batch: 4 us for numbers, 10 us for small models.
    """

    read_bytes = dict.fromkeys(spans, 0)

    def write(tp: TopicPartition, records: Sequence[Any], position: int) -> None:
        read_bytes[tp] += sum(record.serialized_key_size + record.serialized_value_size for record in records)
        batch, refused = to_batch(records, position, reasons[tp])
        databases[tp].write(batch)
        unreadable(tp, refused)

    reached = run_until_stopped(
        read(connection, spans, write, stopped=stopped, isolation_level=isolation_level), stopped)
    if reached is None:
        raise Stopped(f"told to stop while {sorted(spans)} were read")
    return {tp: (position - 1, read_bytes[tp]) for tp, position in reached.items()}


class Stopped(Exception):
    """A replay was told to stop while it waited for the broker."""


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


def to_batch(
    records: Sequence[Any], position: int, reason: Reason,
) -> tuple[rocksdict.WriteBatch, list[Unreadable]]:
    """The records' last values, deletions, and Faust's offset key saying that ``position`` is next.

    The second part holds the records with a ``reason`` not to be in the table; the last one of their key
    without a reason counts. One that poses as the offset is dropped.
    """
    latest: dict[bytes, bytes | None] = {}
    refused: list[Unreadable] = []
    for record in reversed(records):
        if record.key in latest or record.key == OFFSET_KEY:
            continue
        error = reason(record)
        if error is None:
            latest[record.key] = record.value
        else:
            refused.append((record.offset, record.key, record.value, error))
    batch = rocksdict.WriteBatch(raw_mode=True)
    for key, value in latest.items():
        if value is None:  # not an empty one, which is a value
            batch.delete(key)
        else:
            batch.put(key, value)
    batch.put(OFFSET_KEY, str(position - 1).encode())
    return batch, refused[::-1]
