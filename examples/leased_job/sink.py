"""A table that one job writes: it takes no row of an earlier owner once a later one has written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

_TABLES = """
    CREATE TABLE IF NOT EXISTS fence (job TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS runs (job TEXT, epoch INTEGER, name TEXT, at REAL);
"""


class Sink:
    """SQLite here; the two statements are the same on any database with transactions."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30.0, isolation_level=None)
        self._db.executescript(_TABLES)

    def write(self, job: str, epoch: int, name: str, at: float) -> bool:
        """Write a row, unless a later owner has written; whether it is written."""
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

    def close(self) -> None:
        """End the connection."""
        self._db.close()
