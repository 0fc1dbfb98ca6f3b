"""Find ledger files on any file system of fsspec."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fsspec

from faust_assigner.errors import FaustAssignerError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

LEDGER_NAME = re.compile(r"\.jsonl(\.[0-9]+)?(\.(gz|bz2|xz))?$")
#: Ledgers in an unsupported compression. Such a file is an error, because figures without its lines
#: would be incomplete.
_PACKED_OTHERWISE = re.compile(r"\.jsonl(\.[0-9]+)?\.(zst|zstd|lz4|lzo|snappy|sz|zip|7z|Z|br)$")


class LedgerPathError(FaustAssignerError, ValueError):
    """A requested ledger does not exist or cannot be read; the message names the path."""

    exit_code = 2


@dataclass(frozen=True, slots=True, order=True)
class LedgerFile:
    """A listed file; ``name`` is its absolute path, or the URL of a remote file; ``size`` is in bytes."""

    name: str
    size: int
    modified: str = ""
    #: Identifies a renamed local file; 0 on file systems without inodes (object stores).
    inode: int = field(default=0, compare=False)


def file_system(url: str) -> tuple[AbstractFileSystem, str]:
    """Return the fsspec file system of ``url`` and the path on it; ``s3a`` (Hadoop) is read as ``s3``."""
    return fsspec.core.url_to_fs(re.sub(r"^s3[an]://", "s3://", url))  # type: ignore[no-any-return]


def absolute(path: str) -> str:
    """Return ``path`` as each process of a job can use it: a URL unchanged, a local path made absolute."""
    return path if "://" in path else os.path.abspath(path)


def hadoop_url(url: str) -> str:
    """Return the URL in Hadoop's notation: ``s3a://`` instead of ``s3://``.

    >>> hadoop_url("s3://shop/history")
    's3a://shop/history'
    """
    return re.sub(r"^s3n?://", "s3a://", url)


def find_files(paths: Sequence[str]) -> list[LedgerFile]:
    """Return the ledger files of ``paths`` (files, folders, globs), each file once, sorted by name.

    A folder means all files ``*.jsonl`` and ``*.jsonl.N`` in it at any depth, plain or packed (``.gz``,
    ``.bz2``, ``.xz``). A glob means all files and folders that it matches.

    Raises:
        LedgerPathError: a path does not exist, a glob has no match, a compression is not supported, a file
            is a pipe or a device, or a name is not UTF-8, so that no table can contain it.
    """
    found: dict[str, LedgerFile] = {}
    for path in paths:
        fs, inside = file_system(path)
        for entry in _entries(fs, inside, path):
            file = _describe(fs, entry)
            if entry["type"] == "other" and not stat.S_ISLNK(entry.get("mode", 0)):
                raise LedgerPathError(f"{file.name}: a pipe or a device, whose read may never end")
            if _PACKED_OTHERWISE.search(file.name):
                raise LedgerPathError(f"{file.name}: only gz, bz2 and xz are unpacked here")
            if not _is_utf8(file.name):
                raise LedgerPathError(f"{file.name!a}: the name is not UTF-8; rename the file")
            found.setdefault(_identity(fs, file.name), file)
    return sorted(found.values())


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entries(fs: AbstractFileSystem, inside: str, path: str) -> Iterator[dict[str, Any]]:
    try:
        if fs.isdir(inside):
            yield from _folder(fs, inside)
        elif fs.exists(inside):
            yield fs.info(inside)
        else:
            matches = fs.glob(inside, detail=True) if any(c in inside for c in "*?[") else {}
            if not matches:
                raise LedgerPathError(f"no such ledger: {path}")
            for entry in matches.values():
                yield from _folder(fs, entry["name"]) if entry["type"] == "directory" else [entry]
    except (OSError, ImportError) as error:
        raise LedgerPathError(f"cannot read ledger {path}: {error}") from error


def _folder(fs: AbstractFileSystem, inside: str) -> Iterator[dict[str, Any]]:
    for entry in fs.find(inside, detail=True).values():
        if LEDGER_NAME.search(entry["name"]) or _PACKED_OTHERWISE.search(entry["name"]):
            yield entry


def _describe(fs: AbstractFileSystem, entry: dict[str, Any]) -> LedgerFile:
    changed = entry.get("mtime", entry.get("LastModified", entry.get("last_modified", "")))
    return LedgerFile(
        _full_path(fs, entry["name"]),
        int(entry["size"] or 0),
        str(changed),
        int(entry.get("ino", 0)),
    )


def is_local(fs: AbstractFileSystem) -> bool:
    """Return whether ``fs`` is the local file system."""
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def _full_path(fs: AbstractFileSystem, path: str) -> str:
    return os.path.abspath(path) if is_local(fs) else str(fs.unstrip_protocol(path))


def _identity(fs: AbstractFileSystem, name: str) -> str:
    """Return the identity of a file; a link and its target share it, so the file is read once."""
    return os.path.realpath(name) if is_local(fs) else name
