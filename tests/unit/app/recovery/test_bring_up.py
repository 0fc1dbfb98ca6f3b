"""A restore in batches and by snapshots: its partitions, their order and offsets, its reports."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.app.recovery import bring_up, from_snapshots
from faust_assigner.app.recovery.decoding import ANYTHING
from faust_assigner.app.recovery.from_snapshots import (
    SCRATCH_MAX_AGE_S,
    SCRATCH_PREFIX,
    Finder,
    from_snapshot,
    sweep_scratch,
)
from faust_assigner.app.recovery.progress import Progress
from faust_assigner.app.recovery.restore_task import (
    LOCAL,
    REPLAY,
    SNAPSHOT,
    Cold,
    Restored,
    Settings,
    Stop,
)
from faust_assigner.snapshots.changelog import Extent
from faust_assigner.snapshots.manifest import SnapshotError
from faust_assigner.snapshots.storage import DownloadStopped

A, B, C = (TopicPartition("log", number) for number in range(3))


class Database:
    """A database that records its writes."""

    def __init__(self, *, is_empty: bool = True) -> None:
        self.is_empty, self.written = is_empty, list[Any]()

    def write(self, batch: Any) -> None:
        """Record a batch."""
        self.written.append(batch)


class Job:
    """A restore of ``colds``; records results and progress."""

    def __init__(self, *colds: Cold, batched: bool = True) -> None:
        self.told: list[Restored] = []
        self.colds = colds
        self.progress: list[Any] = []
        self.refused: list[Any] = []
        progress: Any = SimpleNamespace(
            begin=lambda what: self.progress.append(dict(what)),
            move=lambda tp, at: self.progress.append((tp, at)),
            finish=lambda tp: self.progress.append(("finished", tp)),
        )
        self.settings = Settings(
            None,
            batched,
            {},
            "read_uncommitted",
            Path("tables"),
            unreadable=lambda tp, records: self.refused.append((tp, records)),
            progress=progress,
        )
        self.it = bring_up._Job(self.settings, colds, Stop(), self.told.append)

    def wait_for_snapshot(self, tp: TopicPartition) -> Future[Restored | None]:
        """Give the partition an unfinished snapshot."""
        snapshot = self.it._snapshots[tp] = Future()
        return snapshot


def cold(tp: TopicPartition, offset: int = -1, highwater: int = 9, *, empty: bool = True) -> Cold:
    """Return a partition at ``offset`` whose last record is at ``highwater``."""
    return Cold(tp, Database(is_empty=empty), offset, highwater, True)


def snapshot_of(tp: TopicPartition, end_offset: int) -> Restored:
    """Return the result of a snapshot that ends at ``end_offset``."""
    return Restored(tp, SNAPSHOT, 1.0, 2.0, -1, end_offset, 100)


@pytest.fixture(autouse=True)
def _without_rocksdb(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bring_up, from_snapshots):
        monkeypatch.setattr(module, "is_empty", lambda database: database.is_empty)
    monkeypatch.setattr(
        bring_up,
        "to_batch",
        lambda records, position, decoding, whole: (
            ("batch", *whole.args, len(records), position)
            if decoding is ANYTHING and whole.func is bring_up.to_consumer_record
            else "a batch of other records",
            ["refused"],
        ),
    )


def record(key: bytes | None, value: bytes | None) -> Any:
    """Return a changelog record."""
    return SimpleNamespace(key=key, value=value)


def test_partitions_are_read_in_their_order_from_behind_their_files() -> None:
    """The replay includes the last record, at the highwater."""
    job = Job(cold(A), cold(B, 4, empty=False), cold(C, 8, empty=False))
    assert [job.it.begin() for _ in range(3)] == [
        (A, Extent(0, 10)),
        (B, Extent(5, 10)),
        (C, Extent(9, 10)),
    ]
    assert job.it.is_over()
    assert job.it.begin() is None
    assert job.progress == [{A: (0, 10), B: (5, 10), C: (9, 10)}]


def test_a_partition_that_lacks_nothing_is_done_with_at_once() -> None:
    """Its result has the local files' offset."""
    job = Job(cold(A, 9, empty=False), cold(B))
    assert job.it.begin() == (B, Extent(0, 10))
    assert [(one.tp, one.source, one.end_offset) for one in job.told] == [(A, LOCAL, 9)]


