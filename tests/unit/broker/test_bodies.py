"""The records inside a batch: the fast reader of many records and the exact reader of few."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faust_assigner.broker.storage import bodies
from tests.support.clients.raw_client import _varint, one_record
from tests.support.examples import examples


def record(key: bytes | None, value: bytes | None, headers: int, offset: int, time: int) -> bytes:
    """Return the bytes of a record."""

    def blob(data: bytes | None) -> bytes:
        return _varint(-1) if data is None else _varint(len(data)) + data

    fields = b"\0" + _varint(time) + _varint(offset) + blob(key) + blob(value) + _varint(headers)
    fields += b"".join(blob(b"h%d" % n) + blob(value) for n in range(headers))
    return _varint(len(fields)) + fields


def read(body: bytes, count: int, *, together: bool) -> tuple[list[int], list[int], list[int]]:
    """Return a body's offsets, times and keyless records by either reader. Raises BadBody."""
    with mock.patch.object(bodies, "FEW", 0 if together else 2**31):
        found = bodies.read_body(body, count, 5)
    return found.offsets.tolist(), found.timestamps.tolist(), found.without_key.tolist()


blobs = st.none() | st.binary(max_size=200)
wide = st.integers(-(2**31), 2**31 - 1) | st.integers(-(2**62), 2**62)
records_of_a_batch = st.lists(
    st.tuples(blobs, blobs, st.integers(0, 30), wide, wide), min_size=1, max_size=40
)


