"""The ledger's queue and its thread; a subclass writes the lines to files or to a topic.

The ledger never fails or slows its caller: work beyond the capacity of the queue or the destination
is dropped, counted, and logged once.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mode import get_logger

from faust_assigner.app.ledger.rows import TableRow
from faust_assigner.ledger import encode
from faust_assigner.wire.worker_status import LedgerPage

logger = get_logger(__name__)

#: The maximum number of decisions, recoveries and rounds of samples that wait for the thread.
MOST_WAITING = 256
#: The number of lines after which the thread pauses for other threads, since a decision may have a
#: million lines, and the seconds of the pause.
LINES_A_TURN = 256
PAUSE_S = 0.002

#: Returns rows; called in the ledger's thread, which turns them into lines.
Work = Callable[[], Iterable[TableRow]]


@dataclass
class Counts:
    """The numbers of written rows and of lost rows and work.

    ``dropped`` counts rows refused by a full disk or a broker. ``skipped`` counts work refused by a
    full queue or a stopping worker. ``failed`` counts work that raised an exception.
    """

    written: int = 0
    dropped: int = 0
    skipped: int = 0
    failed: int = 0


class LedgerWriter(ABC):
    """Takes rows from any thread and writes them, in order, on the ledger's thread."""

    def __init__(self, *, most_waiting: int = MOST_WAITING) -> None:
        self.counts = Counts()
        self._waiting: queue.Queue[Work | None] = queue.Queue(most_waiting)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._logged: set[str] = set()

    @property
    @abstractmethod
    def place(self) -> str:
        """The destination of the rows, as shown in log lines."""

    @abstractmethod
    def page(self, group_id: str, cursor: str = "") -> LedgerPage:
        """Return a group's newest lines, or lines before ``cursor``; no samples. May read files."""

    @abstractmethod
    def _append(self, lines: list[bytes]) -> None:
        """Write ``lines`` or count them as dropped; called on the ledger's thread."""

    @abstractmethod
    def _release(self) -> None:
        """Close files or connections; called on the ledger's thread, which ends afterwards."""

    def put(self, work: Work) -> None:
        """Queue ``work`` for the ledger's thread; return at once. For any thread; never raises."""
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            self.counts.skipped += 1
            self._log_once(
                "queue", "The ledger's queue is full; further rows are dropped and counted"
            )
            return
        self._ensure_thread()

    def close(self, timeout_s: float = 2.0) -> None:
        """Write the waiting work, for at most ``timeout_s``, and end the thread."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=timeout_s)
        self._thread.join(timeout_s)
        if self.counts.dropped or self.counts.skipped or self.counts.failed:
            logger.warning("The ledger in %s is incomplete: %s", self.place, self.counts)

    def drain(self) -> None:
        """Wait until all queued work is written, or counted as dropped, skipped or failed."""
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
                    self._release()
                    return
                self._write_rows(work)
            # aiokafka's own tasks may raise a CancelledError in this call: the thread continues.
            except (Exception, asyncio.CancelledError):
                self.counts.failed += 1
                if "failed" not in self._logged:
                    self._logged.add("failed")
                    logger.exception(
                        "Could not create a ledger row; further failures are only counted"
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

    def _log_once(self, topic: str, message: str) -> None:
        if topic not in self._logged:
            self._logged.add(topic)
            logger.error(message)
