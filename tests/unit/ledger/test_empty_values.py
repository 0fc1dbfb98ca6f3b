"""Empty values and names in other scripts are values, not missing ones."""

from __future__ import annotations

import json

import pytest

from faust_assigner.ledger import Refusal, Row, encode, group_marker, parse

DECISION = {
    "table": "decision",
    "group_id": "",
    "decision_id": "",
    "ts": "2026-11-21T03:40:22.123Z",
    "generation": 0,
    "trigger": "",
    "policy": "",
    "config": {},
    "members": [],
    "solve_ms": 0,
    "session_timeout_s": 0.0,
}
ASSIGNMENT = {
    "table": "assignment",
    "group_id": "g",
    "decision_id": "d",
    "topic": "t",
    "partition": 0,
    "role": "active",
    "member_id": "",
    "prev_member_id": "",
    "moved": False,
    "standby_hit": False,
    "cold": False,
}


def test_empty_texts_and_lists_and_zeros_are_kept() -> None:
    """Only null and a missing key are a missing value."""
    found = parse(json.dumps(DECISION).encode())
    assert isinstance(found, Row)
    rest = {name: value for name, value in found.values.items() if name != "ts"}
    assert rest == {name: DECISION[name] for name in DECISION if name not in ("table", "ts")}
    assert isinstance(rest["solve_ms"], float)
    placed = parse(json.dumps(ASSIGNMENT).encode())
    assert isinstance(placed, Row)
    assert placed.values == {name: value for name, value in ASSIGNMENT.items() if name != "table"}


@pytest.mark.parametrize("name", ["group_id", "config", "members", "generation", "solve_ms"])
def test_null_is_a_missing_value(name: str) -> None:
    """The reason says that the key is there."""
    assert parse(json.dumps({**DECISION, name: None}).encode()) == Refusal(
        f"decision: column {name!r} is null"
    )


@pytest.mark.parametrize("group_id", ["Grüße", "店", 'a"b\\c', "shop-1"])
def test_each_line_of_a_group_has_its_marker(group_id: str) -> None:
    """The marker is encoded as the lines are."""
    line = encode("assignment", {**ASSIGNMENT, "group_id": group_id})
    assert group_marker(group_id) in line
    assert group_marker(f"{group_id}-eu") not in line
    assert group_marker(group_id[:-1]) not in line
