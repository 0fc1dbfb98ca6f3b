"""Sets of numbers as runs: exact, short, and bounded when read."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import PartitionNumbers
from faust_assigner.wire import runs as module
from faust_assigner.wire.runs import Reader, Runs, Writer, join_texts, split_texts


def packed(numbers: object) -> bytes:
    """Return the bytes of a set."""
    out = Writer()
    out.numbers(numbers)  # type: ignore[arg-type]
    return bytes(out.data)


def test_any_set_comes_back() -> None:
    """2,000 random sets are scattered and contiguous, small and large."""
    rng = random.Random(3)
    for _ in range(2000):
        size = rng.choice([0, 1, 2, 10, 48, 49, 400])
        spread = rng.choice([1, 2, 40])
        numbers = set(rng.sample(range(size * spread + 1), size))
        read = Reader(packed(numbers)).runs()
        assert list(read) == sorted(numbers)
        flat = read.numbers()
        assert list(flat) == sorted(numbers)
        assert isinstance(flat, range) or flat.dtype == np.int64  # holds for an empty set as well
        limit = rng.randrange(size * spread + 2)
        assert list(read.below(limit)) == sorted(n for n in numbers if n < limit)


def test_a_run_is_a_few_bytes_and_scattered_numbers_one_each() -> None:
    """A contiguous claim takes bytes per run, a scattered claim takes bytes per number."""
    assert len(packed(range(1_000_000))) <= 5
    assert len(packed(range(0, 200, 2))) <= 102


def test_order_and_repeats_do_not_matter() -> None:
    """A claim is a set in whatever form it is given."""
    assert packed([3, 1, 2, 3]) == packed({1, 2, 3}) == packed(range(1, 4))


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\x08\x00", b"\xff" * 12, b"\x0b\x00"])
def test_cut_off_bytes_are_refused(raw: bytes) -> None:
    """Missing numbers are refused before any memory is allocated."""
    with pytest.raises(MetadataRefused):
        Reader(raw).runs()


def test_no_more_items_are_announced_than_bytes_are_left() -> None:
    """The count is compared with the bytes after the announcement, not with all bytes."""
    body = Reader(b"12345678\x03abc")
    body.take(8)
    assert body.count(limit=3) == 3
    for limit, item_bytes in ((2, 1), (3, 2)):
        body = Reader(b"12345678\x03abc")
        body.take(8)
        with pytest.raises(MetadataRefused):
            body.count(limit=limit, item_bytes=item_bytes)


SETS: list[tuple[Sequence[int], str, list[int], list[int]]] = [
    ([], "00", [], []),
    ([0], "0300", [0], [1]),
    ([0, 1, 2], "020002", [0], [3]),
    ([5, 7], "050501", [5, 7], [1, 1]),
    ([8, 5, 7, 7], "0405000101", [5, 7], [1, 2]),
    ([0, 1, 5, 6, 9], "06000103010200", [0, 5, 9], [2, 2, 1]),
    (range(3, 9), "020305", [3], [6]),
    (range(0, 6, 2), "07000101", [0, 2, 4], [1, 1, 1]),
    ([128], "038001", [128], [1]),
    ([200, 201, 1000], "04c801019e0600", [200, 1000], [2, 1]),
    ([*range(100, 160), 3, 4], "0403015f3b", [3, 100], [2, 60]),
]


@pytest.mark.parametrize(("numbers", "coded", "starts", "lengths"), SETS, ids=lambda v: str(v)[:24])
def test_a_set_of_numbers_has_these_bytes_and_runs(
    numbers: Sequence[int], coded: str, starts: list[int], lengths: list[int]
) -> None:
    """Short runs are a step per number, long runs a gap and a length; both decode to equal runs."""
    out = Writer()
    out.numbers(numbers)
    assert out.data.hex() == coded
    body = Reader(bytes(out.data))
    assert body.runs() == Runs.of(numbers) == Runs(starts, lengths)
    assert body.is_done
    array = np.array(numbers, dtype=np.int64)
    if array.size:
        assert Runs.of(array) == Runs._of_many(array) == Runs(starts, lengths)


def test_a_set_answers_for_its_own_numbers() -> None:
    """A set has a size, an end, members, subsets and an order."""
    held = Runs([2, 7, 20], [3, 1, 2])
    assert (held.size, held.end, list(held)) == (6, 22, [2, 3, 4, 7, 20, 21])
    assert [n for n in range(24) if n in held] == [2, 3, 4, 7, 20, 21]
    assert "7" not in held
    for part, is_in in (
        (Runs([], []), True),
        (Runs([2, 21], [3, 1]), True),
        (Runs([7, 20], [1, 2]), True),
        (Runs([7, 20], [1, 3]), False),
        (Runs([1], [1]), False),
        (Runs([4], [2]), False),
        (Runs([5, 7], [1, 1]), False),
    ):
        assert held.covers(part) is is_in, part
    assert [list(held.below(limit)) for limit in (2, 3, 7, 8, 21, 22)] == [
        [], [2], [2, 3, 4], [2, 3, 4, 7], [2, 3, 4, 7, 20], [2, 3, 4, 7, 20, 21],
    ]  # fmt: skip
    assert list(held) == [2, 3, 4, 7, 20, 21], "the parts are other sets"
    longer = Runs([0, 10, 30], [1, 5, 2])
    assert longer.below(13) == Runs([0, 10], [1, 3])
    assert longer.below(15) == Runs([0, 10], [1, 5])
    assert longer.below(32) is longer
    assert longer.below(0) == Runs([], [])
    empty = Runs([], [])
    assert (empty.size, empty.end, list(empty), 0 in empty) == (0, 0, [], False)
    assert Runs([2], [3]).numbers() == range(2, 5)


@pytest.mark.parametrize("runs", [2, 48, 49, 200])
def test_the_numbers_of_many_runs_are_an_array_in_order(runs: int) -> None:
    """Few runs and many runs are expanded by different code."""
    held = Runs([10 * n + 3 for n in range(runs)], [1 + n % 9 for n in range(runs)])
    found = held.numbers()
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.int64
    assert found.tolist() == list(held)


def test_numbers_and_texts_are_written_one_after_the_other() -> None:
    """A varint has seven bits a byte, lowest first; a text follows its length in bytes."""
    out = Writer()
    for value in (0, 127, 128, 16_384):
        out.varint(value)
    out.varints([])
    out.varints([1, 127])
    out.varints([1, 128])
    out.text("\u00e4b")
    out.field(300, b"xyz")
    assert out.data.hex(" ", 1) == (
        "00 7f 80 01 80 80 01 01 7f 01 80 01 03 c3 a4 62 ac 02 03 78 79 7a"
    )
    body = Reader(bytes(out.data))
    assert [body.varint() for _ in range(8)] == [0, 127, 128, 16_384, 1, 127, 1, 128]
    assert body.text() == "\u00e4b"
    assert not body.is_done
    assert [(tag, field.data) for tag, field in body.fields()] == [(300, b"xyz")]


def test_the_limit_of_a_number_is_read_and_the_next_number_is_refused_in_place() -> None:
    """A refusal does not move the reader's position."""
    out = Writer()
    out.varint(2**31 - 1)
    assert Reader(bytes(out.data)).varint() == 2**31 - 1
    assert Reader(b"\x05").varint(limit=5) == 5
    body = Reader(b"\x06\x01")
    with pytest.raises(MetadataRefused, match="a number is 6, the limit is 5"):
        body.varint(limit=5)
    assert body.varint() == 6
    for raw in (b"", b"\x80", b"\x80" * 10 + b"\x01"):
        with pytest.raises(MetadataRefused, match="a number is cut off"):
            Reader(raw).varint(limit=1 << 80)
    assert Reader(b"\x80" * 9 + b"\x01").varint(limit=1 << 80) == 1 << 63


