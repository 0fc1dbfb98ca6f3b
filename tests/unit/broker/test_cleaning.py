"""Compaction, fact by fact: kept batches, removed batches, and the time of the removal."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from faust_assigner.broker.storage import clean_writes, cleaning
from faust_assigner.broker.storage.cleaning import CleaningRules, cleanable
from faust_assigner.broker.storage.entries import BATCHES, CLEAN
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.losses import unexplained_holes
from faust_assigner.broker.storage.reads import plan_read, present_batches
from faust_assigner.broker.storage.records import LOG_APPEND_TIME, parse_batch, read_header
from faust_assigner.broker.storage.store import FORMAT, WITH_COMPACTION, MemoryStore, StoreFailed
from tests.support.clients.raw_client import batch, keyed_record
from tests.support.logs import find_time, load, newest_time, open_log
from tests.unit.broker.cleaned import DELETE_RETENTION_MS, TOPIC, clean, contents, offsets, write


@pytest.fixture
def log() -> PartitionLog:
    """Return an empty partition in memory."""
    return open_log(MemoryStore(), TOPIC, 0)


def decided(log: PartitionLog) -> tuple[cleaning.Pass, cleaning.Chunk]:
    """Return a pass and its decided chunk, before the chunk is applied."""
    found = cleanable(log, CleaningRules(), 0)
    assert found is not None
    work = clean_writes.begin(log, found, CleaningRules(), 0, 100)
    while work.map_some():
        pass
    chunk = work.clean_some()
    assert chunk is not None
    return work, chunk


@pytest.mark.parametrize("codec", range(5))
def test_the_latest_record_of_each_key_stays_at_its_offset(log: PartitionLog, codec: int) -> None:
    """This holds in every codec; aiokafka reads the rewritten batches."""
    big = b"x" * 200_000  # several blocks of lz4
    write(log, (b"a", b"1"), (b"b", b"2"), (b"c", big), codec=codec)
    write(log, (b"a", b"3"), codec=codec)
    write(log, (b"end", b""))
    clean(log)
    assert contents(log) == [(1, b"b", b"2"), (2, b"c", big), (3, b"a", b"3"), (4, b"end", b"")]
    assert log.index.size == sum(row.size for row in log.index.rows(0, len(log.index)))


def test_a_reader_of_a_removed_offset_gets_the_next_record(log: PartitionLog) -> None:
    """The log start does not move, and a restart reports no missing batch."""
    for value in (b"1", b"2", b"3"):
        write(log, (b"a", value))
    write(log, (b"b", b"4"))
    clean(log)
    assert (offsets(log), log.start_offset, log.end_offset) == ([2, 3], 0, 4)
    reading = plan_read(log, 0, 1, at_least_one=True)
    assert reading is not None
    assert (reading.first, reading.beyond) == (2, 3)
    again = open_log(log.store, TOPIC, 0)
    assert (again.start_offset, again.end_offset, again.cleaned_to) == (0, 4, 3)
    assert unexplained_holes(again) == []


def test_a_batch_that_is_lost_after_compaction_is_still_noticed(log: PartitionLog) -> None:
    """Compaction notes each of its gaps; any other gap is damage."""
    for key in (b"a", b"b", b"a", b"c", b"d"):
        write(log, (key, b"v"))
    clean(log)
    assert offsets(log) == [1, 2, 3, 4]
    log.store.write((), [log.batch_key(2), log.index_key(2)])
    assert unexplained_holes(open_log(log.store, TOPIC, 0)) == [(2, 3)]


def test_a_tombstone_stays_for_its_retention_and_goes_then(log: PartitionLog) -> None:
    """The time counts from the first pass over the tombstone, not from its append."""
    write(log, (b"a", b"1"))
    write(log, (b"a", None))
    write(log, (b"b", b"2"))
    clean(log, now_ms=1_000)
    assert offsets(log) == [1, 2]
    write(log, (b"b", b"3"))
    clean(log, now_ms=1_000 + DELETE_RETENTION_MS - 1)
    assert offsets(log) == [1, 2, 3]
    write(log, (b"b", b"4"))
    clean(log, now_ms=1_000 + DELETE_RETENTION_MS)
    assert offsets(log) == [3, 4]


def test_a_record_without_a_key_goes_and_an_empty_key_is_a_key(log: PartitionLog) -> None:
    """Records without keys are older than the topic's compaction."""
    write(log, (b"", b"1"))
    write(log, (None, b"2"))
    write(log, (b"z", b"3"))
    clean(log)
    assert offsets(log) == [0, 2]


