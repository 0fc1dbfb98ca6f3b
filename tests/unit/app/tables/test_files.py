"""Failing files: reports to the recovery, stopped writes, and set-aside folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.stores.rocksdb import Store as RocksDBStore
from faust.types import TP

from faust_assigner.app.tables import files
from faust_assigner.app.tables.disk import store_of
from faust_assigner.app.tables.files import (
    ASIDE,
    TableStore,
    close_all,
    corrupt_folders,
    keep_uncommitted,
)
from faust_assigner.app.tables.flushing import Flushing
from faust_assigner.app.tables.landing import FlushMode
from faust_assigner.app.tables.storage_errors import is_damage, is_storage_error, storage_error_text
from faust_assigner.app.tables.store import WriteBehindStore
from faust_assigner.app.tables.write_behind import install_write_behind
from tests.support.made_up_tables import MadeUp, done, process


def test_files_that_were_set_aside_are_not_set_aside_again(tmp_path: Path) -> None:
    """The new database is good: a flag that stays would discard each reopened database."""
    it = MadeUp(tmp_path, "counts")
    try:
        store = it.tables["counts"].data
        damage = OSError("Corruption: block checksum mismatch")
        assert is_damage(damage)
        store._db_for_partition(0)[b"k"] = b"damaged"
        store._condemned.add(0)
        store.close_partition(0)
        store._db_for_partition(0)[b"k"] = b"replayed"
        assert store.set_aside == {0: 1}
        assert store.partition_path(0).with_name(store.partition_path(0).name + ASIDE).is_dir()
        store.close_partition(0)
        assert store._db_for_partition(0)[b"k"] == b"replayed"
        assert store.set_aside == {0: 1}
        store._put_aside(3, damage)
        assert corrupt_folders(it.app) == 2
    finally:
        it.close()


def test_a_store_is_made_with_all_that_its_table_names(tmp_path: Path) -> None:
    """Rows have the app's types and serializers; the database has the table's options."""
    app = MadeUp(tmp_path).app
    table = app.Table("named", key_type=bytes, value_type=bytes, options={"ttl": 60})
    install_write_behind(table)
    store = table.data
    assert isinstance(store, TableStore)
    assert (store.app, store.table, store.table_name) == (app, table, "named")
    assert (store.key_type, store.value_type) == (bytes, bytes)
    assert (store.key_serializer, store.value_serializer) == ("raw", "raw")
    assert store.rocksdb_options.ttl == 60
    assert str(store.url) == "rocksdb:named"


def test_an_error_that_names_no_file_is_about_each_partition_of_the_batch(tmp_path: Path) -> None:
    """Any partition may lack a change; an error that names a file is about this file alone."""
    it = MadeUp(tmp_path, "counts")
    try:
        store = it.tables["counts"].data
        assert [store._is_about(Exception("No space left on device"), p) for p in (0, 1)] == [
            True,
            True,
        ]
        named = Exception(f"IO error: {store.partition_path(1)}/000004.log")
        assert [store._is_about(named, p) for p in (0, 1)] == [False, True]
    finally:
        it.close()


def test_a_database_that_is_opened_anew_takes_records_and_offsets_again(tmp_path: Path) -> None:
    """Its missing changes are replayed: a lasting mark would repeat the replay at every start."""
    it = MadeUp(tmp_path, "counts")
    try:
        table = it.tables["counts"]
        store, tp = table.data, TP(table.changelog_topic.get_topic_name(), 0)
        store._lacking.add(0)
        store.set_persisted_offset(tp, 5)
        assert store.persisted_offset(tp) is None
        store.close_partition(0)
        store.set_persisted_offset(tp, 5)
        assert store.persisted_offset(tp) == 5
    finally:
        it.close()


# -- failures and reports


class Failing:
    """A table with files; its recovery records reports, and databases fail with ``error``."""

    def __init__(self, folder: Path) -> None:
        self.made = MadeUp(folder, "counts")
        self.table = self.made.tables["counts"]
        self.store, self.told = self.table.data, list[tuple[str, str]]()
        self.topic = self.table.changelog_topic.get_topic_name()
        self.doubts: list[Any] = []
        recovery = SimpleNamespace(
            tables_failed=lambda table, error: self.told.append((table, str(error))),
            consistency=SimpleNamespace(doubt=lambda *doubt: self.doubts.append(doubt)),
        )
        self.made.app.tables._recovery = recovery
        self.made.app._consumer._unacked_messages = set()

    def fail(self, error: Exception) -> None:
        """Replace all databases by failing ones."""
        for partition in self.store._dbs:
            self.store._dbs[partition] = Broken(error)


def keep_back(it: Failing) -> list[Any]:
    """Return the list of the records that the consumer keeps back from now on."""
    kept: list[Any] = []
    it.made.app._consumer.kept_back = SimpleNamespace(keep=kept.append)
    return kept


class Broken:
    """A database that fails on every read and write."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        if name == "close":
            return lambda: None
        raise self.error

    def __getitem__(self, key: bytes) -> Any:
        raise self.error

    def __setitem__(self, key: bytes, value: bytes) -> None:
        raise self.error


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Failing]:
    """Both partitions are open."""
    failing = Failing(tmp_path)
    for partition in (0, 1):
        failing.store._db_for_partition(partition)
    yield failing
    failing.made.close()
    done()