def test_without_batches_nothing_is_read() -> None:
    """Only snapshots are restored; Faust's loop reads the rest."""
    job = Job(cold(A), batched=False)
    assert job.it.begin() is None
    assert [(one.source, one.end_offset) for one in job.told] == [(REPLAY, -1)]


def test_a_partition_waits_for_its_snapshot_and_others_go_on() -> None:
    """A partition is read from its snapshot's end, or from the beginning without a snapshot."""
    job = Job(cold(A), cold(B), cold(C))
    first, second = job.wait_for_snapshot(A), job.wait_for_snapshot(B)
    assert job.it.begin() == (C, Extent(0, 10))
    assert job.it.begin() is None
    assert not job.it.is_over()
    first.set_result(snapshot_of(A, 5))
    second.set_result(None)
    assert job.it.begin() == (A, Extent(6, 10))
    assert (A, 6) in job.progress
    assert job.it.begin() == (B, Extent(0, 10))


def test_what_was_written_is_counted_from_where_it_began() -> None:
    """Offsets without records count as replayed; bytes are those of keys and values."""
    job = Job(cold(A, 1, empty=False))
    job.it.begin()
    job.it.write(A, [record(b"ab", b"cde"), record(b"f", None)], 7)
    job.it.write(A, [], 10)
    job.it.finish(A)
    (done,) = job.told
    assert (done.source, done.start_offset, done.end_offset) == (LOCAL, 1, 9)
    assert (done.replayed, done.replayed_bytes, done.bytes) == (8, 6, 0)
    assert done.started <= done.ended
    assert job.refused == [(A, ["refused"])] * 2
    assert job.colds[0].database.written == [("batch", A, 2, 7), ("batch", A, 0, 10)]
    assert job.progress[1:] == [(A, 7), (A, 10), ("finished", A)]


def test_a_partition_goes_on_from_its_snapshot() -> None:
    """The source is the snapshot; records after it are counted as replayed."""
    job = Job(cold(A))
    job.wait_for_snapshot(A).set_result(snapshot_of(A, 5))
    job.it.begin()
    job.it.write(A, [record(b"a", b"b")], 10)
    job.it.finish(A)
    assert [(one.source, one.bytes, one.replayed) for one in job.told] == [(SNAPSHOT, 100, 4)]


def test_at_the_end_each_partition_has_been_told_once() -> None:
    """A late snapshot counts only if its end is beyond the replayed offset."""
    job = Job(cold(A), cold(B), cold(C))
    for tp in (A, B):
        job.wait_for_snapshot(tp)
    job.it.begin()  # partition C
    job.it.finish(C)
    for tp, end in ((A, 5), (B, -1)):
        job.it._snapshots[tp].set_result(snapshot_of(tp, end))
    done = job.it.end()
    assert [one.tp for one in job.told] == [C, A, B]
    assert (done[A].end_offset, done[A].source) == (5, SNAPSHOT)
    assert done[B].source == REPLAY


