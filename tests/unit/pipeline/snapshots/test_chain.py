"""Snapshots upon snapshots: the published files as read by fetch, verify, gc and stores."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.pipeline.snapshots.spans import Job, Span, plan_job, publish
from faust_assigner.pipeline.snapshots.writer import SpanWriter
from faust_assigner.snapshots.catalog import Catalog, SnapshotCorruptError, folder_of
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.manifest import MANIFEST_NAME, Manifest, SnapshotError
from faust_assigner.snapshots.retention import collect_garbage
from faust_assigner.snapshots.sst import OFFSET_KEY, ingest, read_items
from faust_assigner.snapshots.storage import LocalStorage, Storage, open_storage
from faust_assigner.snapshots.verification import verify

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
TOPIC = "app-orders-changelog"
Records = list[tuple[bytes, bytes | None]]


class Log:
    """A changelog with one partition, the model of its rows, and its snapshots."""

    def __init__(self, url: str, *, max_layers: int = 8) -> None:
        self.url, self.max_layers = url, max_layers
        self.catalog = Catalog(open_storage(url))
        self.rows: dict[bytes, bytes] = {}
        self.end, self.start, self.now_ms = 0, 0, NOW_MS
        self._unread: Records = []

    def write(self, records: Records) -> None:
        """Append records."""
        self._unread += records
        self.end += len(records)
        for key, value in records:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def job(self) -> Job:
        """Return the plan of ``snapshot --previous``."""
        log = Changelog(TOPIC, {0: Extent(self.start, self.end)}, 24 * HOUR_MS, "id")
        return plan_job(
            log,
            self.url,
            created_ms=self.now_ms,
            previous=True,
            codecs=("raw", "raw"),
            max_layers=self.max_layers,
        )

    def take(self) -> Manifest:
        """Take a snapshot upon the newest, some minutes later."""
        self.now_ms += HOUR_MS // 10
        job = self.job()
        [span] = job.spans
        with SpanWriter(job, span) as writer:
            if span.start < span.end:
                keys, values = zip(*self._unread[span.start - span.end :], strict=True)
                writer.add(keys, values, first_offset=span.start, last_offset=span.end - 1)
            part = writer.finish()
        [manifest] = publish(job, [part])
        return manifest

    def contents(self, manifest: Manifest, folder: Path) -> Mapping[bytes, bytes]:
        """Return the rows in the snapshot's fetched files."""
        return dict(read_items(self.catalog.fetch(manifest, folder / uuid.uuid4().hex)))


def filled(url: str, *, snapshots: int, max_layers: int = 8, keys: int = 400) -> Log:
    """Return a log of ``keys`` rows, and snapshots with a few changes between them."""
    log, noise = Log(url, max_layers=max_layers), random.Random(7)
    log.write([(b"%04d" % number, noise.randbytes(40)) for number in range(keys)])
    log.take()
    for _ in range(snapshots - 1):
        changed = noise.sample(range(keys), 4)
        log.write([(b"%04d" % number, noise.choice([None, b"new"])) for number in changed])
        log.take()
    return log


def problems(log: Log) -> list[str | None]:
    """Return verify's problems of the visible snapshots."""
    return [verdict.problem for verdict in verify(log.catalog) if verdict.manifest]


@pytest.mark.parametrize("where", ["folder", "memory://chain-{}"])
def test_each_snapshot_of_a_chain_has_the_rows_of_its_time(tmp_path: Path, where: str) -> None:
    """The rule holds on disk and in an object store, beyond the limit of layers."""
    url = where.format(uuid.uuid4().hex) if "://" in where else str(tmp_path / where)
    log, noise = Log(url, max_layers=2), random.Random(3)
    log.write([(b"%04d" % number, noise.randbytes(40)) for number in range(300)])
    taken = [(log.take(), dict(log.rows))]
    for _ in range(4):
        log.write([(b"%04d" % noise.randrange(310), noise.choice([None, b"x"])) for _ in range(3)])
        taken.append((log.take(), dict(log.rows)))
    for manifest, rows in taken:
        offset = str(manifest.next_offset - 1).encode()
        assert log.contents(manifest, tmp_path) == rows | {OFFSET_KEY: offset}
        assert manifest.keys == len(rows)
        assert Manifest.from_json(manifest.to_json()) == manifest
    assert [each.format_version for each, _ in taken] == [1, 2, 2, 2, 2]
    assert [len(each.layers or (1,)) for each, _ in taken] == [1, 2, 3, 2, 3]
    assert max(each.new_bytes or 0 for each, _ in taken[1:]) < taken[0][0].bytes / 5
    assert problems(log) == [None] * 5


