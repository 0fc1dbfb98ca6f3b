"""The write-behind store: a change waits in memory until its changelog record counts.

A record counts once the changelog has it and its transaction, if any, is committed. Faust writes a
row at once, sends the record later, and stores the file's offset after the broker's answer. A
worker killed in between leaves rows without a changelog record. Source records are then processed
again on top of these rows. This store puts rows and offset into one write: however the process
ends, the file holds the table as of the file's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from faust.streams import current_event
from faust.types.tuples import TP

from faust_assigner.app.tables.changes import NO_RECORD, Change, Overlay, Usage
from faust_assigner.app.tables.flushing import Flushing
from faust_assigner.app.tables.landing import FlushMode, offset_in, rows_beyond, write
from faust_assigner.app.tables.read_back import ReadBackOverlay
from faust_assigner.snapshots.sst import raise_if_cut

if TYPE_CHECKING:
    from faust.types.tuples import FutureMessage
    from rocksdict import Rdict

    from faust_assigner.app.host.table_bases import RocksDBBase as Store
else:
    from faust.stores.rocksdb import Store

T = TypeVar("T")

#: Attribute of a changelog record in flight: the partition of the changed row, and the change.
_CHANGE = "_faust_assigner_change"


class WriteBehindStore(Store):
    """A RocksDB store whose rows are written only after their changelog records count.

    Readers see the waiting changes instead of the file's rows.

    If ``usage`` is None, the store writes as Faust does.
    """

    usage: Usage | None = None
    flush_mode = FlushMode.OWN

    #: Whether the producer runs in a thread of its own.
    in_other_thread = False

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: Partition -> the overlay with the partition's changes that are not in the file.
        self.overlays: dict[int, Overlay] = {}
        #: The last sent record, until its change is made.
        self._sent: FutureMessage | None = None
        #: The key whose change was already made together with its record.
        self._made: bytes | None = None
        self.flushing = Flushing(self)
        super().__init__(*args, **kwargs)

    # -- changes

    def sent(self, record: FutureMessage) -> None:
        """Note a record that was passed to the producer, and make its change.

        The change does not depend on the following call of ``_set``: with RocksDB ``Table.update()`` and
        ``clear()`` fail after they have sent records. In a table of sets the record is an operation and
        not the row, so the following call of ``_set`` makes the change.
        """
        if self.table.data is self:
            message = record.message
            self._change(self._place_of(record), message.key, message.value, record)
            self._made = message.key
        else:
            self._sent = record

    def _place_of(self, record: Any) -> int:
        """Return the partition whose row ``record`` changes."""
        event = current_event() if self.flush_mode is FlushMode.APART else None
        return int((event or record).message.partition)

    def _is_made(self, key: bytes, value: bytes | None) -> bool:
        """Make the change of the last sent record; return whether the key's change is made."""
        made, self._made = self._made, None
        record, self._sent = self._sent, None
        if record is not None:
            self._change(self._place_of(record), key, value, record)
        return made == key or record is not None

    def _set(self, key: bytes, value: bytes | None) -> None:
        if self._is_made(key, value):
            return
        event = current_event()
        if event is not None and self._waits(event.message.partition):
            self._change(event.message.partition, key, value, None)
        else:
            super()._set(key, value)

    def _del(self, key: bytes) -> None:
        # Stock Faust deletes the row where the key was seen last, maybe in the wrong partition.
        if self._is_made(key, None):
            return
        for partition in self._partitions_of(key):
            if self._waits(partition):
                self._change(partition, key, None, None)
            else:
                self._db_for_partition(partition).delete(key)

    def _waits(self, partition: int) -> bool:
        """Whether a change without a record has to wait for the changes before it."""
        return bool(self.overlays.get(partition)) and self.flush_mode is not FlushMode.READ_BACK

    def _change(self, partition: int, key: bytes, value: bytes | None, record: object) -> None:
        share = self._share()
        if share is not None and share.abandoned:
            return  # the change is in no changelog, and would hold later changes back for ever
        overlay = self.overlay_of(partition)
        if partition not in self._dbs:
            self._db_for_partition(partition)  # readers search only open databases
        change = overlay.put(key, value, share)
        if share is not None:
            share.changed.add((self, partition))
        self._key_index[key] = partition
        if record is None:
            overlay.acknowledge(change, NO_RECORD)
        else:
            setattr(record, _CHANGE, (partition, change))

    def overlay_of(self, partition: int) -> Overlay:
        """Return the overlay of ``partition``, created at first use."""
        if self.usage is None:
            raise RuntimeError("this store has no overlay")
        overlay = self.overlays.get(partition)
        if overlay is None:
            kind = ReadBackOverlay if self.flush_mode is FlushMode.READ_BACK else Overlay
            overlay = self.overlays[partition] = kind(self.usage)
            overlay.lands = self.is_apart(partition)
        return overlay

    def is_apart(self, partition: int) -> bool:
        """Whether this worker writes the file of ``partition`` without owning this changelog partition.

        With ``FlushMode.APART`` the rows are in the file of the source's partition, and the changelog
        may have a different number of partitions. No restore writes such a file.
        """
        return (
            self.flush_mode is FlushMode.APART
            and TP(self.table.changelog_topic_name, partition)
            not in self.app.assignor.assigned_actives()
        )

    def _share(self) -> Any:
        """Return the transaction share of the current record; None outside of transactions."""
        return self.app.consumer.transactions.share_at_hand() if self.app.in_transaction else None

    # -- flushing

    def arrived(self, record: FutureMessage) -> None:
        """Note that the changelog has the record; called in the producer's thread."""
        if self.in_other_thread:
            self.app.loop.call_soon_threadsafe(self._arrived, record)
        else:
            self._arrived(record)

    def _arrived(self, record: FutureMessage) -> None:
        made: tuple[int, Change] | None = getattr(record, _CHANGE, None)
        if made is not None:
            partition, change = made
            offset = NO_RECORD if self.flush_mode is FlushMode.APART else record.result().offset
            self.overlay_of(partition).acknowledge(change, offset)
            if change.counts:
                self.flushing.soon(partition)

    def report_failure(self, partition: int, error: Exception) -> bool:
        """Report a failed write of the file to the recovery; return False for an unexpected error."""
        return False

    def doubt(self, partition: int, offset: int) -> bool:
        """Return whether a file beyond ``offset``, a new change's offset, must not be written."""
        return False

    def file_offset(self, partition: int) -> int:
        """Return the changelog offset that the file of ``partition`` contains; NO_RECORD without one."""
        return offset_in(self._db_for_partition(partition), self.offset_key)

    async def stop(self) -> None:
        """Flush the acknowledged changes before the databases are closed."""
        self.flushing.discard()
        await super().stop()

    def reset_state(self) -> None:
        """Drop all changes and remove the files."""
        for partition in self.overlays:
            self.flushing.drop(partition)
        super().reset_state()

    # -- records of other writers

    def apply_changelog_batch(
        self,
        batch: Iterable[Any],
        to_key: Callable[[object], object],
        to_value: Callable[[object], object],
    ) -> None:
        """Write the records' rows and their last offset in one write; Faust uses two writes."""
        if self.usage is None:
            super().apply_changelog_batch(batch, to_key, to_value)
            return
        for partition, (rows, end) in sorted(rows_beyond(batch, cache(self.file_offset)).items()):
            write(self._db_for_partition(partition), rows, (self.offset_key, end))
            if partition in self.overlays:
                self.overlays[partition].read(end)

    # -- readers

    def _partitions_of(self, key: bytes) -> list[int]:
        """Return the partition where ``key`` was seen last, else all open partitions."""
        partition = self._key_index.get(key)
        return sorted(self._dbs) if partition is None or partition not in self._dbs else [partition]

    def _get(self, key: bytes) -> bytes | None:
        if not self.overlays:
            found: bytes | None = super()._get(key)
            return found
        event = current_event()
        if event is not None and not self.table.is_global and not self.table.use_partitioner:
            partitions = [event.message.partition]
        else:
            partitions = self._partitions_of(key)
        for partition in partitions:
            value = self._row(partition, key)
            if value is not None:
                self._key_index[key] = partition
                return value
        return None

    def file_row(self, partition: int, key: bytes) -> bytes | None:
        """Return the row in the file, without the waiting changes."""
        found: bytes | None = self._db_for_partition(partition).get(key)
        return found

    def raw_key(self, key: object) -> bytes:
        """Return the key of a row as bytes."""
        raw: bytes = self.app.serializers.dumps_key(
            self.key_type, key, serializer=self.key_serializer
        )
        return raw

    def key_of(self, raw: bytes) -> Any:
        """Return the key of a row from its bytes."""
        return self.app.serializers.loads_key(self.key_type, raw, serializer=self.key_serializer)

    def waiting_rows(self, partition: int) -> list[bytes]:
        """Return the keys of the rows whose changes are not in the file yet."""
        overlay = self.overlays.get(partition)
        return [] if overlay is None else overlay.rows()

    def row_of(self, partition: int, key: bytes) -> bytes | None:
        """Return the row from one partition: the latest waiting change, else the row in the file."""
        return self._row(partition, key)

    def _row(self, partition: int, key: bytes) -> bytes | None:
        overlay = self.overlays.get(partition)
        change = overlay.get(key) if overlay is not None else None
        if change is not None:
            return change.value
        value: bytes | None = self._db_for_partition(partition).get(key)
        return value

    def _contains(self, key: bytes) -> bool:
        return self._get(key) is not None if self.overlays else bool(super()._contains(key))

    def _dbs_for_actives(self) -> Iterator[Rdict]:
        """Yield the databases of the partitions that are owned when the iteration begins.

        Rebalances may open and close databases between two rows.
        """
        owned, topic = self.app.assignor.assigned_actives(), self.table.changelog_topic_name
        for partition in [p for p in self._dbs if self.table.is_global or TP(topic, p) in owned]:
            if partition in self._dbs:
                yield self._dbs[partition]

    def _overlay_of(self, database: Rdict) -> Overlay | None:
        """Return the waiting changes of ``database``; None if there are none."""
        for partition, overlay in self.overlays.items():
            if overlay and self._dbs.get(partition) is database:
                return overlay
        return None

    def check_end(self, db: Rdict, last: bytes | None) -> None:
        """Raise RocksDB's error if the rows after the key ``last`` are unreadable."""
        if self.rocksdb_options.use_rocksdict and any(db is each for each in self._dbs.values()):
            raise_if_cut(db, last)

    def _visible_items(self, db: Rdict) -> Iterator[tuple[bytes, bytes]]:
        overlay = self._overlay_of(db)
        items = self._whole_rows(db, super()._visible_items(db), itemgetter(0))
        return items if overlay is None else overlay.over(items)

    def _visible_keys(self, db: Rdict) -> Iterator[bytes]:
        overlay = self._overlay_of(db)
        keys = self._whole_rows(db, super()._visible_keys(db), bytes)
        if overlay is None:
            return keys
        return (key for key, _ in overlay.over((key, b"") for key in keys))

    def _whole_rows(
        self, db: Rdict, rows: Iterable[T], key_of: Callable[[T], bytes]
    ) -> Iterator[T]:
        """Yield ``rows``, and then check that the iteration of ``db`` was complete."""
        row = None
        for row in rows:
            yield row
        self.check_end(db, None if row is None else key_of(row))
