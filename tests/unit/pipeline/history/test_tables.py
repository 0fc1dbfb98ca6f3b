"""All daily tables of a rich day, row by row."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from faust_assigner.pipeline.history.tables import outcome_of, tasks_by_cause
from tests.integration.spark.ledgers import ASSIGNMENT, DECISION, RECOVERY, SAMPLE, START, stamp
from tests.unit.pipeline.history.test_output import rows_of


def minute(count: float) -> datetime:
    """Return a time after the day's first decision."""
    return START + timedelta(minutes=count)


def member(name: str, instance: str | None = None, rack: str | None = None) -> dict[str, Any]:
    """Return a member of a decision."""
    told = {"capacity": 1.0, "epoch": 1, "instance_id": instance}
    return {"member_id": name, "rack": rack, **told}


def decision(name: str, count: int, deploy: str, *members: Any, **more: Any) -> dict[str, Any]:
    """Return a decision of the minute."""
    config = {"deploy": deploy} if deploy else {}
    told = {"decision_id": name, "ts": stamp(minute(count)), "members": members, "config": config}
    return {**DECISION, "policy": "p1", **told, **more}


def put(decision: str, place: str, owner: str, before: str | None = None, said: str = "") -> Any:
    """Return a placement; ``said`` has ``m`` for moved, ``c`` for cold, ``h`` for a standby hit."""
    topic, _, partition = place.partition("/")
    flags = {"moved": "m" in said, "cold": "c" in said, "standby_hit": "h" in said}
    told = {"topic": topic, "partition": int(partition), "member_id": owner}
    return {**ASSIGNMENT, "decision_id": decision, **told, "prev_member_id": before, **flags}


def took(seconds: float, partition: int, member_id: str, **more: Any) -> dict[str, Any]:
    """Return a recovery of the changelog."""
    start = more.pop("start", 0)
    ended = stamp(minute(start) + timedelta(seconds=seconds))
    told = {"topic": "log", "partition": partition, "member_id": member_id, "decision_id": "d1"}
    return {**RECOVERY, **told, "started": stamp(minute(start)), "ended": ended, **more}


def sampled(place: str, count: int, records: int, size: int, end: int, committed: int) -> Any:
    """Return a sample of the minute."""
    topic, _, partition = place.partition("/")
    told = {"topic": topic, "partition": int(partition), "ts": stamp(minute(count))}
    amounts = {"records_in": records, "bytes_in": size}
    return {**SAMPLE, **told, **amounts, "end_offset": end, "committed_offset": committed}