def test_only_empty_databases_that_take_files_wait_for_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A database with rows and a store without file ingestion get no snapshot."""
    seen: list[Any] = []
    monkeypatch.setattr(bring_up, "Finder", lambda settings, tps, stop: seen.append(tps))
    other = cold(C)
    job = Job(cold(A), cold(B, 4, empty=False), Cold(C, other.database, -1, 9, False))
    pool: Any = SimpleNamespace(submit=lambda step, settings, finder, cold, stop: cold.tp)
    job.it.begin_snapshots(pool)
    assert (seen, job.it._snapshots) == ([], {}), "no snapshots are configured"
    job.it._settings = bring_up.replace(job.settings, snapshots="somewhere")
    job.it.begin_snapshots(pool)
    assert seen == [[A]]
    assert job.it._snapshots == {A: A}


def test_a_thread_is_told_to_stop_or_stops_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A renewal restarts the time limit; an explicit stop is final."""
    now = 100.0
    monkeypatch.setattr(bring_up.time, "monotonic", lambda: now)
    stop, told = Stop(10.0), Stop()
    now = 109.0
    assert not stop()
    stop.renew()
    now = 118.0
    assert not stop()
    now = 120.0
    assert stop()
    told.renew()
    assert not told()
    told.set()
    told.renew()
    assert told()


def test_under_transactions_the_end_is_that_of_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The committed ends are read from the broker; without an answer the known ends stay."""
    before = [cold(A, highwater=3)]
    settings = Job().settings
    answers: list[Any] = [{A: SimpleNamespace(end=21)}, None]
    asked: list[Any] = []
    monkeypatch.setattr(bring_up, "extents_of", lambda *of: asked.append(of) or "work")
    monkeypatch.setattr(
        bring_up, "run_until_stopped", lambda work, stop: answers.pop(0) if not stop() else 1 / 0
    )

    def ends() -> list[int]:
        return [one.highwater for one in bring_up._with_committed_ends(settings, before, Stop())]

    assert ends() == [3]
    settings = bring_up.replace(settings, isolation_level="read_committed")
    assert [ends(), ends()] == [[20], [3]]
    assert asked == [(settings.connection, [A])] * 2


def test_the_known_ends_stay_where_the_committed_ones_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The restore continues with the known ends, and a warning is logged."""

    errors: list[BaseException] = [OSError("no broker"), asyncio.CancelledError()]

    def refused(*_: Any) -> None:
        raise errors.pop(0)

    settings = bring_up.replace(Job().settings, isolation_level="read_committed")
    monkeypatch.setattr(bring_up, "extents_of", refused)
    before = [cold(A, highwater=3)]
    for _ in range(2):
        assert bring_up._with_committed_ends(settings, before, Stop()) == before
    assert "Could not read the committed end offsets of changelogs" in caplog.text


def test_each_partition_gets_its_own_committed_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other fields of a partition stay."""
    settings = bring_up.replace(Job().settings, isolation_level="read_committed")
    found = {A: SimpleNamespace(end=21), B: SimpleNamespace(end=0), C: SimpleNamespace(end=7)}
    asked: list[Any] = []
    monkeypatch.setattr(bring_up, "extents_of", lambda *of: asked.append(of) or "work")
    monkeypatch.setattr(bring_up, "run_until_stopped", lambda work, stop: found)
    before = [cold(C, 4, 3), cold(A, 2, 9), cold(B)]
    assert bring_up._with_committed_ends(settings, before, Stop()) == [
        bring_up.replace(before[0], highwater=6),
        bring_up.replace(before[1], highwater=20),
        bring_up.replace(before[2], highwater=-1),
    ]
    assert asked == [(settings.connection, [C, A, B])]


def test_results_of_partitions_that_had_no_turn_are_those_of_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty database's source is replay, any other's is local; both times are the start's."""
    monkeypatch.setattr(bring_up.time, "time", lambda: 1234.5)
    job = Job(cold(A), cold(B, 4, empty=False))
    monkeypatch.setattr(bring_up.time, "time", lambda: 2000.0)
    assert set(job.it.tps) == {A, B}
    expected = {
        A: Restored(A, REPLAY, 1234.5, 1234.5, -1, -1, 0),
        B: Restored(B, LOCAL, 1234.5, 1234.5, 4, 4, 0),
    }
    assert job.it.end() == expected
    assert job.told == [*expected.values()]
    assert set(job.it.tps) == set()
    assert job.progress[1:] == [("finished", A), ("finished", B)]


