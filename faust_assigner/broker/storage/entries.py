"""Keys and values of one partition in the store: batches, index entries, log start, transactions.

Every key of a partition begins with the kind of the key, the topic id (16 bytes) and the partition number
(4 bytes). For most kinds, an offset or a producer id (8 bytes) follows. Numbers are big-endian, so that keys
sort by number.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from faust_assigner.broker.storage.records import Batch

#: last offset delta, size, max timestamp, append time, producer id, producer epoch, base sequence
ENTRY: Final = struct.Struct(">iqqqqhi")
#: the same fields, then ``follows`` and the delete horizon: for a compacted batch or after a removed batch
CLEANED_ENTRY: Final = struct.Struct(">iqqqqhiqq")
OFFSET: Final = struct.Struct(">q")
HOLE: Final = struct.Struct(">qq")
PLACE_BYTES: Final = 20  # topic id and partition number, after the kind of key
BATCHES, INDEX, START, FLOOR = b"b", b"x", b"s", b"e"  # kinds of keys
# Open transactions by producer id, aborted transactions by the offset of their marker.
OPEN, ENDED = b"u", b"a"
CLEAN: Final = b"y"  # the offset up to which the log was compacted
KINDS: Final = (BATCHES, INDEX, START, FLOOR, OPEN, ENDED, CLEAN)
NONE: Final = -1
Pair = tuple[bytes, bytes]


class Entry(NamedTuple):
    """The index entry of one batch. Sizes in bytes, times in ms.

    ``follows``: compaction removed the batches in [follows, base offset of this batch); -1: none.
    ``horizon_ms``: from this time on compaction removes the batch's tombstones or marker; -1: not set.
    """

    last_delta: int
    size: int
    max_timestamp: int
    appended_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    follows: int = NONE
    horizon_ms: int = NONE

    @classmethod
    def of(cls, batch: Batch, appended_ms: int) -> Entry:
        """Return the entry of a new batch."""
        return cls(
            batch.last_delta,
            batch.size,
            batch.max_timestamp,
            appended_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
        )

    def pack(self) -> bytes:
        """Encode the value: 42 bytes, or 58 if compaction changed the batch."""
        if self.follows == NONE and self.horizon_ms == NONE:
            return ENTRY.pack(*self[:7])
        return CLEANED_ENTRY.pack(*self)

    @classmethod
    def unpack(cls, value: bytes) -> Entry:
        """Decode a value of either length. Raises struct.error for any other length."""
        if len(value) == ENTRY.size:
            return cls(*ENTRY.unpack(value))
        return cls(*CLEANED_ENTRY.unpack(value))
