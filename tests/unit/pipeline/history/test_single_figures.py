"""Figures of a day and of the data's quality that depend on a single row."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.pipeline.history.quality import Quality
from faust_assigner.pipeline.history.store import Day, Manifest, Store
from faust_assigner.pipeline.history.tables import cause_of, outcome_of, tasks_by_cause
from faust_assigner.pipeline.one_writer import FolderInUse
from tests.unit.pipeline.history.test_tables import (
    A,
    B,
    decision,
    member,
    minute,
    put,
    rows_of,
    sampled,
    took,
)

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def test_tasks_are_those_of_all_placements_in_any_order() -> None:
    """The moved placements alone would make topics of other counts out of two equal ones."""
    told = decision("d", 0, "v2", member("a"), member("b"), trigger="x")
    said = {**told, "ts": minute(0), "longest_recovery_s": None}
    moved = [put("d", place, "a", "b", "mc") for place in ("t/0", "u/1", "u/0")]
    rest = [put("d", place, "b", "b") for place in ("u/2", "t/2", "t/1")]
    for placed in ([*rest, *moved], [*moved, *rest]):
        assert tasks_by_cause(said, placed) == {"tasks_gone": 0, "tasks_balance": 2, "tasks_new": 0}
        found = outcome_of(said, placed)
        assert (found["tasks_moved"], found["tasks_cold"], found["spread"]) == (2, 2, 0)


def test_a_member_without_a_name_is_a_previous_owner_too() -> None:
    """Only a missing previous owner is none."""
    row: Any = {"prev_member_id": ""}
    first: Any = {"trigger": "first"}
    assert cause_of(row, first, {"", "a"}) == "balance"
    assert cause_of(row, first, {"a"}) == "owner gone"
    assert cause_of({**row, "prev_member_id": None}, first, {"a"}) == "no owner before"


@pytest.mark.parametrize("trigger", ["leave", "join+leave", "rejoin"])
def test_the_leader_writes_no_name_of_an_owner_that_is_gone(trigger: str) -> None:
    """A row without a previous owner is a move after a death, except in a group's first round."""
    row: Any = {"prev_member_id": None}
    decided: Any = {"trigger": trigger}
    assert cause_of(row, decided, {"a"}) == "owner gone"


def test_the_moves_of_a_day_are_those_of_actives() -> None:
    """A standby that is marked as moved is no change of owner; the worst spread is anywhere."""
    standby = {**put("d1", "log/1", "b", "a", "m"), "role": "standby"}
    first = [put("d1", f"t/{number}", "a", None, "m") for number in range(3)]
    second = [put("d2", f"t/{number}", name, "a") for number, name in enumerate("aab")]
    found = rows_of(
        decision("d1", 0, "v1", A, B), *first, standby, decision("d2", 5, "v1", A, B), *second
    )
    assert [(row["topic"], row["partition"]) for row in found["moves"]] == [
        ("t", number) for number in range(3)
    ]
    (row,) = found["balance"]
    assert (row["max_spread"], row["mean_spread"], row["idle_members"]) == (3.0, 2.0, 1)


def test_sums_of_a_day_reach_the_largest_integer() -> None:
    """Records of recoveries pass 32 bits; bytes end at 64 bits."""
    most = 2**63 - 1
    found = rows_of(
        took(1.0, 0, "m", records=2**33),
        took(2.0, 0, "m", records=5, start=1),
        sampled("t/0", 0, 3, most, 0, 0),
        sampled("t/0", 1, 4, most, 0, 0),
    )
    assert [row["records"] for row in (*found["recovery"], *found["slowest"])] == 2 * [2**33 + 5]
    (row,) = found["skew"]
    assert (row["records_in"], row["bytes_in"], row["share"]) == (7, most, 1.0)


def quality(**more: Any) -> Quality:
    """Return the quality of a history that needs no attention."""
    told = {
        "checked_at": NOON,
        "lines_accepted": 8,
        "lines_refused": 0,
        "refused_in_all": 0,
        "placements_without_decision": 0,
        "days": 5,
        "first_day": "2026-11-20",
        "last_day": "2026-11-24",
        "days_missing": 0,
        "missing": (),
        "days_in_future": 0,
        "newest_line": NOON,
        "age_s": 0.0,
        "partitions_owned": 6,
        "partitions_sampled": 6,
    }
    return Quality(**{**told, **more})


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ({}, None, ""),
        ({"refused_in_all": 7}, None, ""),
        ({"lines_refused": 2}, "refused", "2 (20.00%)"),
        ({"placements_without_decision": 1_234}, "placements without decision", "1,234"),
        (
            {"days_missing": 9, "missing": ("a", "b", "c", "d")},
            "days without a line",
            "9 (newest: b, c, d)",
        ),
        ({"days_in_future": 3}, "days in the future", "3"),
        ({"partitions_sampled": 4}, "partitions with samples", "4 of 6"),
        (
            {"gates": ({"gate": "min-days", "limit": "9", "found": "five", "passed": False},)},
            "gate min-days",
            "--min-days 9: five, missed",
        ),
    ],
)
def test_each_figure_needs_attention_by_its_own_value(
    more: dict[str, Any], name: str | None, value: str
) -> None:
    """Refused lines of earlier runs need none; a line of this moment has its age."""
    rows = quality(**more).rows()
    assert [row[:2] for row in rows if row[2]] == ([(name, value)] if name else [])
    told = {row[0]: row[1] for row in rows}
    assert told["newest line"] == "2026-11-25 12:00:00 UTC, 0 s before this run"
    assert told["days"] == "5, 2026-11-20 to 2026-11-24"
    assert told["refused in all runs"] == str(more.get("refused_in_all", 0))


def refused(*lines: int) -> pa.Table:
    """Return refused lines."""
    return pa.table(
        {
            "file": ["f"] * len(lines),
            "line": pa.array(lines, pa.int64()),
            "reason": ["r"] * len(lines),
        }
    )


def test_a_commit_replaces_the_sources_and_needs_the_generation_that_it_read(
    tmp_path: Path,
) -> None:
    """A second commit upon the same manifest is another run's; a source that is gone is forgotten."""
    store = Store(str(tmp_path / "out"))
    first = store.commit(Manifest(), {}, refused=(refused(1, 2), 5), sources={"a": 1, "b": 2})
    assert (first.generation, first.refused, first.sources) == (1, 5, {"a": 1, "b": 2})
    second = store.commit(first, {}, refused=(refused(3), 0), sources={"b": 3})
    assert (second.generation, second.refused, second.sources) == (2, 0, {"b": 3})
    assert store.load() == second
    assert store.read_refused(second).to_pylist() == refused(3).to_pylist()
    with pytest.raises(FolderInUse):
        store.commit(first, {"2026-11-20": Day("x", {})}, refused=(refused(), 0), sources={})
    assert store.load() == second
