"""Offsets in few bytes: how far a member's state of each changelog partition has come.

Per topic its place in the sorted subscription, the partitions as a set of numbers, then the offsets as
varints of the difference to the one before, zigzag: partitions of one changelog are mostly of one length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Ints, Positions
from faust_assigner.wire.runs import Reader, Writer

#: No log is longer: a varint of seven bytes.
FURTHEST = 1 << 48
_MOST_BYTES = 8


def encode_positions(positions: Mapping[str, Positions], row: Mapping[str, int]) -> bytes:
    """The positions of the topics in ``row``; of offsets those that are one."""
    body = Writer()
    for topic in sorted(row.keys() & positions.keys()):
        known = [(p, offset) for p, offset in _pairs(positions[topic]) if 0 < offset <= FURTHEST]
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


def _pairs(said: Positions) -> list[tuple[int, int]]:
    if isinstance(said, Mapping):
        return sorted(said.items())
    return list(zip(said[0].tolist(), said[1].tolist(), strict=True))


def decode_positions(body: Reader, topics: Sequence[str]) -> dict[str, tuple[Ints, Ints]]:
    """Topic -> (partitions ascending, offsets); each topic at most once. Raises MetadataRefused."""
    found: dict[str, tuple[Ints, Ints]] = {}
    while not body.is_done:
        row = body.varint()
        if row >= len(topics):
            raise MetadataRefused(f"a topic beyond the {len(topics)} subscribed ones")
        runs = body.runs()
        offsets = _offsets(body.take(body.varint()))
        if topics[row] in found or runs.size != len(offsets):
            raise MetadataRefused("positions of a topic twice, or not one for each partition")
        found[topics[row]] = (
            np.fromiter(runs, dtype=np.int64, count=len(offsets)),
            np.array(offsets, dtype=np.int64),
        )
    return found


def _offsets(raw: bytes) -> list[int]:
    """The offsets whose differences are the zigzag varints of ``raw``, all of it."""
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
            raise MetadataRefused("a position beyond the end of any log")
        found.append(offset)
        value = shift = 0
    if shift:
        raise MetadataRefused("an offset is cut off")
    return found


def within(positions: Mapping[str, Positions], counts: Mapping[str, int]) -> dict[str, Positions]:
    """What was read of partitions that exist."""
    found: dict[str, Positions] = {}
    for topic, said in positions.items():
        if topic in counts and isinstance(said, tuple):
            kept = int(np.searchsorted(said[0], counts[topic]))
            found[topic] = said[0][:kept], said[1][:kept]
    return found
