"""The write audit: a file beside the store with the count of writes and the end of each partition.

RocksDB's recovery stops at the first damaged byte of its write-ahead log and drops all later
writes. After a power
loss this is right, but after other damage acknowledged records would silently be lost. The write audit
is a small memory-mapped file, updated at each write, so it survives ``kill -9`` as the log itself does. At
a start the store must hold at least as many writes as the write audit recorded. Only after a restart of the
machine may the latest writes be missing, if they were not synced to the disk.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from crc32c import crc32c

NAME: Final = "WITNESS"
MAGIC: Final = b"FAWITNS1"
#: magic, boot, writes, synced writes, checksum of these fields
HEAD: Final = struct.Struct(">8s16sqqI")
HEAD_BYTES: Final = 64
COPIES: Final = 2  # written alternately: a kill during a write leaves the other copy valid
FIRST_ENTRY: Final = HEAD_BYTES * COPIES
#: Topic id and partition in 20 bytes, the partition's end offset, the checksum of these fields.
ENTRY: Final = struct.Struct(">20sqI")
GROW_BYTES: Final = 64 * 1024
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
UNKNOWN_BOOT: Final = bytes(16)  # not on Linux: assume that the machine was restarted


def boot_id() -> bytes:
    """Return the id of the machine's current boot; zeros if the system does not provide one."""
    try:
        return bytes.fromhex(BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return UNKNOWN_BOOT


class WriteAudit:
    """The file of one store. At first, ``writes``, ``synced`` and ``ends`` have the last run's values."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._boot = boot_id()
        self._slots: dict[bytes, int] = {}
        self._free: list[int] = []  # the positions of entries of deleted partitions
        self._turn = 0
        self._next = FIRST_ENTRY
        self.ends: dict[bytes, int] = {}
        self.writes: int | None = None
        self.synced = 0
        self.same_boot = True
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(self._file).st_size < FIRST_ENTRY:
            self._reserve(os.fstat(self._file).st_size, GROW_BYTES)
        self._map = mmap.mmap(self._file, 0)
        self._read()

    @staticmethod
    def has_data_in(folder: Path) -> bool:
        """Whether a broker has kept its data in ``folder`` before."""
        return (folder / NAME).exists()

    def _read(self) -> None:
        for copy in range(COPIES):
            magic, boot, writes, synced, checksum = HEAD.unpack_from(self._map, copy * HEAD_BYTES)
            start = copy * HEAD_BYTES
            sound = magic == MAGIC and crc32c(self._map[start : start + HEAD.size - 4]) == checksum
            if sound and (self.writes is None or writes >= self.writes):
                self.writes, self.synced = writes, synced
                self.same_boot = boot == self._boot != UNKNOWN_BOOT
        position = FIRST_ENTRY
        while position + ENTRY.size <= len(self._map):
            place, end, checksum = ENTRY.unpack_from(self._map, position)
            if crc32c(self._map[position : position + 28]) == checksum:
                self._slots[place] = position
                self.ends[place] = end
            elif not checksum and not end and not any(place):
                break
            position += ENTRY.size
        self._next = position

    def count_lost_writes(self, writes: int) -> int:
        """Return how many acknowledged writes are lost from a store that holds ``writes`` writes.

        After a restart of the machine, only synced writes count: a power loss may have lost unsynced writes.
        """
        seen = (self.writes or 0) if self.same_boot else self.synced
        return max(seen - writes, 0)

    def note_synced(self, writes: int) -> None:
        """Record that the first ``writes`` writes are synced to the disk."""
        self.synced = max(self.synced, writes)
        self.note(max(self.writes or 0, writes))

    def note(self, writes: int) -> None:
        """Record that the store holds ``writes`` writes."""
        self.writes = writes
        self.synced = min(self.synced, writes)
        head = HEAD.pack(MAGIC, self._boot, writes, self.synced, 0)[:-4]
        start = self._turn * HEAD_BYTES
        self._map[start : start + HEAD.size] = head + struct.pack(">I", crc32c(head))
        self._turn = 1 - self._turn

    def recount(self, writes: int) -> None:
        """Record ``writes`` although they are fewer than before: a copy of a store has fewer writes."""
        for _ in range(COPIES):  # a start would read an old copy that has more writes
            self.note(writes)

    def note_end(self, place: bytes, end: int) -> None:
        """Record the end of a partition, unless the disk is full.

        ``place`` is the topic id (16 bytes) and the partition number (4 bytes).
        """
        position = self._slots.get(place)
        if position is None:
            position = self._slot()
            if position is None:
                return
            self._slots[place] = position
        head = ENTRY.pack(place, end, 0)[:-4]
        self._map[position : position + ENTRY.size] = head + struct.pack(">I", crc32c(head))

    def forget_end(self, place: bytes) -> None:
        """Give the entry of a deleted partition to the next new partition; a start ignores the entry."""
        position = self._slots.pop(place, None)
        if position is not None:
            self._free.append(position)

    def _slot(self) -> int | None:
        if self._free:
            return self._free.pop()
        position = self._next
        if position + ENTRY.size > len(self._map):
            try:
                self._grow()
            except OSError:
                return None
        self._next = position + ENTRY.size
        return position

    def _grow(self) -> None:
        """Map a longer file. The old map is closed last, so a failure changes nothing."""
        size = len(self._map)
        self._reserve(size, size + GROW_BYTES)
        grown = mmap.mmap(self._file, size + GROW_BYTES)
        self._map.close()
        self._map = grown

    def _reserve(self, start: int, end: int) -> None:
        """Write zeros from ``start`` to ``end``, so that the disk has space for the whole map.

        This works on every platform; posix_fallocate and mmap.resize do not exist on macOS.
        """
        while start < end:
            start += os.pwrite(self._file, bytes(end - start), start)

    def restart(self, writes: int, ends: Mapping[bytes, int]) -> None:
        """Reset the write audit to the present content of the store, which the next start then requires."""
        self._map[FIRST_ENTRY:] = bytes(len(self._map) - FIRST_ENTRY)
        self._slots.clear()
        self._free.clear()
        self._next = FIRST_ENTRY
        self.ends = {}
        self.recount(writes)
        for place, end in ends.items():
            self.note_end(place, end)

    def close(self) -> None:
        """Flush the file to the disk and close it."""
        try:
            self._map.flush()
            os.fsync(self._file)
        except OSError:
            pass  # the disk is full or fails, but the page cache still has the contents
        self._map.close()
        os.close(self._file)
