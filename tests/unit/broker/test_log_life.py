"""A partition's log after a restart, at the limits of its ranges, and after losses."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker.storage.batch_index import BatchIndex
from faust_assigner.broker.storage.entries import CLEAN, ENDED, OFFSET, OPEN
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.losses import accept_losses
from faust_assigner.broker.storage.producers import ProducerBook
from faust_assigner.broker.storage.reads import plan_read, present_batches
from faust_assigner.broker.storage.records import TRANSACTIONAL, parse_batch
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.storage.transactions import Aborted, TransactionIndex
from faust_assigner.coordinator.errors import Code
from tests.support.clients.raw_client import batch, one_record
from tests.support.logs import erase_log, load, open_log
from tests.unit.broker.test_transactions import Bench

TOPIC = uuid.UUID(int=1).bytes


def append(log: PartitionLog, count: int = 1, **header: int) -> int:
    """Append a batch; return its first offset."""
    data = batch(count=count, **header)
    return log.append(parse_batch(data), data, 0)


def test_an_accepted_loss_at_the_end_does_not_lower_the_end_of_a_later_life() -> None:
    """Records after the loss keep their offsets after the next start."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    append(log)
    accept_losses(log, [(1, 3)], [])
    assert append(log) == 3
    again = open_log(store, TOPIC, 0)
    assert again.end_offset == 4
    assert append(again) == 4


@pytest.mark.parametrize(
    ("cleaned", "verdict"), [(False, "out_of_order_sequence_number"), (True, "none")]
)
def test_a_marker_whose_batches_may_be_compacted_away_says_nothing_of_sequences(
    cleaned: bool, verdict: str, tmp_path: Path
) -> None:
    """After a restart the producer's sequence is free; in a complete log it must begin at 0."""
    bench = Bench(tmp_path)
    bench.begin()
    assert bench.end(commits=True) is Code.NONE
    if cleaned:
        bench.node.store.write([(CLEAN + bench.log.place, OFFSET.pack(1))])
    bench.node.close()
    again = Bench(tmp_path)
    assert again.judged(7).error is ErrorCode[verdict]
    again.node.close()


def test_the_write_audit_learns_of_the_end_that_a_marker_makes() -> None:
    """A lost marker would leave a transaction open for ever, so a start must notice the loss."""
    bench = Bench()
    bench.begin()
    bench.write()
    ends: list[int] = []
    bench.node.store.note_end = lambda place, end: ends.append(end)  # type: ignore[method-assign]
    bench.end(commits=False)
    assert ends == [2]
    bench.node.close()


def test_a_compaction_before_a_read_does_not_excuse_a_missing_batch() -> None:
    """Only a compaction between the plan and the read explains the missing batch."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    append(log)
    log.cleanings = 1
    reading = plan_read(log, 0, 1_000, at_least_one=True)
    assert reading is not None
    store.write((), reading.keys)
    with pytest.raises(StoreFailed):
        present_batches(log, load(log, reading), reading)
    log.cleanings = 2
    assert present_batches(log, load(log, reading), reading) == []


def test_a_log_start_never_moves_back() -> None:
    """DeleteRecords may have an offset that is already deleted."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    for _ in range(3):
        append(log)
    log.trim(2)
    log.trim(1)
    assert log.start_offset == 2
    assert open_log(store, TOPIC, 0).start_offset == 2


def test_a_trim_forgets_the_aborted_transactions_before_it_alone(tmp_path: Path) -> None:
    """In memory and on disk, read_committed readers still need the later transactions."""
    bench = Bench(tmp_path)
    for sequence in range(2):
        if sequence == 0:
            bench.begin()
        else:
            bench.reopen("tx")
        bench.write(sequence=sequence)
        bench.end(commits=False)
    assert bench.aborted(0, 4) == [(0, 1), (2, 3)]
    bench.log.trim(2)
    assert bench.aborted(0, 4) == [(2, 3)]
    bench.node.close()
    again = Bench(tmp_path)
    assert again.aborted(0, 4) == [(2, 3)]
    again.log.trim(3)
    assert again.aborted(0, 4) == [(2, 3)], "its marker is left"
    again.node.close()
    last = Bench(tmp_path)
    assert last.aborted(0, 4) == [(2, 3)], "on the disk, too"
    last.node.close()


def test_a_deleted_partition_in_memory_leaves_no_transaction() -> None:
    """Open and aborted transactions have their own keys."""
    bench = Bench()
    bench.begin()
    bench.write()
    bench.end(commits=False)
    bench.reopen("tx")
    bench.write(sequence=1)
    found = [len(list(bench.node.store.scan(kind))) for kind in (OPEN, ENDED)]
    erase_log(bench.log)
    assert found == [1, 1]
    assert [list(bench.node.store.scan(kind)) for kind in (OPEN, ENDED)] == [[], []]
    bench.node.close()


