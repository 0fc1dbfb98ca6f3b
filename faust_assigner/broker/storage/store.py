"""Where bytes live: an ordered key-value store, in RocksDB or in memory.

A write is atomic over all its keys. RocksDB's write-ahead log is written before a write returns, so what was
acknowledged survives ``kill -9``; a tail torn by a power loss is cut back to the last whole write
(point-in-time recovery), never further. Whether more than that is missing is what the witness beside the
store says (:mod:`faust_assigner.broker.storage.witness`).
"""

from __future__ import annotations

import logging
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rocksdict import DBRecoveryMode, Options, Rdict, ReadOptions, WriteBatch

from faust_assigner.broker.limits import CACHED_BATCH_BYTES
from faust_assigner.broker.storage.witness import Witness
from faust_assigner.errors import FaustAssignerError

logger = logging.getLogger(__name__)
FORMAT = b"format"  # the key of the version
#: Version 2 has transactions. It is written when a producer first asks for one: an older broker would serve
#: the aborted records of such a store as committed ones. Version 3 has compacted logs, which an older broker
#: would take for damaged ones.
FORMAT_VERSIONS = (b"1", b"2", b"3")
WITH_TRANSACTIONS, WITH_COMPACTION = FORMAT_VERSIONS[1:]
BLOB_FROM_BYTES = 1_024
KEEP_INFO_LOGS = 2
SMALLEST_BUFFER, LARGEST_BUFFER = (
    2**20,
    16 * 2**20,
)  # of writes in memory; a sixteenth of the disk between
ROOM_IN_BUFFERS = 3  # kept free: one is being flushed, one fills, one for compaction
FEW_KEYS = (
    16  # fewer are deleted one by one: a range tombstone costs every read until it is compacted
)


class StoreFailed(FaustAssignerError, OSError):
    """The disk refused (no space, i/o error, corruption); nothing of the write holds."""


Keys = Callable[[], Iterable[bytes]]


class Range(NamedTuple):
    """Keys to delete, from ``first`` to before ``beyond``: how many, and which, where the caller knows."""

    first: bytes
    beyond: bytes
    size: int | None = None
    known: Keys | None = None


def prefix_range(prefix: bytes, size: int | None = None, known: Keys | None = None) -> Range:
    """Every key that starts with ``prefix``.

    >>> prefix_range(b"ab")[:2], prefix_range(b"a\\xff")[:2]
    ((b'ab', b'ac'), (b'a\\xff', b'b'))
    """
    head = prefix.rstrip(b"\xff")
    beyond = head[:-1] + bytes([head[-1] + 1]) if head else b"\xff" * 64
    return Range(prefix, beyond, size, known)


