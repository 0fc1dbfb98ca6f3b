"""While a snapshot run is alive, ``gc`` keeps its topic; the lease of a killed run expires."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.lease import Lease, lease_paths, leased_until
from faust_assigner.snapshots.manifest import MANIFEST_NAME, Manifest, format_time_ms
from faust_assigner.snapshots.retention import collect_garbage
from faust_assigner.snapshots.storage import LocalStorage, open_storage
from tests.support.waiting import PATIENCE_S

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
PART = "t/0/00000000000000000009/000000-a.sst"


def two_hours_old(storage: LocalStorage, *paths: str) -> None:
    """Write files of old partitions of a run."""
    for path in paths:
        storage.write(path, b"part")
        os.utime(storage.root / path, ((NOW_MS - 2 * HOUR_MS) / 1000,) * 2)


@pytest.mark.parametrize("url", ["folder", "memory://lease-{}"])
def test_a_lease_is_seen_until_its_run_is_over(url: str, tmp_path: Path) -> None:
    """The storage is a folder or an object store."""
    storage = open_storage(url.format(tmp_path.name) if "://" in url else tmp_path / url)
    with Lease(storage, "t", lambda: NOW_MS):
        assert leased_until(storage, "t", NOW_MS + 599_000) is not None
        assert leased_until(storage, "t", NOW_MS + 600_000) is None
        assert leased_until(storage, "u", NOW_MS) is None
    assert leased_until(storage, "t", NOW_MS) is None
    assert lease_paths(storage, "t") == []


def test_of_two_leases_the_later_one_counts(tmp_path: Path) -> None:
    """A killed run's lease has ended; the later run's lease has not."""
    storage = LocalStorage(tmp_path)
    with Lease(storage, "t", lambda: NOW_MS - HOUR_MS), Lease(storage, "t", lambda: NOW_MS):
        assert len(lease_paths(storage, "t")) == 2
        assert leased_until(storage, "t", NOW_MS) is not None


def test_a_lease_that_ends_while_the_leases_are_read_hides_no_other(tmp_path: Path) -> None:
    """Its run is over; damaged files are no leases either."""

    class Ending(LocalStorage):
        def read(self, path: str) -> bytes:
            if "over" in path:
                raise FileNotFoundError(path)
            return super().read(path)

    storage = Ending(tmp_path)
    for name in ("run-1over.lease", "run-9over.lease"):
        storage.write(f"t/{name}", b"")
    for name, data in (("a", b"{"), ("b", b"[]"), ("c", b'{"until": 5}'), ("d", b"{}")):
        storage.write(f"t/run-{name}.lease", data)
    assert leased_until(storage, "t", NOW_MS) is None
    with Lease(storage, "t", lambda: NOW_MS):
        assert leased_until(storage, "t", NOW_MS) == format_time_ms(NOW_MS + 600_000)


def test_a_renewal_under_way_leaves_no_lease_behind(tmp_path: Path) -> None:
    """The lease is removed after its last renewal."""
    writing, may_end = threading.Event(), threading.Event()

    class Slow(LocalStorage):
        writes = 0

        def write(self, path: str, data: bytes) -> None:
            self.writes += 1
            if self.writes > 1:
                writing.set()
                may_end.wait(PATIENCE_S)
            super().write(path, data)

    storage = Slow(tmp_path)
    with Lease(storage, "t", lambda: NOW_MS, renew_s=0.01) as lease:
        assert writing.wait(PATIENCE_S)
        lease._renew_s = PATIENCE_S  # also the longest wait for the renewal under way
        threading.Timer(0.1, may_end.set).start()
    lease._thread.join(PATIENCE_S)
    assert lease_paths(storage, "t") == []


def test_gc_leaves_the_parts_of_a_run_that_takes_longer_than_the_grace(tmp_path: Path) -> None:
    """Parts of another topic are removed; after the run's end its parts are unprotected."""
    storage = LocalStorage(tmp_path)
    other = PART.replace("t/", "u/", 1)
    two_hours_old(storage, PART, other)
    catalog = Catalog(storage)
    with Lease(storage, "t", lambda: NOW_MS):
        assert [each.path for each in collect_garbage(catalog, now_ms=NOW_MS)] == [
            other.rpartition("/")[0]
        ]
        assert (tmp_path / PART).exists()
    assert [each.path for each in collect_garbage(catalog, now_ms=NOW_MS)] == [
        PART.rpartition("/")[0]
    ]


def test_a_run_that_begins_while_gc_is_at_work_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run reuses a killed run's files: gc checks the lease again before a removal."""
    storage = LocalStorage(tmp_path)
    two_hours_old(storage, PART)
    lease, listed = Lease(storage, "t", lambda: NOW_MS), Catalog.folders

    def begin(catalog: Catalog, topic: str, partition: int) -> object:
        found = listed(catalog, topic, partition)
        lease._write()
        return found

    monkeypatch.setattr(Catalog, "folders", begin)
    assert collect_garbage(Catalog(storage), now_ms=NOW_MS) == []
    assert (tmp_path / PART).exists()


