"""Sets of numbers as runs: exact, short, and bounded when read."""

from __future__ import annotations

import random

import numpy as np
import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.runs import Reader, Writer


def packed(numbers: object) -> bytes:
    """The bytes of one set."""
    out = Writer()
    out.numbers(numbers)  # type: ignore[arg-type]
    return bytes(out.data)


def test_any_set_comes_back() -> None:
    """2,000 random sets, scattered and contiguous, small and large."""
    rng = random.Random(3)
    for _ in range(2000):
        size = rng.choice([0, 1, 2, 10, 48, 49, 400])
        spread = rng.choice([1, 2, 40])
        numbers = set(rng.sample(range(size * spread + 1), size))
        read = Reader(packed(numbers)).runs()
        assert list(read) == sorted(numbers)
        flat = read.numbers()
        assert list(flat) == sorted(numbers)
        assert isinstance(flat, range) or flat.dtype == np.int64  # also of none
        limit = rng.randrange(size * spread + 2)
        assert list(read.below(limit)) == sorted(n for n in numbers if n < limit)


def test_a_run_is_a_few_bytes_and_scattered_numbers_one_each() -> None:
    """Contiguous claims cost by the run, scattered ones by the number."""
    assert len(packed(range(1_000_000))) <= 5
    assert len(packed(range(0, 200, 2))) <= 102


def test_order_and_repeats_do_not_matter() -> None:
    """A claim is a set, whatever it is given as."""
    assert packed([3, 1, 2, 3]) == packed({1, 2, 3}) == packed(range(1, 4))


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\x08\x00", b"\xff" * 12, b"\x0b\x00"])
def test_cut_off_bytes_are_refused(raw: bytes) -> None:
    """Announced and missing numbers are refused before anything is allocated."""
    with pytest.raises(MetadataRefused):
        Reader(raw).runs()


def test_no_more_items_are_announced_than_bytes_are_left() -> None:
    """Of those after the announcement, whatever stood before it."""
    body = Reader(b"12345678\x03abc")
    body.take(8)
    assert body.count(limit=3) == 3
    for limit, item_bytes in ((2, 1), (3, 2)):
        body = Reader(b"12345678\x03abc")
        body.take(8)
        with pytest.raises(MetadataRefused):
            body.count(limit=limit, item_bytes=item_bytes)
