"""The table partitions with RocksDB files on this machine, found without locking the files.

Faust keeps partition p of a table in the folder ``<tabledir>/<table>-<p>.db``. A folder counts only
if something was written to it: it has an SST file, or a log that is not empty. The database also
stores the offset of its last change.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faust.stores.rocksdb import Store
from mode import get_logger
from yarl import URL

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP
    from rocksdict import Rdict

logger = get_logger(__name__)

#: The maximum number of entries to check in the folder of tables, and in the folder of a database.
MOST_ENTRIES = 100_000
MOST_FILES = 1_000
LARGEST_PARTITION = 2**31 - 1
#: The time limit in seconds for reading the offsets of all files at a process's first join.
READ_BUDGET_S = 5.0

_NUMBER = re.compile(r"-(0|[1-9][0-9]{0,9})\.db\Z")


def partitions_on_disk(app: AppT, tables: Mapping[str, CollectionT]) -> dict[str, list[int]]:
    """Return changelog topic -> partitions on disk, for the tables kept in RocksDB.

    ``tables`` maps changelog topics to tables. A folder that cannot be read counts as
    empty. Cost: one listing per folder of tables and per database found.
    """
    prefixes: dict[Path, dict[str, str]] = {}
    for topic in sorted(tables):
        path = _path_of(app, tables[topic])
        if path is not None:
            prefixes.setdefault(path.parent, {})[path.name] = topic
    found: dict[str, list[int]] = {}
    for folder, topics in prefixes.items():
        for topic, partition in _databases(folder, topics):
            found.setdefault(topic, []).append(partition)
    return {topic: sorted(numbers) for topic, numbers in found.items()}


def in_memory(app: AppT) -> list[str]:
    """Return the names of the tables whose rows are in memory only."""
    return sorted(
        table.name
        for table in app.tables._changelogs.values()
        if URL(str(table._store or app.conf.store)).scheme == "memory"
    )


def state_sizes(tps: Iterable[TP], tables: Mapping[str, CollectionT]) -> dict[TP, int]:
    """Return the bytes on disk of each changelog partition; stores in memory are left out. May
    block.

    ``tables`` maps changelog topics to tables.
    """
    sizes = {}
    for tp in tps:
        store: Any = store_of(tables[tp.topic]) if tp.topic in tables else None
        if hasattr(store, "partition_path"):
            sizes[tp] = tree_bytes(store.partition_path(tp.partition))
    return sizes


def tree_bytes(path: Path) -> int:
    """Return the total size in bytes of all files below a folder. May block."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # RocksDB has removed the file
    return total


def _path_of(app: AppT, table: CollectionT) -> Path | None:
    """Return the path of the table's databases without ``-<p>.db``; None if not in RocksDB."""
    url = URL(str(table._store or app.conf.store))
    if url.scheme != "rocksdb":
        return None
    path: Path = Path(app.conf.tabledir) / (url.path or table.name)
    return path


def _databases(folder: Path, topics: Mapping[str, str]) -> list[tuple[str, int]]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for seen, entry in enumerate(entries):
                if seen >= MOST_ENTRIES:
                    logger.warning(
                        "Folder %s has too many entries: only %d are read, and further table "
                        "files are ignored",
                        folder,
                        MOST_ENTRIES,
                    )
                    break
                number = _NUMBER.search(entry.name)
                topic = topics.get(entry.name[: number.start()]) if number else None
                if number and topic and int(number[1]) <= LARGEST_PARTITION and _has_rows(entry):
                    found.append((topic, int(number[1])))
    except OSError as exc:
        if not isinstance(exc, FileNotFoundError):
            logger.warning("Could not list the table files in %s: %s", folder, exc)
    return found


def _has_rows(database: os.DirEntry[str]) -> bool:
    try:
        if not database.is_dir():
            return False
        with os.scandir(database.path) as files:
            for seen, file in enumerate(files):
                if seen >= MOST_FILES or file.name.endswith(".sst"):
                    return True
                if file.name.endswith(".log") and file.stat().st_size > 0:
                    return True
    except OSError:
        return False
    return False


#: Path of a database -> its files when the database was read, and the offset in the database.
Read = dict[Path, tuple[object, int | None]]


def stored_offsets(
    open_: Callable[[Path], object],
    databases: Mapping[int, Path],
    *,
    budget_s: float = READ_BUDGET_S,
    read: Read | None = None,
) -> dict[int, int]:
    """Return partition -> the changelog offset in the database, without databases that have no
    offset.

    ``open_`` opens a database for reading only, even while another process has the database open. A
    database that cannot be read is left out, so the leader counts its copy as far behind. A
    database that was ``read`` before is not opened again while its files are unchanged.

    Cost: some milliseconds per database, up to ``budget_s`` in all. A database read before costs
    one listing of its folder.
    """
    found: dict[int, int] = {}
    read = {} if read is None else read
    until = time.monotonic() + budget_s
    for partition, path in sorted(databases.items()):
        if time.monotonic() > until:
            logger.warning(
                "Read the positions of %d of %d table files in %.0f s; the remaining files "
                "count as far behind",
                len(found),
                len(databases),
                budget_s,
            )
            break
        try:
            look = _file_fingerprint(path)
            if path not in read or read[path][0] != look:
                read[path] = look, _stored_offset(open_(path))
            offset = read[path][1]
        except Exception as exc:  # rocksdict raises RocksDB's errors as plain exceptions
            logger.debug("Could not read the position of the table file %s: %s", path, exc)
            continue
        if offset is not None:
            found[partition] = offset
    return found


def _file_fingerprint(database: Path) -> object:
    """Return names, sizes and times of the files with rows, without ``LOG``."""
    with os.scandir(database) as files:
        return sorted(
            (file.name, (found := file.stat()).st_size, found.st_mtime_ns)
            for file in files
            if file.name.endswith((".log", ".sst")) or file.name.startswith("MANIFEST")
        )


def _stored_offset(database: Rdict) -> int | None:
    try:
        raw = database.get(Store.offset_key)
    finally:
        database.close()
    return None if raw is None else int(raw)


def offset_or_minus_one(offset: int | None) -> int:
    """Return ``offset``, or -1 for None, which means that no record has been read."""
    return -1 if offset is None else offset


def store_of(table: CollectionT) -> Any:
    """Return the store with the table's rows: its data, or the storage beneath a table of sets."""
    store = table.data
    return getattr(store, "storage", store)


def is_writable(store: object) -> bool:
    """Whether the store is a RocksDB store through rocksdict that this worker may write."""
    return isinstance(store, Store) and store.rocksdb_options.use_rocksdict and not store.read_only


def takes_files(store: Any) -> bool:
    """Whether SST files of plain values can be ingested; with a TTL each value contains a time."""
    return is_writable(store) and store.rocksdb_options.ttl is None
