"""A ledger's newest lines, page by page, of files or from memory: what ``/assignor/ledger`` answers.

A page is read from the end of the folder's files backwards, so that it costs what it shows however long the
ledger is. A cursor names a file by its number on the disk, which it keeps when it is rotated.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from faust_assigner.ledger import SAMPLE, group_marker
from faust_assigner.wire.worker_status import LedgerPage

#: A page ends after so many bytes of lines, or when so many bytes of files were read for it.
PAGE_BYTES, READ_BYTES = 1024 * 1024, 16 * 1024 * 1024
#: A longer line is left out: a page with it would pass what a reader takes.
LINE_BYTES = 2 * 1024 * 1024
BLOCK_BYTES = 256 * 1024
#: Where there are no files, the newest lines are kept in memory, so many bytes of them.
TAIL_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class _File:
    path: Path
    number: int
    size: int
    modified: float


def page(folder: Path, group_id: str, cursor: str = "") -> LedgerPage:
    """The newest decisions, placements and recoveries of a group, or those older than ``cursor``.

    The samples of partitions are left out. Blocks; cost: at most ``READ_BYTES`` are read. An unknown
    cursor, as of a file that is gone by now, goes on with the files that are left.
    """
    files = _newest_first(folder)
    number, _, offset = cursor.partition(":")
    if cursor:
        at = next((i for i, file in enumerate(files) if str(file.number) == number), None)
        files = files if at is None else files[at:]
    end = int(offset) if files and str(files[0].number) == number and offset.isdecimal() else None
    reader = _Reader(group_id)
    for file in files:
        if reader.is_full:
            return LedgerPage(
                app=group_id, lines=reader.lines(), cursor=f"{file.number}:{file.size}"
            )
        left = reader.take(file, file.size if end is None else min(end, file.size))
        end = None
        if left:
            return LedgerPage(app=group_id, lines=reader.lines(), cursor=f"{file.number}:{left}")
    return LedgerPage(app=group_id, lines=reader.lines())


def _newest_first(folder: Path) -> list[_File]:
    found = []
    for path in folder.glob("*.jsonl*"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            found.append(_File(path, stat.st_ino, stat.st_size, stat.st_mtime))
    return sorted(found, key=lambda file: (file.modified, file.number), reverse=True)


class _Reader:
    """Collects one page's lines, newest first."""

    def __init__(self, group_id: str) -> None:
        self._mark = group_marker(group_id)
        self._lines: list[bytes] = []
        self._bytes = self._read = 0

    def lines(self) -> tuple[bytes, ...]:
        """Oldest first, as they were written."""
        return tuple(reversed(self._lines))

    @property
    def is_full(self) -> bool:
        """Whether the page ends here."""
        return self._bytes >= PAGE_BYTES or self._read >= READ_BYTES

    def take(self, file: _File, end: int) -> int:
        """Read ``file`` from ``end`` backwards until the page is full; how much of it is left, in bytes."""
        with contextlib.suppress(OSError), file.path.open("rb") as data:
            if os.fstat(data.fileno()).st_ino != file.number:
                return 0  # it was rotated since: its bytes come under their own number
            # The last line may be half written, or what is left of one that was too long.
            rest, is_cut = b"", end == file.size
            while end > 0:
                begin = max(0, end - BLOCK_BYTES)
                data.seek(begin)
                block = data.read(end - begin) + rest
                self._read += end - begin
                # What stands before the first line break belongs to the block before.
                rest, *lines = block.split(b"\n") if begin else (b"", *block.split(b"\n"))
                if is_cut and lines:
                    lines.pop()
                    is_cut = False
                self._keep(lines)
                end = begin
                if len(rest) > LINE_BYTES:
                    rest, is_cut = b"", True
                if self.is_full and end:
                    return end + len(rest)
        return 0

    def _keep(self, lines: list[bytes]) -> None:
        for line in reversed(lines):
            if (
                line
                and not line.startswith(SAMPLE)
                and len(line) <= LINE_BYTES
                and self._mark in line
            ):
                self._lines.append(line)
                self._bytes += len(line)


class Tail:
    """The newest lines of this process without samples, at most ``TAIL_BYTES``; for any thread.

    A cursor is the number of a line since the start.
    """

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._dropped = self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, lines: Iterable[bytes]) -> None:
        """Add lines without their line breaks; the oldest ones go."""
        with self._lock:
            for line in lines:
                if not line.startswith(SAMPLE) and len(line) <= LINE_BYTES:
                    self._lines.append(line)
                    self._bytes += len(line)
            while self._bytes > TAIL_BYTES:
                self._bytes -= len(self._lines.popleft())
                self._dropped += 1

    def page(self, group_id: str, cursor: str = "") -> LedgerPage:
        """The newest lines, or those before ``cursor``; an unknown one asks for the newest."""
        with self._lock:
            lines, first = list(self._lines), self._dropped
        end = min(max(0, int(cursor) - first), len(lines)) if cursor.isdecimal() else len(lines)
        begin = end
        size = 0
        while begin and size < PAGE_BYTES:
            begin -= 1
            size += len(lines[begin])
        return LedgerPage(
            app=group_id,
            lines=tuple(lines[begin:end]),
            cursor=str(first + begin) if begin else "",
        )