def test_long_keys_are_compared_whole(log: PartitionLog) -> None:
    """The keys have an equal beginning; the first is as long as the longest key kept unhashed."""
    longest = b"k" * cleaning.LONGEST_KEY
    for key in (longest, longest + b"a", longest + b"b", longest + b"a"):
        write(log, (key, b"v"))
    write(log, (b"z", b"v"))
    clean(log)
    assert offsets(log) == [0, 2, 3, 4]


@pytest.mark.parametrize(("attributes", "newest"), [(0, 20), (LOG_APPEND_TIME, 500)])
def test_a_rewritten_batch_has_the_newest_time_of_its_records(
    log: PartitionLog, attributes: int, newest: int
) -> None:
    """With LogAppendTime the header and the index keep the time of the append."""
    times = (20, 500, 10)
    body = b"".join(
        keyed_record(key, b"v", offset_delta=n, time_delta=at)
        for n, (key, at) in enumerate(zip((b"a", b"b", b"c"), times, strict=True))
    )
    data = batch(body, count=3, timestamp=0, max_timestamp=500, attributes=attributes)
    log.append(parse_batch(data), data, 0)
    write(log, (b"b", b"w"))
    write(log, (b"z", b"v"))
    clean(log)
    stored = log.store.get(log.batch_key(0))
    assert stored is not None
    assert offsets(log) == [0, 2, 3, 4]
    assert (read_header(stored).max_timestamp, log.index.rows(0, 1)[0].max_timestamp) == (
        newest,
        newest,
    )


def test_a_batch_that_cannot_be_read_stays_as_it_is(log: PartitionLog) -> None:
    """The batch was stored before bodies were checked; the batches around it are cleaned."""
    data = batch(b"no records", count=1, timestamp=0)
    write(log, (b"a", b"1"))
    log.append(parse_batch(data), data, 0)
    write(log, (b"a", b"2"))
    write(log, (b"z", b"3"))
    before = log.store.get(log.batch_key(1))
    clean(log)
    assert list(log.index.bases) == [1, 2, 3]
    assert log.store.get(log.batch_key(1)) == before is not None


def test_the_last_batch_of_a_known_producer_stays_without_records(log: PartitionLog) -> None:
    """After a restart the producer's next sequence follows; a forgotten producer has no batch."""
    write(log, (b"a", b"1"), (b"a", b"2"), producer_id=7, epoch=0, sequence=0)
    write(log, (b"a", b"3"))
    write(log, (b"b", b"4"))
    clean(log)
    assert (offsets(log), list(log.index.bases)) == ([2, 3], [0, 2, 3])
    again = open_log(log.store, TOPIC, 0)
    assert dict(again.producers.items())[7].last_sequence == 1
    again.expire_producers(1)
    write(again, (b"b", b"5"), at_ms=1)
    clean(again, now_ms=1)
    assert list(again.index.bases) == [2, 3, 4]


def test_only_the_last_batch_of_a_known_producer_stays_without_records(log: PartitionLog) -> None:
    """Earlier batches are not needed for the producer's next sequence."""
    for sequence in range(3):
        write(log, (b"a", b"1"), producer_id=7, epoch=0, sequence=sequence)
    write(log, (b"a", b"2"))
    write(log, (b"b", b"3"))
    clean(log)
    assert (offsets(log), list(log.index.bases)) == ([3, 4], [2, 3, 4])
    again = open_log(log.store, TOPIC, 0)
    assert dict(again.producers.items())[7].last_sequence == 2


