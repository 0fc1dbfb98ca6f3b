"""Several partitions replayed by one thread: their order, transactions and custom schemas."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from faust.exceptions import ValueDecodeError
from faust.stores.rocksdb import RocksDBOptions

from faust_assigner.app.recovery.bring_up import bring_up
from faust_assigner.app.recovery.decoding import ANYTHING, Decoding
from faust_assigner.app.recovery.restore_task import Cold, Restored, Settings, Stop
from faust_assigner.snapshots.sst import OFFSET_KEY
from faust_assigner.testing.broker import broker_process

PARTITIONS = 5


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The address of a broker for these tests."""
    with broker_process() as broker:
        yield broker.bootstrap


@pytest.fixture
def changelog(bootstrap: str) -> str:
    """The name of a new topic for each test."""
    return new_topic(bootstrap)


def new_topic(bootstrap: str) -> str:
    """Create a topic and return its name."""
    topic = f"app-{uuid.uuid4().hex}-changelog"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return topic


def write(bootstrap: str, topic: str, partition: int, keys: range, *, end: str = "") -> Producer:
    """Write records ``k`` -> ``v``, in a transaction that ends with ``end``, or in none."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
    producer = Producer(settings | ({"transactional.id": uuid.uuid4().hex} if end else {}))
    if end:
        producer.init_transactions(30)
        producer.begin_transaction()
    for key in keys:
        producer.produce(topic, b"v%d" % key, b"k%d" % key, partition)
    producer.flush(30)
    if end == "commit":
        producer.commit_transaction(30)
    if end == "abort":
        producer.abort_transaction(30)
    return producer


@contextmanager
def databases(folder: Path) -> Iterator[list[Any]]:
    """Empty databases, opened as Faust opens them."""
    made = [
        RocksDBOptions(use_rocksdict=True).open(folder / f"{number}.db")
        for number in range(PARTITIONS)
    ]
    try:
        yield made
    finally:
        for database in made:
            database.close()


def rows(database: Any) -> set[bytes]:
    """Return the keys of the table."""
    return {key for key, _ in database.items()} - {OFFSET_KEY}


def keys(*ranges: range) -> set[bytes]:
    """Return the keys as they were written."""
    return {b"k%d" % key for each in ranges for key in each}


@pytest.mark.kafka
def test_only_what_is_committed_is_replayed(kafka: Any, tmp_path: Path) -> None:
    """Aborted and open transactions leave no row, and later records are not skipped."""
    bootstrap = kafka.bootstrap
    changelog = new_topic(bootstrap)
    write(bootstrap, changelog, 0, range(10), end="commit")
    write(bootstrap, changelog, 0, range(10, 20), end="abort")
    write(bootstrap, changelog, 0, range(20, 30), end="commit")
    under_way = write(bootstrap, changelog, 0, range(30, 40), end="open")
    settings = Settings(None, True, {"bootstrap_servers": bootstrap}, "read_committed", tmp_path)
    with databases(tmp_path) as opened:
        tp = TopicPartition(changelog, 0)
        done = bring_up(settings, [Cold(tp, opened[0], -1, -1, True)], Stop())
        assert rows(opened[0]) == keys(range(10), range(20, 30))
        committed = done[tp].end_offset
        assert opened[0].get(OFFSET_KEY) == str(committed).encode()
        under_way.commit_transaction(30)
        again = bring_up(settings, [Cold(tp, opened[0], committed, -1, True)], Stop())
        assert rows(opened[0]) == keys(range(10), range(20, 40))
        assert again[tp].start_offset == committed


@pytest.mark.slow
@pytest.mark.processes
def test_each_partition_is_told_of_at_its_end_and_in_order(
    bootstrap: str, changelog: str, tmp_path: Path
) -> None:
    """Two are read at a time, restored ones flow meanwhile; an empty changelog needs no read."""
    sizes = [200, 400, 600, 800, 0]
    for partition, size in enumerate(sizes):
        write(bootstrap, changelog, partition, range(size))
    told: list[tuple[int, int]] = []
    settings = Settings(None, True, {"bootstrap_servers": bootstrap}, "read_uncommitted", tmp_path)
    with databases(tmp_path) as opened:

        def tell(restored: Restored) -> None:
            ready = restored.tp.partition
            assert rows(opened[ready]) == keys(range(sizes[ready]))
            told.append((ready, sum(bool(rows(database)) for database in opened)))

        done = bring_up(
            settings,
            [
                Cold(TopicPartition(changelog, n), opened[n], -1, sizes[n] - 1, True)
                for n in range(PARTITIONS)
            ],
            Stop(),
            tell,
        )
    assert told[0][0] in (0, 1)
    assert sorted(ready for ready, _ in told) == list(range(PARTITIONS))
    # The replay starts the last partition after the first is done.
    assert told[0][1] <= 2
    assert {tp.partition: each.end_offset for tp, each in done.items()} == {
        n: size - 1 for n, size in enumerate(sizes)
    }
    assert settings.progress.is_idle
    assert settings.progress.passed == sum(sizes)


@pytest.mark.slow
@pytest.mark.processes
def test_a_schema_of_someones_own_sees_the_whole_record(
    bootstrap: str, changelog: str, tmp_path: Path
) -> None:
    """The schema gets topic, time and headers; a record that it refuses is reported."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for flag in (b"good", b"bad"):
        producer.produce(changelog, b"1", flag, 2, headers=[("is", flag)])
    producer.flush(30)
    refused: list[Any] = []

    def reason(record: Any) -> Any:
        assert (record.topic, record.partition) == (changelog, 2)
        assert record.timestamp > 0
        assert record.serialized_value_size == 1
        return ValueDecodeError("no") if dict(record.headers)["is"] == b"bad" else None

    settings = Settings(
        None,
        True,
        {"bootstrap_servers": bootstrap},
        "read_uncommitted",
        tmp_path,
        unreadable=lambda tp, records: refused.extend(records),
    )
    with databases(tmp_path) as opened:
        tp = TopicPartition(changelog, 2)
        bring_up(settings, [Cold(tp, opened[2], -1, 1, True, Decoding(reason))], Stop())
        assert rows(opened[2]) == {b"good"}
    assert [(offset, key) for offset, key, *_ in refused] == [(1, b"bad")]


@pytest.mark.processes
def test_a_database_that_cannot_be_written_is_left_to_fausts_loop(
    bootstrap: str, changelog: str, tmp_path: Path
) -> None:
    """All partitions are reported, so that no task waits forever."""
    write(bootstrap, changelog, 1, range(50))
    told: list[Restored] = []
    settings = Settings(None, True, {"bootstrap_servers": bootstrap}, "read_uncommitted", tmp_path)
    with databases(tmp_path) as opened:
        opened[1].close()
        opened[1] = RocksDBOptions(use_rocksdict=True).open(tmp_path / "1.db")

        class Full:
            """A database on a full disk."""

            def write(self, batch: Any) -> None:
                raise OSError("No space left on device")

            def __getattr__(self, name: str) -> Any:
                return getattr(opened[1], name)

        bring_up(
            settings,
            [Cold(TopicPartition(changelog, 1), Full(), -1, 49, True, ANYTHING)],
            Stop(),
            told.append,
        )
    assert [(each.tp.partition, each.end_offset) for each in told] == [(1, -1)]
