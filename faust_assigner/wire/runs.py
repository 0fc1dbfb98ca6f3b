"""Encodes numbers in few bytes: variable-length integers, sets of numbers as runs, and tagged fields.

A field is (tag, length, bytes). A reader skips unknown tags, so that a newer member may add fields.
Varints are LEB128, seven bits per byte, least significant first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Ints, PartitionNumbers

#: A set of numbers: a range for a single run, whose length then takes no memory; otherwise an array.
Numbers: TypeAlias = range | Ints

_LARGEST = 2**31 - 1
_FEW = 48  # up to this many numbers, plain Python is faster than numpy


@dataclass(frozen=True)
class Runs:
    """A set of numbers as ascending runs; the cost grows with the runs, not with the numbers.

    ``starts`` and ``lengths`` (> 0) are plain lists: most sets have a few runs, and numpy is faster only
    from some dozens of runs on.
    """

    starts: list[int]
    lengths: list[int]

    @classmethod
    def of(cls, values: PartitionNumbers) -> Runs:
        """Return the runs of ``values``, which may be unsorted and contain duplicates."""
        if isinstance(values, Runs):
            return values
        if isinstance(values, range) and values.step == 1:
            return cls([values.start][: len(values)], [len(values)][: len(values)])
        if not isinstance(values, np.ndarray):
            values = list(values)
        if len(values) > _FEW:
            return cls._of_many(np.asarray(values, dtype=np.int64))
        starts: list[int] = []
        lengths: list[int] = []
        end = -2
        for value in sorted({int(v) for v in values}):
            if value == end:
                lengths[-1] += 1
            else:
                starts.append(value)
                lengths.append(1)
            end = value + 1
        return cls(starts, lengths)

    @classmethod
    def _of_many(cls, flat: Ints) -> Runs:
        if not bool((flat[1:] > flat[:-1]).all()):
            flat = np.unique(flat)
        first = np.flatnonzero(np.diff(flat, prepend=flat[0] - 2) != 1)
        return cls(flat[first].tolist(), np.diff(first, append=flat.size).tolist())

    def __iter__(self) -> Iterator[int]:
        for start, length in zip(self.starts, self.lengths, strict=True):
            yield from range(start, start + length)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        at = bisect_right(self.starts, number) - 1
        return at >= 0 and number < self.starts[at] + self.lengths[at]

    def covers(self, other: Runs) -> bool:
        """Return whether every number of ``other`` is in this set. Cost: O(runs of ``other`` x log runs)."""
        for start, length in zip(other.starts, other.lengths, strict=True):
            at = bisect_right(self.starts, start) - 1
            if at < 0 or start + length > self.starts[at] + self.lengths[at]:
                return False
        return True

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(self.lengths)

    @property
    def end(self) -> int:
        """The largest number + 1; 0 for the empty set."""
        return self.starts[-1] + self.lengths[-1] if self.starts else 0

    def numbers(self) -> Numbers:
        """Return all numbers, ascending. Memory: O(size), or O(1) for a single run."""
        if len(self.starts) == 1:
            return range(self.starts[0], self.end)
        if len(self.starts) <= _FEW and self.size <= 8 * _FEW:
            return np.array(list(self), dtype=np.int64)
        starts, lengths = _as_int64(self.starts), _as_int64(self.lengths)
        before = np.cumsum(lengths) - lengths
        flat: Ints = np.repeat(starts - before, lengths) + np.arange(self.size, dtype=np.int64)
        return flat

    def below(self, limit: int) -> Runs:
        """Return the numbers less than ``limit``."""
        if self.end <= limit:
            return self
        kept = bisect_left(self.starts, limit)
        lengths = self.lengths[:kept]
        if kept:
            lengths[-1] = min(lengths[-1], limit - self.starts[kept - 1])
        return Runs(self.starts[:kept], lengths)


class Writer:
    """Collects encoded bytes in ``data``; every method appends to them."""

    def __init__(self) -> None:
        self.data = bytearray()

    def varint(self, value: int) -> None:
        """Append one varint, ``value`` >= 0."""
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def varints(self, values: list[int]) -> None:
        """Append a varint for each of ``values`` >= 0."""
        if not values or max(values) < 0x80:
            self.data += bytes(values)
            return
        for value in values:
            self.varint(value)

    def text(self, value: str) -> None:
        """Append the length and the UTF-8 bytes of ``value``."""
        raw = value.encode("utf-8")
        self.varint(len(raw))
        self.data += raw

    def numbers(self, values: PartitionNumbers) -> None:
        """Append a set of numbers >= 0, in the shorter of two forms.
        The forms are (gap, length - 1) for each run, and the gap for each number.
        """
        runs = Runs.of(values)
        coded = []
        if runs.size * 2 < len(runs.starts) * 3:
            self.varint(runs.size << 1 | 1)
            before = -1
            for value in runs:
                coded.append(value - before - 1)
                before = value
        else:
            self.varint(len(runs.starts) << 1)
            end = 0
            for start, length in zip(runs.starts, runs.lengths, strict=True):
                coded += (start - end, length - 1)
                end = start + length
        self.varints(coded)

    def field(self, tag: int, body: bytes | bytearray) -> None:
        """Append one tagged field."""
        self.varint(tag)
        self.varint(len(body))
        self.data += body


class Reader:
    """Reads the bytes of a :class:`Writer`; every method may raise :class:`MetadataRefused`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def is_done(self) -> bool:
        """Whether every byte was read."""
        return self.at >= len(self.data)

    def varint(self, *, limit: int = _LARGEST) -> int:
        """Read the next number, at most ``limit``."""
        value = shift = 0
        data, at = self.data, self.at
        while True:
            if at >= len(data) or shift > 63:
                raise MetadataRefused("a number is cut off")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if value > limit:
            raise MetadataRefused(f"a number is {value}, the limit is {limit}")
        self.at = at
        return value

    def count(self, *, limit: int, item_bytes: int = 1) -> int:
        """Read a number of items, at most ``limit``; refuse more items than the remaining bytes can hold."""
        value = self.varint()
        if value > limit or value * item_bytes > len(self.data) - self.at:
            raise MetadataRefused(
                f"{value} items announced, the limit is {limit}, "
                f"{len(self.data) - self.at} bytes are left"
            )
        return value

    def take(self, length: int) -> bytes:
        """Read the next ``length`` bytes."""
        if length > len(self.data) - self.at:
            raise MetadataRefused(f"{length} bytes announced, {len(self.data) - self.at} are left")
        self.at += length
        return self.data[self.at - length : self.at]

    def text(self) -> str:
        """Read a text with its length prefix."""
        return decode_text(self.take(self.varint()))

    def runs(self) -> Runs:
        """Read a set of numbers. Cost and memory: O(bytes read)."""
        header = self.varint()
        return self._deltas(header >> 1) if header & 1 else self._runs(header >> 1)

    def _values(self, count: int) -> list[int]:
        if count > len(self.data) - self.at:
            raise MetadataRefused(
                f"{count} numbers announced, {len(self.data) - self.at} bytes are left"
            )
        window = self.data[self.at : self.at + count]
        if window.isascii():  # every varint is one byte
            self.at += count
            return list(window)
        return [self.varint() for _ in range(count)]

    def _deltas(self, count: int) -> Runs:
        starts: list[int] = []
        lengths: list[int] = []
        at = -1
        for delta in self._values(count):
            at += delta + 1
            if delta or not starts:
                starts.append(at)
                lengths.append(1)
            else:
                lengths[-1] += 1
        return Runs(starts, lengths)

    def _runs(self, count: int) -> Runs:
        pairs = self._values(2 * count)
        starts: list[int] = []
        lengths: list[int] = []
        end = 0
        for i in range(0, len(pairs), 2):
            starts.append(end + pairs[i])
            lengths.append(pairs[i + 1] + 1)
            end = starts[-1] + lengths[-1]
        return Runs(starts, lengths)

    def fields(self) -> Iterator[tuple[int, Reader]]:
        """Yield the remaining tagged fields in order."""
        while not self.is_done:
            tag = self.varint()
            yield tag, Reader(self.take(self.varint()))


def _as_int64(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def decode_text(raw: bytes) -> str:
    """Decode UTF-8. Raises :class:`MetadataRefused` for other bytes."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise MetadataRefused("a text is not UTF-8") from None


def join_texts(texts: Iterable[str]) -> bytes:
    """Join texts without NUL characters by NUL, which compresses better than length prefixes."""
    return "\0".join(texts).encode("utf-8")


def split_texts(raw: bytes) -> tuple[str, ...]:
    """Split the result of :func:`join_texts` into its texts."""
    return tuple(decode_text(raw).split("\0"))
