"""The records inside a batch: read offsets, times and the presence of keys, many records at a time.

A batch of 1 MB may decompress to millions of records of nine bytes, so no Python object is made per record.
Python follows the lengths from record to record; numpy reads the fields of up to 8,192 records together.
Records that numpy cannot handle are read again in Python with all checks, by the exact reader. Only the exact
reader refuses single records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
SMALLEST_RECORD: Final = 7  # bytes: length, attributes, time, offset, key, value, headers
AT_ONCE: Final = 8_192
MAX_HEADERS: Final = 2_000_000  # in one batch; thirty million empty headers compress to 2 KB
FEW_WITH_HEADERS: Final = 512  # for fewer records with many headers, Python is faster than numpy
FEW: Final = 24  # for fewer records, Python is faster than numpy
LONGEST_VARINT: Final = 9  # bytes; only the exact reader handles varints of ten bytes
PADDING: Final = bytes(LONGEST_VARINT + 1)


class BadBody(ValueError):
    """The bytes are not ``count`` valid records, as the batch claims."""


class WrongOffsets(ValueError):
    """The relative offsets are not 0, 1, 2, ...; ``without_key``: records without key among those read."""

    def __init__(self, without_key: Longs) -> None:
        super().__init__("offsets inside the batch are not 0, 1, 2, ...")
        self.without_key = without_key


class _Unusual(Exception):
    """The exact reader must handle these records."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of a batch by record: relative offsets, times in ms, and the records without key."""

    offsets: Longs
    timestamps: Longs
    without_key: Longs


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of a body's records; offsets and times are relative to the batch's first record.

    Record n is ``body[ends[n - 1]:ends[n]]``, record 0 is ``body[:ends[0]]``. The key of record n is
    ``key_sizes[n]`` bytes long and begins at ``keys_at[n]``. The size -1 means a null key or a null value; a
    record with a null value is a tombstone.
    """

    offsets: Longs
    times: Longs
    keys_at: Longs
    key_sizes: Longs
    value_sizes: Longs
    ends: Longs


def read_body(body: bytes, count: int, base_timestamp: int, *, in_order: bool = False) -> Contents:
    """Read ``count`` records that fill ``body``. Raises BadBody.

    With ``in_order``, relative offsets other than 0, 1, 2, ... raise WrongOffsets before the
    next 8,192 records are read: equal records
    compress to almost nothing, so a compressed batch of 6 KB could have ten million of them.
    Cost: about 0.15 us a record, and 0.1 us for each header.
    """
    layout = read_layout(body, count, in_order=in_order)
    # Times are 64 bits wide and wrap, as in Java.
    times = layout.times + np.int64(base_timestamp)
    return Contents(layout.offsets, times, np.flatnonzero(layout.key_sizes < 0))


def read_layout(body: bytes, count: int, *, in_order: bool = False) -> Layout:
    """Find ``count`` records that fill ``body``. Errors and cost: as of :func:`read_body`."""
    if count * SMALLEST_RECORD > len(body):
        raise BadBody("the records end early")
    columns = np.empty((6, count), np.int64)
    position = headers = 0
    for first in range(0, count, AT_ONCE):
        stop = min(first + AT_ONCE, count)
        try:
            if stop - first < FEW:
                raise _Unusual
            begins, ends = _find_records(body, position, stop - first)
            part, headers = _read_columns(body, begins, ends, headers)
        except _Unusual:
            position, part, headers = _read_exactly(body, position, stop - first, first, headers)
        else:
            position = int(ends[-1])
        columns[:, first:stop] = part
        if in_order and (part[0] != np.arange(first, stop)).any():
            raise WrongOffsets(np.flatnonzero(columns[3, :stop] < 0))
    if position != len(body):
        raise BadBody(f"there are {len(body) - position} bytes after the last record")
    return Layout(*columns)


# -- together ---------------------------------------------------------------------------------------


def _find_records(body: bytes, position: int, count: int) -> tuple[Longs, Longs]:
    """Return where the next ``count`` records begin, after their lengths, and where they end."""
    begins, ends = [], []
    size = len(body)
    for _ in range(count):
        if position >= size:
            raise _Unusual
        length = body[position]
        position += 1
        if length >= 0x80:
            shift = 7
            length &= 0x7F
            while True:
                if position >= size or shift > 28:
                    raise _Unusual
                byte = body[position]
                position += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
        if length & 1:
            raise _Unusual
        begins.append(position)
        position += length >> 1
        ends.append(position)
    if position > size:
        raise _Unusual
    return np.array(begins, np.int64), np.array(ends, np.int64)


def _read_columns(body: bytes, begins: Longs, ends: Longs, before: int) -> tuple[Longs, int]:
    """Return the columns of records, and the number of headers up to their end."""
    start = int(begins[0])
    data = np.frombuffer(body[start : int(ends[-1])] + PADDING, np.uint8)
    beyond, ends = ends, ends - start
    times, at = _varints(data, begins - start + 1, ends)  # after the attributes
    offsets, at = _varints(data, at, ends)
    keys, keys_at = _varints(data, at, ends)
    values, at = _varints(data, keys_at + np.maximum(keys, 0), ends)
    headers, at = _varints(data, at + np.maximum(values, 0), ends)
    if headers.any():
        if headers.min() < 0 or headers.max() > len(data):
            raise _Unusual
        before = _checked_headers(before + int(headers.sum()))
        at = _positions_after_headers(data, at, ends, headers)
    if (at != ends).any():
        raise _Unusual
    return np.stack((offsets, times, keys_at + start, keys, values, beyond)), before


def _varints(data: Bytes, at: Longs, ends: Longs) -> tuple[Longs, Longs]:
    """Read the signed varint at each position; return the values and the positions after them.

    Raises _Unusual if a varint starts after its record or is too long.
    """
    if (at >= ends).any():
        raise _Unusual
    byte = data[at].astype(np.int64)
    value, at, going = byte & 0x7F, at + 1, np.flatnonzero(byte >= 0x80)
    for shift in range(7, 7 * LONGEST_VARINT, 7):
        if not going.size:
            break
        byte = data[at[going]].astype(np.int64)
        value[going] |= (byte & 0x7F) << shift
        at[going] += 1
        going = going[byte >= 0x80]
    if going.size:
        raise _Unusual
    return (value >> 1) ^ -(value & 1), at


def _positions_after_headers(data: Bytes, at: Longs, ends: Longs, headers: Longs) -> Longs:
    """Return the positions after the headers. Raises _Unusual if few records have many headers."""
    at, left = at.copy(), headers.copy()
    going = np.flatnonzero(left)
    while going.size:
        if going.size < FEW_WITH_HEADERS and left[going].max() > FEW:
            raise _Unusual
        names, behind = _varints(data, at[going], ends[going])
        if names.min() < 0:
            raise _Unusual
        values, behind = _varints(data, behind + names, ends[going])
        at[going] = behind + np.maximum(values, 0)
        left[going] -= 1
        going = going[left[going] > 0]
    return at


# -- one by one -------------------------------------------------------------------------------------


def _read_exactly(
    body: bytes, position: int, count: int, first: int, headers: int
) -> tuple[int, NDArray[np.int64], int]:
    """Read ``count`` records from record number ``first`` on, after ``headers`` headers.

    Returns the next position, the columns, and the number of headers up to there.
    """
    columns = np.empty((6, count), np.int64)
    try:
        for at in range(count):
            length, position = _read_signed_varint(body, position)
            end = position + length
            if length < 0 or end > len(body):
                raise BadBody(f"record {first + at} has an invalid length of {length} bytes")
            time, position = _read_signed_varint(body, position + 1)
            offset, position = _read_signed_varint(body, position)
            key_length, key_at = _read_signed_varint(body, position)
            value_length, position = _read_signed_varint(body, key_at + max(key_length, 0))
            own, position = _read_signed_varint(body, position + max(value_length, 0))
            if own < 0 or own > len(body) - position:
                raise BadBody(f"a record has an invalid number of headers: {own}")
            headers = _checked_headers(headers + own)
            position = _position_after_headers(body, position, own)
            if position != end:
                raise BadBody(f"record {first + at} does not end after {length} bytes")
            sizes = max(key_length, -1), max(value_length, -1)
            columns[:, at] = (_as_int64(offset), _as_int64(time), key_at, *sizes, end)
    except IndexError:
        raise BadBody("the records end early") from None
    return position, columns, headers


def _checked_headers(number: int) -> int:
    if number > MAX_HEADERS:
        raise BadBody(f"the records have more than {MAX_HEADERS} headers")
    return number


def _position_after_headers(body: bytes, position: int, headers: int) -> int:
    for _ in range(headers):
        length = body[position]
        if length < 0x80 and not length & 1:  # the fast path: most names are short
            position += 1 + (length >> 1)
        else:
            length, position = _read_signed_varint(body, position)
            if length < 0:
                raise BadBody("a record header has no name")
            position += length
        length = body[position]
        if length < 0x80:
            position += 1 if length & 1 else 1 + (length >> 1)
        else:
            length, position = _read_signed_varint(body, position)
            position += max(length, 0)
    return position


def _as_int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _read_signed_varint(body: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise BadBody("a varint is too long")
