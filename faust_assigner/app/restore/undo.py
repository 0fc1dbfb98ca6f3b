"""What a transaction changes in a RocksDB table is taken back where the transaction was not committed.

Under ``exactly_once`` a store has a new value at once, its changelog and the committed offsets only with the
commit. Stock's files keep the value when the transaction is aborted, by a kill say: its records are processed
again, on top of what they did before. Here the first change that a transaction makes to a key writes down,
before, what the key had:

    b"__faust_assigner_undo\\0" + number of the share, 8 bytes + key  ->  b"\\x01" + value, or b"" for none

In the same database, so that no order of writes is lost in a crash. Once Kafka has committed, these records
are deleted. A recovery begins by putting back what is left of them, the oldest of each key, and then replays
the changelog from the offset in the database. That is exact although a commit may have come through without
its records being deleted: what it changed is in the changelog, behind that offset.

Cost: a read and a write for each key a transaction changes, and a delete at its commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import rocksdict
from faust.streams import current_event
from mode import get_logger

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import RocksDBBase as Store
else:
    Store = object

logger = get_logger(__name__)

PREFIX = b"__faust_assigner_undo\0"
_KEY_AT = len(PREFIX) + 8
_NOTHING = b""
_HAD = b"\x01"


def undo_key(number: int, key: bytes) -> bytes:
    """Where the value is kept that ``key`` had before share ``number``; ascending by number."""
    return PREFIX + number.to_bytes(8, "big") + key


def put_back(database: Any) -> int:
    """Give each changed key the value it had before the oldest share that is left; returns how many.

    One write: all of it, or nothing.
    """
    batch, seen = rocksdict.WriteBatch(raw_mode=True), set[bytes]()
    for place, before in database.items(from_key=PREFIX):
        if not place.startswith(PREFIX):
            break
        key = place[_KEY_AT:]
        if key not in seen:
            seen.add(key)
            if before == _NOTHING:
                batch.delete(key)
            else:
                batch.put(key, before[len(_HAD):])
        batch.delete(place)
    if seen:
        database.write(batch)
    return len(seen)


class UndoableStore(Store):
    """Of a RocksDB store: changes within a transaction can be taken back; nobody sees the records for it."""

    def _share(self) -> Any:
        """The share that the record at hand belongs to; None outside of transactions."""
        if not self.app.in_transaction or not self.use_rocksdict:
            return None
        share_at_hand = getattr(self.app.consumer.transactions, "share_at_hand", None)
        return None if share_at_hand is None else share_at_hand()

    def _set(self, key: bytes, value: bytes | None) -> None:
        if (share := self._share()) is not None:
            self._write_down(share, current_event().message.partition, key)
        super()._set(key, value)

    def _del(self, key: bytes) -> None:
        if (share := self._share()) is not None:
            databases = list(self._dbs_for_key(key))
            for partition, database in sorted(self._dbs.items(), key=lambda item: item[0]):
                if any(database is one for one in databases):
                    self._write_down(share, partition, key)
        super()._del(key)

    def _write_down(self, share: Any, partition: int, key: bytes) -> None:
        known: set[bytes] = share.changed.setdefault((self, partition), set())
        if key in known:
            return
        database = self._db_for_partition(partition)
        before = database.get(key)
        database.put(undo_key(share.number, key), _NOTHING if before is None else _HAD + before)
        known.add(key)

    def _visible_keys(self, db: Any) -> Iterator[bytes]:
        return (key for key in super()._visible_keys(db) if not key.startswith(PREFIX))

    def _visible_items(self, db: Any) -> Iterator[tuple[bytes, bytes]]:
        return (item for item in super()._visible_items(db) if not item[0].startswith(PREFIX))

    def changes_committed(self, partition: int, number: int, keys: Iterable[bytes]) -> None:
        """The transaction of share ``number`` is committed: what it changed stays."""
        database = self._dbs.get(partition)
        if database is None:
            return  # closed since; a recovery puts it back, and has it from the changelog
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(undo_key(number, key))
        database.write(batch)

    def undo(self, partition: int) -> None:
        """Take back what no commit covers; the replay from the offset in the database comes after it."""
        if changed := put_back(self._db_for_partition(partition)):
            logger.info("%s-%d: %d keys were put back to what they were before a transaction that was not "
                        "committed", self.table.name, partition, changed)