def test_announced_bytes_and_items_must_be_there() -> None:
    """The exact number of bytes is enough; an item may need several bytes."""
    body = Reader(b"\x02ab")
    assert body.take(body.varint()) == b"ab"
    with pytest.raises(MetadataRefused, match="1 bytes announced, 0 are left"):
        body.take(1)
    assert Reader(b"\x02abcd").count(limit=2, item_bytes=2) == 2
    for limit, item_bytes in ((1, 2), (2, 3)):
        with pytest.raises(MetadataRefused, match="2 items announced"):
            Reader(b"\x02abcd").count(limit=limit, item_bytes=item_bytes)
    with pytest.raises(MetadataRefused, match="2 numbers announced, 1 bytes are left"):
        Reader(b"\x05\x00").runs()
    with pytest.raises(MetadataRefused, match="a text is not UTF-8"):
        Reader(b"\x01\xff").text()


def test_texts_are_joined_by_zeros() -> None:
    """An empty text between two texts is kept."""
    assert join_texts(["a", "", "b"]) == b"a\0\0b"
    assert split_texts(b"a\0\0b") == ("a", "", "b")


def test_the_few_numbers_of_plain_python_are_the_many_of_numpy() -> None:
    """The sizes are next to the threshold for numpy, and arrays come in any order."""
    for size in (module._FEW, module._FEW + 1):
        numbers = [7 * n % 101 for n in range(size)]
        for given in (
            numbers,
            np.array(numbers),
            iter(numbers),
            [*numbers, *numbers],
            np.array(sorted([*numbers, *numbers])),
        ):
            assert list(Runs.of(given)) == sorted(set(numbers))  # type: ignore[arg-type]


@pytest.mark.parametrize("numbers", [range(5, 5), range(9, 2), (), set(), np.array([], dtype=int)])
def test_every_form_of_the_empty_set_has_no_run(numbers: PartitionNumbers) -> None:
    """An empty range has a start, which is not one of its numbers."""
    empty = Runs.of(numbers)
    assert empty == Runs([], [])
    assert (list(empty), empty.size, empty.end) == ([], 0, 0)
