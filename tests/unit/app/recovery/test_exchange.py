"""A standby's database is exchanged within the requesting generation, or not at all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.recovery import exchange as recovery
from faust_assigner.app.recovery.exchange import StandbyExchange
from faust_assigner.app.recovery.restore_task import SNAPSHOT
from faust_assigner.app.recovery.restoring import RestoreThreads

HERE = TP("log", 0)


class Exchanging(StandbyExchange):
    """The recovery of a standby; ``meanwhile`` runs during the build of its database."""

    def __init__(self, meanwhile: Any) -> None:
        self.meanwhile = meanwhile
        threads: Any = RestoreThreads()
        threads.run = lambda *given: self._in_thread(*given)
        super().__init__(self, threads, lambda tp, found: self.restored.update({tp: found}))  # type: ignore[arg-type]
        self.seeks: list[Any] = []
        self.app = SimpleNamespace(
            consumer_generation_id=3, consumer=SimpleNamespace(seek_wait=self._seek)
        )
        self.standby_tps, self.standby_offsets, self.restored = {HERE}, {HERE: 0}, {}
        self.tp_to_table = {HERE: SimpleNamespace(data=None)}

    async def _seek(self, offsets: Any) -> None:
        self.seeks.append(offsets)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        self.meanwhile(self)
        return Path("built"), SimpleNamespace(next_offset=100_000, bytes=1, snapshot_id="s")

    def flush_buffers(self) -> None:
        """Do nothing: no records are buffered."""


def overtake(one: Any) -> None:
    """Begin the next generation with the same standby."""
    one.app.consumer_generation_id += 1


@pytest.mark.parametrize(
    ("meanwhile", "exchanged"),
    [
        (lambda one: None, True),
        (overtake, False),
        (lambda one: one.standby_tps.clear(), False),
        (lambda one: one._threads.stop_signal.set(), False),
        (lambda one: one.standby_offsets.update({HERE: 99_990}), False),
    ],
    ids=[
        "nothing happens",
        "a generation",
        "it is no standby any more",
        "a revocation",
        "the replay is quicker",
    ],
)
async def test_an_exchange_that_was_overtaken_touches_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, meanwhile: Any, exchanged: bool
) -> None:
    """The folder may belong to an active by then, with an open database."""
    replaced: list[Any] = []
    monkeypatch.setattr(recovery, "_replace_database", lambda *given: replaced.append(given))
    one = Exchanging(meanwhile)
    await one._exchange(HERE, 3, SimpleNamespace(folder=tmp_path), None)  # type: ignore[arg-type]
    assert bool(replaced) == bool(one.seeks) == bool(one.restored) == exchanged
    assert (one.standby_offsets[HERE] == 99_999) == exchanged


async def test_what_was_read_is_written_before_its_database_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A later flush would write old records into the new database."""
    acts: list[str] = []
    monkeypatch.setattr(recovery, "_replace_database", lambda *given: acts.append("replaced"))
    one = Exchanging(lambda one: None)
    one.flush_buffers = lambda: acts.append("flushed")  # type: ignore[method-assign]
    await one._exchange(HERE, 3, SimpleNamespace(folder=tmp_path), None)  # type: ignore[arg-type]
    assert acts == ["flushed", "replaced"]
    assert one.seeks == [{HERE: 99_999}]


async def test_an_exchange_replaces_seeks_and_then_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The database is built in a scratch folder beside the tables, removed before the seek."""
    acts: list[Any] = []
    times = iter([1000.0, 1060.0])
    monkeypatch.setattr(recovery.time, "time", lambda: next(times))
    monkeypatch.setattr(
        recovery, "_replace_database", lambda *given: acts.append(("replace", *given))
    )
    there = TP("log", 3)
    one = Exchanging(lambda one: None)
    table = one.tp_to_table[there] = SimpleNamespace(data="store")
    one.standby_tps, one.standby_offsets = {there}, {there: 40}
    manifest = SimpleNamespace(next_offset=90_000, bytes=77, snapshot_id="s")

    async def in_thread(function: Any, finder: Any, tp: TP, folder: Path, of: Any) -> Any:
        assert folder.parent == tmp_path
        acts.append((function, finder, tp, of))
        return Path("built"), manifest

    async def seek(offsets: Any) -> None:
        assert list(tmp_path.iterdir()) == []
        acts.append(("seek", offsets, dict(one.standby_offsets), dict(one.restored)))

    one._in_thread = in_thread  # type: ignore[method-assign]
    one.app.consumer.seek_wait = seek
    await one._exchange(there, 3, SimpleNamespace(folder=tmp_path), "finder")  # type: ignore[arg-type]
    assert acts == [
        (recovery._build_database, "finder", there, table),
        ("replace", "store", 3, Path("built")),
        ("seek", {there: 89_999}, {there: 89_999}, {}),
    ]
    assert one.restored == {
        there: recovery.Restored(there, SNAPSHOT, 1000.0, 1060.0, 40, 89_999, 77)
    }


async def test_a_standby_without_a_snapshot_stays_as_it_is(tmp_path: Path) -> None:
    """No seek follows, and no result is recorded."""
    one = Exchanging(lambda one: None)

    async def none(*_: Any) -> None:
        return None

    one._in_thread = none  # type: ignore[method-assign]
    await one._exchange(HERE, 3, SimpleNamespace(folder=tmp_path), None)  # type: ignore[arg-type]
    assert (one.seeks, one.restored, one.standby_offsets) == ([], {}, {HERE: 0})


class Store:
    """A store with a single database, which is a folder."""

    def __init__(self, folder: Path) -> None:
        self.path, self.acts = folder / "0.db", list[str]()
        self.path.mkdir()
        (self.path / "old").touch()
        self._dbs = {0: SimpleNamespace(close=lambda: self.acts.append("closed"))}

    def partition_path(self, partition: int) -> Path:
        """Return the database's folder."""
        return self.path

    def _db_for_partition(self, partition: int) -> None:
        self.acts.append(f"opened {[path.name for path in self.path.iterdir()]}")


