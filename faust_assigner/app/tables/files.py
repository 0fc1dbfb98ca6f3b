"""RocksDB files that cannot be used: a full disk is waited for, a corrupt folder is set aside.

Stock lets an agent fail at each record while the disk is full and goes on with a table that lacks what
they wrote; a folder that RocksDB refuses to open ends the worker at each of its starts.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from faust import stores
from faust.stores.rocksdb import Store as RocksDBStore
from faust.streams import current_event
from faust.tables.sets import SetTable
from faust.types import TP
from mode import get_logger

from faust_assigner.app.host.mixing import over
from faust_assigner.app.tables import write_behind as overlay
from faust_assigner.app.tables.scope import ScopedStore
from faust_assigner.app.tables.sets import WriteBehindSets
from faust_assigner.app.tables.store import WriteBehindStore

logger = get_logger(__name__)

#: Behind the name of a folder that was set aside; one is kept for each partition.
ASIDE = ".corrupt"

#: What RocksDB says of files that were there before and are not whole. A write cut short by a kill is none
#: of it: RocksDB drops the torn end of its log by itself.
_DAMAGE = re.compile(
    r"Corruption|No such file|File exists|Not a directory|Invalid argument|not implemented",
    re.IGNORECASE,
)
#: And of troubles that pass, whatever else is said.
_PASSING = re.compile(
    r"No space|quota|lock|Too many open files|Permission denied|Read-only|memory|Input/output",
    re.IGNORECASE,
)


def is_storage_error(error: BaseException) -> bool:
    """Whether RocksDB or the disk said it; rocksdict raises plain ``Exception`` with RocksDB's words."""
    return (
        type(error) is Exception
        or isinstance(error, OSError)
        or type(error).__name__ == "DbClosedError"
    )


def is_damage(error: BaseException) -> bool:
    """Whether the files themselves are bad, so that waiting is of no use."""
    said = str(error)
    return "Corruption" in said or bool(_DAMAGE.search(said) and not _PASSING.search(said))


def corrupt_folders(app: Any) -> int:
    """Folders of the app's tables that were corrupt and set aside since the worker started."""
    stores = (getattr(table.data, "storage", table.data) for table in app.tables.values())
    return sum(sum(getattr(store, "set_aside", {}).values()) for store in stores)


