"""Opens, reopens and closes the databases of a worker's tables.

A database that cannot be written or opened is *doubtful*: it may lack records that count as read.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from faust.tables.recovery import ServiceStopped
from mode import get_logger

from faust_assigner.app.recovery.callbacks import is_overridden
from faust_assigner.app.retry import RateLimitedLog, pause_s
from faust_assigner.app.tables.disk import is_writable, store_of
from faust_assigner.app.tables.files import TableStore, close_all, open_for_streams
from faust_assigner.app.tables.storage_errors import is_storage_error, storage_error_text

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP

logger = get_logger(__name__)


class TableDatabases:
    """The databases of the app's tables on this worker. ``tables`` maps partitions to tables."""

    def __init__(self, app: App, tables: Mapping[TP, CollectionT]) -> None:
        self._app, self._tables = app, tables
        #: Partitions whose database could not be written or opened; ``open_all`` reopens it.
        self.doubtful: frozenset[TP] = frozenset()
        self._said = RateLimitedLog()

    def doubt(self, tps: Iterable[TP]) -> None:
        """Note that the databases of ``tps`` may lack records that count as read."""
        self.doubtful |= frozenset(tps)

    @contextmanager
    def opened_later(self, tp: TP, offsets: MutableMapping[TP, int | None]) -> Iterator[None]:
        """Suppress storage errors of the block; the database of ``tp`` is opened and read later."""
        try:
            yield
        except Exception as error:
            if not is_storage_error(error):
                raise
            offsets.setdefault(tp, None)
            self.doubt({tp})

    # -- a round

    async def take_round(
        self, assigned: set[TP], came: Collection[TP], revoked: Collection[TP]
    ) -> None:
        """Close the databases of revoked partitions in a thread, because streams run meanwhile.

        Stores of other kinds open and close their files themselves: as in Faust, the
        ``on_rebalance`` of their table is called. An app's own ``on_rebalance`` is called too.
        """
        for table in self._app.tables.values():
            topics, store = table.changelog_topic.topics, store_of(table)
            gone = {tp for tp in revoked if tp.topic in topics}
            gained = {tp for tp in came if tp.topic in topics}
            if gone and is_writable(store):
                databases = [store._dbs.pop(tp.partition, None) for tp in sorted(gone)]
                await asyncio.to_thread(close_all, databases)
            told = not is_writable(store) or is_overridden(table, "on_rebalance")
            if told and (gone or gained):
                generation = self._app.consumer_generation_id
                await table.on_rebalance(assigned, gone, gained, generation)

    async def open_beside_streams(
        self,
        tps: Iterable[TP],
        in_thread: Callable[..., Awaitable[object]],
        *,
        pause_factor: float = 0.0,
    ) -> None:
        """Open databases in a thread; ``open_all`` later retries each database that fails to open.

        rocksdict blocks all other threads for about 10 ms while it opens a database. After each database
        this method sleeps ``pause_factor`` times as long, so that streams can run.
        """
        for tp in sorted(tps):
            store = store_of(self._app.tables._changelogs[tp.topic])
            if is_writable(store) and tp.partition not in store._dbs:
                began = monotonic()
                try:
                    await in_thread(open_for_streams, store, tp.partition)
                except Exception as error:
                    logger.warning(
                        "Could not open the table files of %s-%d yet; the recovery tries again: %s",
                        tp.topic,
                        tp.partition,
                        storage_error_text(error),
                    )
                await asyncio.sleep(pause_factor * (monotonic() - began))

    # -- a recovery

    async def open_all(
        self,
        tps: Collection[TP],
        sleep: Callable[[float], Awaitable[None]],
        stopped: Callable[[], bool],
    ) -> frozenset[TP]:
        """Open the databases of ``tps``, and reopen databases in a doubtful state; retry until all are open.

        A full disk, for example, keeps a database from opening. Returns the reopened partitions.
        ``tps`` must not contain a partition that agents process: this method may close the partition's
        database while the agents write to the database. Raises ServiceStopped.
        """
        attempt = 0
        while failed := self._open_each(tps):
            if self._said.due("open"):
                logger.error(
                    "Could not open these table files yet; their tables are restored after the "
                    "files open: %s",
                    failed,
                )
            await sleep(pause_s(attempt))
            attempt += 1
            if stopped():
                raise ServiceStopped
        anew = self.doubtful.intersection(tps)
        self.doubtful -= anew
        return anew

    def _open_each(self, tps: Collection[TP]) -> str | None:
        """Open each database; return the error of the first database that does not open, else None."""
        stores = {
            tp: store
            for tp in sorted(tps)
            if isinstance(store := store_of(self._tables[tp]), TableStore)
        }
        for tp in stores.keys() & self.doubtful:
            stores[tp].close_partition(tp.partition)
        for tp, store in stores.items():
            try:
                store._db_for_partition(tp.partition)
            except Exception as error:
                self.doubt({tp})
                return f"{tp.topic}-{tp.partition}: {storage_error_text(error)}"
        return None
