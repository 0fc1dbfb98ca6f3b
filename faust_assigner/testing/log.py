"""Writes and reads records directly in the embedded broker's logs, without a client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from aiokafka.partitioner import murmur2
from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.node import Node
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.reads import plan_read, present_batches
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.transactions import Aborted

#: The magic number of current record batches, and the most bytes of a read.
MAGIC, BATCH_BYTES = 2, 16 << 20


class Record(NamedTuple):
    """A record of a topic. Key and value are decoded as JSON, else as text, else they are bytes.

    ``timestamp`` is in seconds since 1970.
    """

    key: object
    value: object
    timestamp: float
    partition: int
    offset: int


def create(broker: EmbeddedBroker, topic: str, partitions: int) -> None:
    """Create a topic with ``partitions``, unless the topic exists."""

    def made(node: Node) -> None:
        if node.catalogue.get(topic) is None:
            node.catalogue.create(topic, partitions, {})

    broker.call(made)


def append(
    broker: EmbeddedBroker, topic: str, key: object, value: object, at: float, partition: int | None
) -> tuple[int, int]:
    """Write a record with the time ``at`` (seconds since 1970); return its partition and offset.

    Without ``partition``, the key chooses it. Raises AssertionError if the topic does not exist.
    """
    raw_key, raw_value = encoded(key), encoded(value)

    def written(node: Node) -> tuple[int, int]:
        found = node.catalogue.get(topic)
        assert found is not None, (
            f"there is no topic {topic!r}: {sorted(t.name for t in node.catalogue)}"
        )
        number = (
            _partition_of_key(raw_key, len(found.partitions)) if partition is None else partition
        )
        batch = DefaultRecordBatchBuilder(MAGIC, 0, 0, -1, -1, -1, BATCH_BYTES)
        batch.append(0, int(at * 1000), raw_key, raw_value, [])
        data = bytes(batch.build())
        log = found.partitions[number]
        return number, log.append(parse_batch(data), data, node.clock())

    return broker.call(written)


def read(broker: EmbeddedBroker, topic: str) -> list[Record]:
    """Return every record of a topic, by time, partition and offset; empty for an unknown topic.

    Records of aborted transactions are left out; records of an open transaction are included.
    """

    def logs_of(node: Node) -> list[tuple[bytes, list[Aborted]]]:
        found = node.catalogue.get(topic)
        return [_all_batches(log) for log in found.partitions] if found else []

    records = [
        record
        for partition, (data, aborted) in enumerate(broker.call(logs_of))
        for record in _decode_records(data, partition, aborted)
    ]
    return sorted(records, key=lambda record: record[2:])


def rows(records: Iterable[Record]) -> dict[Any, Any]:
    """Return the rows of a table from the records of its changelog: the newest value of each key.

    A key that is a JSON object, such as a Faust record, becomes its (name, value) pairs in order.
    """
    found: dict[Any, Any] = {}
    for record in sorted(records, key=lambda record: record[3:]):
        key = _hashable_key(record.key)
        found.pop(key, None)
        if record.value is not None:
            found[key] = record.value
    return found


def _hashable_key(key: object) -> Any:
    if isinstance(key, dict):
        return tuple((name, _hashable_key(value)) for name, value in sorted(key.items()))
    return tuple(map(_hashable_key, key)) if isinstance(key, list) else key


def _all_batches(log: PartitionLog) -> tuple[bytes, list[Aborted]]:
    """Return all batches of a partition, and its aborted transactions."""
    parts, offset = [], log.start_offset
    while reading := plan_read(log, offset, BATCH_BYTES, at_least_one=True):
        parts += present_batches(log, log.store.get_many(reading.keys), reading)
        offset = reading.beyond
    return b"".join(parts), log.aborted(log.start_offset, log.end_offset)


def ends(broker: EmbeddedBroker, topic: str) -> list[int]:
    """Return the end offset of each partition; empty for an unknown topic."""

    def found(node: Node) -> list[int]:
        topic_ = node.catalogue.get(topic)
        return [log.end_offset for log in topic_.partitions] if topic_ is not None else []

    return broker.call(found)


def _decode_records(data: bytes, partition: int, aborted: Sequence[Aborted]) -> Iterator[Record]:
    records = MemoryRecords(data)
    while records.has_next():
        batch = records.next_batch()
        if batch is None or batch.is_control_batch:
            continue
        if batch.is_transactional and any(
            one.producer_id == batch.producer_id and one.first <= batch.base_offset < one.last
            for one in aborted
        ):
            continue
        for one in batch:
            yield Record(
                decoded(one.key), decoded(one.value), one.timestamp / 1000, partition, one.offset
            )


def _partition_of_key(key: bytes | None, count: int) -> int:
    """Return the partition that Kafka's clients choose for a key.

    Without a key the partition is 0, so that tests are repeatable.
    """
    return 0 if key is None else (murmur2(key) & 0x7FFFFFFF) % count


def encoded(thing: Any) -> bytes | None:
    """Encode a key or value.

    Bytes stay unchanged, text becomes UTF-8, Faust records use their serializer, other values
    become JSON.
    """
    if thing is None or isinstance(thing, bytes):
        return thing
    if isinstance(thing, str):
        return thing.encode()
    if hasattr(thing, "dumps"):
        return bytes(thing.dumps(serializer=thing._options.serializer or "json"))
    return json.dumps(thing).encode()


def decoded(data: bytes | None) -> Any:
    """Decode bytes as JSON, else as UTF-8 text; return other bytes unchanged."""
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
