"""A log after a start: detected losses, accepted losses, and the remaining records."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.losses import accept_losses, unexplained_holes, unreadable
from faust_assigner.broker.storage.reads import available, plan_read, present_batches
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import MemoryStore, Store, StoreFailed
from tests.support.clients.raw_client import batch
from tests.support.logs import erase_log, find_time, open_log

TOPIC = bytes(16)


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a store of either kind."""
    return MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "db")


def written(store: Store, *timestamps: int, **more: Any) -> PartitionLog:
    """Return a log with a record for each of the times."""
    log = open_log(store, TOPIC, 0)
    for timestamp in timestamps:
        data = batch(timestamp=timestamp, **more)
        log.append(parse_batch(data), data, timestamp)
    return log


def lose(store: Store, *bases: int, index: bool = True) -> None:
    """Remove batches from the store, and with ``index`` their entries as well."""
    keys = [TOPIC + struct.pack(">iq", 0, base) for base in bases]
    store.write((), [kind + key for key in keys for kind in ((b"b", b"x") if index else (b"b",))])


def test_what_a_start_finds_is_on_the_disk_already(store: Store) -> None:
    """With flush.messages=10 the next record waits only for itself, not for the whole log."""
    written(store, 1, 2, 3)
    assert open_log(store, TOPIC, 0).flushed_to == 3


def test_a_log_without_its_first_batches_begins_at_the_first_that_is_there(store: Store) -> None:
    """An earlier start offset would send every reader of the beginning into the hole."""
    written(store, 1, 2, 3)
    lose(store, 0, 1)
    again = open_log(store, TOPIC, 0)
    assert (again.start_offset, again.holes) == (2, ())


def test_times_are_found_anew_after_a_loss_was_accepted(store: Store) -> None:
    """The lost batch had the greatest time and must not be found again."""
    log = written(store, 10, 90, 20)
    assert find_time(log, 50) == (1, 90)
    lose(store, 1, index=False)
    accept_losses(log, [(1, 2)], [1])
    assert (find_time(log, 50), find_time(log, 15)) == (None, (2, 20))


def test_a_second_loss_leaves_the_first_one_accepted(store: Store) -> None:
    """Otherwise each start would ask for the losses in turn."""
    log = written(store, 1, 2, 3, 4, 5)
    lose(store, 1)
    again = open_log(store, TOPIC, 0)
    accept_losses(again, [(1, 2)], ())
    lose(store, 3)
    again = open_log(store, TOPIC, 0)
    assert unexplained_holes(again) == [(3, 4)]
    accept_losses(again, [(3, 4)], ())
    last = open_log(store, TOPIC, 0)
    assert (unexplained_holes(last), len(last.holes)) == ([], 2)
    assert log.end_offset == last.end_offset


def test_the_last_batch_is_lost_and_its_offset_is_not_given_again(store: Store) -> None:
    """Its index entry is removed, so the end comes only from the accepted loss."""
    log = written(store, 1, 2, 3)
    lose(store, 2, index=False)
    accept_losses(log, [(2, 3)], [2])
    assert (log.end_offset, available(log, 2)) == (3, 0)
    assert open_log(store, TOPIC, 0).end_offset == 3


def test_a_hole_that_two_accepted_losses_cover_together_is_explained(store: Store) -> None:
    """A hole that is covered in part is not explained."""
    written(store, 1, 2, 3, 4, 5)
    lose(store, 1, 2)
    log = open_log(store, TOPIC, 0)
    accept_losses(log, [(1, 2)], ())
    assert unexplained_holes(open_log(store, TOPIC, 0)) == [(1, 3)]
    accept_losses(log, [(2, 3)], ())
    assert unexplained_holes(open_log(store, TOPIC, 0)) == []


@pytest.mark.parametrize(
    ("accepted", "is_explained"),
    [
        ([(1, 4), (2, 5)], True),
        ([(0, 9)], True),
        ([(1, 2), (3, 5)], False),
        ([(1, 4)], False),
        ([(1, 2), (2, 3), (3, 5), (7, 8)], True),
        ([(3, 5)], False),
        ([], False),
    ],
)
def test_a_hole_is_explained_by_losses_that_cover_all_its_offsets(
    accepted: list[tuple[int, int]], is_explained: bool
) -> None:
    """Losses may overlap, touch, or extend past the hole [2, 5)."""
    log = open_log(MemoryStore(), TOPIC, 0)
    log.holes, log.accepted = ((2, 5),), tuple(accepted)
    assert unexplained_holes(log) == ([] if is_explained else [(2, 5)])


@pytest.mark.parametrize("chunk_bytes", [1, 10**6])
def test_each_broken_batch_is_named_however_many_are_read_at_a_time(
    store: Store, chunk_bytes: int
) -> None:
    """The missing and the truncated batch are named, the valid batches in between are not."""
    log = written(store, 1, 2, 3, 4, 5)
    lose(store, 1, index=False)
    store.write([(b"b" + TOPIC + struct.pack(">iq", 0, 3), batch()[:-1])])
    looks: list[None] = []
    found = list(unreadable(log, chunk_bytes, lambda: looks.append(None)))
    assert found == [(1, 2), (3, 4)]
    assert len(looks) == (5 if chunk_bytes == 1 else 1), "progress is told after each read"