A, B, N = member("a", "wa", "r1"), member("b", "wb"), member("n")
#: Group g starts, adds a member with a warm-up, and moves two tasks; h has a decision with the same
#: id.
DAY = [
    decision("d1", 0, "v1", A, member("b"), trigger="first", solve_ms=1.5),
    *(put("d1", place, "a", None, "mc") for place in ("in/0", "in/1", "log/0", "log/1")),
    put("d1", "in/2", "b", "c", "m"),
    put("d1", "log/2", "b", "c", "mh"),
    put("d1", "g-__assignor-__leader/0", "a", None, "mc"),
    decision("d2", 70, "v1", A, B, N, trigger="join", solve_ms=2.5),
    *(put("d2", f"{t}/{n}", "aab"[n], "aab"[n]) for t in ("in", "log") for n in range(3)),
    {**put("d2", "log/0", "n"), "role": "warmup"},
    {**put("d2", "log/2", "a"), "role": "standby"},
    decision("d3", 75, "", A, B, N, trigger="ready", solve_ms=4.0),
    *(put("d3", f"{topic}/0", "n", "a", "mh") for topic in ("in", "log")),
    *(put("d3", f"{topic}/1", "a", "a", "c") for topic in ("in", "log")),
    *(put("d3", f"{topic}/2", "a", "b", "mc") for topic in ("in", "log")),
    {**put("d3", "log/1", "b"), "role": "standby"},
    decision("d1", 5, "v1", member("a"), group_id="h", trigger="leave", policy="p2", solve_ms=8.0),
    {**put("d1", "in/0", "a", "z", "mc"), "group_id": "h"},
    took(1.0, 0, "m", records=100),
    took(3.0, 1, "a", records=50),
    took(2.0, 0, "n", records=7, source="standby", start=75, decision_id="d3"),
    took(0.0, 2, "q", records=1, start=130, decision_id="d0"),
    took(9.0, 0, "a", records=9, source="local", start=6, group_id="h"),
    sampled("in/0", 1, 30, 300, 100, 40),
    sampled("in/0", 2, 10, 100, 110, 100),
    sampled("in/1", 1, 60, 0, 5, 0),
    sampled("log/0", 61, 0, 1, 7, 7),
    {**sampled("in/0", 1, 5, 6, 7, -1), "group_id": "h"},
]
#: Table -> its columns and its ordered rows.
EXPECTED: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "movement": (
        "group_id policy decisions assigned moved cold_moves standby_hits",
        [("g", "p1", 3, 19, 11, 7, 3), ("h", "p2", 1, 1, 1, 1, 0)],
    ),
    "balance": (
        "group_id policy max_spread mean_spread idle_members warmup_rounds",
        [("g", "p1", 4.0, 3.5, 1, 1), ("h", "p2", 0.0, 0.0, 0, 0)],
    ),
    "recovery": (
        "group_id source recoveries records p50_s p90_s max_s",
        [
            ("g", "replay", 3, 151, 1.0, 2.6, 3.0),
            ("g", "standby", 1, 7, 2.0, 2.0, 2.0),
            ("h", "local", 1, 9, 9.0, 9.0, 9.0),
        ],
    ),
    "rebalances": (
        "group_id decision_id ts trigger policy deploy members assigned moved "
        "cold_moves standby_hits tasks_moved tasks_cold tasks_orphaned "
        "spread idle solve_ms longest_recovery_s",
        [
            ("g", "d1", minute(0), "first", "p1", "v1", 2, 7, 7, 5, 1, 3, 2, 3, 3, 0, 1.5, None),
            ("h", "d1", minute(5), "leave", "p2", "v1", 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 8.0, None),
            ("g", "d2", minute(70), "join", "p1", "v1", 3, 6, 0, 0, 0, 0, 0, 0, 4, 1, 2.5, None),
            (
                "g",
                "d3",
                minute(75),
                "ready",
                "p1",
                "(unnamed)",
                3,
                6,
                4,
                2,
                2,
                2,
                1,
                0,
                4,
                1,
                4.0,
                None,
            ),
        ],
    ),
    "moves": (
        "group_id decision_id ts topic partition prev_member_id member_id cause cold standby_hit",
        [
            (
                "g",
                "d1",
                minute(0),
                "g-__assignor-__leader",
                0,
                None,
                "a",
                "no owner before",
                True,
                False,
            ),
            ("g", "d1", minute(0), "in", 0, None, "a", "no owner before", True, False),
            ("g", "d1", minute(0), "in", 1, None, "a", "no owner before", True, False),
            ("g", "d1", minute(0), "in", 2, "c", "b", "owner gone", False, False),
            ("g", "d1", minute(0), "log", 0, None, "a", "no owner before", True, False),
            ("g", "d1", minute(0), "log", 1, None, "a", "no owner before", True, False),
            ("g", "d1", minute(0), "log", 2, "c", "b", "owner gone", False, True),
            ("h", "d1", minute(5), "in", 0, "z", "a", "owner gone", True, False),
            ("g", "d3", minute(75), "in", 0, "a", "n", "balance", False, True),
            ("g", "d3", minute(75), "in", 2, "b", "a", "balance", True, False),
            ("g", "d3", minute(75), "log", 0, "a", "n", "balance", False, True),
            ("g", "d3", minute(75), "log", 2, "b", "a", "balance", True, False),
        ],
    ),
    "owners": (
        "group_id decision_id member_id member "
        "rack tasks active_partitions active standby_partitions",
        [
            ("g", "d3", "a", "wa", "r1", 2, 4, "in 1-2; log 1-2", 0),
            ("g", "d3", "b", "wb", None, 0, 0, "", 1),
            ("g", "d3", "n", "n", None, 1, 2, "in 0; log 0", 0),
            ("h", "d1", "a", "a", None, 1, 1, "in 0", 0),
        ],
    ),
    "deploys": (
        "group_id deploy policy first decisions assigned moved cold_moves standby_hits",
        [
            ("g", "v1", "p1", minute(0), 2, 13, 7, 5, 1),
            ("g", "(unnamed)", "p1", minute(75), 1, 6, 4, 2, 2),
            ("h", "v1", "p2", minute(5), 1, 1, 1, 1, 0),
        ],
    ),
    "slowest": (
        "group_id topic partition recoveries records max_s source decision_id",
        [
            ("g", "log", 0, 2, 107, 2.0, "standby", "d3"),
            ("g", "log", 1, 1, 50, 3.0, "replay", "d1"),
            ("g", "log", 2, 1, 1, 0.0, "replay", "d0"),
            ("h", "log", 0, 1, 9, 9.0, "local", "d1"),
        ],
    ),
    "timeline": (
        "group_id hour rebalances members tasks_gone tasks_balance "
        "tasks_new tasks_cold recoveries standstill_s lag_max lag_sum",
        [
            ("g", minute(0), 1, 2, 1, 0, 2, 2, 2, 3.0, 60, 65),
            ("h", minute(0), 1, 1, 1, 0, 0, 1, 1, 9.0, None, None),
            ("g", minute(60), 2, 3, 0, 2, 0, 1, 1, 2.0, 0, 0),
            ("g", minute(120), 0, None, 0, 0, 0, 0, 1, 0.0, None, None),
        ],
    ),
    "standstills": (
        "group_id decision_id topic partition member_id member "
        "source started seconds records trigger cause",
        [
            (
                "g",
                "d1",
                "log",
                0,
                "m",
                "m",
                "replay",
                minute(0),
                1.0,
                100,
                "first",
                "no owner before",
            ),
            (
                "g",
                "d1",
                "log",
                1,
                "a",
                "wa",
                "replay",
                minute(0),
                3.0,
                50,
                "first",
                "no owner before",
            ),
            ("h", "d1", "log", 0, "a", "a", "local", minute(6), 9.0, 9, "leave", None),
            ("g", "d3", "log", 0, "n", "n", "standby", minute(75), 2.0, 7, "ready", "balance"),
            ("g", "d0", "log", 2, "q", "q", "replay", minute(130), 0.0, 1, None, None),
        ],
    ),
    "skew": (
        "group_id topic partition records_in bytes_in share",
        [
            ("g", "in", 0, 40, 400, 0.4),
            ("g", "in", 1, 60, 0, 0.6),
            ("g", "log", 0, 0, 1, 0.0),
            ("h", "in", 0, 5, 6, 1.0),
        ],
    ),
}


