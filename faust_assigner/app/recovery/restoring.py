"""Installs the restore in Faust's recovery: local files, else a snapshot and tail, else a replay.

The recovery service first reads the offsets in local databases. Before it seeks, the restore fills
an empty database from the newest trustworthy snapshot and reads a long tail in batches. Faust's
loop then continues from the offsets in the databases, as after any restart. The restore runs in a
thread. A rebalance stops it within a fraction of a second, and failed partitions are left to
Faust's replay.

Standbys do not delay the worker: Faust replays them in the background. A standby far behind is
exchanged for a snapshot once the snapshot has arrived.

Settings: ``SNAPSHOTS`` and ``BATCHED_REPLAY`` of :mod:`faust_assigner.settings.table`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from faust.types.tuples import TP
from mode import Service, get_logger

from faust_assigner.app.recovery.bring_up import (
    MIN_STANDBY_GAP,
    SNAPSHOT,
    Cold,
    Finder,
    Restored,
    Settings,
    Stop,
    bring_up,
    scratch_folder,
)
from faust_assigner.app.recovery.callbacks import is_overridden
from faust_assigner.app.recovery.decoding import decoding_of
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.progress import Progress
from faust_assigner.app.recovery.restore_settings import settings_of
from faust_assigner.app.recovery.restore_throttle import RestoreThrottle
from faust_assigner.app.settings import read_or_default
from faust_assigner.app.tables.disk import is_writable, known, takes_files
from faust_assigner.settings.table import RESTORE_SHARE
from faust_assigner.snapshots.sst import ingest

if TYPE_CHECKING:
    from faust.types.tables import CollectionT

    from faust_assigner.app.host.bases import RocksDBBase
    from faust_assigner.snapshots.manifest import Manifest

logger = get_logger(__name__)

#: Seconds that a rebalance waits for a stopped restore; the restore needs one fetch, 0.2 s.
SETTLE_TIMEOUT_S = 15.0
#: The consumer may be silent during a restore: Faust's loop takes over after half of
#: max.poll.interval.
SILENT_SHARE = 0.5
#: Seconds between two checks of a restore's progress.
TELL_S = 0.5

P = ParamSpec("P")
T = TypeVar("T")


class RestoringRecovery(RecoveryLoop):
    """The part of the table manager's recovery that restores databases before offsets are read."""

    restored: dict[TP, Restored]
    _stop: Stop
    _working: set[asyncio.Future[Any]]

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.restored = {}
        self.progress = Progress()
        self._stop = Stop()
        self._working = set()
        super().__init__(*args, **kwargs)

    async def on_stop(self) -> None:
        """Stop using the databases before the tables close them."""
        self.stop_restoring()
        await self.stop_and_wait()
        await super().on_stop()

    # -- progress

    @Service.task  # type: ignore[untyped-decorator]
    async def _tell_progress(self) -> None:
        was_idle = True
        while not self.should_stop:
            await self.sleep(TELL_S)
            idle = self.progress.is_idle
            if idle and was_idle:
                continue
            self.progress.figures()  # regular samples for the rate in the log line
            if line := self.progress.end() if idle else self.progress.line():
                logger.info("%s", line)
            was_idle = idle

    # -- active partitions

    async def _in_batches(
        self, tps: Sequence[TP], offsets: Any, highwaters: Any, stop: Stop
    ) -> AsyncGenerator[TP, None]:
        """Restore ``tps`` in this order in a thread; yield each partition when its work ends.

        ``offsets`` then hold its offset, which may be before its end. If the generator is closed,
        the thread goes on until ``stop``.
        """
        settings = replace(settings_of(self.app), progress=self.progress, pace=self._pace())
        usable = settings.snapshots or settings.batched
        colds = [
            cold
            for tp in tps
            if usable and (cold := self._cold(tp, offsets, highwaters)) is not None
        ]
        ours = {TP(*cold.tp) for cold in colds}
        for tp in tps:
            if tp not in ours:
                yield tp  # left to Faust's loop
        if not colds:
            return
        self._stop = stop
        loop, told = asyncio.get_running_loop(), asyncio.Queue[Restored | None]()

        def tell(restored: Restored | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, no task waits
                loop.call_soon_threadsafe(told.put_nowait, restored)

        def work() -> None:
            try:
                for restored in bring_up(settings, colds, stop, tell).values():
                    tell(restored)
            finally:
                tell(None)

        working = asyncio.ensure_future(self._in_thread(work))
        while (restored := await told.get()) is not None:
            tp = TP(*restored.tp)
            if tp in ours:
                ours.discard(tp)
                self._note(tp, restored, offsets, highwaters)
                yield tp
        try:
            await working
        except Exception:
            logger.exception("Could not restore in batches or from snapshots; tables are replayed")
            for tp in sorted(ours):
                self.progress.finish(tp)  # Faust's loop does not report a standby's progress
                yield tp

    def _pace(self) -> RestoreThrottle:
        app = self.app
        return RestoreThrottle(
            read_or_default(app, RESTORE_SHARE), lambda: int(app.monitor.messages_received_total)
        )

    def _note(self, tp: TP, restored: Restored, offsets: Any, highwaters: Any) -> None:
        self.restored[tp] = restored
        offsets[tp] = max(offsets[tp], restored.end_offset)
        # Faust crashes on an offset beyond its highwater. The highwater is outdated by now, or,
        # under transactions, unknown before the first fetch.
        highwaters[tp] = max(highwaters[tp], restored.end_offset)

    def _cold(self, tp: TP, offsets: Any, highwaters: Any) -> Cold | None:
        """The partition as a restore task, or None: no records left, or not a store of ours."""
        table = self.tp_to_table[tp]
        store = table.data
        highwater, offset = highwaters[tp], offsets[tp]
        if not is_writable(store) or _sees_records(table):
            return None
        if (
            highwater is None
            or offset is None
            or (highwater <= offset and not self.app.in_transaction)
        ):
            return None
        persisted = store.persisted_offset(tp)
        # Offsets before the log's earliest offset count as read: no records are left there.
        start = offset if persisted is None else max(offset, persisted)
        return Cold(
            tp,
            store._db_for_partition(tp.partition),
            start,
            highwater,
            takes_files(store),
            decoding_of(table),
        )

    # -- standbys

    async def _exchange_standbys(self, generation_id: int) -> None:
        behind = [
            tp
            for tp in sorted(self.standby_tps)
            if self._standby_gap(tp) >= MIN_STANDBY_GAP
            and takes_files((table := self.tp_to_table[tp]).data)
            and not _sees_records(table)
        ]
        if not behind:
            return
        self._stop = stop = Stop()
        settings = settings_of(self.app)
        try:
            finder = await self._in_thread(Finder, settings, behind, stop)
            for tp in behind:
                if not stop() and self._is_standby(tp, generation_id):
                    await self._exchange(tp, generation_id, settings, finder)
        except Exception as error:
            logger.warning("Standbys continue by replay: %r", error)

    async def _exchange(
        self, tp: TP, generation_id: int, settings: Settings, finder: Finder
    ) -> None:
        """Build a database from a snapshot, then put it in the place of the standby's database."""
        started = time.time()
        store = self.tp_to_table[tp].data
        with scratch_folder(settings) as folder:
            table = self.tp_to_table[tp]
            built = await self._in_thread(_build_database, finder, tp, Path(folder), table)
            if built is None or not self._is_standby(tp, generation_id):
                return
            path, manifest = built
            if manifest.next_offset - 1 - known(self.standby_offsets[tp]) < MIN_STANDBY_GAP:
                return  # the replay was quicker
            # No await from here to the seek: the replay loop runs on this event loop, and skips
            # records at or below the offset set here.
            self.flush_buffers()
            _replace_database(store, tp.partition, path)
            before, self.standby_offsets[tp] = self.standby_offsets[tp], manifest.next_offset - 1
        await self.app.consumer.seek_wait({tp: manifest.next_offset - 1})
        self.restored[tp] = Restored(
            tp,
            SNAPSHOT,
            started,
            time.time(),
            known(before),
            manifest.next_offset - 1,
            manifest.bytes,
        )
        logger.info(
            "Standby %s-%d continues from snapshot %s", tp.topic, tp.partition, manifest.snapshot_id
        )

    def _standby_gap(self, tp: TP) -> int:
        highwater, offset = self.standby_highwaters.get(tp), self.standby_offsets.get(tp)
        return highwater - offset if highwater is not None and offset is not None else 0

    def _is_standby(self, tp: TP, generation_id: int) -> bool:
        return (
            tp in self.standby_tps
            and self.app.consumer_generation_id == generation_id
            and not self._stop()
        )

    # -- threads

    def stop_restoring(self) -> None:
        """Tell the restore threads to end, which they do at their next check."""
        self._stop.set()

    async def stop_and_wait(self) -> None:
        """Wait until no restore thread holds a database."""
        self.stop_restoring()
        if self._working:
            _, late = await asyncio.wait(set(self._working), timeout=SETTLE_TIMEOUT_S)
            if late:
                logger.error(
                    "A restore did not stop within %.0f s of a rebalance", SETTLE_TIMEOUT_S
                )

    async def _in_thread(self, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        """Run in a thread; ``stop_and_wait`` waits for the thread even if this call is cancelled."""
        work = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **more))
        self._working.add(work)
        work.add_done_callback(self._ended)
        return await asyncio.shield(work)

    def _ended(self, work: asyncio.Future[Any]) -> None:
        self._working.discard(work)
        # If the waiting task was cancelled, asyncio would report the error as never retrieved.
        if not work.cancelled():
            work.exception()


def _sees_records(table: CollectionT) -> bool:
    """Whether the app gets each changelog record, by a callback or by its own table class."""
    return table._on_changelog_event is not None or is_overridden(
        table, "on_changelog_event", "apply_changelog_batch"
    )


def _build_database(
    finder: Finder, tp: TP, folder: Path, table: CollectionT
) -> tuple[Path, Manifest] | None:
    """A closed database in ``folder`` with the snapshot and its offset, and the manifest."""
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
        # Without this an empty database would be opened, while the loop counts its records as
        # applied.
        if aside.exists():
            os.replace(aside, path)
        raise
    store._db_for_partition(partition)
    shutil.rmtree(aside, ignore_errors=True)
