"""Record batches (message format v2), kept opaque: the header is checked, two fields before the CRC are set.

Only :func:`find_timestamp` looks inside, for ListOffsets by time, and only with a cap on what it unpacks.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")  # 61 bytes
LENGTH_OVERHEAD: Final = 12  # base offset and length itself are not counted by the length field
CRC_FROM: Final = 21
MAGIC: Final = 2
MIN_RECORD_BYTES: Final = 7
COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
GZIP: Final = 1
ZSTD: Final = 4
MAX_UNPACKED_BYTES: Final = 16 * 2**20
NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class Batch:
    """What the broker knows of one record batch. Sizes in bytes, times in ms."""

    base_offset: int
    size: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def has_producer(self) -> bool:
        """Whether it belongs to an idempotent producer."""
        return self.producer_id >= 0

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK


class BadBatch(ValueError):
    """The bytes are not one sound record batch. ``corrupt``: the checksum does not match."""

    def __init__(self, message: str, *, corrupt: bool = False) -> None:
        super().__init__(message)
        self.corrupt = corrupt


def parse_batch(data: bytes) -> Batch:
    """The one batch in ``data``, every claim in its header checked. Raises BadBatch. Cost: one CRC pass."""
    if len(data) < HEADER.size:
        raise BadBatch(f"{len(data)} bytes are no record batch")
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        base_ts,
        max_ts,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadBatch(f"message format {magic} is not supported, only {MAGIC}")
    if length + LENGTH_OVERHEAD != len(data):
        raise BadBatch(
            f"the batch says {length + LENGTH_OVERHEAD} bytes, {len(data)} were sent; one batch is allowed"
        )
    if crc32c(memoryview(data)[CRC_FROM:]) != crc:
        raise BadBatch("the checksum does not match", corrupt=True)
    if count < 1 or last_delta != count - 1:
        raise BadBatch(f"the batch claims {count} records and last offset delta {last_delta}")
    if attributes & COMPRESSION_MASK > ZSTD:
        raise BadBatch(f"unknown compression codec {attributes & COMPRESSION_MASK}")
    if not attributes & COMPRESSION_MASK and count * MIN_RECORD_BYTES > len(data) - HEADER.size:
        raise BadBatch(f"the batch claims {count} records in {len(data) - HEADER.size} bytes")
    return Batch(
        base_offset,
        len(data),
        attributes,
        last_delta,
        base_ts,
        max_ts,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )


def place(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """The batch at its place in the log; the checksum does not cover what changes."""
    return struct.pack(">q", base_offset) + data[8:12] + struct.pack(">i", leader_epoch) + data[16:]


def stamp(data: bytes, now_ms: int) -> bytes:
    """The batch with the broker's time instead of the producer's (LogAppendTime)."""
    changed = bytearray(data)
    (attributes,) = struct.unpack_from(">h", changed, CRC_FROM)
    struct.pack_into(">h", changed, CRC_FROM, attributes | LOG_APPEND_TIME)
    struct.pack_into(">q", changed, 35, now_ms)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[CRC_FROM:]))
    return bytes(changed)


def has_codec(data: bytes, codec: int) -> bool:
    """Whether any of the batches in ``data`` is compressed that way."""
    position = 0
    while position + HEADER.size <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        if data[position + CRC_FROM + 1] & COMPRESSION_MASK == codec:
            return True
        position += max(length, 0) + LENGTH_OVERHEAD
    return False


def find_timestamp(data: bytes, timestamp: int) -> tuple[int, int]:
    """(offset, timestamp) of the first record in the batch that is not older than ``timestamp``.

    Snappy, lz4 and zstd bodies are not unpacked here: then the answer is the batch's first offset, so that a
    reader sees at most a batch too much and never misses a record. Unpacking gzip stops at 16 MiB.
    """
    batch = parse_batch(data)
    whole = (batch.base_offset, batch.max_timestamp)
    if batch.attributes & LOG_APPEND_TIME or batch.codec > GZIP:
        return whole
    body = data[HEADER.size :]
    try:
        if batch.codec == GZIP:
            body = zlib.decompressobj(wbits=31).decompress(body, MAX_UNPACKED_BYTES)
        for timestamp_delta, offset_delta in _record_heads(body, batch.count):
            if batch.base_timestamp + timestamp_delta >= timestamp:
                return batch.base_offset + offset_delta, batch.base_timestamp + timestamp_delta
    except (zlib.error, IndexError):
        return whole
    return whole


def _record_heads(body: bytes, count: int) -> Iterator[tuple[int, int]]:
    """(timestamp delta, offset delta) of each record. Raises IndexError where the body ends early."""
    position = 0
    for _ in range(count):
        length, position = _signed_varint(body, position)
        timestamp_delta, after = _signed_varint(body, position + 1)
        offset_delta, _ = _signed_varint(body, after)
        yield timestamp_delta, offset_delta
        if length < 0:
            raise IndexError("negative record length")
        position += length


def _signed_varint(body: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise IndexError("varint too long")
