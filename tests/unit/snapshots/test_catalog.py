"""Publishing, finding, fetching, verifying and collecting snapshots, on a folder and on fsspec."""

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faust_assigner.snapshots import retention
from faust_assigner.snapshots.catalog import Catalog, Found, SnapshotCorruptError, folder_of
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.compaction import Compactor
from faust_assigner.snapshots.manifest import (
    MANIFEST_NAME,
    Manifest,
    SnapshotError,
    format_time_ms,
    snapshot_id,
)
from faust_assigner.snapshots.retention import collect_garbage
from faust_assigner.snapshots.sst import OFFSET_KEY, digest_files, read_items
from faust_assigner.snapshots.storage import Entry, StorageError, open_storage
from faust_assigner.snapshots.verification import verify

NOW_MS = 1_800_000_000_000
TOPIC = "app-orders-changelog"


@pytest.fixture(params=["folder", "file://", "memory://"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog on each kind of storage."""
    if request.param == "memory://":
        fsspec = pytest.importorskip("fsspec")
        root = f"memory://snapshots-{uuid.uuid4().hex}"
        yield Catalog(open_storage(root))
        fsspec.filesystem("memory").store.clear()
    else:
        prefix = "" if request.param == "folder" else "file://"
        yield Catalog(open_storage(f"{prefix}{tmp_path / 'snapshots'}"))


def publish(
    catalog: Catalog,
    tmp_path: Path,
    *,
    next_offset: int = 3,
    partition: int = 0,
    created_ms: int = NOW_MS,
    commit: bool = True,
    size_off: int = 0,
    topic_id: str | None = None,
    backwards: bool = False,
) -> Manifest | None:
    """Publish three keys in several files like the pipeline; None without a commit."""
    work = tmp_path / uuid.uuid4().hex
    with Compactor(work, max_file_bytes=10) as compactor:
        compactor.add([b"a", b"b", b"c"], [b"1", b"value-%d" % next_offset, b"3"])
        done = compactor.finish(next_offset)
    names = catalog.upload(TOPIC, partition, next_offset, done.files)
    if not commit:
        return None
    digest = digest_files(file.path for file in done.files[::-1])[0] if backwards else done.sha256
    return catalog.commit(
        Manifest(
            topic=TOPIC,
            partition=partition,
            snapshot_id=snapshot_id(next_offset),
            next_offset=next_offset,
            keys=done.keys,
            bytes=done.bytes + size_off,
            sha256=digest,
            created_at=format_time_ms(created_ms),
            files=names[::-1] if backwards else names,
            topic_id=topic_id,
        )
    )


def problems(catalog: Catalog) -> list[str | None]:
    """Return the problem of each folder found by verify."""
    return [verdict.problem for verdict in verify(catalog)]


def damage(catalog: Catalog, path: str, at: int = 10) -> None:
    """Flip a bit."""
    data = bytearray(catalog.storage.read(path))
    data[at] ^= 1
    catalog.storage.write(path, bytes(data))


def test_a_published_snapshot_is_found_and_fetched(catalog: Catalog, tmp_path: Path) -> None:
    """The case checks the layout, the manifest and the content."""
    manifest = publish(catalog, tmp_path)
    assert manifest is not None
    assert catalog.topics() == [TOPIC]
    assert catalog.partitions(TOPIC) == [0]
    assert catalog.snapshots(TOPIC, 0) == [manifest]
    assert len(manifest.files) > 1
    names = {entry.name for entry in catalog.storage.list(f"{TOPIC}/0/{manifest.snapshot_id}")}
    assert names == {MANIFEST_NAME, *manifest.files}
    paths = catalog.fetch(manifest, tmp_path / "fetched")
    assert dict(read_items(paths)) == {b"a": b"1", b"b": b"value-3", b"c": b"3", OFFSET_KEY: b"2"}
    assert problems(catalog) == [None]


def test_files_without_a_manifest_are_no_snapshot(catalog: Catalog, tmp_path: Path) -> None:
    """After a kill before the manifest, readers see no snapshot and verify reports the folder."""
    publish(catalog, tmp_path, commit=False)
    assert catalog.snapshots(TOPIC, 0) == []
    assert problems(catalog) == ["no manifest: never finished"]


def test_a_rerun_after_a_kill_completes_the_same_snapshot(catalog: Catalog, tmp_path: Path) -> None:
    """The rerun reuses the existing files, which are equal byte by byte."""
    publish(catalog, tmp_path, commit=False)
    before = {entry.name for entry in catalog.storage.list(f"{TOPIC}/0/{3:020d}")}
    manifest = publish(catalog, tmp_path)
    assert manifest is not None
    assert set(manifest.files) == before
    assert problems(catalog) == [None]


def test_the_newest_snapshot_comes_first_even_after_a_topic_was_recreated(
    catalog: Catalog, tmp_path: Path
) -> None:
    """The time decides, not the offset."""
    publish(catalog, tmp_path, next_offset=100, created_ms=NOW_MS)
    publish(catalog, tmp_path, next_offset=5, created_ms=NOW_MS + 1)
    assert [each.next_offset for each in catalog.snapshots(TOPIC, 0)] == [5, 100]
    publish(catalog, tmp_path, next_offset=7, created_ms=NOW_MS + 1)
    assert [each.next_offset for each in catalog.snapshots(TOPIC, 0)] == [7, 5, 100]


def test_a_damaged_file_is_refused_by_fetch_and_named_by_verify(
    catalog: Catalog, tmp_path: Path
) -> None:
    """The case flips a single bit."""
    manifest = publish(catalog, tmp_path)
    assert manifest is not None
    damage(catalog, f"{folder_of(manifest)}/{manifest.files[0]}")
    with pytest.raises(SnapshotCorruptError, match="sha256"):
        catalog.fetch(manifest, tmp_path / "fetched")
    assert "sha256" in str(problems(catalog)[0])


def test_a_missing_file_is_refused_by_fetch_and_named_by_verify(
    catalog: Catalog, tmp_path: Path
) -> None:
    """The folder was copied only in part."""
    manifest = publish(catalog, tmp_path)
    assert manifest is not None
    catalog.storage.delete(f"{folder_of(manifest)}/{manifest.files[-1]}")
    with pytest.raises(SnapshotCorruptError, match="missing"):
        catalog.fetch(manifest, tmp_path / "fetched")
    assert "missing" in str(problems(catalog)[0])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("sha256", "00" * 32, "sha256"),
        ("keys", 4, "4 in the manifest"),
        ("bytes", 1, "bytes"),
        ("files", None, "sha256"),
    ],
)
def test_verify_compares_every_promise(
    catalog: Catalog, tmp_path: Path, field: str, value: object, said: str
) -> None:
    """The manifest was edited, or its files are listed in another order."""
    manifest = publish(catalog, tmp_path)
    assert manifest is not None
    path = f"{folder_of(manifest)}/{MANIFEST_NAME}"
    fields = json.loads(catalog.storage.read(path))
    fields[field] = list(manifest.files[::-1]) if field == "files" else value
    catalog.storage.write(path, json.dumps(fields).encode())
    assert said in str(problems(catalog)[0])


def test_verify_compares_fausts_offset(catalog: Catalog, tmp_path: Path) -> None:
    """Files of one range are under the manifest of another range."""
    manifest = publish(catalog, tmp_path, next_offset=3)
    assert manifest is not None
    folder, target = folder_of(manifest), f"{TOPIC}/0/{9:020d}"
    for name in manifest.files:
        catalog.storage.write(f"{target}/{name}", catalog.storage.read(f"{folder}/{name}"))
    fields = json.loads(manifest.to_json()) | {"next_offset": 9, "snapshot_id": f"{9:020d}"}
    catalog.storage.write(f"{target}/{MANIFEST_NAME}", json.dumps(fields).encode())
    assert "offset key is b'2', expected b'8'" in str(problems(catalog)[1])


def test_a_manifest_in_a_foreign_folder_counts_for_nothing(
    catalog: Catalog, tmp_path: Path
) -> None:
    """The folder was copied to another partition."""
    manifest = publish(catalog, tmp_path)
    assert manifest is not None
    catalog.storage.write(f"{TOPIC}/7/{manifest.snapshot_id}/{MANIFEST_NAME}", manifest.to_json())
    assert catalog.snapshots(TOPIC, 7) == []


def test_a_snapshot_whose_files_have_other_bytes_by_now_is_not_published(
    catalog: Catalog, tmp_path: Path
) -> None:
    """Another run has overwritten the files since their upload."""
    with pytest.raises(SnapshotError, match="bytes of its files"):
        publish(catalog, tmp_path, size_off=1)
    assert catalog.snapshots(TOPIC, 0) == []


def test_files_that_are_not_in_the_order_of_their_keys_are_a_problem(
    catalog: Catalog, tmp_path: Path
) -> None:
    """Each file and the hash are right: only the keys across files show the problem."""
    manifest = publish(catalog, tmp_path, backwards=True)
    assert manifest is not None
    assert len(manifest.files) > 1
    assert "follows" in str(problems(catalog)[0])


def test_gc_keeps_the_newest_of_a_partition_though_it_is_of_an_earlier_topic(
    catalog: Catalog, tmp_path: Path
) -> None:
    """The other partition's snapshot shows the recreation; only older snapshots are removed."""
    for offset in (3, 4):
        publish(catalog, tmp_path, next_offset=offset, created_ms=NOW_MS + offset, topic_id="old")
    publish(catalog, tmp_path, partition=1, created_ms=NOW_MS + 9, topic_id="new")
    [removed] = collect_garbage(catalog, now_ms=NOW_MS + 10, keep=5)
    assert (removed.path, "recreated" in removed.reason) == (f"{TOPIC}/0/{3:020d}", True)
    assert [each.next_offset for each in catalog.snapshots(TOPIC, 0)] == [4]


def test_verify_asks_kafka_of_which_topic_the_snapshots_are(
    catalog: Catalog, tmp_path: Path
) -> None:
    """All snapshots are of the earlier topic, so they do not contradict each other."""
    publish(catalog, tmp_path, topic_id="old")
    log = Changelog(TOPIC, {0: Extent(0, 9)}, 1_000, "new")
    assert problems(catalog) == [None]
    [verdict] = verify(catalog, logs={TOPIC: log})
    assert "recreated" in str(verdict.problem)


def test_gc_keeps_the_newest(catalog: Catalog, tmp_path: Path) -> None:
    """The retention is by number."""
    for offset in (3, 4, 5):
        publish(catalog, tmp_path, next_offset=offset, created_ms=NOW_MS + offset)
    planned = collect_garbage(catalog, now_ms=NOW_MS, keep=2, dry_run=True)
    assert len(catalog.snapshots(TOPIC, 0)) == 3
    removed = collect_garbage(catalog, now_ms=NOW_MS, keep=2)
    assert planned == removed
    assert [removal.path for removal in removed] == [f"{TOPIC}/0/{3:020d}"]
    assert [each.next_offset for each in catalog.snapshots(TOPIC, 0)] == [5, 4]
    assert problems(catalog) == [None, None]
    assert collect_garbage(catalog, now_ms=NOW_MS, keep=2) == []


def test_gc_takes_the_manifest_before_the_files(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails in between leaves no visible snapshot without its files."""
    for offset in (3, 4):
        publish(catalog, tmp_path, next_offset=offset, created_ms=NOW_MS + offset)

    def fail(folder: str) -> None:
        raise OSError(folder)

    monkeypatch.setattr(catalog.storage, "delete_folder", fail)
    with pytest.raises(OSError, match=TOPIC):
        collect_garbage(catalog, now_ms=NOW_MS, keep=1)
    assert [each.next_offset for each in catalog.snapshots(TOPIC, 0)] == [4]


def test_gc_by_age_never_takes_the_newest(catalog: Catalog, tmp_path: Path) -> None:
    """The retention is by age."""
    for offset in (3, 4):
        publish(catalog, tmp_path, next_offset=offset, created_ms=NOW_MS + offset)
    collect_garbage(catalog, now_ms=NOW_MS + 10_000, keep=5, max_age_ms=1000)
    assert [each.next_offset for each in catalog.snapshots(TOPIC, 0)] == [4]


def test_gc_takes_leftovers_only_after_the_grace(catalog: Catalog, tmp_path: Path) -> None:
    """A snapshot in progress has no manifest yet."""
    import time

    publish(catalog, tmp_path, next_offset=9, commit=False)
    kept = publish(catalog, tmp_path, next_offset=5)
    assert kept is not None
    catalog.storage.write(f"{folder_of(kept)}/000000-lost.sst", b"of a twin that lost the race")
    now_ms = round(time.time() * 1000)
    assert collect_garbage(catalog, now_ms=now_ms, grace_ms=60_000) == []
    removed = collect_garbage(catalog, now_ms=now_ms + 61_000, grace_ms=60_000)
    assert [removal.path for removal in removed] == [
        f"{TOPIC}/0/{5:020d}/000000-lost.sst",
        f"{TOPIC}/0/{9:020d}",
    ]
    assert catalog.snapshots(TOPIC, 0) == [kept]
    assert problems(catalog) == [None]


def test_gc_refuses_to_keep_nothing(catalog: Catalog) -> None:
    """Deleting every snapshot is not retention."""
    with pytest.raises(ValueError, match="got 0"):
        collect_garbage(catalog, now_ms=NOW_MS, keep=0)


@pytest.mark.parametrize("topic", ["..", ".", "a/b", "", "a b", "x" * 250])
def test_a_topic_that_would_leave_its_folder_is_refused(catalog: Catalog, topic: str) -> None:
    """Names become folders."""
    with pytest.raises(SnapshotError):
        catalog.upload(topic, 0, 1, [])


def test_a_url_without_its_driver_says_what_to_install() -> None:
    """The error is not a traceback of the library."""
    with pytest.raises(StorageError, match="nosuch"):
        open_storage("nosuch://bucket/prefix")


def test_a_local_write_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill before the rename leaves the old content and no partial file."""
    storage = open_storage(tmp_path)
    storage.write("a/manifest.json", b"old")

    def killed(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        storage.write("a/manifest.json", b"new")
    assert storage.read("a/manifest.json") == b"old"
    assert [entry.name for entry in storage.list("a")] == ["manifest.json"]


def test_a_file_that_goes_while_a_folder_is_listed_hides_no_other(tmp_path: Path) -> None:
    """A draft may be renamed during the listing; a dangling link has no size either."""
    kept = [f"{number}" for number in range(20)]
    for name in kept:
        (tmp_path / name).touch()
        (tmp_path / f"gone-{name}").symlink_to(tmp_path / "nowhere")
    assert [entry.name for entry in open_storage(tmp_path).list(".")] == sorted(kept)


@pytest.fixture
def pair(tmp_path: Path) -> Catalog:
    """Two snapshots in a folder, taken a second apart."""
    found = Catalog(open_storage(str(tmp_path / "snapshots")))
    publish(found, tmp_path, next_offset=3, created_ms=NOW_MS - 1_000)
    publish(found, tmp_path, next_offset=4, created_ms=NOW_MS)
    return found


def visible(catalog: Catalog) -> int:
    """The number of visible snapshots."""
    return sum(found.manifest is not None for found in catalog.folders(TOPIC, 0))


@pytest.mark.parametrize(("max_age_ms", "left"), [(1_000, 2), (999, 1)])
def test_a_snapshot_of_exactly_the_greatest_age_is_kept(
    pair: Catalog, max_age_ms: int, left: int
) -> None:
    """An older snapshot is removed, even below the number to keep."""
    collect_garbage(pair, now_ms=NOW_MS, keep=2, max_age_ms=max_age_ms)
    assert visible(pair) == left


def test_a_dry_run_lists_the_same_removals_with_the_same_sizes(pair: Catalog) -> None:
    """The size counts the data files."""
    (oldest,) = [
        found.manifest
        for found in pair.folders(TOPIC, 0)
        if found.manifest is not None and found.manifest.next_offset == 3
    ]
    planned = collect_garbage(pair, now_ms=NOW_MS, keep=1, dry_run=True)
    assert visible(pair) == 2
    done = collect_garbage(pair, now_ms=NOW_MS, keep=1)
    assert [one.size for one in planned] == [oldest.bytes]
    assert (planned, visible(pair)) == (done, 1)


def test_beside_a_manifest_of_a_later_version_nothing_is_removed(
    pair: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later manifest may list files of older snapshots; one in the partition is enough."""
    folders = Catalog.folders

    def with_later(self: Catalog, topic: str, partition: int) -> list[Found]:
        first, *rest = folders(self, topic, partition)
        return [replace(first, may_be_valid=True), *rest]

    monkeypatch.setattr(Catalog, "folders", with_later)
    assert collect_garbage(pair, now_ms=NOW_MS, keep=1) == []
    assert visible(pair) == 2


def test_a_run_that_begins_during_the_collection_keeps_every_snapshot(
    pair: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's lease is checked again before a manifest is removed."""
    answers = iter((None,))
    monkeypatch.setattr(retention, "leased_until", lambda *_: next(answers, "later"))
    assert collect_garbage(pair, now_ms=NOW_MS, keep=1) == []
    assert visible(pair) == 2


@pytest.mark.parametrize(
    ("modified_ms", "is_settled"), [(NOW_MS - 1_000, False), (NOW_MS - 1_001, True), (None, False)]
)
def test_a_leftover_is_settled_after_the_whole_grace_period(
    pair: Catalog, modified_ms: int | None, is_settled: bool
) -> None:
    """A leftover without a modification time is never settled."""
    sweeper = retention._Sweeper(pair, NOW_MS, 1_000, dry_run=True)
    assert sweeper._is_settled(Entry("0.sst", False, 1, modified_ms)) is is_settled


def test_a_folder_that_was_renamed_is_no_snapshot(pair: Catalog, tmp_path: Path) -> None:
    """The manifest and the paths of its files name another folder."""
    newest = max((tmp_path / "snapshots" / TOPIC / "0").iterdir())
    newest.rename(newest.with_name(snapshot_id(9)))
    assert visible(pair) == 1
    (found,) = [one for one in pair.folders(TOPIC, 0) if one.snapshot_id == snapshot_id(9)]
    assert f"its manifest is of ('{TOPIC}', 0, '{newest.name}')" == found.problem


def test_a_folder_whose_name_is_no_number_is_no_partition(pair: Catalog, tmp_path: Path) -> None:
    """Operators may keep notes beside the snapshots."""
    for name in ("notes", "²", "-1", "1.5", "10", "9"):
        (tmp_path / "snapshots" / TOPIC / name).mkdir()
    (tmp_path / "snapshots" / TOPIC / "7").touch()
    assert pair.partitions(TOPIC) == [0, 9, 10]


def test_a_folder_in_place_of_a_file_is_a_missing_file(pair: Catalog, tmp_path: Path) -> None:
    """A tool that unpacks archives may leave such a folder."""
    manifest = pair.snapshots(TOPIC, 0)[0]
    path = tmp_path / "snapshots" / folder_of(manifest) / manifest.files[0]
    path.unlink()
    path.mkdir()
    with pytest.raises(SnapshotCorruptError, match=f"{path.name} is missing"):
        pair.fetch(manifest, tmp_path / "fetched")


def test_an_old_folder_within_a_snapshot_is_no_spare_file(pair: Catalog, tmp_path: Path) -> None:
    """Storages remove files by name; the notes of an operator stay."""
    newest = pair.snapshots(TOPIC, 0)[0]
    notes = tmp_path / "snapshots" / folder_of(newest) / "notes"
    notes.mkdir()
    os.utime(notes, (0, 0))
    assert collect_garbage(pair, now_ms=NOW_MS, keep=2) == []
    assert notes.is_dir()
