"""The checker's own steps: racks without a name, rounds of plans, and repeated complaints."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner import Member
from faust_assigner.checks import invariants
from faust_assigner.checks.case import Case, Violation
from faust_assigner.checks.invariants import _check_settles, check


def test_an_empty_rack_is_a_rack_and_a_missing_one_is_its_own() -> None:
    """Two members with the rack "" share it."""
    racks: list[Any] = ["r", "", "", None, None]
    members = [Member(f"m{n}", ["t"], rack_id=rack) for n, rack in enumerate(racks)]
    made = Case(members, {"t": 1}, frozenset(), 0, frozenset())
    assert made.rack == ["r", "", "", (3,), (4,)]
    assert made.ids == ["m0", "m1", "m2", "m3", "m4"]


def plan(number: int, left: int, **actives: list[int]) -> Any:
    """Return a plan; ``left`` of its tasks are off their target."""
    return SimpleNamespace(
        number=number,
        left=left,
        actives=lambda name: {"t": actives.get(name, [])},
        standbys=lambda name: {"log": [number]},
    )


def test_each_plan_is_made_for_the_members_after_the_plan_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plans are made until the number of tasks off their target is stable."""
    monkeypatch.setattr(invariants, "_count_off_target", lambda made: (made.left, 0))
    members = [Member(name, ["t"], generation=4) for name in "ab"]
    case = Case(members, {"t": 2}, frozenset(), 0, frozenset())
    plans = [plan(1, 3, a=[0], b=[1]), plan(2, 1, a=[1], b=[0]), plan(3, 1, a=[1], b=[0])]
    seen: list[Any] = []

    def planner(given: Sequence[Member]) -> Any:
        seen.append([(m.member_id, m.generation, m.actives["t"], m.standbys["log"]) for m in given])
        return plans[len(seen) - 1]

    found = list(_check_settles(case, plan(0, 9, a=[0, 1]), planner))
    assert seen == [
        [("a", 5, [0, 1], [0]), ("b", 5, [], [0])],
        [("a", 6, [0], [1]), ("b", 6, [1], [1])],
        [("a", 7, [1], [2]), ("b", 7, [0], [2])],
    ]
    again = "moved again although nothing changed"
    assert found == [Violation("A6", f"the standbys of {name} {again}") for name in "ab"]
    assert plans[0].number == 1


def test_a_complaint_is_listed_once_and_all_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promises of one plan and of two plans are one list."""
    second, first = Violation("A5", "b"), Violation("A1", "z")
    monkeypatch.setattr(invariants, "_check_one_plan", lambda *_: [second, first, second])
    monkeypatch.setattr(invariants, "_check_settles", lambda *_: [Violation("A6", "x"), second])
    monkeypatch.setattr(invariants, "_check_ignores_order", lambda *_: [Violation("A8", "y")])
    answer: Any = object()
    members = [Member("a", ["t"])]
    assert check(members, {"t": 1}, answer) == [first, second]
    planner: Any = object()
    assert check(members, {"t": 1}, answer, planner=planner) == [
        *(first, second, Violation("A6", "x"), Violation("A8", "y"))
    ]
