"""Replaces the database of a standby that lacks many records with a snapshot.

Faust's loop replays the standby until the snapshot has arrived, so the worker does not wait.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mode import get_logger

from faust_assigner.app.recovery.decoding import decoding_of
from faust_assigner.app.recovery.from_snapshots import Finder, scratch_folder
from faust_assigner.app.recovery.restore_settings import settings_of
from faust_assigner.app.recovery.restore_task import SNAPSHOT, Restored, Settings, Stop
from faust_assigner.app.recovery.restoring import RestoreThreads, sees_records
from faust_assigner.app.tables.disk import offset_or_minus_one, takes_files
from faust_assigner.snapshots.sst import ingest

if TYPE_CHECKING:
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP

    from faust_assigner.app.host.table_bases import RecoveryBase, RocksDBBase
    from faust_assigner.snapshots.manifest import Manifest

logger = get_logger(__name__)

#: A standby that lacks at least this many records takes a snapshot or is read in batches.
MIN_STANDBY_GAP = 2_000


class StandbyExchange:
    """Exchanges databases of a recovery's standbys; ``note`` is called with each result."""

    def __init__(
        self,
        recovery: RecoveryBase,
        threads: RestoreThreads,
        note: Callable[[TP, Restored], None],
    ) -> None:
        self._recovery, self._threads, self._note = recovery, threads, note
        #: The standbys whose exchange has not begun, or was stopped by a round.
        self.left: set[TP] = set()

    def gap(self, tp: TP) -> int:
        """Return the number of records that a standby lacks, as far as known."""
        books = self._recovery
        highwater, offset = books.standby_highwaters.get(tp), books.standby_offsets.get(tp)
        return highwater - offset if highwater is not None and offset is not None else 0

    async def exchange_all(self, generation_id: int) -> None:
        """Replace the databases of standbys far behind one by one, until the generation ends."""
        books = self._recovery
        behind = [
            tp
            for tp in sorted(books.standby_tps)
            if self.gap(tp) >= MIN_STANDBY_GAP
            and takes_files((table := books.tp_to_table[tp]).data)
            and not sees_records(table)
        ]
        if not behind:
            return
        self._threads.stop_signal = stop = Stop()
        settings = settings_of(books.app)
        self.left = left = set(behind)
        try:
            finder = await self._threads.run(Finder, settings, behind, stop)
            for tp in behind:
                if not stop() and self._is_standby(tp, generation_id):
                    await self._exchange(tp, generation_id, settings, finder)
                if not stop():
                    left.discard(tp)
        except Exception as error:
            logger.warning("Standbys continue by replay: %r", error)
            left.clear()

    async def _exchange(
        self, tp: TP, generation_id: int, settings: Settings, finder: Finder
    ) -> None:
        """Build a database from a snapshot, then replace the standby's database with it."""
        books, started = self._recovery, time.time()
        table = books.tp_to_table[tp]
        with scratch_folder(settings) as folder:
            built = await self._threads.run(_build_database, finder, tp, Path(folder), table)
            if built is None or not self._is_standby(tp, generation_id):
                return
            path, manifest = built
            last = manifest.next_offset - 1
            before = offset_or_minus_one(books.standby_offsets[tp])
            if last - before < MIN_STANDBY_GAP:
                return  # the replay has read most of the records meanwhile
            # Do not await before the seek: the replay loop runs on this event loop, and skips
            # records at or below the new offset.
            books.flush_buffers()
            _replace_database(table.data, tp.partition, path)
            books.standby_offsets[tp] = last
        await books.app.consumer.seek_wait({tp: last})
        self._note(tp, Restored(tp, SNAPSHOT, started, time.time(), before, last, manifest.bytes))
        logger.info(
            "Standby %s-%d continues from snapshot %s", tp.topic, tp.partition, manifest.snapshot_id
        )

    def _is_standby(self, tp: TP, generation_id: int) -> bool:
        books = self._recovery
        return (
            tp in books.standby_tps
            and books.app.consumer_generation_id == generation_id
            and not self._threads.stop_signal()
        )


def _build_database(
    finder: Finder, tp: TP, folder: Path, table: CollectionT
) -> tuple[Path, Manifest] | None:
    """Build and close a database with the snapshot; return its path and the manifest, or None."""
    try:
        found = finder.fetch(tp, folder, decoding_of(table))
        if found is None:
            return None
        manifest, paths, ours = found
        path = folder / "database"
        database = table.data.rocksdb_options.open(path)
        try:
            ingest(database, paths, move=ours)
        finally:
            database.close()
        return path, manifest
    except Exception as error:
        logger.warning("Standby %s-%d continues by replay: %s", tp.topic, tp.partition, error)
        return None


def _replace_database(store: RocksDBBase, partition: int, built: Path) -> None:
    """Close the partition's database, put ``built`` in its place and open it."""
    path = store.partition_path(partition)
    old = store._dbs.pop(partition, None)
    if old is not None:
        old.close()
    aside = built.with_name("old")
    if path.exists():
        os.replace(path, aside)
    try:
        os.replace(built, path)
    except OSError:
        # Put the old database back. Otherwise an empty database would be opened, and its missing
        # records would count as applied.
        if aside.exists():
            os.replace(aside, path)
        raise
    store._db_for_partition(partition)
    shutil.rmtree(aside, ignore_errors=True)
