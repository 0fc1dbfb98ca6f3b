"""The answers of ``/assignor/ledger``: pages of a ledger's newest lines, from files or memory.

A page is read backwards from the end of the folder's files, so that its cost does not depend on the
ledger's length. A cursor names a file by its inode number, which a rotation does not change.
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
from faust_assigner.wire.documents import whole_number
from faust_assigner.wire.worker_status import LedgerPage

#: Bytes of lines after which a page ends, and bytes read from files after which a page ends.
PAGE_BYTES, READ_BYTES = 1024 * 1024, 16 * 1024 * 1024
#: The maximum bytes of a line in a page: a longer line would exceed the limit of readers.
LINE_BYTES = 2 * 1024 * 1024
BLOCK_BYTES = 256 * 1024
#: Bytes of the newest lines that are kept in memory if there are no files.
TAIL_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class _File:
    path: Path
    number: int
    size: int
    modified: float


def page(folder: Path, group_id: str, cursor: str = "") -> LedgerPage:
    """Return a group's newest decisions, placements and recoveries, or rows before ``cursor``.

    Samples of partitions are left out. Blocks the thread and reads about ``READ_BYTES`` at most.
    With an unknown cursor, such as the cursor of a deleted file, the remaining files are read.
    """
    files = _newest_first(folder)
    number, _, offset = cursor.partition(":")
    if cursor:
        at = next((i for i, file in enumerate(files) if str(file.number) == number), None)
        files = files if at is None else files[at:]
    end = whole_number(offset) if files and str(files[0].number) == number else None
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
        """Return the page's lines, oldest first, as they were written."""
        return tuple(reversed(self._lines))

    @property
    def is_full(self) -> bool:
        """Whether the page has reached its limit."""
        return self._bytes >= PAGE_BYTES or self._read >= READ_BYTES

    def take(self, file: _File, end: int) -> int:
        """Read ``file`` from ``end`` backwards until the page is full; return the bytes left."""
        with contextlib.suppress(OSError), file.path.open("rb") as data:
            if os.fstat(data.fileno()).st_ino != file.number:
                return 0  # rotated since the listing: the path now names a different file
            # The last line may be half written, or the rest of a line that was too long.
            rest, is_cut = b"", end == file.size
            while end > 0:
                begin = max(0, end - BLOCK_BYTES)
                data.seek(begin)
                block = data.read(end - begin) + rest
                self._read += end - begin
                # Bytes before the first line break belong to the block before.
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
    """The newest lines of this process without samples, at most ``TAIL_BYTES``.

    Any thread may call the methods. A cursor is the number of a line, counted since the process
    started.
    """

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._dropped = self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, lines: Iterable[bytes]) -> None:
        """Add lines, given without line breaks; drop the oldest lines beyond ``TAIL_BYTES``."""
        with self._lock:
            for line in lines:
                if not line.startswith(SAMPLE) and len(line) <= LINE_BYTES:
                    self._lines.append(line)
                    self._bytes += len(line)
            while self._bytes > TAIL_BYTES:
                self._bytes -= len(self._lines.popleft())
                self._dropped += 1

    def page(self, group_id: str, cursor: str = "") -> LedgerPage:
        """Return the lines before ``cursor``; without a known cursor, the newest lines."""
        with self._lock:
            lines, first = list(self._lines), self._dropped
        number = whole_number(cursor)
        end = len(lines) if number is None else min(max(0, number - first), len(lines))
        begin = end
        size = 0
        while begin and size < PAGE_BYTES:
            begin -= 1
            size += len(lines[begin])
        return LedgerPage(
            app=group_id, lines=tuple(lines[begin:end]), cursor=str(first + begin) if begin else ""
        )
