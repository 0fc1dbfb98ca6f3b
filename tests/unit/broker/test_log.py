"""Batches, idempotent producers, partition logs: on disk and in memory."""

from __future__ import annotations

import gzip
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from aiokafka.codec import lz4_encode
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode

from faust_assigner.broker.storage import records
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.losses import accept_losses, unexplained_holes
from faust_assigner.broker.storage.producers import MAX_SEQUENCE, ProducerBook
from faust_assigner.broker.storage.reads import available
from faust_assigner.broker.storage.records import BadBatch, RecordRules, parse_batch
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import MemoryStore, Store, StoreFailed
from tests.support.clients.raw_client import batch, keyed_record, one_record
from tests.support.logs import erase_log, find_time, newest_time, open_log, read_log

TOPIC = uuid.UUID(int=1).bytes


def append(log: PartitionLog, data: bytes, now_ms: int = 0) -> int:
    """Check and append a batch."""
    return log.append(parse_batch(data), data, now_ms)


def aiokafka_batch(timestamps: list[int], *, codec: int = 0) -> bytes:
    """Return a batch as aiokafka builds it."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1_000_000)
    for number, timestamp in enumerate(timestamps):
        builder.append(number, timestamp, b"key", b"value%d" % number, [])
    return bytes(builder.build())


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return a store of either kind."""
    return MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "db")


def checked(data: bytes, **rules: Any) -> tuple[bytes, records.Batch]:
    """Return a batch after the broker's checks."""
    data = records.cut_batch(data)
    return records.check_records(data, parse_batch(data), RecordRules(**{"now_ms": 5_000, **rules}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        batch(magic=1),
        batch()[:-1],
        batch() + batch(),
        batch(count=0, body=b"x" * 9),
        batch(count=-1, body=b"x" * 9),
        batch(count=2, last_delta=5),
        batch(count=100, body=one_record()),
        batch(count=1, body=one_record() * 2),
        batch(body=b"\x93\x12\x88abc"),
        batch(producer_id=1, epoch=0, sequence=-1),
    ],
)
def test_a_batch_that_is_not_what_it_claims_is_refused(data: bytes) -> None:
    """Framing, format, count and records are checked; a wrong number of records is refused."""
    with pytest.raises(BadBatch) as refused:
        checked(data)
    assert refused.value.error is ErrorCode.invalid_record


def test_every_flipped_bit_under_the_checksum_is_noticed() -> None:
    """The test changes one byte at a time."""
    sound = batch()
    for position in range(23, len(sound)):
        broken = bytearray(sound)
        broken[position] ^= 0x10
        with pytest.raises(BadBatch) as refused:
            parse_batch(bytes(broken))
        assert refused.value.error is ErrorCode.corrupt_message


def test_a_time_far_off_is_refused_record_by_record() -> None:
    """INVALID_TIMESTAMP names the records; a batch without times is accepted."""
    with pytest.raises(BadBatch) as refused:
        checked(batch(count=2, timestamp=9_000), after_ms=3_000)
    assert refused.value.error is ErrorCode.invalid_timestamp
    assert [number for number, _ in refused.value.records] == [0, 1]
    assert checked(batch(timestamp=-1), before_ms=10)[1].max_timestamp == -1


@pytest.mark.parametrize(
    ("timestamp", "is_taken"), [(899, False), (900, True), (1_200, True), (1_201, False)]
)
def test_a_time_at_the_very_bound_is_taken(timestamp: int, is_taken: bool) -> None:
    """The limits message.timestamp.before.max.ms and .after.max.ms are inclusive."""
    data = batch(timestamp=timestamp)
    if is_taken:
        assert (
            checked(data, now_ms=1_000, before_ms=100, after_ms=200)[1].max_timestamp == timestamp
        )
        return
    with pytest.raises(BadBatch) as refused:
        checked(data, now_ms=1_000, before_ms=100, after_ms=200)
    assert refused.value.error is ErrorCode.invalid_timestamp


def test_the_greatest_time_in_the_header_is_made_true() -> None:
    """A wrong time of the producer would misdirect every search by time."""
    data, header = checked(batch(timestamp=1_000, max_timestamp=4_000))
    assert header.max_timestamp == 1_000 == parse_batch(data).max_timestamp


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    """INVALID_RECORD is the error."""
    with pytest.raises(BadBatch, match="it has no key"):
        checked(batch(), keys=True)
    assert checked(aiokafka_batch([1]), keys=True)[1].count == 1


