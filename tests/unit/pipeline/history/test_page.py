"""The page: its columns, its cells, and the rows of each section."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from faust_assigner.pipeline.history.page import (
    SECTIONS,
    _grid,
    _section,
    owner_shown,
    rebalance_row,
)
from faust_assigner.pipeline.history.report import Report, cell


@pytest.mark.parametrize(
    ("moved", "orphaned", "why"),
    [
        (5, 2, "2 without a living owner, 3 for balance"),
        (2, 2, "2 without a living owner"),
        (3, 0, "3 for balance"),
        (0, 0, ""),
    ],
)
def test_a_rebalance_on_the_page(moved: int, orphaned: int, why: str) -> None:
    """Each column has its own value; a cause without tasks is left out."""
    row = {
        "ts": datetime(2026, 11, 20, 5, tzinfo=UTC),
        "group_id": "g",
        "trigger": "join",
        "members": 4,
        "tasks_moved": moved,
        "tasks_orphaned": orphaned,
        "tasks_cold": 1,
        "moved": 17,
        "solve_ms": 3,
        "longest_recovery_s": 8.5,
        "policy": "p",
    }
    assert rebalance_row(row) == {
        "time": datetime(2026, 11, 20, 5, tzinfo=UTC),
        "group": "g",
        "trigger": "join",
        "members": 4,
        "tasks moved": moved,
        "cold": 1,
        "why": why,
        "topic partitions moved": 17,
        "solve ms": 3.0,
        "longest recovery s": 8.5,
        "policy": "p",
    }


@pytest.mark.parametrize(("rack", "shown"), [("r1", "r1"), (None, "")])
def test_an_owner_on_the_page(rack: str | None, shown: str) -> None:
    """The owner has its name, and its partitions by topic."""
    row = {"group_id": "g", "member": "w", "rack": rack, "tasks": 3, "active": "t 0-2"}
    assert owner_shown({**row, "standby_partitions": 5, "member_id": "w-1"}) == {
        "group": "g",
        "member": "w",
        "rack": shown,
        "tasks": 3,
        "active topic partitions": "t 0-2",
        "standby topic partitions": 5,
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (False, "false"),
        (None, ""),
        (1_234.5678, "1,234.568"),
        (0.0, "0.000"),
        (1_234_567, "1,234,567"),
        (0, "0"),
        (
            datetime(2026, 11, 20, 23, 30, tzinfo=timezone(timedelta(hours=-2))),
            "2026-11-21 01:30:00",
        ),
        (datetime(2026, 11, 20, 23, 30), "2026-11-20 23:30:00"),  # noqa: DTZ001 - a naive time
        (date(2026, 11, 20), "2026-11-20"),
        ("text", "text"),
    ],
)
def test_a_cell_of_the_page(value: Any, shown: str) -> None:
    """Times are in UTC; numbers have separators of thousands."""
    assert cell(value) == shown


def test_a_column_is_of_numbers_if_each_value_is_a_number_or_missing() -> None:
    """At least one value must be a number."""
    rows = [
        {"whole": 1, "real": None, "none": None, "mixed": 1, "text": "a"},
        {"whole": 2, "real": 0.5, "none": None, "mixed": "b", "text": "b"},
    ]
    assert _grid(rows) == {
        "columns": ["whole", "real", "none", "mixed", "text"],
        "numeric": [True, True, False, False, False],
        "rows": [[1, None, None, 1, "a"], [2, 0.5, None, "b", "b"]],
    }
    assert _grid([]) == {"columns": [], "numeric": [], "rows": []}


def section(name: str, rows: list[dict[str, Any]], refused: int = 0) -> dict[str, Any]:
    """Return a section of the page over these rows."""
    return _section(name, Report({name: rows}, refused=refused))


@pytest.mark.parametrize(("name", "column"), [("skew", "share"), ("slowest", "max_s")])
def test_the_worst_rows_of_a_section_are_shown_and_the_others_counted(
    name: str, column: str
) -> None:
    """Fifty of 53 rows are shown, the highest value first."""
    found = section(name, [{column: n / 100} for n in range(53)])
    assert found == {
        "id": name,
        "title": SECTIONS[name][0],
        "note": SECTIONS[name][1],
        "total": 53,
        "hidden": 3,
        "columns": [column],
        "numeric": [True],
        "rows": [[n / 100] for n in range(52, 2, -1)],
    }


def test_rows_of_other_sections_stay_in_their_order() -> None:
    """The first fifty are shown; refused lines beyond the table count as hidden."""
    found = section("quarantine", [{"line": n} for n in range(51)], refused=60)
    assert (found["total"], found["hidden"]) == (60, 10)
    assert found["rows"] == [[n] for n in range(50)]
    other = section("movement", [{"moved": 3}, {"moved": 9}], refused=60)
    assert (other["total"], other["hidden"], other["rows"]) == (2, 0, [[3], [9]])


def test_two_hundred_owners_are_shown() -> None:
    """The owners are in order."""
    row = {"group_id": "g", "rack": None, "tasks": 1, "active": "", "standby_partitions": 0}
    found = section("owners", [{**row, "member": f"w{n}"} for n in range(201)])
    assert (found["total"], found["hidden"], len(found["rows"])) == (201, 1, 200)
    assert [shown[1] for shown in found["rows"]] == [f"w{n}" for n in range(200)]
