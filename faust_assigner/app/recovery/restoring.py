"""Restores databases in threads: from local files, from snapshots and by batched replay.

The restore fills an empty database from the newest trustworthy snapshot, and reads the remaining
records in batches. Faust's loop then continues from the offsets in the databases, as after any
restart. A rebalance stops a restore within a fraction of a second, and failed partitions are left to
Faust's replay.

Settings: ``SNAPSHOTS`` and ``BATCHED_REPLAY`` of :mod:`faust_assigner.settings.table`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from faust.types.tuples import TP
from mode import get_logger

from faust_assigner.app.recovery.bring_up import bring_up
from faust_assigner.app.recovery.callbacks import is_overridden
from faust_assigner.app.recovery.decoding import decoding_of
from faust_assigner.app.recovery.progress import Progress
from faust_assigner.app.recovery.restore_settings import settings_of
from faust_assigner.app.recovery.restore_task import Cold, Restored, RestoreThreads, Stop
from faust_assigner.app.recovery.restore_throttle import RestoreThrottle
from faust_assigner.app.settings import read_or_default
from faust_assigner.app.tables.disk import is_writable, takes_files
from faust_assigner.settings.table import RESTORE_SHARE

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.tables import CollectionT

logger = get_logger(__name__)


class BatchedRestore:
    """The restores of partitions in batches or from snapshots.

    ``tables`` are the tables by partition; ``note`` is called with the result of each partition.
    """

    def __init__(
        self,
        app: App,
        tables: Mapping[TP, CollectionT],
        threads: RestoreThreads,
        progress: Progress,
        note: Callable[[TP, Restored], None],
    ) -> None:
        self._app, self._tables, self._threads = app, tables, threads
        self._progress, self._note = progress, note

    async def restore(
        self, tps: Sequence[TP], offsets: Any, highwaters: Any, stop: Stop
    ) -> AsyncGenerator[TP, None]:
        """Restore ``tps`` in this order in a thread; yield each partition when its work ends.

        ``offsets`` then has the partition's new offset, which may be before the end. If the
        generator is closed, the thread continues until ``stop``.
        """
        settings = replace(settings_of(self._app), progress=self._progress, pace=self._pace())
        usable = tps if settings.snapshots or settings.batched else ()
        found = (self._cold(tp, offsets, highwaters) for tp in usable)
        colds = [cold for cold in found if cold is not None]
        ours = {TP(*cold.tp) for cold in colds}
        for tp in tps:
            if tp not in ours:
                yield tp  # Faust's loop restores this partition
        if not colds:
            return
        self._threads.stop_signal = stop
        loop, told = asyncio.get_running_loop(), asyncio.Queue[Restored | None]()

        def tell(restored: Restored | None) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and no task waits
                loop.call_soon_threadsafe(told.put_nowait, restored)

        def work() -> None:
            try:
                for restored in bring_up(settings, colds, stop, tell).values():
                    tell(restored)
            finally:
                tell(None)

        working = asyncio.ensure_future(self._threads.run(work))
        while (restored := await told.get()) is not None:
            tp = TP(*restored.tp)
            if tp in ours:
                ours.discard(tp)
                self._record(tp, restored, offsets, highwaters)
                yield tp
        try:
            await working
        except Exception:
            logger.exception(
                "Could not restore in batches or from snapshots; Faust replays the tables"
            )
            for tp in sorted(ours):
                self._progress.finish(tp)  # Faust's loop does not report a standby's progress
                yield tp

    def _pace(self) -> RestoreThrottle:
        app = self._app
        return RestoreThrottle(
            read_or_default(app, RESTORE_SHARE), lambda: int(app.monitor.messages_received_total)
        )

    def _record(self, tp: TP, restored: Restored, offsets: Any, highwaters: Any) -> None:
        self._note(tp, restored)
        offsets[tp] = max(offsets[tp], restored.end_offset)
        # Faust crashes on an offset beyond its highwater. The highwater is outdated by now, or,
        # under transactions, unknown before the first fetch.
        highwaters[tp] = max(highwaters[tp], restored.end_offset)

    def _cold(self, tp: TP, offsets: Any, highwaters: Any) -> Cold | None:
        """Return the partition as a restore task.

        Returns None if no record is left, or if the store is not ours.
        """
        table = self._tables[tp]
        store = table.data
        highwater, offset = highwaters[tp], offsets[tp]
        if not is_writable(store) or sees_records(table):
            return None
        if (
            highwater is None
            or offset is None
            or (highwater <= offset and not self._app.in_transaction)
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


def sees_records(table: CollectionT) -> bool:
    """Whether the app receives each changelog record, by a callback or its own table class."""
    return table._on_changelog_event is not None or is_overridden(
        table, "on_changelog_event", "apply_changelog_batch"
    )