def test_the_records_without_a_key_are_named_among_those_with_one() -> None:
    """The whole batch is refused; an empty key is a key."""
    keys = (b"a", None, b"", None)
    body = b"".join(keyed_record(key, b"v", offset_delta=n) for n, key in enumerate(keys))
    with pytest.raises(BadBatch) as refused:
        checked(batch(body, count=4), keys=True)
    assert [number for number, _ in refused.value.records] == [1, 3]
    assert refused.value.error is ErrorCode.invalid_record


@pytest.mark.parametrize(
    ("deltas", "is_taken"),
    [((0, 1, 2), True), ((0, 0, 2), False), ((1, 0, 2), False), ((0, 1, 3), False)],
)
@pytest.mark.parametrize("codec", [0, 1])
def test_a_compressed_batch_numbers_its_records_without_gaps(
    codec: int, deltas: tuple[int, ...], is_taken: bool
) -> None:
    """Kafka checks this, too; the broker does not check an uncompressed batch."""
    body = b"".join(keyed_record(b"k", b"v", offset_delta=delta) for delta in deltas)
    data = batch(gzip.compress(body) if codec else body, count=3, attributes=codec)
    if is_taken or not codec:
        assert checked(data)[1].count == 3
        return
    with pytest.raises(BadBatch, match="offsets inside") as refused:
        checked(data)
    assert refused.value.error is ErrorCode.unknown_server_error


def test_placing_a_batch_keeps_its_checksum() -> None:
    """aiokafka, which wrote the batch, accepts it at the new offset."""
    placed = records.place(aiokafka_batch([1, 2, 3]), 41, 0)
    read = DefaultRecordBatch(bytearray(placed))
    assert read.validate_crc()
    assert [r.offset for r in read] == [41, 42, 43]


def test_stamping_a_batch_makes_a_sound_batch_of_the_brokers_time() -> None:
    """LogAppendTime: every record has the broker's time, and the checksum is valid."""
    stamped, _ = checked(aiokafka_batch([1, 2]), now_ms=777, stamps=True)
    read = DefaultRecordBatch(bytearray(stamped))
    assert read.validate_crc()
    assert {r.timestamp for r in read} == {777}


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_time_is_found_inside_a_batch(codec: int) -> None:
    """The first record with at least this time is found in every codec."""
    data = records.place(aiokafka_batch([100, 300, 200, 400], codec=codec), 10, 0)
    assert records.find_timestamp(data, 101) == (11, 300)
    assert records.find_timestamp(data, 301) == (13, 400)


@pytest.mark.parametrize(
    ("time", "found"), [(0, (10, 5)), (6, (13, 8)), (9, (17, 9)), (10, (10, 9))]
)
def test_a_time_is_found_at_the_offset_of_its_record_in_a_compacted_batch(
    time: int, found: tuple[int, int]
) -> None:
    """Records are missing in between; a time above all records returns the first offset."""
    body = b"".join(
        keyed_record(b"k", b"v", offset_delta=offset, time_delta=at)
        for offset, at in ((0, 0), (3, 3), (7, 4))
    )
    data = batch(body, count=3, last_delta=8, timestamp=5, max_timestamp=9)
    assert records.find_timestamp(records.place(data, 10, 0), time) == found


ZEROS = b"\0" * (80 * 2**20)


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        (1, gzip.compress),
        (2, cramjam.snappy.compress_raw),
        (3, lz4_encode),
        (4, cramjam.zstd.compress),
    ],
)
def test_a_compressed_bomb_is_not_unpacked_beyond_its_cap(
    codec: int, pack: Callable[[bytes], bytes]
) -> None:
    """80 MiB of zeros are refused with MESSAGE_TOO_LARGE in every codec."""
    with pytest.raises(BadBatch) as refused:
        checked(batch(bytes(pack(ZEROS)), count=3, attributes=codec))
    assert refused.value.error is ErrorCode.message_too_large


