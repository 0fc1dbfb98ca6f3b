"""The store on a disk: RocksDB, with a cache of the latest batches.

A write is atomic over all its keys. RocksDB writes its write-ahead log before a write returns, so
acknowledged data survives ``kill -9``. A power loss may leave an incomplete write in this log: recovery then
keeps all writes before it (point-in-time recovery). ``write_audit.py`` detects any further loss.
"""

from __future__ import annotations

import logging
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rocksdict import DBRecoveryMode, Options, Rdict, ReadOptions, WriteBatch

from faust_assigner.broker.limits import CACHED_BATCH_BYTES
from faust_assigner.broker.storage import salvage
from faust_assigner.broker.storage.store import Range, StoreFailed, prefix_range
from faust_assigner.broker.storage.write_audit import WriteAudit

logger = logging.getLogger(__name__)
BLOB_FROM_BYTES = 1_024
KEEP_INFO_LOGS = 2
#: Limits of the write buffer in bytes; between the limits, the buffer is a sixteenth of the disk.
SMALLEST_BUFFER, LARGEST_BUFFER = 2**20, 16 * 2**20
PAIRS_BETWEEN_CALLS = 10_000  # in the check of all data
ROOM_IN_BUFFERS = 3  # free space to keep: one buffer each for a flush, new writes and compaction
#: Up to this many keys are deleted singly: range tombstones slow reads until compaction.
FEW_KEYS = 16


