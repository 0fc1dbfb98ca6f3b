"""Cut ledger files into chunks, and read the lines of a chunk.

A chunk is a byte range of one file; a line belongs to the chunk that holds its first byte. The reader of
a chunk counts lines from the chunk's start and reports their number. The
line's number in the file is this number plus the line counts of all earlier chunks, so that tasks need
not wait for each other.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from faust_assigner.errors import FaustAssignerError
from faust_assigner.ledger import MAX_LINE_BYTES
from faust_assigner.pipeline.ledgers.files import file_system

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_PACKED = re.compile(r"\.(gz|bz2|xz)$")
CHUNK_BYTES = 32 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024
#: The maximum number of searches for a listed file, because its writer may rename the file during a search.
RENAMES = 3


class LedgerDamaged(FaustAssignerError, ValueError):
    """A packed file is damaged after byte ``position`` of its content, or a listed file was removed."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """Bytes [start, end) of the file ``name``."""

    name: str
    start: int
    end: int
    #: The listed file's inode, 0 if unknown; a rotated file is found by its inode under its new name.
    inode: int = field(default=0, compare=False)


def cut(
    name: str, start: int, end: int, chunk_bytes: int = CHUNK_BYTES, *, inode: int = 0
) -> list[Chunk]:
    """Cut bytes [start, end) of a file into chunks of at most ``chunk_bytes``; an empty file has no chunks.

    A packed file of any size is one chunk, since it can only be read from its start.

    >>> [(chunk.start, chunk.end) for chunk in cut("f", 5, 25, 10)]
    [(5, 15), (15, 25)]
    """
    if is_packed(name):
        return [Chunk(name, 0, end, inode)] if end else []
    edges = [*range(start, end, chunk_bytes), end]
    return [Chunk(name, low, high, inode) for low, high in itertools.pairwise(edges)]


def pack(chunks: Iterable[Chunk], tasks: int) -> list[tuple[Chunk, ...]]:
    """Distribute ``chunks``, largest first, over at most ``tasks`` loads of about equal bytes."""
    loads: list[list[Chunk]] = [[] for _ in range(max(1, tasks))]
    weight = [0] * len(loads)
    for chunk in sorted(chunks, key=lambda c: (c.start - c.end, c)):
        lightest = min(range(len(loads)), key=lambda i: (weight[i], i))
        loads[lightest].append(chunk)
        # Opening a file costs about as much as reading 4 KiB, so many tiny files are spread evenly, too.
        weight[lightest] += chunk.end - chunk.start + 4096
    return [tuple(sorted(load)) for load in loads if load]


def is_packed(name: str) -> bool:
    """Return whether the file is compressed.

    The size of such a file is in packed bytes, but positions in it are in unpacked bytes.
    """
    return bool(_PACKED.search(name))


def read_lines(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes without the newline) of each line that starts in ``chunk``.

    A packed file is read whole. A line longer than the ledger's limit is cut at the limit to bound memory;
    the parser then refuses the line. Lines end with ``\\n`` or at the end of the file.

    Raises LedgerDamaged for a damaged packed file, after its readable lines, and for a removed file.
    """
    fs, inside = file_system(chunk.name)
    if is_packed(chunk.name):
        yield from _read_packed(fs, inside)
        return
    with _open_listed(chunk) if chunk.inode else fs.open(inside, "rb") as stream:
        position = chunk.start
        if chunk.start > 0:
            # Unless the byte before the chunk is a newline, the first line belongs to the previous chunk.
            stream.seek(chunk.start - 1)
            position = chunk.start - 1 + _skip_line(stream)
            stream.seek(position)
        for line, length in _split(stream.read):
            if position >= chunk.end:
                return
            yield position, line
            position += length


def _open_listed(chunk: Chunk) -> IO[bytes]:
    """Open the listed file, found by its inode: its writer may have renamed the file and begun a new one.

    Raises LedgerDamaged if the file is gone.
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


def _read_packed(fs: AbstractFileSystem, inside: str) -> Iterator[tuple[int, bytes]]:
    position = 0
    try:
        with fs.open(inside, "rb", compression="infer") as stream:
            # read() would raise an error of the file in place of up to a block of its content.
            for line, length in _split(stream.read1):
                yield position, line
                position += length
    except FileNotFoundError:
        raise
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise LedgerDamaged(position, f"not read further: {error}") from error


def _skip_line(stream: IO[bytes]) -> int:
    """Read past the next newline (or to the end) and return the number of bytes."""
    skipped = 0
    while block := stream.read(BLOCK_BYTES):
        found = block.find(b"\n")
        if found >= 0:
            return skipped + found + 1
        skipped += len(block)
    return skipped


def _split(read: Callable[[int], bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield (line without newline, length with newline) until ``read`` is at the end; cut too long lines."""
    held: list[bytes] = []
    length = 0
    while block := read(BLOCK_BYTES):
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
    """Return the start (at least ``low``) of the unfinished line that ends at byte ``size``.

    Returns ``size`` if the last line is finished. Returns ``size`` for a packed file too: a changed packed
    file is read again from its start.
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
    """Return the first ``count`` bytes of a file."""
    fs, inside = file_system(name)
    with fs.open(inside, "rb") as stream:
        return bytes(stream.read(count))
