"""The codecs of record batches, with a limit on the decompressed size.

All functions are thread-safe, and release the GIL during the work.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

XERIAL: Final = b"\x82SNAPPY\0"
XERIAL_HEADER: Final = 16
GZIP_MEMBER: Final = b"\x1f\x8b\x08"
#: bytes of input per call: at each member's end zlib copies the unused input
GZIP_STEP: Final = 16 * 1024
LZ4_MAGIC: Final = 0x184D2204
#: A frame of independent blocks of at most 64 KiB, without checksums of content or blocks. The last byte is
#: the checksum of the two bytes before it.
LZ4_HEADER: Final = struct.pack("<I", LZ4_MAGIC) + b"\x60\x40\x82"
LZ4_BLOCK: Final = 64 * 1024
LZ4_PLAIN: Final = 0x80000000  # the block is not compressed
XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
MOST_OF_SNAPPY: Final = 32  # the most output bytes per input byte: three bytes can copy 64 bytes
FIRST_GUESS: Final = 256 * 1024
TOO_SMALL: Final = "failed to write whole buffer"


class Unreadable(ValueError):
    """The bytes are invalid for their codec."""


class TooMuch(ValueError):
    """The decompressed bytes would exceed the limit."""


def unpack(codec: int, body: bytes, limit: int) -> bytes:
    """Decompress a body to at most ``limit`` bytes. Raises Unreadable, TooMuch.

    The codecs are 1 gzip, 2 snappy, 3 lz4 and 4 zstd.
    """
    try:
        return _CODECS[codec](body, limit)
    except KeyError:
        raise Unreadable(f"unknown codec {codec}") from None
    except (zlib.error, cramjam.DecompressionError, struct.error, IndexError) as error:
        raise Unreadable(str(error)) from None


def pack(codec: int, body: bytes) -> bytes:
    """Compress a body in a form that every client can read; codecs as in :func:`unpack`."""
    return _PACKERS[codec](body)


def _pack_gzip(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(body) + stream.flush()


def _pack_snappy(body: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(body))
    return XERIAL + XERIAL_VERSIONS + struct.pack(">i", len(block)) + block


def _pack_lz4(body: bytes) -> bytes:
    out = [LZ4_HEADER]
    for first in range(0, len(body), LZ4_BLOCK):
        part = body[first : first + LZ4_BLOCK]
        packed = bytes(cramjam.lz4.compress_block(part, store_size=False))
        if len(packed) < len(part):
            out += (struct.pack("<I", len(packed)), packed)
        else:
            out += (struct.pack("<I", len(part) | LZ4_PLAIN), part)
    return b"".join((*out, bytes(4)))


def _pack_zstd(body: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(body))


def _unpack_gzip(body: bytes, limit: int) -> bytes:
    """Decompress one or more gzip members; ignore bytes after the last member, as Java does."""
    out: list[bytes] = []
    position = 0
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            piece = body[position : position + GZIP_STEP]
            if not piece:
                raise Unreadable("the gzip stream ends early")
            out.append(member.decompress(piece, limit + 1))
            limit -= len(out[-1])
            if limit < 0:
                raise TooMuch
            position += len(piece) - len(member.unused_data)
        if not body.startswith(GZIP_MEMBER, position):
            return b"".join(out)


def _unpack_snappy(body: bytes, limit: int) -> bytes:
    """Decompress a bare block, or blocks with lengths, as Java's streams write them."""
    if not body.startswith(XERIAL):
        return _unpack_snappy_block(body, limit)
    out: list[bytes] = []
    position = XERIAL_HEADER
    while position + 4 <= len(body):
        (size,) = struct.unpack_from(">i", body, position)
        position += 4
        if size < 0 or position + size > len(body):
            raise Unreadable("a snappy block ends early")
        out.append(_unpack_snappy_block(body[position : position + size], limit))
        limit -= len(out[-1])
        position += size
    return b"".join(out)


def _unpack_snappy_block(block: bytes, limit: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > MOST_OF_SNAPPY * len(block):
        raise Unreadable(f"a snappy block of {len(block)} bytes announces {size} unpacked bytes")
    if size > limit:
        raise TooMuch
    return bytes(cramjam.snappy.decompress_raw(block))


def _unpack_lz4(body: bytes, limit: int) -> bytes:
    return _unpack_into_buffer(cramjam.lz4.decompress_into, body[: _lz4_end(body)], limit)


def _lz4_end(body: bytes) -> int:
    """Return the end of the first frame. Raises Unreadable if blocks depend on each other (KIP-57)."""
    magic, flags = struct.unpack_from("<IB", body)
    if magic != LZ4_MAGIC or flags & 0xE3 != 0x60:
        raise Unreadable("the data is not an lz4 frame with independent blocks")
    position = 7 + (8 if flags & 0x08 else 0)
    checksum = 4 if flags & 0x10 else 0
    while True:
        (size,) = struct.unpack_from("<I", body, position)
        position += 4
        if not size:
            return position + (4 if flags & 0x04 else 0)
        position += (size & 0x7FFFFFFF) + checksum


def _unpack_zstd(body: bytes, limit: int) -> bytes:
    return _unpack_into_buffer(cramjam.zstd.decompress_into, body, limit) if body else b""


def _unpack_into_buffer(
    decompress: Callable[[bytes, bytearray], int], body: bytes, limit: int
) -> bytes:
    """Decompress into a growing buffer, which never exceeds ``limit``."""
    size = min(max(FIRST_GUESS, 4 * len(body)), limit)
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: decompress(body, buffer)])
        except cramjam.DecompressionError as error:
            if TOO_SMALL not in str(error):
                raise
            if size >= limit:
                raise TooMuch from None
            size = min(8 * size, limit)


_CODECS: Final = {1: _unpack_gzip, 2: _unpack_snappy, 3: _unpack_lz4, 4: _unpack_zstd}
_PACKERS: Final = {1: _pack_gzip, 2: _pack_snappy, 3: _pack_lz4, 4: _pack_zstd}
