"""Replaces the random session id of an SST file, so that equal contents give equal files.

RocksDB writes a random session id into the properties block of every file. A constant id is not possible:
RocksDB derives the keys of its block cache from the id, so two files would share cache entries.
Therefore the id is the hash of all other bytes of the file. The layout of a file is in RocksDB's
``table/format.h``.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

_FOOTER_BYTES = 53  # checksum type, two block handles padded to 40, format version, magic number
_MAGIC = 0x88E241B785F4CFF7
_CRC32C = b"\x01"
_TRAILER_BYTES = 5  # compression type and checksum after each block
_PROPERTIES = b"rocksdb.properties"
#: RocksDB omits a prefix that keys of a block share; at least this end of the key is written in full.
_SESSION_ID = b"session.identity"
_SESSION_ID_BYTES = 20
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CRC_MASK = 0xA282EAD8


def seal(path: Path) -> bool:
    """Replace the session id in place; return False, with the file unchanged, if its layout is unknown.

    Cost: one read of the file for the hash; all other steps read or write about a kilobyte.
    """
    data = bytearray(path.read_bytes())
    try:
        place = _properties_block(data)
    except IndexError:  # raised for a number that continues after its block
        place = None
    if place is None:
        return False
    start, end = place
    at = data.find(_SESSION_ID, start, end)
    # The entry's header ends with the value's length: one byte, as the value is short.
    if at < 0 or data[at - 1] != _SESSION_ID_BYTES or data[end] != 0:
        return False
    at += len(_SESSION_ID)
    data[at : at + _SESSION_ID_BYTES] = bytes(_SESSION_ID_BYTES)
    data[end + 1 : end + _TRAILER_BYTES] = bytes(4)
    data[at : at + _SESSION_ID_BYTES] = _session_id_of(data)
    data[end + 1 : end + _TRAILER_BYTES] = struct.pack("<I", _masked_crc32c(data[start : end + 1]))
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(data[start : end + _TRAILER_BYTES])
    return True


def _properties_block(data: bytearray) -> tuple[int, int] | None:
    """Return [start, end) of the properties block without its trailer; None if it is not found."""
    if len(data) < _FOOTER_BYTES or int.from_bytes(data[-8:], "little") != _MAGIC:
        return None
    footer = data[-_FOOTER_BYTES:]
    if footer[:1] != _CRC32C:
        return None
    offset, position = _read_varint(footer, 1)
    size, _ = _read_varint(footer, position)
    index = bytes(data[offset : offset + size])
    at = index.find(_PROPERTIES)
    if at < 0:
        return None
    start, position = _read_varint(index, at + len(_PROPERTIES))
    length, _ = _read_varint(index, position)
    end = start + length
    return (start, end) if end + _TRAILER_BYTES <= len(data) else None


def _read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """(value, position after it) of the little-endian base-128 number at ``position``."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _session_id_of(data: bytes | bytearray) -> bytes:
    """Return the hash of ``data`` as 20 base-36 digits in RocksDB's alphabet."""
    number = int.from_bytes(hashlib.sha256(data).digest()[:16], "big")
    digits = []
    for _ in range(_SESSION_ID_BYTES):
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return "".join(digits).encode()


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC_TABLE = _crc_table()


def _masked_crc32c(data: bytes | bytearray) -> int:
    """RocksDB's block checksum: CRC-32C, rotated and offset.

    >>> hex(_masked_crc32c(b"123456789"))       # CRC-32C of it is 0xe3069283
    '0xc78ab0e5'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _CRC_MASK) & 0xFFFFFFFF
