"""The records inside a batch: their offsets, times and whether they have keys, many records at a time.

A batch of 1 MB may unpack to millions of records of nine bytes, so no Python object is made for a record.
Python follows the lengths from record to record; numpy reads the fields of up to 8,192 records together.
Records that numpy does not take are read again in Python, check by check: that reader alone refuses.
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
FEW: Final = 24  # records below which numpy's fixed cost is higher than Python's
LONGEST_VARINT: Final = 9  # bytes that numpy reads; ten are left to the exact reader
PADDING: Final = bytes(LONGEST_VARINT + 1)


class BadBody(ValueError):
    """The bytes are not as many sound records as the batch claims."""


class _Unusual(Exception):
    """Left to the exact reader."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What is inside a batch, record by record: offsets within it, times in ms; which records have no key."""

    offsets: Longs
    timestamps: Longs
    without_key: Longs


def read_body(body: bytes, count: int, base_timestamp: int) -> Contents:
    """Read ``count`` records that fill ``body``. Raises BadBody.

    Cost: about 0.15 us a record, and 0.1 us for each header.
    """
    if count * SMALLEST_RECORD > len(body):
        raise BadBody("the records end early")
    offsets, times = np.empty(count, np.int64), np.empty(count, np.int64)
    has_key = np.empty(count, np.bool_)
    position = 0
    for first in range(0, count, AT_ONCE):
        stop = min(first + AT_ONCE, count)
        try:
            if stop - first < FEW:
                raise _Unusual
            begins, ends = _walk(body, position, stop - first)
            part = _read_together(body, begins, ends)
        except _Unusual:
            position, part = _read_exactly(body, position, first, stop)
        else:
            position = int(ends[-1])
        offsets[first:stop], times[first:stop], has_key[first:stop] = part
    if position != len(body):
        raise BadBody(f"{len(body) - position} bytes behind the last record")
    # Times are 64 bits wide and wrap, as in Java.
    return Contents(offsets, times + np.int64(base_timestamp), np.flatnonzero(~has_key))


# -- together ---------------------------------------------------------------------------------------


def _walk(body: bytes, position: int, count: int) -> tuple[Longs, Longs]:
    """Where the next ``count`` records begin, behind their lengths, and where they end."""
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


def _read_together(
    body: bytes, begins: Longs, ends: Longs
) -> tuple[Longs, Longs, NDArray[np.bool_]]:
    start = int(begins[0])
    data = np.frombuffer(body[start : int(ends[-1])] + PADDING, np.uint8)
    ends = ends - start
    times, at = _varints(data, begins - start + 1, ends)  # behind the attributes
    offsets, at = _varints(data, at, ends)
    keys, at = _varints(data, at, ends)
    values, at = _varints(data, at + np.maximum(keys, 0), ends)
    headers, at = _varints(data, at + np.maximum(values, 0), ends)
    if headers.any():
        at = _after_all_headers(data, at, ends, headers)
    if (at != ends).any():
        raise _Unusual
    return offsets, times, keys >= 0


def _varints(data: Bytes, at: Longs, ends: Longs) -> tuple[Longs, Longs]:
    """The signed varint at each place, and the places behind them; none may begin at its end or beyond."""
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


def _after_all_headers(data: Bytes, at: Longs, ends: Longs, headers: Longs) -> Longs:
    """The places behind the headers. Few records with many headers each are left to the exact reader."""
    if headers.min() < 0:
        raise _Unusual
    at, left = at.copy(), headers.copy()
    going = np.flatnonzero(left)
    while going.size:
        if going.size < FEW and left[going].max() > FEW:
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
    body: bytes, position: int, first: int, stop: int
) -> tuple[int, tuple[Longs, Longs, NDArray[np.bool_]]]:
    """The records from number ``first`` to ``stop``: the place behind them, and what they hold."""
    offsets, times = np.empty(stop - first, np.int64), np.empty(stop - first, np.int64)
    has_key = np.empty(stop - first, np.bool_)
    try:
        for number in range(first, stop):
            length, position = _signed_varint(body, position)
            end = position + length
            if length < 0 or end > len(body):
                raise BadBody(f"record {number} claims {length} bytes")
            time, position = _signed_varint(body, position + 1)
            offset, position = _signed_varint(body, position)
            key_length, position = _signed_varint(body, position)
            value_length, position = _signed_varint(body, position + max(key_length, 0))
            position = _after_headers(body, position + max(value_length, 0))
            if position != end:
                raise BadBody(f"record {number} is not {length} bytes long")
            at = number - first
            offsets[at], times[at], has_key[at] = _int64(offset), _int64(time), key_length >= 0
    except IndexError:
        raise BadBody("the records end early") from None
    return position, (offsets, times, has_key)


def _after_headers(body: bytes, position: int) -> int:
    headers, position = _signed_varint(body, position)
    if headers < 0 or headers > len(body) - position:
        raise BadBody(f"a record claims {headers} headers")
    for _ in range(headers):
        length = body[position]
        if length < 0x80 and not length & 1:  # by far the most names: short, and read at once
            position += 1 + (length >> 1)
        else:
            length, position = _signed_varint(body, position)
            if length < 0:
                raise BadBody("a header without a name")
            position += length
        length = body[position]
        if length < 0x80:
            position += 1 if length & 1 else 1 + (length >> 1)
        else:
            length, position = _signed_varint(body, position)
            position += max(length, 0)
    return position


def _int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _signed_varint(body: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise BadBody("a varint is too long")
