"""The parts below the logs: the write audit, recent batches, codecs, producers, limited logging."""

from __future__ import annotations

import logging
import mmap
import os
import struct
from pathlib import Path

import pytest

from faust_assigner.broker.node import Node
from faust_assigner.broker.rate_limited_log import (
    INTERVAL_S,
    LINE_CHARS,
    LINES_PER_INTERVAL,
    RateLimitedLog,
)
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import producers, write_audit
from faust_assigner.broker.storage.claims import has_codec
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.producers import ProducerBook
from faust_assigner.broker.storage.records import (
    BadBatch,
    RecordRules,
    check_records,
    cut_batch,
    find_timestamp,
    parse_batch,
)
from faust_assigner.broker.storage.recovery import StoreDamaged, examine, open_cluster
from faust_assigner.broker.storage.rocks_store import RecentBatches, RocksStore
from faust_assigner.broker.storage.store import MemoryStore, prefix_range
from faust_assigner.broker.storage.write_audit import WriteAudit
from tests.support.clients.raw_client import batch, one_record
from tests.support.logs import find_time, open_log, read_log

TOPIC = bytes(16)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def append(log: PartitionLog, timestamp: int) -> int:
    """Append a record of this time."""
    data = batch(one_record(), timestamp=timestamp)
    return log.append(parse_batch(data), data, 0)


# -- the write audit -----------------------------------------------------------------------------


def place(number: int) -> bytes:
    """Return a partition's place in a topic."""
    return TOPIC + struct.pack(">i", number)


def test_writes_and_ends_are_what_the_last_run_said(tmp_path: Path) -> None:
    """The file grows for more partitions than the first 64 KiB can hold."""
    first = WriteAudit(tmp_path)
    count = write_audit.GROW_BYTES // write_audit.ENTRY.size + 100
    first.note(7)
    for number in range(count):
        first.note_end(place(number), number + 1)
    first.note_end(place(3), 50)
    first.close()
    again = WriteAudit(tmp_path)
    assert (
        again.writes,
        again.same_boot,
        again.count_lost_writes(7),
        again.count_lost_writes(5),
    ) == (7, True, 0, 2)
    assert again.ends == {place(n): 50 if n == 3 else n + 1 for n in range(count)}
    again.close()


def test_topics_that_come_and_go_use_the_same_entries(tmp_path: Path) -> None:
    """A later start reads the ends of the remaining topics only, in a file that did not grow."""
    node = Node(Settings.parse({}), tmp_path)
    stays = node.catalogue.create("stays", 1, {})
    append(stays.partitions[0], 1)
    for _ in range(3):
        passing = node.catalogue.create("passing", 2, {})
        for log in passing.partitions:
            append(log, 1)
        node.catalogue.delete(passing)
    last = node.catalogue.create("passing", 3, {})
    for log in last.partitions:
        append(log, 1)
        append(log, 1)
    audit = node.store.write_audit  # type: ignore[attr-defined]
    used = (audit._next - write_audit.FIRST_ENTRY) // write_audit.ENTRY.size
    node.close()
    again = WriteAudit(tmp_path)
    ends = {stays.partitions[0].place: 1, **{log.place: 2 for log in last.partitions}}
    assert (used, again.ends) == (4, ends)
    again.close()
    Node(Settings.parse({}), tmp_path).close()


class _MapWithoutResize(mmap.mmap):
    """A map that cannot be resized, as on macOS."""

    def resize(self, size: int) -> None:
        """Raise the error of CPython on a system without mremap."""
        raise SystemError("mmap: resizing not available--no mremap()")


@pytest.fixture
def as_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the parts that only Linux has: posix_fallocate, mremap, the boot id in /proc."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(mmap, "mmap", _MapWithoutResize)
    monkeypatch.setattr(write_audit, "BOOT_ID", Path("/nowhere/boot_id"))


@pytest.mark.usefixtures("as_on_macos")
def test_the_witness_grows_where_linux_calls_are_missing(tmp_path: Path) -> None:
    """The ends of more partitions than 64 KiB can hold are written and read after a restart."""
    ends = {place(n): n + 1 for n in range(5_000)}
    first = WriteAudit(tmp_path)
    for at, end in ends.items():
        first.note_end(at, end)
    first.close()
    again = WriteAudit(tmp_path)
    assert again.ends == ends
    again.close()