def test_a_store_as_faust_opens_it_takes_all_layers_in_one_step(tmp_path: Path) -> None:
    """A deleted key is gone, a changed key has its last value, and the offset is the newest."""
    from faust.stores.rocksdb import RocksDBOptions

    log = filled(str(tmp_path / "s"), snapshots=4)
    [manifest, *_] = log.catalog.snapshots(TOPIC, 0)
    assert manifest.layers == (1, 1, 1, 1)
    store = RocksDBOptions(max_open_files=64).open(tmp_path / "table-0.db")
    try:
        ingest(store, log.catalog.fetch(manifest, tmp_path))
        assert dict(store.items()) == log.rows | {OFFSET_KEY: str(log.end - 1).encode()}
    finally:
        store.close()


def test_an_untouched_partition_names_the_files_of_the_snapshot_before(tmp_path: Path) -> None:
    """The layers are included, and no byte is written."""
    log = filled(str(tmp_path), snapshots=3)
    before = log.catalog.snapshots(TOPIC, 0)[0]
    after = log.take()
    assert (after.files, after.layers, after.new_bytes) == (before.files, before.layers, 0)
    assert after.created_ms > before.created_ms
    assert problems(log) == [None] * 3


def test_a_manifest_of_an_earlier_release_is_a_base(tmp_path: Path) -> None:
    """The manifest has neither layers nor new_bytes."""
    log = filled(str(tmp_path), snapshots=1)
    [path] = tmp_path.rglob(MANIFEST_NAME)
    fields = json.loads(path.read_bytes())
    assert fields.pop("layers") is None
    del fields["new_bytes"]
    path.write_text(json.dumps(fields))
    log.write([(b"0001", None)])
    manifest = log.take()
    assert manifest.layers == (1, 1)
    assert log.contents(manifest, tmp_path / "w").keys() == log.rows.keys() | {OFFSET_KEY}


def test_gc_keeps_the_files_that_a_kept_snapshot_lists(tmp_path: Path) -> None:
    """All other files are removed, and the next snapshot builds on the rest."""
    log = filled(str(tmp_path), snapshots=5, max_layers=2)
    newest = log.catalog.snapshots(TOPIC, 0)[0]
    removed = collect_garbage(log.catalog, now_ms=log.now_ms, keep=1)
    assert len(removed) == 4
    left = {str(path.relative_to(tmp_path / TOPIC / "0")) for path in tmp_path.rglob("*.sst")}
    assert left == set(newest.paths)
    assert problems(log) == [None]
    assert [verdict.problem for verdict in verify(log.catalog)] == [None]
    assert collect_garbage(log.catalog, now_ms=log.now_ms + 9 * HOUR_MS, keep=1) == []
    log.write([(b"0002", b"after")])
    assert log.contents(log.take(), tmp_path / "w")[b"0002"] == b"after"
    assert problems(log) == [None, None]


def test_the_size_of_a_removal_is_that_of_the_removed_files(tmp_path: Path) -> None:
    """A dry run reports the same sizes."""
    log = filled(str(tmp_path), snapshots=3)
    planned = collect_garbage(log.catalog, now_ms=log.now_ms, keep=1, dry_run=True)
    assert problems(log) == [None] * 3
    assert collect_garbage(log.catalog, now_ms=log.now_ms, keep=1) == planned
    assert [removal.size for removal in planned] == [0, 0]


class Killed(Exception):
    """A stand-in for a SIGKILL."""


