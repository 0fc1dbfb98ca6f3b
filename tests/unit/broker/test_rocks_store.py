"""The store on disk: its waits, its refusals for lack of space, and its cache."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from faust_assigner.broker.storage import rocks_store as store_module
from faust_assigner.broker.storage import write_audit
from faust_assigner.broker.storage.rocks_store import ROOM_IN_BUFFERS, RocksStore
from faust_assigner.broker.storage.store import (
    FORMAT,
    WITH_COMPACTION,
    WITH_TRANSACTIONS,
    MemoryStore,
    Range,
    StoreFailed,
    raise_format,
)


class Around:
    """A database with replaced methods."""

    def __init__(self, database: Any, **methods: Any) -> None:
        self._database = database
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


class Usage(NamedTuple):
    """The result of shutil.disk_usage."""

    total: int
    used: int
    free: int


class Disk:
    """A disk of 1 GiB, or of ``total`` bytes, whose free space the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, total: int = 2**30) -> None:
        self.free, self.total = 2**29, total
        self.looks = 0
        monkeypatch.setattr(shutil, "disk_usage", self.usage)

    def usage(self, folder: Path) -> Usage:
        """Count the call and return the usage."""
        self.looks += 1
        return Usage(self.total, 0, self.free)


def test_a_flush_covers_what_was_written_before_it_and_syncs_the_log(tmp_path: Path) -> None:
    """A later record may be missing on the disk, and the next start would report its loss."""
    store = RocksStore(tmp_path)
    store.write([(b"k1", b"v")])
    before, sound, synced = store.sequence, store._db, []

    def flush_wal(sync: bool) -> None:
        synced.append(sync)
        sound.flush_wal(sync)
        store.write([(b"k2", b"v")])

    store._db = Around(sound, flush_wal=flush_wal)
    assert store.flush() == before < store.sequence
    assert synced == [True]
    store.close()


def test_a_start_on_a_full_disk_refuses_the_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small record of a group is accepted: groups survive a full disk."""
    disk = Disk(monkeypatch)
    store = RocksStore(tmp_path)
    disk.free = ROOM_IN_BUFFERS * store._buffer - 1
    with pytest.raises(StoreFailed, match="no space"):
        store.write([(b"b1", b"record")])
    assert store.is_low
    store.write([(b"gone", b"group")])
    assert store.get(b"b1") is None
    store.close()


def test_records_are_taken_at_once_when_space_is_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While space is short each record checks the disk; otherwise the check is periodic."""
    disk = Disk(monkeypatch)
    store = RocksStore(tmp_path)
    store.write([(b"b1", b"record")])
    looks = disk.looks
    store.write([(b"b2", b"record")])
    assert disk.looks == looks
    disk.free, store._unmeasured = 0, store._buffer
    with pytest.raises(StoreFailed):
        store.write([(b"b3", b"record")])
    disk.free = 2**29
    store.write([(b"b4", b"record")])
    assert not store.is_low
    store.close()


def test_the_disk_is_asked_again_after_a_sixteenth_of_a_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes of records are summed, so a filling disk is noticed in time."""
    disk = Disk(monkeypatch)
    store = RocksStore(tmp_path)
    store.write([(b"b0", b"r")])
    part = store._buffer // 64
    disk.free = 0
    for number in range(3):
        store.write([(b"b%d" % number, bytes(part))])
    with pytest.raises(StoreFailed, match="no space"):
        store.write([(b"b3", bytes(part))])
    store.close()


def test_the_folder_of_a_store_is_made_with_those_above_it(tmp_path: Path) -> None:
    """``--data`` may name a folder without existing parents."""
    RocksStore(tmp_path / "var" / "lib" / "broker").close()


def test_a_store_whose_files_are_gone_is_not_made_anew(tmp_path: Path) -> None:
    """The write audit proves that the folder had data: a missing database is a loss."""
    RocksStore(tmp_path).close()
    for file in tmp_path.iterdir():
        if file.name != write_audit.NAME:
            file.unlink()
    with pytest.raises(StoreFailed, match="cannot open"):
        RocksStore(tmp_path)
    (tmp_path / write_audit.NAME).unlink()
    RocksStore(tmp_path).close()


def test_a_record_of_one_write_with_deletions_needs_space_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only writes without a record are always accepted."""
    disk = Disk(monkeypatch)
    store = RocksStore(tmp_path)
    disk.free = 0
    with pytest.raises(StoreFailed):
        store.write([(b"b1", b"record")], [b"b0"])
    store.write((), [b"b0"])
    store.close()


