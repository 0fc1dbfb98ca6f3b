"""Handles failures of RocksDB files: the worker waits for disk space, and renames corrupt folders.

On a full disk an agent of Faust fails at each record, and its table lacks the agent's changes. If
RocksDB refuses to open a folder, stock Faust's worker ends at each start.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from faust.streams import current_event
from faust.types.tuples import TP
from mode import get_logger

from faust_assigner.app.tables.disk import is_writable, store_of
from faust_assigner.app.tables.scope import check_whole, partitions_in_scope
from faust_assigner.app.tables.storage_errors import is_damage, is_storage_error, storage_error_text
from faust_assigner.app.tables.store import WriteBehindStore

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.events import EventT
    from faust.types.tables import CollectionT
    from rocksdict import Rdict

    from faust_assigner.app.host.table_bases import RocksDBBase

logger = get_logger(__name__)

#: Suffix of a folder that was set aside; one such folder is kept for each partition.
ASIDE = ".corrupt"


def corrupt_folders(app: AppT) -> int:
    """Return the number of table folders set aside as corrupt since the worker started."""
    stores = map(store_of, app.tables.values())
    return sum(sum(getattr(store, "set_aside", {}).values()) for store in stores)


class TableStore(WriteBehindStore):
    """The store of a table in RocksDB; it reports failures to the recovery.

    The recovery then stops the streams and begins again. While a view answers a request for a key
    (``scope.py``), the key is read from its own partition.
    """

    #: Partition -> folders set aside since the worker started.
    set_aside: Counter[int]
    #: Partitions with an unreadable block; their folders are set aside at the next opening.
    _condemned: set[int]
    #: Partitions whose database lacks a change: no offset may be stored until a replay.
    _lacking: set[int]

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.set_aside, self._condemned, self._lacking = Counter(), set(), set()
        super().__init__(*args, **kwargs)

    # -- opening

    def _open_for_partition(self, partition: int) -> Rdict:
        """Open the database; replace a corrupt one with an empty one. Raises temporary errors."""
        if partition in self._condemned:
            self._put_aside(partition, "it contains an unreadable block")
        try:
            return super()._open_for_partition(partition)
        except Exception as error:
            if "lock hold by current process" in str(error):
                gc.collect()  # closes unused cursors, which keep the database open
                return super()._open_for_partition(partition)
            if not is_writable(self) or not is_storage_error(error) or not is_damage(error):
                raise
            self._put_aside(partition, error)
            return super()._open_for_partition(partition)

    def _put_aside(self, partition: int, reason: object) -> None:
        path = self.partition_path(partition)
        aside = path.with_name(path.name + ASIDE)
        # An old entry may be a file: a file does not replace a folder, nor a folder a file.
        shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(OSError):
            aside.unlink()
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, aside)
        self.set_aside[partition] += 1
        self._condemned.discard(partition)
        logger.error(
            "Table files %s are corrupt and were set aside as %s (number %d of this partition since the "
            "start); its changelog is replayed: %s",
            path,
            aside.name,
            self.set_aside[partition],
            reason,
        )

    async def _try_open_db_for_partition(
        self, partition: int, *args: object, **kwargs: object
    ) -> Rdict | None:
        """Open the database now if possible; otherwise the recovery retries until it is open."""
        try:
            return self._db_for_partition(partition)
        except Exception as error:
            if not is_writable(self) or not is_storage_error(error):
                raise
            logger.warning(
                "%s-%d could not be opened yet; it is opened at its first use: %s",
                self.table.name,
                partition,
                storage_error_text(error),
            )
            return None

    def close_partition(self, partition: int) -> None:
        """Close the database: after a failed write RocksDB refuses writes until the next open."""
        database = self._dbs.pop(partition, None)
        if database is not None:
            with contextlib.suppress(Exception):
                database.close()
        self._lacking.discard(partition)

    def revoke_partitions(self, table: CollectionT, tps: set[TP]) -> None:
        """Release the databases of ``tps``, without Faust's garbage collection for each table."""
        for tp in tps:
            if (
                tp.topic in table.changelog_topic.topics
                and self._dbs.pop(tp.partition, None) is not None
            ):
                logger.info("closing db %s partition %s", tp.topic, tp.partition)

    # -- reading and writing

    def _fail(self, error: Exception, partitions: Iterable[int]) -> None:
        failed = [p for p in partitions if self._is_about(error, p)]
        self._lacking.update(failed)
        if is_damage(error):
            self._condemned.update(failed)
        self.app.tables.recovery.tables_failed(self.table.name, error)
        for partition in filter(self.is_apart, failed):
            # The recovery reopens files of changelog partitions only; this file opens at its next use.
            self.close_partition(partition)

    def _is_about(self, error: Exception, partition: int) -> bool:
        """Whether ``error`` is about ``partition``: it names the partition's file, or no file."""
        said = str(error)
        return str(self.partition_path(partition)) in said or str(self.path) not in said

    @contextlib.contextmanager
    def _watched(self, partitions: Callable[[], Iterable[int]]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if is_writable(self) and is_storage_error(error):
                keep_uncommitted(self.app, current_event())
                self._fail(error, partitions())
            raise

    def apply_changelog_batch(
        self,
        batch: Iterable[EventT[object]],
        to_key: Callable[[object], object],
        to_value: Callable[[object], object],
    ) -> None:
        """Write replayed records; after a reported failure the recovery reads the batch again."""
        events = [event for event in batch if event.message.partition not in self._lacking]
        with self._watched(lambda: sorted({event.message.partition for event in events})):
            super().apply_changelog_batch(events, to_key, to_value)

    def _here(self) -> list[int]:
        event = current_event()
        return sorted(self._dbs) if event is None else [event.message.partition]

    def _get(self, key: bytes) -> bytes | None:
        partitions = partitions_in_scope(self, key)
        if partitions is not None:
            rows = (self.row_of(partition, key) for partition in partitions)
            return next((row for row in rows if row is not None), None)
        with self._watched(self._here):
            found: bytes | None = super()._get(key)
            return found

    def row_of(self, partition: int, key: bytes) -> bytes | None:
        """Return the row from one partition: the latest waiting change, else the row in the file."""
        with self._watched(lambda: [partition]):
            return super().row_of(partition, key)

    def file_row(self, partition: int, key: bytes) -> bytes | None:
        """Return the row in the file; without one, return None."""
        with self._watched(lambda: [partition]):
            return super().file_row(partition, key)

    def _set(self, key: bytes, value: bytes | None) -> None:
        with self._watched(self._here):
            super()._set(key, value)

    def _del(self, key: bytes) -> None:
        with self._watched(self._here):
            super()._del(key)

    def _contains(self, key: bytes) -> bool:
        partitions = partitions_in_scope(self, key)
        if partitions is not None:
            return any(self.row_of(partition, key) is not None for partition in partitions)
        with self._watched(self._here):
            return bool(super()._contains(key))

    def check_end(self, db: Rdict, last: bytes | None) -> None:
        """Report and raise RocksDB's error if the rows after the key ``last`` are unreadable."""
        with self._watched(lambda: [p for p, each in self._dbs.items() if each is db]):
            super().check_end(db, last)

    def _dbs_for_actives(self) -> Iterator[Rdict]:
        check_whole(self.table)
        return super()._dbs_for_actives()

    def doubt(self, partition: int, offset: int) -> bool:
        """Report that ``offset``, a new change's offset, is not above the file's offset. Returns whether
        it was reported.

        Global tables are not reported, because they read their own changes back.
        """
        consistency = getattr(self.app.tables.recovery, "consistency", None)
        if consistency is None or self.table.is_global:
            return False
        consistency.doubt(TP(self.table.changelog_topic.get_topic_name(), partition), offset)
        return True

    def report_failure(self, partition: int, error: Exception) -> bool:
        """Report a failed write of the file to the recovery; return False for an unexpected error."""
        if not is_writable(self) or not is_storage_error(error):
            return False
        self._fail(error, [partition])
        return True

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Store the offset; after a failure the table is replayed from the previous offset."""
        if tp.partition in self._lacking:
            return
        try:
            super().set_persisted_offset(tp, offset)
        except Exception as error:
            if not self.report_failure(tp.partition, error):
                raise


def keep_uncommitted(app: AppT, event: EventT[object] | None) -> None:
    """Keep the record of ``event`` uncommitted, so that it is processed again.

    Faust acknowledges a record even if its agent fails.
    """
    if event is not None and event.message is not None:
        app.consumer.kept_back.keep(event.message)


def open_for_streams(store: RocksDBBase, partition: int) -> None:
    """Open a database in a thread; the event loop then adds it to ``store._dbs``.

    Without its entry the open database would block the next opening. The event loop adds the entry
    because streams iterate over ``_dbs``. The awaiting task continues after that.
    """
    database = store._open_for_partition(partition)
    store.app.loop.call_soon_threadsafe(store._dbs.__setitem__, partition, database)


def close_all(databases: Iterable[Rdict | None]) -> None:
    """Close ``databases`` in a thread; failures are logged."""
    for database in databases:
        if database is not None:
            try:
                database.close()
            except Exception as error:
                logger.warning("A database did not close: %s", error)