def test_each_batch_is_added_to_the_whole_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end time is that of the last batch; a record may lack its key or its value."""
    now = 1000.0
    monkeypatch.setattr(bring_up.time, "time", lambda: now)
    job = Job(cold(A, 1, empty=False), cold(B, 3, empty=False))
    job.it.begin()
    for at, size, position in ((1010.0, 3, 7), (1025.0, 5, 9)):
        now = at
        job.it.write(A, [record(None, b"x" * size), record(b"ab", b"")], position)
    job.it.finish(A)
    assert job.told == [Restored(A, LOCAL, 1000.0, 1025.0, 1, 8, 0, 7, 12)]
    assert list(job.it.tps) == [B]


def test_a_partition_awaits_its_own_snapshot_alone() -> None:
    """A waiting partition lets a later partition start; its own snapshot is requested once."""
    job = Job(cold(A), cold(B), cold(C))
    waiting, ready = job.wait_for_snapshot(A), job.wait_for_snapshot(B)
    ready.set_result(snapshot_of(B, 9))
    assert job.it.begin() == (C, Extent(0, 10))
    assert job.told == [snapshot_of(B, 9)], "it lacks nothing behind its snapshot"
    assert (B, 10) in job.progress
    assert job.it.begin() is None
    waiting.set_result(snapshot_of(A, 8))
    assert job.it.begin() == (A, Extent(9, 10))
    assert job.it.is_over()


def test_late_snapshots_count_where_they_are_further() -> None:
    """A missing or shorter snapshot does not count; a finished partition keeps its result."""
    four = [TopicPartition("log", number) for number in range(4)]
    job = Job(*map(cold, four))
    ends: list[int | None] = [None, -1, 5, 9]
    for tp, end in zip(four, ends, strict=True):
        job.wait_for_snapshot(tp).set_result(None if end is None else snapshot_of(tp, end))
    job.it._colds.pop(four[2])
    found = job.it.end()
    assert [(one.source, one.end_offset) for one in found.values()] == [
        (REPLAY, -1),
        (REPLAY, -1),
        (REPLAY, -1),
        (SNAPSHOT, 9),
    ]
    assert [one.tp for one in job.told] == [four[0], four[1], four[3]]


@pytest.mark.parametrize(("end", "result"), [(6, (REPLAY, 6)), (7, (SNAPSHOT, 7))])
def test_a_late_snapshot_counts_where_it_is_further_than_the_replay(
    monkeypatch: pytest.MonkeyPatch, end: int, result: tuple[str, int]
) -> None:
    """The replay has passed its own start meanwhile."""
    monkeypatch.setattr(bring_up, "to_batch", lambda *_: ("batch", ()))
    job = Job(cold(A))
    assert job.it.begin() == (A, Extent(0, 10))
    job.it.write(A, [record(b"a", b"b")], 7)
    job.wait_for_snapshot(A).set_result(snapshot_of(A, end))
    (found,) = job.it.end().values()
    assert (found.source, found.end_offset) == result
    assert job.told == [found]


def test_each_empty_database_gets_its_own_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single finder serves all; without empty databases there is no finder."""
    finders, submitted = list[Any](), list[Any]()

    def finder_of(*given: Any) -> str:
        finders.append(given)
        return "finder"

    def submit(*given: Any) -> Any:
        submitted.append(given)
        return given[3].tp

    monkeypatch.setattr(bring_up, "Finder", finder_of)
    colds = [cold(C), cold(A), cold(B)]
    job = Job(*colds)
    settings = job.it._settings = bring_up.replace(job.settings, snapshots="somewhere")
    pool: Any = SimpleNamespace(submit=submit)
    job.it.begin_snapshots(pool)
    assert finders == [(settings, [C, A, B], job.it._stop)]
    assert submitted == [(from_snapshot, settings, "finder", each, job.it._stop) for each in colds]
    assert job.it._snapshots == {C: C, A: A, B: B}
    full = Job(cold(A, 4, empty=False))
    full.it._settings = settings
    full.it.begin_snapshots(pool)
    assert (len(finders), full.it._snapshots) == (1, {})