def test_a_store_without_a_write_audit_is_not_opened_and_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start, after a repair, finds the folder unlocked."""

    def failing(folder: Path) -> Any:
        raise OSError("Permission denied")

    failing.has_data_in = store_module.WriteAudit.has_data_in  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        patched.setattr(store_module, "WriteAudit", failing)
        with pytest.raises(StoreFailed, match="Permission denied") as refused:
            RocksStore(tmp_path)
    store = RocksStore(tmp_path)  # while the error still refers to the first store
    store.close()
    assert refused.traceback


def test_batches_are_read_from_memory_all_or_none(tmp_path: Path) -> None:
    """A read with only some of its batches would skip the missing batches for ever."""
    store = RocksStore(tmp_path)
    store.write([(b"b1", b"one"), (b"b2", b"two")])
    store._recent.drop(b"b1")
    assert store.cached([b"b1", b"b2"]) is None
    assert store.cached([b"b2"]) == [b"two"]
    store.close()


def test_writes_after_the_close_leave_the_folder_to_the_next_store(tmp_path: Path) -> None:
    """A request that is still in progress at the stop of a broker must not open the store again."""
    store = RocksStore(tmp_path)
    store.write([(b"key", b"before")])
    store.close()
    for _ in range(3):
        with pytest.raises(StoreFailed):
            store.write([(b"key", b"after")])
    again = RocksStore(tmp_path)
    assert (again.get(b"key"), again.lost_writes) == (b"before", 0)
    again.close()


def test_a_store_that_broke_is_opened_again_once(tmp_path: Path) -> None:
    """A start with many records takes long, and each later write would pay for it."""
    store = RocksStore(tmp_path)
    store._is_broken = True
    store.write([(b"k1", b"v")])
    opened = store._db
    store.write([(b"k2", b"v")])
    assert store._db is opened
    store.close()


@pytest.mark.parametrize(
    ("total", "buffer"),
    [(2**22, 2**20), (2**24, 2**20), (2**26, 2**22), (2**28, 2**24), (2**30, 2**24)],
)
def test_a_buffer_is_a_sixteenth_of_the_disk_from_1_to_16_mib(
    total: int, buffer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small disk has room for three buffers; a larger disk has no larger buffers."""
    Disk(monkeypatch, total)
    store = RocksStore(tmp_path)
    assert store._buffer == buffer
    store.close()


