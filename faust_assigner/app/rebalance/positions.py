"""This member's positions: for each table partition, the next changelog offset to read.

When the member joins, a separate thread first reads the offsets of closed files, so that file
access does not block the consumer's thread. The offset of an open store is read from its database.
The offset in files that no process has open is read without a lock
(:mod:`faust_assigner.app.tables.disk`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import rocksdict
from faust.types.tuples import TP
from mode import get_logger

from faust_assigner.app.tables.disk import (
    is_writable,
    offset_or_minus_one,
    store_of,
    stored_offsets,
)

if TYPE_CHECKING:
    from faust.types.app import AppT
    from rocksdict import Rdict

    from faust_assigner.app.host.table_bases import RecoveryBase, RocksDBBase

logger = get_logger(__name__)

Found = dict[str, dict[int, int]]

#: The attribute of a store in which the offsets of its closed files are cached.
_READ = "_faust_assigner_read"


def positions_of(
    app: AppT,
    held: Mapping[str, Collection[int]],
    owned: Mapping[str, Collection[int]] | None = None,
) -> Found:
    """Return changelog -> partition -> the next offset to read, for tables in RocksDB.

    Partitions with offset 0 are omitted. Tables in memory are omitted too: they are replayed at
    every move, so the leader need not wait for their copies. ``held`` contains all partitions that
    this member owns, has a standby of or has files of. The position of an ``owned`` partition is at
    least the known end of its log, even while the partition is being restored. If this member has
    requested a round because a standby caught up, the standby's position is at least the position
    at that time.
    """
    recovery = app.tables.recovery
    found: Found = {}
    for topic in sorted(held.keys() & app.tables._changelogs.keys()):
        store = store_of(app.tables._changelogs[topic])
        if not is_writable(store):
            continue
        here = _offsets_of_open_databases(store, topic)
        closed = {p: store.partition_path(p) for p in held[topic] if p not in here}
        here.update(
            stored_offsets(
                partial(_for_reading, store),
                {p: path for p, path in closed.items() if path.exists()},
                read=vars(store).setdefault(_READ, {}),
            )
        )
        # The files are behind: applied records are written later, an owner's changes at its commit.
        for offsets in (recovery.standby_offsets, recovery.active_offsets):
            for tp, offset in tuple(offsets.items()):
                if tp.topic == topic and offset is not None and not is_doubtful(recovery, tp):
                    here[tp.partition] = max(here.get(tp.partition, -1), offset)
        for tp, (_, offset) in tuple(app.tables._pending_persisted_offsets.items()):
            if tp.topic == topic:
                here[tp.partition] = max(here.get(tp.partition, -1), offset)
        for tp, position in app.assignor.read_to.items():
            if tp.topic == topic and not is_doubtful(recovery, tp):
                here[tp.partition] = max(here.get(tp.partition, -1), position - 1)
        for p in (owned or {}).get(topic, ()):
            here[p] = max(
                here.get(p, -1), offset_or_minus_one(recovery.active_highwaters.get(TP(topic, p)))
            )
        if here := {
            p: offset + 1 for p, offset in here.items() if offset >= 0 and p in held[topic]
        }:
            found[topic] = here
    return found


def is_doubtful(recovery: RecoveryBase, tp: TP) -> bool:
    """Return whether the database of ``tp`` may lack records that count as read.

    Always False with stock Faust's recovery.
    """
    return hasattr(recovery, "is_doubtful") and bool(recovery.is_doubtful(tp))


def _for_reading(store: RocksDBBase, path: Path) -> Rdict:
    """Open a database read-only; Faust's own ``open`` always writes."""
    return rocksdict.Rdict(
        str(path), store.rocksdb_options.as_options(), access_type=rocksdict.AccessType.read_only()
    )


def _offsets_of_open_databases(store: RocksDBBase, topic: str) -> dict[int, int]:
    """Return partition -> stored offset, for the open databases of ``store``."""
    found: dict[int, int] = {}
    for partition, database in tuple(store._dbs.items()):
        try:
            # Read from the database itself: the store would reopen a closed database, which only
            # the app's thread may do.
            offset = database.get(store.offset_key)
        except Exception as exc:  # the database may have just been closed
            logger.debug("Could not read the offset of %s-%d: %r", topic, partition, exc)
            continue
        if offset is not None:
            found[partition] = int(offset)
    return found
