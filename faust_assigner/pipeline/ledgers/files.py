"""Ledger files anywhere fsspec reaches: finding them, cutting them into chunks, reading their lines.

A chunk is a byte range of one file; a line belongs to the chunk that holds its first byte. Every
reader of a chunk counts lines from the chunk's start, and says how many there were, so that line
numbers of whole files are a sum and no task waits for another.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import fsspec

from faust_assigner.errors import FaustAssignerError
from faust_assigner.ledger import MAX_LINE_BYTES

LEDGER_NAME = re.compile(r"\.jsonl(\.[0-9]+)?(\.(gz|bz2|xz))?$")
#: A ledger, and yet one that is not read: said, for its lines are missing from every figure.
_PACKED_OTHERWISE = re.compile(r"\.jsonl(\.[0-9]+)?\.(zst|zstd|lz4|lzo|snappy|sz|zip|7z|Z|br)$")
_PACKED = re.compile(r"\.(gz|bz2|xz)$")
CHUNK_BYTES = 32 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024
#: A file may be renamed between two looks for it; it does not happen often.
RENAMES = 3


class LedgerPathError(FaustAssignerError, ValueError):
    """A ledger was asked for that is not there; the message names the path."""

    exit_code = 2


class LedgerDamaged(FaustAssignerError, ValueError):
    """A packed file cannot be unpacked from byte ``position`` of its contents on."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


@dataclass(frozen=True, slots=True, order=True)
class LedgerFile:
    """A file as it was when listed. ``name`` is its absolute path, or its URL when not local."""

    name: str
    size: int
    modified: str = ""
    #: What a local file keeps when it is renamed; 0 where files are not renamed (object stores).
    inode: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """Bytes [start, end) of the file ``name``."""

    name: str
    start: int
    end: int
    #: Of the file as it was listed: where it is known, a file that rotated since is read under its new name.
    inode: int = field(default=0, compare=False)


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of ``url`` and the path on it; Hadoop's ``s3a`` is fsspec's ``s3``."""
    return fsspec.core.url_to_fs(re.sub(r"^s3[an]://", "s3://", url))  # type: ignore[no-any-return]


def absolute(path: str) -> str:
    """``path`` as every process of a job understands it: URLs as they are, local paths from the root."""
    return path if "://" in path else os.path.abspath(path)


def hadoop_url(url: str) -> str:
    """The URL as Hadoop's file systems know it: ``s3://`` is ``s3a://`` there.

    >>> hadoop_url("s3://shop/history")
    's3a://shop/history'
    """
    return re.sub(r"^s3n?://", "s3a://", url)


def find_files(paths: Sequence[str]) -> list[LedgerFile]:
    """The ledger files of ``paths`` (files, folders, globs), each once, by name.

    A folder gives its ``*.jsonl`` and ``*.jsonl.N``, plain or packed (``.gz``, ``.bz2``, ``.xz``), at any
    depth; a file or a glob gives what it names.

    Raises:
        LedgerPathError: a path that does not exist, a glob that matches nothing, a packing nobody here reads.
    """
    found: dict[str, LedgerFile] = {}
    for path in paths:
        fs, inside = file_system(path)
        for entry in _entries(fs, inside, path):
            file = _describe(fs, entry)
            if _PACKED_OTHERWISE.search(file.name):
                raise LedgerPathError(f"{file.name}: only gz, bz2 and xz are unpacked here")
            found.setdefault(_identity(fs, file.name), file)
    return sorted(found.values())


def _entries(fs: Any, inside: str, path: str) -> Iterator[dict[str, Any]]:
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


def _folder(fs: Any, inside: str) -> Iterator[dict[str, Any]]:
    for entry in fs.find(inside, detail=True).values():
        if LEDGER_NAME.search(entry["name"]) or _PACKED_OTHERWISE.search(entry["name"]):
            yield entry


def _describe(fs: Any, entry: dict[str, Any]) -> LedgerFile:
    changed = entry.get("mtime", entry.get("LastModified", entry.get("last_modified", "")))
    return LedgerFile(
        _name(fs, entry["name"]), int(entry["size"] or 0), str(changed), int(entry.get("ino", 0))
    )


def is_local(fs: Any) -> bool:
    """Whether an fsspec file system is this machine's own."""
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def _name(fs: Any, path: str) -> str:
    return os.path.abspath(path) if is_local(fs) else str(fs.unstrip_protocol(path))


def _identity(fs: Any, name: str) -> str:
    """What makes two names the same file: a link and its target are read once."""
    return os.path.realpath(name) if is_local(fs) else name


def cut(
    name: str, start: int, end: int, chunk_bytes: int = CHUNK_BYTES, *, inode: int = 0
) -> list[Chunk]:
    """Bytes [start, end) of a file as chunks of about ``chunk_bytes``; none when it is empty.

    A packed file is one chunk whatever its size: it can be read from its start alone.

    >>> [(chunk.start, chunk.end) for chunk in cut("f", 5, 25, 10)]
    [(5, 15), (15, 25)]
    """
    if is_packed(name):
        return [Chunk(name, 0, end, inode)] if end else []
    edges = [*range(start, end, chunk_bytes), end]
    return [Chunk(name, low, high, inode) for low, high in itertools.pairwise(edges)]


