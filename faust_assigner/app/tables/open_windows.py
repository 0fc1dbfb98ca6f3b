"""The open windows of a table by partition, in heaps of their ends.

Faust knows only the windows that this process has changed. This module takes the windows of a table
in memory from the replayed records. It takes the windows of a table in RocksDB from its rows, which
are scanned once after the partition is assigned. The scan runs in short steps between the turns of
the streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

from mode import get_logger

from faust_assigner.app.tables.storage_errors import is_storage_error
from faust_assigner.app.tables.store import WriteBehindStore

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tables import CollectionT

logger = get_logger(__name__)

#: A row's key in a windowed table: the app's key, and the window's begin and end.
Key = tuple[object, tuple[float, float]]

#: The number of rows that are scanned between two turns of the streams.
ROWS = 500


class OpenWindows:
    """The open windows of one table, in its partitions on this worker."""

    def __init__(self, table: CollectionT) -> None:
        self._table = table
        #: Partition -> a heap of the ends of its windows; the rows of some ends may be deleted.
        self._ends: dict[int, list[float]] = {}
        #: Partition and end -> the rows of the windows with this end.
        self._keys: dict[tuple[int, float], set[Key]] = {}
        #: Partitions whose windows are all known; in a table in memory all partitions count as
        #: such.
        self._whole: set[int] = set()

    @property
    def _rows(self) -> WriteBehindStore | None:
        store = self._table.data
        return store if isinstance(store, WriteBehindStore) else None

    def add(self, key: Key, partition: int) -> None:
        """Note that the row with this key exists."""
        end = key[1][1]
        if (partition, end) not in self._keys:  # otherwise the heap already has this end
            heappush(self._ends.setdefault(partition, []), end)
        self._keys.setdefault((partition, end), set()).add(key)
        latest = self._table._partition_latest_timestamp
        latest[partition] = max(latest[partition], end)

    def discard(self, key: Key, partition: int) -> None:
        """Note that the row with this key is deleted."""
        keys = self._keys.get((partition, key[1][1]))
        if keys is not None:
            keys.discard(key)
            if not keys:
                # drop ends without rows: a standby never calls first() otherwise
                self.first(partition)

    def forget(self, partition: int) -> None:
        """Forget the partition: it is revoked, or other workers may have changed its windows."""
        for end in self._ends.pop(partition, ()):
            for key in self._keys.pop((partition, end), ()):
                if self._rows is None:
                    self._table.data.data.pop(key, None)
        self._whole.discard(partition)

    def restored(self, partition: int) -> None:
        """Forget a replayed partition in files; a replay into memory has noted its windows."""
        if self._rows is not None:
            self.forget(partition)

    def applied(self, events: Iterable[EventT[object]]) -> None:
        """Note the windows of changelog records applied to a table in memory."""
        if self._rows is not None:
            return
        for event in events:
            key, partition = self._table._to_key(event.key), event.message.partition
            if is_window(key):
                (self.discard if event.message.value is None else self.add)(key, partition)

    def first(self, partition: int) -> float | None:
        """Return the end of the window that ends first; None if no window is open."""
        ends = self._ends.get(partition)
        while ends:
            if self._keys.get((partition, ends[0])):
                return float(ends[0])
            self._keys.pop((partition, heappop(ends)), None)
        return None

    def some(self, partition: int, end: float, most: int) -> list[Key]:
        """Return at most ``most`` rows of windows that end at ``end``."""
        return list(islice(self._keys.get((partition, end), ()), most))

    # -- from rows

    async def look_through(self, partition: int, goes_on: Callable[[], bool]) -> bool:
        """Find all windows of ``partition``; return False if ``goes_on()`` becomes False before the
        end.

        Cost: some microseconds per row in the streams' thread, once for each restore.
        """
        store = self._rows
        if store is None or partition in self._whole:
            return True
        for raw in list(store.waiting_rows(partition)):
            self._note(raw, partition)
        database, place = store._db_for_partition(partition), None
        while True:
            # Use a new cursor for each piece: an open cursor keeps closed files locked.
            found = list(islice(database.keys(from_key=place), ROWS))
            for raw in found:
                self._note(raw, partition)
            if len(found) < ROWS:
                try:
                    store.check_end(database, found[-1] if found else place)
                except Exception as error:
                    if not is_storage_error(error):
                        raise
                    return False  # the store has reported it, and its rows are restored again
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
            key = self._table._to_key(store.key_of(raw))
        except Exception as error:
            logger.debug(
                "Table %s: could not decode a key, so its window is not tracked: %r",
                self._table.name,
                error,
            )
            return
        if is_window(key):
            self.add(key, partition)


def is_window(key: object) -> bool:
    """Whether ``key`` is the key of a window's row."""
    return (
        isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], tuple) and len(key[1]) == 2
    )