def test_a_stored_batch_that_cannot_be_read_answers_a_time_with_its_first_offset() -> None:
    """A reader gets an extra batch but misses no record."""
    assert records.find_timestamp(batch(b"zzz", count=9, attributes=4, max_timestamp=50), 20) == (
        0,
        50,
    )


def producer_batch(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7
) -> records.Batch:
    """Return the batch header that the producer book reads."""
    return parse_batch(batch(count=count, producer_id=producer_id, epoch=epoch, sequence=sequence))


def book_after(*sequences: int) -> ProducerBook:
    """Return a book after these batches of a single record, at offsets 100, 101, ..."""
    book = ProducerBook()
    for offset, sequence in enumerate(sequences, 100):
        book.record(7, 0, sequence, 0, offset, 0)
    return book


def test_a_retry_of_one_of_the_last_five_batches_repeats_its_offset() -> None:
    """The acknowledgement has the offset of the first copy."""
    book = book_after(0, 1, 2, 3, 4)
    assert [book.judge(producer_batch(n)).duplicate_of for n in range(5)] == [
        100,
        101,
        102,
        103,
        104,
    ]


@pytest.mark.parametrize("sequence", [0, 7, 100])
def test_a_gap_and_an_old_retry_are_out_of_order(sequence: int) -> None:
    """The next sequence would be 6; batch 0 is forgotten."""
    verdict = book_after(0, 1, 2, 3, 4, 5).judge(producer_batch(sequence))
    assert verdict.error is ErrorCode.out_of_order_sequence_number


def test_the_next_batch_is_taken_also_across_the_wrap() -> None:
    """Sequence 0 follows 2**31 - 1."""
    assert book_after(MAX_SEQUENCE).judge(producer_batch(0)).error is ErrorCode.none
    assert book_after(3).judge(producer_batch(4)).error is ErrorCode.none


def test_after_a_bump_only_the_new_epoch_is_known() -> None:
    """The old epoch is fenced, its sequences are forgotten, and sequences start anew."""
    book = book_after(0, 1)
    book.record(7, 1, 0, 0, 200, 0)
    assert book.judge(producer_batch(2, epoch=0)).error is ErrorCode.invalid_producer_epoch
    assert book.judge(producer_batch(0, epoch=1)).duplicate_of == 200
    again = book.judge(producer_batch(1, epoch=1))
    assert (again.error, again.duplicate_of) == (ErrorCode.none, None)
    assert book.judge(producer_batch(2, epoch=1)).error is ErrorCode.out_of_order_sequence_number


def test_a_bump_is_remembered_over_a_start(store: Store) -> None:
    """The log has the epoch of each producer's last batch."""
    log = open_log(store, TOPIC, 0)
    for epoch in (0, 1):
        append(log, batch(producer_id=7, epoch=epoch, sequence=0))
    again = open_log(store, TOPIC, 0).producers
    assert again.judge(producer_batch(1, epoch=0)).error is ErrorCode.invalid_producer_epoch
    assert again.judge(producer_batch(1, epoch=1)).error is ErrorCode.none
    assert again.judge(producer_batch(0, epoch=1)).duplicate_of == 1


def test_times_that_fall_and_rise_are_found_as_in_a_log_read_from_its_start(store: Store) -> None:
    """The search runs before, between and after appends, after a restart, and after a trim."""
    times = [300, 100, 200, 100, 400, 250]

    def expected(wanted: int, start: int) -> tuple[int, int] | None:
        found = [(n, t) for n, t in enumerate(times) if n >= start and t >= wanted]
        return found[0] if found else None

    log = open_log(store, TOPIC, 0)
    for count, time in enumerate(times, 1):
        append(log, batch(timestamp=time))
        known = {wanted: find_time(log, wanted) for wanted in (50, 150, 250, 350)}
        assert known == {w: e if (e := expected(w, 0)) and e[0] < count else None for w in known}
    for start in (1, 4):
        log.trim(start)
        for reader in (log, open_log(store, TOPIC, 0)):
            assert [find_time(reader, w) for w in (50, 150, 350, 450)] == [
                expected(w, start) for w in (50, 150, 350, 450)
            ]
    append(log, batch(timestamp=450))
    assert (find_time(log, 450), newest_time(log)) == ((6, 450), (6, 450))


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero() -> None:
    """INVALID_PRODUCER_EPOCH fences the older epoch; a bump must start with sequence 0."""
    book = ProducerBook()
    book.record(7, 2, 0, 0, 100, 0)
    assert book.judge(producer_batch(1, epoch=1)).error is ErrorCode.invalid_producer_epoch
    assert book.judge(producer_batch(0, epoch=3)).error is ErrorCode.none
    for sequence in (1, 5):
        verdict = book.judge(producer_batch(sequence, epoch=3))
        assert verdict.error is ErrorCode.out_of_order_sequence_number