def test_a_time_limit_of_no_seconds_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop is due only after the limit has passed, also after a renewal."""
    now = 100.0
    monkeypatch.setattr(bring_up.time, "monotonic", lambda: now)
    stop, none = Stop(10.0), Stop(0.0)
    assert not none()
    now = 110.0
    assert none()
    assert not stop()
    stop.renew()
    none.renew()
    assert not none()
    now = 120.0
    assert not stop()
    now = 120.1
    assert (stop(), none()) == (True, True)


# -- snapshots


class Found:
    """A finder with a snapshot up to offset 41; ``meanwhile`` runs during the fetch."""

    def __init__(self, meanwhile: Any = lambda: None, *, has: bool = True) -> None:
        self.meanwhile, self.has, self.fetched = meanwhile, has, 0

    def fetch(self, tp: TopicPartition, folder: Path, decoding: Any) -> Any:
        """Return the snapshot's files."""
        assert (tp, folder.is_dir(), decoding) == (A, True, "decoding")
        self.fetched += 1
        self.meanwhile()
        manifest = SimpleNamespace(next_offset=42, bytes=7, snapshot_id="s", keys=1)
        return (manifest, ["file"], True) if self.has else None


@pytest.mark.parametrize(
    "reason", [None, "none", "stopped before", "stopped", "filled", "broken", "cancelled"]
)
def test_a_snapshot_is_taken_into_a_database_that_is_empty_still(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str | None
) -> None:
    """Otherwise the partition is replayed, and the scratch folder is removed."""
    taken, database, stops = list[Any](), Database(), [reason == "stopped before"]

    def meanwhile() -> None:
        stops[0] |= reason == "stopped"
        database.is_empty = reason != "filled"

    def ingest(given: Any, paths: Any, *, move: bool) -> None:
        if reason == "broken":
            raise OSError("full")
        if reason == "cancelled":
            raise asyncio.CancelledError
        assert given is database
        taken.append((paths, move))

    monkeypatch.setattr(from_snapshots, "ingest", ingest)
    finder: Any = Found(meanwhile, has=reason != "none")
    settings = bring_up.replace(Job().settings, folder=tmp_path)
    times = iter([1000.5, 1234.0])
    monkeypatch.setattr(bring_up.time, "time", lambda: next(times))
    decoding: Any = "decoding"
    one = Cold(A, database, 4, 9, True, decoding)  # records before offset 5 are gone
    restored = from_snapshot(settings, finder, one, lambda: stops[0])
    assert taken == ([(["file"], True)] if reason is None else [])
    assert finder.fetched == (reason != "stopped before")
    if reason is None:
        assert restored == Restored(A, SNAPSHOT, 1000.5, 1234.0, -1, 41, 7)
    else:
        assert restored is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("is_stopped", "level"), [(True, "INFO"), (False, "WARNING")])
def test_a_download_that_a_rebalance_stops_is_no_warning(
    tmp_path: Path, caplog: Any, is_stopped: bool, level: str
) -> None:
    """The snapshot is sound, and the next owner restores from it."""
    caplog.set_level("INFO")
    stops = [False]

    def meanwhile() -> None:
        stops[0] = is_stopped
        raise DownloadStopped("the download ended")

    settings = bring_up.replace(Job().settings, folder=tmp_path)
    decoding: Any = "decoding"
    one = Cold(A, Database(), 4, 9, True, decoding)  # type: ignore[arg-type]
    finder: Any = Found(meanwhile)
    assert from_snapshot(settings, finder, one, lambda: stops[0]) is None
    [line] = caplog.records
    assert line.levelname == level
    assert line.getMessage() == "log-0 is replayed because its snapshot failed: the download ended"


