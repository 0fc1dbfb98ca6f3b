"""A partition's counts in RocksDB, and the changelog they are rebuilt from.

Each change goes to the changelog with the offset it came from and the epoch of the owner who made it. A
reader takes a change only if nobody with a higher epoch has written before it and its offset is new: what a
former owner still sent counts nowhere, and what is read twice counts once.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch

_OFFSET, _EPOCH, _READ = "\0offset", "\0epoch", "\0read"


class Counts:
    """One partition's database: word -> count, and how far it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        options = Options()
        options.create_if_missing(True)
        self._db = Rdict(str(path), options)

    @property
    def next_offset(self) -> int:
        """Of the source: the first record that is not counted yet."""
        return int(self._db.get(_OFFSET, 0))

    @property
    def read(self) -> int:
        """Of the changelog: where to go on reading."""
        return int(self._db.get(_READ, 0))

    @property
    def epoch(self) -> int:
        """The highest that has written."""
        return int(self._db.get(_EPOCH, 0))

    def change(self, word: str, offset: int, epoch: int) -> bytes:
        """What counting a record changes, for the changelog; here nothing is changed before it lies there."""
        return json.dumps(
            {"count": self.count(word) + 1, "offset": offset, "epoch": epoch}
        ).encode()

    def take(self, word: str, change: bytes, position: int) -> None:
        """Take one record of the changelog, which lies there at ``position``."""
        said = json.loads(change)
        rows: dict[str, Any] = {_READ: position + 1} if position == self.read else {}
        if said["epoch"] >= self.epoch and said["offset"] >= self.next_offset:
            rows |= {word: said["count"], _OFFSET: said["offset"] + 1, _EPOCH: said["epoch"]}
        self._write(rows)

    def count(self, word: str) -> int:
        """How often it came."""
        return int(self._db.get(word, 0))

    def items(self) -> dict[str, int]:
        """All words."""
        return {word: count for word, count in self._db.items() if not word.startswith("\0")}

    def _write(self, rows: dict[str, Any]) -> None:
        batch = WriteBatch()
        for key, value in rows.items():
            batch.put(key, value)
        self._db.write(batch)

    def close(self) -> None:
        """Let go of the files."""
        self._db.close()

    def remove(self) -> None:
        """And delete them."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)
