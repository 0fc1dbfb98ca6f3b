"""Table files on disk: found by Faust's own names, never opened."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.stores.rocksdb import Store
from rocksdict import Rdict

from faust_assigner.app.tables import disk
from faust_assigner.app.tables.disk import is_writable, partitions_on_disk, takes_files
from tests.support.faust_group import make_app


def rocksdb_app(folder: Path, *tables: str, **options: Any) -> Any:
    """An app with its tables under ``folder``."""
    return make_app("http://w", tables=tables, datadir=str(folder), store="rocksdb://", **options)


def write(
    app: Any, table: str, partition: int, *, value: bytes | None = b"v", close: bool = True
) -> Any:
    """Create a database at Faust's own path, with a record unless ``value`` is None."""
    path = app.tables[table].data.partition_path(partition)
    path.parent.mkdir(parents=True, exist_ok=True)
    db = app.tables[table].data.rocksdb_options.open(path)
    if value is not None:
        db[b"k"] = value
    if close:
        db.close()
    return db


def test_databases_are_found_by_fausts_own_names(tmp_path: Path) -> None:
    """Names with a common beginning and names with dots and digits are told apart."""
    app = rocksdb_app(tmp_path, "orders", "orders-1", "a.b")
    for table, partition in (("orders", 0), ("orders", 12), ("orders-1", 3), ("a.b", 7)):
        write(app, table, partition)
    assert partitions_on_disk(app, app.tables._changelogs) == {
        "shop-orders-changelog": [0, 12],
        "shop-orders-1-changelog": [3],
        "shop-a.b-changelog": [7],
    }


def test_an_open_database_is_seen_and_left_alone(tmp_path: Path) -> None:
    """The lock of a live worker stays: it can continue to write."""
    app = rocksdb_app(tmp_path, "orders")
    db = write(app, "orders", 4, close=False)
    assert partitions_on_disk(app, app.tables._changelogs) == {"shop-orders-changelog": [4]}
    db[b"more"] = b"1"
    db.close()


def test_a_database_nothing_was_written_to_holds_no_state(tmp_path: Path) -> None:
    """Faust creates an empty database at the assignment of a partition, before its first record."""
    app = rocksdb_app(tmp_path, "orders")
    write(app, "orders", 1, value=None)
    assert partitions_on_disk(app, app.tables._changelogs) == {}


def test_what_is_no_database_is_passed_over(tmp_path: Path) -> None:
    """These are files, backups, other tables, and numbers outside Kafka's range."""
    app = rocksdb_app(tmp_path, "orders")
    folder = Path(app.conf.tabledir)
    write(app, "orders", 2)
    (folder / "orders-3.db").write_text("a file")
    for name in (
        "orders-backups",
        "orders-01.db",
        "orders--1.db",
        "orders-9999999999.db",
        "gone-1.db",
        "orders-5.db",
    ):
        (folder / name).mkdir(exist_ok=True)
    (folder / "gone-1.db" / "000004.sst").write_text("x")
    assert partitions_on_disk(app, app.tables._changelogs) == {"shop-orders-changelog": [2]}


def test_a_table_with_a_store_of_its_own(tmp_path: Path) -> None:
    """The table's store overrides the app's; memory stores have no files."""
    app = rocksdb_app(tmp_path, "kept")
    app.Table("lost", store="memory:x")
    named = app.Table("named", store="rocksdb:elsewhere")
    for name in ("kept", "named"):
        write(app, name, 6)
    (Path(app.conf.tabledir) / "kept-6.db").rename(Path(app.conf.tabledir) / "lost-6.db")
    assert named.data.partition_path(6).name == "elsewhere-6.db"
    assert partitions_on_disk(app, app.tables._changelogs) == {"shop-named-changelog": [6]}


def test_without_a_folder_nothing_is_found(tmp_path: Path) -> None:
    """A first start has no files, and the search creates none."""
    app = rocksdb_app(tmp_path / "none", "orders")
    assert partitions_on_disk(app, app.tables._changelogs) == {}
    assert not (tmp_path / "none").exists()


