"""Compaction of transactions: open and aborted transactions, their markers, and their producers."""

from __future__ import annotations

import pytest

from faust_assigner.broker.storage import clean_writes
from faust_assigner.broker.storage.cleaning import CleaningRules, cleanable
from faust_assigner.broker.storage.entries import ENDED, INDEX, NONE, Entry
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.records import TRANSACTIONAL
from faust_assigner.broker.storage.store import MemoryStore
from tests.support.logs import open_log
from tests.unit.broker.cleaned import DELETE_RETENTION_MS, TOPIC, clean, offsets, write


@pytest.fixture
def log() -> PartitionLog:
    """Return an empty partition in memory."""
    return open_log(MemoryStore(), TOPIC, 0)


def end_transaction(log: PartitionLog, producer_id: int, *, commits: bool, epoch: int = 0) -> None:
    """Write a transaction's marker."""
    ending = log.end_transaction(producer_id, epoch, 0, commits=commits)
    log.store.write(ending.puts, ending.deletes)
    ending.stored()


def test_aborted_records_go_at_once_and_their_marker_after_its_retention(log: PartitionLog) -> None:
    """The note of the aborted transaction is removed with the marker, on disk and in memory."""
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"), attributes=TRANSACTIONAL, producer_id=1, epoch=0, sequence=0)
    end_transaction(log, 1, commits=False)
    log.expire_producers(1)
    write(log, (b"z", b"3"))
    bases = []
    for now in (0, 1, DELETE_RETENTION_MS, 1 + DELETE_RETENTION_MS):
        write(log, (b"z", b"4"))
        clean(log, now_ms=now)
        bases.append(list(log.index.bases[:2]))
        ended = list(log.store.scan(ENDED + log.place))
        assert len(ended) == len(log.transactions.aborted_markers()) == (2 in bases[-1])
    assert bases == [[0, 2], [0, 2], [0, 2], [0, 6]]


def test_a_marker_stays_while_data_of_its_transaction_does(log: PartitionLog) -> None:
    """A read_committed reader needs both; the marker of an emptied transaction is removed."""
    for key in (b"stays", b"a"):
        write(log, (key, b"1"), attributes=TRANSACTIONAL, producer_id=1, epoch=0, sequence=0)
        end_transaction(log, 1, commits=True)
        log.expire_producers(1)
    write(log, (b"a", b"2"))
    for now in (0, DELETE_RETENTION_MS, 2 * DELETE_RETENTION_MS):
        write(log, (b"z", b"3"))
        clean(log, now_ms=now)
    assert list(log.index.bases)[:3] == [0, 1, 4]


def test_a_marker_that_is_the_last_word_of_a_known_producer_stays(log: PartitionLog) -> None:
    """After a restart the fenced epoch is still refused; markers of earlier epochs are removed."""
    data = {"attributes": TRANSACTIONAL, "producer_id": 1, "sequence": 0}
    write(log, (b"a", b"1"), epoch=0, **data)
    end_transaction(log, 1, commits=True)
    write(log, (b"a", b"2"), epoch=1, **data)
    end_transaction(log, 1, commits=False, epoch=2)
    write(log, (b"a", b"3"))
    for now in (0, DELETE_RETENTION_MS, 2 * DELETE_RETENTION_MS):
        write(log, (b"z", b"4"))
        clean(log, now_ms=now)
    assert list(log.index.bases)[:2] == [3, 4]
    again = open_log(log.store, TOPIC, 0)
    assert dict(again.producers.items())[1].epoch == 2
    again.expire_producers(1)
    for now in (0, DELETE_RETENTION_MS):
        write(again, (b"z", b"5"), at_ms=1)
        clean(again, now_ms=now)
    assert again.index.bases[0] == 4


def test_a_batch_outside_of_transactions_is_not_removed_with_an_aborted_one(
    log: PartitionLog,
) -> None:
    """A read_committed reader gets the record although its producer aborts a transaction."""
    write(log, (b"a", b"1"), attributes=TRANSACTIONAL, producer_id=1, epoch=0, sequence=0)
    write(log, (b"b", b"2"), producer_id=1, epoch=0, sequence=1)
    end_transaction(log, 1, commits=False)
    write(log, (b"z", b"3"))
    clean(log)
    assert offsets(log) == [1, 3]


def test_nothing_at_or_behind_an_open_transaction_is_touched(log: PartitionLog) -> None:
    """The last stable offset ends a pass."""
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    write(log, (b"a", b"3"), attributes=TRANSACTIONAL, producer_id=1, epoch=0, sequence=0)
    write(log, (b"a", b"4"))
    write(log, (b"a", b"5"))
    clean(log)
    assert offsets(log) == [1, 2, 3, 4]


def test_a_marker_stays_while_an_emptied_batch_of_its_transaction_does(log: PartitionLog) -> None:
    """The batch stays for its producer's sequence, and its transaction keeps its end."""
    write(log, (b"a", b"1"), attributes=TRANSACTIONAL, producer_id=1, epoch=0, sequence=0)
    end_transaction(log, 1, commits=True)
    write(log, (b"a", b"2"))
    for now in (0, DELETE_RETENTION_MS, 2 * DELETE_RETENTION_MS):
        write(log, (b"z", b"3"))
        clean(log, now_ms=now)
    assert list(log.index.bases)[:2] == [0, 1]


