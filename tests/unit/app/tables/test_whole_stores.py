"""Empty values, an app's own store, and files that change in one way only."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust import stores
from faust.stores.rocksdb import Store as RocksDBStore

from faust_assigner.app.tables import disk, landing, write_behind
from faust_assigner.app.tables import flushing as flushing_module
from faust_assigner.app.tables.changes import Overlay, Usage
from faust_assigner.app.tables.disk import tree_bytes
from faust_assigner.app.tables.files import TableStore, open_for_streams
from faust_assigner.app.tables.open_windows import OpenWindows
from tests.support.made_up_tables import MadeUp, done, process
from tests.unit.app.tables.test_disk import Files
from tests.unit.app.tables.test_open_windows import Table
from tests.unit.app.tables.test_sets import ADD, DISCARD, Sets


@pytest.fixture(autouse=True)
def nothing_is_processed() -> Iterator[None]:
    """End the processing of a record after each test."""
    yield
    done()


def test_an_empty_row_is_a_row(tmp_path: Path) -> None:
    """A waiting change and the file's row may have an empty value; a deletion is no row."""
    it = MadeUp(tmp_path, "counts")
    store = it.tables["counts"].data
    store._db_for_partition(0).put(b"in the file", b"")
    process(0)
    store._change(0, b"waiting", b"", None)
    store._change(0, b"deleted", None, None)
    keys = (b"in the file", b"waiting", b"deleted", b"unknown")
    assert [store._contains(key) for key in keys] == [True, True, False, False]
    assert [store._get(key) for key in keys] == [b"", b"", None, None]
    assert [store.row_of(0, key) for key in keys] == [b"", b"", None, None]
    assert store.waiting_rows(0) == [b"waiting"]
    it.close()


def test_a_set_that_no_agent_changes_is_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    """The change would belong to no partition."""
    it = Sets(tmp_path)
    found = it.table["k"]
    done()
    with pytest.raises(RuntimeError, match="only by an agent"):
        found.add(1)
    assert (list(it.sent), it.rows()) == ([], {})
    it.close()


def test_a_database_is_recorded_from_another_thread() -> None:
    """The loop is told in the one way that wakes it; the thread itself records nothing."""
    told: list[Any] = []
    store: Any = SimpleNamespace(
        _dbs={},
        _open_for_partition=lambda partition: ("database", partition),
        app=SimpleNamespace(
            loop=SimpleNamespace(call_soon_threadsafe=lambda *call: told.append(call))
        ),
    )
    thread = threading.Thread(target=open_for_streams, args=(store, 3))
    thread.start()
    thread.join()
    assert store._dbs == {}
    ((record, *arguments),) = told
    record(*arguments)
    assert store._dbs == {3: ("database", 3)}


def test_an_app_s_own_store_stays_a_base_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of another kind is the app's alone."""

    class Own(RocksDBStore):  # type: ignore[misc]
        """The app's store."""

    it = MadeUp(tmp_path, "counts")
    table = it.tables["counts"]
    monkeypatch.setattr(stores, "by_url", lambda url: Own)
    made = table._new_store_by_url("rocksdb://")
    assert isinstance(made, TableStore)
    assert isinstance(made, Own)
    assert made.usage is write_behind.usage_of(it.app)
    monkeypatch.setattr(stores, "by_url", lambda url: SimpleNamespace)
    with pytest.raises(TypeError):
        table._new_store_by_url("memory://")


@pytest.mark.parametrize("changed", ["size", "time", "name"])
def test_a_file_that_changed_in_any_way_is_read_again(tmp_path: Path, changed: str) -> None:
    """Two writes may happen within one tick of the file system's clock."""
    files, read = Files(tmp_path, p0=b"5"), dict[Path, Any]()
    log = files.paths[0] / "000009.log"
    log.write_bytes(b"x")
    os.utime(log, ns=(10, 10))
    assert disk.stored_offsets(files.open_, files.paths, read=read) == {0: 5}
    files.databases[0].stored = b"6"
    if changed == "name":
        log = log.rename(log.with_name("000010.log"))
    elif changed == "size":
        log.write_bytes(b"yz")
    os.utime(log, ns=(10, 11 if changed == "time" else 10))
    assert disk.stored_offsets(files.open_, files.paths, read=read) == {0: 6}
    assert files.opened == [0, 0]