@pytest.mark.parametrize("spare", [0, -1])
def test_space_for_three_buffers_is_enough_and_one_byte_less_is_not(
    spare: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is checked again after a sixteenth of a buffer in records."""
    disk = Disk(monkeypatch)
    store = RocksStore(tmp_path)
    store.write([(b"b0", b"r")])
    part = store._buffer // 32
    disk.free = ROOM_IN_BUFFERS * store._buffer + spare
    looks = disk.looks
    store.write([(b"b1", bytes(part - 1)), (b"k", bytes(part))])
    assert disk.looks == looks, "only records are counted"
    records = [(b"b2", b"r"), (b"b3", bytes(part))]
    if spare:
        with pytest.raises(StoreFailed, match="no space"):
            store.write(records)
    else:
        store.write(records)
    assert (disk.looks, store.is_low) == (looks + 1, spare < 0)
    assert store.get_many([b"b1", b"b3"]) == [bytes(part - 1), None if spare else bytes(part)]
    store.close()


@pytest.mark.parametrize("spare", [0, -1])
def test_a_broken_store_is_opened_again_with_room_for_two_buffers(
    spare: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less space the open itself would fill the disk; the write fails, the store stays."""
    disk = Disk(monkeypatch)
    store = RocksStore(tmp_path)
    store._is_broken = True
    opened = store._db
    disk.free = 2 * store._buffer + spare
    if spare:
        with pytest.raises(StoreFailed, match="no space"):
            store.write([(b"k", b"v")])
    else:
        store.write([(b"k", b"v")])
    assert (store._db is opened, store.get(b"k")) == ((True, None) if spare else (False, b"v"))
    store.close()


def test_a_write_that_fails_breaks_the_store_and_leaves_count_and_cache(tmp_path: Path) -> None:
    """The next write opens the store again, and the write audit counts it."""
    store = RocksStore(tmp_path)
    store.write([(b"b1", b"one")])
    sound, counted = store._db, store.write_audit.writes

    def failing(batch: Any) -> None:
        raise OSError("Input/output error")

    store._db = Around(sound, write=failing)
    with pytest.raises(StoreFailed, match="Input/output"):
        store.write([(b"b1", b"two"), (b"b2", b"two")])
    assert (store.write_audit.writes, store.cached([b"b1"]), store.cached([b"b2"])) == (
        counted,
        [b"one"],
        None,
    )
    store.write([(b"b3", b"three")])
    assert store._db not in (sound, None)
    assert (store.write_audit.writes, counted) == (store.sequence, store.sequence - 1)
    assert store.get_many([b"b1", b"b2", b"b3"]) == [b"one", None, b"three"]
    store.close()


def test_a_rewritten_batch_replaces_the_cached_one_and_displaces_no_other(tmp_path: Path) -> None:
    """Compaction rewrites old batches that no reader waits for; a cached batch must be updated."""
    store = RocksStore(tmp_path)
    store.write([(b"b1", b"old"), (b"b2", b"old")])
    store._recent.drop(b"b2")
    store.write([(b"b1", b"new"), (b"b2", b"new")], is_rewrite=True)
    assert [store.cached([key]) for key in (b"b1", b"b2")] == [[b"new"], None]
    assert store.get_many([b"b1", b"b2"]) == [b"new", b"new"]
    store.close()


def test_the_format_of_a_store_is_raised_and_never_lowered() -> None:
    """After the first compaction a transaction must not lower the format for an older broker."""
    store = MemoryStore()
    for version, before, written in (
        (WITH_TRANSACTIONS, None, True),
        (WITH_TRANSACTIONS, b"1", True),
        (WITH_TRANSACTIONS, WITH_TRANSACTIONS, False),
        (WITH_COMPACTION, WITH_TRANSACTIONS, True),
        (WITH_TRANSACTIONS, WITH_COMPACTION, False),
    ):
        store.write([(FORMAT, before)] if before else (), () if before else [FORMAT])
        assert raise_format(store, version) == (((FORMAT, version),) if written else ())


def test_space_is_reclaimed_after_the_buffers_are_on_the_disk(tmp_path: Path) -> None:
    """The whole range of keys is compacted; a failure is the store's own error."""
    store = RocksStore(tmp_path)
    done: list[object] = []
    real = store._db

    def fail(*_: object, **__: object) -> None:
        raise OSError("broken")

    store._db = cast(
        Any,
        SimpleNamespace(
            flush=lambda: done.append("flush"),
            compact_range=lambda first, beyond: done.append((first, beyond)),
            items=fail,
            close=fail,
        ),
    )
    store.reclaim()
    assert done == ["flush", (None, None)]
    with pytest.raises(StoreFailed, match="broken"):
        list(store.scan(b"k"))
    audit = store.write_audit
    store.close()  # a failure of RocksDB is logged, and the write audit is closed all the same
    with pytest.raises(ValueError, match="closed"):
        audit.note(1)
    store._db = real
    real.close()


def test_seventeen_known_keys_are_deleted_as_a_range_and_sixteen_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Range tombstones slow reads; unknown keys can only be deleted as a range."""
    done: list[object] = []

    class Batch:
        def __init__(self, *, raw_mode: bool) -> None:
            assert raw_mode

        def delete(self, key: bytes) -> None:
            done.append(key)

        def delete_range(self, first: bytes, beyond: bytes) -> None:
            done.append((first, beyond))

    store = RocksStore(tmp_path)
    real = store._db
    store._db = cast(Any, SimpleNamespace(write=lambda batch: None, latest_sequence_number=int))
    monkeypatch.setattr(store_module, "WriteBatch", Batch)
    ranges = [
        Range(b"a", b"b", 16, lambda: [b"a1", b"a2"]),
        Range(b"c", b"d", 17, lambda: [b"c1"]),
        Range(b"e", b"f", None, lambda: [b"e1"]),
        Range(b"g", b"h", 3, None),
    ]
    store.write((), [b"z"], ranges=ranges)
    assert done == [b"a1", b"a2", (b"c", b"d"), (b"e", b"f"), (b"g", b"h"), b"z"]
    store._db = real
    store.close()


def damaged(folder: Path, at: float) -> None:
    """Write 2,000 offsets and a group to a store, and flip a byte of its only file of rows."""
    store = RocksStore(folder)
    store.write([(b"o%05d" % number, b"%0200d" % number**9) for number in range(2000)])
    store.write([(b"p", b"after")])
    store._db.flush()
    store.close()
    (path,) = folder.glob("*.sst")
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0.0, 0.3])
def test_a_scan_ends_with_the_error_of_an_unreadable_block(tmp_path: Path, at: float) -> None:
    """rocksdict's iterators end there as if no more keys followed: the broker lost offsets silently."""
    damaged(tmp_path, at)
    store = RocksStore(tmp_path)
    with pytest.raises(StoreFailed, match=r"the store is damaged.*Corruption.*accept\.loss=true"):
        list(store.scan(b"o"))
    assert list(store.scan(b"p")) == [(b"p", b"after")]
    assert list(store.scan(b"q")) == []
    store.close()


def test_a_store_that_accepts_losses_leaves_out_only_the_unreadable_block(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker dropped all keys behind the block, and the next compaction made all writes fail."""
    damaged(tmp_path, 0.3)
    store = RocksStore(tmp_path, accepts_loss=True)
    left = [int(key[1:]) for key, _ in store.scan(b"o")]
    gaps = [number for number in range(2000) if number not in left]
    assert gaps == [*range(gaps[0], gaps[-1] + 1)]
    assert 0 < len(gaps) < 100
    assert (
        f"{len(left) + 1} keys were copied; the keys in these ranges could not be read: keys after "
        f"b'o{gaps[0] - 1:05d}' and before b'o{gaps[-1] + 1:05d}'" in caplog.text
    )
    for content in (b"1", b"2"):
        store.write([(b"p", content)])
        store.reclaim()
    store.close()
    again = RocksStore(tmp_path)
    assert [int(key[1:]) for key, _ in again.scan(b"o")] == left
    assert [*again.scan(b"p")] == [(b"p", b"2")]
    again.close()


def test_the_keys_behind_a_bad_block_of_long_keys_stay(tmp_path: Path) -> None:
    """No key precedes the first block, so the search does not know the length of the keys."""
    store = RocksStore(tmp_path)
    keys = [b"b" + bytes(16) + number.to_bytes(12) for number in range(4000)]
    store.write([(key, key * 8) for key in keys])
    store._db.flush()
    store.close()
    (path,) = tmp_path.glob("*.sst")
    content = bytearray(path.read_bytes())
    for at in (0.0, 0.2, 0.4, 0.6, 0.8):
        content[int(len(content) * at)] ^= 1
    path.write_bytes(content)
    store = RocksStore(tmp_path, accepts_loss=True)
    assert 3500 < len([*store.scan(b"b")]) < 4000
    store.close()


def test_a_replacement_is_completed_after_a_compaction_has_met_the_bad_block(
    tmp_path: Path,
) -> None:
    """RocksDB then also fails to close; the write of the killed broker stays."""
    store = RocksStore(tmp_path)
    for first in range(3):
        store.write([(b"o%06d" % n, b"%0200d" % n**9) for n in range(first, 9000, 3)])
        store._db.flush()
    store.close()
    path = min(tmp_path.glob("*.sst"))
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    killed = "import os, pathlib, sys; from faust_assigner.broker.storage.rocks_store import RocksStore; "
    killed += "RocksStore(pathlib.Path(sys.argv[1])).write([(b'p', b'1')]); os._exit(0)"
    subprocess.run([sys.executable, "-c", killed, str(tmp_path)], check=True, timeout=60)
    store = RocksStore(tmp_path, accepts_loss=True)
    assert 8000 < len([*store.scan(b"o")]) < 9000
    assert store.get(b"p") == b"1"
    store.close()
    RocksStore(tmp_path).close()


@pytest.mark.parametrize("at", [0.0, 0.85])
def test_the_first_and_the_last_block_may_be_unreadable(tmp_path: Path, at: float) -> None:
    """The keys of all other blocks stay."""
    damaged(tmp_path, at)
    store = RocksStore(tmp_path, accepts_loss=True)
    assert 1900 < len(list(store.scan(b""))) <= 2001
    store.close()


@pytest.mark.parametrize("step", range(1, 12))
def test_a_replacement_of_files_is_finished_after_a_kill_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each step is a rename; the next RocksStore has the readable rows, also without the setting."""
    damaged(tmp_path, 0.3)
    rename, steps = os.rename, iter(range(1, 100))

    def killed(*paths: Path) -> None:
        if next(steps) == step:
            raise KeyboardInterrupt
        rename(*paths)

    monkeypatch.setattr(os, "rename", killed)
    with contextlib.suppress(KeyboardInterrupt):
        RocksStore(tmp_path, accepts_loss=True).close()
    monkeypatch.setattr(os, "rename", rename)
    store = RocksStore(tmp_path, accepts_loss=step == 1)
    assert (store.lost_writes, store.write_audit.writes) == (0, store.sequence)
    assert 1900 < len(list(store.scan(b"o"))) < 2000
    assert list(store.scan(b"p")) == [(b"p", b"after")]
    store.close()
    assert not [*tmp_path.glob("salvage*")]


def test_a_start_that_is_stopped_while_it_copies_changes_nothing(tmp_path: Path) -> None:
    """After a signal during the copy the store is as before, and the next start can open it."""
    damaged(tmp_path, 0.3)
    before = {path.name for path in tmp_path.glob("*.sst")}

    calls = itertools.count()

    def stop() -> None:
        if next(calls):  # the first call belongs to the check of all data
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RocksStore(tmp_path, accepts_loss=True, progress=stop)
    assert {path.name for path in tmp_path.glob("*.sst")} == before
    RocksStore(tmp_path, accepts_loss=True).close()
