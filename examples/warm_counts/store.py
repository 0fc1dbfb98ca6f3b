"""A partition's counts in RocksDB, rebuilt from their changelog.

Each changelog record carries its source offset and its owner's epoch. A reader skips a record if a higher
epoch has written before it, or if its offset was already counted. So late writes of a former owner do not
count, and repeated records count once.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch

_OFFSET, _EPOCH, _READ = "\0offset", "\0epoch", "\0read"


class Counts:
    """A partition's database: word -> count, and the positions in source and changelog."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        options = Options()
        options.create_if_missing(True)
        self._db = Rdict(str(path), options)

    @property
    def next_offset(self) -> int:
        """The first source offset that is not counted yet."""
        return int(self._db.get(_OFFSET, 0))

    @property
    def read(self) -> int:
        """The next changelog offset to read."""
        return int(self._db.get(_READ, 0))

    @property
    def epoch(self) -> int:
        """The highest epoch that has written."""
        return int(self._db.get(_EPOCH, 0))

    def change(self, word: str, offset: int, epoch: int) -> bytes:
        """Encode the new count of ``word`` for the changelog; the database changes only in :meth:`take`."""
        return json.dumps(
            {"count": self.count(word) + 1, "offset": offset, "epoch": epoch}
        ).encode()

    def take(self, word: str, change: bytes, position: int) -> None:
        """Apply the changelog record at ``position``."""
        said = json.loads(change)
        rows: dict[str, Any] = {_READ: position + 1} if position == self.read else {}
        if said["epoch"] >= self.epoch and said["offset"] >= self.next_offset:
            rows |= {word: said["count"], _OFFSET: said["offset"] + 1, _EPOCH: said["epoch"]}
        self._write(rows)

    def count(self, word: str) -> int:
        """Return the count of ``word``."""
        return int(self._db.get(word, 0))

    def items(self) -> dict[str, int]:
        """Return all words with their counts."""
        return {word: count for word, count in self._db.items() if not word.startswith("\0")}

    def _write(self, rows: dict[str, Any]) -> None:
        batch = WriteBatch()
        for key, value in rows.items():
            batch.put(key, value)
        self._db.write(batch)

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def remove(self) -> None:
        """Close the database and delete its files."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)