def test_producers_without_an_id_and_unknown_ones_are_taken() -> None:
    """The producer is not idempotent, or the broker forgot an idle producer."""
    assert ProducerBook().judge(producer_batch(9)).error is ErrorCode.none
    assert book_after(0).judge(producer_batch(-1, producer_id=-1)).error is ErrorCode.none
    assert book_after(0).judge(producer_batch(9, producer_id=-2)).error is ErrorCode.none


def test_idle_producers_are_forgotten() -> None:
    """The time is producer.id.expiration.ms."""
    book = ProducerBook()
    book.record(1, 0, 0, 0, 0, 10)
    book.record(2, 0, 0, 0, 0, 20)
    book.expire(15)
    assert len(book) == 1


def test_offsets_are_contiguous_over_batches_of_any_size(store: Store) -> None:
    """Each batch starts at the end of its predecessor."""
    log = open_log(store, TOPIC, 0)
    assert [append(log, batch(count=n)) for n in (3, 1, 5, 2)] == [0, 3, 4, 9]
    assert (log.start_offset, log.end_offset) == (0, 11)


def test_a_read_starts_with_the_batch_that_holds_the_offset(store: Store) -> None:
    """The offset may be in the middle of the batch; consumers skip the records before it."""
    log = open_log(store, TOPIC, 0)
    for count in (3, 3, 3):
        append(log, batch(count=count))
    size = len(batch(count=3))
    assert struct.unpack(">q", read_log(log, 4, 10**6, at_least_one=True)[:8]) == (3,)
    assert len(read_log(log, 4, 10**6, at_least_one=True)) == 2 * size == available(log, 4)
    assert read_log(log, 9, 10**6, at_least_one=True) == b""


def test_byte_limits_count_whole_batches_and_the_first_comes_in_any_case(store: Store) -> None:
    """KIP-74: otherwise a reader could never pass a large batch."""
    log = open_log(store, TOPIC, 0)
    for _ in range(4):
        append(log, batch())
    size = len(batch())
    assert len(read_log(log, 1, 2 * size + 1, at_least_one=False)) == 2 * size
    assert len(read_log(log, 1, 1, at_least_one=True)) == size
    assert read_log(log, 1, 1, at_least_one=False) == b""


def test_a_trimmed_log_starts_later_and_remembers_it(tmp_path: Path) -> None:
    """DeleteRecords to the middle of a batch keeps the batch and moves the start offset."""
    store = RocksStore(tmp_path)
    log = open_log(store, TOPIC, 0)
    for _ in range(3):
        append(log, batch(count=3))
    log.trim(4)
    assert (log.start_offset, available(log, 4)) == (4, 2 * len(batch(count=3)))
    again = open_log(store, TOPIC, 0)
    assert (again.start_offset, again.end_offset) == (4, 9)
    again.trim(9)
    empty = open_log(store, TOPIC, 0)
    assert (empty.start_offset, empty.end_offset, empty.size) == (9, 9, 0)
    assert append(empty, batch()) == 9


def test_retention_by_age_and_by_size_deletes_from_the_front(store: Store) -> None:
    """Whole batches are deleted, without a hole."""
    log = open_log(store, TOPIC, 0)
    for timestamp in (100, 200, 300, 400):
        append(log, batch(timestamp=timestamp))
    assert log.retain(1_000, retention_ms=850, retention_bytes=-1) == 1
    assert log.start_offset == 1
    assert log.retain(1_000, retention_ms=-1, retention_bytes=2 * len(batch())) == 1
    assert (log.start_offset, log.end_offset) == (2, 4)
    assert log.retain(1_000, retention_ms=-1, retention_bytes=-1) == 0
    assert log.retain(10_000, retention_ms=0, retention_bytes=-1) == 2
    assert (log.start_offset, log.end_offset) == (4, 4)


