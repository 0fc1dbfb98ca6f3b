"""The reasons of refused lines, as whole texts."""

from __future__ import annotations

import pytest

from faust_assigner.ledger import MAX_LINE_BYTES, Refusal, parse


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": "\xff\xfe"}', "not JSON: not UTF-8 at byte 7"),
        (b'{"a": "\xe2\x82"}', "not JSON: not UTF-8 at byte 7"),
        (b"[" * 100_000, "not JSON: nested too deep"),
        (b'{"a": NaN}', "not JSON: NaN is not a JSON value"),
        (b"5", "not a JSON object but integer"),
        (b"null", "not a JSON object but null"),
        (b"{}", "names no table: column 'table' is missing"),
        (
            b'{"table": ["decision"]}',
            'names no known table: ["decision"] is none of '
            "decision, assignment, recovery, partition_sample",
        ),
        (
            b'{"table": "' + b"x" * 58 + b'"}',
            'names no known table: "' + "x" * 58 + '" is none of '
            "decision, assignment, recovery, partition_sample",
        ),
        (
            b'{"table": "' + b"x" * 59 + b'"}',
            'names no known table: "' + "x" * 56 + "... is none of "
            "decision, assignment, recovery, partition_sample",
        ),
        (b'{"table": "recovery", "group_id": null}', "recovery: column 'group_id' is null"),
        (b'{"table": "recovery"}', "recovery: column 'group_id' is missing"),
        (
            b'{"table": "recovery", "group_id": true}',
            "recovery: column 'group_id' has the wrong type: boolean true, expected string",
        ),
    ],
)
def test_a_refused_line_has_its_reason(line: bytes, reason: str) -> None:
    """The reason names the byte, the table or the column."""
    assert parse(line) == Refusal(reason)


def test_a_line_of_the_largest_size_is_read() -> None:
    """One byte more is refused unread."""
    blank = b" " * MAX_LINE_BYTES
    assert parse(blank) is None
    assert parse(blank + b" ") == Refusal(
        f"not read: the line is longer than {MAX_LINE_BYTES} bytes"
    )
