"""The rows of hours and of standstills, computed from made rows as a whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.pipeline.history import timeline as hours
from faust_assigner.pipeline.history.axes import label_categories
from faust_assigner.pipeline.history.facts import _distinct, _placements
from faust_assigner.pipeline.history.plots import _moves
from faust_assigner.pipeline.history.store import table_schema
from faust_assigner.pipeline.history.timeline import standstills, timeline

FIVE = datetime(2026, 11, 21, 5, tzinfo=UTC)


def after(minutes: float) -> datetime:
    """Return a time after five o'clock."""
    return FIVE + timedelta(minutes=minutes)


def recovery(start: float, minutes: float, partition: int = 0, **more: Any) -> dict[str, Any]:
    """Return a recovery that begins ``start`` minutes after five o'clock."""
    base = {"group_id": "g", "decision_id": "d", "topic": "t", "member_id": "m", "records": 3}
    times = {"started": after(start), "ended": after(start + minutes)}
    return {**base, "partition": partition, **times, **more}


def sample(minute: float, partition: int, end: int, committed: int, **more: Any) -> dict[str, Any]:
    """Return a sample of a partition."""
    told = {"group_id": "g", "topic": "t", "partition": partition, "ts": after(minute)}
    return {**told, "end_offset": end, "committed_offset": committed, **more}


def test_the_whole_rows_of_two_groups_and_three_hours() -> None:
    """A recovery counts in the hour of its start, a decision and a sample in the hour of their time."""
    names = ("tasks_gone", "tasks_balance", "tasks_new", "tasks_cold")

    def decision(name: str, minute: float, members: int, *counts: int) -> dict[str, Any]:
        told = {"group_id": "g", "decision_id": name, "ts": after(minute), "members": members}
        return {**told, **dict(zip(names, counts, strict=True))}

    outcomes = [
        decision("b", 30, 4, 1, 2, 3, 4),
        decision("a", 59.9, 5, 10, 20, 30, 40),
        decision("z", 30, 6, 100, 200, 300, 400),
        decision("c", 60, 7, 5, 6, 7, 8),
    ]
    recovered: Any = [recovery(59, 3), recovery(20, 4, 1), recovery(1, 2, group_id="h")]
    rows = [
        sample(61, 0, 50, 20),
        sample(70, 0, 40, 30),
        sample(65, 1, 9, 2),
        sample(66, 2, 9, 0),
        sample(67, 3, 99, -1),
        sample(68, 4, 5, 8),
        sample(130, 0, 7, 7, group_id="h"),
    ]
    schema = table_schema("samples")
    empty: dict[str, Any] = dict.fromkeys(schema.names)
    samples = pa.Table.from_pylist([{**empty, **row} for row in rows], schema=schema)
    found = {
        (row["group_id"], row["hour"]): [
            row[name]
            for name in (
                "rebalances",
                "members",
                *names,
                "recoveries",
                "standstill_s",
                "lag_max",
                "lag_sum",
            )
        ]
        for row in timeline(outcomes, recovered, samples)
    }
    assert found == {
        ("g", FIVE): [3, 5, 111, 222, 333, 444, 2, 240.0, None, None],
        ("g", after(60)): [1, 7, 5, 6, 7, 8, 0, None, 30, 46],
        ("h", FIVE): [0, None, 0, 0, 0, 0, 1, 120.0, None, None],
        ("h", after(120)): [0, None, 0, 0, 0, 0, 0, None, 0, 0],
    }