@pytest.mark.usefixtures("as_on_macos")
def test_a_store_on_disk_comes_back_where_linux_calls_are_missing(tmp_path: Path) -> None:
    """Records written before a restart are read after it."""
    node = Node(Settings.parse({}), tmp_path)
    log = node.catalogue.create("t", 1, {}).partitions[0]
    append(log, 1)
    node.close()
    again = Node(Settings.parse({}), tmp_path)
    found = again.catalogue.get("t")
    assert found is not None
    assert found.partitions[0].end_offset == 1
    assert read_log(found.partitions[0], 0, 1_000, at_least_one=True)
    again.close()


@pytest.mark.usefixtures("as_on_macos")
def test_without_a_boot_id_only_synced_writes_must_be_there(tmp_path: Path) -> None:
    """The machine may have lost power: an unsynced tail may be missing."""
    first = WriteAudit(tmp_path)
    first.note_synced(5)
    first.note(7)
    first.close()
    again = WriteAudit(tmp_path)
    assert [again.count_lost_writes(writes) for writes in (7, 5, 4)] == [0, 0, 1]
    again.close()


def test_room_for_the_witness_is_written_before_it_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without space a partition is not watched; a map over a hole would end the process."""
    first = WriteAudit(tmp_path)
    fits = (write_audit.GROW_BYTES - write_audit.FIRST_ENTRY) // write_audit.ENTRY.size
    for number in range(fits):
        first.note_end(place(number), 1)

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    first.note_end(place(fits), 1)
    first.note_end(place(0), 9)
    monkeypatch.undo()
    first.close()
    again = WriteAudit(tmp_path)
    assert len(again.ends) == fits
    assert again.ends[place(0)] == 9
    assert os.stat(tmp_path / write_audit.NAME).st_blocks * 512 >= write_audit.GROW_BYTES
    again.close()


def test_a_head_that_was_torn_by_a_kill_is_not_believed(tmp_path: Path) -> None:
    """The second copy is from the previous write."""
    first = WriteAudit(tmp_path)
    first.note(7)
    first.note(8)
    newest = 1 - first._turn
    first._map[newest * write_audit.HEAD_BYTES + 30] ^= 0xFF
    first.close()
    again = WriteAudit(tmp_path)
    assert again.writes == 7
    again.close()


def test_a_partition_that_ends_before_the_witness_saw_it_end_is_a_loss(tmp_path: Path) -> None:
    """The store has the right count of writes, but the last batch of a partition is missing."""
    node = Node(Settings.parse({}), tmp_path)
    log = node.catalogue.create("t", 1, {}).partitions[0]
    for _ in range(3):
        append(log, 1)
    keys = [key for key in log.every_key() if key.endswith(struct.pack(">q", 2))]
    node.close()
    store = RocksStore(tmp_path)
    store.write((), keys)
    store.close()
    with pytest.raises(StoreDamaged, match="t-0: offsets 2 to 2"):
        Node(Settings.parse({}), tmp_path)
    again = Node(Settings.parse({"log.recovery.accept.loss": "true"}), tmp_path)
    found = again.catalogue.get("t")
    assert found is not None
    assert append(found.partitions[0], 1) == 3, "no offset is given twice"
    again.close()


def test_a_power_loss_excuses_no_end_where_synced_writes_are_missing(tmp_path: Path) -> None:
    """The lost offsets are not assigned a second time."""
    settings = Settings.parse({"log.recovery.accept.loss": "true"})
    node = Node(settings, tmp_path)
    log = node.catalogue.create("t", 1, {}).partitions[0]
    append(log, 1)
    store = node.store
    assert isinstance(store, RocksStore)
    store.write_audit.same_boot, store.lost_writes = False, 1
    store.write_audit.ends[log.place] = 5
    examine(store, node.catalogue, settings)
    assert append(log, 1) == 5
    node.close()


def test_an_empty_store_that_lacks_writes_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """The check precedes every write; an accepted loss allows the start."""
    store = RocksStore(tmp_path)
    store.lost_writes = 5
    with pytest.raises(StoreDamaged, match="5 acknowledged writes"):
        open_cluster(store, Settings.parse({}))
    assert list(store.scan(b"")) == []
    open_cluster(store, Settings.parse({"log.recovery.accept.loss": "true"}))
    open_cluster(store, Settings.parse({}))
    store.close()


@pytest.mark.parametrize(
    ("prefix", "beyond"), [(b"ab", b"ac"), (b"a\xff", b"b"), (b"a\xff\xff", b"b")]
)
def test_a_range_of_a_prefix_ends_before_the_next_one(prefix: bytes, beyond: bytes) -> None:
    """Topic ids are random, so a prefix may end with any bytes."""
    assert prefix_range(prefix)[:2] == (prefix, beyond)


# -- memory of recent batches ----------------------------------------------------------------


def test_recent_batches_keep_to_their_bytes_and_the_oldest_go() -> None:
    """A repeated put uses the new size; a dropped batch is removed."""
    recent = RecentBatches(10)
    for key in (b"a", b"b", b"a", b"c"):
        recent.put(key, b"xxxx")
    assert [recent.get(key) for key in (b"a", b"b", b"c")] == [b"xxxx", None, b"xxxx"]
    recent.drop(b"a")
    recent.put(b"d", b"xxxxxx")
    assert [recent.get(key) for key in (b"a", b"c", b"d")] == [None, b"xxxx", b"xxxxxx"]


def test_a_batch_that_was_deleted_is_not_read_from_memory(tmp_path: Path) -> None:
    """A short trim deletes single keys."""
    store = RocksStore(tmp_path)
    store.write([(b"b1", b"one"), (b"b2", b"two")])
    assert store.cached([b"b1", b"b2"]) == [b"one", b"two"]
    store.write((), [b"b1"])
    assert (store.cached([b"b1"]), store.cached([b"b2"])) == (None, [b"two"])
    store.close()


# -- batches ---------------------------------------------------------------------------------


def test_two_batches_in_one_are_refused_and_bytes_behind_one_are_cut() -> None:
    """Kafka accepts a single batch for each partition."""
    data = batch()
    assert cut_batch(data + b"rest") == data
    with pytest.raises(BadBatch, match="more than one"):
        cut_batch(data + data)
    newer = bytearray(data)
    newer[16] = 3
    for rest in (newer, newer[:17]):
        with pytest.raises(BadBatch, match="message format 3"):
            cut_batch(data + bytes(rest))
    assert cut_batch(data + bytes(newer[:16])) == data


def test_bytes_behind_the_last_record_are_refused() -> None:
    """The batch's checksum is valid."""
    data = batch(one_record() + b"rest")
    with pytest.raises(BadBatch):
        check_records(data, parse_batch(data), RecordRules(0, False, False, 2**62, 2**62))


