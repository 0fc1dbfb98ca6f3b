"""Files of table partitions on disk: found by Faust's own names, never opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

from faust_assigner.app.tables import disk
from faust_assigner.app.tables.disk import partitions_on_disk
from tests.support.faust_group import make_app


def rocksdb_app(folder: Path, *tables: str, **options: Any) -> Any:
    """An app whose tables live under ``folder``."""
    return make_app("http://w", tables=tables, datadir=str(folder), store="rocksdb://", **options)


def write(
    app: Any, table: str, partition: int, *, value: bytes | None = b"v", close: bool = True
) -> Any:
    """A database where Faust itself would put it, with one record unless ``value`` is None."""
    path = app.tables[table].data.partition_path(partition)
    path.parent.mkdir(parents=True, exist_ok=True)
    db = app.tables[table].data.rocksdb_options.open(path)
    if value is not None:
        db[b"k"] = value
    if close:
        db.close()
    return db


def test_databases_are_found_by_fausts_own_names(tmp_path: Path) -> None:
    """Each table's partitions, also where one name begins like another or has dots and digits."""
    app = rocksdb_app(tmp_path, "orders", "orders-1", "a.b")
    for table, partition in (("orders", 0), ("orders", 12), ("orders-1", 3), ("a.b", 7)):
        write(app, table, partition)
    assert partitions_on_disk(app, app.tables._changelogs) == {
        "shop-orders-changelog": [0, 12],
        "shop-orders-1-changelog": [3],
        "shop-a.b-changelog": [7],
    }


def test_an_open_database_is_seen_and_left_alone(tmp_path: Path) -> None:
    """The lock of a live worker is not touched: it can go on writing."""
    app = rocksdb_app(tmp_path, "orders")
    db = write(app, "orders", 4, close=False)
    assert partitions_on_disk(app, app.tables._changelogs) == {"shop-orders-changelog": [4]}
    db[b"more"] = b"1"
    db.close()


def test_a_database_nothing_was_written_to_holds_no_state(tmp_path: Path) -> None:
    """Faust creates one when it is assigned a partition, before any record arrives."""
    app = rocksdb_app(tmp_path, "orders")
    write(app, "orders", 1, value=None)
    assert partitions_on_disk(app, app.tables._changelogs) == {}


def test_what_is_no_database_is_passed_over(tmp_path: Path) -> None:
    """Files, backups, other tables, numbers Kafka does not have."""
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
    """The table's store goes before the app's; memory stores have no files."""
    app = rocksdb_app(tmp_path, "kept")
    app.Table("lost", store="memory:x")
    named = app.Table("named", store="rocksdb:elsewhere")
    for name in ("kept", "named"):
        write(app, name, 6)
    (Path(app.conf.tabledir) / "kept-6.db").rename(Path(app.conf.tabledir) / "lost-6.db")
    assert named.data.partition_path(6).name == "elsewhere-6.db"
    assert partitions_on_disk(app, app.tables._changelogs) == {"shop-named-changelog": [6]}


def test_without_a_folder_nothing_is_found(tmp_path: Path) -> None:
    """A first start has no files, and asking creates none."""
    app = rocksdb_app(tmp_path / "none", "orders")
    assert partitions_on_disk(app, app.tables._changelogs) == {}
    assert not (tmp_path / "none").exists()


def test_a_crowded_folder_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look has an end, whatever lies in the folder."""
    monkeypatch.setattr(disk, "MOST_ENTRIES", 5)
    app = rocksdb_app(tmp_path, "orders")
    for partition in range(9):
        write(app, "orders", partition)
    assert len(partitions_on_disk(app, app.tables._changelogs)["shop-orders-changelog"]) <= 5


def test_rocksdict_keeps_what_the_look_relies_on(tmp_path: Path) -> None:
    """A write leaves a log or an SST file behind; if rocksdict changes that, this fails first."""
    db = Rdict(str(tmp_path / "x.db"))
    db["k"] = "v"
    db.close()
    files = list((tmp_path / "x.db").iterdir())
    assert any(f.suffix == ".sst" or (f.suffix == ".log" and f.stat().st_size) for f in files)