def test_a_file_whose_size_is_refused_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any error of the disk concerns this file alone."""
    for name, size in (("a", 1), ("b", 20), ("c", 300), ("d", 4000)):
        (tmp_path / name).write_bytes(b"x" * size)
    errors = {"b": PermissionError("b"), "c": OSError(5, "Input/output error")}
    stat = os.stat

    def failing(path: Any, **options: Any) -> Any:
        if (error := errors.get(Path(str(path)).name)) is not None:
            raise error
        return stat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing)
        found = tree_bytes(tmp_path)
    assert found == 4001


def test_the_first_window_is_found_behind_several_without_rows() -> None:
    """Rows in the middle are deleted first; the heap then drops all of them at once."""
    windows = OpenWindows(Table())
    keys = [(name, (begin, begin + 10.0)) for begin in (0.0, 10.0, 20.0, 30.0) for name in "ab"]
    for key in keys:
        windows.add(key, 0)
    for key in keys[2:6]:
        windows.discard(key, 0)
    assert (windows.first(0), sorted(windows.some(0, 10.0, 9))) == (10.0, keys[:2])
    for key in keys[:2]:
        windows.discard(key, 0)
    assert (windows.first(0), sorted(windows.some(0, 40.0, 9))) == (40.0, keys[6:])
    assert (windows._ends, [*windows._keys]) == ({0: [40.0]}, [(0, 40.0)])
    assert windows.first(1) is None


async def test_a_reset_drops_the_changes_of_all_partitions(tmp_path: Path) -> None:
    """The room that they took is free again, for other tables."""
    it = MadeUp(tmp_path, "counts")
    store = it.tables["counts"].data
    for partition in (0, 1):
        process(partition)
        store._change(partition, b"key", b"value", None)
    assert store.usage.changes == 2
    it.close()
    store.reset_state()
    assert (store.usage.changes, store.usage.bytes) == (0, 0)
    assert [len(overlay) for overlay in store.overlays.values()] == [0, 0]


async def test_no_partition_is_not_every_partition(tmp_path: Path) -> None:
    """An empty list of partitions pauses and discards none; None stands for all."""
    it = MadeUp(tmp_path, "counts")
    store = it.tables["counts"].data
    store.flushing.resume(0)
    process(0)
    change = store._change(0, b"key", b"value", None)
    assert change is None
    for act in (store.flushing.pause, store.flushing.discard):
        act([])
        assert (store.overlays[0].lands, store.usage.changes) == (True, 1)
    store.flushing.discard()
    assert (store.overlays[0].lands, store.usage.changes) == (False, 0)
    it.close()


def test_nothing_to_write_is_not_written() -> None:
    """A write of an empty batch would wake the disk; an offset alone is a write."""
    written: list[Any] = []
    database: Any = SimpleNamespace(write=written.append)
    landing.write(database, {}, None)
    assert written == []
    landing.write(database, {}, (b"offset", 0))
    assert [len(batch) for batch in written] == [1]


def test_a_new_empty_value_is_laid_over_the_rows() -> None:
    """Before, between, instead of and behind the rows of the file; a deletion hides its row."""
    overlay = Overlay(Usage(10**6, 100))
    for key in (b"a", b"c", b"d", b"g"):
        overlay.put(key, b"")
    overlay.put(b"e", None)
    rows = [(b"b", b"1"), (b"d", b"2"), (b"e", b"3"), (b"f", b"")]
    assert list(overlay.over(rows)) == [
        (b"a", b""),
        (b"b", b"1"),
        (b"c", b""),
        (b"d", b""),
        (b"f", b""),
        (b"g", b""),
    ]


async def test_the_store_that_stops_keeps_no_change_that_did_not_count(tmp_path: Path) -> None:
    """The room of the changes is free, and an answer that comes late writes nothing."""
    it = MadeUp(tmp_path, "counts")
    counts, store = it.tables["counts"], it.tables["counts"].data
    store.flushing.resume(0)
    process(0)
    counts["a"] = 1
    await store.stop()
    assert (store.usage.changes, store.usage.bytes, len(store.overlays[0])) == (0, 0, 0)


async def test_a_change_waits_on_if_its_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see it, and the next flush writes it; a row that is deleted is one change."""
    it = MadeUp(tmp_path, "counts")
    counts, store = it.tables["counts"], it.tables["counts"].data
    store.flushing.resume(0)
    process(0)
    counts["a"] = 1
    counts["b"] = 2
    del counts["b"]
    assert (len(it.sent), store.usage.changes) == (3, 3)

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    for offset, record in enumerate(it.sent):
        record.set_result(SimpleNamespace(offset=offset))
        _, change = record._faust_assigner_change
        store.overlay_of(0).acknowledge(change, offset)
    with monkeypatch.context() as patch:
        patch.setattr(flushing_module, "land", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            store.flushing.flush(0)
    assert (store.usage.changes, counts["a"]) == (3, 1)
    store.flushing.flush(0)
    assert dict(store._db_for_partition(0).items()) == {b'"a"': b"1", store.offset_key: b"2"}
    assert store.usage.changes == 0
    it.close()


def test_a_key_without_a_known_place_is_deleted_in_all_open_partitions(tmp_path: Path) -> None:
    """Other keys stay, and a partition that is not open is not opened."""
    it = MadeUp(tmp_path, "counts")
    store = it.tables["counts"].data
    for partition in (1, 0):
        for key in (b"k", b"other"):
            store._db_for_partition(partition).put(key, b"1")
    store._key_index.clear()
    store._del(b"k")
    assert [dict(store._dbs[partition].items()) for partition in (0, 1)] == [{b"other": b"1"}] * 2
    it.close()


async def test_the_record_of_a_set_has_the_operation_and_the_set_s_key(tmp_path: Path) -> None:
    """Faust's replay takes the key apart in this order; the record is in the partition of the event."""
    it = Sets(tmp_path)
    process(1)
    it.table["k"].add(5)
    it.table["k"].discard(5)
    found = [(json.loads(one.message.key), json.loads(one.message.value)) for one in it.sent]
    assert found == [([ADD, "k"], 5), ([DISCARD, "k"], 5)]
    assert [one.message.partition for one in it.sent] == [1, 1]
    it.close()
