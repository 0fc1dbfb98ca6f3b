"""Encodes a member's progress in each changelog partition in few bytes.

For each topic the bytes contain its index in the sorted subscription, the partitions as a set of numbers, and
the offsets. An offset is written as the zigzag varint of its difference to the previous offset. Partitions of
a changelog have similar lengths, so the differences are small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Ints, Positions
from faust_assigner.wire.runs import Reader, Writer

#: An offset beyond the end of any log; it fits into a varint of seven bytes.
FURTHEST = 1 << 48
_MOST_BYTES = 8


def encode_positions(positions: Mapping[str, Positions], row: Mapping[str, int]) -> bytes:
    """Encode the positions of the topics in ``row``; leave out offsets that are not in 1..FURTHEST."""
    body = Writer()
    for topic in sorted(row.keys() & positions.keys()):
        known = [
            (p, offset) for p, offset in _offset_pairs(positions[topic]) if 0 < offset <= FURTHEST
        ]
        if known:
            offsets = Writer()
            before = 0
            for _, offset in known:
                step = offset - before
                offsets.varint(step << 1 if step >= 0 else (-step << 1) - 1)
                before = offset
            body.varint(row[topic])
            body.numbers([p for p, _ in known])
            body.varint(len(offsets.data))
            body.data += offsets.data
    return bytes(body.data)


def _offset_pairs(said: Positions) -> list[tuple[int, int]]:
    if isinstance(said, Mapping):
        return sorted(said.items())
    return list(zip(said[0].tolist(), said[1].tolist(), strict=True))


def decode_positions(body: Reader, topics: Sequence[str]) -> dict[str, tuple[Ints, Ints]]:
    """Decode topic -> (ascending partitions, their offsets). Raises :class:`MetadataRefused`."""
    found: dict[str, tuple[Ints, Ints]] = {}
    while not body.is_done:
        row = body.varint()
        if row >= len(topics):
            raise MetadataRefused(f"a topic index is beyond the {len(topics)} subscribed topics")
        runs = body.runs()
        offsets = _decode_offsets(body.take(body.varint()))
        if topics[row] in found or runs.size != len(offsets):
            raise MetadataRefused(
                "a duplicate topic of positions, or too few or too many positions"
            )
        found[topics[row]] = (
            np.fromiter(runs, dtype=np.int64, count=len(offsets)),
            np.array(offsets, dtype=np.int64),
        )
    return found


def _decode_offsets(raw: bytes) -> list[int]:
    """Decode all offsets in ``raw``, which are zigzag varints of differences."""
    found: list[int] = []
    offset = value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
            if shift == 7 * _MOST_BYTES:
                raise MetadataRefused("an offset is too long")
            continue
        offset += (value >> 1) ^ -(value & 1)
        if not 0 <= offset <= FURTHEST:
            raise MetadataRefused("a position is beyond the end of any log")
        found.append(offset)
        value = shift = 0
    if shift:
        raise MetadataRefused("an offset is cut off")
    return found
