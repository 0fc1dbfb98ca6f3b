"""How far this member's state has come: of each table partition it holds, the offset up to which it was read.

Asked for when the member joins, on the consumer's thread, and before that in a thread of its own, so that
reading files holds up nobody. What is open is asked; of files that no process has
open yet the offset inside is read without a lock (:mod:`faust_assigner.app.tables.disk`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import rocksdict
from faust.types import TP
from mode import get_logger

from faust_assigner.app.recovery.restoring import is_writable
from faust_assigner.app.tables.disk import known, stored_offsets
from faust_assigner.app.tables.files import store_of

logger = get_logger(__name__)

Found = dict[str, dict[int, int]]

#: Where a store has what its files said when they were closed.
_READ = "_faust_assigner_read"


def positions_of(
    app: Any,
    held: Mapping[str, Collection[int]],
    owned: Mapping[str, Collection[int]] | None = None,
) -> Found:
    """Changelog -> partition -> the next offset to read, of tables kept in RocksDB; 0 is left out.

    ``held`` is what this member says that it owns, keeps warm or has files of. Of what is ``owned`` the end
    of the log is told as far as it is known: while it is restored that is further than the state is. Tables
    kept in memory are replayed whenever they change hands, so that nothing is won by waiting for them: they
    say nothing. Of copies that had caught up when a round was asked for it is at least what was read then,
    though there be no record in it, as of transactions that were aborted.
    """
    recovery = app.tables.recovery
    found: Found = {}
    for topic in sorted(held.keys() & app.tables._changelogs.keys()):
        store = store_of(app.tables._changelogs[topic])
        if not is_writable(store):
            continue
        here = _opened(store, topic)
        closed = {p: store.partition_path(p) for p in held[topic] if p not in here}
        here.update(
            stored_offsets(
                partial(_for_reading, store),
                {p: path for p, path in closed.items() if path.exists()},
                read=vars(store).setdefault(_READ, {}),
            )
        )
        # What is applied is on disk a little later; what was written by an owner is on disk at its commit.
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
            here[p] = max(here.get(p, -1), known(recovery.active_highwaters.get(TP(topic, p))))
        if here := {
            p: offset + 1 for p, offset in here.items() if offset >= 0 and p in held[topic]
        }:
            found[topic] = here
    return found


def is_doubtful(recovery: Any, tp: TP) -> bool:
    """Whether the database of ``tp`` may lack what counts as read; never without the repairs."""
    return hasattr(recovery, "is_doubtful") and bool(recovery.is_doubtful(tp))


def _for_reading(store: Any, path: Path) -> Any:
    """Faust's own ``open`` writes, whatever it is asked."""
    return rocksdict.Rdict(
        str(path), store.rocksdb_options.as_options(), access_type=rocksdict.AccessType.read_only()
    )


def _opened(store: Any, topic: str) -> dict[int, int]:
    """Partition -> the offset inside, of databases that are open."""
    found: dict[int, int] = {}
    for partition, database in tuple(store._dbs.items()):
        try:
            # Not by the store, which would open it again; that is for the thread of the streams.
            offset = database.get(store.offset_key)
        except Exception as exc:  # it may be closed just now
            logger.debug("The offset of %s-%d cannot be read: %r", topic, partition, exc)
            continue
        if offset is not None:
            found[partition] = int(offset)
    return found
