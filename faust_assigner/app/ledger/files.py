"""The ledger's files: one for each process, appended line by line, rotated, limited in size."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path

from faust_assigner.app.ledger.pages import page
from faust_assigner.app.ledger.writer import MOST_WAITING, LedgerWriter
from faust_assigner.settings.table import LEDGER_BYTES, LEDGER_FILE_BYTES
from faust_assigner.wire.worker_status import LedgerPage

#: Seconds without a write after which an unlocked file may be deleted to keep the limit. A worker
#: of an older version holds no lock, but writes at least its samples.
QUIET_S = 120.0

_ROTATED = re.compile(r"\.jsonl\.([0-9]+)$")


class LedgerFiles(LedgerWriter):
    """Appends rows to ``folder/name.jsonl``; rotates to ``name.jsonl.1``, ``.2``, ... oldest first.

    A rotated file keeps its number for good, so readers never see a file renamed twice. When the
    ledger files of the folder exceed ``total_bytes``, the oldest rotated files and the oldest files
    of ended processes are deleted.
    """

    def __init__(
        self,
        folder: str | Path,
        name: str,
        *,
        file_bytes: int = LEDGER_FILE_BYTES.default,
        total_bytes: int = LEDGER_BYTES.default,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        super().__init__(most_waiting=most_waiting)
        self.folder = Path(folder)
        self.path = self.folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.jsonl"
        self._file_bytes = min(file_bytes, total_bytes)
        self._total_bytes = total_bytes
        self._file: int | None = None
        self._size = 0

    @property
    def place(self) -> str:
        """The ledger's folder."""
        return str(self.folder)

    def page(self, group_id: str, cursor: str = "") -> LedgerPage:
        """Read a page of all files in the folder; see ``pages.page``. Blocks."""
        return page(self.folder, group_id, cursor)

    def _append(self, lines: list[bytes]) -> None:
        """Write all of ``lines`` or none: a disk that fills up leaves no partial line."""
        data = b"".join(lines)
        try:
            if self._file is not None and self._size + len(data) > self._file_bytes and self._size:
                self._rotate()
            if self._file is None:
                self._open()
            self._write(data)
        except OSError as error:
            self.counts.dropped += len(lines)
            self._log_once(
                "disk",
                f"The ledger in {self.folder} cannot be written ({error}); rows are dropped "
                "and counted until it can",
            )
            self._close_file()
            return
        self.counts.written += len(lines)

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(OSError):  # if locks fail, other workers use the file's age
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._size = os.fstat(self._file).st_size
        self._prune()
        # A killed process of this name may have left a partial line: end the line first.
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._write(b"\n")

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += done

    def _release(self) -> None:
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._file = None

    def _rotate(self) -> None:
        self._close_file()
        numbers = [
            int(found.group(1))
            for path in self.folder.glob(f"{self.path.name}.*")
            if (found := _ROTATED.search(path.name))
        ]
        os.rename(self.path, f"{self.path}.{max(numbers, default=0) + 1}")

    def _prune(self) -> None:
        """Delete the oldest files until the remaining files and one full file fit into ``total_bytes``."""
        now = time.time()
        files = []
        for path in self.folder.glob("*.jsonl*"):
            with contextlib.suppress(OSError):
                found = path.stat()
                files.append((found.st_mtime, str(path), found.st_size))
        total = sum(size for _, _, size in files) + self._file_bytes
        for modified, name, size in sorted(files):
            if total <= self._total_bytes:
                return
            if name == str(self.path):
                continue
            if _ROTATED.search(name) or (
                name.endswith(".jsonl") and now - modified > QUIET_S and _is_abandoned(name)
            ):
                with contextlib.suppress(OSError):
                    os.unlink(name)
                    total -= size


def _is_abandoned(name: str) -> bool:
    """Return whether no process holds the file's lock, which means that its writer has ended."""
    try:
        file = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
