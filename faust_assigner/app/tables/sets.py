"""Sets in tables: as in other tables, a file's rows are the table at the file's offset.

Faust writes the row of a set before the operation is applied to the set. Faust's replay changes
only the sets in memory, while the file's offset advances. At the end of each recovery Faust loads
all sets from the rows, which lack these changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from faust.models import maybe_model
from faust.stores.memory import Store as MemoryStore
from faust.streams import current_event

from faust_assigner.app.tables.disk import offset_or_minus_one
from faust_assigner.app.tables.store import WriteBehindStore

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.host.table_bases import SetsBase as Sets
else:
    Sets = object


class WriteBehindSets(Sets):
    """The sets of a table; each set is equal to its row.

    Records of several partitions may change one set of a global table. Each partition has its own row
    then, with the operations of its changelog, and the set has the elements of all these rows.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: Key -> the partition of its set.
        self.partitions: dict[Any, int] = {}
        super().__init__(*args, **kwargs)

    @property
    def _rows(self) -> Any:
        """The store if it is RocksDB; None for a store in memory, where a row is the set itself."""
        return self.storage if isinstance(self.storage, WriteBehindStore) else None

    def send_changelog_event(self, key: object, operation: int, value: object) -> None:
        """Send the operation, and store the set's row as it will be after the operation."""
        event = current_event()
        if event is None:
            raise RuntimeError("a set in a table can be changed only by an agent")
        partition = event.message.partition
        self.partitions[key] = partition
        if self._rows is None:
            super().send_changelog_event(key, operation, value)
            return
        self.table.send_changelog(partition, (operation, key), value)
        before = self[key].data
        if self.table.is_global:
            before = self._elements(self._rows.row_of(partition, self._rows.raw_key(key)))
        after = self._set_of(key, before)
        after.apply_changelog_event(operation, value)
        self.storage[key] = after.as_stored_value()

    def apply_changelog_batch(
        self,
        batch: Iterable[Any],
        to_key: Callable[[object], object],
        to_value: Callable[[object], object],
    ) -> None:
        """Apply replayed operations to the rows of their partitions, then load the sets from these rows."""
        rows, events = self._rows, list(batch)
        if rows is None:
            super().apply_changelog_batch(events, to_key, to_value)
            for event in events:
                key = to_key(event.key[1])
                self.storage[key] = self[key].as_stored_value()
                self.partitions[key] = event.message.partition
            return
        folded, ends = self._apply_operations(events, to_key, to_value)
        after = {place: self._row_of(one) for place, one in folded.items()}
        before = {
            (tp, raw): rows.file_row(tp.partition, raw)
            for tp, raw in (after if self.table.is_global else ())
        }
        rows.apply_changelog_batch(
            [
                SimpleNamespace(
                    message=SimpleNamespace(
                        tp=tp,
                        partition=tp.partition,
                        offset=ends[tp],
                        key=raw,
                        value=row,
                    )
                )
                for (tp, raw), row in after.items()
            ],
            to_key,
            to_value,
        )
        for (tp, raw), row in after.items():
            if self.table.is_global:
                self._merge(tp.partition, raw, before[tp, raw], row)
            else:
                self._take(tp.partition, raw)

    def _apply_operations(
        self,
        events: Iterable[Any],
        to_key: Callable[[object], object],
        to_value: Callable[[object], object],
    ) -> tuple[dict[tuple[TP, bytes], Any], dict[TP, int]]:
        """Return (partition, key) -> the row's set after the operations, and partition -> the last offset."""
        rows = self._rows
        folded: dict[tuple[TP, bytes], Any] = {}
        ends: dict[TP, int] = {}
        for event in events:
            tp, offset = event.message.tp, event.message.offset
            if offset <= ends.setdefault(tp, offset_or_minus_one(rows.persisted_offset(tp))):
                continue  # already applied; a later operation may have removed the element
            operation, key = event.key
            place = tp, rows.raw_key(to_key(key))
            if place not in folded:
                row = rows.file_row(tp.partition, place[1])
                folded[place] = self._set_of(key, self._elements(row))
            folded[place].apply_changelog_event(operation, to_value(event.value))
            ends[tp] = offset
        return folded, ends

    def dropped(self, partition: int, keys: Collection[bytes]) -> None:
        """Load the sets of ``keys`` again, because changes of their rows were dropped."""
        for raw in sorted(keys):
            self._take(partition, raw)

    def drop(self, partitions: Collection[int]) -> None:
        """Empty the sets of revoked partitions: the next owners change them. Cost: a look at each set."""
        for key in [key for key, number in self.partitions.items() if number in partitions]:
            del self.partitions[key]
            self[key].sync_from_storage(())
            if isinstance(self.storage, MemoryStore):
                self.storage.data.pop(key, None)

    def sync_from_storage(self) -> None:
        """Load all sets from their rows."""
        rows = self._rows
        if rows is None:
            super().sync_from_storage()
            return
        numbers = {id(database): partition for partition, database in rows._dbs.items()}
        found: dict[bytes, list[object]] = {}
        for database in rows._dbs_for_actives():
            for raw, row in rows._visible_items(database):
                others = found.get(raw, []) if self.table.is_global else []
                found[raw] = others + self._elements(row)
                self.partitions[self._key(raw)] = numbers[id(database)]
        for raw, elements in found.items():
            self[self._key(raw)].sync_from_storage(elements)

    def _merge(self, partition: int, raw: bytes, before: bytes | None, after: bytes | None) -> None:
        """Take the change of one partition's row over into a set of a global table.

        The rows of other partitions are read only if elements were removed.
        """
        rows, one, there = self._rows, self[self._key(raw)], set(self._elements(after))
        gone = set(self._elements(before)) - there
        if gone:
            for other in rows._dbs.keys() - {partition}:
                gone.difference_update(self._elements(rows.row_of(other, raw)))
        one.sync_from_storage((one.data | there) - gone)

    def _take(self, partition: int, raw: bytes) -> None:
        # Change the set in place, because agents may hold a reference to it. A set whose file is
        # closed is read when the file is opened again.
        rows, key = self._rows, self._key(raw)
        places = sorted(rows._dbs) if self.table.is_global else rows._dbs.keys() & {partition}
        found = [element for p in places for element in self._elements(rows.row_of(p, raw))]
        self.partitions[key] = partition
        self[key].sync_from_storage(found)

    def _key(self, raw: bytes) -> object:
        return self.table._to_key(self.storage.key_of(raw))

    def _row_of(self, one: Any) -> bytes | None:
        rows = self.storage
        encode = rows.app.serializers.dumps_value
        row: bytes | None = encode(
            rows.value_type, one.as_stored_value(), serializer=rows.value_serializer
        )
        return row

    def _set_of(self, key: object, elements: Iterable[object]) -> Any:
        """Return a new set with these elements."""
        made = self.ValueType(self, key)
        made.sync_from_storage(elements)
        return made

    def _elements(self, row: bytes | None) -> list[object]:
        """Decode each element by itself: Faust decodes the list as one value of the value type."""
        loads, how = self.table.app.serializers.loads_value, self.storage.value_serializer
        return [maybe_model(element) for element in loads(None, row, serializer=how) or ()]
