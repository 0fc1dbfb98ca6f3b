"""The progress of a run on stderr: a line updated in place on a terminal, else one log line a minute."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from faust_assigner.pipeline.ledgers.refusals import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.spinner import Spinner

#: Seconds between two log lines if stderr is not a terminal.
EVERY_S = 60.0


@dataclass
class Progress:
    """The stage of a run and its figures so far; a figure that is not known yet is None."""

    command: str = ""
    stage: str = "starting"
    #: The accepted and refused lines; the reader of the lines counts them while it reads.
    lines: Refused | None = None
    days_touched: int | None = None
    days_merged: int | None = None
    days_kept: int | None = None
    #: The URL of Spark's web page.
    ui: str | None = None
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self.began = self.clock()

    def enter(self, stage: str) -> None:
        """Begin a stage."""
        self.stage = stage

    def follow(self, lines: Refused) -> None:
        """Show the counts of ``lines`` from now on."""
        self.lines = lines

    def text(self) -> str:
        """Return the progress line: command, seconds since the start, stage, figures."""
        parts = [f"{self.command} {self.clock() - self.began:.0f} s: {self.stage}"]
        if self.lines is not None:
            parts += [f"{self.lines.accepted:,} rows in", f"{self.lines.lines:,} refused"]
        if self.days_touched is not None:
            merged = "" if self.days_merged is None else f" ({self.days_merged:,} merged)"
            parts.append(f"{self.days_touched:,} days touched{merged}")
        if self.days_kept is not None:
            parts.append(f"{self.days_kept:,} days kept")
        if self.ui is not None:
            parts.append(f"Spark: {self.ui}")
        return ", ".join(parts)

    def __rich__(self) -> Spinner:
        """Return the progress line with a spinner, for a terminal."""
        from rich.spinner import Spinner
        from rich.text import Text

        return Spinner("dots", Text(self.text()))


def ui_of(spark: SparkSession) -> str | None:
    """Return the URL of the session's web page; None with Spark Connect or if the page is off."""
    try:
        found: str | None = spark.sparkContext.uiWebUrl
    except Exception:  # each version and server has its own error for a missing SparkContext
        return None
    return found


@contextlib.contextmanager
def showing_progress(progress: Progress, *, every_s: float = EVERY_S) -> Iterator[Progress]:
    """Show ``progress`` on stderr during the block: updated in place, or logged each ``every_s`` seconds."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        from rich.live import Live

        with Live(progress, console=console, transient=True, refresh_per_second=4):
            yield progress
        return
    ended = threading.Event()

    def log() -> None:
        while not ended.wait(every_s):
            print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {progress.text()}", file=sys.stderr)

    thread = threading.Thread(target=log, name="progress", daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join(timeout=5.0)
