"""The history's pictures: labels do not overlap, and seconds are readable."""

from __future__ import annotations

import datetime as dt
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.history.axes import COLOURS
from faust_assigner.pipeline.history.plots import draw, figure, svg

DAY = dt.date(2026, 11, 1)
SLOW = pytest.mark.slow


def rows(table: str, count: int) -> list[dict[str, Any]]:
    """Return ``count`` rows of a table, with the longest possible names."""
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
    if table == "releases":
        moved = {"tasks_moved": 5, "tasks_cold": 2, "longest_recovery_s": 3.0}
        start = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
        return [
            {**row, **moved, "ts": start, "deploy": f"release-2026.11.{number}"}
            for number, row in enumerate(common)
        ]
    if table == "owners":
        return [
            {**row, "member": f"shop-worker-{number}", "tasks": number}
            for number, row in enumerate(common)
        ]
    if table == "causes":
        counts = dict.fromkeys(("tasks_gone", "tasks_balance", "tasks_new", "tasks_cold"), 3)
        return [{**row, **counts} for row in common]
    figures = {
        "balance": {"max_spread": 2.0, "mean_spread": 1.0},
        "recovery": {"p50_s": 0.004, "p90_s": 30.0, "max_s": 1_500_000.0},
    }[table]
    return [{**row, **figures} for row in common]


TABLES = {
    "balance": "balance",
    "recovery": "recovery",
    "skew": "skew",
    "releases": "rebalances",
    "owners": "owners",
    "causes": "timeline",
}


def drawing(name: str, found: list[dict[str, Any]]) -> Any:
    """Return the drawing of these rows."""
    return figure(name, {TABLES[name]: found})


@pytest.mark.parametrize("count", [1, 40, *(pytest.param(n, marks=SLOW) for n in (2, 10, 365))])
@pytest.mark.parametrize("table", list(TABLES))
def test_labels_do_not_overlap(table: str, count: int) -> None:
    """The rule holds for many days and long names; no label is cut off at the edge."""
    drawn = drawing(table, rows(table, count))
    drawn.canvas.draw()
    axes = drawn.axes[0]
    labels = axes.get_yticklabels() if table == "skew" else axes.get_xticklabels()
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    assert boxes
    for one, other in itertools.pairwise(boxes):
        assert not one.overlaps(other)
    assert all(box.x0 >= -1 and box.x1 <= drawn.bbox.x1 + 1 for box in boxes)


@pytest.mark.parametrize(("low", "high"), [(0.004, 1_500_000.0), (0.9, 4.0), (0.0, 0.002)])
def test_the_axis_of_seconds_has_no_exponents(low: float, high: float) -> None:
    """The labels are ``0.3`` and ``20``, not 3e-01 or a power of ten."""
    drawn = drawing(
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
    """The share is in percent, and the order of days does not matter."""
    shares = [0.2, 0.9, 0.4]
    days = zip(rows("skew", 3), shares, strict=True)
    found = [{**row, "partition": 0, "share": share} for row, share in days]
    bars = drawing("skew", found).axes[0].patches
    assert [bar.get_width() for bar in bars] == [pytest.approx(90.0)]


def test_colours_are_the_pages_and_names_are_text() -> None:
    """The page's colours replace the drawing's; dollars and angle brackets stay in names."""
    found = [{**row, "member": "a$b$ <i>"} for row in rows("owners", 2)]
    told = svg("owners", {"owners": found})
    assert not [colour for colour in COLOURS if colour in told]
    assert "var(--warm)" in told
    assert "a$b$ &lt;i&gt;" in told
    assert "<i>" not in told
    assert told.startswith("<svg")


@pytest.mark.parametrize("years", [(2026, 9999), (1, 2026), (9999, 9999), (1, 1), (1, 9999)])
def test_a_clock_at_either_end_of_the_calendar_is_drawn(years: tuple[int, int]) -> None:
    """A worker's wrong clock must not keep the page from being written."""
    found = [
        {"group_id": "g", "ts": dt.datetime(year, month, day, 23, tzinfo=dt.UTC), "members": 2}
        for year, month, day in zip(years, (1, 12), (1, 31), strict=True)
    ]
    assert svg("members", {"rebalances": found}).startswith("<svg")


def test_a_day_without_a_settled_round_is_no_bar() -> None:
    """The spread of the day is unknown; the other days are drawn."""
    first, second = rows("balance", 2)
    waiting = {**second, "max_spread": None, "mean_spread": None}
    assert [bar.get_height() for bar in drawing("balance", [first]).axes[0].patches] == [2.0, 1.0]
    assert "balance" not in draw(SimpleNamespace(tables={**NONE, "balance": [waiting]}))
    assert "balance" in draw(SimpleNamespace(tables={**NONE, "balance": [first, waiting]}))


NONE: dict[str, list[Any]] = {
    name: [] for name in ("rebalances", "timeline", "owners", "balance", "recovery", "skew")
}


@pytest.mark.parametrize(("count", "marker"), [(1, "."), (2, "")])
def test_a_line_with_one_point_has_a_mark(count: int, marker: str) -> None:
    """Otherwise the picture of a group with one round, or with one hour, is empty."""
    start = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    times = [start + dt.timedelta(hours=number) for number in range(count)]
    rounds = [{"group_id": "g", "ts": at, "members": 2} for at in times]
    hours = [{"hour": at, "lag_sum": 9, "lag_max": 5} for at in times]
    pictures = (("members", {"rebalances": rounds}), ("lag", {"timeline": hours}))
    for name, tables in pictures:
        [line] = figure(name, tables).axes[0].lines
        assert line.get_marker() == marker, name
