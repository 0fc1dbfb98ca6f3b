"""Offsets on the wire: they survive a round trip, take few bytes, and hostile bytes are refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.join import JoinData, decode_join, encode_join
from faust_assigner.wire.positions import FURTHEST, decode_positions, encode_positions
from faust_assigner.wire.runs import Reader, Writer

ROW = {"log": 1, "other": 2}
TOPICS = ("a", "log", "other")


def back(raw: bytes) -> dict[str, dict[int, int]]:
    """Return the leader's decoded positions."""
    read = decode_positions(Reader(raw), TOPICS)
    return {
        t: dict(zip(numbers.tolist(), offsets.tolist(), strict=True))
        for t, (numbers, offsets) in read.items()
    }


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"log": {0: 1}},
        {"log": {5: FURTHEST, 7: 1, 6: 127, 0: 128}, "other": {3: 64}},
        {"log": {p: 10**6 + (p * 7919) % 1000 for p in range(300)}},
    ],
)
def test_positions_come_back(said: dict[str, dict[int, int]]) -> None:
    """Partitions may be in any order, and offsets go up to the longest possible log."""
    assert back(encode_positions(said, ROW)) == said


def test_a_topic_without_positions_is_read_as_such() -> None:
    """This package's members never send such a topic; a foreign member's topic is no error."""
    body = Writer()
    body.varint(ROW["log"])
    body.numbers([])
    body.varint(0)
    assert back(bytes(body.data)) == {"log": {}}


def test_random_positions_come_back() -> None:
    """The positions have gaps and lengths of all kinds."""
    rng = Random(3)
    for _ in range(200):
        said = {
            t: {
                p: rng.randint(1, 10 ** rng.randint(1, 14))
                for p in rng.sample(range(500), rng.randint(1, 60))
            }
            for t in ROW
        }
        assert back(encode_positions(said, ROW)) == said


def test_arrays_are_written_as_mappings_are() -> None:
    """Decoded positions can be encoded again."""
    said = {"log": {0: 5, 4: 70_000}}
    arrays = {"log": (np.array([0, 4]), np.array([5, 70_000]))}
    assert encode_positions(arrays, ROW) == encode_positions(said, ROW)


def test_a_position_takes_about_three_bytes() -> None:
    """Partitions of a changelog have similar lengths: a thousand positions take 3 KB."""
    rng = Random(1)
    said = {"log": {p: 5_000_000 + rng.randint(-50_000, 50_000) for p in range(1000)}}
    assert len(encode_positions(said, ROW)) < 3100


def test_what_is_no_position_is_left_out() -> None:
    """Offsets of 0, below 0 and beyond any log are left out."""
    assert back(
        encode_positions({"log": {0: 0, 1: -4, 2: FURTHEST + 1, 3: 9}, "strange": {0: 1}}, ROW)
    ) == {"log": {3: 9}}


def field(row: int, numbers: list[int], raw: bytes) -> bytes:
    """Return a topic's positions with any bytes as its offsets."""
    body = Writer()
    body.varint(row)
    body.numbers(numbers)
    body.varint(len(raw))
    return bytes(body.data) + raw


@pytest.mark.parametrize(
    "raw",
    [
        field(3, [0], b"\x02"),
        field(1, [0, 1], b"\x02"),
        field(1, [0], b"\x02\x02"),
        field(1, [0], b"\x80"),
        field(1, [0], b"\xff" * 8 + b"\x01"),
        field(1, [0], b"\x01"),
        field(1, [0], b"\x80" * 7 + b"\x40"),
        field(1, [0], b"\x02") * 2,
        field(1, [0], b"\x02")[:-1],
        b"\x01\xfe\xff\xff\xff\x0f",
        b"\x01",
        field(1, [], b"\x02"),
    ],
)
def test_what_cannot_be_is_refused(raw: bytes) -> None:
    """Unknown topics, wrong counts, truncated, excessive and repeated positions are refused."""
    with pytest.raises(MetadataRefused):
        decode_positions(Reader(raw), TOPICS)


def test_a_claim_of_billions_of_partitions_costs_nothing() -> None:
    """A huge set of numbers in few bytes with a single offset is refused before it is expanded."""
    body = Writer()
    body.varint(1)
    body.numbers(range(2**31 - 1))
    body.varint(1)
    with pytest.raises(MetadataRefused):
        decode_positions(Reader(bytes(body.data) + b"\x02"), TOPICS)


def test_they_travel_in_a_join_and_older_members_say_none() -> None:
    """None differs from empty: the leader does not wait for a member without positions."""
    said = JoinData(
        "http://w", positions={"log": {0: 7}}, awaited={"log": [0]}, overdue={"log": [3]}
    )
    read = decode_join(encode_join(said, TOPICS), TOPICS)
    assert read.positions is not None
    assert {t: (n.tolist(), o.tolist()) for t, (n, o) in read.positions.items()} == {
        "log": ([0], [7])
    }  # type: ignore[union-attr]
    assert (list(read.awaited["log"]), list(read.overdue["log"])) == ([0], [3])
    assert decode_join(encode_join(replace(said, positions={}), TOPICS), TOPICS).positions == {}
    assert decode_join(encode_join(replace(said, positions=None), TOPICS), TOPICS).positions is None


@pytest.mark.parametrize(
    ("raw", "offset"),
    [(b"\x82" + b"\x80" * 6 + b"\x00", 1), (b"\x82" + b"\x80" * 7 + b"\x00", None)],
)
def test_an_offset_has_at_most_eight_bytes(raw: bytes, offset: int | None) -> None:
    """Zeros at the end do not change the number, and count as its bytes."""
    body = Writer()
    body.varint(ROW["log"])
    body.numbers([4])
    body.varint(len(raw))
    data = bytes(body.data) + raw
    if offset is not None:
        assert back(data) == {"log": {4: offset}}
        return
    with pytest.raises(MetadataRefused, match="an offset is too long"):
        back(data)