class FaultReportingStore(WriteBehindStore):
    """Of a RocksDB store: what fails is told to the recovery, which stops the streams and begins again."""

    #: Partition -> folders set aside since the worker started.
    set_aside: Counter[int]
    _condemned: set[int]
    #: Partitions whose database lacks a change: no offset may be remembered until it is replayed.
    _lacking: set[int]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.set_aside, self._condemned, self._lacking = Counter(), set(), set()
        super().__init__(*args, **kwargs)

    # -- opening

    def _open_for_partition(self, partition: int) -> Any:
        """The database, an empty one in the place of a corrupt one; raises what waiting may mend."""
        if partition in self._condemned:
            self._put_aside(partition, "a block in it could not be read")
        try:
            return super()._open_for_partition(partition)
        except Exception as error:
            if "lock hold by current process" in str(error):
                gc.collect()  # a cursor that nobody uses any more holds the database open
                return super()._open_for_partition(partition)
            if not self._is_ours() or not is_storage_error(error) or not is_damage(error):
                raise
            self._put_aside(partition, error)
            return super()._open_for_partition(partition)

    def _is_ours(self) -> bool:
        """Whether the files are this worker's to move: not those that another app writes."""
        return bool(self.use_rocksdict and not self.read_only)

    def _put_aside(self, partition: int, reason: object) -> None:
        path = self.partition_path(partition)
        aside = path.with_name(path.name + ASIDE)
        # What is there may be a file, and neither takes the place of the other.
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

    async def _try_open_db_for_partition(self, partition: int, *args: Any, **kwargs: Any) -> Any:
        """Open it now if it can be; the recovery opens what could not be, and waits for it."""
        try:
            return self._db_for_partition(partition)
        except Exception as error:
            if not self._is_ours() or not is_storage_error(error):
                raise
            logger.warning(
                "%s-%d is opened when it is needed: %s", self.table.name, partition, error
            )
            return None

    def close_partition(self, partition: int) -> None:
        """Let go of the database: after a failed write RocksDB accepts none until it is opened again."""
        database = self._dbs.pop(partition, None)
        if database is not None:
            with contextlib.suppress(Exception):
                database.close()
        self._lacking.discard(partition)

    def revoke_partitions(self, table: Any, tps: set[TP]) -> None:
        """Let go of the databases of ``tps``. Stock collects garbage for each table, at each rebalance."""
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

    def _is_about(self, error: Exception, partition: int) -> bool:
        """RocksDB names the file; where it names none, every partition of the batch is in doubt."""
        said = str(error)
        return str(self.partition_path(partition)) in said or str(self.path) not in said

    @contextlib.contextmanager
    def _watched(self, partitions: Callable[[], Iterable[int]]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._is_ours() and is_storage_error(error):
                keep_uncommitted(self.app, current_event())
                self._fail(error, partitions())
            raise

    def apply_changelog_batch(
        self, batch: Iterable[Any], to_key: Callable[[Any], Any], to_value: Callable[[Any], Any]
    ) -> None:
        """Write what was replayed, or tell the recovery; the batch is read again then."""
        events = [event for event in batch if event.message.partition not in self._lacking]
        with self._watched(lambda: sorted({event.message.partition for event in events})):
            super().apply_changelog_batch(events, to_key, to_value)

    def _here(self) -> list[int]:
        event = current_event()
        return sorted(self._dbs) if event is None else [event.message.partition]

    def _get(self, key: bytes) -> bytes | None:
        with self._watched(self._here):
            found: bytes | None = super()._get(key)
            return found

    def row_of(self, partition: int, key: bytes) -> bytes | None:
        """The row as this worker sees it, in one partition."""
        with self._watched(lambda: [partition]):
            return super().row_of(partition, key)

    def file_row(self, partition: int, key: bytes) -> bytes | None:
        """The row in the file."""
        with self._watched(lambda: [partition]):
            return super().file_row(partition, key)

    def _set(self, key: bytes, value: bytes | None) -> None:
        with self._watched(self._here):
            super()._set(key, value)

    def _del(self, key: bytes) -> None:
        with self._watched(self._here):
            super()._del(key)

    def _contains(self, key: bytes) -> bool:
        with self._watched(self._here):
            return bool(super()._contains(key))

    def doubt(self, partition: int, offset: int) -> bool:
        """Tell the recovery, unless the table's own records are read back while it changes."""
        consistency = getattr(self.app.tables.recovery, "consistency", None)
        if consistency is None or self.table.is_global or self.table.recovery_buffer_size == 1:
            return False
        consistency.doubt(TP(self.table.changelog_topic.get_topic_name(), partition), offset)
        return True

    def flush(self, partition: int) -> None:
        """Write what counts; where that fails the recovery begins again, and flushes it afterwards."""
        try:
            super().flush(partition)
        except Exception as error:
            if not self._is_ours() or not is_storage_error(error):
                raise
            self._fail(error, [partition])

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Remember the offset; where that fails the table is replayed from the one before."""
        if tp.partition in self._lacking:
            return
        try:
            super().set_persisted_offset(tp, offset)
        except Exception as error:
            if not self._is_ours() or not is_storage_error(error):
                raise
            self._fail(error, [tp.partition])


class TableStore(ScopedStore, FaultReportingStore, RocksDBStore):  # type: ignore[misc]
    """The store of a table in RocksDB."""


def keep_uncommitted(app: Any, event: Any) -> None:
    """Leave the record of ``event`` unacknowledged for good, so that no commit passes it: it is repeated.

    Faust acknowledges a record whose agent fails.
    """
    if event is not None and event.message is not None:
        event.message.acked = True
        app.consumer._unacked_messages.discard(event.message)


def store_of(table: Any) -> Any:
    """Where the table's bytes are kept: its store, or the one beneath a table of sets."""
    store = table.data
    return getattr(store, "storage", store)


def take_care_of(table: Any) -> None:
    """Have the table make a careful store where it makes a RocksDB one; before it makes any."""
    table._new_store_by_url = partial(_new_store, table, table._new_store_by_url)
    if isinstance(table, SetTable):
        table._new_store = partial(_whole, table, table._new_store)


def _whole(table: Any, make: Callable[[], Any]) -> Any:
    return over(WriteBehindSets, type(make()))(table)


def _new_store(table: Any, make: Callable[[Any], Any], url: Any) -> Any:
    kind = stores.by_url(url)
    if not issubclass(kind, RocksDBStore):
        return make(url)
    store = over(TableStore, kind)(
        url,
        table.app,
        table,
        table_name=table.name,
        key_type=table.key_type,
        value_type=table.value_type,
        key_serializer=table.key_serializer,
        value_serializer=table.value_serializer,
        loop=table.loop,
        options=table.options,
    )
    overlay.begin(table, store)
    return store


def open_for_streams(store: Any, partition: int) -> None:
    """In a thread, to its end: a database that nobody knows of would lock out the next one.

    Noted where streams run, before anybody goes on who has waited for this: they look through all of them.
    """
    database = store._open_for_partition(partition)
    store.app.loop.call_soon_threadsafe(store._dbs.__setitem__, partition, database)


def close_all(databases: Iterable[Any]) -> None:
    """In a thread; what does not close is told of."""
    for database in databases:
        if database is not None:
            try:
                database.close()
            except Exception as error:
                logger.warning("A database did not close: %s", error)
