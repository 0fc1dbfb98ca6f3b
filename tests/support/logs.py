"""Partition logs in tests: opened from a store, read and searched in one call, deleted alone."""

from __future__ import annotations

from faust_assigner.broker.storage import records
from faust_assigner.broker.storage.entries import KINDS
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.reads import Reading, plan_read, plan_time, present_batches
from faust_assigner.broker.storage.restoring import restore_logs
from faust_assigner.broker.storage.store import Store, prefix_range


def open_log(store: Store, topic_id: bytes, partition: int) -> PartitionLog:
    """Return the log of a partition as the store has it."""
    log = PartitionLog(store, topic_id, partition)
    restore_logs(store, [log])
    return log


def load(log: PartitionLog, reading: Reading) -> list[bytes | None]:
    """Return the planned batches from the store."""
    return log.store.get_many(reading.keys)


def read_log(log: PartitionLog, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
    """Plan, load and check a read in one call."""
    reading = plan_read(log, offset, max_bytes, at_least_one=at_least_one)
    return b"" if reading is None else b"".join(present_batches(log, load(log, reading), reading))


def find_time(log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record not older than ``timestamp``."""
    reading = plan_time(log, timestamp)
    if reading is None:
        return None
    [data] = present_batches(log, load(log, reading), reading)
    found = records.find_timestamp(data, timestamp)
    return max(found[0], log.start_offset), found[1]


def newest_time(log: PartitionLog) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the record with the greatest timestamp."""
    newest = log.index.newest_time()
    return None if newest is None else find_time(log, newest)


def erase_log(log: PartitionLog) -> None:
    """Delete all data of one partition, as the deletion of its topic does."""
    log.store.write((), ranges=[prefix_range(kind + log.place, log.every_key) for kind in KINDS])
    log.close()
