"""A partition log's plans and restored state, compared whole: reads, ends, erasing, retention."""

from __future__ import annotations

import uuid

import pytest

from faust_assigner.broker.storage.entries import CLEAN, KINDS, OFFSET, OPEN, Entry
from faust_assigner.broker.storage.losses import accept_losses, unexplained_holes
from faust_assigner.broker.storage.reads import available, plan_read
from faust_assigner.broker.storage.records import (
    CONTROL,
    TRANSACTIONAL,
    BadBatch,
    Batch,
    cut_batch,
    parse_batch,
    place,
    read_header,
)
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.broker.storage.transactions import ABORTED, Aborted, marker_batch
from tests.support.clients.raw_client import batch
from tests.support.logs import erase_log, open_log
from tests.unit.broker.test_log_life import append

TOPIC = uuid.UUID(int=1).bytes


def test_each_waiting_fetch_is_woken_by_a_batch_a_marker_and_a_deletion() -> None:
    """A waiter may stop waiting meanwhile; the waiters see the deletion when they are called."""
    log = open_log(MemoryStore(), TOPIC, 0)
    woken: list[tuple[str, int, bool]] = []

    def first() -> None:
        woken.append(("first", log.end_offset, log.deleted))
        log.waiters.pop(1, None)

    log.waiters[1] = first
    for number, name in ((2, "second"), (3, "third")):
        log.waiters[number] = lambda name=name: woken.append((name, log.end_offset, log.deleted))  # type: ignore[misc]
    append(log, 2)
    log.end_transaction(7, 0, 0, commits=True).stored()
    log.close()
    waiting = ("second", "third")
    assert woken == [
        ("first", 2, False),
        *((name, 2, False) for name in waiting),
        *((name, 3, False) for name in waiting),
        *((name, 3, True) for name in waiting),
    ]


@pytest.mark.parametrize("commits", [True, False])
def test_the_end_of_one_of_two_transactions_is_planned_whole(commits: bool) -> None:
    """The end has a marker, an index entry and a note; the second transaction stays open."""
    log = open_log(MemoryStore(), TOPIC, 3)
    append(log, 2)
    for producer_id in (4, 9):
        append(log, producer_id=producer_id, epoch=5, sequence=0, attributes=TRANSACTIONAL)
    ending = log.end_transaction(4, 6, 1_234, commits=commits)
    data, header = marker_batch(4, 6, 1_234, commits=commits)
    entry = Entry(0, header.size, 1_234, 1_234, 4, 6, -1)
    assert ending.puts == (
        (log.batch_key(4), place(data, 4, 0)),
        (log.index_key(4), entry.pack()),
        *(() if commits else ((log.ended_key(4), ABORTED.pack(4, 2, 3)),)),
    )
    assert ending.deletes == (OPEN + log.place + OFFSET.pack(4),)
    assert (log.end_offset, log.stable_offset) == (4, 2)
    ending.stored()
    assert (log.end_offset, log.stable_offset, log.transactions.open) == (5, 3, {9: 3})
    assert log.aborted(0, 5) == ([] if commits else [Aborted(4, 2, 4, 3)])
    known = dict(log.producers.items())
    assert [(pid, s.epoch, s.last_seen_ms) for pid, s in known.items()] == [
        (9, 5, 0),
        (4, 6, 1_234),
    ]
    last = log.end_transaction(9, 5, 2_000, commits=False)
    assert last.puts[2] == (log.ended_key(5), ABORTED.pack(9, 3, 6))


def test_erasing_leaves_no_key_of_the_partition_and_every_key_of_the_next_one() -> None:
    """The keys hold batches, index, start, losses, transactions, and the note of the compaction."""
    store = MemoryStore()
    logs = [open_log(store, TOPIC, number) for number in (0, 1)]
    for log in logs:
        for producer_id in (4, 9):
            append(log, producer_id=producer_id, epoch=0, sequence=0, attributes=TRANSACTIONAL)
        ending = log.end_transaction(4, 0, 0, commits=False)
        store.write(ending.puts, ending.deletes)
        ending.stored()
        log.trim(1)
        accept_losses(log, [(3, 4)], ())
        store.write([(CLEAN + log.place, OFFSET.pack(2))])
    assert {key for key, _ in store.scan(b"")} == {
        key for log in logs for key in log.every_key()
    }, "the keys of a log are known to it"
    erase_log(logs[0])
    left = [key[:1] for key, _ in store.scan(b"")]
    assert sorted(left) == sorted([*KINDS, *(b"b", b"x")])
    assert all(key[1:21] == logs[1].place for key, _ in store.scan(b""))


