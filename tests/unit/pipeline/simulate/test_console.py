"""The tables that commands print of weights."""

from __future__ import annotations

import pytest

from faust_assigner.pipeline.simulate.console import show_weights


def test_each_figure_of_a_shadow_score_stands_below_its_head(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who reads a weighted plan's load as the counted one's would switch weights off."""
    score = {
        "group_id": "shop",
        "ts": "2026-11-21T12:00:00+00:00",
        "before": 1.9,
        "counted": 1.5,
        "weighted": 1.1,
        "counted_moves": 2,
        "weighted_moves": 3,
        "ratio": 0.73,
    }
    report = {"version": 7, "by": "records", "groups": [], "shadow": [score], "quarantined": 0}
    show_weights({**report, "stale_samples": False, "out": "weights", "topic": None})
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("group") and "counted" in line)
    row = next(line for line in lines if line.startswith("shop"))
    shown = {
        name: row[head.index(name) :].split()[0]
        for name in ("heaviest now", "counted ", "weighted ", "tasks moved counted")
    }
    assert list(shown.values()) == ["1.90", "1.50", "1.10", "2"]
    assert row.split()[-2:] == ["3", "0.73"]