# -- times in a log --------------------------------------------------------------------------


def test_a_time_is_found_in_a_log_that_is_not_in_order_of_time() -> None:
    """The first batch whose newest record has at least this time is found, also after a trim."""
    log = open_log(MemoryStore(), TOPIC, 0)
    for timestamp in (500, 100, 300, 700):
        append(log, timestamp)
    assert [find_time(log, time) for time in (50, 400, 500, 600, 800)] == [
        (0, 500), (0, 500), (0, 500), (3, 700), None
    ]  # fmt: skip
    log.trim(1)
    assert [find_time(log, time) for time in (50, 200, 600)] == [(1, 100), (2, 300), (3, 700)]
    append(log, 900)
    assert find_time(log, 800) == (4, 900)


# -- producers -------------------------------------------------------------------------------


def test_of_too_many_producers_the_longest_idle_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer with a new batch is the newest again."""
    monkeypatch.setattr(producers, "MAX_PRODUCERS_PER_PARTITION", 2)
    book = ProducerBook()
    for producer, sequence in ((1, 0), (2, 0), (1, 1), (3, 0)):
        book.record(producer, 0, sequence, 0, sequence, 0)
    gap = [parse_batch(batch(producer_id=producer, epoch=0, sequence=5)) for producer in (1, 2, 3)]
    assert [bool(book.judge(each).error) for each in gap] == [True, False, True]
    book.mark(4, 0, 0)
    assert [producer for producer, _ in book.items()] == [3, 4]


# -- limited log lines -----------------------------------------------------------------------


def test_what_was_left_out_of_the_log_is_told_after_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each kind has ten lines, then a notice about more lines, and later their count."""
    peer_log = RateLimitedLog()
    with caplog.at_level(logging.INFO):
        for number in range(LINES_PER_INTERVAL + 7):
            peer_log.log("frames", 0.0, "a frame of %d bytes", number)
        peer_log.log("peers", 0.0, "a peer")
        assert len(caplog.records) == LINES_PER_INTERVAL + 2
        peer_log.sweep(INTERVAL_S + 1)
        assert caplog.messages[-1] == "frames: 7 more lines within a minute were left out"
        peer_log.log("frames", INTERVAL_S + 2, "a frame of %d bytes", 99)
        assert caplog.messages[-1] == "a frame of 99 bytes"


