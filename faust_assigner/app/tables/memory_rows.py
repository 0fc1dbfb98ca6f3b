"""The rows of a table in memory: replayed in the order of their records, dropped with their partition.

Faust applies the values of a batch first and its deletions last. A row that is deleted and then set
to 0 in one batch is lost. Faust also keeps the rows of a revoked partition that agents have written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Any

from faust.stores.memory import Store

from faust_assigner.app.tables.sets import WriteBehindSets

if TYPE_CHECKING:
    from faust.tables.table import Table
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP, FutureMessage


class MemoryRows(Store):  # type: ignore[misc]
    """Faust's store in memory, with the partition of each row."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: Key -> the partition of its row. Keys of rows that are deleted elsewhere may remain.
        self.partitions: dict[Any, int] = {}
        super().__init__(*args, **kwargs)

    def apply_changelog_batch(
        self,
        batch: Iterable[Any],
        to_key: Callable[[object], object],
        to_value: Callable[[object], object],
    ) -> None:
        """Apply replayed records in their order. Raises TypeError for a record without a key."""
        for event in batch:
            if event.message.key is None:
                raise TypeError(f"Changelog entry is missing key: {event.message}")
            key, deletes = to_key(event.key), event.message.value is None
            if deletes:
                self.data.pop(key, None)
            else:
                self.data[key] = to_value(event.value)
            self.note(key, None if deletes else event.message.partition)

    def note(self, key: object, partition: int | None) -> None:
        """Note the partition of a row; None for a deleted row."""
        if partition is None:
            self.partitions.pop(key, None)
        else:
            self.partitions[key] = partition

    def drop(self, partitions: Collection[int]) -> None:
        """Drop the rows of revoked partitions. Cost: a look at each row of the table."""
        for key in [key for key, number in self.partitions.items() if number in partitions]:
            del self.partitions[key]
            self.data.pop(key, None)


def note_sent_rows(table: Table, store: MemoryRows) -> None:
    """Note the partitions of the rows that agents change from now on.

    A function that stands in place of the table's method, as in a test of an app, stays.
    """
    if "send_changelog" not in vars(table):
        table.send_changelog = partial(_send, store, table.send_changelog)


def _send(
    store: MemoryRows,
    send_changelog: Callable[..., FutureMessage],
    partition: int | None,
    key: object,
    value: object,
    *args: object,
    **kwargs: object,
) -> FutureMessage:
    """Send a change of an agent, and note the partition of its row."""
    record = send_changelog(partition, key, value, *args, **kwargs)
    store.note(key, None if value is None else record.message.partition)
    return record


def revoked(tables: Mapping[TP, CollectionT], tps: Set[TP]) -> None:
    """Drop what ``tables`` have in memory of revoked partitions: rows, or sets."""
    gone: dict[CollectionT, set[int]] = {}
    for tp in tps & tables.keys():
        gone.setdefault(tables[tp], set()).add(tp.partition)
    for table, partitions in gone.items():
        if isinstance(table.data, MemoryRows | WriteBehindSets):
            table.data.drop(partitions)
