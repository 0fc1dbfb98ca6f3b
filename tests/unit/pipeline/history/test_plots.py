"""The history's pictures: labels that stay apart, seconds that read as seconds."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

from faust_assigner.pipeline.history.plots import figure

DAY = dt.date(2026, 11, 1)


def rows(table: str, count: int) -> list[dict[str, Any]]:
    """``count`` rows of a table, with names as long as they come."""
    days = [DAY + dt.timedelta(days=number) for number in range(count)]
    if table == "skew":
        return [
            {
                "group_id": "a-group",
                "dt": day,
                "topic": "orders-by-customer-and-region-changelog",
                "partition": number,
                "records_in": 1,
                "bytes_in": 1,
                "share": 1 / count,
            }
            for number, day in enumerate(days)
        ]
    common = [
        {
            "group_id": f"group-{number % 2}",
            "dt": day,
            "policy": "faust-assigner-with-weights",
            "source": "standby",
        }
        for number, day in enumerate(days)
    ]
    figures = {
        "movement": {"moved": 5, "cold_moves": 2},
        "balance": {"max_spread": 2.0, "mean_spread": 1.0},
        "recovery": {"p50_s": 0.004, "p90_s": 30.0, "max_s": 1_500_000.0},
    }[table]
    return [{**row, **figures} for row in common]


@pytest.mark.parametrize("count", [1, 2, 7, 10, 40, 365])
@pytest.mark.parametrize("table", ["movement", "balance", "recovery", "skew"])
def test_labels_do_not_overlap(table: str, count: int) -> None:
    """However many days and however long the names; and none is cut off at the picture's edge."""
    drawn = figure(table, rows(table, count))
    drawn.canvas.draw()
    axes = drawn.axes[0]
    labels = axes.get_yticklabels() if table == "skew" else axes.get_xticklabels()
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    assert boxes
    for one, other in itertools.pairwise(boxes):
        assert not one.overlaps(other)
    assert all(box.x0 >= 0 and box.x1 <= drawn.bbox.x1 for box in boxes)


@pytest.mark.parametrize(("low", "high"), [(0.004, 1_500_000.0), (0.9, 4.0), (0.0, 0.002)])
def test_the_axis_of_seconds_has_no_exponents(low: float, high: float) -> None:
    """``0.3`` and ``20``, not 3e-01 and a power of ten."""
    drawn = figure(
        "recovery",
        [{**row, "p50_s": low, "p90_s": high, "max_s": high} for row in rows("recovery", 2)],
    )
    drawn.canvas.draw()
    axis = drawn.axes[0].yaxis
    told = [
        label.get_text() for label in (*axis.get_ticklabels(), *axis.get_ticklabels(minor=True))
    ]
    assert any(told)
    for text in filter(None, told):
        float(text.replace(",", ""))
        assert not set(text) & set("e$^")


def test_of_a_partition_its_worst_day_is_drawn() -> None:
    """Whatever day comes last, and in percent."""
    shares = [0.2, 0.9, 0.4]
    days = zip(rows("skew", 3), shares, strict=True)
    found = [{**row, "partition": 0, "share": share} for row, share in days]
    bars = figure("skew", found).axes[0].patches
    assert [bar.get_width() for bar in bars] == [pytest.approx(90.0)]
