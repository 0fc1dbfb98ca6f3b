"""The rows that remain where keys or values must be JSON, their types, and the rows that are left out."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.snapshots.arrow_batches import JsonColumns, batch_of, last_per_key
from faust_assigner.snapshots.json_rows import (
    AUTO,
    JSON,
    RAW,
    json_types,
    parse_json,
    unreadable_rows,
)

Rows = list[tuple[bytes | None, bytes | None]]


def batches_of(*batches: Rows) -> list[Any]:
    """Arrow batches of these rows."""
    return [batch_of([key for key, _ in rows], [value for _, value in rows]) for rows in batches]


def rows_of(batches: list[Any]) -> list[Rows]:
    """The rows of each batch."""
    return [
        list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        for batch in batches
    ]


def test_an_earlier_row_counts_where_the_last_one_is_not_json() -> None:
    """Each record that is not JSON is left out and counted, whatever its place; a deletion is JSON."""
    first: Rows = [(b"1", b'"old"'), (b"2", b"{"), (b"3", b"7"), (b"no", b"1")]
    second: Rows = [(b"1", b"bad"), (b"3", None), (b"4", b"[]"), (b"no", b"also bad")]
    columns = JsonColumns((JSON, JSON))
    kept = columns.readable(batches_of(first, second))
    assert rows_of(kept) == [[(b"1", b'"old"'), (b"3", b"7")], [(b"3", None), (b"4", b"[]")]]
    assert columns.unreadable == 4
    assert columns.types_of("key") == {"int"}
    assert columns.types_of("value") == {"str", "list"}
    again = columns.readable(batches_of([(b"x", b"0")], [(b"5", b"1.5")]))
    assert rows_of(again) == [[], [(b"5", b"1.5")]]
    assert columns.unreadable == 5
    assert columns.types_of("value") == {"str", "list", "float"}


def test_rows_that_are_not_json_do_not_matter_before_a_last_one_that_is() -> None:
    """They are replaced anyway, so all batches stay and none is counted."""
    columns = JsonColumns((RAW, JSON))
    given = batches_of([(b"a", b"{"), (b"b", b"1")], [(b"a", b"true")])
    assert columns.readable(given) is given
    assert (columns.unreadable, columns.types_of("key")) == (0, None)
    assert columns.types_of("value") == {"int", "bool"}


@pytest.mark.parametrize(
    ("bad", "is_json"), [(0, True), (1, True), (2, True), (3, False), (4, False)]
)
def test_columns_are_json_unless_more_than_half_of_their_first_last_rows_are_not(
    bad: int, is_json: bool
) -> None:
    """The choice stays for later batches, and each column has its own."""
    columns = JsonColumns((AUTO, AUTO))
    rows: Rows = [(b"%d" % n, b"{" if n < bad else b"%d" % n) for n in range(4)]
    kept = columns.readable(batches_of([(b"0", b"5"), (b"3", b"{")], rows))
    assert columns.types_of("key") == {"int"}
    last = last_per_key(kept)
    if is_json:
        assert columns.types_of("value") == {"int"}
        expected = [(b"0", b"5" if bad else b"0"), *rows[max(1, bad) :]]
        assert sorted(rows_of([last])[0]) == sorted(expected)
        columns.readable(batches_of([(b"8", b"{")]))
        assert columns.unreadable == bad + (2 if bad else 1)
    else:
        assert columns.types_of("value") is None
        assert rows_of([last]) == [[rows[0], rows[3], rows[1], rows[2]]]
        assert rows_of(columns.readable(batches_of([(b"8", b"{")]))) == [[(b"8", b"{")]]
        assert columns.unreadable == 0


def test_nothing_is_chosen_before_the_first_rows() -> None:
    """Without batches, or with rows of no key, both columns stay open."""
    columns = JsonColumns((AUTO, RAW))
    assert columns.readable([]) == []
    assert rows_of(columns.readable(batches_of([(None, b"1")]))) == [[(None, b"1")]]
    columns.readable(batches_of([(b"{", b"1"), (b"}", b"2")]))
    assert columns.types_of("key") is None


def test_a_column_without_a_payload_counts_as_unchecked() -> None:
    """Workers refused an empty snapshot of a raw table, as if it had been checked as JSON."""
    columns = JsonColumns((AUTO, AUTO))
    assert (columns.types_of("key"), columns.types_of("value")) == (None, None)
    columns.readable(batches_of([(b"1", None), (b"2", None)]))
    assert (columns.types_of("key"), columns.types_of("value")) == ({"int"}, None)
    raw: Rows = [(b"3", b"{"), (b"4", b"}"), (b"5", None), (b"6", None), (b"7", None)]
    assert rows_of(columns.readable(batches_of(raw))) == [raw]
    assert (columns.types_of("value"), columns.unreadable) == (None, 0)
    assert JsonColumns((JSON, JSON)).types_of("key") == frozenset()


@pytest.mark.parametrize("payloads", [[b"[1", b"2],3,4"], [b"1,2", b"[3", b"4]"], [b"1", b"2,3"]])
def test_pieces_that_are_json_only_together_are_not_json(payloads: list[bytes]) -> None:
    """As many values as payloads prove nothing: each must lie between two fences."""
    assert parse_json(payloads) is None
    assert json_types(payloads) is None
    assert unreadable_rows([b"0", *payloads, None]) == [
        1 + place for place, each in enumerate(payloads) if json_types([each]) is None
    ]
