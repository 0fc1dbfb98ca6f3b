"""Merging a day's facts: each fact occurs once, in an order independent of runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.pipeline.history.facts import merged, of_decisions, without
from faust_assigner.pipeline.history.store import table_schema
from faust_assigner.pipeline.schema import FACTS


def placement(**more: Any) -> dict[str, Any]:
    """Return the owner of partition 0, without an owner before."""
    given = {"group_id": "g", "decision_id": "d", "topic": "t", "partition": 0, "role": "active"}
    flags = {"moved": True, "standby_hit": False, "cold": True}
    return {**given, "member_id": "m", "prev_member_id": None, **flags, **more}


def sample(**more: Any) -> dict[str, Any]:
    """Return a sample of partition 0 without values in other columns."""
    names = [name for name in table_schema("samples").names if name not in ("ts", "cpu_ms")]
    given: dict[str, Any] = dict.fromkeys(names) | {"group_id": "g", "topic": "t", "partition": 0}
    return {**given, "ts": 0, "cpu_ms": 0.5, **more}


def kept(fact: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the merged rows, which are equal for all orders of arrival."""
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
    """Two lines about the same holder yield one row."""
    rows = [placement(role="standby", member_id=m) for m in ("a", "b", "a")]
    assert [row["member_id"] for row in kept("placements", rows)] == ["a", "b"]


def test_a_partition_has_one_owner_in_a_decision() -> None:
    """Of conflicting lines, the line with the smallest member id wins."""
    rows = [placement(member_id=m) for m in ("b", "a", "c")]
    assert [row["member_id"] for row in kept("placements", rows)] == ["a"]


@pytest.mark.parametrize("owner", ["", "a"])
def test_no_owner_before_sorts_before_any_owner(owner: str) -> None:
    """A missing owner sorts even before an empty name, and stays missing."""
    rows = [placement(prev_member_id=name) for name in (owner, None)]
    assert [row["prev_member_id"] for row in kept("placements", rows)] == [None]


def test_a_sample_that_arrives_twice_stands_once() -> None:
    """Samples with a different column are distinct."""
    rows = [sample(), sample(), sample(cpu_ms=0.25), sample(partition=1)]
    found = [(row["partition"], row["cpu_ms"]) for row in kept("samples", rows)]
    assert found == [(0, 0.25), (0, 0.5), (1, 0.5)]


def test_a_decision_that_leaves_a_day_takes_its_placements_along() -> None:
    """Placements of other decisions and of other groups with the same id stay."""
    rows = [placement(), placement(decision_id="e"), placement(group_id="h")]
    tables = {
        name: pa.Table.from_pylist(rows if name == "placements" else [], schema=table_schema(name))
        for name in FACTS
    }
    left = without(tables, [("g", "d")])["placements"].to_pylist()
    assert [(row["group_id"], row["decision_id"]) for row in left] == [("g", "e"), ("h", "d")]


def table(fact: str, *rows: dict[str, Any]) -> pa.Table:
    """Return rows of a fact."""
    return pa.Table.from_pylist(list(rows), schema=table_schema(fact))


def decision(**more: Any) -> dict[str, Any]:
    """Return a decision of group ``g``."""
    given = {"group_id": "g", "decision_id": "d", "ts": 5, "generation": 3, "trigger": "join"}
    member = {"member_id": "m", "rack": "r", "capacity": 2.0, "epoch": 4, "instance_id": "i"}
    said = {"policy": "p", "config": {"b": "2", "a": "1"}, "members": [member], "solve_ms": 0.5}
    return {**given, **said, "longest_recovery_s": None, **more}


NOTHING = {fact: table_schema(fact).empty_table() for fact in FACTS}