def record(it: Failing, partition: int) -> Any:
    """Return a changelog record."""
    message = SimpleNamespace(
        tp=TP(it.topic, partition), partition=partition, offset=3, key=b'"a"', value=b"1"
    )
    return SimpleNamespace(message=message, key="a", value=1)


@pytest.mark.parametrize(
    ("text", "is_bad"),
    [
        ("Corruption: block checksum mismatch", True),
        ("Corruption: IO error: No space left on device", True),
        ("IO error: No such file or directory: 000004.sst", True),
        ("Invalid argument: not an sstable", True),
        ("IO error: No space left on device", False),
        ("IO error: No such file: lock hold by current process", False),
        ("IO error: Too many open files: No such file", False),
        ("something else", False),
    ],
)
def test_bad_files_are_told_from_a_disk_that_may_recover(text: str, is_bad: bool) -> None:
    """A wait does not help with bad files; a replay does not help with a full disk."""
    assert is_damage(Exception(text)) is is_bad


@pytest.mark.parametrize(
    ("error", "is_so"),
    [(Exception("RocksDB's"), True), (OSError("full"), True), (ValueError("a bug"), False)],
)
def test_what_rocksdb_or_the_disk_says_is_told_from_a_bug(error: Exception, is_so: bool) -> None:
    """rocksdict raises plain exceptions."""
    assert is_storage_error(error) is is_so


@pytest.mark.parametrize("is_bad", [True, False])
def test_a_read_that_fails_stops_the_streams_and_its_record_is_repeated(
    it: Failing, is_bad: bool
) -> None:
    """Only bad files are set aside at the next open."""
    text = "Corruption: bad block" if is_bad else "IO error: disk is gone"
    event = process(1)
    kept = keep_back(it)
    it.fail(Exception(text))
    with pytest.raises(Exception, match=text):
        it.store.row_of(1, b'"a"')
    assert it.told == [("counts", text)]
    assert (it.store._lacking, it.store._condemned) == ({1}, {1} if is_bad else set())
    assert kept == [event.message], "no commit passes it"


def test_a_bug_in_a_view_stops_no_stream(it: Failing) -> None:
    """The error is the app's."""
    it.fail(ValueError("a bug"))
    with pytest.raises(ValueError, match="bug"):
        it.store.row_of(1, b'"a"')
    assert (it.told, it.store._lacking) == ([], set())


def test_nothing_is_written_behind_a_change_that_is_missing(it: Failing) -> None:
    """The file would count as complete; other partitions continue."""
    it.store._lacking.add(0)
    it.table.apply_changelog_batch([record(it, 0), record(it, 1)])
    assert it.store.persisted_offset(TP(it.topic, 0)) is None
    assert it.store.persisted_offset(TP(it.topic, 1)) == 3


def test_an_offset_that_cannot_be_written_begins_the_table_again(it: Failing) -> None:
    """The file is replayed from its previous offset."""
    it.fail(OSError("full"))
    it.store.set_persisted_offset(TP(it.topic, 1), 5)
    assert it.told == [("counts", "full")]
    it.store.set_persisted_offset(TP(it.topic, 1), 6)
    assert len(it.told) == 1, "it is told once for a file"
    it.fail(ValueError("a bug"))
    with pytest.raises(ValueError, match="bug"):
        it.store.set_persisted_offset(TP(it.topic, 0), 5)


