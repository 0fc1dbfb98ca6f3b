"""Records of the embedded broker's logs, as read by a test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.records import TRANSACTIONAL
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.testing import log as log_module
from faust_assigner.testing.log import Record, ends, read, rows
from tests.support.logs import open_log
from tests.unit.broker.cleaned import TOPIC, write
from tests.unit.broker.test_cleaning_transactions import end_transaction


@pytest.fixture
def log() -> PartitionLog:
    """An empty partition in memory."""
    return open_log(MemoryStore(), TOPIC, 0)


def values(log: PartitionLog) -> list[Any]:
    """Return the values of all records, as read by a test."""
    topics = {"out": SimpleNamespace(partitions=[log])}
    broker: Any = SimpleNamespace(call=lambda work: work(SimpleNamespace(catalogue=topics)))
    return [record.value for record in read(broker, "out")]


def test_records_of_an_aborted_transaction_are_left_out(log: PartitionLog) -> None:
    """A later transaction and an open transaction of the producer count, as do plain records."""
    for sequence, commits in enumerate((False, True, False)):
        write(
            log,
            (b"k", b"%d" % sequence),
            attributes=TRANSACTIONAL,
            producer_id=1,
            epoch=0,
            sequence=sequence,
        )
        write(log, (b"k", b"%d" % (10 + sequence)))
        end_transaction(log, 1, commits=commits)
    write(log, (b"k", b"20"), attributes=TRANSACTIONAL, producer_id=1, epoch=0, sequence=3)
    assert values(log) == [10, 1, 11, 12, 20]


def test_a_transaction_amid_another_producers_aborted_one_is_kept(log: PartitionLog) -> None:
    """Offsets alone do not tell the two producers apart."""
    for producer_id in (1, 2):
        write(
            log,
            (b"k", b"%d" % producer_id),
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            epoch=0,
            sequence=0,
        )
    end_transaction(log, 2, commits=True)
    end_transaction(log, 1, commits=False)
    assert values(log) == [2]


def test_a_partition_larger_than_one_read_is_read_whole(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is read once, including a batch larger than a read."""
    for number in range(5):
        write(log, (b"k", b"%d" % number))
    monkeypatch.setattr(log_module, "BATCH_BYTES", 1)
    assert values(log) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(log_module, "BATCH_BYTES", log.index.bytes_between(0, 2))
    assert values(log) == [0, 1, 2, 3, 4]


def test_the_end_of_a_partition_counts_its_removed_records_too() -> None:
    """An offset is no number of records; the order is that of the partitions."""
    partitions = [
        SimpleNamespace(start_offset=start, end_offset=end)
        for start, end in ((3, 9), (4, 4), (0, 2))
    ]
    topics = {"out": SimpleNamespace(partitions=partitions)}
    broker: Any = SimpleNamespace(call=lambda work: work(SimpleNamespace(catalogue=topics)))
    assert ends(broker, "out") == [9, 4, 2]
    assert ends(broker, "none") == []


def test_a_record_or_a_list_may_be_the_key_of_a_row() -> None:
    """Faust writes a record as a JSON object; the order of its fields does not matter."""
    keys: list[Any] = [
        {"id": 1, "at": [2, {"x": 3}]},
        ["a", [0.0, 9.0]],
        {"at": [2, {"x": 3}], "id": 1},
    ]
    found = rows(Record(key, number, 0.0, 0, number) for number, key in enumerate(keys))
    assert found == {("a", (0.0, 9.0)): 1, (("at", (2, (("x", 3),))), ("id", 1)): 2}