def test_a_line_about_a_peer_is_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    """A group id with a new line would look like a line of the broker; a member id may have 32 KB."""
    peer_log = RateLimitedLog()
    with caplog.at_level(logging.INFO):
        peer_log.log("groups", 0.0, "group %s is refused", "g\nERROR \u202e\x1b[2J é")
        peer_log.log("groups", 0.0, "group %s is refused", "g" * 32_000)
    assert caplog.messages[0] == "group g\\nERROR \\u202e\\x1b[2J é is refused"
    assert len(caplog.messages[1]) < LINE_CHARS + 50
    assert caplog.messages[1].endswith("(32017 characters)")


def test_a_minute_of_lines_begins_with_the_first_line_after_the_last_one_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A minute includes its last moment; kinds have their own minutes; a count is logged once."""
    peer_log = RateLimitedLog()

    def said(kind: str, now: float, count: int) -> list[str]:
        caplog.clear()
        for number in range(count):
            peer_log.log(kind, now, "%s %d", kind, number)
        return caplog.messages

    def swept(now: float) -> list[str]:
        caplog.clear()
        peer_log.sweep(now)
        return caplog.messages

    with caplog.at_level(logging.INFO):
        assert said("a", 5.0, 12)[-2:] == [
            "a 9", "more lines about a: they are counted, and the count is logged in a minute"
        ]  # fmt: skip
        assert said("b", 30.0, 1) == ["b 0"]
        assert said("a", 5.0 + INTERVAL_S, 3) == []
        assert swept(5.0 + INTERVAL_S) == []
        assert swept(70.0) == ["a: 5 more lines within a minute were left out"]
        assert said("a", 100.0, 11)[:1] == ["a 0"]
        assert swept(140.0) == [], "the minute of the first one is over, that of the second is not"
        assert said("a", 165.0, 1) == ["a: 1 more lines within a minute were left out", "a 0"]
        assert swept(300.0) == swept(400.0) == []


# -- the broker's own time -------------------------------------------------------------------


def test_a_producers_mark_for_the_brokers_time_is_taken_off_elsewhere() -> None:
    """The batch's time is the producer's, so readers must not take it for the broker's."""
    data = batch(one_record(), attributes=0x08, timestamp=7)
    stored, found = check_records(data, parse_batch(data), RecordRules(now_ms=9))
    assert (found.attributes, parse_batch(stored).attributes, found.max_timestamp) == (0, 0, 7)


def test_in_a_batch_of_the_brokers_time_every_record_has_that_time() -> None:
    """The producer's times in the records do not count."""
    records = one_record() + one_record(offset_delta=1)
    data = batch(records, count=2, timestamp=10)
    stored, _ = check_records(data, parse_batch(data), RecordRules(now_ms=5_000, stamps=True))
    assert find_timestamp(stored, 5) == (0, 5_000)


def test_each_minute_has_its_own_ten_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The second minute has the same limit as the first."""
    peer_log = RateLimitedLog()
    with caplog.at_level(logging.INFO):
        for minute in range(3):
            caplog.clear()
            for number in range(LINES_PER_INTERVAL + 5):
                now = minute * (INTERVAL_S + 1) + number / 100
                peer_log.log("frames", now, "a frame of %d bytes", number)
            lines = [line for line in caplog.messages if line.startswith("a frame of")]
            assert len(lines) == LINES_PER_INTERVAL


@pytest.mark.parametrize("first", [0, ZSTD])
def test_a_codec_is_found_in_any_of_several_batches(first: int) -> None:
    """Readers that cannot decompress the codec must not get the batch."""
    data = batch(attributes=first) + batch(attributes=ZSTD - first)
    assert has_codec(data, ZSTD)
    assert not has_codec(data, SNAPPY)


def test_a_batch_without_any_time_has_none_in_its_header() -> None:
    """-1 is Kafka's value for no time; negative times are invalid."""
    data = batch(one_record(), timestamp=-5)
    stored, found = check_records(data, parse_batch(data), RecordRules(now_ms=9))
    assert (found.max_timestamp, parse_batch(stored).max_timestamp) == (-1, -1)


@pytest.mark.parametrize("size", [1, write_audit.HEAD_BYTES])
def test_a_short_write_audit_is_completed(tmp_path: Path, size: int) -> None:
    """A kill during the first start leaves a file shorter than its two heads."""
    (tmp_path / write_audit.NAME).write_bytes(bytes(size))
    audit = WriteAudit(tmp_path)
    audit.note(3)
    audit.close()
    again = WriteAudit(tmp_path)
    assert again.writes == 3
    again.close()