def raise_format(store: Store, version: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """The write that makes the store's format ``version``; none where it is that or a later one."""
    return () if (store.get(FORMAT) or b"") >= version else ((FORMAT, version),)


class Store(Protocol):
    """Ordered keys to values."""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None. From any thread."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys. From any thread."""

    def peek(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """The values, where all of them are in memory; else None."""

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
        is_rewrite: bool = False,
    ) -> None:
        """Delete and put, all or nothing. Raises StoreFailed.

        ``is_rewrite``: the batches are old ones in a new form, and no reader waits for them.
        """

    def flush(self) -> int:
        """Wait for the disk: how many writes are on it for sure. From any thread. Raises StoreFailed."""

    def note_flushed(self, writes: int) -> None:
        """So many writes are on the disk, for the witness."""

    def note_end(self, place: bytes, end: int) -> None:
        """Where a partition ends, for the witness."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``, in key order; never walks beyond it."""

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

    def peek(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """The values."""
        found = [self._pairs.get(key) for key in keys]
        return None if None in found else found  # type: ignore[return-value]

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
        is_rewrite: bool = False,
    ) -> None:
        """Delete and put; a range whose keys are not given costs O(all keys)."""
        for first, beyond, _, known in ranges:
            for key in (
                [k for k in self._pairs if first <= k < beyond] if known is None else known()
            ):
                self._pairs.pop(key, None)
        self._pairs.update(puts)
        for key in deletes:
            self._pairs.pop(key, None)

    def flush(self) -> int:
        """Nothing outlives the process."""
        return 0

    def note_flushed(self, writes: int) -> None:
        """Nothing outlives the process."""

    def note_end(self, place: bytes, end: int) -> None:
        """Nothing outlives the process."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``; cost O(all keys)."""
        return iter(sorted((k, v) for k, v in self._pairs.items() if k.startswith(prefix)))

    def close(self) -> None:
        """Nothing to release."""


class RecentBatches:
    """The batches written last, in memory: a reader at the end of a log asks no disk. One thread only."""

    def __init__(self, limit_bytes: int = CACHED_BATCH_BYTES) -> None:
        self._limit = limit_bytes
        self._size = 0
        self._pairs: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        """The value, if it is still here."""
        return self._pairs.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Remember; the oldest go when there is too much."""
        self.drop(key)
        self._pairs[key] = value
        self._size += len(value)
        while self._size > self._limit:
            self._size -= len(self._pairs.popitem(last=False)[1])

    def drop(self, key: bytes) -> None:
        """Forget."""
        self._size -= len(self._pairs.pop(key, b""))


class RocksStore:
    """RocksDB through rocksdict, values above 1 KiB in blob files (a log is written once, read forward).

    ``get``, ``get_many``, ``scan`` and ``flush`` may run in any thread, the rest in one.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        # What is written is in memory and in the write-ahead log, and needs that room again to be flushed.
        self._buffer = max(
            min(shutil.disk_usage(folder).total // 16, LARGEST_BUFFER), SMALLEST_BUFFER
        )
        self._unmeasured = self._buffer  # bytes written since free space was looked at
        self._is_low = False
        self._is_broken = False
        self._db: Any = self._open()
        try:
            self.witness = Witness(folder)
        except OSError as error:
            self._db.close()
            raise StoreFailed(f"cannot open {folder}: {error}") from error
        self._recent = RecentBatches()
        self.lost_writes = self.witness.lacks(self.sequence)

    @property
    def sequence(self) -> int:
        """How many writes the store holds."""
        return int(self._db.latest_sequence_number())

    def _open(self) -> Any:
        options = Options(raw_mode=True)
        # Where a store has been, a missing one is a loss and no fresh start.
        options.create_if_missing(not Witness.stands_in(self._folder))
        options.set_enable_blob_files(True)
        options.set_min_blob_size(BLOB_FROM_BYTES)
        options.set_enable_blob_gc(True)
        options.set_keep_log_file_num(KEEP_INFO_LOGS)
        options.set_write_buffer_size(self._buffer)
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        try:
            return Rdict(str(self._folder), options)
        except Exception as error:
            raise StoreFailed(f"cannot open {self._folder}: {error}") from error

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        value: bytes | None = _guarded(self._db.get, key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys."""
        values: list[bytes | None] = _guarded(self._db.get, list(keys))
        return values

    def peek(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """The values, where all of them were written lately; else None."""
        found = [self._recent.get(key) for key in keys]
        return None if None in found else found  # type: ignore[return-value]

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
        is_rewrite: bool = False,
    ) -> None:
        """Delete and put, all or nothing.

        Records are refused while the disk is nearly full, so that there is room to delete some.
        """
        if self._is_broken:
            self._reopen()
        batch = WriteBatch(raw_mode=True)
        fresh: list[tuple[bytes, bytes]] = []
        for first, beyond, size, known in ranges:
            if known is None or size is None or size > FEW_KEYS:
                batch.delete_range(first, beyond)
            else:
                for key in known():
                    batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
            if key[:1] == b"b":
                fresh.append((key, value))
        for key in deletes:
            batch.delete(key)
            self._recent.drop(
                key
            )  # a range leaves its batches there until newer ones push them out
        if fresh:
            self._need_room(sum(len(value) for _, value in fresh))
        try:
            _guarded(self._db.write, batch)
        except StoreFailed:
            self._is_broken = True  # RocksDB takes nothing more until it is opened again
            raise
        self.witness.note(self.sequence)
        for key, value in fresh:
            if not is_rewrite or self._recent.get(key) is not None:
                self._recent.put(key, value)

    def _need_room(self, size: int) -> None:
        self._unmeasured += size
        if self._is_low or self._unmeasured >= self._buffer // 16:
            free = shutil.disk_usage(self._folder).free
            self._unmeasured, self._is_low = 0, free < ROOM_IN_BUFFERS * self._buffer
        if self._is_low:
            raise StoreFailed(
                f"no space: less than {ROOM_IN_BUFFERS * self._buffer} bytes are free"
            )

    def _reopen(self) -> None:
        if shutil.disk_usage(self._folder).free < 2 * self._buffer:
            raise StoreFailed(f"no space: less than {2 * self._buffer} bytes are free")
        try:
            self._db.close()
        except Exception as error:
            logger.info("the store broke and is opened again: %s", error)
        self._db = self._open()
        self._is_broken = False

    @property
    def is_low(self) -> bool:
        """Whether records are refused for want of space."""
        return self._is_low

    def reclaim(self) -> None:
        """Give back what deletions freed; in any thread, takes a while."""
        _guarded(self._db.flush)
        _guarded(self._db.compact_range, None, None)

    def flush(self) -> int:
        """Wait for the disk: how many writes are on it for sure. A disk that fails breaks the store."""
        writes = self.sequence
        try:
            _guarded(self._db.flush_wal, True)
        except StoreFailed:
            self._is_broken = True
            raise
        return writes

    def note_flushed(self, writes: int) -> None:
        """So many writes are on the disk, for the witness."""
        self.witness.note_synced(writes)

    def note_end(self, place: bytes, end: int) -> None:
        """Where a partition ends, for the witness."""
        self.witness.note_end(place, end)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every pair whose key starts with ``prefix``, in key order; never walks beyond it."""
        span = prefix_range(prefix)
        bounded = ReadOptions()
        bounded.set_iterate_upper_bound(span.beyond)
        try:
            yield from self._db.items(from_key=span.first, read_opt=bounded)
        except Exception as error:
            raise StoreFailed(str(error)) from error

    def close(self) -> None:
        """Flush and release the lock."""
        try:
            self._db.close()
        except Exception as error:
            logger.warning(
                "the store is closed with its last writes in the write-ahead log: %s", error
            )
        self.witness.close()


def _guarded(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        raise StoreFailed(str(error)) from error


def open_store(folder: Path | None) -> Store:
    """RocksDB in ``folder``, or memory without one."""
    return MemoryStore() if folder is None else RocksStore(folder)
