"""Flushes a store's changes to its files: after acknowledgements, unless flushing is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from faust_assigner.app.tables.landing import land

if TYPE_CHECKING:
    from faust_assigner.app.tables.changes import Transaction
    from faust_assigner.app.tables.store import WriteBehindStore


class Flushing:
    """Flushes the changes of one store."""

    def __init__(self, store: WriteBehindStore) -> None:
        self._store = store
        self._to_flush: set[int] = set()

    def soon(self, partition: int) -> None:
        """Flush after the current acknowledgements, since one answer acknowledges many records."""
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._all)
        self._to_flush.add(partition)

    def _all(self) -> None:
        partitions, self._to_flush = sorted(self._to_flush), set()
        for partition in partitions:
            self._store.flush(partition)

    def write(self, partition: int) -> None:
        """Write the changes that count, with their offset, unless flushing is paused."""
        store, overlay = self._store, self._store.overlays.get(partition)
        if overlay is not None and overlay.is_out_of_order:
            # Changes may have been read back before their acknowledgements came.
            overlay.read(store.file_offset(partition))
        if overlay is None or not overlay.lands:
            return
        changes = overlay.ready()
        if changes:
            before = store.file_offset(partition)
            beyond = overlay.beyond(before, changes)
            if beyond is not None and store.doubt(partition, beyond):
                return
            land(store._db_for_partition(partition), store.offset_key, before, changes)
            overlay.remove_written(changes)

    def resume(self, partition: int) -> None:
        """Flush changes from now on: the file has its whole changelog except our own changes."""
        if self._store.usage is not None:
            overlay = self._store.overlay_of(partition)
            overlay.lands = True
            overlay.note_restore_end()
            self._store.flush(partition)

    def hold(self) -> None:
        """Flush no changes until ``resume()``."""
        for overlay in self._store.overlays.values():
            overlay.lands = False

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        """Flush the acknowledged changes, then pause until ``resume()``; by default for all."""
        for partition in sorted(self._store.overlays) if partitions is None else partitions:
            if partition in self._store.overlays:
                self._store.flush(partition)
                self._store.overlays[partition].lands = False

    def drop(self, partition: int, share: Transaction | None = None) -> None:
        """Drop all changes that are not in the file, or only such changes of the transaction ``share``.

        Then flush the changes of other transactions that waited for the dropped changes.
        """
        overlay = self._store.overlays.get(partition)
        gone = None if overlay is None else overlay.drop(share)
        if overlay is None or not gone:
            return
        if self._store.table.data is not self._store:
            self._store.table.data.dropped(partition, gone)
        if share is not None and overlay.lands:
            self._store.flush(partition)

    def discard(self, partitions: Iterable[int] | None = None) -> None:
        """Flush the acknowledged changes, by default of all partitions, and drop all other changes."""
        for partition in sorted(self._store.overlays) if partitions is None else sorted(partitions):
            self.pause([partition])
            self.drop(partition)