def test_gc_that_ends_at_any_removal_leaves_visible_snapshots_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gc ends after each number of removals; the next run completes the removals."""
    filled(str(tmp_path / "all"), snapshots=6, max_layers=2)

    def left(folder: Path) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    steps = 0
    for allowed in itertools.count():
        folder = tmp_path / f"{allowed}"
        shutil.copytree(tmp_path / "all", folder)
        log = Log(str(folder))
        with monkeypatch.context() as patched:
            done = itertools.count()
            for name in ("delete", "delete_folder"):
                patched.setattr(
                    log.catalog.storage, name, _until(done, allowed, log.catalog.storage, name)
                )
            try:
                collect_garbage(log.catalog, now_ms=NOW_MS + HOUR_MS, keep=2)
                break
            except Killed:
                steps += 1
        visible = problems(log)
        assert set(visible) == {None}, f"after {allowed} removals"
        assert len(visible) >= 2
        # The time is long after the grace, by the files' clock.
        collect_garbage(log.catalog, now_ms=4 * NOW_MS, keep=2)
        shutil.rmtree(tmp_path / "calm", ignore_errors=True)
        shutil.copytree(tmp_path / "all", tmp_path / "calm")
        collect_garbage(Log(str(tmp_path / "calm")).catalog, now_ms=NOW_MS + HOUR_MS, keep=2)
        assert left(folder) == left(tmp_path / "calm")
    assert steps >= 6


def _until(done: Any, allowed: int, storage: Storage, name: str) -> Any:
    remove = getattr(storage, name)

    def removing(path: str) -> None:
        if next(done) >= allowed:
            raise Killed
        remove(path)

    return removing


def test_a_file_of_the_base_that_goes_meanwhile_stops_the_publication(tmp_path: Path) -> None:
    """The manifest would list a missing file."""
    log = filled(str(tmp_path), snapshots=1)
    log.write([(b"0001", b"x")])
    job = log.job()
    with SpanWriter(job, job.spans[0]) as writer:
        writer.add([b"0001"], [b"x"], first_offset=log.end - 1, last_offset=log.end - 1)
        part = writer.finish()
    [base] = log.catalog.snapshots(TOPIC, 0)
    (tmp_path / folder_of(base) / base.files[0]).unlink()
    with pytest.raises(SnapshotError, match="gone since they were uploaded"):
        publish(job, [part])
    assert len(list(tmp_path.rglob(MANIFEST_NAME))) == 1


def test_a_damaged_file_damages_each_snapshot_that_lists_it(tmp_path: Path) -> None:
    """Verify reports each of these snapshots, and a worker refuses each."""
    log = filled(str(tmp_path), snapshots=3)
    oldest = log.catalog.snapshots(TOPIC, 0)[-1]
    path = tmp_path / folder_of(oldest) / oldest.files[0]
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert [problem is not None and "sha256" in problem for problem in problems(log)] == [True] * 3
    for manifest in log.catalog.snapshots(TOPIC, 0):
        with pytest.raises(SnapshotCorruptError):
            log.catalog.fetch(manifest, tmp_path / "w")


def test_retention_that_removed_records_ends_the_chain(tmp_path: Path) -> None:
    """A windowed table's changelog is ``compact,delete``: rows of removed records are gone."""
    log = filled(str(tmp_path), snapshots=3)
    assert log.job().spans[0].base is not None
    log.write([(b"0001", b"late"), (b"new", b"1")])
    log.start = log.end - 2
    log.rows = {b"0001": b"late", b"new": b"1"}
    [span] = log.job().spans
    assert (span.base, span.start) == (None, log.start)
    manifest = log.take()
    assert manifest.format_version == 1
    assert log.contents(manifest, tmp_path / "w") == log.rows | {
        OFFSET_KEY: str(log.end - 1).encode()
    }


def test_gc_removes_nothing_beside_a_manifest_of_a_later_format(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The later manifest's files are unknown; a damaged manifest is still a left-over."""
    log = filled(str(tmp_path), snapshots=3)
    path = tmp_path / folder_of(log.catalog.snapshots(TOPIC, 0)[0]) / MANIFEST_NAME
    fields = json.loads(path.read_bytes())
    path.write_text(json.dumps(fields | {"format_version": 3}))
    assert collect_garbage(log.catalog, now_ms=4 * NOW_MS, keep=1) == []
    assert "manifest: format_version 3" in caplog.text
    path.write_text(json.dumps(fields | {"format_version": 0}))
    assert len(collect_garbage(log.catalog, now_ms=4 * NOW_MS, keep=1)) == 2


def test_the_bound_of_layers_is_the_jobs(tmp_path: Path) -> None:
    """With 0 there are no layers, and the changed ranges are rewritten each time."""
    log = filled(str(tmp_path), snapshots=2, max_layers=0)
    newest = log.catalog.snapshots(TOPIC, 0)[0]
    assert len(newest.layers or (1,)) == 1
    job = Job("t", str(tmp_path), (Span(0, 0, 1),), 1, max_layers=5)
    with SpanWriter(job, job.spans[0]) as writer:
        assert writer._compactor._max_layers == 5


def test_a_removed_snapshots_lease_is_honoured_between_manifest_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run after the manifest's removal may reuse the snapshot's files: the files stay."""
    from faust_assigner.snapshots.lease import Lease

    log = filled(str(tmp_path), snapshots=4, max_layers=1)
    lease = Lease(log.catalog.storage, TOPIC, lambda: log.now_ms)
    delete = LocalStorage.delete

    def deleted(storage: LocalStorage, path: str) -> None:
        delete(storage, path)
        if path.endswith(MANIFEST_NAME) and not lease._over.is_set():
            lease._over.set()
            lease._write()

    monkeypatch.setattr(LocalStorage, "delete", deleted)
    before = set(tmp_path.rglob("*.sst"))
    assert collect_garbage(log.catalog, now_ms=log.now_ms, keep=1) == []
    assert set(tmp_path.rglob("*.sst")) == before