def test_a_database_that_goes_is_of_this_table(it: Failing) -> None:
    """Partitions of other topics have the same numbers."""
    it.store.revoke_partitions(it.table, {TP("another", 0), TP(it.topic, 1)})
    assert list(it.store._dbs) == [0]


@pytest.mark.parametrize("is_storage", [True, False])
async def test_what_does_not_open_at_a_rebalance_is_opened_by_the_recovery(
    it: Failing, is_storage: bool, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Any other error is raised."""

    def broken(partition: int) -> Any:
        raise OSError("full") if is_storage else ValueError("a bug")

    monkeypatch.setattr(it.store, "_db_for_partition", broken)
    if is_storage:
        assert await it.store._try_open_db_for_partition(0) is None
        assert "counts-0 could not be opened yet" in caplog.text
    else:
        with pytest.raises(ValueError, match="bug"):
            await it.store._try_open_db_for_partition(0)


def test_files_that_a_different_process_has_open_name_the_data_directory() -> None:
    """Two workers with Faust's default data directory on one machine are a common mistake."""
    busy = "IO error: While lock file: shop-data/v1/tables/totals-2.db/LOCK: Resource temporarily unavailable"
    assert storage_error_text(Exception(busy)) == (
        f"{busy}. A different process has these files open: if two workers of one machine have the same data "
        "directory, give each its own (faust --datadir)"
    )
    own = "IO error: lock hold by current process, acquire time 1: totals-2.db/LOCK: No locks available"
    for other in (own, "IO error: No space left on device"):
        assert storage_error_text(Exception(other)) == other


@pytest.mark.parametrize("setting", [{"read_only": True}, {"use_rocksdict": False}], ids=str)
async def test_files_of_a_different_app_raise_each_error_and_stay_where_they_are(
    it: Failing, setting: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This worker's recovery cannot repair them."""
    told: list[Any] = []
    monkeypatch.setattr(it.store, "_fail", lambda *given: told.append(given))
    for name, value in setting.items():
        owner = it.store.rocksdb_options if name == "use_rocksdict" else it.store
        monkeypatch.setattr(owner, name, value)
    corrupt = OSError("Corruption: block checksum mismatch")

    def broken(*_: Any) -> Any:
        raise corrupt

    monkeypatch.setattr(it.store, "_db_for_partition", broken)
    with pytest.raises(OSError, match="Corruption"):
        await it.store._try_open_db_for_partition(0)
    monkeypatch.setattr(WriteBehindStore, "_open_for_partition", broken, raising=False)
    with pytest.raises(OSError, match="Corruption"):
        it.store._open_for_partition(0)
    monkeypatch.setattr(Flushing, "_write", broken)
    with pytest.raises(OSError, match="Corruption"):
        it.store.flushing.flush(0)
    with pytest.raises(OSError, match="Corruption"), it.store._watched(lambda: [0]):
        broken()
    assert (told, sum(it.store.set_aside.values())) == ([], 0)


@pytest.mark.parametrize("is_global", [False, True])
def test_a_change_below_the_file_is_told_to_the_recovery(it: Failing, is_global: bool) -> None:
    """A table with several writers raises no doubt; the batch size does not matter."""
    it.table.is_global, it.table.recovery_buffer_size = is_global, 1
    assert it.store.doubt(1, 7) == (not is_global)
    assert it.doubts == ([] if is_global else [(TP(it.topic, 1), 7)])


def test_a_careful_store_is_made_as_faust_makes_its_own(tmp_path: Path) -> None:
    """It needs the table's types, serializers and options to read existing rows."""
    options = {"write_buffer_size": 1 << 20}
    app = MadeUp(tmp_path, "counts").app
    table = app.Table("typed", key_type=int, value_type=float, partitions=2, options=options)
    table.key_serializer, table.value_serializer = "raw", "json"
    plain = table._new_store_by_url("rocksdb://")
    install_write_behind(table)
    careful = table._new_store_by_url("rocksdb://")
    assert not isinstance(plain, TableStore)
    assert isinstance(careful, TableStore)
    names = ("url", "app", "table", "table_name", "key_type", "value_type", "loop", "options")
    names += ("key_serializer", "value_serializer")
    assert {name: getattr(careful, name) for name in names} == {
        name: getattr(plain, name) for name in names
    }
    assert (careful.key_type, careful.value_type, careful.options) == (int, float, options)


class Opening:
    """A stub of the opening of databases: each call raises the next error; None succeeds."""

    def __init__(self, it: Failing, monkeypatch: pytest.MonkeyPatch, *errors: str | None) -> None:
        self.errors = list(errors)
        monkeypatch.setattr(RocksDBStore, "_open_for_partition", self)

    def __call__(self, partition: int) -> str:
        """Open the database."""
        error = self.errors.pop(0)
        if error is not None:
            raise Exception(error)
        return "opened"


@pytest.mark.parametrize(
    ("errors", "is_aside", "is_opened"),
    [
        ([None], False, True),
        (["Corruption: bad magic", None], True, True),
        (["Corruption: bad magic", "Corruption: again"], True, False),
        (["IO error: lock hold by current process", None], False, True),
        (["IO error: lock hold by current process", "IO error: lock hold by"], False, False),
        (["IO error: No space left on device"], False, False),
    ],
)
def test_a_corrupt_folder_is_set_aside_and_an_empty_database_opened(
    it: Failing,
    monkeypatch: pytest.MonkeyPatch,
    errors: list[str | None],
    is_aside: bool,
    is_opened: bool,
) -> None:
    """A lock of this process is retried once; other errors are raised, and the recovery waits."""
    opening, path = Opening(it, monkeypatch, *errors), it.store.partition_path(0)
    left: list[int] = []
    collector = SimpleNamespace(collect=lambda: left.append(len(opening.errors)))
    monkeypatch.setattr("faust_assigner.app.tables.files.gc", collector)
    aside = path.with_name(path.name + ASIDE)
    if is_opened:
        assert it.store._open_for_partition(0) == "opened"
    else:
        with pytest.raises(Exception, match=str(errors[-1])):
            it.store._open_for_partition(0)
    assert opening.errors == []
    is_locked = "lock hold by current process" in str(errors[0])
    assert left == [1] * is_locked, "an unused cursor is freed before the second try"
    assert aside.exists() == is_aside
    assert path.exists() != is_aside
    assert it.store.set_aside == ({0: 1} if is_aside else {})


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_was_set_aside_before_makes_room(it: Failing, is_folder: bool) -> None:
    """A single old file or folder is kept for each partition; folders are counted."""
    path = it.store.partition_path(0)
    aside = path.with_name(path.name + ASIDE)
    if is_folder:
        aside.mkdir()
        (aside / "old").touch()
    else:
        aside.touch()
    it.store._put_aside(0, "corrupt")
    assert aside.is_dir()
    assert not (aside / "old").exists()
    it.store._put_aside(0, "corrupt")
    assert it.store.set_aside == {0: 2}


@pytest.mark.parametrize("way", ["_get", "_set", "_del", "_contains"])
def test_each_access_that_fails_is_told_to_the_recovery(it: Failing, way: str) -> None:
    """The report has the partition of the processed record."""
    it.fail(OSError("gone"))
    event = process(1)
    kept = keep_back(it)
    with pytest.raises(OSError, match="gone"):
        getattr(it.store, way)(b"k", *([b"v"] if way == "_set" else []))
    assert it.told == [("counts", "gone")]
    assert it.store._lacking == {1}
    assert kept == [event.message]


@pytest.mark.parametrize("way", ["_get", "_contains"])
def test_a_look_from_outside_of_any_stream_doubts_each_open_database(it: Failing, way: str) -> None:
    """A web view searches all of them for its key."""
    done()
    it.fail(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        getattr(it.store, way)(b"k")
    assert it.store._lacking == {0, 1}


@pytest.mark.parametrize("text", ["Corruption", "No such file", "File exists", "Not a directory"])
def test_messages_of_damage_are_known_in_either_case(text: str) -> None:
    """RocksDB and the operating system use different cases."""
    for said in (text, text.lower()) if text != "Corruption" else (text,):
        assert is_damage(Exception(f"IO error: {said}: 7.sst"))
    for passing in (
        "No space left",
        "Disk quota",
        "Permission denied",
        "Read-only",
        "Input/output",
    ):
        assert is_damage(Exception(f"{text} {passing}")) is (text == "Corruption")


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (type("DbClosedError", (Exception,), {})("closed"), True),
        (FileNotFoundError("gone"), True),
        (RuntimeError("a bug"), False),
        (KeyError("a bug"), False),
        (BaseException("other"), False),
    ],
    ids=repr,
)
def test_a_closed_database_is_an_error_of_the_disk(error: BaseException, is_so: bool) -> None:
    """Exceptions of other libraries do not count."""
    assert is_storage_error(error) is is_so


def test_a_failure_marks_the_files_that_it_is_about(it: Failing) -> None:
    """Only files of the batch are marked; damaged files are condemned, and older marks stay."""
    path = it.store.partition_path
    it.store._lacking.add(7)
    it.store._fail(Exception(f"IO error: No space: {path(1)}/4.log"), [0, 1])
    assert (it.store._lacking, it.store._condemned) == ({1, 7}, set())
    it.store._fail(Exception(f"Corruption: {path(0)}/4.sst"), [0, 1])
    assert (it.store._lacking, it.store._condemned) == ({0, 1, 7}, {0})
    it.store._fail(Exception("Corruption: somewhere"), [1, 3])
    assert (it.store._lacking, it.store._condemned) == ({0, 1, 3, 7}, {0, 1, 3})
    assert [table for table, _ in it.told] == ["counts"] * 3


def test_a_batch_that_fails_marks_each_of_its_partitions(it: Failing) -> None:
    """Records of partitions that lack a change are skipped before the write."""
    it.store._lacking.add(1)
    it.fail(OSError("full"))
    with pytest.raises(OSError, match="full"):
        it.store.apply_changelog_batch([record(it, 1), record(it, 0)], None, None)
    assert it.store._lacking == {0, 1}
    it.store._lacking.clear()
    with pytest.raises(OSError, match="full"):
        it.store.apply_changelog_batch([record(it, 1), record(it, 0), record(it, 1)], None, None)
    assert it.store._lacking == {0, 1}
    assert it.told == [("counts", "full")] * 2


def test_a_flush_that_fails_is_about_its_partition(it: Failing, monkeypatch: Any) -> None:
    """It raises no storage error, because the recovery restarts; a bug is raised."""
    errors: list[Exception] = [OSError("full"), ValueError("a bug")]

    def flush(self: Any, partition: int) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(Flushing, "_write", flush)
    it.store.flushing.flush(1)
    assert (it.told, it.store._lacking) == ([("counts", "full")], {1})
    with pytest.raises(ValueError, match="a bug"):
        it.store.flushing.flush(0)
    assert it.store._lacking == {1}


def test_a_file_that_no_recovery_opens_is_closed_when_it_fails(it: Failing) -> None:
    """With use_partitioner it belongs to a source; it opens again, and takes changes, at its next use."""
    it.store.flush_mode = FlushMode.APART
    for partition in (1, 7):
        it.store._db_for_partition(partition)
    it.store._fail(Exception("IO error: No space left on device"), [1, 7])
    assert (it.told, it.store._lacking) == ([("counts", "IO error: No space left on device")], {1})
    assert (1 in it.store._dbs, 7 in it.store._dbs) == (True, False)


def test_a_row_of_a_file_that_fails_is_reported(it: Failing) -> None:
    """The report has the requested partition; no record is in progress."""
    done()
    it.fail(OSError("gone"))
    for partition, read in ((1, it.store.file_row), (0, it.store.row_of)):
        with pytest.raises(OSError, match="gone"):
            read(partition, b"k")
        assert it.store._lacking == {partition}
        it.store._lacking.clear()
    assert len(it.told) == 2


def test_a_folder_that_cannot_be_set_aside_stays_condemned(
    it: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty database opened in its place would count as restored; a missing folder is fine."""

    def replace(path: Path, aside: Path) -> None:
        raise error

    monkeypatch.setattr(files.os, "replace", replace)
    it.store._condemned, error = {0, 1}, OSError("read-only")
    with pytest.raises(OSError, match="read-only"):
        it.store._put_aside(0, "corrupt")
    assert (it.store.set_aside, it.store._condemned) == ({}, {0, 1})
    error = FileNotFoundError("gone")
    it.store._put_aside(0, "corrupt")
    assert (it.store.set_aside, it.store._condemned) == ({0: 1}, {1})


@pytest.mark.parametrize("error", [OSError("stuck"), Exception("IO error: stuck")])
def test_a_database_is_closed_whatever_it_says(it: Failing, error: Exception) -> None:
    """Its marks are cleared; other databases keep theirs. rocksdict raises plain exceptions."""

    class Stuck:
        def close(self) -> None:
            raise error

    it.store._dbs[0].close()
    it.store._dbs[0] = Stuck()
    it.store._lacking, it.store._condemned = {0, 1}, {0}
    it.store.close_partition(0)
    it.store.close_partition(5)
    assert (list(it.store._dbs), it.store._lacking, it.store._condemned) == ([1], {1}, {0})


def test_all_databases_are_closed_though_one_fails(caplog: Any) -> None:
    """A partition without an open database is skipped."""
    closed: list[int] = []

    class One:
        def __init__(self, number: int) -> None:
            self.number = number

        def close(self) -> None:
            if self.number == 1:
                raise OSError("stuck")
            closed.append(self.number)

    close_all([One(0), None, One(1), One(2)])
    assert closed == [0, 2]
    assert caplog.messages == ["A database did not close: stuck"]


def test_a_record_whose_agent_failed_is_kept_back_from_commits() -> None:
    """There is no record outside a stream; a timer's event has no message."""
    kept: list[object] = []
    app = SimpleNamespace(consumer=SimpleNamespace(kept_back=SimpleNamespace(keep=kept.append)))
    keep_uncommitted(app, None)
    keep_uncommitted(app, SimpleNamespace(message=None))
    assert kept == []
    keep_uncommitted(app, SimpleNamespace(message="record"))
    assert kept == ["record"]


def test_folders_of_all_tables_are_counted(tmp_path: Path) -> None:
    """Sets have a storage; a table in memory has no folders."""
    tables = {
        "plain": SimpleNamespace(data=SimpleNamespace(set_aside={0: 2, 3: 1})),
        "sets": SimpleNamespace(data=SimpleNamespace(storage=SimpleNamespace(set_aside={1: 4}))),
        "memory": SimpleNamespace(data={}),
    }
    app = SimpleNamespace(tables=tables)
    assert corrupt_folders(app) == 7
    assert store_of(tables["sets"]) is tables["sets"].data.storage
    assert store_of(tables["plain"]) is tables["plain"].data


async def test_a_database_opened_at_a_rebalance_is_returned(it: Failing) -> None:
    """Streams use the same database."""
    it.store._dbs.clear()
    opened = await it.store._try_open_db_for_partition(1, 3, generation_id=7)
    assert it.store._dbs == {1: opened}


def test_a_condemned_folder_is_set_aside_before_it_is_opened(
    it: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this folder is moved; a missing folder is not."""
    Opening(it, monkeypatch, None, None, None)
    it.store._condemned = {1, 4}
    for partition in (0, 1, 4):
        assert it.store._open_for_partition(partition) == "opened"
    assert it.store.set_aside == {1: 1, 4: 1}
    assert it.store._condemned == set()
    assert it.store.partition_path(0).exists()
    assert not it.store.partition_path(1).exists()


def test_without_a_recovery_that_compares_a_file_is_not_in_doubt(it: Failing) -> None:
    """Faust's own recovery does not compare files."""
    it.made.app.tables._recovery = SimpleNamespace()
    assert not it.store.doubt(1, 7)


def test_databases_of_several_revoked_partitions_are_released(it: Failing) -> None:
    """All belong to this table; an unopened partition is skipped."""
    it.store.revoke_partitions(it.table, {TP(it.topic, 7), TP(it.topic, 1), TP(it.topic, 0)})
    assert it.store._dbs == {}


def test_an_open_database_is_closed_before_it_is_opened_anew(it: Failing) -> None:
    """RocksDB accepts no write after a failed write, and no second opening."""
    closed: list[str] = []
    it.store._dbs[0].close()
    it.store._dbs[0] = SimpleNamespace(close=lambda: closed.append("closed"))
    it.store.close_partition(0)
    assert (closed, 0 in it.store._dbs) == (["closed"], False)
    it.store.close_partition(0)
    assert closed == ["closed"]
