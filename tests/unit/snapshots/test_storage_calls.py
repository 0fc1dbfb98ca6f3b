"""The calls of a storage with their paths, the limits of manifest fields, and leases."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from faust_assigner.snapshots import lease as lease_module
from faust_assigner.snapshots.lease import Lease, lease_paths, leased_until
from faust_assigner.snapshots.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    ManifestError,
    format_time_ms,
    parse_time_ms,
    refusal,
)
from faust_assigner.snapshots.storage import (
    DownloadStopped,
    Entry,
    FsspecStorage,
    LocalStorage,
    StorageError,
    _modified_ms,
    open_storage,
    replacing,
)
from tests.unit.snapshots.test_manifest import LAYERED, MANIFEST, NOW_MS
from tests.unit.snapshots.test_storage import behind

BIG = 1 << 63


# -- behind a URL


def test_every_call_behind_a_url_has_its_whole_path(tmp_path: Path) -> None:
    """Folders are created before files, and removed with their content."""
    storage, system = behind(cat_file=Mock(return_value=b"data"))
    assert storage.read("x/y/z") == b"data"
    storage.write("x/y/z", b"new")
    storage.upload(tmp_path / "from", "a/b")
    storage.download("a/b", tmp_path / "to")
    storage.delete("a/b")
    storage.delete_folder("a")
    assert storage.local_path("a/b") is None
    assert system.method_calls == [
        call.cat_file("bucket/root/x/y/z"),
        call.makedirs("bucket/root/x/y", exist_ok=True),
        call.pipe_file("bucket/root/x/y/z", b"new"),
        call.makedirs("bucket/root/a", exist_ok=True),
        call.put_file(str(tmp_path / "from"), "bucket/root/a/b"),
        call.get_file("bucket/root/a/b", str(tmp_path / "to")),
        call.rm_file("bucket/root/a/b"),
        call.rm("bucket/root/a", recursive=True),
    ]


def test_the_root_behind_a_url_is_a_folder_like_any_other() -> None:
    """The root is listed without a slash and without its own entry; names are the last parts."""
    listing = [
        {"name": "/bucket/root/", "type": "directory"},
        {"name": "/bucket/root/topic/", "type": "directory"},
        {"name": "bucket/root/root", "type": "file", "size": "7"},
    ]
    storage, system = behind(ls=Mock(return_value=listing))
    assert storage.list("") == [Entry("root", False, 7, None), Entry("topic", True, 0, None)]
    assert system.ls.call_args == call("bucket/root", detail=True)


@pytest.mark.parametrize("name", ["LastModified", "last_modified", "mtime", "updated", "created"])
def test_a_time_of_change_has_many_names(name: str) -> None:
    """The time is a number of seconds or a datetime; 0 is a time and a text is not."""
    moment = datetime.fromtimestamp(1.25, UTC)
    found = [_modified_ms({name: value}) for value in (moment, 1.25, 3, 0, "1.25", None)]
    assert found == [1250, 1250, 3000, 0, None, None]
    assert _modified_ms({"created": 9, name: 1}) == 1000
    assert _modified_ms({"size": 5}) is None


@pytest.mark.parametrize("error", [ImportError("no s3fs"), ValueError("no such scheme")])
def test_a_url_that_cannot_be_opened_is_named(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The error names a missing package too."""

    def url_to_fs(url: str) -> Any:
        raise error

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    with pytest.raises(StorageError) as found:
        open_storage("s3://bucket/x")
    assert str(found.value).startswith("s3://bucket/x: ")
    assert ("is not installed: no s3fs" in str(found.value)) == isinstance(error, ImportError)