def pack(chunks: Iterable[Chunk], tasks: int) -> list[tuple[Chunk, ...]]:
    """``chunks`` as at most ``tasks`` loads of about equal bytes, largest chunk first."""
    loads: list[list[Chunk]] = [[] for _ in range(max(1, tasks))]
    weight = [0] * len(loads)
    for chunk in sorted(chunks, key=lambda c: (c.start - c.end, c)):
        lightest = min(range(len(loads)), key=lambda i: (weight[i], i))
        loads[lightest].append(chunk)
        # The constant stands for opening a file: ten thousand tiny ones still spread.
        weight[lightest] += chunk.end - chunk.start + 4096
    return [tuple(sorted(load)) for load in loads if load]


def is_packed(name: str) -> bool:
    """Whether the file is compressed; sizes are then those of the packed bytes, positions are not."""
    return bool(_PACKED.search(name))


def read_lines(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """(position, bytes without the newline) of each line that starts in ``chunk``; of a packed file, all.

    A line beyond the ledger's limit is cut there: it is refused for its length anyway, and memory
    stays bounded. Lines end with ``\\n``; the end of the file ends the last one. Raises LedgerDamaged where
    a packed file is torn, after the lines before that, and where a listed file was removed since.
    """
    fs, inside = file_system(chunk.name)
    if is_packed(chunk.name):
        yield from _read_packed(fs, inside)
        return
    with _open_listed(chunk) if chunk.inode else fs.open(inside, "rb") as stream:
        position = chunk.start
        if chunk.start > 0:
            # Unless the byte before the chunk ends a line, the first line belongs to our neighbour.
            stream.seek(chunk.start - 1)
            position = chunk.start - 1 + _skip_line(stream)
            stream.seek(position)
        for line, length in _split(stream):
            if position >= chunk.end:
                return
            yield position, line
            position += length


def _open_listed(chunk: Chunk) -> IO[bytes]:
    """The very file that was listed: its writer may have renamed it since, and begun another one.

    Raises LedgerDamaged where it is gone.
    """
    path = Path(chunk.name)
    for _ in range(RENAMES):
        for candidate in (path, *sorted(path.parent.glob(f"{glob.escape(path.name)}.*"))):
            with contextlib.suppress(FileNotFoundError):
                stream = candidate.open("rb")
                if os.fstat(stream.fileno()).st_ino == chunk.inode:
                    return stream
                stream.close()
    raise LedgerDamaged(chunk.start, "not read: the file was removed after it was listed")


def _read_packed(fs: Any, inside: str) -> Iterator[tuple[int, bytes]]:
    position = 0
    try:
        with fs.open(inside, "rb", compression="infer") as stream:
            for line, length in _split(stream):
                yield position, line
                position += length
    except FileNotFoundError:
        raise
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise LedgerDamaged(position, f"not read further: {error}") from error


def read_lines_if_there(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """:func:`read_lines` for files that may rotate away meanwhile: no file, no lines.

    Nothing is lost: the renamed file is a new one to whoever lists the folder next.
    """
    try:
        yield from read_lines(chunk)
    except FileNotFoundError:
        return


def _skip_line(stream: IO[bytes]) -> int:
    """How many bytes up to and with the next newline (or the end)."""
    skipped = 0
    while block := stream.read(BLOCK_BYTES):
        found = block.find(b"\n")
        if found >= 0:
            return skipped + found + 1
        skipped += len(block)
    return skipped


def _split(stream: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """(line without newline, its length with it) until the end of the stream; long lines are cut."""
    held: list[bytes] = []
    length = 0
    while block := stream.read(BLOCK_BYTES):
        *ended, rest = block.split(b"\n")
        for piece in ended:
            if held:
                _hold(held, length, piece)
                yield b"".join(held), length + len(piece) + 1
                held, length = [], 0
            else:
                yield piece, len(piece) + 1
        if rest:
            _hold(held, length, rest)
            length += len(rest)
    if length:
        yield b"".join(held), length


def _hold(held: list[bytes], length: int, piece: bytes) -> None:
    room = MAX_LINE_BYTES + 1 - length
    if room > 0:
        held.append(piece[:room])


def last_line_start(name: str, low: int, size: int) -> int:
    """Where the line that is still open at ``size`` starts, no lower than ``low``; ``size`` if none is.

    A packed file is read from its start whenever it changes: none is open in it.
    """
    if is_packed(name):
        return size
    fs, inside = file_system(name)
    with fs.open(inside, "rb") as stream:
        high = size
        while high > low:
            start = max(low, high - BLOCK_BYTES)
            stream.seek(start)
            found: int = stream.read(high - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            high = start
    return low


def read_head(name: str, count: int) -> bytes:
    """The first ``count`` bytes of a file."""
    fs, inside = file_system(name)
    with fs.open(inside, "rb") as stream:
        return bytes(stream.read(count))
