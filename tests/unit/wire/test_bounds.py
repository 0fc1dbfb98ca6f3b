"""Values at each limit of untrusted input: the last allowed value is read, the next is refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from faust_assigner.clients.user_data import (
    LAST_ROUND,
    UserData,
    decode_answer,
    decode_user_data,
    encode_user_data,
    next_round,
)
from faust_assigner.errors import MetadataRefused
from faust_assigner.wire import bounded
from faust_assigner.wire.bounded import read_json, read_label, unpack
from faust_assigner.wire.positions import FURTHEST, decode_positions, encode_positions
from faust_assigner.wire.runs import Reader, Runs, Writer

PACKED = zlib.compress(b"x" * 10)


def nested(depth: int) -> bytes:
    """Return a JSON object of this depth."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def offset(value: int) -> bytes:
    """Return the encoded position of partition 0 of the first topic."""
    out, step = Writer(), Writer()
    step.varint(value << 1)
    out.varint(0)
    out.numbers([0])
    out.varint(len(step.data))
    out.data += step.data
    return bytes(out.data)


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        (lambda: read_json(b"{}", limit=2), lambda: read_json(b"{}", limit=1)),
        (lambda: read_json(nested(bounded.JSON_DEPTH)), lambda: read_json(nested(bounded.JSON_DEPTH + 1))),
        (lambda: unpack(PACKED, limit=max(10, len(PACKED))), lambda: unpack(PACKED, limit=9)),
        (lambda: unpack(PACKED), lambda: unpack(PACKED[:-1])),
        (lambda: read_label("x" * 5, "a name", chars=5), lambda: read_label("x" * 6, "a name", chars=5)),
        (lambda: read_label("\x21", "a name"), lambda: read_label("\x20", "a name")),
        (lambda: Reader(b"\x05").varint(limit=5), lambda: Reader(b"\x06").varint(limit=5)),
        (lambda: Reader(b"\x80" * 3 + b"\x00").varint(), lambda: Reader(b"\x80" * 10 + b"\x00").varint()),
        (lambda: Reader(b"\x02ab").count(limit=2), lambda: Reader(b"\x02a").count(limit=2)),
        (lambda: Reader(b"\x02ab").count(limit=2), lambda: Reader(b"\x02ab").count(limit=1)),
        (lambda: Reader(b"ab").take(2), lambda: Reader(b"ab").take(3)),
        (lambda: decode_positions(Reader(offset(FURTHEST)), ["a"]),
         lambda: decode_positions(Reader(offset(FURTHEST + 1)), ["a"])),
        (lambda: decode_positions(Reader(offset(5)), ["a"]), lambda: decode_positions(Reader(offset(5)), [])),
        (lambda: decode_user_data(b'{"round":%d}' % LAST_ROUND),
         lambda: decode_user_data(b'{"round":%d}' % (LAST_ROUND + 1))),
        (lambda: decode_answer(b'{"round":-1}'), lambda: decode_answer(b'{"round":-2}')),
    ],
)  # fmt: skip
def test_the_last_allowed_value_is_read_and_the_next_one_is_refused(
    allowed: Callable[[], object], refused: Callable[[], object]
) -> None:
    """A value beyond its limit raises MetadataRefused and no other error."""
    allowed()
    with pytest.raises(MetadataRefused):
        refused()


def test_a_position_that_is_cut_off_or_without_records_is_none() -> None:
    """An offset of 0 shows no copy; a truncated offset is refused."""
    assert encode_positions({"a": {0: 0, 1: -5}}, {"a": 0}) == b""
    cut = bytearray(offset(300))
    cut[-2:] = b"\x80\x80"
    with pytest.raises(MetadataRefused, match="cut off"):
        decode_positions(Reader(bytes(cut)), ["a"])


@pytest.mark.parametrize(
    ("number", "is_in"), [(2, False), (3, True), (5, True), (6, False), (9, True)]
)
def test_a_set_has_its_own_numbers_alone(number: int, is_in: bool) -> None:
    """The number after a run is not in the set."""
    numbers = Runs.of([3, 4, 5, 9])
    assert (number in numbers) is is_in
    assert numbers.covers(Runs.of([number])) is is_in


def test_a_set_covers_whole_runs_and_is_cut_below_a_limit() -> None:
    """Runs that end where the set ends are covered; the limit itself is left out."""
    numbers = Runs.of([3, 4, 5, 9])
    assert numbers.covers(numbers)
    assert numbers.covers(Runs.of([]))
    assert not numbers.covers(Runs.of([5, 6]))
    assert [list(numbers.below(limit)) for limit in (3, 4, 9, 10)] == [
        [],
        [3],
        [3, 4, 5],
        [3, 4, 5, 9],
    ]


def test_rounds_are_counted_up_to_the_last_readable_one() -> None:
    """A member with the last round number must not make the next answer unreadable."""
    reports = [decode_user_data(encode_user_data(UserData(round=n))) for n in (-1, LAST_ROUND)]
    assert [next_round(reports[:1]), next_round(reports), next_round([])] == [0, LAST_ROUND, 0]
