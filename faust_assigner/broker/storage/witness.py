"""A witness beside the store: how much was written and where each partition ended, for the next start to see.

RocksDB's recovery stops at the first damaged byte of its write-ahead log and calls what it has whole; that is
right after a power loss, and silently loses acknowledged records after any other damage. The witness is a
small file mapped into memory and touched at each write, so it survives ``kill -9`` as the log itself does. At
start the store must hold at least as many writes as the witness saw. Only where the machine was restarted
meanwhile may the end be missing, and then never what was synced.
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
HEAD: Final = struct.Struct(
    ">8s16sqqI"
)  # magic, boot, writes, synced writes, checksum of what precedes
HEAD_BYTES: Final = 64
COPIES: Final = 2  # written in turn: a kill in the middle of one leaves the other
FIRST_ENTRY: Final = HEAD_BYTES * COPIES
ENTRY: Final = struct.Struct(">20sqI")  # topic id and partition, end offset, checksum of both
GROW_BYTES: Final = 64 * 1024
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
UNKNOWN_BOOT: Final = bytes(16)  # not on Linux: the machine may have been restarted


def boot_id() -> bytes:
    """Which run of this machine it is; zeros where the system does not say."""
    try:
        return bytes.fromhex(BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return UNKNOWN_BOOT


class Witness:
    """The file of one store. ``writes``, ``synced`` and ``ends`` are what the last run said."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._boot = boot_id()
        self._slots: dict[bytes, int] = {}
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
    def stands_in(folder: Path) -> bool:
        """Whether a broker has kept its data there before."""
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
            if checksum and crc32c(self._map[position : position + 28]) == checksum:
                self._slots[place] = position
                self.ends[place] = end
            elif not checksum and not end and not any(place):
                break
            position += ENTRY.size
        self._next = position

    def lacks(self, writes: int) -> int:
        """How many acknowledged writes a store with ``writes`` of them lost; a power loss excuses a tail."""
        seen = (self.writes or 0) if self.same_boot else self.synced
        return max(seen - writes, 0)

    def note_synced(self, writes: int) -> None:
        """The first ``writes`` of them are on the disk, whatever becomes of the machine."""
        self.synced = max(self.synced, writes)
        self.note(max(self.writes or 0, writes))

    def note(self, writes: int) -> None:
        """The store holds so many writes now."""
        self.writes = writes
        self.synced = min(self.synced, writes)
        head = HEAD.pack(MAGIC, self._boot, writes, self.synced, 0)[:-4]
        start = self._turn * HEAD_BYTES
        self._map[start : start + HEAD.size] = head + struct.pack(">I", crc32c(head))
        self._turn = 1 - self._turn

    def note_end(self, place: bytes, end: int) -> None:
        """A partition (16 bytes of topic id, 4 of number) ends there now. A full disk leaves it unwatched."""
        position = self._slots.get(place)
        if position is None:
            position = self._slot()
            if position is None:
                return
            self._slots[place] = position
        head = ENTRY.pack(place, end, 0)[:-4]
        self._map[position : position + ENTRY.size] = head + struct.pack(">I", crc32c(head) or 1)

    def _slot(self) -> int | None:
        position = self._next
        if position + ENTRY.size > len(self._map):
            try:
                self._grow()
            except OSError:
                return None
        self._next = position + ENTRY.size
        return position

    def _grow(self) -> None:
        """Map a longer file. The new map is made before the old one is closed: a failure changes nothing."""
        size = len(self._map)
        self._reserve(size, size + GROW_BYTES)
        grown = mmap.mmap(self._file, size + GROW_BYTES)
        self._map.close()
        self._map = grown

    def _reserve(self, start: int, end: int) -> None:
        """Write zeros from ``start`` to ``end``, so that the disk has room for what the map will hold.

        Every platform can do this; posix_fallocate and mmap.resize do not exist on macOS.
        """
        while start < end:
            start += os.pwrite(self._file, bytes(end - start), start)

    def restart(self, writes: int, ends: Mapping[bytes, int]) -> None:
        """Begin this run's account: what the store holds now is what it must hold at the next start."""
        self._map[FIRST_ENTRY:] = bytes(len(self._map) - FIRST_ENTRY)
        self._slots.clear()
        self._next = FIRST_ENTRY
        self.ends = {}
        for _ in range(COPIES):  # an older copy of more writes would count after an accepted loss
            self.note(writes)
        for place, end in ends.items():
            self.note_end(place, end)

    def close(self) -> None:
        """On disk, then closed."""
        try:
            self._map.flush()
            os.fsync(self._file)
        except OSError:
            pass  # a full or failing disk; what it says is on the page cache's side
        self._map.close()
        os.close(self._file)