@pytest.mark.parametrize("is_built", [True, False])
def test_a_database_is_replaced_whole_or_stays(tmp_path: Path, is_built: bool) -> None:
    """The loop would treat an empty database in its place as complete."""
    store, scratch = Store(tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    if is_built:
        (scratch / "database").mkdir()
        (scratch / "database" / "new").touch()
        recovery._replace_database(store, 0, scratch / "database")
        assert store.acts == ["closed", "opened ['new']"]
    else:
        with pytest.raises(OSError, match="No such file"):
            recovery._replace_database(store, 0, scratch / "database")
        assert [path.name for path in store.path.iterdir()] == ["old"]
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("before", "start"), [(0, 0), (7, 7), (None, -1)])
async def test_an_exchange_is_recorded_with_the_offsets_before_and_after(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: int | None, start: int
) -> None:
    """The ledger counts the snapshot's records, including the record at the first offset."""
    monkeypatch.setattr(recovery, "_replace_database", lambda *given: None)
    one = Exchanging(lambda one: None)
    one.standby_offsets[HERE] = before
    await one._exchange(HERE, 3, SimpleNamespace(folder=tmp_path), None)  # type: ignore[arg-type]
    found = one.restored[HERE]
    assert (found.tp, found.source, found.bytes) == (HERE, SNAPSHOT, 1)
    assert (found.start_offset, found.end_offset) == (start, 99_999)
    assert found.started <= found.ended


@pytest.mark.parametrize("offset", [-1, 0, 50])
async def test_a_snapshot_is_worth_an_exchange_from_the_least_gap_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offset: int
) -> None:
    """The gap runs from the standby's last record to the snapshot's last record."""
    monkeypatch.setattr(recovery, "_replace_database", lambda *given: None)
    for gap, is_exchanged in ((99_999 - offset, True), (99_999 - offset + 1, False)):
        monkeypatch.setattr(recovery, "MIN_STANDBY_GAP", gap)
        one = Exchanging(lambda one: None)
        one.standby_offsets[HERE] = offset
        await one._exchange(HERE, 3, SimpleNamespace(folder=tmp_path), None)  # type: ignore[arg-type]
        assert bool(one.restored) == is_exchanged


class Standbys(StandbyExchange):
    """A recovery with these standbys' highwaters and offsets; records the exchanges."""

    def __init__(self, **standbys: tuple[int | None, int | None]) -> None:
        threads: Any = RestoreThreads()
        threads.run = lambda *given: self._in_thread(*given)
        super().__init__(self, threads, lambda tp, found: None)  # type: ignore[arg-type]
        self.app = SimpleNamespace(consumer_generation_id=3)
        self.standby_highwaters, self.standby_offsets, self.tp_to_table = {}, {}, {}
        for name, (highwater, offset) in standbys.items():
            tp = TP(name, 0)
            self.standby_offsets[tp] = offset
            self.tp_to_table[tp] = SimpleNamespace(
                data=name, _on_changelog_event="callback" if name == "callback" else None
            )
            if highwater is not None:
                self.standby_highwaters[tp] = highwater
        self.standby_tps = set(self.standby_offsets)
        self.exchanged, self.looked_for = list[str](), list[Any]()
        self.error: Exception | None = None

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        if self.error is not None:
            raise self.error
        settings, behind, stop = arguments
        assert (function, settings, stop) == (
            recovery.Finder,
            "settings",
            self._threads.stop_signal,
        )
        self.looked_for.append([tp.topic for tp in behind])
        return "finder"

    async def _exchange(self, tp: TP, generation_id: int, settings: Any, finder: Any) -> None:
        assert (settings, finder) == ("settings", "finder")
        self.exchanged.append(tp.topic)
        if tp.topic == "c-stops":
            self._threads.stop_signal.set()