def test_a_start_restores_every_fact_of_a_trimmed_compacted_log_with_a_loss() -> None:
    """Start, end, losses, clean offset, rows, and the producers with their times are restored."""
    store, place_ = MemoryStore(), TOPIC + (3).to_bytes(4, "big")
    first = Entry(2, 100, 50, 1_000, 7, 2, 5)
    second = Entry(0, 110, 40, 1_100, 8, 3, -1, follows=13, horizon_ms=9)
    third = Entry(1, 120, 60, 1_200, -1, -1, -1)
    rows = {10: first, 15: second, 20: third}
    store.write((b"x" + place_ + OFFSET.pack(base), row.pack()) for base, row in rows.items())
    losses = OFFSET.pack(30) + OFFSET.pack(22) + OFFSET.pack(30)
    store.write(
        [
            (b"s" + place_, OFFSET.pack(11)),
            (b"e" + place_, losses),
            (CLEAN + place_, OFFSET.pack(16)),
        ]
    )
    log = open_log(store, TOPIC, 3)
    assert (log.start_offset, log.end_offset, log.flushed_to, log.cleaned_to) == (11, 30, 30, 16)
    assert (log.holes, log.accepted, unexplained_holes(log)) == (
        ((16, 20),),
        ((22, 30),),
        [(16, 20)],
    )
    assert [tuple(row) for row in log.index.rows(0, 3)] == [
        (10, 13, 100, 50),
        (15, 16, 110, 40),
        (20, 22, 120, 60),
    ]
    known = {
        producer_id: (s.epoch, list(s.batches), s.last_seen_ms, s.coordinator_epoch, s.is_forgotten)
        for producer_id, s in log.producers.items()
    }
    assert known == {7: (2, [(5, 7, 10)], 1_000, -1, False), 8: (3, [], 1_100, 0, True)}
    assert (log.number, log.size, available(log, 11), available(log, 16, 20)) == (3, 330, 330, 0)


@pytest.mark.parametrize(
    ("trimmed", "cleaned", "is_forgotten"),
    [(False, False, False), (True, False, True), (False, True, True)],
)
def test_a_marker_tells_nothing_of_sequences_where_its_batches_may_be_gone(
    trimmed: bool, cleaned: bool, is_forgotten: bool
) -> None:
    """A deletion or a compaction alone is enough."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    append(log)
    ending = log.end_transaction(7, 0, 0, commits=True)
    store.write(ending.puts, ending.deletes)
    ending.stored()
    if trimmed:
        log.trim(1)
    if cleaned:
        store.write([(CLEAN + log.place, OFFSET.pack(1))])
    [(_, state)] = open_log(store, TOPIC, 0).producers.items()
    assert state.is_forgotten is is_forgotten


def test_retention_moves_the_start_over_a_gap_to_the_next_batch() -> None:
    """Compaction left the gap; the number of deleted records is the difference of the starts."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    for time in (10, 20, 30):
        append(log, timestamp=time)
    store.write((), [log.batch_key(1), log.index_key(1)])
    again = open_log(store, TOPIC, 0)
    assert again.retain(100, retention_ms=80, retention_bytes=-1) == 2
    assert (again.start_offset, again.end_offset, len(again.index)) == (2, 3, 1)


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "deleted"),
    [(-1, 0, 3), (-1, -1, 0), (0, -1, 2), (70, -1, 2), (71, -1, 1), (-2, -2, 0)],
)
def test_retention_of_zero_deletes_and_a_negative_one_keeps(
    retention_ms: int, retention_bytes: int, deleted: int
) -> None:
    """With 0 bytes no record stays; with 0 ms the records of the current time stay."""
    log = open_log(MemoryStore(), TOPIC, 0)
    for time in (10, 20, 100):
        append(log, timestamp=time)
    now = 100 if retention_ms <= 0 else 91
    found = log.retain(now, retention_ms=retention_ms, retention_bytes=retention_bytes)
    assert (found, log.start_offset, log.size) == (deleted, deleted, (3 - deleted) * len(batch()))


