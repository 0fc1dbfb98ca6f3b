"""The storage of snapshots: a local folder, or any URL that fsspec supports (``s3://bucket/prefix``).

A local folder needs no further package; every other URL needs ``fsspec`` and its driver (``s3fs``).
Paths are relative to the root and use ``/``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from faust_assigner.snapshots.manifest import MAX_MANIFEST_BYTES, SnapshotError

_CHUNK = 1 << 20


class DownloadStopped(Exception):
    """Raised by a download that was stopped."""


class StorageError(SnapshotError):
    """The URL's driver is not installed, or the storage does not answer."""


class NotAFileError(StorageError, ValueError):
    """A path names a folder, a pipe, a device or a loop of symbolic links."""


@dataclass(frozen=True)
class Entry:
    """A name in a folder. ``modified_ms`` is None if the storage does not report it."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int | None


class Storage(Protocol):
    """The storage operations of snapshots. Writes become visible completely or not at all."""

    url: str

    def list(self, folder: str) -> list[Entry]:
        """Return entries sorted by name; empty for a missing folder."""

    def read(self, path: str) -> bytes:
        """Return the content of a small file; raises FileNotFoundError, NotAFileError.

        Of a local file, at most ``MAX_MANIFEST_BYTES`` + 1 bytes.
        """

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, atomically."""

    def upload(self, local: Path, path: str) -> None:
        """Copy a local file to ``path``, atomically."""

    def download(self, path: str, local: Path) -> None:
        """Copy ``path`` to a local file."""

    def delete(self, path: str) -> None:
        """Remove a file, if it exists."""

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with its content, if it exists."""

    def local_path(self, path: str) -> Path | None:
        """Return the file's path on this machine, or None if it must be downloaded."""


def open_storage(url: str | os.PathLike[str]) -> Storage:
    """The storage behind a folder name, ``file://`` or any other URL."""
    text = os.fspath(url)
    if text.startswith("file://"):
        return LocalStorage(Path(text.removeprefix("file://")))
    if "://" in text:
        return FsspecStorage(text)
    return LocalStorage(Path(text))


class LocalStorage:
    """A storage in a local folder. Files are written beside their final path, synced, then renamed."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.url = str(self.root)

    def list(self, folder: str) -> list[Entry]:
        """Return entries as :class:`Storage` does, with our own unfinished temporary files, for ``gc``."""
        entries = []
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self.root / folder) as found,
        ):
            for item in found:
                try:
                    status = item.stat()
                except OSError as error:
                    # A file that is removed during the listing, or a link that leads to itself,
                    # must not hide the other files.
                    if error.errno not in (errno.ENOENT, errno.ELOOP):
                        raise
                    continue
                modified_ms = round(status.st_mtime * 1000)
                entries.append(Entry(item.name, item.is_dir(), status.st_size, modified_ms))
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str) -> bytes:
        """See :class:`Storage`. A pipe without a writer would block a usual open."""
        try:
            handle = os.open(self.root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise NotAFileError(f"{path} is not a file: {error.strerror}") from None
            raise
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise NotAFileError(f"{path} is not a file")
            with open(handle, "rb", closefd=False) as file:
                return file.read(MAX_MANIFEST_BYTES + 1)
        finally:
            os.close(handle)

    def write(self, path: str, data: bytes) -> None:
        """See :class:`Storage`."""
        with replacing(self.root / path) as out:
            out.write(data)

    def upload(self, local: Path, path: str) -> None:
        """See :class:`Storage`."""
        with replacing(self.root / path) as out, open(local, "rb") as source:
            shutil.copyfileobj(source, out, _CHUNK)

    def download(self, path: str, local: Path) -> None:
        """See :class:`Storage`."""
        shutil.copyfile(self.root / path, local)

    def delete(self, path: str) -> None:
        """See :class:`Storage`."""
        (self.root / path).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        """See :class:`Storage`."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.root / folder)

    def local_path(self, path: str) -> Path | None:
        """See :class:`Storage`."""
        return self.root / path


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Provide a new file beside ``target``; at the end the file is synced and takes its place.

    An error of a write, such as a full disk, names ``target``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(draft, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, target)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        draft.unlink(missing_ok=True)


class FsspecStorage:
    """A storage at any URL of fsspec. Object stores make an object visible when its upload is complete."""

    #: Returns whether to stop: checked after each block of a download, which may take minutes.
    stopped: Callable[[], bool] | None = None

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            from fsspec.core import url_to_fs

            filesystem, root = url_to_fs(url)
        except ImportError as error:
            raise StorageError(
                f"{url}: needs a package that is not installed: {error} "
                "(fsspec, and s3fs for s3:// or gcsfs for gs://)"
            ) from error
        except ValueError as error:
            raise StorageError(f"{url}: {error}") from error
        self._fs: Any = filesystem
        self._root = str(root).rstrip("/")

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def list(self, folder: str) -> list[Entry]:
        """See :class:`Storage`."""
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(self._path(folder), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        here = self._path(folder).strip("/")
        entries = [
            Entry(
                str(info["name"]).rstrip("/").rsplit("/", 1)[-1],
                info["type"] == "directory",
                int(info.get("size") or 0),
                _modified_ms(info),
            )
            for info in found
            if str(info["name"]).strip("/") != here  # object stores may list the folder itself
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, path: str) -> bytes:
        """See :class:`Storage`."""
        return cast(bytes, self._fs.cat_file(self._path(path)))

    def write(self, path: str, data: bytes) -> None:
        """See :class:`Storage`."""
        self._fs.makedirs(self._path(path).rsplit("/", 1)[0], exist_ok=True)
        self._fs.pipe_file(self._path(path), data)

    def upload(self, local: Path, path: str) -> None:
        """See :class:`Storage`."""
        self._fs.makedirs(self._path(path).rsplit("/", 1)[0], exist_ok=True)
        self._fs.put_file(str(local), self._path(path))

    def download(self, path: str, local: Path) -> None:
        """See :class:`Storage`. Raises DownloadStopped once ``stopped()`` returns True."""
        more = {} if self.stopped is None else {"callback": _stopping(self.stopped)}
        self._fs.get_file(self._path(path), str(local), **more)

    def delete(self, path: str) -> None:
        """See :class:`Storage`."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(path))

    def delete_folder(self, folder: str) -> None:
        """See :class:`Storage`."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path(folder), recursive=True)

    def local_path(self, path: str) -> Path | None:
        """See :class:`Storage`."""
        return None


def _modified_ms(info: dict[str, object]) -> int | None:
    """The time of the last change; fsspec's drivers differ in its name and type."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return round(value.timestamp() * 1000)
        if isinstance(value, int | float):
            return round(value * 1000)
    return None


def _stopping(stopped: Callable[[], bool]) -> object:
    """Return a callback of fsspec that ends a transfer once ``stopped()`` returns True."""
    from fsspec.callbacks import Callback

    class Stopping(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            if stopped():
                raise DownloadStopped("the download was stopped")

    return Stopping()