@given(records_of_a_batch)
@settings(
    max_examples=examples(300, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_records_are_read_together_as_one_by_one(
    fields: list[tuple[bytes | None, bytes | None, int, int, int]],
) -> None:
    """Both readers return the written offsets, times and records without keys."""
    body = b"".join(record(*each) for each in fields)
    written = (
        [offset for *_, offset, _ in fields],
        [time + 5 for *_, time in fields],
        [n for n, (key, *_) in enumerate(fields) if key is None],
    )
    assert read(body, len(fields), together=True) == written
    assert read(body, len(fields), together=False) == written


@pytest.mark.slow
@given(
    st.lists(st.binary(max_size=9), min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.integers(-1, 1),
)
@settings(max_examples=1_500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_records_are_taken_or_refused_alike_by_both_readers(
    values: list[bytes], seed: int, more: int
) -> None:
    """Wrong, missing and extra bytes and wrong counts: neither reader accepts more."""
    dice = random.Random(seed)
    body = bytearray(b"".join(record(v, v, len(v) % 3, 0, 0) for v in values))
    for _ in range(dice.randint(0, 3)):
        position = dice.randrange(len(body))
        body[position : position + dice.randint(0, 2)] = dice.choice(
            [
                values[0][:2],
                bytes([dice.randrange(256)]),
                b"\x01",
                b"\0",
                b"\xff\xff\x01",
                b"\x80" * 9,
            ]
        )
    outcomes = []
    for together in (True, False):
        try:
            outcomes.append(read(bytes(body), max(len(values) + more, 1), together=together))
        except bodies.BadBody as refused:
            outcomes.append(str(refused))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("count", [1, 23, 24, 25, 8_191, 8_192, 8_193, 8_220, 20_000])
def test_batches_of_any_length_are_read(count: int) -> None:
    """Some batches have a part that is too short for the fast reader."""
    body = b"".join(one_record(b"v", offset_delta=number) for number in range(count))
    found = bodies.read_body(body, count, 0)
    assert found.offsets.tolist() == list(range(count))
    assert found.without_key.tolist() == list(range(count))
    with pytest.raises(bodies.BadBody, match="there are 7 bytes after the last record"):
        bodies.read_body(body + bytes(7), count, 0)


def test_a_record_of_many_headers_takes_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy does not make a pass for each of the 100,000 headers."""
    rounds = 0
    varints = bodies._varints

    def count_it(*arguments: Any) -> Any:
        nonlocal rounds
        rounds += 1
        return varints(*arguments)

    monkeypatch.setattr(bodies, "_varints", count_it)
    counts = [0] * 30 + [100_000] + [0] * 30
    body = b"".join(record(b"k", b"v", headers, 0, 0) for headers in counts)
    assert len(bodies.read_body(body, 61, 0).offsets) == 61
    assert rounds < 100


def test_equal_records_of_a_compressed_batch_are_refused_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch of 6 KB with ten million equal records took 7 s and 600 MB; their offsets are all 0."""
    find, rounds = bodies._find_records, []

    def count_it(*arguments: Any) -> Any:
        rounds.append(arguments)
        return find(*arguments)

    monkeypatch.setattr(bodies, "_find_records", count_it)
    count = 3 * bodies.AT_ONCE
    body = one_record(b"") * count
    with pytest.raises(bodies.WrongOffsets):
        bodies.read_body(body, count, 0, in_order=True)
    assert len(rounds) == 1
    assert len(bodies.read_body(body, count, 0).offsets) == count


@pytest.mark.parametrize("sharers", [1, 23, 100, 1_000])
def test_a_batch_with_too_many_headers_is_refused(
    monkeypatch: pytest.MonkeyPatch, sharers: int
) -> None:
    """A batch of 2 KB with thirty million empty headers kept a thread busy for 8 s."""
    each = 50_000 // sharers
    monkeypatch.setattr(bodies, "MAX_HEADERS", each * sharers)
    counts = [each] * sharers + [0] * 30
    body = b"".join(record(b"k", b"v", headers, 0, 0) for headers in counts)
    assert len(bodies.read_body(body, len(counts), 0).offsets) == len(counts)
    body += record(b"k", b"v", 1, 0, 0)
    with pytest.raises(bodies.BadBody, match=r"more than \d+ headers"):
        bodies.read_body(body, len(counts) + 1, 0)


def test_most_records_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast reader takes all valid records, so a million tiny records create no objects."""
    alone: list[int] = []
    exactly = bodies._read_exactly

    def count_them(body: bytes, position: int, first: int, stop: int) -> Any:
        alone.append(stop - first)
        return exactly(body, position, first, stop)

    monkeypatch.setattr(bodies, "_read_exactly", count_them)
    bodies.read_body(
        b"".join(record(None, b"v" * (n % 90), n % 3, n, n) for n in range(20_000)), 20_000, 0
    )
    assert alone == []


SOUND = record(b"k", b"v", 1, 3, 4)
WITHOUT_HEADERS = record(b"k", b"v", 0, 3, 4)
FIELDS = SOUND[1:]


def of(fields: bytes, length: int | None = None) -> bytes:
    """Return a record of these fields with a claimed length."""
    return _varint(len(fields) if length is None else length) + fields


BEFORE_KEY = b"\0" + _varint(4) + _varint(3)
NO_KEY_NO_VALUE = BEFORE_KEY + _varint(-1) + _varint(-1)


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (b"\x80" * 10 + b"\0", "a varint is too long"),
        (of(FIELDS, -1), "has an invalid length of -1 bytes"),
        (of(FIELDS, len(FIELDS) + 1), "does not end|invalid length"),
        (of(FIELDS, len(FIELDS) - 1), "does not end"),
        (of(b"\0" + b"\x80" * 10 + FIELDS[2:]), "a varint is too long"),
        (of(BEFORE_KEY + _varint(9) + b"k"), "record"),
        (of(NO_KEY_NO_VALUE + _varint(-1)), "number of headers: -1"),
        (of(NO_KEY_NO_VALUE + _varint(1) + _varint(-1)), "a record header has no name"),
        (of(NO_KEY_NO_VALUE + _varint(1) + _varint(-70)), "a record header has no name"),
        (of(NO_KEY_NO_VALUE + _varint(2) + b"\2h\1"), "record"),
    ],
)
@pytest.mark.parametrize(("place", "sound"), [(0, SOUND), (15, WITHOUT_HEADERS), (29, SOUND)])
def test_one_damaged_record_among_thirty_refuses_the_batch(
    place: int, sound: bytes, damaged: bytes, words: str
) -> None:
    """Both readers give the same reason."""
    parts = [sound] * 30
    parts[place] = damaged
    reasons = set()
    for together in (True, False):
        with pytest.raises(bodies.BadBody, match=words) as refused:
            read(b"".join(parts), 30, together=together)
        reasons.add(str(refused.value))
    assert len(reasons) == 1


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (of(FIELDS, -1), "record {} has an invalid length of -1 bytes"),
        (of(FIELDS, len(FIELDS) - 1), f"record {{}} does not end after {len(FIELDS) - 1} bytes"),
    ],
)
@pytest.mark.parametrize("place", [0, 39, 40, 79, 95, 99])
def test_a_damaged_record_is_named_by_its_number_within_the_batch(
    place: int, damaged: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readers take 40 records at a time; the last 20 are too few for the fast reader."""
    monkeypatch.setattr(bodies, "AT_ONCE", 40)
    parts = [SOUND] * 100
    parts[place] = damaged
    with pytest.raises(bodies.BadBody) as refused:
        bodies.read_layout(b"".join(parts), 100)
    assert str(refused.value) == reason.format(place)


@pytest.mark.parametrize("together", [True, False])
def test_long_varints_and_many_headers_are_read_exactly(together: bool) -> None:
    """Long lengths and times, zero to thirty headers, null and empty values are read."""
    written = [
        (None, None, 0, 0, 0),
        (b"", b"", 1, 1, -1),
        (b"k" * 70, b"v" * 9_000, 30, 2, 2**40),
        (b"k", b"v" * 64, 3, 40, 7),
        (b"k", None, 2, 3, -(2**40)),
        *((None, b"v", 0, n, n) for n in range(5, 30)),
    ]
    body = b"".join(record(*one) for one in written)
    assert read(body, 30, together=together) == (
        [offset for *_, offset, _ in written],
        [time + 5 for *_, time in written],
        [0, *range(5, 30)],
    )
    with mock.patch.object(bodies, "FEW", 0 if together else 2**31):
        layout = bodies.read_layout(body, 30)
    assert layout.key_sizes.tolist() == [-1, 0, 70, 1, 1, *[-1] * 25]
    assert layout.value_sizes.tolist() == [-1, 0, 9_000, 64, -1, *[1] * 25]
    ends = [len(b"".join(record(*one) for one in written[: n + 1])) for n in range(30)]
    assert layout.ends.tolist() == ends
    at, size = int(layout.keys_at[2]), int(layout.key_sizes[2])
    assert body[at : at + size] == b"k" * 70


@pytest.mark.parametrize("count", [1, 30])
def test_a_body_holds_exactly_the_records_that_it_claims(count: int) -> None:
    """A wrong count, a missing byte and an extra byte are refused."""
    body = SOUND * count
    assert bodies.read_layout(body, count).ends[-1] == len(body)
    for wrong, claimed in (
        (body, count + 1), (body, count - 1), (body + b"\0", count), (body[:-1], count), (b"", count)
    ):  # fmt: skip
        with pytest.raises(bodies.BadBody):
            bodies.read_layout(wrong, claimed)
    smallest = record(None, None, 0, 0, 0)
    assert len(smallest) == bodies.SMALLEST_RECORD
    assert bodies.read_layout(smallest * count, count).ends[-1] == 7 * count