def test_chunks_are_read_by_their_own_bytes_after_a_trim(store: Store) -> None:
    """Three batches of a trimmed log, two at a time, take two reads."""
    log = written(store, 1, 2, 3, 4, 5)
    log.trim(2)
    looks: list[None] = []
    assert list(unreadable(log, 2 * len(batch()), lambda: looks.append(None))) == []
    assert len(looks) == 2


# -- reads that meet a trim or a deletion ------------------------------------------------------


def planned(log: PartitionLog) -> Any:
    """Plan a read of the first batch."""
    reading = plan_read(log, log.start_offset, 10**6, at_least_one=True)
    assert reading is not None
    return reading


def test_a_batch_that_is_missing_fails_the_read(store: Store) -> None:
    """Neither a trim nor a deletion explains the missing batch."""
    log = written(store, 1, 2)
    with pytest.raises(StoreFailed, match="at or after offset 0 is missing"):
        present_batches(log, [None, b""], planned(log))


def test_a_batch_that_was_trimmed_since_gives_nothing(store: Store) -> None:
    """The reader's next request returns that its offset is out of range."""
    log = written(store, 1, 2)
    reading = planned(log)
    log.trim(1)
    assert present_batches(log, [None, b""], reading) == []


def test_a_batch_of_a_topic_that_was_deleted_since_gives_nothing(store: Store) -> None:
    """The read raises no storage error."""
    log = written(store, 1, 2)
    reading = planned(log)
    erase_log(log)
    assert present_batches(log, [None, None], reading) == []


def test_erasing_leaves_no_key_of_any_kind(store: Store) -> None:
    """A topic's id is never used again, so a remaining key would stay for ever."""
    log = written(store, 1, 2, 3)
    log.trim(1)
    accept_losses(log, [(3, 4)], ())
    erase_log(log)
    assert [key for kind in (b"b", b"x", b"s", b"e") for key, _ in store.scan(kind)] == []


# -- retention -----------------------------------------------------------------------------


def test_a_batch_without_a_time_has_the_age_of_its_append(store: Store) -> None:
    """As in Kafka, where the file's time counts; such a batch must not stop retention for ever."""
    log = open_log(store, TOPIC, 0)
    for timestamp, appended_ms in ((100, 100), (-1, 200), (-1, 300), (250, 400)):
        data = batch(timestamp=timestamp)
        log.append(parse_batch(data), data, appended_ms)
    deleted = [
        log.retain(now, retention_ms=100, retention_bytes=-1) for now in (300, 301, 400, 401)
    ]
    assert deleted == [1, 1, 0, 2]


def test_a_batch_without_a_readable_time_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention of the other partitions must go on."""
    store = MemoryStore()
    log = written(store, -1)

    def unreadable_entry(key: bytes) -> bytes | None:
        raise StoreFailed("corruption")

    monkeypatch.setattr(store, "get", unreadable_entry)
    assert log.retain(10**9, retention_ms=1, retention_bytes=-1) == 0
    monkeypatch.setattr(store, "get", lambda key: None)
    assert log.retain(10**9, retention_ms=1, retention_bytes=-1) == 0


def test_of_age_and_size_the_one_that_deletes_more_counts(store: Store) -> None:
    """Age deletes three batches and size one, and in the second log the reverse."""
    size = len(batch())
    log = written(store, 1, 2, 3, 1_000)
    assert log.retain(1_000, retention_ms=500, retention_bytes=3 * size) == 3
    log = written(store, 1, 1_000, 1_001, 1_002)
    start = log.start_offset
    assert log.retain(1_000, retention_ms=500, retention_bytes=2 * size) > 1
    assert (start, log.size) == (3, 2 * size)


def test_size_counts_what_is_left_after_earlier_deletions(store: Store) -> None:
    """The second retention deletes as much as the first."""
    size = len(batch())
    log = written(store, 1, 2, 3, 4, 5, 6)
    for left in (4, 2):
        log.retain(10, retention_ms=-1, retention_bytes=left * size)
        assert (log.size, log.start_offset) == (left * size, 6 - left)


def test_a_trim_beyond_the_end_stops_at_the_end(store: Store) -> None:
    """Otherwise the next record would leave a hole."""
    log = written(store, 1, 2)
    log.trim(9)
    assert (log.start_offset, log.end_offset) == (2, 2)


# -- producers ------------------------------------------------------------------------------


def test_a_producer_is_as_old_as_its_last_batch_was_appended(store: Store) -> None:
    """The broker's clock counts, not the time in the record, even after a start."""
    data = batch(timestamp=5, producer_id=0, epoch=0, sequence=0)
    log = open_log(store, TOPIC, 0)
    log.append(parse_batch(data), data, 1_000)
    for known in (log, open_log(store, TOPIC, 0)):
        known.expire_producers(1_000)
        assert len(known.producers) == 1
        known.expire_producers(1_001)
        assert len(known.producers) == 0


def test_the_witness_is_told_where_a_partition_ends(store: Store) -> None:
    """The end is the offset after the last record, not the last batch's offset."""
    told: list[int] = []
    store.note_end = lambda place, end: told.append(end)  # type: ignore[method-assign]
    data = batch(count=3)
    open_log(store, TOPIC, 0).append(parse_batch(data), data, 0)
    assert told == [3]