def test_times_are_found_over_batches(store: Store) -> None:
    """The search returns the earliest record of at least this time, or None past the end."""
    log = open_log(store, TOPIC, 0)
    for timestamps in ([10, 20], [30, 40], [5, 6]):
        append(log, aiokafka_batch(timestamps))
    assert find_time(log, 0) == (0, 10)
    assert find_time(log, 21) == (2, 30)
    assert find_time(log, 41) is None
    assert newest_time(log) == (3, 40)


def test_a_time_in_the_trimmed_part_of_a_batch_is_found_at_the_log_start(store: Store) -> None:
    """The batch is still stored, but its first records cannot be read."""
    log = open_log(store, TOPIC, 0)
    append(log, aiokafka_batch([10, 20, 30]))
    log.trim(2)
    found = find_time(log, 10)
    assert found is not None
    assert found[0] == 2


def test_a_reopened_log_is_the_log_that_was_written(tmp_path: Path) -> None:
    """Records, offsets and the state of producers survive."""
    store = RocksStore(tmp_path)
    log = open_log(store, TOPIC, 0)
    for sequence in range(4):
        append(log, batch(producer_id=7, epoch=0, sequence=sequence))
    before = read_log(log, 0, 10**6, at_least_one=True)
    store.close()
    again = open_log(RocksStore(tmp_path), TOPIC, 0)
    assert read_log(again, 0, 10**6, at_least_one=True) == before
    assert again.producers.judge(producer_batch(2)).duplicate_of == 2
    assert again.producers.judge(producer_batch(4)).error is ErrorCode.none
    assert again.producers.judge(producer_batch(9)).error is ErrorCode.out_of_order_sequence_number


def test_a_hole_in_a_log_is_told_and_what_follows_it_is_kept(store: Store) -> None:
    """A reader at the hole gets the next record; after an accepted loss the start succeeds."""
    log = open_log(store, TOPIC, 0)
    for _ in range(4):
        append(log, batch())
    key = TOPIC + struct.pack(">iq", 0, 2)
    store.write((), [b"b" + key, b"x" + key])
    again = open_log(store, TOPIC, 0)
    assert (again.end_offset, unexplained_holes(again)) == (4, [(2, 3)])
    assert struct.unpack(">q", read_log(again, 2, 10**6, at_least_one=True)[:8]) == (3,)
    accept_losses(again, [(2, 3)], ())
    assert append(again, batch()) == 4
    assert unexplained_holes(open_log(store, TOPIC, 0)) == []


def test_offsets_lost_at_the_end_are_not_given_again(store: Store) -> None:
    """The log continues at the accepted end; a reader in between gets the next record."""
    log = open_log(store, TOPIC, 0)
    append(log, batch(count=2))
    accept_losses(log, [(2, 7)], ())
    again = open_log(store, TOPIC, 0)
    assert (again.end_offset, available(again, 3)) == (7, 0)
    assert append(again, batch()) == 7
    assert struct.unpack(">q", read_log(again, 3, 10**6, at_least_one=True)[:8]) == (7,)
    assert unexplained_holes(open_log(store, TOPIC, 0)) == []


def test_partitions_and_topics_do_not_see_each_other(store: Store) -> None:
    """Neighbouring prefixes are separate, even if a partition is erased."""
    logs = [open_log(store, uuid.UUID(int=t).bytes, p) for t in (1, 2) for p in (0, 1)]
    for count, log in enumerate(logs, 1):
        append(log, batch(count=count))
    erase_log(logs[1])
    again = [open_log(store, uuid.UUID(int=t).bytes, p).end_offset for t in (1, 2) for p in (0, 1)]
    assert again == [1, 0, 3, 4]


def test_a_failed_write_changes_nothing() -> None:
    """Without space the offset is not used up, readers see no record, and the next append works."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    append(log, batch())
    write = store.write

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("No space left on device")

    store.write = full  # type: ignore[method-assign]
    with pytest.raises(StoreFailed):
        append(log, batch())
    assert (log.end_offset, available(log, 1)) == (1, 0)
    store.write = write  # type: ignore[method-assign]
    assert append(log, batch()) == 1
