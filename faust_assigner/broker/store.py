"""Where bytes live: an ordered key-value store, in RocksDB or in memory.

A write is atomic over all its keys. RocksDB's write-ahead log is written before a write returns, so what was
acknowledged survives ``kill -9``; a tail torn by a power loss is cut back to the last whole write
(point-in-time recovery), never further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from rocksdict import DBRecoveryMode, Options, Rdict, WriteBatch, WriteOptions

from faust_assigner.errors import FaustAssignerError

BLOB_FROM_BYTES = 1_024
KEEP_INFO_LOGS = 2
LONGEST_KEY_TAIL = 32


class StoreFailed(FaustAssignerError, OSError):
    """The disk refused (no space, i/o error, corruption); nothing of the write holds."""


class Store(Protocol):
    """Ordered keys to values."""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys."""

    def write(
        self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = (), *, sync: bool = False
    ) -> None:
        """Put and delete, all or nothing; ``sync`` waits for the disk. Raises StoreFailed."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``, in key order."""

    def drop(self, prefix: bytes, keys: Iterable[bytes]) -> None:
        """Drop every key that starts with ``prefix``; ``keys`` are those known, for a store without order."""

    def close(self) -> None:
        """Release files and locks."""


class MemoryStore:
    """A dict; gone with the process."""

    def __init__(self) -> None:
        self._pairs: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return self._pairs.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys."""
        return [self._pairs.get(key) for key in keys]

    def write(
        self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = (), *, sync: bool = False
    ) -> None:
        """Put and delete."""
        self._pairs.update(puts)
        for key in deletes:
            self._pairs.pop(key, None)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``; cost O(all keys)."""
        return iter(sorted((k, v) for k, v in self._pairs.items() if k.startswith(prefix)))

    def drop(self, prefix: bytes, keys: Iterable[bytes]) -> None:
        """Drop the keys known."""
        self.write((), keys)

    def close(self) -> None:
        """Nothing to release."""


class RocksStore:
    """RocksDB through rocksdict, values above 1 KiB in blob files (a log is written once, read forward)."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_enable_blob_files(True)
        options.set_min_blob_size(BLOB_FROM_BYTES)
        options.set_enable_blob_gc(True)
        options.set_keep_log_file_num(KEEP_INFO_LOGS)
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        try:
            self._db: Any = Rdict(str(folder), options)
        except Exception as error:
            raise StoreFailed(f"cannot open {folder}: {error}") from error
        self._synced = WriteOptions()
        self._synced.sync = True

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        value: bytes | None = _guarded(self._db.get, key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys."""
        values: list[bytes | None] = _guarded(self._db.get, list(keys))
        return values

    def write(
        self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = (), *, sync: bool = False
    ) -> None:
        """Put and delete, all or nothing; ``sync`` waits for the disk."""
        batch = WriteBatch(raw_mode=True)
        for key, value in puts:
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)
        if sync:
            _guarded(self._db.write, batch, self._synced)
        else:
            _guarded(self._db.write, batch)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``, in key order."""
        try:
            for key, value in self._db.items(from_key=prefix):
                if not key.startswith(prefix):
                    return
                yield key, value
        except Exception as error:
            raise StoreFailed(str(error)) from error

    def drop(self, prefix: bytes, keys: Iterable[bytes]) -> None:
        """Drop every key that starts with ``prefix``."""
        _guarded(self._db.delete_range, prefix, prefix + b"\xff" * LONGEST_KEY_TAIL)

    def close(self) -> None:
        """Flush and release the lock."""
        self._db.close()


def _guarded(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        raise StoreFailed(str(error)) from error


def open_store(folder: Path | None) -> Store:
    """RocksDB in ``folder``, or memory without one."""
    return MemoryStore() if folder is None else RocksStore(folder)