@pytest.fixture
def found() -> dict[str, list[dict[str, Any]]]:
    """Return the tables of the day; its lines arrive in reverse order."""
    return rows_of(*reversed(DAY))


@pytest.mark.parametrize("table", list(EXPECTED))
def test_a_daily_table_has_these_rows(found: dict[str, Any], table: str) -> None:
    """The rows have each column, in the order of the table's keys."""
    columns, rows = EXPECTED[table]
    assert [tuple(row.values()) for row in found[table]] == rows
    assert all(" ".join(row) == columns for row in found[table])


def test_a_day_has_these_tables_alone(found: dict[str, Any]) -> None:
    """Any further table would have no test."""
    assert set(found) == set(EXPECTED)


def test_an_outcome_counts_tasks_by_the_highest_number_of_their_topics() -> None:
    """A missing placement makes no topic of another count; hits count without a move, too."""
    told = decision("d", 0, "v2", member("a"), member("b"), member("b"), member("c"), trigger="x")
    said = {**told, "ts": minute(0), "longest_recovery_s": 7.5}
    placed = [
        put("d", "t/0", "a", "", "m"),
        put("d", "t/2", "a", "b", "mc"),
        put("d", "u/0", "a", "", "m"),
        put("d", "u/1", "b", "b", "h"),
        put("d", "u/2", "a", "b", "mh"),
    ]
    assert outcome_of(said, placed) == {
        "group_id": told["group_id"],
        "decision_id": "d",
        "ts": minute(0),
        "policy": "p1",
        "trigger": "x",
        "deploy": "v2",
        "members": 3,
        "assigned": 5,
        "moved": 4,
        "cold_moves": 1,
        "standby_hits": 2,
        "tasks_moved": 2,
        "tasks_cold": 1,
        "tasks_orphaned": 1,
        "spread": 4,
        "idle": 1,
        "solve_ms": told["solve_ms"],
        "longest_recovery_s": 7.5,
    }
    assert tasks_by_cause(said, placed) == {"tasks_gone": 1, "tasks_balance": 1, "tasks_new": 0}


def test_of_equally_slow_recoveries_the_last_source_and_decision_is_the_slowest() -> None:
    """The order of the lines and of their starts decides nothing."""
    lines = [
        took(2.0, 0, "m", source="standby", start=3, decision_id="d2"),
        took(2.0, 0, "m", source="replay", start=1, decision_id="d9"),
        took(2.0, 0, "m", source="standby", start=2, decision_id="d1"),
        took(1.0, 0, "m", source="standby", start=4, decision_id="d8"),
    ]
    for some in (lines, lines[::-1]):
        (row,) = rows_of(*some)["slowest"]
        assert (row["source"], row["decision_id"], row["recoveries"]) == ("standby", "d2", 4)
