"""Storage promises about folders, times and missing paths, on disk and behind fsspec."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from faust_assigner.snapshots.manifest import MAX_MANIFEST_BYTES
from faust_assigner.snapshots.storage import (
    Entry,
    FsspecStorage,
    LocalStorage,
    NotAFileError,
    Storage,
    open_storage,
)


def behind(**answers: object) -> tuple[FsspecStorage, Mock]:
    """Return storage whose file system gives these answers."""
    storage, system = FsspecStorage("memory://bucket/root"), Mock(**answers)
    storage._fs, storage._root = system, "bucket/root"
    return storage, system


def test_a_folder_on_disk_is_listed_by_name_with_sizes_and_times(tmp_path: Path) -> None:
    """Times are in milliseconds; a file or a missing path has no entries."""
    storage = LocalStorage(tmp_path)
    for name, size in (("b", 3), ("a", 5), ("sub/c", 1)):
        storage.write(f"x/{name}", b"." * size)
    for name in ("a", "b", "sub"):
        os.utime(tmp_path / "x" / name, (1000.5, 1000.5))
    found = storage.list("x")
    assert found[:2] == [Entry("a", False, 5, 1_000_500), Entry("b", False, 3, 1_000_500)]
    assert (found[2].name, found[2].is_folder) == ("sub", True)
    assert storage.list("x/a") == storage.list("nowhere") == []


def test_a_folder_behind_a_url_is_listed_alike() -> None:
    """Object stores list the folder itself and give no sizes or times of folders."""
    when = datetime(1970, 1, 1, 0, 16, 40, 500_000, tzinfo=UTC)
    storage, system = behind(
        ls=Mock(
            return_value=[
                {"name": "bucket/root/x/", "type": "directory", "size": 0},
                {"name": "bucket/root/x/sub/", "type": "directory", "size": None},
                {"name": "bucket/root/x/a", "type": "file", "size": 5, "LastModified": when},
                {"name": "bucket/root/x/b", "type": "file", "size": 3, "mtime": 1000.5},
            ]
        )
    )
    assert storage.list("x") == [
        Entry("a", False, 5, 1_000_500),
        Entry("b", False, 3, 1_000_500),
        Entry("sub", True, 0, None),
    ]
    assert [name for name, *_ in system.method_calls] == ["invalidate_cache", "ls"]


@pytest.mark.parametrize("error", [FileNotFoundError, NotADirectoryError])
def test_what_is_no_folder_behind_a_url_is_empty(error: type[Exception]) -> None:
    """The rule is the same as on disk."""
    assert behind(ls=Mock(side_effect=error))[0].list("x") == []


def test_what_is_missing_is_deleted_already(tmp_path: Path) -> None:
    """Two workers may clean up at the same time."""
    gone = behind(
        rm_file=Mock(side_effect=FileNotFoundError), rm=Mock(side_effect=FileNotFoundError)
    )[0]
    stores: tuple[Storage, ...] = (LocalStorage(tmp_path), gone)
    for storage in stores:
        storage.delete("x")
        storage.delete_folder("x")


def test_an_upload_makes_its_folder_first(tmp_path: Path) -> None:
    """A mounted share has folders, unlike an object store."""
    (tmp_path / "local").write_bytes(b"data")
    storage, system = behind()
    storage.upload(tmp_path / "local", "x/y")
    assert [name for name, *_ in system.method_calls] == ["makedirs", "put_file"]
    system.makedirs.assert_called_once_with("bucket/root/x", exist_ok=True)


def test_a_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut, a name has its whole content."""
    acts: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, real=real: (acts.append(name), real(*args))
        )
    LocalStorage(tmp_path).write("x", b"data")
    assert acts == ["fsync", "replace"]


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    """A name without a scheme is a folder too."""
    for url in (f"file://{tmp_path}", str(tmp_path), tmp_path):
        storage = open_storage(url)
        assert isinstance(storage, LocalStorage)
        assert storage.root == tmp_path


def test_a_failed_upload_leaves_no_draft_and_keeps_the_former_file(tmp_path: Path) -> None:
    """The local file is missing: the folder has the file of the earlier upload alone."""
    storage = LocalStorage(tmp_path / "root")
    storage.write("orders/3/file", b"former")
    with pytest.raises(FileNotFoundError):
        storage.upload(tmp_path / "missing", "orders/3/file")
    assert [entry.name for entry in storage.list("orders/3")] == ["file"]
    assert storage.read("orders/3/file") == b"former"


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_only_a_file_is_read(tmp_path: Path, kind: str) -> None:
    """A pipe would block the reader for ever; a link to itself must not hide the other files."""
    path = tmp_path / "x"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("x")
    (tmp_path / "y").write_bytes(b"data")
    storage = LocalStorage(tmp_path)
    with pytest.raises(NotAFileError, match="x is not a file"):
        storage.read("x")
    assert storage.read("y") == b"data"
    assert "y" in {entry.name for entry in storage.list("")}


def test_of_a_large_file_no_more_is_read_than_a_manifest_may_have(tmp_path: Path) -> None:
    """The manifest is then refused for its size."""
    with open(tmp_path / "x", "wb") as file:
        file.truncate(MAX_MANIFEST_BYTES * 4)
    assert len(LocalStorage(tmp_path).read("x")) == MAX_MANIFEST_BYTES + 1