def test_open_transactions_are_restored_in_the_order_of_their_offsets() -> None:
    """The oldest transaction decides the stable offset, whatever the producer ids."""
    index = TransactionIndex()
    index.restore([(1, 50), (2, 10)], [])
    assert index.first_open() == 10
    assert index.first_open(without=2) == 50


def test_a_transaction_whose_marker_is_the_first_offset_that_is_left_is_kept() -> None:
    """A trim to the marker forgets only earlier transactions."""
    index = TransactionIndex()
    for last in (1, 3):
        index.add(Aborted(7, last - 1, last, last + 1))
    assert index.trim(3) == 1
    assert index.aborted_markers() == (3,)


def test_a_new_epoch_of_a_producer_keeps_the_epoch_of_the_coordinator() -> None:
    """DescribeProducers shows the epoch; a marker of a known epoch keeps the sequence."""
    book = ProducerBook()
    book.record(1, 0, 0, 0, 0, 10)
    book.mark(1, 0, 20)
    [(_, state)] = book.items()
    assert (state.coordinator_epoch, state.last_seen_ms, state.last_sequence) == (0, 20, 0)
    book.record(1, 1, 0, 0, 2, 30)
    [(_, state)] = book.items()
    assert (state.epoch, state.coordinator_epoch, state.last_seen_ms) == (1, 0, 30)


def test_a_marker_of_a_later_epoch_makes_no_known_producer_forgotten() -> None:
    """Batches may be missing only for a producer that is unknown here."""
    book = ProducerBook()
    book.record(1, 0, 0, 0, 0, 10)
    book.mark(1, 1, 20, is_trimmed=True)
    book.mark(2, 1, 20, is_trimmed=True)
    assert {pid: state.is_forgotten for pid, state in book.items()} == {1: False, 2: True}


def test_a_batch_of_exactly_the_oldest_time_is_kept() -> None:
    """retention.ms is the minimum age of deleted records."""
    index = BatchIndex()
    for n, time in enumerate((99, 100, 101)):
        index.append(n, n + 1, 70, time)
    assert [index.overdue(oldest, None, int) for oldest in (99, 100, 101, 102)] == [0, 1, 2, 3]
    assert [index.first_newer(time, 0, 3, int) for time in (98, 99, 100, 101)] == [0, 1, 2, 3]


def test_times_are_found_in_batches_that_came_after_the_first_search() -> None:
    """The running maximum continues after an empty index and with a falling time."""
    index = BatchIndex()
    assert index.at_time(1) is None
    for n, time in enumerate((5, 3, 9)):
        index.append(n, n + 1, 70, time)
    assert [index.at_time(time) for time in (1, 5, 6, 9, 10)] == [0, 0, 2, 2, None]
    assert index.newest_time() == 9


def test_an_index_after_a_drop_counts_its_own_bytes_and_times() -> None:
    """Dropped batches are in no sum, no search and no limit."""
    index = BatchIndex()
    for n, (size, time) in enumerate(((70, 9), (80, 3), (90, 5))):
        index.append(n, n + 1, size, time)
    assert index.at_time(4) == 0
    index.drop(1)
    assert (len(index), index.size, index.at_time(4)) == (2, 170, 1)
    assert [index.within(0, size) for size in (79, 80, 169, 170)] == [0, 1, 1, 2]
    assert index.overdue(None, 90, int) == 1


def test_a_transaction_opens_with_its_first_batch_alone() -> None:
    """The stable offset stays at the first record, on disk as well."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    for sequence in range(2):
        append(log, producer_id=4, epoch=0, sequence=sequence, attributes=TRANSACTIONAL)
    assert (log.stable_offset, log.end_offset) == (0, 2)
    assert open_log(store, TOPIC, 0).stable_offset == 0


def test_a_repeated_batch_has_the_same_last_sequence_as_well() -> None:
    """A different batch with the same start is a client's error and must not be acknowledged."""
    book = ProducerBook()
    book.record(1, 0, 0, 2, 0, 0)
    same, other = (
        parse_batch(batch(one_record() * count, count=count, producer_id=1, epoch=0, sequence=0))
        for count in (3, 2)
    )
    assert book.judge(same).duplicate_of == 0
    assert (book.judge(other).duplicate_of, bool(book.judge(other).error)) == (None, True)
