"""Read the members' claims on topics, which come from the network: only valid partition numbers are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import is_
from typing import Any

import numpy as np

from faust_assigner.model import Ints

_NONE: Ints = np.empty(0, dtype=np.int64)


def claim_on(claims: object, topic: str) -> object:
    """Return ``claims[topic]``, or ``None`` if the topic is missing or ``claims`` is not a mapping."""
    return claims.get(topic) if type(claims) is dict else dict(items_of(claims)).get(topic)


def items_of(claims: object) -> Iterable[tuple[object, object]]:
    """Return the (topic, claim) pairs of a member's claims; empty if ``claims`` is not a mapping."""
    if type(claims) is dict:
        return claims.items()
    if not isinstance(claims, Mapping):
        return ()
    try:
        return list(claims.items())
    except Exception:  # the mapping comes from the network and may raise any error
        return ()


@dataclass
class TopicClaims:
    """All members' claims on one topic: ``claims[i]`` is the claim of ``members[i]``, not read yet."""

    members: list[int] = field(default_factory=list)
    claims: list[Any] = field(default_factory=list)

    def is_same(self, other: TopicClaims) -> bool:
        """Return whether both topics have the same members with identical claim objects or equal ranges."""
        if self.members != other.members:
            return False
        if all(map(is_, self.claims, other.claims)):
            return True
        kinds = {*map(type, self.claims), *map(type, other.claims)}
        return kinds == {range} and self.claims == other.claims

    def pairs(self, count: int) -> tuple[Ints, Ints]:
        """Return (numbers, members): one entry per claimed number in ``[0, count)``, in insertion order."""
        if not self.members:
            return _NONE, _NONE
        parts = _join_lists(self.claims) or _ranges(self.claims, count)
        if parts is None:
            read = [_as_signed_array(claim, count) for claim in self.claims]
            parts = (
                read[0] if len(read) == 1 else np.concatenate(read),
                [len(part) for part in read],
            )
        number, sizes = parts
        member = np.repeat(np.array(self.members, dtype=np.int64), sizes)
        if number.size and (int(number.min()) < 0 or int(number.max()) >= count):
            real = (number >= 0) & (number < count)
            number, member = number[real], member[real]
        return number.astype(np.int64, copy=False), member


def _join_lists(claims: list[Any]) -> tuple[np.ndarray[Any, Any], list[int]] | None:
    """Join lists of integers and convert them to one array; return ``None`` for other types."""
    if not all(type(claim) is list for claim in claims):
        return None
    joined = list(chain.from_iterable(claims))
    try:
        number = np.asarray(joined, dtype=None if joined else np.int64)
    except Exception:  # numpy refuses lists of different depth; an __array__ may raise
        return None
    if number.ndim != 1 or number.dtype.kind != "i":
        return None
    return number, [len(claim) for claim in claims]


def _ranges(claims: list[Any], count: int) -> tuple[np.ndarray[Any, Any], list[int]] | None:
    """Expand ranges of step 1 together, clipped to ``[0, count)``; return ``None`` for other types."""
    if not all(type(claim) is range and claim.step == 1 for claim in claims):
        return None
    first = np.array([min(max(claim.start, 0), count) for claim in claims], dtype=np.int64)
    size = np.array([min(max(claim.stop, 0), count) for claim in claims], dtype=np.int64) - first
    size = np.maximum(size, 0)
    before = np.cumsum(size) - size
    return np.arange(int(size.sum())) + np.repeat(first - before, size), size.tolist()


def _as_signed_array(claim: object, count: int) -> np.ndarray[Any, Any]:
    """Return an array of signed integers unchanged, because the caller checks it; read other types."""
    if type(claim) is np.ndarray and claim.dtype.kind == "i" and claim.ndim == 1:
        return claim
    return numbers(claim, count)


def numbers(claim: object, count: int) -> Ints:
    """Return the elements of ``claim`` that are integers in ``[0, count)``, including duplicates.

    ``claim`` may be a list, set, range, array or any other iterable; any other type gives an empty result.
    Cost: one pass; unknown iterables, which may be endless, are cut after ``2 * count + 16`` elements.
    """
    if isinstance(claim, np.ndarray):
        return _numbers_from_array(claim, count)
    if isinstance(claim, range):
        return _numbers_from_range(claim, count)
    if isinstance(claim, (str, bytes, bytearray)) or not isinstance(claim, Iterable):
        return _NONE
    try:
        values = (
            list(claim)
            if isinstance(claim, (list, tuple, set, frozenset))
            else list(islice(claim, 2 * count + 16))
        )
    except Exception:  # the iterable comes from the network and may raise any error
        return _NONE
    return _numbers_from_list(values, count)


def _numbers_from_range(claim: range, count: int) -> Ints:
    """Clip the range before its expansion, so that the cost is O(count) even for ``range(10**18)``."""
    up = claim if claim.step > 0 else claim[::-1]
    start = up.start if up.start >= 0 else up.start % up.step
    return np.arange(start, max(start, min(up.stop, count)), up.step, dtype=np.int64)


def _numbers_from_array(claim: np.ndarray[Any, Any], count: int) -> Ints:
    flat = claim.reshape(-1)
    if flat.dtype.kind in "iu":
        return _within_count(flat, count)
    if flat.dtype.kind == "O":
        return _numbers_from_list(flat.tolist(), count)
    return _NONE


def _numbers_from_list(values: list[object], count: int) -> Ints:
    try:
        laid = np.asarray(values)
    except Exception:  # numpy refuses lists of different depth; an __array__ may raise
        laid = None
    if laid is not None and laid.ndim == 1 and laid.dtype.kind in "iub":
        return _within_count(laid.astype(np.int64) if laid.dtype.kind == "b" else laid, count)
    sane = [v for v in values if isinstance(v, int) and 0 <= v < count]
    return np.array(sane, dtype=np.int64) if sane else _NONE


def _within_count(values: np.ndarray[Any, Any], count: int) -> Ints:
    return values[(values >= 0) & (values < count)].astype(np.int64, copy=False)


def offsets_at(claim: object, wanted: Ints) -> Ints:
    """Return int64[K]: the offset of each partition of ``wanted`` in ``claim``; 0 without an offset.

    ``claim`` has the form :data:`~faust_assigner.model.Positions`. The caller must check the offsets,
    which may be too large or negative.
    """
    if isinstance(claim, tuple):
        sides = [
            side
            for side in claim
            if type(side) is np.ndarray and (side.ndim, side.dtype.kind) == (1, "i")
        ]
        if (
            len(sides) != 2
            or len(claim) != 2
            or sides[0].size != sides[1].size
            or not sides[0].size
        ):
            return np.zeros(wanted.size, dtype=np.int64)
        number, offset = sides
        at = np.searchsorted(number, wanted)
        at[at == number.size] = 0
        return np.where(number[at] == wanted, offset[at], 0)
    plain = claim if type(claim) is dict else dict(items_of(claim))
    said = [plain.get(p) for p in wanted.tolist()]
    return np.array([o if type(o) is int and 0 <= o < 1 << 62 else 0 for o in said], dtype=np.int64)