@pytest.mark.parametrize("chunk", [1, 100])
def test_the_batch_behind_a_pass_knows_the_gap_before_it(
    log: PartitionLog, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass removed the batches up to its end; a start finds no gap."""
    monkeypatch.setattr(cleaning, "CHUNK_BATCHES", chunk)
    write(log, (b"a", b"1"))
    write(log, (None, b"2"))
    write(log, (b"z", b"3"))
    clean(log)
    again = open_log(log.store, TOPIC, 0)
    assert (list(again.index.bases), again.holes) == ([0, 2], ())


def test_young_records_wait_for_the_least_lag(log: PartitionLog) -> None:
    """Overdue records make a log cleanable at any dirty ratio."""
    for at_ms in (10, 20, 30, 40):
        write(log, (b"a", b"v"), at_ms=at_ms)
    found = cleanable(log, CleaningRules(min_lag_ms=25), 50)
    assert found is not None
    assert (found.first_dirty, found.stop) == (0, 2)
    assert cleanable(log, CleaningRules(min_lag_ms=50), 50) is None
    stops = [cleanable(log, CleaningRules(min_lag_ms=lag), 20) for lag in (0, 1, 2)]
    assert [one and one.stop for one in stops] == [3, 1, 1]
    overdue = [cleanable(log, CleaningRules(max_lag_ms=lag), 50) for lag in (39, 40)]
    assert [one is not None and one.is_overdue for one in overdue] == [True, False]


def test_the_dirty_ratio_is_of_bytes_behind_the_last_pass(log: PartitionLog) -> None:
    """Before a pass all bytes are dirty, after a pass only the newer bytes."""
    for key in (b"a", b"b", b"c", b"d"):
        write(log, (key, b"v"))
    found = cleanable(log, CleaningRules(), 0)
    assert found is not None
    assert found.ratio == 1.0
    clean(log)
    assert cleanable(log, CleaningRules(), 0) is None
    write(log, (b"e", b"v"))
    found = cleanable(log, CleaningRules(), 0)
    assert found is not None
    assert found.ratio == 0.25


def test_more_keys_than_memory_are_cleaned_in_several_passes(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass ends where its map is full, here at the third key; the next pass begins there."""
    monkeypatch.setattr(cleaning, "CHUNK_BATCHES", 1)
    for n in range(12):
        write(log, (b"%d" % (n % 6), b"v"))
    reached = []
    while cleanable(log, CleaningRules(), 0) is not None:
        clean(log, max_keys=1_000 if reached else 3)
        reached.append(log.cleaned_to)
    assert reached == [3, 11]
    assert len(offsets(log)) == 7  # six keys, and the older record of the last batch's key


def test_a_record_that_claims_an_offset_far_away_deletes_nothing_later(log: PartitionLog) -> None:
    """An uncompressed batch is stored as its producer wrote it."""
    body = keyed_record(b"a", b"1", offset_delta=10**6)
    data = batch(body, timestamp=0)
    log.append(parse_batch(data), data, 0)
    write(log, (b"a", b"2"))
    write(log, (b"z", b"3"))
    clean(log)
    assert [value for _, _, value in contents(log)] == [b"2", b"3"]


def test_a_batch_that_is_compacted_away_while_it_is_read_is_passed_over(log: PartitionLog) -> None:
    """A batch that is missing without a compaction is damage."""
    for value in (b"1", b"2", b"3"):
        write(log, (b"a", value))
    reading = plan_read(log, 0, 10**6, at_least_one=True)
    assert reading is not None
    lost = [None, *load(log, reading)[1:]]
    with pytest.raises(StoreFailed, match="is missing"):
        present_batches(log, lost, reading)
    clean(log)
    assert present_batches(log, load(log, reading), reading) == [d for d in lost if d is not None]


def test_a_log_that_is_trimmed_during_a_pass_keeps_the_rest(log: PartitionLog) -> None:
    """Decisions about trimmed batches are dropped."""
    for n in range(6):
        write(log, (b"%d" % (n % 2), b"v"))
    work, chunk = decided(log)
    log.trim(4)
    clean_writes.apply(log, chunk)
    clean_writes.end(log, work)
    assert (offsets(log), log.start_offset) == ([4, 5], 4)
    again = open_log(log.store, TOPIC, 0)
    assert (again.start_offset, again.end_offset, unexplained_holes(again)) == (4, 6, [])


def test_a_topic_that_is_deleted_during_a_pass_leaves_nothing_behind(log: PartitionLog) -> None:
    """Neither rewritten batches nor the note of the clean offset remain."""
    for _ in range(3):
        write(log, (b"a", b"v"))
    work, chunk = decided(log)
    log.store.write((), list(log.every_key()))
    log.close()
    assert clean_writes.apply(log, chunk) == 0
    clean_writes.end(log, work)
    assert list(log.store.scan(CLEAN)) == []
    assert log.store.get(log.batch_key(0)) is None


def test_an_emptied_batch_has_no_time_and_does_not_stop_retention(log: PartitionLog) -> None:
    """ListOffsets by time does not find the batch, and retention.ms skips it."""
    write(log, (b"a", b"1"), at_ms=500, producer_id=7, epoch=0, sequence=0)
    write(log, (b"a", b"2"), at_ms=10)
    write(log, (b"b", b"3"), at_ms=20)
    clean(log)
    assert list(log.index.bases) == [0, 1, 2]
    assert (find_time(log, 100), newest_time(log)) == (None, (2, 20))
    assert log.retain(1_000, retention_ms=985, retention_bytes=-1) == 2
    assert log.start_offset == 2


def test_the_first_chunk_of_a_pass_raises_the_format_of_the_store(log: PartitionLog) -> None:
    """An earlier release would report the gaps of compaction as damage."""
    for _ in range(3):
        write(log, (b"a", b"v"))
    _, chunk = decided(log)
    clean_writes.apply(log, chunk)
    assert log.store.get(FORMAT) == WITH_COMPACTION


def test_lags_are_those_of_the_records_behind_the_last_pass(log: PartitionLog) -> None:
    """Clean records are neither overdue nor too young, whatever their times."""
    for at_ms in (0, 90, 0, 50, 60, 70):
        write(log, (b"%d" % len(log.index), b"v"), at_ms=at_ms)
        if len(log.index) == 4:
            clean(log)
    assert log.cleaned_to == 3
    found = cleanable(log, CleaningRules(min_lag_ms=35, max_lag_ms=60), 100)
    assert found is not None
    assert (found.first_dirty, found.stop, found.is_overdue) == (3, 5, False)


def test_records_without_a_time_have_the_age_of_their_append(log: PartitionLog) -> None:
    """As in Kafka. Earlier, they counted as records of 1969, so min.compaction.lag.ms did not keep them."""
    for at_ms in (10, 20, 30, 40):
        write(log, (b"a", b"v"), at_ms=at_ms, timestamp=-1)
    found = [cleanable(log, CleaningRules(min_lag_ms=lag), 50) for lag in (25, 50)]
    assert [one and one.stop for one in found] == [2, None]
    overdue = [cleanable(log, CleaningRules(max_lag_ms=lag), 50) for lag in (39, 40)]
    assert [one is not None and one.is_overdue for one in overdue] == [True, False]


def test_a_key_that_is_the_digest_of_another_key_is_a_key_of_its_own(log: PartitionLog) -> None:
    """Otherwise a client could delete a key's records by writing a different key."""
    long = b"k" * 40
    for key in (long, hashlib.sha256(long).digest(), b"z"):
        write(log, (key, b"v"))
    clean(log)
    assert offsets(log) == [0, 1, 2]


def test_a_log_that_is_emptied_during_a_pass_stays_empty(log: PartitionLog) -> None:
    """Rewritten batches would restore records that a client deleted."""
    for keys in (b"ab", b"a", b"z"):
        write(log, *((bytes([key]), b"v") for key in keys))
    _, chunk = decided(log)
    log.trim(log.end_offset)
    assert clean_writes.apply(log, chunk) == 0
    assert (len(log.index), list(log.store.scan(BATCHES))) == (0, [])


def test_a_batch_around_the_log_start_is_cleaned_too(log: PartitionLog) -> None:
    """A client deleted the batch's first record; its second record has a later value."""
    write(log, (b"x", b"1"), (b"a", b"2"), (b"b", b"3"))
    write(log, (b"a", b"4"))
    write(log, (b"z", b"5"))
    log.trim(1)
    clean(log)
    assert (offsets(log), log.start_offset) == ([0, 2, 3, 4], 1)
    again = open_log(log.store, TOPIC, 0)
    assert (again.start_offset, again.end_offset, unexplained_holes(again)) == (1, 5, [])


def test_a_chunk_is_one_write_of_the_changed_batches_alone(log: PartitionLog) -> None:
    """In a trimmed log a batch stays, is rewritten or is removed; the next one notes the gap."""
    for keys in (b"t", b"u", b"ab", b"c", b"d", b"ac", b"z"):
        write(log, *((bytes([key]), b"v") for key in keys))
    log.trim(1)
    work, chunk = decided(log)
    writes: list[tuple[list[bytes], list[bytes], bool]] = []
    store = log.store.write

    def noting(puts: Any, deletes: Any = (), *, is_rewrite: bool = False) -> None:
        puts, deletes = list(puts), list(deletes)
        writes.append(([key for key, _ in puts], deletes, is_rewrite))
        store(puts, deletes, is_rewrite=is_rewrite)

    log.store.write = noting  # type: ignore[method-assign]
    before = log.size
    freed = clean_writes.apply(log, chunk)
    assert work.clean_some() is None
    puts = [log.index_key(2), log.batch_key(2), log.index_key(5), FORMAT]
    assert writes == [(puts, [log.batch_key(4), log.index_key(4)], True)]
    assert (freed, log.cleanings, offsets(log)) == (before - log.size, 1, [1, 3, 5, 6, 7, 8])
    clean_writes.end(log, work)
    assert (log.cleaned_to, writes[1:]) == (8, [([CLEAN + log.place], [], False)])
    write(log, (b"y", b"v"))
    write(log, (b"y2", b"v"))
    _, chunk = decided(log)
    assert clean_writes.apply(log, chunk) == 0
    assert (len(writes), log.cleanings) == (4, 1), "a chunk without changes writes nothing"


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_a_start_explains_the_gaps_of_every_chunk(
    log: PartitionLog, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks without remaining batches are at the start, in the middle and at the end of a pass."""
    monkeypatch.setattr(cleaning, "CHUNK_BATCHES", chunk)
    for key in b"aasbbtcccz":
        write(log, (bytes([key]), b"v"))
    log.trim(1)
    clean(log)
    assert (offsets(log), log.start_offset) == ([1, 2, 4, 5, 8, 9], 1)
    again = open_log(log.store, TOPIC, 0)
    assert (unexplained_holes(again), again.holes) == ([], ())
    assert again.index.rows(0, 9) == log.index.rows(0, 9)
    assert (again.start_offset, again.end_offset, again.cleaned_to) == (1, 10, 9)


def test_an_empty_value_is_no_tombstone(log: PartitionLog) -> None:
    """The empty value stays for ever; a null value is removed after its retention."""
    for key, value in ((b"a", b""), (b"b", None), (b"z", b"")):
        write(log, (key, value))
    for now in (0, DELETE_RETENTION_MS, 2 * DELETE_RETENTION_MS):
        write(log, (b"z", b""))
        clean(log, now_ms=now)
    assert contents(log)[0] == (0, b"a", b"")
    assert {key for _, key, _ in contents(log)} == {b"a", b"z"}


def test_a_tombstone_without_retention_outlives_the_pass_that_finds_it(log: PartitionLog) -> None:
    """The first pass removes the deleted records; the next pass removes the tombstone."""
    rules = CleaningRules(0.0, 0)
    seen = []
    for key, value in ((b"a", b"1"), (b"a", None), (b"z", b"1")):
        write(log, (key, value))
    for _ in range(2):
        write(log, (b"z", b"2"))
        found = cleanable(log, rules, 50)
        assert found is not None
        work = clean_writes.begin(log, found, rules, 50, 100)
        while work.map_some():
            pass
        while (chunk := work.clean_some()) is not None:
            clean_writes.apply(log, chunk)
        clean_writes.end(log, work)
        seen.append([key for _, key, _ in contents(log)])
    assert [keys.count(b"a") for keys in seen] == [1, 0]


def test_two_passes_over_the_first_batches_leave_the_log_start(log: PartitionLog) -> None:
    """The second pass begins behind a removed batch; a restart finds the same start and no loss."""
    for value in (b"1", b"2"):
        write(log, (b"a", value))
    write(log, (b"b", b"3"))
    clean(log)
    for value in (b"4", b"5"):
        write(log, (b"a", value))
    clean(log)
    restarted = open_log(log.store, TOPIC, 0)
    assert list(log.index.bases) == list(restarted.index.bases) == [2, 3, 4]
    assert (log.start_offset, restarted.start_offset) == (0, 0)
    assert unexplained_holes(restarted) == []


def test_each_pass_reports_the_bytes_that_it_freed(log: PartitionLog) -> None:
    """The first pass shortens a batch, the second removes a batch, and the third changes nothing."""
    freed = []
    for pairs in (
        [((b"a", b"1"), (b"b", b"2" * 50)), ((b"a", b"3"),), ((b"c", b"4"),)],
        [((b"b", b"5"),), ((b"c", b"6"),)],
        [],
    ):
        for batch_ in pairs:
            write(log, *batch_)
        before, found = log.size, cleanable(log, CleaningRules(0.0), 0)
        done = 0
        if found is not None:
            work = clean_writes.begin(log, found, CleaningRules(0.0), 0, 100)
            while work.map_some():
                pass
            while (chunk := work.clean_some()) is not None:
                done += clean_writes.apply(log, chunk)
            clean_writes.end(log, work)
        freed.append((done, before - log.size))
    assert [done > 0 for done, _ in freed] == [True, True, False]
    assert all(done == gone for done, gone in freed)


def test_an_emptied_batch_is_not_written_again(log: PartitionLog) -> None:
    """Each pass would otherwise rewrite the last batch of each idle producer."""
    write(log, (b"a", b"1"), producer_id=1, epoch=0, sequence=0)
    written: list[bytes] = []
    store_write = log.store.write

    def noting(puts: Any, *arguments: Any, **more: Any) -> None:
        puts = list(puts)
        written.extend(key for key, _ in puts if more.get("is_rewrite"))
        store_write(puts, *arguments, **more)

    log.store.write = noting  # type: ignore[method-assign]
    counts = []
    for value in (b"2", b"3", b"4"):
        write(log, (b"a", value))
        clean(log)
        counts.append(written.count(log.batch_key(0)))
    assert counts == [0, 1, 1]


def test_a_batch_that_is_trimmed_between_the_two_reads_of_a_step_is_passed_over(
    log: PartitionLog,
) -> None:
    """The step reads the batches first and their index entries second."""
    for value in (b"1", b"2", b"3"):
        write(log, (b"a", value))
    write(log, (b"end", b""))
    found = cleanable(log, CleaningRules(), 0)
    assert found is not None
    work = clean_writes.begin(log, found, CleaningRules(), 0, 100)
    while work.map_some():
        pass
    load, reads = log.store.get_many, []

    def reading(keys: Any) -> list[bytes | None]:
        reads.append(keys)
        if len(reads) == 2:
            log.trim(1)
        return load(keys)

    log.store.get_many = reading  # type: ignore[method-assign]
    chunk = work.clean_some()
    assert chunk is not None
    assert [one.base for one in chunk.outcomes] == [1, 2]
    clean_writes.apply(log, chunk)
    assert (log.start_offset, list(log.index.bases)) == (1, [2, 3])