def test_a_read_ends_before_the_stable_offset_and_at_its_bytes() -> None:
    """The offset, the limit of bytes and the end of the range each decide a case."""
    log = open_log(MemoryStore(), TOPIC, 0)
    for count in (1, 2, 3, 4):
        append(log, count)
    log.cleanings = 6
    sizes = [row.size for row in log.index.rows(0, 4)]

    def planned(offset: int, most: int, beyond: int | None, *, one: bool = False) -> object:
        found = plan_read(log, offset, most, at_least_one=one, beyond=beyond)
        if found is None:
            return None
        keys = [int.from_bytes(key[-8:], "big") for key in found.keys]
        return found.first, keys, found.size, found.beyond, found.cleanings

    whole = 10**6
    assert planned(2, whole, None) == (1, [1, 3, 6], sum(sizes[1:]), 10, 6)
    assert planned(2, whole, 6) == (1, [1, 3], sum(sizes[1:3]), 6, 6)
    assert planned(2, whole, 7) == (1, [1, 3, 6], sum(sizes[1:]), 10, 6)
    assert planned(3, sizes[2] + sizes[3] - 1, None) == (3, [3], sizes[2], 6, 6)
    assert planned(3, sizes[2], 10, one=True) == (3, [3], sizes[2], 6, 6)
    assert planned(3, sizes[2] - 1, None, one=True) == (3, [3], sizes[2], 6, 6)
    assert planned(3, sizes[2] - 1, None) is None
    assert planned(3, whole, 3, one=True) is None
    assert planned(10, whole, None, one=True) is None
    ranges = [(0, None), (2, 6), (3, 3), (3, 4), (9, None), (10, None), (11, 12)]
    assert [available(log, *span) for span in ranges] == [
        sum(sizes), sizes[1] + sizes[2], 0, sizes[2], sizes[3], 0, 0
    ]  # fmt: skip


def test_an_idle_producer_with_an_open_transaction_is_kept() -> None:
    """Its next batch must continue its sequence; after the end the producer is forgotten."""
    log = open_log(MemoryStore(), TOPIC, 0)
    for producer_id, attributes in ((1, 0), (2, TRANSACTIONAL), (3, TRANSACTIONAL)):
        append(log, producer_id=producer_id, epoch=0, sequence=0, attributes=attributes)
    log.end_transaction(3, 0, 5, commits=True).stored()
    log.expire_producers(5)
    assert [producer_id for producer_id, _ in log.producers.items()] == [2, 3]
    log.end_transaction(2, 0, 5, commits=True).stored()
    log.expire_producers(6)
    assert list(log.producers.items()) == []


@pytest.mark.parametrize("commits", [True, False])
def test_the_header_of_a_marker_is_the_one_in_its_bytes(commits: bool) -> None:
    """A marker is a transactional control batch of a single record with the producer's epoch."""
    data, header = marker_batch(7, 3, 1_234, commits=commits)
    assert header == read_header(data)
    assert header == Batch(0, len(data), TRANSACTIONAL | CONTROL, 0, 1_234, 1_234, 7, 3, -1, 1)
    assert (header.is_transactional, header.is_control, header.codec) == (True, True, 0)
    assert parse_batch(data) == header


@pytest.mark.parametrize(
    ("size", "error"),
    [
        (11, "invalid_record"),
        (12, "corrupt_message"),
        (16, "corrupt_message"),
        (17, "corrupt_message"),
    ],
)
def test_a_length_that_no_batch_has_is_corrupt_as_soon_as_it_is_there(
    size: int, error: str
) -> None:
    """Twelve bytes have the length; a shorter text is no batch."""
    data = (bytes(8) + (13).to_bytes(4, "big") + bytes(9))[:size]
    with pytest.raises(BadBatch) as refused:
        cut_batch(data)
    assert refused.value.error.name == error
