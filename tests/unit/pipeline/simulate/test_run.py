"""The sums over a run's rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.simulate import run


def row(policy: str, standbys: int, rebalances: int, moved: int, cold_moves: int) -> Any:
    """The fields of a row that count."""
    return SimpleNamespace(
        policy=policy, standbys=standbys, rebalances=rebalances, moved=moved, cold_moves=cold_moves
    )


def test_predictions_of_an_arm_are_the_sums_over_its_recordings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An arm is a policy with a number of standbys."""
    rows = [
        row("ours", 1, 2, 30, 4),
        row("ours", 0, 7, 70, 7),
        row("ours", 1, 1, 5, 0),
        row("faust", 1, 9, 90, 9),
    ]
    asked: list[Any] = []
    monkeypatch.setattr(run, "play", lambda it, which: asked.append((it, list(which))) or rows)
    whole: Any = object()
    assert run.replayed(whole, 3) == [
        {
            "policy": "ours",
            "standbys": 1,
            "predicted": {"rebalances": 3, "moved": 35, "cold_moves": 4},
        },
        {
            "policy": "ours",
            "standbys": 0,
            "predicted": {"rebalances": 7, "moved": 70, "cold_moves": 7},
        },
        {
            "policy": "faust",
            "standbys": 1,
            "predicted": {"rebalances": 9, "moved": 90, "cold_moves": 9},
        },
    ]
    assert asked == [(whole, [0, 1, 2])]
