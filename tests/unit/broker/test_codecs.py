"""The codecs of record batches: their frames, their limits, and bytes that end early."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import cramjam
import pytest

from faust_assigner.broker.storage import unpacking
from faust_assigner.broker.storage.unpacking import TooMuch, Unreadable, pack, unpack

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def test_a_gzip_body_of_several_members_is_read_to_its_end() -> None:
    """Bytes after the last member are ignored; the limit is for all members together."""
    body = gzip.compress(b"one ") + gzip.compress(b"two") + b"rest"
    assert unpack(GZIP, body, 7) == b"one two"
    with pytest.raises(TooMuch):
        unpack(GZIP, body, 6)


def test_many_gzip_members_cost_no_more_bytes_than_a_few_steps_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """zlib copies its remaining input after each member, which here is 500 copies of a body."""
    given: list[int] = []
    make = zlib.decompressobj

    class Counting:
        """A decompressor that counts the bytes of its input."""

        def __init__(self, **more: Any) -> None:
            self.true = make(**more)

        def decompress(self, data: bytes, limit: int) -> bytes:
            """Count the bytes and decompress them."""
            given.append(len(data))
            return self.true.decompress(data, limit)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.true, name)

    monkeypatch.setattr(unpacking.zlib, "decompressobj", Counting)
    monkeypatch.setattr(unpacking, "GZIP_STEP", 100)
    body = b"".join(gzip.compress(bytes([n % 256]) * 300) for n in range(500))
    assert unpack(GZIP, body, 150_000) == b"".join(bytes([n % 256]) * 300 for n in range(500))
    assert sum(given) <= 100 * len(given) < 10 * len(body)


def test_a_gzip_body_that_ends_early_is_unreadable_at_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The body may also end together with a step."""
    monkeypatch.setattr(unpacking, "GZIP_STEP", 4)
    body = gzip.compress(bytes(range(64)))
    assert unpack(GZIP, body, 64) == bytes(range(64))
    for end in range(len(body)):
        with pytest.raises(Unreadable):
            unpack(GZIP, body[:end], 64)


def test_snappy_as_javas_streams_write_it_is_read() -> None:
    """A header precedes blocks with their lengths; the limit is for all blocks together."""
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (b"one ", b"two")]
    body = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    body += b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    assert unpack(SNAPPY, body, 7) == b"one two"
    assert unpack(SNAPPY, blocks[0], 4) == b"one "
    with pytest.raises(TooMuch):
        unpack(SNAPPY, body, 6)


@pytest.mark.parametrize("size", [-1, -4, -5, -2_000, 9])
def test_a_snappy_block_of_a_negative_or_too_great_length_is_unreadable(size: int) -> None:
    """A negative length must not lead back to bytes that were read before."""
    block = bytes(cramjam.snappy.compress_raw(b"one "))
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for blocks in (
        struct.pack(">i", size) + block,
        struct.pack(">i", 6) + block + struct.pack(">i", size),
    ):
        with pytest.raises(Unreadable, match="ends early"):
            unpack(SNAPPY, head + blocks, 40)


def test_an_empty_zstd_body_has_no_records() -> None:
    """No frame is required."""
    assert unpack(ZSTD, b"", 9) == b""


def test_an_lz4_frame_that_is_cut_short_is_unreadable() -> None:
    """The cut may be at any byte, even within or before the length of a block."""
    body = pack(LZ4, bytes(range(256)))
    assert unpack(LZ4, body, 256) == bytes(range(256))
    for end in range(len(body)):
        with pytest.raises(Unreadable):
            unpack(LZ4, body[:end], 256)


@pytest.mark.parametrize(
    "frame",
    [
        "04224d1860 4082 07000080 6f6e652074776f 00000000",
        "04224d1868 40 0700000000000000 b0 07000080 6f6e652074776f 00000000",
        "04224d1870 40ad 07000080 6f6e652074776f 822e3729 00000000",
        "04224d1864 40a7 07000080 6f6e652074776f 00000000 822e3729",
        "04224d187c 40 0700000000000000 bf 07000080 6f6e652074776f 822e3729 00000000 822e3729",
    ],
    ids=["plain", "size", "block checksum", "content checksum", "all"],
)
def test_an_lz4_frame_ends_where_its_flags_say(frame: str) -> None:
    """The flags add a size or checksums; bytes after the frame are ignored."""
    body = bytes.fromhex(frame)
    assert unpack(LZ4, body, 7) == unpack(LZ4, body + b"rest", 7) == b"one two"
    with pytest.raises(TooMuch):
        unpack(LZ4, body, 6)
    for end in range(len(body)):
        with pytest.raises(Unreadable):
            unpack(LZ4, body[:end], 7)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
def test_a_body_is_unpacked_up_to_exactly_its_limit(codec: int, size: int) -> None:
    """Some bodies are larger than the first guess of the buffer."""
    body = bytes(n % 251 for n in range(size))
    packed = pack(codec, body)
    assert unpack(codec, packed, max(size, 1)) == body
    if size:
        with pytest.raises(TooMuch):
            unpack(codec, packed, size - 1)


@pytest.mark.parametrize("flags", ["40", "a0", "61", "62", "20", "00"])
def test_an_lz4_frame_of_dependent_blocks_or_another_version_is_unreadable(flags: str) -> None:
    """KIP-57: Java's reader refuses such a frame, so no Kafka consumer could read the batch."""
    frame = bytes.fromhex(f"04224d18 {flags} 4082 07000080 6f6e652074776f 00000000")
    with pytest.raises(Unreadable, match="not an lz4 frame with independent blocks"):
        unpack(LZ4, frame, 100)
    with pytest.raises(Unreadable, match="not an lz4 frame"):
        unpack(LZ4, b"\x05" + pack(LZ4, b"one")[1:], 100)
