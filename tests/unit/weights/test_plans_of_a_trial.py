"""The two plans of a trial: equal arguments, but for the weights."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner import Member
from faust_assigner.planner import plan
from faust_assigner.weights import trial


def test_both_plans_have_all_arguments_and_one_has_the_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The score has the members, the tasks, and the moves and loads of either plan."""
    asked: list[Any] = []

    def asking(*given: Any, **settings: Any) -> Any:
        asked.append((given, settings))
        return plan(*given, **settings)

    monkeypatch.setattr(trial, "plan", asking)
    topics = ["idle", "log", "orders"]
    members = [
        Member("a", topics, actives={"orders": [0, 1, 2], "log": [0, 1, 2]}, generation=3),
        Member("b", topics, actives={"orders": [3], "log": [3]}, generation=3),
    ]
    partitions = {"orders": 4, "log": 4, "idle": 5}
    weights = {("orders", 3): 6.0, ("log", 3): 2.0, ("orders", 1): 0.5}
    settings: dict[str, Any] = {
        "replicas": 1,
        "changelogs": ("log",),
        "weightless": ("idle",),
        "previous_ids": {"orders": 7},
    }
    found = trial.score(members, partitions, weights, **settings)
    given = (members, partitions)
    assert asked == [
        (given, {**settings, "weights": None}),
        (given, {**settings, "weights": weights}),
    ]
    assert (found.members, found.tasks) == (2, 9)
    # The tasks weigh 2, 1.5, 2 and 8: the mean of the two members is 6.75.
    assert found.before == pytest.approx(8 / 6.75)
    assert found.counted == pytest.approx((8 + 2) / 6.75)
    assert (found.counted_moves, found.weighted_moves) == (1, 0)
    assert found.weighted == pytest.approx(8 / 6.75)
    assert found.report() == {
        "members": 2,
        "tasks": 9,
        "before": found.before,
        "counted": found.counted,
        "weighted": found.weighted,
        "counted_moves": 1,
        "weighted_moves": 0,
        "ratio": pytest.approx(found.weighted / found.counted),
    }
