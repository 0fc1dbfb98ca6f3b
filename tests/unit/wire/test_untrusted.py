"""Untrusted bytes: each limit, and the reason of each refusal as text."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.bounded import TOPICS as MOST_TOPICS
from faust_assigner.wire.bounded import (
    read_group_ids,
    read_json,
    read_label,
    read_stock_claims,
    split_value,
    unpack,
)
from faust_assigner.wire.positions import FURTHEST, decode_positions, encode_positions
from faust_assigner.wire.runs import Reader, Runs


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[1]", "the JSON is a list, not an object"),
        (b"{", "not JSON: JSONDecodeError"),
        (b'{"a":"\xff"}', "not JSON: UnicodeDecodeError"),
        (b'{"a":NaN}', "the JSON contains NaN"),
        (b'{"a":-Infinity}', "the JSON contains -Infinity"),
        (b"[" * 17 + b"]" * 17, "the JSON is nested deeper than 16"),
        (b'{"a":' * 17 + b"1" + b"}" * 17, "the JSON is nested deeper than 16"),
        (b"[" * 20, "the JSON is nested deeper than 16"),
        (b'{"a":"' + b"x" * 34 + b'"}', "42 bytes, the limit is 41"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bytes_that_are_no_json_object_are_refused_with_their_reason(
    data: bytes, reason: str
) -> None:
    """The reason names the kind of the fault and repeats none of the bytes."""
    with pytest.raises(MetadataRefused) as refusal:
        read_json(data, limit=41 if len(data) == 42 else 1_000)
    assert str(refusal.value) == reason


def test_a_json_object_at_the_limits_is_read() -> None:
    """The input has the maximum size, 16 levels, and many brackets in sequence and inside texts."""
    assert read_json(b'{"a":"' + b"x" * 34 + b'"}', limit=42) == {"a": "x" * 34}
    deep = b'{"a":' + b"[" * 15 + b"]" * 15 + b"}"
    assert list(read_json(deep)) == ["a"]
    wide = b'{"a":[' + b",".join([b"[]"] * 40) + b"]}"
    assert read_json(wide) == {"a": [[]] * 40}
    texts = b'{"a":"' + b"[{" * 20 + b'\\"[[","b":"\\\\"}'
    assert read_json(texts) == {"a": "[{" * 20 + '"[[', "b": "\\"}


@pytest.mark.parametrize("level", [0, 9])
def test_data_that_unpacks_to_the_limit_is_read_and_one_byte_more_is_refused(level: int) -> None:
    """The limit holds with and without buffered input; a truncated stream is refused as well."""
    plain = bytes(range(256)) * 4
    packed = zlib.compress(plain, level)
    for limit in (1_024, 1_025, 4_000):
        assert unpack(packed, limit=max(limit, len(packed) if level == 0 else limit)) == plain
    assert unpack(zlib.compress(b"a" * 1_024, 9), limit=1_024) == b"a" * 1_024
    for limit in (1_023, 100):
        with pytest.raises(MetadataRefused, match=f"unpacks to more than {limit} bytes|compressed"):
            unpack(packed, limit=limit)
    with pytest.raises(MetadataRefused, match="cut off, or unpacks to more than 1023 bytes"):
        unpack(zlib.compress(b"a" * 1_024, 9), limit=1_023)
    with pytest.raises(MetadataRefused, match="cut off"):
        unpack(packed[:-1])
    with pytest.raises(MetadataRefused, match="1000 compressed bytes, the limit is 999"):
        unpack(b"x" * 1_000, limit=999)
    with pytest.raises(MetadataRefused, match="not zlib data: error"):
        unpack(b"x" * 10)
    with pytest.raises(MetadataRefused, match="cut off"):
        unpack(b"")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, "a rack is a int, not a text"),
        ("x" * 6, "a rack of 6 characters, the limit is 5"),
        ("a b", "a rack contains a blank or control character"),
        ("a\x7f", "a rack contains a blank or control character"),
        ("\ud800", "a rack contains a blank or control character"),
    ],
)
def test_a_label_is_refused_with_its_reason(value: object, reason: str) -> None:
    """The fault is a type, a length or a character; the empty and the longest label are read."""
    with pytest.raises(MetadataRefused) as refusal:
        read_label(value, "a rack", chars=5)
    assert str(refusal.value) == reason
    assert (read_label("", "a rack"), read_label("x" * 5, "a rack", chars=5)) == ("", "x" * 5)
    assert read_label("x" * 255, "a rack") == "x" * 255
    with pytest.raises(MetadataRefused, match="of 256 characters"):
        read_label("x" * 256, "a rack")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "faust_assigner is a NoneType, not a text"),
        ("1", "faust_assigner has no version"),
        (":AA==", "faust_assigner has no version"),
        ("\u0661:AA==", "faust_assigner has no version"),
        ("00000:AA==", "faust_assigner has no version"),
        ("0:AA==", "faust_assigner has no version"),
        ("1:AA==:AA==", "not base64"),
        ("1:A", "not base64"),
    ],
)
def test_a_key_of_ours_without_a_version_or_bytes_is_refused(value: object, reason: str) -> None:
    """The version is a number of at most four digits, and the first colon ends it."""
    with pytest.raises(MetadataRefused) as refusal:
        split_value(value)
    assert str(refusal.value) == reason
    assert split_value("12:AAE=") == (12, b"\0\x01")


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ([], "assignment is a list, not an object"),
        ({"actives": {}}, "standbys is not an object of at most 10000 topics"),
        ({"actives": [], "standbys": {}}, "actives is not an object of at most 10000 topics"),
        (
            {"actives": {"a": [True]}, "standbys": {}},
            "actives has a value that is not a list of whole numbers",
        ),
        (
            {"actives": {}, "standbys": {"a": 1}},
            "standbys has a value that is not a list of whole numbers",
        ),
        (
            {"actives": {"a": [0], "b": [3, -1]}, "standbys": {}},
            f"actives has a partition outside 0..{2**31 - 1}",
        ),
        (
            {"actives": {"a": [2**31, 0]}, "standbys": {}},
            f"actives has a partition outside 0..{2**31 - 1}",
        ),
    ],
)
def test_an_assignment_of_stock_is_refused_with_its_reason(assignment: object, reason: str) -> None:
    """The fault is a type, a number of topics, or a partition number."""
    with pytest.raises(MetadataRefused) as refusal:
        read_stock_claims(assignment)
    assert str(refusal.value) == reason


def test_an_assignment_of_stock_is_read_up_to_the_limits() -> None:
    """The cases are the first and last partition number, an empty list and the most topics."""
    claims = {"a": [2**31 - 1, 0], "b": []}
    many = {f"t{n}": [0] for n in range(MOST_TOPICS)}
    assert read_stock_claims({"actives": claims, "standbys": many}) == (
        {"a": Runs([0, 2**31 - 1], [1, 1]), "b": Runs([], [])},
        dict.fromkeys(many, Runs([0], [1])),
    )
    with pytest.raises(MetadataRefused):
        read_stock_claims({"actives": {**many, "x": []}, "standbys": {}})


@pytest.mark.parametrize(
    "value", [[], {"a": 0, "b": -1}, {"a": 0, "b": 2**31}, {"a": 0, "b": True}, {"a": "0"}]
)
def test_group_ids_of_stock_are_whole_numbers_of_31_bits(value: object) -> None:
    """The check covers every topic's number; a missing key means no ids."""
    with pytest.raises(MetadataRefused, match="topic_groups"):
        read_group_ids(value)
    assert read_group_ids({"a": 0, "b": 2**31 - 1}) == {"a": 0, "b": 2**31 - 1}
    assert read_group_ids(None) == {}
    assert len(read_group_ids({f"t{n}": n for n in range(MOST_TOPICS)})) == MOST_TOPICS
    with pytest.raises(MetadataRefused, match=f"at most {MOST_TOPICS} topics"):
        read_group_ids({f"t{n}": n for n in range(MOST_TOPICS + 1)})


def test_positions_have_these_bytes_and_limits() -> None:
    """A step up is even and a step down odd; 0 and excessive offsets are left out."""
    said = {
        "b": {5: 3, 1: 200, 2: 0, 3: FURTHEST + 1, 4: -1},
        "a": (np.array([0, 7]), np.array([FURTHEST, 1])),
        "x": {0: 1},
        "c": {0: 0},
    }
    raw = encode_positions(said, {"c": 0, "b": 1, "a": 2})
    assert raw.hex(" ", -4) == "02050006 0f808080 80808080 01fdffff ffffff7f 01050103 04900389 03"
    found = decode_positions(Reader(raw), ["c", "b", "a"])
    assert {topic: (at.tolist(), to.tolist()) for topic, (at, to) in found.items()} == {
        "a": ([0, 7], [FURTHEST, 1]),
        "b": ([1, 5], [200, 3]),
    }