def test_a_crowded_folder_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of entries is limited."""
    monkeypatch.setattr(disk, "MOST_ENTRIES", 5)
    app = rocksdb_app(tmp_path, "orders")
    for partition in range(9):
        write(app, "orders", partition)
    assert len(partitions_on_disk(app, app.tables._changelogs)["shop-orders-changelog"]) <= 5


def test_rocksdict_keeps_what_the_look_relies_on(tmp_path: Path) -> None:
    """A write leaves a log or an SST file; this test fails first if rocksdict changes."""
    db = Rdict(str(tmp_path / "x.db"))
    db["k"] = "v"
    db.close()
    files = list((tmp_path / "x.db").iterdir())
    assert any(f.suffix == ".sst" or (f.suffix == ".log" and f.stat().st_size) for f in files)


# -- without RocksDB


def folder_of(parent: Path, name: str, **files: int) -> Path:
    """Create a folder with files of these sizes; ``_`` in a name stands for a dot."""
    path = parent / name
    path.mkdir(parents=True)
    for file, size in files.items():
        (path / file.replace("_", ".")).write_bytes(b"x" * size)
    return path


class App:
    """An app with this default store."""

    def __init__(self, folder: Path, store: str = "rocksdb://") -> None:
        self.conf = SimpleNamespace(store=store, tabledir=str(folder))


def table(name: str, store: str | None = None) -> Any:
    """A table with its own store, or the app's."""
    return SimpleNamespace(name=name, _store=store)


def test_a_folder_counts_once_a_write_has_reached_it(tmp_path: Path) -> None:
    """A write leaves an SST file or a nonempty log; numbers are exact and in order."""
    for number, files in (
        ("10", {"a_sst": 0}),
        ("2", {"MANIFEST": 5, "a_log": 1}),
        ("0", {"a_log": 0, "b_log": 3}),
        ("3", {"a_log": 0}),
        ("4", {"LOG": 9, "a_sst_old": 3}),
        ("2147483647", {"a_sst": 1}),
        ("2147483648", {"a_sst": 1}),
        ("007", {"a_sst": 1}),
        ("-8", {"a_sst": 1}),
    ):
        folder_of(tmp_path, f"t-{number}.db", **files)
    folder_of(tmp_path, "t-11.db.corrupt", a_sst=1)
    folder_of(tmp_path, "u-1.db", a_sst=1)
    found = partitions_on_disk(App(tmp_path), {"log": table("t"), "other": table("u")})
    assert found == {"log": [0, 2, 10, 2147483647], "other": [1]}


def test_tables_may_share_folders_and_names_of_files(tmp_path: Path) -> None:
    """A path in the table's URL overrides its name; each kind of store has its own place."""
    folder_of(tmp_path, "t-1.db", a_sst=1)
    folder_of(tmp_path, "sub/v-2.db", a_sst=1)
    folder_of(tmp_path, "m-3.db", a_sst=1)
    tables = {
        "own": table("x", "rocksdb:sub/v"),
        "app": table("t"),
        "memory": table("m", "memory://"),
    }
    assert partitions_on_disk(App(tmp_path), tables) == {"app": [1], "own": [2]}
    assert partitions_on_disk(App(tmp_path, "memory://"), tables) == {"own": [2]}


def test_long_listings_are_cut_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The listing is limited; a database with too many files counts as written."""
    monkeypatch.setattr(disk, "MOST_FILES", 3)
    folder_of(tmp_path, "t-1.db", a=1, b=1, c=1)
    folder_of(tmp_path, "t-2.db", a=1, b=1, c=1, d=1)
    tables = {"log": table("t")}
    assert partitions_on_disk(App(tmp_path), tables) == {"log": [2]}
    monkeypatch.setattr(disk, "MOST_ENTRIES", 2)
    assert partitions_on_disk(App(tmp_path), tables) == {"log": [2]}
    assert caplog.text == ""
    monkeypatch.setattr(disk, "MOST_ENTRIES", 1)
    partitions_on_disk(App(tmp_path), tables)
    assert "only 1 are read" in caplog.text


def test_a_folder_that_cannot_be_listed_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A missing folder logs nothing; other folders are still read."""
    folder_of(tmp_path, "sub/v-2.db", a_sst=1)
    (tmp_path / "file").touch()
    tables = {
        "bad": table("b", "rocksdb:file/t"),
        "good": table("g", "rocksdb:sub/v"),
        "new": table("n", "rocksdb:none/t"),
    }
    assert partitions_on_disk(App(tmp_path), tables) == {"good": [2]}
    assert "Could not list the table files in" in caplog.text
    assert str(tmp_path / "file") in caplog.text
    assert str(tmp_path / "none") not in caplog.text
    assert len(caplog.records) == 1


class Database:
    """A database that stores this offset, or fails; ``closed`` counts its closings."""

    def __init__(self, stored: bytes | Exception | None) -> None:
        self.stored, self.closed = stored, 0

    def get(self, key: bytes) -> bytes | None:
        """Return the offset."""
        assert key == Store.offset_key
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored

    def close(self) -> None:
        """Count the close."""
        self.closed += 1


class Files:
    """Databases of a folder by partition; ``opened`` lists the opened partitions."""

    def __init__(self, folder: Path, **stored: Any) -> None:
        self.databases = {int(name[1:]): Database(value) for name, value in stored.items()}
        self.paths = {number: folder_of(folder, f"t-{number}.db") for number in self.databases}
        self.opened: list[int] = []

    def open_(self, path: Path) -> Database:
        """Open a database for reading."""
        number = next(number for number, own in self.paths.items() if own == path)
        self.opened.append(number)
        return self.databases[number]