def test_equally_long_standstills_stand_in_the_order_of_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then of their partition and member; each group has its own longest ones."""
    monkeypatch.setattr(hours, "STANDSTILLS_KEPT", 4)
    recovered: Any = [
        recovery(9, 2, 0),
        recovery(5, 2, 8, member_id="n"),
        recovery(5, 2, 8),
        recovery(5, 2, 7),
        recovery(3, 1, 6),
        recovery(30, 5, 1, decision_id="e"),
        recovery(1, 1, 2, group_id="h"),
    ]
    outcomes = [
        {"group_id": group, "decision_id": "d", "trigger": f"of {group}"} for group in ("g", "h")
    ]
    moves: Any = [
        {"group_id": "g", "decision_id": "d", "topic": "t", "partition": 7, "cause": "balance"},
        {"group_id": "g", "decision_id": "x", "topic": "t", "partition": 8, "cause": "owner gone"},
    ]
    named = {("g", "n"): "worker-n", ("h", "m"): "worker-m"}
    found = [
        (
            row["group_id"],
            row["partition"],
            row["member"],
            row["seconds"],
            row["trigger"],
            row["cause"],
        )
        for row in standstills(recovered, outcomes, moves, named)
    ]
    assert found == [
        ("g", 1, "m", 300.0, None, None),
        ("g", 7, "m", 120.0, "of g", "balance"),
        ("g", 8, "m", 120.0, "of g", None),
        ("g", 8, "worker-n", 120.0, "of g", None),
        ("h", 2, "worker-m", 60.0, "of h", None),
    ]


@pytest.mark.parametrize("name", ["tasks_gone", "tasks_balance", "tasks_new"])
def test_an_hour_with_moves_of_any_cause_is_drawn(name: str) -> None:
    """Cold tasks are among the others."""
    quiet = {"tasks_gone": 0, "tasks_balance": 0, "tasks_new": 0, "tasks_cold": 3}
    assert _moves({**quiet, name: 1})
    assert not _moves(quiet)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (["11-20\nsticky"] * 9, [0, 2, 4, 6, 8]),
        (["a" * 30 + "\nb"] * 7, [0, 3, 6]),
        (["x"] * 3, [0, 1, 2]),
    ],
)
def test_as_many_labels_are_shown_as_their_longest_line_has_room(
    labels: list[str], shown: list[int]
) -> None:
    """Each line is shortened; the lines of a label stand below each other."""
    calls: list[Any] = []
    axes: Any = SimpleNamespace(
        set_xticks=lambda *given: calls.append(given), set_xlim=lambda *given: calls.append(given)
    )
    label_categories(axes, labels)
    (places, texts), limits = calls
    assert limits == (-0.6, max(len(labels) - 0.4, 2.6))
    assert len(texts) == len(places)
    assert all(len(line) <= 18 for text in texts for line in text.split("\n"))
    assert places == shown


def test_rows_of_one_group_and_time_are_in_the_order_of_all_their_columns() -> None:
    """A repeated row stands once, whatever the order of the lines."""
    schema = table_schema("recoveries")
    empty: dict[str, Any] = dict.fromkeys(schema.names)
    rows = [
        {**empty, "group_id": group, "started": after(start), "topic": topic, "partition": number}
        for group, start, topic, number in (
            ("h", 0, "a", 0),
            ("g", 9, "a", 0),
            ("g", 5, "b", 1),
            ("g", 5, "b", 0),
            ("g", 5, "a", 7),
            ("g", 5, "b", 1),
        )
    ]
    order = [4, 3, 2, 1, 0]
    for mixed in (rows, rows[::-1], rows[3:] + rows[:3]):
        found = _distinct(pa.Table.from_pylist(mixed, schema=schema), ["group_id", "started"])
        assert found.to_pylist() == [rows[at] for at in order]
        assert found.schema == schema


def test_of_two_lines_about_an_active_the_smallest_is_kept_and_of_standbys_each_holder() -> None:
    """The order of the lines does not matter; rows are in the order of their places."""
    schema = table_schema("placements")
    flags = {"moved": False, "standby_hit": False, "cold": False}

    def placement(topic: str, role: str, member: str, before: str | None, **more: Any) -> Any:
        place = {"group_id": "g", "decision_id": "d", "topic": topic, "partition": 3, "role": role}
        return {**place, "member_id": member, "prev_member_id": before, **flags, **more}

    rows = [
        placement("b", "active", "m", "a", moved=True),
        placement("b", "active", "m", None, cold=True),
        placement("b", "active", "n", None),
        placement("b", "standby", "z", None),
        placement("b", "standby", "y", "x", cold=True),
        placement("b", "standby", "y", "x"),
        placement("a", "warmup", "q", None),
    ]
    for mixed in (rows, rows[::-1], rows[2:] + rows[:2]):
        found = _placements(pa.Table.from_pylist(mixed, schema=schema)).to_pylist()
        assert found == [rows[at] for at in (6, 1, 5, 3)]