class RecentBatches:
    """A cache of the latest batches, so that readers at a log's end need no disk. Not thread-safe."""

    def __init__(self, limit_bytes: int = CACHED_BATCH_BYTES) -> None:
        self._limit = limit_bytes
        self._size = 0
        self._pairs: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        """Return a cached value, or None."""
        return self._pairs.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Cache a value; drop the oldest values beyond the limit."""
        self.drop(key)
        self._pairs[key] = value
        self._size += len(value)
        while self._size > self._limit:
            self._size -= len(self._pairs.popitem(last=False)[1])

    def drop(self, key: bytes) -> None:
        """Remove a value from the cache."""
        self._size -= len(self._pairs.pop(key, b""))


class RocksStore:
    """RocksDB through rocksdict. Values above 1 KiB are in blob files, which suit logs.

    ``get``, ``get_many``, ``scan``, ``flush`` and ``reclaim`` may run in any thread, all other methods in
    one thread only.
    """

    def __init__(
        self,
        folder: Path,
        *,
        accepts_loss: bool = False,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the store. With ``accepts_loss``, read all data and replace damaged files by readable data.

        ``progress`` is called repeatedly and may raise to stop.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        # A buffered write is in memory and in the write-ahead log; its flush needs the same space again.
        share = shutil.disk_usage(folder).total // 16
        self._buffer = max(min(share, LARGEST_BUFFER), SMALLEST_BUFFER)
        self._unmeasured = self._buffer  # bytes written since the last check of free space
        self.is_low = False  # whether records are refused because space is short
        self._is_broken = self._is_closed = False
        #: Whether this start has replaced damaged files, or completed the replacement of a killed start.
        self.was_salvaged = salvage.has_begun(folder)
        salvage.finish_replacing(folder)
        self._db: Rdict = self._open(folder)
        try:
            self.write_audit = WriteAudit(folder)
        except OSError as error:
            self._db.close()
            raise StoreFailed(f"cannot open {folder}: {error}") from error
        self._recent = RecentBatches()
        if self.was_salvaged:
            self.write_audit.recount(self.sequence)
        self.lost_writes = self.write_audit.count_lost_writes(self.sequence)
        if accepts_loss:
            try:
                self._leave_out_damage(progress)
            except BaseException:
                self.close()
                raise

    @property
    def sequence(self) -> int:
        """The number of writes in the store."""
        return int(self._db.latest_sequence_number())

    def _open(self, folder: Path) -> Rdict:
        options = Options(raw_mode=True)
        # A missing store beside a write audit is a loss, so RocksDB must not create a new store.
        options.create_if_missing(not WriteAudit.has_data_in(folder))
        options.set_enable_blob_files(True)
        options.set_min_blob_size(BLOB_FROM_BYTES)
        options.set_enable_blob_gc(True)
        options.set_keep_log_file_num(KEEP_INFO_LOGS)
        options.set_write_buffer_size(self._buffer)
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        try:
            return Rdict(str(folder), options)
        except Exception as error:
            raise StoreFailed(f"cannot open {folder}: {error}") from error

    def _leave_out_damage(self, progress: Callable[[], None]) -> None:
        """Replace the files by files with all readable pairs, if a pair cannot be read."""
        try:
            for number, _ in enumerate(self.scan(b"")):
                if number % PAIRS_BETWEEN_CALLS == 0:
                    progress()
            return
        except StoreFailed as error:
            # A log record with the error itself would keep the cursor in its traceback, and RocksDB's lock.
            why = str(error.__cause__ or error)
            logger.error("The store is damaged: %s; copying the data that can be read", why)
        self._db = salvage.replace_damaged(self._db, self._folder, self._open, progress)
        self.write_audit.recount(self.sequence)
        self.was_salvaged = True

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None."""
        value: bytes | None = _call_db(self._db.get, key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of the keys."""
        values: list[bytes | None] = _call_db(self._db.get, list(keys))
        return values

    def cached(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """Return the values if all of them are in the cache of latest batches, else None."""
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
        """Apply range deletions, puts and deletions, in this order, all or nothing. Raises StoreFailed.

        Records are refused while the disk is nearly full, so that space remains for deletions.
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
            # batches of deleted ranges stay in this cache until newer batches displace them
            self._recent.drop(key)
        if fresh:
            self._require_space(sum(len(value) for _, value in fresh))
        try:
            _call_db(self._db.write, batch)
        except StoreFailed:
            self._is_broken = True  # RocksDB accepts no further write until it is reopened
            raise
        self.write_audit.note(self.sequence)
        for key, value in fresh:
            if not is_rewrite or self._recent.get(key) is not None:
                self._recent.put(key, value)

    def _require_space(self, size: int) -> None:
        self._unmeasured += size
        least = ROOM_IN_BUFFERS * self._buffer
        if self.is_low or self._unmeasured >= self._buffer // 16:
            free = shutil.disk_usage(self._folder).free
            self._unmeasured, self.is_low = 0, free < least
        if self.is_low:
            raise StoreFailed(f"no space: less than {least} bytes are free")

    def _reopen(self) -> None:
        if self._is_closed:
            raise StoreFailed("the store is closed")
        if shutil.disk_usage(self._folder).free < 2 * self._buffer:
            raise StoreFailed(f"no space: less than {2 * self._buffer} bytes are free")
        try:
            self._db.close()
        except Exception as error:
            logger.info("the store failed; the broker opens it again: %s", error)
        self._db = self._open(self._folder)
        self._is_broken = False

    def reclaim(self) -> None:
        """Free the disk space of deleted data, which is slow."""
        _call_db(self._db.flush)
        _call_db(self._db.compact_range, None, None)

    def flush(self) -> int:
        """Wait for the disk; return how many writes are synced. Raises StoreFailed.

        After a failure, the next write opens RocksDB again.
        """
        writes = self.sequence
        try:
            _call_db(self._db.flush_wal, True)
        except StoreFailed:
            self._is_broken = True
            raise
        return writes

    def note_flushed(self, writes: int) -> None:
        """Record in the write audit that ``writes`` writes are on the disk."""
        self.write_audit.note_synced(writes)

    def note_end(self, place: bytes, end: int) -> None:
        """Record the end of a partition in the write audit."""
        self.write_audit.note_end(place, end)

    def forget_end(self, place: bytes) -> None:
        """Remove a deleted partition from the write audit."""
        self.write_audit.forget_end(place)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every pair whose key starts with ``prefix``, in key order; never reads other keys.

        Raises StoreFailed at an unreadable block.
        """
        span = prefix_range(prefix)
        bounded = ReadOptions()
        bounded.set_iterate_upper_bound(span.beyond)
        last = None
        try:
            for last, value in self._db.items(from_key=span.first, read_opt=bounded):
                yield last, value
        except Exception as error:
            raise StoreFailed(str(error)) from error
        self._check_end(last, span.first, bounded)

    def _check_end(self, last: bytes | None, first: bytes, bounded: ReadOptions) -> None:
        """Check that a scan of the keys from ``first`` on, which ended after ``last``, was complete.

        rocksdict's iterators end at an unreadable block without an error, as if no more keys followed.
        """
        cursor = self._db.iter(bounded)
        cursor.seek(first if last is None else last)
        if last is not None and cursor.valid():
            cursor.next()
        try:
            if not cursor.valid():
                cursor.status()
        except Exception as error:
            raise StoreFailed(
                f"the store is damaged: records in its files cannot be read ({error}). Set "
                "log.recovery.accept.loss=true to start without this data"
            ) from error

    def close(self) -> None:
        """Close RocksDB and the write audit; release files and lock. Later writes raise StoreFailed."""
        self._is_closed = True
        try:
            self._db.close()
        except Exception as error:
            logger.warning(
                "could not flush the store; its last writes stay in the write-ahead log: %s",
                error,
            )
        self.write_audit.close()


def _call_db(call: Callable[..., object], *arguments: object) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        raise StoreFailed(str(error)) from error