def test_a_run_that_begins_while_gc_is_at_work_keeps_what_no_manifest_names_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run writes a snapshot of the same offset into the existing folder."""
    storage = LocalStorage(tmp_path)
    folder = PART.rpartition("/")[0]
    manifest = Manifest(
        "t", 0, folder.rpartition("/")[2], 9, 1, 4, "ab" * 32, format_time_ms(NOW_MS), ("a.sst",)
    )
    storage.write(f"{folder}/{MANIFEST_NAME}", manifest.to_json())
    two_hours_old(storage, PART)
    lease, listed = Lease(storage, "t", lambda: NOW_MS), Catalog.folders

    def begin(catalog: Catalog, topic: str, partition: int) -> object:
        lease._write()
        return listed(catalog, topic, partition)

    monkeypatch.setattr(Catalog, "folders", begin)
    assert collect_garbage(Catalog(storage), now_ms=NOW_MS) == []
    assert (tmp_path / PART).exists()


def test_a_dry_run_removes_no_lease(tmp_path: Path) -> None:
    """Expired leases stay too."""
    storage = LocalStorage(tmp_path)
    Lease(storage, "t", lambda: NOW_MS)._write()
    collect_garbage(Catalog(storage), now_ms=NOW_MS + HOUR_MS, dry_run=True)
    assert len(lease_paths(storage, "t")) == 1


def test_an_upload_under_way_in_an_old_folder_stays(tmp_path: Path) -> None:
    """A fresh file protects an old folder even without a lease."""
    storage = LocalStorage(tmp_path)
    two_hours_old(storage, PART)
    fresh = PART.replace("-a", "-b")
    storage.write(fresh, b"part")
    os.utime(tmp_path / fresh, (NOW_MS / 1000,) * 2)
    assert collect_garbage(Catalog(storage), now_ms=NOW_MS) == []
    assert {path.name for path in (tmp_path / PART).parent.iterdir()} == {
        "000000-a.sst",
        "000000-b.sst",
    }


def test_the_lease_of_a_killed_run_ends_and_is_removed(tmp_path: Path) -> None:
    """The lease ends ten minutes after its last renewal; a damaged lease protects no file."""
    storage = LocalStorage(tmp_path)
    Lease(storage, "t", lambda: NOW_MS)._write()
    storage.write("t/run-0.lease", b"{")
    two_hours_old(storage, PART)
    catalog = Catalog(storage)
    assert collect_garbage(catalog, now_ms=NOW_MS + 599_000) == []
    assert len(collect_garbage(catalog, now_ms=NOW_MS + 601_000)) == 1
    assert lease_paths(storage, "t") == []


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_lease_that_cannot_be_removed_fails_no_run(
    tmp_path: Path, error: type[Exception]
) -> None:
    """The snapshot is published by then, and the lease expires."""

    class Storage(LocalStorage):
        def delete(self, path: str) -> None:
            raise error("away")

    storage = Storage(tmp_path)
    with Lease(storage, "t", lambda: NOW_MS):
        pass
    assert len(lease_paths(storage, "t")) == 1
    with pytest.raises(KeyError, match="the run's own error"), Lease(storage, "t", lambda: NOW_MS):
        raise KeyError("the run's own error")


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_run_renews_its_lease_even_after_a_failed_try(
    tmp_path: Path, error: type[Exception]
) -> None:
    """A short outage of the storage ends no lease, for any exception of its driver."""
    times, renewed = iter(range(NOW_MS, NOW_MS + 10**9, 60_000)), threading.Event()

    class Storage(LocalStorage):
        writes = 0

        def write(self, path: str, data: bytes) -> None:
            self.writes += 1
            if self.writes == 2:
                raise error("away")
            super().write(path, data)
            if self.writes == 3:
                renewed.set()

    storage = Storage(tmp_path)
    with Lease(storage, "t", lambda: next(times), renew_s=0.01):
        assert renewed.wait(PATIENCE_S)
        assert leased_until(storage, "t", NOW_MS + 600_000) is not None


def test_a_run_that_begins_while_gc_is_at_work_keeps_the_snapshot_it_builds_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older snapshot is beyond retention, and may be the only whole snapshot."""
    storage = LocalStorage(tmp_path)
    for offset in (8, 9):
        identity = f"{offset:020d}"
        manifest = Manifest(
            "t", 0, identity, offset, 1, 4, "ab" * 32, format_time_ms(NOW_MS + offset), ("a.sst",)
        )
        storage.write(f"t/0/{identity}/a.sst", b"part")
        storage.write(f"t/0/{identity}/{MANIFEST_NAME}", manifest.to_json())
    lease, listed = Lease(storage, "t", lambda: NOW_MS), Catalog.folders

    def begin(catalog: Catalog, topic: str, partition: int) -> object:
        found = listed(catalog, topic, partition)
        if len(found) == 2 and begins:
            lease._write()
        return found

    monkeypatch.setattr(Catalog, "folders", begin)
    begins = True
    assert collect_garbage(Catalog(storage), now_ms=NOW_MS, keep=1) == []
    begins = False
    storage.delete(lease._path)
    assert len(collect_garbage(Catalog(storage), now_ms=NOW_MS, keep=1)) == 1


def test_a_deeply_nested_file_is_no_lease(tmp_path: Path) -> None:
    """Nor is a folder or a pipe, which ``gc`` must not wait for."""
    storage = LocalStorage(tmp_path)
    storage.write("t/run-a.lease", b"[" * 200_000)
    os.mkfifo(tmp_path / "t" / "run-b.lease")
    assert leased_until(storage, "t", NOW_MS) is None