def test_the_next_older_snapshot_is_tried_where_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any
) -> None:
    """The refused snapshot's files are removed before the next fetch."""
    finder = Finder.__new__(Finder)
    manifests = [SimpleNamespace(snapshot_id=name) for name in ("late", "damaged", "rows", "good")]

    def fetch(manifest: Any, own: Path) -> list[Path]:
        assert [path.name for path in tmp_path.iterdir()] == []
        own.mkdir()
        (own / "1.sst").touch()
        if manifest.snapshot_id == "damaged":
            raise OSError("checksum")
        return [own / "1.sst"]

    refusals = {"rows": "does not decode"}
    monkeypatch.setattr(
        from_snapshots,
        "refusal_of_rows",
        lambda _, manifest, paths, folder: refusals.get(manifest.snapshot_id),
    )
    verdicts = [(one, "too late" if one.snapshot_id == "late" else None) for one in manifests]
    finder._judges = {"log": SimpleNamespace(verdicts=lambda partition: iter(verdicts))}  # type: ignore[dict-item]
    finder._catalog = SimpleNamespace(fetch=fetch)  # type: ignore[assignment]
    found = finder.fetch(A, tmp_path)
    assert found is not None
    assert (found[0].snapshot_id, found[1], found[2]) == (
        "good",
        [tmp_path / "good" / "1.sst"],
        True,
    )
    assert [word in caplog.text for word in ("too late", "checksum", "does not decode")] == [
        True
    ] * 3


def test_files_of_the_storage_itself_are_not_ours_to_move(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A single file of the storage forbids moves; rows are checked with the table's decoding."""
    finder = Finder.__new__(Finder)
    asked: list[Any] = []
    manifest = SimpleNamespace(snapshot_id="one")
    own, other = tmp_path / "one" / "1.sst", tmp_path / "storage" / "2.sst"
    fetched = [[own, other], [own], []]
    monkeypatch.setattr(from_snapshots, "refusal_of_rows", lambda *given: asked.append(given))
    finder._judges = {  # type: ignore[assignment]
        "log": SimpleNamespace(
            verdicts=lambda partition: [(manifest, None)] if partition == 2 else []
        )
    }
    finder._catalog = SimpleNamespace(fetch=lambda manifest, own: fetched.pop(0))  # type: ignore[assignment]
    decoding: Any = "decoding"
    for paths, ours in (([own, other], False), ([own], True), ([], True)):
        assert finder.fetch(C, tmp_path, decoding) == (manifest, paths, ours)
        assert asked.pop() == (decoding, manifest, paths, tmp_path)
    assert finder.fetch(B, tmp_path) is None
    assert asked == []


@pytest.mark.parametrize("fails", [SnapshotError("damaged"), OSError("gone"), ValueError("a bug")])
def test_a_snapshot_that_cannot_be_fetched_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any, fails: Exception
) -> None:
    """The error may come before the folder exists; an unexpected error is raised."""

    def fetch(manifest: Any, own: Path) -> list[Path]:
        if manifest.snapshot_id == "late":
            raise fails
        return [own / "1.sst"]

    finder = Finder.__new__(Finder)
    finder._catalog = SimpleNamespace(fetch=fetch)  # type: ignore[assignment]
    verdicts = [(SimpleNamespace(snapshot_id=name), None) for name in ("late", "good")]
    finder._judges = {"log": SimpleNamespace(verdicts=lambda partition: verdicts)}  # type: ignore[dict-item]
    monkeypatch.setattr(from_snapshots, "refusal_of_rows", lambda *given: None)
    if isinstance(fails, ValueError):
        with pytest.raises(ValueError, match="a bug"):
            finder.fetch(A, tmp_path)
        return
    found = finder.fetch(A, tmp_path)
    assert found is not None
    assert found[0].snapshot_id == "good"
    assert f"log-0: snapshot late is refused: {fails}" in caplog.text


