"""Replace the files of a damaged RocksDB by files with all pairs that can be read.

RocksDB cannot leave out a bad block: each compaction that reads the block fails, and then each write fails.
A broker that accepts the loss copies the readable pairs into new files. The damaged files stay in a
subfolder.

``FOLDER/salvage.draft``   new files that are not complete; the next start removes them
``FOLDER/salvage``         complete new files, while the damaged files move to ``FOLDER/damaged-N``
``FOLDER/salvage.ready``   complete new files, while they move to ``FOLDER``
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from rocksdict import Rdict, WriteBatch

from faust_assigner.broker.storage import write_audit
from faust_assigner.broker.storage.store import StoreFailed

logger = logging.getLogger(__name__)

DRAFT, WHOLE, READY = "salvage.draft", "salvage", "salvage.ready"
BATCH_BYTES = 2**20
#: A key of a partition has 29 bytes; the search for readable keys tries keys with more bytes.
KEY_BYTES, FURTHER_BYTES = 64, 16
NAMED = 20  # the most unreadable places in one message


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The number of copied pairs, and the keys around each unreadable place (None: no key follows)."""

    kept: int
    gaps: tuple[tuple[bytes, bytes | None], ...]

    def __str__(self) -> str:
        places = "; ".join(
            f"keys after {last!r} and before {'the end' if following is None else repr(following)}"
            for last, following in self.gaps[:NAMED]
        )
        if len(self.gaps) > NAMED:
            places += f"; and {len(self.gaps) - NAMED} more ranges"
        return f"{self.kept} keys were copied; the keys in these ranges could not be read: {places}"


def replace_damaged(
    damaged: Rdict,
    folder: Path,
    open_store: Callable[[Path], Rdict],
    progress: Callable[[], None],
) -> Rdict:
    """Replace the files in ``folder`` by files with all readable pairs of ``damaged``; open these files.

    ``progress`` is called repeatedly and may raise to stop. Raises StoreFailed.
    """
    draft = _draft_folder(folder)
    try:
        fresh = open_store(draft)
        try:
            found = _copy_readable(damaged, fresh, progress)
        finally:
            fresh.close()
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, StoreFailed) or type(error) is not Exception:
            raise
        raise StoreFailed(f"cannot copy the data that can be read: {error}") from error
    try:
        damaged.close()
    except Exception as error:  # a compaction has met the bad block before
        logger.info("the damaged store could not be flushed: %s", error)
    kept = _replace_files(folder)
    logger.error(
        "The store was damaged: %s. The broker starts without the keys in these ranges. The damaged "
        "files are in %s; remove the folder when you no longer need it",
        found,
        kept,
    )
    return open_store(folder)


def _copy_readable(damaged: Rdict, fresh: Rdict, progress: Callable[[], None]) -> Salvaged:
    """Copy each readable pair of ``damaged`` to ``fresh``; ``progress`` may raise to stop.

    No older value of a key replaces an unreadable value: RocksDB reads all levels for each key.
    """
    kept, gaps, last = 0, list[tuple[bytes, bytes | None]](), b""
    batch, size = WriteBatch(raw_mode=True), 0
    cursor = _cursor_at(damaged, last)
    try:
        while True:
            while cursor.valid():
                last, value = cursor.key(), cursor.value()
                batch.put(last, value)
                kept, size = kept + 1, size + len(last) + len(value)
                if size >= BATCH_BYTES:
                    fresh.write(batch)
                    batch, size = WriteBatch(raw_mode=True), 0
                    progress()
                cursor.next()
            if _is_end(cursor):
                break
            following = _first_readable(damaged, last)
            gaps.append((last, following))
            if following is None:
                break
            cursor = _cursor_at(damaged, following)
    finally:
        cursor = None  # in the traceback of an error it would keep RocksDB open
    fresh.write(batch)
    fresh.flush()
    progress()
    return Salvaged(kept, tuple(gaps))


def _first_readable(damaged: Rdict, last: bytes) -> bytes | None:
    """Return the first readable key behind the bad block that follows ``last``; None if no key follows.

    A seek to any key of a bad block fails, so a binary search finds the block's end. Growing steps bound
    the search first: a far key may be in a later bad block, and the keys between would be lost. Cost: about
    a thousand seeks.
    """
    width = max(len(last), KEY_BYTES) + FURTHER_BYTES
    low, step, most = int.from_bytes(last.ljust(width, b"\0")), 1, 256**width - 1

    def is_readable(number: int) -> bool:
        cursor = _cursor_at(damaged, number.to_bytes(width))
        return cursor.valid() or _is_end(cursor)

    while not is_readable(high := min(low + step, most)):
        if high == most:
            return None
        low, step = high, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        if is_readable(middle):
            high = middle
        else:
            low = middle
    cursor = _cursor_at(damaged, high.to_bytes(width))
    return bytes(cursor.key()) if cursor.valid() else None


def _cursor_at(damaged: Rdict, key: bytes) -> Any:
    """Return a new cursor at the first key from ``key`` on; a used cursor may stay at a bad block."""
    cursor = damaged.iter()
    cursor.seek(key)
    return cursor


def _is_end(cursor: Any) -> bool:
    """Return whether an invalid cursor is behind the last key, and not at a bad block."""
    try:
        cursor.status()
    except Exception:
        return False
    return True


def has_begun(folder: Path) -> bool:
    """Return whether a killed start has left a replacement unfinished."""
    return (folder / WHOLE).exists() or (folder / READY).exists()


def _draft_folder(folder: Path) -> Path:
    """Return the folder for the new files, empty."""
    shutil.rmtree(folder / DRAFT, ignore_errors=True)
    return folder / DRAFT


def _replace_files(folder: Path) -> Path:
    """Replace the damaged files by the complete draft; return the folder of the damaged files."""
    os.rename(folder / DRAFT, folder / WHOLE)
    return finish_replacing(folder) or folder


def finish_replacing(folder: Path) -> Path | None:
    """Take the remaining steps of a replacement, if one has begun: a killed start may have taken some."""
    damaged = None
    shutil.rmtree(folder / DRAFT, ignore_errors=True)
    if (folder / WHOLE).exists():
        damaged = next(
            path for number in count(1) if not (path := folder / f"damaged-{number}").exists()
        )
        damaged.mkdir()
        for path in [*folder.iterdir()]:
            if path.is_file() and path.name != write_audit.NAME:
                os.rename(path, damaged / path.name)
        os.rename(folder / WHOLE, folder / READY)
    if (folder / READY).exists():
        for path in [*(folder / READY).iterdir()]:
            os.rename(path, folder / path.name)
        (folder / READY).rmdir()
    return damaged
