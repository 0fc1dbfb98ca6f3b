"""The ledger's files: one per process, appended line by line, rotated, bounded, on a thread of its own.

Nothing here can fail or slow the caller: what does not fit the queue or the disk is dropped and counted,
and said once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mode import get_logger

from faust_assigner.app.ledger.rows import TableRow
from faust_assigner.ledger import encode
from faust_assigner.settings.table import LEDGER_BYTES, LEDGER_FILE_BYTES

logger = get_logger(__name__)

#: Decisions, recoveries and rounds of samples that may wait for the disk.
MOST_WAITING = 256
#: After so many lines the thread lets others have the interpreter: a decision may have a million.
LINES_A_TURN = 256
PAUSE_S = 0.002
#: A file that no process holds may be dropped to keep the bound once it was not written for so long: a worker
#: of an older version holds no lock, and writes at least its samples.
QUIET_S = 120.0

_ROTATED = re.compile(r"\.jsonl\.([0-9]+)$")

#: What the thread turns into lines, when it gets to it.
Work = Callable[[], Iterable[TableRow]]


@dataclass
class Counts:
    """What became of the rows: ``dropped`` counts rows that met a full disk, ``skipped`` work that met a
    full queue, ``failed`` work that raised."""

    written: int = 0
    dropped: int = 0
    skipped: int = 0
    failed: int = 0


class LedgerFiles:
    """Appends rows to ``folder/name.jsonl``; rotated files are ``name.jsonl.1``, ``.2``, ... oldest first.

    A rotated file keeps its number for good, so readers never see one renamed twice. When the ledger
    files of the folder pass ``total_bytes`` the oldest rotated ones go.
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
        self.folder = Path(folder)
        self.path = self.folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.jsonl"
        self.counts = Counts()
        self._file_bytes = min(file_bytes, total_bytes)
        self._total_bytes = total_bytes
        self._waiting: queue.Queue[Work | None] = queue.Queue(most_waiting)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._file: int | None = None
        self._size = 0
        self._said: set[str] = set()

    def put(self, work: Work) -> None:
        """Have the rows of ``work()`` written; returns at once, from any thread, and never raises."""
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            self.counts.skipped += 1
            self._say(
                "queue",
                "The ledger cannot keep up; what its queue cannot take is dropped and counted",
            )
            return
        self._ensure_thread()

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what waits, for at most ``timeout_s``, and let the thread end."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=timeout_s)
        self._thread.join(timeout_s)
        if self.counts.dropped or self.counts.skipped or self.counts.failed:
            logger.warning("The ledger in %s is not complete: %s", self.folder, self.counts)

    def drain(self) -> None:
        """Wait until everything put so far is written or counted."""
        self._waiting.join()

    def _ensure_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            work = self._waiting.get()
            try:
                if work is None:
                    self._close_file()
                    return
                self._write_rows(work)
            except Exception:
                self.counts.failed += 1
                if "failed" not in self._said:
                    self._said.add("failed")
                    logger.exception(
                        "A ledger entry could not be made; further ones are only counted"
                    )
            finally:
                self._waiting.task_done()

    def _write_rows(self, work: Work) -> None:
        lines: list[bytes] = []
        for table, row in work():
            lines.append(encode(table, row))
            if len(lines) >= LINES_A_TURN:
                self._append(lines)
                lines = []
                time.sleep(PAUSE_S)
        if lines:
            self._append(lines)

    def _append(self, lines: list[bytes]) -> None:
        """All of ``lines`` or none: a disk that fills up half-way leaves no half line behind."""
        data = b"".join(lines)
        try:
            if self._file is not None and self._size + len(data) > self._file_bytes and self._size:
                self._rotate()
            if self._file is None:
                self._open()
            self._write(data)
        except OSError as error:
            self.counts.dropped += len(lines)
            self._say(
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
        with contextlib.suppress(OSError):  # no locks here: others then go by the file's age
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._size = os.fstat(self._file).st_size
        self._prune()
        # A process of this name that was killed in a line must not take our first one with it.
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
        """Keep the folder's ledger files below the bound, less the file about to be written."""
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

    def _say(self, topic: str, message: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            logger.error(message)


def _is_abandoned(name: str) -> bool:
    """Whether no process holds the file's lock: the one that wrote it has ended."""
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