def test_a_stop_of_the_restore_stops_its_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance waits for the restore's threads."""
    monkeypatch.setattr(from_snapshots, "changelogs", lambda *given: None)
    monkeypatch.setattr(from_snapshots, "run_until_stopped", lambda work, stop: {})
    stop, progress = Stop(), Progress()
    settings = bring_up.replace(Job().settings, snapshots="memory://there", progress=progress)
    stopped = Finder(settings, [A], stop)._catalog.storage.stopped  # type: ignore[attr-defined]
    assert not stopped()
    stop.set()
    assert stopped()
    assert progress.blocks == 2, "a download is progress before its records are restored"


def test_snapshots_are_judged_against_each_changelog_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each topic is requested once; a stop meanwhile or missing settings raise an error."""
    asked, logs = list[Any](), {"log": "log 1", "other": "log 2"}
    answers: list[Any] = [logs, None]
    monkeypatch.setattr(bring_up.time, "time", lambda: 1234.5678)
    monkeypatch.setattr(from_snapshots, "open_storage", lambda where: ("storage", where))
    monkeypatch.setattr(from_snapshots, "Catalog", lambda storage: ("catalog", storage))
    monkeypatch.setattr(from_snapshots, "changelogs", lambda *given: asked.append(given) or "work")
    monkeypatch.setattr(
        from_snapshots, "run_until_stopped", lambda work, stop: asked.append(stop) or answers.pop(0)
    )
    monkeypatch.setattr(from_snapshots, "Judge", lambda *given: ("judge", *given))
    connection: Any = {"client_id": "w1"}
    settings = bring_up.replace(Job().settings, snapshots="there", connection=connection)
    stop, tps = Stop(), [TopicPartition("other", 3), A, B]
    catalog = ("catalog", ("storage", "there"))
    assert Finder(settings, tps, stop)._judges == {
        "log": ("judge", catalog, "log 1", 1_234_568),
        "other": ("judge", catalog, "log 2", 1_234_568),
    }
    assert asked == [(connection, ["log", "other"], tps), stop]
    answers.insert(0, {})
    assert Finder(settings, [], stop)._judges == {}
    with pytest.raises(SnapshotError, match="stopped"):
        Finder(settings, tps, stop)
    with pytest.raises(ValueError, match="no snapshots"):
        Finder(Job().settings, tps, stop)


def test_scratch_of_killed_processes_is_removed_after_a_day(tmp_path: Path) -> None:
    """Younger folders may be in use; other folders stay."""
    now = time.time()
    for name, age_s in (
        (f"{SCRATCH_PREFIX}old", SCRATCH_MAX_AGE_S + 60),
        (f"{SCRATCH_PREFIX}young", SCRATCH_MAX_AGE_S - 60),
        ("counts-0.db", 10 * SCRATCH_MAX_AGE_S),
    ):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (now - age_s, now - age_s))
    sweep_scratch(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{SCRATCH_PREFIX}young",
        "counts-0.db",
    ]


def test_scratch_of_a_day_stays_and_one_that_is_gone_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder may disappear during the sweep; the sweep continues with the next folder."""
    monkeypatch.setattr(bring_up.time, "time", lambda: 1_000_000.0)
    gone = tmp_path / f"{SCRATCH_PREFIX}1-gone"
    gone.symlink_to(tmp_path / "nowhere")
    for name, age_s in (("2-day", SCRATCH_MAX_AGE_S), ("3-older", SCRATCH_MAX_AGE_S + 1)):
        folder = tmp_path / f"{SCRATCH_PREFIX}{name}"
        folder.mkdir()
        (folder / "1.sst").touch()
        os.utime(folder, (1_000_000.0 - age_s,) * 2)
    sweep_scratch(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path != gone) == [
        f"{SCRATCH_PREFIX}2-day"
    ]
    sweep_scratch(tmp_path / "not there yet")