def test_a_storage_keeps_its_url_and_its_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slash at the end of the root does not belong to a path."""
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url: ("system", "bucket/x//"))
    storage = open_storage("s3://bucket/x//")
    assert isinstance(storage, FsspecStorage)
    assert (storage.url, storage._fs, storage._path("y"), storage._path("")) == (
        "s3://bucket/x//",
        "system",
        "bucket/x/y",
        "bucket/x",
    )


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_download_stops_between_two_blocks(tmp_path: Path, blocks: int) -> None:
    """A download of many gigabytes would hold up a rebalance for 15 s, and the end of the process."""
    storage, data = open_storage(f"memory://{tmp_path.name}"), bytes(range(256)) * 50_000
    assert isinstance(storage, FsspecStorage)
    storage.write("a", data)
    answers = iter([*[False] * blocks, True])
    storage.stopped = lambda: next(answers)
    with pytest.raises(DownloadStopped, match="the download was stopped"):
        storage.download("a", tmp_path / "to")
    assert next(answers, None) is None
    storage.stopped = lambda: False
    storage.download("a", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == data


# -- on disk


def test_files_on_disk_are_replaced_whole(tmp_path: Path) -> None:
    """An upload is a copy; a failed upload leaves the former file and no draft."""
    storage, local = LocalStorage(tmp_path / "root"), tmp_path / "local"
    local.write_bytes(b"x" * 3_000_000)
    storage.upload(local, "a/b/c")
    assert storage.read("a/b/c") == local.read_bytes()
    storage.download("a/b/c", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == local.read_bytes()
    with pytest.raises(FileNotFoundError):
        storage.upload(tmp_path / "gone", "a/b/c")
    assert [entry.name for entry in storage.list("a/b")] == ["c"]
    assert storage.local_path("a/b/c") == tmp_path / "root" / "a" / "b" / "c"
    storage.delete("a/b/c")
    assert storage.list("a/b") == []
    storage.write("a/d/e", b"")
    storage.delete_folder("a")
    assert storage.list("") == []
    with pytest.raises(FileNotFoundError):
        storage.read("a/d/e")


def test_a_folder_s_name_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name may start at the home directory or the working directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert LocalStorage(Path("~/x")).root == LocalStorage(Path("x")).root == tmp_path / "x"
    assert LocalStorage(Path("x")).url == str(tmp_path / "x")


# -- limits of a manifest


def changed(manifest: Manifest, **fields: Any) -> Manifest:
    """Return the manifest read from a file with these fields."""
    return Manifest.from_json(json.dumps(json.loads(manifest.to_json()) | fields).encode())


@pytest.mark.parametrize(
    "name", ["partition", "next_offset", "keys", "bytes", "start_offset", "new_bytes"]
)
def test_numbers_have_63_bits(name: str) -> None:
    """Zero is valid; a boolean is not."""
    for value in (0, BIG - 1):
        assert getattr(changed(MANIFEST, **{name: value}), name) == value
    for bad in (-1, BIG, True, 1.0, "1"):
        with pytest.raises(ManifestError, match=name):
            changed(MANIFEST, **{name: bad})


def test_optional_fields_are_read_as_they_are() -> None:
    """Lists become tuples; an empty list differs from None."""
    found = changed(
        LAYERED,
        topic_id="id",
        start_offset=0,
        new_bytes=0,
        key_types=[],
        value_types=["int", "str"],
        layers=[1, 1, 1],
    )
    assert found == dataclasses.replace(
        LAYERED,
        topic_id="id",
        start_offset=0,
        new_bytes=0,
        key_types=(),
        value_types=("int", "str"),
        layers=(1, 1, 1),
    )
    assert found.by_layer([7, 8, 9]) == ((7,), (8,), (9,))
    for name in ("key_types", "value_types"):
        for bad in ("int", ["int", 1], {"int": 1}):
            with pytest.raises(ManifestError, match=name):
                changed(MANIFEST, **{name: bad})


def test_a_manifest_is_at_most_so_large() -> None:
    """The limit is exact to a byte, and the content is not parsed."""
    data = MANIFEST.to_json()
    padded = data + b" " * (MAX_MANIFEST_BYTES - len(data))
    assert Manifest.from_json(padded) == MANIFEST
    with pytest.raises(ManifestError, match=f"got {MAX_MANIFEST_BYTES + 1}"):
        Manifest.from_json(padded + b" ")


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("0.sst", True),
        ("A-b_c.9.sst", True),
        (".a.sst", False),
        ("-a.sst", False),
        ("a.sst.tmp", False),
        ("a.SST", False),
        ("a b.sst", False),
        ("a.sst\n", False),
        (f"{41:020d}/a.sst", True),
        (f"{41:019d}/a.sst", False),
        (f"{41:021d}/a.sst", False),
        (f"x{41:020d}/a.sst", False),
    ],
)
def test_a_file_s_name_stays_in_its_partition(name: str, is_good: bool) -> None:
    """The file is in the folder of this snapshot or another snapshot of the partition."""
    fields = {"files": [name], "layers": [1]}
    if is_good:
        assert changed(LAYERED, **fields).files == (name,)
    else:
        with pytest.raises(ManifestError, match="files"):
            changed(LAYERED, **fields)


def test_a_whole_snapshot_may_name_its_only_layer() -> None:
    """The number of files must match."""
    two = {"files": ["a.sst", "b.sst"]}
    assert changed(MANIFEST, **two, layers=[2]).layers == (2,)
    assert changed(MANIFEST, **two, layers=None).by_layer("ab") == (("a", "b"),)
    with pytest.raises(ManifestError, match="layers"):
        changed(MANIFEST, **two, layers=[1])


def test_times_are_exact_to_the_millisecond() -> None:
    """The rule holds before 1970 and with any offset from UTC."""
    for moment_ms in (0, 1, 999, 1_795_232_422_007, -1):
        assert parse_time_ms(format_time_ms(moment_ms)) == moment_ms
    assert format_time_ms(61_007) == "1970-01-01T00:01:01.007Z"
    for bad in ("1970-01-01T00:00:00", "yesterday", ""):
        with pytest.raises(ManifestError, match="created_at"):
            parse_time_ms(bad)


def test_each_reason_of_a_refusal_names_both_values() -> None:
    """The reasons are in this order; a snapshot from the future counts as young."""
    good: dict[str, Any] = {
        "topic": MANIFEST.topic,
        "partition": 3,
        "now_ms": NOW_MS - 5,
        "delete_retention_ms": 0,
        "log_start": 42,
    }
    assert refusal(MANIFEST, **good) is None
    other = {**good, "topic": "x", "log_start": 99}
    assert refusal(MANIFEST, **other) == "it is of app-orders-changelog-3, not x-3"
    late = {**good, "now_ms": NOW_MS + 90_400, "delete_retention_ms": 60_000, "log_start": 99}
    assert refusal(MANIFEST, **late) == (
        "it is 90 s old, more than the changelog's delete.retention.ms (60 s): the tail may lack "
        "tombstones"
    )
    assert refusal(MANIFEST, **{**good, "log_start": 43}) == (
        "it ends at offset 42, the changelog begins at 43: the records between are gone"
    )
    reverse = dataclasses.replace(MANIFEST, comparator="reverse")
    assert refusal(reverse, **late) == (
        "its keys are ordered by 'reverse', the store by 'leveldb.BytewiseComparator'"
    )


# -- leases


def test_the_latest_valid_lease_of_the_topic_counts(tmp_path: Path) -> None:
    """Damaged leases, other files and folders do not count; a lease is over at its end."""
    storage = LocalStorage(tmp_path)
    ends = {"run-a.lease": 5_000, "run-b.lease": 9_000, "run-c.lease": 1_000}
    for name, end_ms in ends.items():
        storage.write(f"t/{name}", json.dumps({"until": format_time_ms(end_ms)}).encode())
    for name, data in (
        ("run-d.lease", b"{"),
        ("run-e.lease", b'{"until": "later"}'),
        ("run-f.lease", b'{"end": "2099-01-01T00:00:00.000Z"}'),
        ("run-g.lease", b"[]"),
        ("run-h.txt", json.dumps({"until": format_time_ms(99_000)}).encode()),
        ("walk-i.lease", json.dumps({"until": format_time_ms(99_000)}).encode()),
        ("run-folder.lease/x", b""),
    ):
        storage.write(f"t/{name}", data)
    assert leased_until(storage, "t", 8_999) == format_time_ms(9_000)
    assert leased_until(storage, "t", 9_000) is None
    assert leased_until(storage, "u", 0) is None
    assert lease_paths(storage, "t") == [f"t/run-{name}.lease" for name in "abcdefg"]


def test_a_lease_is_written_with_its_end_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The length counts from the clock; with an unreachable storage the lease expires by itself."""
    storage = LocalStorage(tmp_path)
    with Lease(storage, "t", lambda: 1_000, lease_s=2.5, renew_s=30.0) as lease:
        (path,) = lease_paths(storage, "t")
        assert json.loads(storage.read(path)) == {"until": format_time_ms(3_500)}
        assert path == lease._path
        assert lease._thread.is_alive()
    assert (lease_paths(storage, "t"), lease._thread.is_alive()) == ([], False)

    def away(path: str) -> None:
        raise OSError("away")

    with Lease(storage, "t", lambda: 1_000) as lease:
        monkeypatch.setattr(storage, "delete", away)
    assert f"Could not delete the lease {lease._path}; it expires later: away" in caplog.text
    assert lease_module.LEASE_S == 10 * lease_module.RENEW_S


def test_two_writers_of_one_path_have_drafts_of_their_own(tmp_path: Path) -> None:
    """The file is the last writer's, whole, and no draft is left."""
    storage = LocalStorage(tmp_path)
    with replacing(tmp_path / "a/b") as first:
        first.write(b"a long first text")
        with replacing(tmp_path / "a/b") as second:
            second.write(b"short")
        assert storage.read("a/b") == b"short"
    assert storage.read("a/b") == b"a long first text"
    assert [entry.name for entry in storage.list("a")] == ["b"]
