"""A table with one writing job: it refuses rows of an earlier owner after a later owner has written.

``python -m examples.leased_job.sink export.db`` prints a line for each owner: its epoch, its name, the number
of its rows, and the times of the first and the last row.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

_TABLES = """
    CREATE TABLE IF NOT EXISTS fence (job TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS runs (job TEXT, epoch INTEGER, name TEXT, at REAL);
"""


class Sink:
    """Store rows in SQLite; the two statements work on any database with transactions."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30.0, isolation_level=None)
        self._db.executescript(_TABLES)

    def write(self, job: str, epoch: int, name: str, at: float) -> bool:
        """Write a row unless a later owner has written; return whether the row was written."""
        self._db.execute("BEGIN IMMEDIATE")
        taken = self._db.execute(
            "INSERT INTO fence VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET epoch = excluded.epoch "
            "WHERE fence.epoch <= excluded.epoch",
            (job, epoch),
        ).rowcount
        if taken:
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", (job, epoch, name, at))
        self._db.execute("COMMIT")
        return bool(taken)

    def rows(self) -> list[tuple[int, str, float]]:
        """Epoch, writer and time of each row, in the order of writing."""
        return self._db.execute("SELECT epoch, name, at FROM runs ORDER BY rowid").fetchall()

    def owners(self) -> Iterator[tuple[int, str, int, float, float]]:
        """Yield epoch, writer, number of rows, first and last time of each run of rows of one owner."""
        for (epoch, name), rows in itertools.groupby(self.rows(), key=lambda row: row[:2]):
            times = [at for _, _, at in rows]
            yield epoch, name, len(times), times[0], times[-1]

    def close(self) -> None:
        """Close the connection."""
        self._db.close()


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).time().isoformat("milliseconds")


if __name__ == "__main__":
    for epoch, name, count, first, last in Sink(Path(sys.argv[1])).owners():
        print(f"{epoch} {name} {count} rows {_clock(first)} .. {_clock(last)} UTC")
