"""Flushes changes to the files of stores: after acknowledgements, unless flushing is paused.

A class flushes one store; functions flush, pause and resume all stores of an app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from faust.types.tuples import TP

from faust_assigner.app.tables.disk import store_of
from faust_assigner.app.tables.landing import land

if TYPE_CHECKING:
    from faust.types.app import AppT

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
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._to_flush.add(partition)

    def _flush_all(self) -> None:
        partitions, self._to_flush = sorted(self._to_flush), set()
        for partition in partitions:
            self.flush(partition)

    def flush(self, partition: int) -> None:
        """Write the changes that count, with their offset, unless flushing is paused.

        A failure restarts the recovery, which flushes the changes later.
        """
        try:
            self._write(partition)
        except Exception as error:
            if not self._store.report_failure(partition, error):
                raise

    def _write(self, partition: int) -> None:
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
            self.flush(partition)

    def hold(self) -> None:
        """Flush no changes until ``resume()``."""
        for overlay in self._store.overlays.values():
            overlay.lands = False

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        """Flush the acknowledged changes, then pause until ``resume()``; by default for all."""
        for partition in sorted(self._store.overlays) if partitions is None else partitions:
            if partition in self._store.overlays:
                self.flush(partition)
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
            self.flush(partition)

    def discard(self, partitions: Iterable[int] | None = None) -> None:
        """Flush the acknowledged changes, by default of all partitions, and drop all other changes."""
        for partition in sorted(self._store.overlays) if partitions is None else sorted(partitions):
            self.pause([partition])
            self.drop(partition)


def write_behind_stores(app: AppT) -> Iterator[tuple[str, WriteBehindStore]]:
    """Yield the changelog and the store of each table whose changes wait for their changelog."""
    for table in app.tables.values():
        store = store_of(table)
        if getattr(store, "usage", None) is not None:
            yield table.changelog_topic.get_topic_name(), store


def pause(app: AppT, partitions: Collection[int] | None = None) -> None:
    """Flush the acknowledged changes, then pause until ``resume()``; by default for all."""
    for _, store in write_behind_stores(app):
        store.flushing.pause(partitions)


def hold(app: AppT) -> None:
    """Flush no changes until ``resume()``: the files cannot be written, or will be replayed."""
    for _, store in write_behind_stores(app):
        store.flushing.hold()


def discard(app: AppT) -> None:
    """Flush the acknowledged changes of all partitions, and drop all other changes."""
    for _, store in write_behind_stores(app):
        store.flushing.discard()


def retain_partitions(app: AppT, actives: Collection[TP], complete: Collection[TP]) -> None:
    """Discard the changes of all partitions but ``actives``; resume the ``complete`` partitions.

    Files of a table with ``use_partitioner`` belong to owned source partitions, too.
    """
    for topic, store in write_behind_stores(app):
        gone = [p for p in store.overlays if TP(topic, p) not in actives]
        if apart := {p for p in gone if store.is_apart(p)}:
            logs, owned = app.tables.changelog_topics, app.assignor.assigned_actives()
            apart &= {tp.partition for tp in owned if tp.topic not in logs}
        store.flushing.discard([p for p in gone if p not in apart])
    resume(app, complete)


def resume(app: AppT, actives: Collection[TP]) -> None:
    """Flush the changes of ``actives`` from now on: this worker owns their restored files.

    Files that no restore writes are flushed from now on, too.
    """
    for topic, store in write_behind_stores(app):
        for tp in sorted(actives):
            if tp.topic == topic:
                store.flushing.resume(tp.partition)
        for partition in sorted(store.overlays):
            if store.is_apart(partition):
                store.flushing.resume(partition)
