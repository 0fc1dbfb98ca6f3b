"""The planner's benchmark measures every event of its cases."""

from __future__ import annotations

from benchmarks.planner import (
    EVENTS,
    Case,
    equal,
    measure,
    measure_warmups,
    mixed,
    situations,
    together,
)
from faust_assigner import plan
from tests.property.oracle import min_cost, score


def test_every_event_of_a_case_is_measured() -> None:
    """Loads are even, an unchanged group moves no partition, and a newcomer gets its share."""
    rows = list(measure(equal("small", 10, 2, 100), repeat=1, limit=1))
    assert [row["event"] for row in rows] == list(EVENTS)
    assert [row["moves"] for row in rows] == [0, 0, 9, 0]
    assert all(row["load_max"] - row["load_min"] <= 1 for row in rows)
    assert all(row["plan_ms"] > 0 and row["core_ms"] > 0 for row in rows)


def test_aiokafka_is_measured_beside_on_the_same_input() -> None:
    """aiokafka's assignor finishes on a small case; its moves are counted as ours are."""
    case = Case("small", [["t"]] * 3, {"t": 9})
    rows = list(measure(case, repeat=1, limit=60))
    assert all(row["aiokafka_s"] is not None for row in rows)
    assert [row["aiokafka_moves"] for row in rows] == [0, 0, 2, 0]


def test_the_mixed_case_is_planned_exactly() -> None:
    """The oracle finds the same optimum for each timed plan of a mixed group."""
    case = mixed("small", 12, 8, 10, 0.5)
    for event, members in situations(case):
        answer = plan(members, case.partitions)
        size = len(answer.member_ids)
        had = [[int((row == m).sum()) for m in range(size)] for row in answer.previous_owner]
        counts = [[int((row == m).sum()) for m in range(size)] for row in answer.owner]
        best = min_cost(
            [g.partitions for g in answer.groups],
            [g.members.tolist() for g in answer.groups],
            had,
            [1] * size,
        )
        assert score(counts, had, [1] * size) == best, event


def test_warm_ups_are_measured_where_there_are_some() -> None:
    """A join moves no partition at once and starts the allowed number of warm-ups."""
    rows = list(measure_warmups(together("small", 10, 2, 2000), repeat=1))
    assert [(row["event"], row["moves"], row["warmups"]) for row in rows] == [
        ("no-op", 0, 0),
        ("join", 0, 32),
        ("leave", 0, 0),
    ]
    assert all(row["plain_ms"] > 0 and row["warmups_ms"] > 0 for row in rows)