def test_decisions_are_in_the_order_of_time_then_group_then_id() -> None:
    """Each decision has sorted settings and unchanged other columns."""
    rows = [
        decision(group_id="a", decision_id="A", ts=9),
        decision(decision_id="b"),
        decision(group_id="f", decision_id="z"),
        decision(decision_id="a"),
    ]
    found = merged({**NOTHING, "decisions": table("decisions", *rows)}, NOTHING)["decisions"]
    wanted = [rows[2], rows[3], rows[1], rows[0]]
    wanted = [{**row, "config": [("a", "1"), ("b", "2")]} for row in wanted]
    assert found.equals(table("decisions", *wanted))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"ts": 4, "policy": "z"}, {"ts": 5, "policy": "a"}),
        ({"policy": "a", "config": {"deploy": "z"}}, {"policy": "b", "config": {"deploy": "a"}}),
        ({"config": {"deploy": "(a"}}, {"config": {}}),
        ({"config": {}}, {"config": {"deploy": "a"}}),
        (
            {"config": {"deploy": "v"}, "members": [], "generation": 9},
            {"config": {"deploy": "v"}, "generation": 1},
        ),
        ({"generation": 1, "trigger": "z"}, {"generation": 2, "trigger": "a"}),
    ],
    ids=["time", "policy", "release", "unnamed release", "members", "other columns"],
)
def test_of_two_lines_of_a_decision_the_smaller_stands(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """The order is by time, policy, release, members and then every other column."""
    rows = [decision(**more) for more in (one, other)]
    (found,) = kept("decisions", rows)
    (wanted,) = table(
        "decisions", {**rows[0], "config": sorted(rows[0]["config"].items())}
    ).to_pylist()
    assert found == wanted


@pytest.mark.parametrize(
    ("stored", "new", "wanted"),
    [(None, 0.0, 0.0), (2.5, 0.0, 2.5), (0.0, None, 0.0), (1.0, 7.5, 7.5), (None, None, None)],
)
def test_a_decision_has_its_longest_recovery_of_all_lines(
    stored: float | None, new: float | None, wanted: float | None
) -> None:
    """Lines that lose count too; a recovery of zero seconds is a recovery."""
    rows = [decision(longest_recovery_s=stored), decision(ts=6, longest_recovery_s=new)]
    (found,) = kept("decisions", rows)
    assert found["longest_recovery_s"] == wanted


def recovery(took: int, **more: Any) -> dict[str, Any]:
    """Return a recovery of ``duration`` microseconds."""
    given = {"group_id": "g", "decision_id": "d", "topic": "t", "partition": 0, "member_id": "m"}
    rest = {"source": "local", "start_offset": 1, "end_offset": 2, "records": 3, "bytes": 4}
    return {**given, "started": 1_000, "ended": 1_000 + took, **rest, **more}


def test_recoveries_of_other_days_lengthen_their_own_decision_alone() -> None:
    """The match is by group and id; an echo of another day's decision is dropped."""
    rows = [decision(decision_id=name, longest_recovery_s=1.0) for name in ("a", "b", "c")]
    echoes = table(
        "recoveries",
        recovery(2_500_000, decision_id="a"),
        recovery(1_500_000, decision_id="a"),
        recovery(250_000, decision_id="b"),
        recovery(9_000_000, decision_id="c", group_id="other"),
        recovery(9_000_000, decision_id="unknown"),
    )
    facts = merged({**NOTHING, "decisions": table("decisions", *rows)}, NOTHING, echoes)
    found = facts["decisions"].to_pylist()
    assert [row["longest_recovery_s"] for row in found] == [2.5, 1.0, 1.0]
    assert facts["recoveries"].num_rows == 0


def test_recoveries_stand_once_in_the_order_of_group_and_start() -> None:
    """Each column distinguishes recoveries."""
    rows = [
        recovery(5, started=9),
        recovery(5, group_id="f", started=20, ended=30),
        recovery(5),
        recovery(5, records=1),
        recovery(5),
    ]
    assert (
        kept("recoveries", rows)
        == table("recoveries", rows[1], rows[0], rows[3], rows[2]).to_pylist()
    )


@pytest.mark.parametrize("column", ["moved", "standby_hit", "cold", "prev_member_id"])
def test_of_two_lines_about_one_holder_the_smaller_stands(column: str) -> None:
    """The order is by the former owner, then by the flags."""
    low, high = ("a", "b") if column == "prev_member_id" else (False, True)
    rows = [placement(role="standby", **{column: value}) for value in (high, low)]
    (found,) = kept("placements", rows)
    assert found == rows[1]


def test_placements_are_in_the_order_of_decision_place_role_and_holder() -> None:
    """A partition's active is first, then its standbys by member."""
    rows = [
        placement(role="standby", member_id="z"),
        placement(role="standby", member_id="b"),
        placement(member_id="y"),
        placement(partition=10, topic="s"),
        placement(partition=9, topic="s"),
        placement(decision_id="c", topic="z"),
        placement(group_id="f", decision_id="z"),
    ]
    found = merged(NOTHING, {**NOTHING, "placements": table("placements", *rows)})["placements"]
    order = [rows[n] for n in (6, 5, 4, 3, 2, 1, 0)]
    assert found.equals(table("placements", *order))


def test_all_rows_of_the_named_decisions_are_found_in_their_order() -> None:
    """The match is by group and id."""
    rows = [placement(partition=n) for n in (2, 0)]
    rows += [placement(group_id="h"), placement(decision_id="e"), placement(decision_id="x")]
    found = of_decisions(table("placements", *rows), iter([("g", "d"), ("g", "e"), ("h", "e")]))
    assert found.equals(table("placements", rows[0], rows[1], rows[3]))


def test_a_decision_that_leaves_takes_nothing_else_along() -> None:
    """Only the decision's own row goes; recoveries and samples stay on their day."""
    facts = {
        "decisions": table("decisions", decision(), decision(decision_id="e")),
        "placements": table("placements", placement()),
        "recoveries": table("recoveries", recovery(1)),
        "samples": table("samples", sample()),
    }
    left = without(facts, iter([("g", "d")]))
    assert {fact: rows.num_rows for fact, rows in left.items()} == {
        "decisions": 1,
        "placements": 0,
        "recoveries": 1,
        "samples": 1,
    }
    assert left["decisions"]["decision_id"].to_pylist() == ["e"]