def test_scratch_lies_beside_tables_whose_folder_may_not_be_there_yet(tmp_path: Path) -> None:
    """Missing parent folders are created; two restores can use the folder at the same time."""
    settings = bring_up.replace(Job().settings, folder=tmp_path / "v1" / "tables")
    with (
        from_snapshots.scratch_folder(settings) as one,
        from_snapshots.scratch_folder(settings) as other,
    ):
        assert {Path(one).parent, Path(other).parent} == {settings.folder}
        assert Path(one).name.startswith(SCRATCH_PREFIX)
    assert list(settings.folder.iterdir()) == []


# -- whole restores


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("error", [OSError("no broker"), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("fails", [None, "snapshots", "replay"])
def test_a_restore_ends_with_what_it_has_whatever_fails(
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    fails: str | None,
    error: BaseException,
    stopped: bool,
) -> None:
    """Without snapshots it replays; without replay Faust's loop continues. A stop is no warning."""
    stop, replays, told = Stop(), list[Any](), list[Any]()
    if stopped:
        stop.set()

    def begin_snapshots(job: Any, pool: Any) -> None:
        if fails == "snapshots":
            raise error

    def run(what: Any, stop: Any) -> None:
        replays.append(what)
        if fails == "replay":
            raise error

    settings = Job().settings

    def replay(connection: Any, work: Any, *, isolation_level: str, stopped: Any, pace: Any) -> Any:
        assert (connection, stopped, pace) == (settings.connection, stop, settings.pace)
        return list(work.tps), isolation_level

    caplog.set_level("INFO")
    monkeypatch.setattr(bring_up._Job, "begin_snapshots", begin_snapshots)
    monkeypatch.setattr(bring_up, "replay", replay)
    monkeypatch.setattr(bring_up, "run_until_stopped", run)
    found = bring_up.bring_up(settings, [cold(A), cold(B)], stop, told.append)
    assert replays == [([A, B], "read_uncommitted")]
    assert list(found) == [one.tp for one in told] == [A, B]
    assert ("Could not read the snapshots; tables are replayed" in caplog.text) == (
        fails == "snapshots"
    )
    gave_up = [one for one in caplog.records if "Batched replay failed" in one.getMessage()]
    assert [one.levelname for one in gave_up] == (
        [] if fails != "replay" else ["INFO" if stopped else "WARNING"]
    )


def test_a_restore_runs_in_its_threads_to_the_committed_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four snapshots load in parallel; the replay ends at the committed end."""
    pools, begun = list[Any](), list[Any]()

    class Pool:
        def __init__(self, *given: Any) -> None:
            pools.append(given)

        def __enter__(self) -> str:
            return "pool"

        def __exit__(self, *_: object) -> None:
            pools.append("ended")

    def committed(settings: Any, partitions: Any, stop: Any) -> Any:
        return [bring_up.replace(one, highwater=one.highwater + 5) for one in partitions]

    def replay(connection: Any, work: Any, *, isolation_level: str, **_: Any) -> None:
        begun.extend([work.begin(), work.begin(), isolation_level])

    monkeypatch.setattr(bring_up, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(bring_up, "_with_committed_ends", committed)
    monkeypatch.setattr(bring_up, "replay", replay)
    monkeypatch.setattr(bring_up, "run_until_stopped", lambda work, stop: None)
    monkeypatch.setattr(bring_up._Job, "begin_snapshots", lambda job, pool: pools.append(pool))
    settings = bring_up.replace(Job().settings, isolation_level="read_committed")
    found = bring_up.bring_up(settings, [cold(A), cold(B, 3, 4)], Stop())
    assert begun == [(A, Extent(0, 15)), (B, Extent(4, 10)), "read_committed"]
    assert pools == [(4, "faust-assigner-restore"), "pool", "ended"]
    assert list(found) == [A, B]
