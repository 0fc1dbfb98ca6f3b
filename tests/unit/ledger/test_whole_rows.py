"""Whole rows: missing optional columns, structs and times."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from faust_assigner.ledger import Refusal, Row, parse

MEMBER = {"member_id": "m", "rack": "r", "capacity": 2, "epoch": 7, "instance_id": "i"}
DECISION: dict[str, Any] = {
    "group_id": "g",
    "decision_id": "d",
    "ts": "2026-11-21T03:40:22.123Z",
    "generation": 5,
    "trigger": "join",
    "policy": "p",
    "config": {"a": "b"},
    "members": [MEMBER],
    "solve_ms": 1.5,
    "session_timeout_s": 30.0,
}


def parsed(**more: Any) -> Row | Refusal | None:
    """Parse the decision with other columns; None removes a column."""
    told = {name: value for name, value in {**DECISION, **more}.items() if value is not None}
    return parse(json.dumps({"table": "decision", "other": 1, **told}).encode())


def test_a_row_has_every_column_of_its_table_and_no_other() -> None:
    """A missing optional value is None, in a struct too; whole numbers become doubles."""
    bare = {"member_id": "n", "capacity": 0.5, "epoch": 0, "more": 1}
    found = parsed(session_timeout_s=None, members=[MEMBER, bare])
    values = {
        **DECISION,
        "ts": datetime(2026, 11, 21, 3, 40, 22, 123_000, UTC),
        "session_timeout_s": None,
        "members": [
            {**MEMBER, "capacity": 2.0},
            {"member_id": "n", "rack": None, "capacity": 0.5, "epoch": 0, "instance_id": None},
        ],
    }
    assert found == Row("decision", values)
    assert parsed() == Row(
        "decision", {**values, "session_timeout_s": 30.0, "members": values["members"][:1]}
    )


@pytest.mark.parametrize("name", ["member_id", "capacity", "epoch"])
@pytest.mark.parametrize("gone", [True, False])
def test_a_struct_needs_its_fields(name: str, gone: bool) -> None:
    """A field of null is missing."""
    member = {key: value for key, value in MEMBER.items() if key != name}
    found = parsed(members=[MEMBER, member if gone else {**member, name: None}])
    assert found == Refusal(
        f"decision: column 'members' has the wrong type: a struct without {name!r}"
    )


@pytest.mark.parametrize("more", ["x", "\n", " ", "Z", "+00:00"])
def test_a_time_ends_with_its_zone(more: str) -> None:
    """Text behind the time is part of the value."""
    found = parsed(ts=DECISION["ts"] + more)
    assert isinstance(found, Refusal)
    assert found.reason.startswith("decision: column 'ts' has the wrong type: string ")
