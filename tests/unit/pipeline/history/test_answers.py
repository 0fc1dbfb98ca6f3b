"""The answers at the top of the page."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from faust_assigner.pipeline.history.answers import (
    release_rows,
    standstill_rows,
    summary,
    week_rows,
    why,
)

END = date(2026, 11, 25)
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def hour(days_ago: int, **more: Any) -> dict[str, Any]:
    """An hour of the timeline with one rebalance."""
    counts = dict.fromkeys(("tasks_gone", "tasks_balance", "tasks_new", "tasks_cold"), 0)
    told = {"members": 3, "standstill_s": None, "lag_max": None, "lag_sum": None}
    day = END - timedelta(days=days_ago)
    return {
        "group_id": "g", "dt": day, "rebalances": 1, "recoveries": 0, **counts, **told, **more
    }  # fmt: skip


def tables(**found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """A report's tables, empty but for these."""
    return {**{name: [] for name in ("timeline", "standstills", "rebalances")}, **found}


def test_a_week_is_seven_days_and_is_compared_with_the_seven_before() -> None:
    """The seventh day ago is the week before, the fourteenth is in neither."""
    rows = [hour(0), hour(6), hour(7), hour(13), hour(13), hour(14)]
    found = {row["figure"]: row for row in week_rows(tables(timeline=rows))}
    told = found["rebalances"]
    assert (told["this week"], told["week before"], told["change"]) == ("2", "3", "-1 (-33%)")


def test_without_a_week_before_there_is_no_comparison() -> None:
    """A dash is not a zero."""
    found = {row["figure"]: row for row in week_rows(tables(timeline=[hour(0), hour(1)]))}
    assert (found["rebalances"]["week before"], found["rebalances"]["change"]) == ("-", "")


def test_a_standstill_of_the_week_is_in_the_summary_and_an_older_one_in_the_table() -> None:
    """The summary is of the week; the table is of all days, the longest first."""
    common = {
        "group_id": "g", "decision_id": "d", "topic": "t", "partition": 1, "member": "worker-1",
        "source": "replay", "records": 1_200, "trigger": None, "cause": "owner gone",
    }  # fmt: skip
    rows = [
        {**common, "seconds": 5.0, "started": NOON},
        {**common, "seconds": 50.0, "started": NOON - timedelta(days=9)},
    ]
    rounds = [{"group_id": "g", "decision_id": "d", "trigger": "leave", "dt": END, "deploy": "v1"}]
    told = tables(timeline=[hour(0)], standstills=rows, rebalances=rounds)
    assert [row["seconds"] for row in standstill_rows(told)] == [50.0, 5.0]
    assert (
        "The longest standstill: t/1 on worker-1 for 5.0 s (the worker had no copy of the state and "
        "replayed 1,200 records; the previous owner had left; round for: leave)." in summary(told)
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("replay", "no copy of the state and replayed 7 records"),
        ("standby", "standby copy lacked 7 records"),
        ("local", "own files lacked 7 records"),
        ("snapshot", "a snapshot and read 7 further records"),
    ],
)
def test_why_names_the_origin_of_the_state(source: str, said: str) -> None:
    """And no cause or trigger that is not known."""
    told = why({"source": source, "records": 7, "cause": None, "trigger": None}, None)
    assert told.endswith(said)


def test_releases_are_compared_per_round() -> None:
    """The older release moved more in total, the newer more per round."""

    def rounds(deploy: str, hour: int, count: int, moved: int, took: float | None) -> Any:
        row = {"group_id": "g", "deploy": deploy, "tasks_moved": moved, "tasks_cold": 0}
        return [
            {**row, "ts": NOON.replace(hour=hour, minute=n), "longest_recovery_s": took}
            for n in range(count)
        ]

    rows = [*rounds("new", 13, 1, 4, None), *rounds("old", 12, 3, 2, 9.0)]
    found = release_rows({"rebalances": rows})
    assert [
        (row["release"], row["tasks moved"], row["moved per round"], row["longest standstill s"])
        for row in found
    ] == [("old", 6, 2.0, 9.0), ("new", 4, 4.0, None)]


def test_a_history_without_lines_has_an_answer() -> None:
    """A sentence instead of an empty page."""
    assert summary(tables()) == ["The history has no line."]
