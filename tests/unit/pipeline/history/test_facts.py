"""One day's facts, merged: each fact once, in an order that no run decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.pipeline.history.facts import merged, without
from faust_assigner.pipeline.history.store import table_schema
from faust_assigner.pipeline.schema import FACTS


def placement(**more: Any) -> dict[str, Any]:
    """The owner of partition 0, which had no owner before."""
    given = {"group_id": "g", "decision_id": "d", "topic": "t", "partition": 0, "role": "active"}
    flags = {"moved": True, "standby_hit": False, "cold": True}
    return {**given, "member_id": "m", "prev_member_id": None, **flags, **more}


def sample(**more: Any) -> dict[str, Any]:
    """A sample of partition 0; its other columns have no value."""
    names = [name for name in table_schema("samples").names if name not in ("ts", "cpu_ms")]
    given: dict[str, Any] = dict.fromkeys(names) | {"group_id": "g", "topic": "t", "partition": 0}
    return {**given, "ts": 0, "cpu_ms": 0.5, **more}


def kept(fact: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that stand of these, the same for each order in which they arrive."""
    empty = {name: table_schema(name).empty_table() for name in FACTS}
    found = []
    for order in permutations(rows):
        facts = empty
        for row in order:
            table = pa.Table.from_pylist([row], schema=table_schema(fact))
            facts = merged(facts, {**empty, fact: table})
        found.append(facts[fact].to_pylist())
    assert all(one == found[0] for one in found)
    return found[0]


def test_each_holder_of_a_copy_has_a_row_of_its_own() -> None:
    """Two lines about one holder are one row."""
    rows = [placement(role="standby", member_id=m) for m in ("a", "b", "a")]
    assert [row["member_id"] for row in kept("placements", rows)] == ["a", "b"]


def test_a_partition_has_one_owner_in_a_decision() -> None:
    """Of lines that disagree the smallest member's stands."""
    rows = [placement(member_id=m) for m in ("b", "a", "c")]
    assert [row["member_id"] for row in kept("placements", rows)] == ["a"]


@pytest.mark.parametrize("owner", ["", "a"])
def test_no_owner_before_sorts_before_any_owner(owner: str) -> None:
    """Also before one with an empty name, and it stays without a value."""
    rows = [placement(prev_member_id=name) for name in (owner, None)]
    assert [row["prev_member_id"] for row in kept("placements", rows)] == [None]


def test_a_sample_that_arrives_twice_stands_once() -> None:
    """Samples that differ in any column are two."""
    rows = [sample(), sample(), sample(cpu_ms=0.25), sample(partition=1)]
    found = [(row["partition"], row["cpu_ms"]) for row in kept("samples", rows)]
    assert found == [(0, 0.25), (0, 0.5), (1, 0.5)]


def test_a_decision_that_leaves_a_day_takes_its_placements_along() -> None:
    """Those of another decision, and of another group's decision of that id, stay."""
    rows = [placement(), placement(decision_id="e"), placement(group_id="h")]
    tables = {
        name: pa.Table.from_pylist(rows if name == "placements" else [], schema=table_schema(name))
        for name in FACTS
    }
    left = without(tables, [("g", "d")])["placements"].to_pylist()
    assert [(row["group_id"], row["decision_id"]) for row in left] == [("g", "e"), ("h", "d")]