@pytest.fixture
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "settings_of", lambda app: "settings")
    monkeypatch.setattr(recovery, "takes_files", lambda store: store != "ttl")
    monkeypatch.setattr(recovery, "MIN_STANDBY_GAP", 100)


@pytest.mark.usefixtures("_settings")
async def test_standbys_far_behind_are_exchanged_in_order() -> None:
    """A short gap, an unknown end or files of another kind exclude a standby.

    A callback for each record excludes a standby too: a snapshot has no records.
    """
    far = {"b": (150, 50), "a": (1000, -1), "callback": (1000, 0)}
    one = Standbys(**far, near=(150, 51), unknown=(None, 5), fresh=(900, None), ttl=(1000, 0))
    await one.exchange_all(3)
    assert one.exchanged == ["a", "b"]
    assert one.looked_for == [["a", "b"]]
    assert one.left == set()


@pytest.mark.usefixtures("_settings")
async def test_no_snapshot_is_looked_for_where_no_standby_is_far_behind() -> None:
    """A search lists the storage and sends requests to the broker."""
    one = Standbys(near=(150, 51))
    await one.exchange_all(3)
    assert one.looked_for == []


@pytest.mark.usefixtures("_settings")
async def test_a_stop_or_another_generation_ends_the_exchanges() -> None:
    """Later partitions no longer belong to this worker."""
    one = Standbys(**{"b": (1000, 0), "c-stops": (1000, 0), "d": (1000, 0)})
    await one.exchange_all(2)
    assert one.exchanged == []
    await one.exchange_all(3)
    assert one.exchanged == ["b", "c-stops"]
    assert {tp.topic for tp in one.left} == {"c-stops", "d"}


@pytest.mark.usefixtures("_settings")
async def test_standbys_are_replayed_where_the_storage_fails(caplog: Any) -> None:
    """The error is logged, and the task ends."""
    one = Standbys(a=(1000, 0))
    one.error = OSError("no storage")
    await one.exchange_all(3)
    assert one.exchanged == []
    assert one.left == set()
    assert "Standbys continue by replay: OSError('no storage')" in caplog.text


@pytest.mark.parametrize("error", [None, OSError("full")])
def test_a_database_is_built_and_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any, error: Exception | None
) -> None:
    """An open database cannot replace the standby's; after an error the standby replays."""
    acts: list[Any] = []

    def ingest(database: Any, paths: Any, *, move: bool) -> None:
        acts.append(("ingested", paths, move))
        if error is not None:
            raise error

    monkeypatch.setattr(recovery, "ingest", ingest)
    monkeypatch.setattr(recovery, "decoding_of", lambda table: "decoding")
    database = SimpleNamespace(close=lambda: acts.append("closed"))
    options = SimpleNamespace(open=lambda path: acts.append(path) or database)
    table = SimpleNamespace(data=SimpleNamespace(rocksdb_options=options))

    def fetch(tp: TP, folder: Path, decoding: Any) -> Any:
        assert (tp, folder, decoding) == (HERE, tmp_path, "decoding")
        return "manifest", ["file"], False

    finder: Any = SimpleNamespace(fetch=fetch)
    built = recovery._build_database(finder, HERE, tmp_path, table)
    assert acts == [tmp_path / "database", ("ingested", ["file"], False), "closed"]
    assert built == (None if error else (tmp_path / "database", "manifest"))
    assert ("log-0 continues by replay: full" in caplog.text) == (error is not None)
    finder.fetch = lambda *_: None
    assert recovery._build_database(finder, HERE, tmp_path, table) is None


def test_a_database_takes_a_place_that_is_empty(tmp_path: Path) -> None:
    """The standby's folder may be missing; the exchange needs no old folder."""
    store, scratch = Store(tmp_path), tmp_path / "scratch"
    (scratch / "database").mkdir(parents=True)
    (scratch / "database" / "new").touch()
    (store.path / "old").unlink()
    store.path.rmdir()
    store._dbs.clear()
    recovery._replace_database(store, 0, scratch / "database")
    assert store.acts == ["opened ['new']"]


async def test_a_gap_is_known_with_both_of_its_ends() -> None:
    """Offset 0 is a record; without an offset or a highwater no record is known to lack."""
    one = Standbys(empty=(0, -1), first=(0, 0), far=(90, 4), unread=(9, None), unknown=(None, 3))
    names = ("empty", "first", "far", "unread", "unknown", "other")
    assert [one.gap(TP(name, 0)) for name in names] == [1, 0, 86, 0, 0, 0]
