"""Writes changes to a file: each change once, and rows and offset in one write.

However the process ends, the file therefore holds the table as of the file's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import rocksdict

from faust_assigner.app.tables.changes import NO_RECORD, Change

if TYPE_CHECKING:
    from rocksdict import Rdict


class FlushMode(Enum):
    """How a worker's own changes reach a file, which depends on the changelog's other writers."""

    #: The changelog has no other writers: a change is written with its own offset.
    OWN = "own"
    #: There are other writers, and this worker reads the whole changelog: a change is written when
    #: the worker reads it back from the changelog, in order with the other writers' changes.
    READ_BACK = "read back"
    #: There are other writers, and other workers may read the changelog. As in Faust, a change is
    #: written without an offset, to the file of the processed record's partition.
    APART = "apart"


def offset_in(database: Rdict, offset_key: bytes) -> int:
    """Return the changelog offset stored in ``database``; NO_RECORD without one."""
    offset = database.get(offset_key)
    return NO_RECORD if offset is None else int(offset)


def write(
    database: Rdict, rows: Mapping[bytes, bytes | None], offset: tuple[bytes, int] | None
) -> None:
    """Write rows and offset in one batch."""
    batch = rocksdict.WriteBatch(raw_mode=True)
    for key, value in rows.items():
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    if offset is not None:
        batch.put(offset[0], str(offset[1]).encode())
    if rows or offset is not None:
        database.write(batch)


def land(database: Rdict, offset_key: bytes, before: int, changes: Iterable[Change]) -> None:
    """Write ``changes`` that a replay has not written yet; ``before`` is the file's offset."""
    rows, offset = dict[bytes, bytes | None](), before
    for change in changes:
        at = NO_RECORD if change.offset is None else change.offset
        if at == NO_RECORD or at > before:
            rows[change.key] = change.value
            offset = max(offset, at)
    write(database, rows, None if offset == before else (offset_key, offset))


def rows_beyond(
    batch: Iterable[Any], offset_of: Callable[[int], int]
) -> dict[int, tuple[dict[bytes, bytes | None], int]]:
    """Return partition -> the last values of the records in ``batch``, and the last offset.

    Records at or below the file's offset are left out. They occur because the owner of a partition
    of a global table also follows this partition, and its own changes have landed. ``offset_of``
    returns the offset of a partition's file.
    """
    found: dict[int, tuple[dict[bytes, bytes | None], int]] = {}
    for event in batch:
        message = event.message
        if message.offset > offset_of(message.partition):
            rows, end = found.get(message.partition, ({}, NO_RECORD))
            rows[message.key] = message.value
            found[message.partition] = rows, max(message.offset, end)
    return found
