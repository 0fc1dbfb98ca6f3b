"""Which windows of a table are open, by partition: in stock's own heaps, which others may read.

Stock knows the windows that this process has changed, and no others. Here those of a table in memory come
from what is replayed, and those of a table in RocksDB from its rows, looked through once after the partition
has come: between two turns of the streams, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from mode import get_logger

from faust_assigner.app.tables.store import WriteBehindStore

logger = get_logger(__name__)

#: A row of a windowed table: what the app calls the key, and the window's begin and end.
Key = tuple[Any, tuple[float, float]]

#: Rows that are looked through between two turns of the streams.
ROWS = 500


class OpenWindows:
    """Of one table, of the partitions it has here."""

    def __init__(self, table: Any) -> None:
        self._table = table
        #: Partitions all of whose windows are known; of a table in memory all are.
        self._whole: set[int] = set()

    @property
    def _rows(self) -> WriteBehindStore | None:
        store = self._table.data
        return store if isinstance(store, WriteBehindStore) else None

    def add(self, key: Key, partition: int) -> None:
        """The row is there."""
        table, end = self._table, key[1][1]
        rows = table._partition_timestamp_keys
        if (partition, end) not in rows:  # else its end is in the heap, be it without a row
            heappush(table._partition_timestamps[partition], end)
        rows[partition, end].add(key)
        latest = table._partition_latest_timestamp
        latest[partition] = max(latest[partition], end)

    def discard(self, key: Key, partition: int) -> None:
        """The row is gone."""
        keys = self._table._partition_timestamp_keys.get((partition, key[1][1]))
        if keys is not None:
            keys.discard(key)
            if not keys:
                self.first(
                    partition
                )  # removes ends without rows; a copy never asks for the first window

    def forget(self, partition: int) -> None:
        """The partition goes, or others may have changed it."""
        table = self._table
        for end in table._partition_timestamps.pop(partition, ()):
            for key in table._partition_timestamp_keys.pop((partition, end), ()):
                if self._rows is None:
                    table.data.data.pop(key, None)
        table._partition_latest_timestamp.pop(partition, None)
        self._whole.discard(partition)

    def restored(self, partition: int) -> None:
        """What was replayed into files did not come by here; what was replayed into memory did."""
        if self._rows is not None:
            self.forget(partition)

    def applied(self, events: Iterable[Any]) -> None:
        """Changelog records were applied."""
        if self._rows is not None:
            return
        for event in events:
            key, partition = self._table._to_key(event.key), event.message.partition
            if is_window(key):
                (self.discard if event.message.value is None else self.add)(key, partition)

    def first(self, partition: int) -> float | None:
        """The end of the window that ends first."""
        table = self._table
        ends = table._partition_timestamps.get(partition)
        while ends:
            if table._partition_timestamp_keys.get((partition, ends[0])):
                return float(ends[0])
            table._partition_timestamp_keys.pop((partition, heappop(ends)), None)
        return None

    def some(self, partition: int, end: float, most: int) -> list[Key]:
        """Rows of windows that end then."""
        return list(islice(self._table._partition_timestamp_keys.get((partition, end), ()), most))

    # -- from rows

    async def look_through(self, partition: int, goes_on: Callable[[], bool]) -> bool:
        """Have all windows of ``partition`` known; returns whether they are, ``goes_on()`` all the while.

        Cost: some microseconds a row, of the processor that streams use, once for each restore.
        """
        store = self._rows
        if store is None or partition in self._whole:
            return True
        for raw in list(store.waiting_rows(partition)):
            self._note(raw, partition)
        database, place = store._db_for_partition(partition), None
        while True:
            # A cursor of its own for each piece: one that stays open locks the files when they are closed.
            found = list(islice(database.keys(from_key=place), ROWS))
            for raw in found:
                self._note(raw, partition)
            if len(found) < ROWS:
                break
            place = found[-1] + b"\0"
            await asyncio.sleep(0)
            if store._dbs.get(partition) is not database or not goes_on():
                return False
        self._whole.add(partition)
        return True

    def _note(self, raw: bytes, partition: int) -> None:
        store = self._rows
        if store is None or raw == store.offset_key:
            return
        try:
            key = self._table._to_key(store._decode_key(raw))
        except Exception as error:
            logger.debug("Table %s: a key that does not decode, %r", self._table.name, error)
            return
        if is_window(key):
            self.add(key, partition)

    def partitions(self) -> Iterator[int]:
        """Those with windows."""
        yield from list(self._table._partition_timestamps)


def is_window(key: Any) -> bool:
    """Whether it is the key of a window's row."""
    return (
        isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], tuple) and len(key[1]) == 2
    )