def test_each_aborted_transaction_of_a_producer_loses_its_records(log: PartitionLog) -> None:
    """The producer has three aborted transactions and a commit; a second producer is in between."""
    data = {"attributes": TRANSACTIONAL, "epoch": 0}
    write(log, (b"a", b"stays"))
    for n, (producer_id, commits) in enumerate(
        ((1, False), (2, False), (1, True), (1, False), (2, True))
    ):
        key = b"c%d" % n if commits else b"a"
        write(log, (key, b"v"), producer_id=producer_id, sequence=n, **data)
        end_transaction(log, producer_id, commits=commits)
    write(log, (b"z", b"end"))
    assert log.aborted(0, log.end_offset) == [(1, 1, 2, 3), (2, 3, 4, 5), (1, 7, 8, 9)]
    clean(log)
    assert offsets(log) == [0, 5, 9, 11]


def test_a_marker_without_retention_outlives_the_pass_that_finds_it(log: PartitionLog) -> None:
    """A reader within the transaction still needs the marker; the next pass removes it."""
    write(log, (b"a", b"1"), attributes=TRANSACTIONAL, producer_id=1, epoch=0, sequence=0)
    end_transaction(log, 1, commits=False)
    log.expire_producers(1)
    rules = CleaningRules(0.0, 0)
    seen = []
    for _ in range(3):
        write(log, (b"z", b"2"))
        write(log, (b"z", b"2"))
        found = cleanable(log, rules, 50)
        assert found is not None
        work = clean_writes.begin(log, found, rules, 50, 100)
        while work.map_some():
            pass
        while (chunk := work.clean_some()) is not None:
            clean_writes.apply(log, chunk)
        clean_writes.end(log, work)
        seen.append((log.index.bases[0] == 1, log.transactions.aborted_markers()))
    dated = (True, (1,))  # the first pass removes the batch, the second pass dates the marker
    assert seen == [dated, dated, (False, ())]


def test_all_markers_that_a_step_removes_are_forgotten(log: PartitionLog) -> None:
    """Two producers aborted a transaction each; readers must not get the notes of either."""
    for producer_id in (1, 2):
        header = {"producer_id": producer_id, "epoch": 0, "sequence": 0}
        write(log, (b"a", b"1"), attributes=TRANSACTIONAL, **header)
        end_transaction(log, producer_id, commits=False)
    log.expire_producers(1)
    found = []
    for now in (0, 1, 2 + DELETE_RETENTION_MS):
        write(log, (b"z", b"2"))
        write(log, (b"z", b"3"))
        clean(log, now_ms=now)
        found.append(log.transactions.aborted_markers())
    assert found == [(1, 3), (1, 3), ()]
    assert list(log.store.scan(ENDED + log.place)) == []


def test_the_next_transaction_of_a_producer_begins_right_after_its_aborted_one(
    log: PartitionLog,
) -> None:
    """Its records stay: the aborted transaction ends with its marker, at the offset before."""
    data = {"attributes": TRANSACTIONAL, "producer_id": 1, "epoch": 0}
    for n, commits in enumerate((False, True, False)):
        write(log, (b"k%d" % n, b"v"), sequence=n, **data)
        end_transaction(log, 1, commits=commits)
    write(log, (b"z", b"end"))
    clean(log)
    assert offsets(log) == [2, 6]


def test_an_aborted_transaction_within_an_open_one_loses_all_its_records(log: PartitionLog) -> None:
    """The last stable offset is before the aborted transaction until the outer one commits."""
    data = {"attributes": TRANSACTIONAL, "epoch": 0}
    write(log, (b"outer", b"1"), producer_id=2, sequence=0, **data)
    write(log, (b"inner", b"2"), producer_id=1, sequence=0, **data)
    write(log, (b"inner", b"3"), producer_id=1, sequence=1, **data)
    end_transaction(log, 1, commits=False)
    end_transaction(log, 2, commits=True)
    write(log, (b"z", b"end"))
    assert log.aborted(0, log.end_offset) == [(1, 1, 3, 0)]
    clean(log)
    assert offsets(log) == [0, 5]


def test_only_a_batch_that_keeps_a_tombstone_gets_a_time_for_its_removal(log: PartitionLog) -> None:
    """A tombstone that a later record replaces leaves no time behind."""
    write(log, (b"a", None), (b"b", b"1"), (b"c", b"1"))
    write(log, (b"d", None), (b"c", b"2"), (b"e", b"2"))
    write(log, (b"a", b"3"), (b"e", b"3"))
    write(log, (b"z", b"4"))
    clean(log, now_ms=7)
    assert offsets(log) == [1, 3, 4, 6, 7, 8]
    entries = [Entry.unpack(value) for _, value in log.store.scan(INDEX + log.place)]
    assert [one.horizon_ms for one in entries] == [NONE, 7 + DELETE_RETENTION_MS, NONE, NONE]
