"""Load and save the records of groups, with Kafka's size limit and error codes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from faust_assigner.broker.groups import group_records, group_store
from faust_assigner.broker.storage.store import Range, Store, StoreFailed, prefix_range
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.records import GroupRecord, Record

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class GroupSaver:
    """Loads, writes and deletes the records of all groups of one store."""

    store: Store
    max_record_bytes: int

    def load(self, group_ids: Iterable[str]) -> dict[str, list[Record]]:
        """Return the stored records by group; an empty list for any of ``group_ids`` without records."""
        found: dict[str, list[Record]] = {group_id: [] for group_id in group_ids}
        for record in group_records.load_records(self.store):
            found.setdefault(record.key.group_id, []).append(record)
        return found

    def save(self, group_id: str, records: Sequence[Record]) -> Code:
        """Write all records of a group, or none; of records with equal keys, only the last is written."""
        # The size comes first: to encode a group of 100 MB would stop all clients for seconds.
        values = (record.value for record in records)
        groups = [value for value in values if isinstance(value, GroupRecord)]
        if self._is_too_large(group_id, map(group_store.limited_size, groups)):
            return Code.UNKNOWN_SERVER_ERROR  # Kafka's answer for a group record that is too large
        puts, deletes = group_records.as_writes(records)
        if self._is_too_large(group_id, (len(value) for key, value in puts if key[:1] == b"m")):
            return Code.UNKNOWN_SERVER_ERROR
        try:
            self.store.write(puts, deletes)
        except StoreFailed as error:
            logger.error("Could not store group %r: %s", group_id, error)
            return Code.NOT_COORDINATOR
        return Code.NONE

    def _is_too_large(self, group_id: str, sizes: Iterable[int]) -> bool:
        size = max(sizes, default=0)
        if size <= self.max_record_bytes:
            return False
        logger.warning(
            "Could not store group %r: its size of %d bytes exceeds message.max.bytes, %d",
            group_id,
            size,
            self.max_record_bytes,
        )
        return True

    def drop(self, group_id: str, offsets: Iterable[bytes]) -> Code:
        """Delete the records of a group, and the keys of its ``offsets``; all or nothing."""
        records = prefix_range(group_records.records_prefix(group_id))
        return delete(self.store, [*offsets, group_store.group_key(group_id)], [records])


def delete(store: Store, deletes: Iterable[bytes], ranges: Iterable[Range] = ()) -> Code:
    """Delete keys of groups. A failure is logged and returned; nothing is deleted then."""
    try:
        store.write((), deletes, ranges=ranges)
    except StoreFailed as error:
        logger.error("Could not delete records or offsets of groups: %s", error)
        return Code.NOT_COORDINATOR
    return Code.NONE
