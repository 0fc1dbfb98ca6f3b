"""Batches of a compacted partition, a compaction pass, and the remaining records."""

from __future__ import annotations

import uuid
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from faust_assigner.broker.storage import clean_writes
from faust_assigner.broker.storage.cleaning import CleaningRules, cleanable
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.records import parse_batch, read_header
from faust_assigner.broker.storage.unpacking import pack
from tests.support.clients.raw_client import batch, keyed_record

TOPIC = uuid.UUID(int=1).bytes
DELETE_RETENTION_MS = 100
Pair = tuple[bytes | None, bytes | None]


def write(log: PartitionLog, *pairs: Pair, at_ms: int = 0, codec: int = 0, **header: Any) -> int:
    """Append a batch of (key, value) records at a time, by default their own; return its base offset."""
    body = b"".join(keyed_record(k, v, offset_delta=n) for n, (k, v) in enumerate(pairs))
    attributes = header.pop("attributes", 0) | codec
    packed = pack(codec, body) if codec else body
    timestamp = header.pop("timestamp", at_ms)
    data = batch(packed, count=len(pairs), attributes=attributes, timestamp=timestamp, **header)
    return log.append(parse_batch(data), data, at_ms)


def clean(log: PartitionLog, now_ms: int = 0, max_keys: int = 1_000) -> None:
    """Run a pass over all cleanable batches."""
    rules = CleaningRules(0.0, DELETE_RETENTION_MS)
    found = cleanable(log, rules, now_ms)
    if found is None:
        return
    work = clean_writes.begin(log, found, rules, now_ms, max_keys)
    while work.map_some():
        pass
    while (chunk := work.clean_some()) is not None:
        clean_writes.apply(log, chunk)
    clean_writes.end(log, work)


def contents(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return (offset, key, value) of every record, read by aiokafka."""
    found = []
    for row in log.index.rows(0, len(log.index)):
        data = log.store.get(log.batch_key(row.base))
        assert data is not None
        if not read_header(data).is_control and read_header(data).count:
            found += [(r.offset, r.key, r.value) for r in DefaultRecordBatch(data)]
    return found


def offsets(log: PartitionLog) -> list[int]:
    """Return the offsets that have a record."""
    return [offset for offset, _, _ in contents(log)]
