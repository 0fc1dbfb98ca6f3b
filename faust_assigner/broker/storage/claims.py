"""What the headers of unchecked record batches claim; each function reads some bytes and checks nothing."""

from __future__ import annotations

import struct

from faust_assigner.broker.storage.records import (
    COMPRESSION_MASK,
    CRC_FROM,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    UP_TO_MAGIC,
)


def has_codec(data: bytes, codec: int) -> bool:
    """Whether any of the batches in ``data`` uses a codec."""
    position = 0
    while position + HEADER.size <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        if data[position + CRC_FROM + 1] & COMPRESSION_MASK == codec:
            return True
        position += max(length, 0) + LENGTH_OVERHEAD
    return False


def has_any_codec(data: bytes) -> bool:
    """Whether an unchecked batch claims to be compressed."""
    return len(data) > CRC_FROM + 1 and bool(data[CRC_FROM + 1] & COMPRESSION_MASK)


def claims_transaction(data: bytes) -> bool:
    """Whether an unchecked batch claims to belong to a transaction."""
    if len(data) < HEADER.size or data[UP_TO_MAGIC - 1] != MAGIC:
        return False
    return bool(data[CRC_FROM + 1] & TRANSACTIONAL)
