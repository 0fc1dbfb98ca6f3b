"""One claim of one member, read without trust: whatever it is, valid partition numbers come out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from faust_assigner.model import Ints

_NONE: Ints = np.empty(0, dtype=np.int64)


def claim_on(claims: Any, topic: str) -> Any:
    """``claims[topic]``, or ``None`` when there is none or ``claims`` is not a mapping at all."""
    if type(claims) is dict:
        return claims.get(topic)
    if not isinstance(claims, Mapping):
        return None
    try:
        return claims.get(topic)
    except Exception:  # a stranger's mapping may do anything
        return None


def as_span(claim: Any, count: int) -> tuple[int, int] | None:
    """``(first, past the last)`` of a claim that is a plain ascending range, clipped to ``count``."""
    if type(claim) is range and claim.step == 1:
        first = max(claim.start, 0)
        return first, max(first, min(claim.stop, count))
    return None


def numbers(claim: Any, count: int) -> Ints:
    """The partition numbers of ``claim`` that are integers in ``[0, count)``; duplicates stay.

    Takes lists, sets, ranges, arrays, any iterable; anything else, and any element that is not an
    integer, counts as not claimed. Cost: one pass; an endless iterable is cut after ``2 * count + 16``.
    """
    if isinstance(claim, np.ndarray):
        return _from_array(claim, count)
    if isinstance(claim, range):
        return _from_range(claim, count)
    if isinstance(claim, (str, bytes, bytearray)) or not isinstance(claim, Iterable):
        return _NONE
    try:
        values = list(claim) if isinstance(claim, (list, tuple, set, frozenset)) else list(
            islice(claim, 2 * count + 16)
        )
    except Exception:  # a stranger's iterable may do anything
        return _NONE
    return _from_list(values, count)


def _from_range(claim: range, count: int) -> Ints:
    """Clipped before it is laid out: a hostile ``range(10**18)`` costs no more than ``count``."""
    up = claim if claim.step > 0 else claim[::-1]
    start = up.start if up.start >= 0 else up.start % up.step
    return np.arange(start, max(start, min(up.stop, count)), up.step, dtype=np.int64)


def _from_array(claim: np.ndarray[Any, Any], count: int) -> Ints:
    flat = claim.reshape(-1)
    if flat.dtype.kind in "iu":
        return _within(flat, count)
    if flat.dtype.kind == "O":
        return _from_list(flat.tolist(), count)
    return _NONE


def _from_list(values: list[Any], count: int) -> Ints:
    try:
        laid = np.asarray(values)
    except Exception:  # ragged, or an element with a hostile __array__
        laid = None
    if laid is not None and laid.ndim == 1 and laid.dtype.kind in "iu":
        return _within(laid, count)
    sane = [v for v in values if type(v) is int and 0 <= v < count]
    return np.array(sane, dtype=np.int64) if sane else _NONE


def _within(values: np.ndarray[Any, Any], count: int) -> Ints:
    if values.size and (int(values.min()) < 0 or int(values.max()) >= count):
        values = values[(values >= 0) & (values < count)]
    return values.astype(np.int64, copy=False)