def test_each_file_gives_its_own_offset(tmp_path: Path) -> None:
    """A file without an offset or with an error has none; all files are closed again."""
    files = Files(
        tmp_path, p2=b"20", p0=b"0", p5=None, p1=OSError("locked"), p3=b"no number", p4=b"7"
    )
    assert disk.stored_offsets(files.open_, files.paths) == {0: 0, 2: 20, 4: 7}
    assert files.opened == [0, 1, 2, 3, 4, 5]
    assert [one.closed for one in files.databases.values()] == [1] * 6


def test_a_file_is_read_again_only_after_it_has_changed(tmp_path: Path) -> None:
    """This includes a file without an offset; a failure is retried, and LOG does not count."""
    files, read = Files(tmp_path, p0=b"5", p1=None, p2=OSError("locked")), dict[Path, Any]()

    def offsets() -> dict[int, int]:
        files.opened.clear()
        return disk.stored_offsets(files.open_, files.paths, read=read)

    assert (offsets(), files.opened) == ({0: 5}, [0, 1, 2])
    (files.paths[0] / "LOG").write_text("opened for reading")
    files.databases[0].stored, files.databases[2].stored = b"6", b"9"
    assert (offsets(), files.opened) == ({0: 5, 2: 9}, [2])
    assert (offsets(), files.opened) == ({0: 5, 2: 9}, [])
    for name, offset in (("000004.log", b"7"), ("000005.sst", b"8"), ("MANIFEST-000001", b"9")):
        (files.paths[0] / name).write_bytes(offset)
        files.databases[0].stored = offset
        assert (offsets(), files.opened) == ({0: int(offset), 2: 9}, [0])
    os.utime(files.paths[0] / "000005.sst", ns=(1, 1))
    assert (offsets()[0], files.opened) == (9, [0])


def test_the_offsets_read_in_time_are_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The limit itself is in time; the log names both numbers of files."""
    files = Files(tmp_path, p0=b"1", p1=b"2", p2=b"3")
    now = 100.0
    monkeypatch.setattr(disk.time, "monotonic", lambda: now)

    def open_(path: Path) -> Any:
        nonlocal now
        now += 2.0
        return files.open_(path)

    assert disk.stored_offsets(open_, files.paths, budget_s=4.0) == {0: 1, 1: 2, 2: 3}
    assert caplog.text == ""
    assert disk.stored_offsets(open_, files.paths, budget_s=3.0) == {0: 1, 1: 2}
    assert "Read the positions of 2 of 3 table files in 3 s" in caplog.text


def test_a_database_that_is_no_folder_or_cannot_be_read_holds_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The databases beside it are found."""
    (tmp_path / "t-1.db").write_text("a file")
    folder_of(tmp_path, "t-2.db", a_sst=1)
    folder_of(tmp_path, "t-3.db", a_sst=1)
    scandir = os.scandir

    def closed(path: Any) -> Any:
        if str(path).endswith("t-2.db"):
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(disk.os, "scandir", closed)
    assert partitions_on_disk(App(tmp_path), {"log": table("t")}) == {"log": [3]}


def test_files_without_offsets_take_their_time_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The files after them count as far behind."""
    files, now = Files(tmp_path, p0=None, p1=OSError("locked"), p2=b"3"), 100.0
    monkeypatch.setattr(disk.time, "monotonic", lambda: now)

    def open_(path: Path) -> Any:
        nonlocal now
        now += 2.0
        return files.open_(path)

    assert disk.stored_offsets(open_, files.paths, budget_s=3.0) == {}
    assert files.opened == [0, 1]
    assert "Read the positions of 0 of 3 table files in 3 s" in caplog.text


def test_files_go_into_databases_of_plain_values_that_this_worker_writes(tmp_path: Path) -> None:
    """A database with a TTL is written, but takes no files; sets and memory are neither."""
    app = rocksdb_app(tmp_path)
    app.conf.tabledir.mkdir(parents=True, exist_ok=True)
    plain = app.Table("plain").data
    expiring = app.Table("ttl", options={"ttl": 60}).data
    read_only = app.Table("read", options={"read_only": True}).data
    other = app.Table("other").data
    other.rocksdb_options.use_rocksdict = False
    sets = app.SetTable("set").data
    stores = (plain, expiring, read_only, other, sets, SimpleNamespace())
    assert [is_writable(store) for store in stores] == [True, True, False, False, False, False]
    assert [takes_files(store) for store in stores] == [True, False, False, False, False, False]
