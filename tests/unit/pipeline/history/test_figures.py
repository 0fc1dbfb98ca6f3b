"""Each picture's bars, lines, points and axes: places, values, colours and names."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.dates import date2num

from faust_assigner.pipeline.history.axes import (
    AMBER,
    COLD,
    FAINT,
    GREEN,
    VIOLET,
    WARM,
    label_categories,
    label_time,
    plain_count,
    plain_seconds,
    shortened,
)
from faust_assigner.pipeline.history.plots import draw, figure, svg

DAY = dt.date(2026, 11, 20)
NEXT = dt.date(2026, 11, 21)


def hour(count: int) -> dt.datetime:
    """Return an hour of the first day."""
    return dt.datetime(2026, 11, 20, count, tzinfo=dt.UTC)


def bars(axes: Any) -> list[tuple[Any, ...]]:
    """Return (middle, bottom, height, width, colour) of each bar."""
    return [
        (
            round(bar.get_x() + bar.get_width() / 2, 6),
            round(bar.get_y(), 6),
            round(bar.get_height(), 6),
            round(bar.get_width(), 6),
            to_hex(bar.get_facecolor()),
        )
        for bar in axes.patches
    ]


def segments(axes: Any) -> list[tuple[Any, ...]]:
    """Return (start, end, colour) of each line of the collections."""
    return [
        (
            *(tuple(round(float(number), 6) for number in point) for point in segment),
            to_hex(each.get_colors()[0]),
        )
        for each in axes.collections
        if isinstance(each, LineCollection)
        for segment in each.get_segments()
    ]


def points(axes: Any) -> list[tuple[Any, ...]]:
    """Return (place, value, colour) of each point."""
    return [
        (*(round(float(number), 6) for number in point), to_hex(each.get_facecolor()[0]))
        for each in axes.collections
        if isinstance(each, PathCollection)
        for point in each.get_offsets()
    ]


def legend(drawn: Any) -> list[str]:
    """Return the sorted names of the legend, or an empty list without a legend."""
    return sorted(text.get_text() for each in drawn.legends for text in each.get_texts())


def labels(axes: Any) -> list[tuple[float, str]]:
    """Return the places and the texts below the bars."""
    texts = [label.get_text() for label in axes.get_xticklabels()]
    return list(zip(map(float, axes.get_xticks()), texts, strict=True))


def limits(pair: Any) -> tuple[float, ...]:
    """Return the limits of an axis."""
    return tuple(round(float(number), 6) for number in pair)


def members(group: str, count: int, members: Any) -> dict[str, Any]:
    """Return a rebalance of the hour."""
    return {"group_id": group, "ts": hour(count), "members": members}


def test_each_group_has_a_step_line_of_its_members_in_the_order_of_time() -> None:
    """The largest group comes first; a step lasts until the next rebalance."""
    rows = [members("b", 5, 2), members("a", 1, 3), members("b", 3, 7), members("c", 2, 3)]
    drawn = figure("members", {"rebalances": [*rows, members("b", 4, 0), members("x", 9, None)]})
    (axes,) = drawn.axes
    found = [
        (line.get_label(), line.get_color(), line.get_drawstyle(), list(line.get_ydata()))
        for line in axes.lines
    ]
    assert found == [
        ("b", WARM, "steps-post", [7, 0, 2]),
        ("a", GREEN, "steps-post", [3]),
        ("c", VIOLET, "steps-post", [3]),
    ]
    assert list(axes.lines[0].get_xdata()) == [date2num(hour(n)) for n in (3, 4, 5)]
    assert limits(axes.get_ylim()) == (0, 7.7)
    assert axes.get_ylabel() == "members"
    assert legend(drawn) == ["a", "b", "c"]


def test_the_six_largest_groups_are_drawn_with_short_names() -> None:
    """Of equal groups, the first in order are drawn."""
    names = [f"{letter}" + "-" * 30 for letter in "hgfedcba"]
    rows = [members(name, 1, 9 if name[0] == "h" else 2) for name in names]
    drawn = figure("members", {"rebalances": rows})
    assert legend(drawn) == [f"{letter}" + "-" * 22 + "…" for letter in "abcdeh"]


def test_a_group_whose_name_begins_with_an_underscore_is_in_the_legend() -> None:
    """matplotlib leaves such labels out."""
    rows = [members("_shop", 1, 3), members("shop", 1, 2)]
    assert legend(figure("members", {"rebalances": rows})) == [" _shop", "shop"]


def test_a_single_group_needs_no_legend() -> None:
    """The title names the content of the picture."""
    assert legend(figure("members", {"rebalances": [members("a", 1, 3)]})) == []


def line(count: int, **more: Any) -> dict[str, Any]:
    """Return an hour of a group's timeline."""
    return {"hour": hour(count), "standstill_s": None, "lag_sum": None, "lag_max": None, **more}


def test_a_standstill_is_a_line_and_a_dot_at_the_longest_of_the_hour() -> None:
    """The hours are in order of time over all groups; hours without a recovery are left out."""
    rows = [line(7, standstill_s=0.5), line(3, standstill_s=2.0), line(7, standstill_s=4.0)]
    rows += [line(3, standstill_s=1.0), line(5)]
    (axes,) = figure("standstill", {"timeline": rows}).axes
    places = [round(float(date2num(hour(count))), 6) for count in (3, 7)]
    assert segments(axes) == [
        ((places[0], 0.0), (places[0], 2.0), COLD),
        ((places[1], 0.0), (places[1], 4.0), COLD),
    ]
    assert points(axes) == [(places[0], 2.0, COLD), (places[1], 4.0, COLD)]
    assert limits(axes.get_ylim()) == (0, 4.32)
    assert axes.get_ylabel() == "seconds"


@pytest.mark.parametrize(("name", "column"), [("standstill", "standstill_s"), ("lag", "lag_sum")])
def test_a_picture_of_zeros_has_an_axis(name: str, column: str) -> None:
    """The axis goes from zero to one."""
    row = line(3, **{"lag_max": 0, column: 0})
    (axes,) = figure(name, {"timeline": [row]}).axes
    assert limits(axes.get_ylim()) == (0, 1)


def test_the_lag_is_summed_over_the_groups_and_the_worst_partition_is_the_highest() -> None:
    """The hours are in order of time."""
    rows = [line(7, lag_sum=30, lag_max=20), line(3, lag_sum=5, lag_max=4)]
    rows += [line(7, lag_sum=1_970, lag_max=900), line(3, lag_sum=2, lag_max=1), line(4)]
    drawn = figure("lag", {"timeline": rows})
    (axes,) = drawn.axes
    (worst,) = axes.lines
    assert list(worst.get_xdata()) == [date2num(hour(3)), date2num(hour(7))]
    assert (list(worst.get_ydata()), worst.get_color()) == ([4, 900], WARM)
    (area,) = axes.collections
    assert {float(y) for _, y in area.get_paths()[0].vertices} == {0.0, 7.0, 2_000.0}
    assert to_hex(area.get_facecolor()[0]) == FAINT
    assert limits(axes.get_ylim()) == (0, 2_160)
    assert (axes.get_ylabel(), legend(drawn)) == ("records", ["all partitions", "worst partition"])
    assert axes.yaxis.get_major_formatter()(2_000, 0) == "2k"


def moved(day: dt.date, gone: int, balance: int, new: int, cold: int) -> dict[str, Any]:
    """Return an hour with moves."""
    names = ("tasks_gone", "tasks_balance", "tasks_new", "tasks_cold")
    return {"dt": day, **dict(zip(names, (gone, balance, new, cold), strict=True))}


def test_causes_are_stacked_per_day_and_cold_moves_are_marked() -> None:
    """Each bar sums the hours; a day without a cold move has no mark."""
    rows = [moved(NEXT, 5, 6, 7, 0), moved(DAY, 1, 2, 3, 4), moved(DAY, 10, 20, 30, 5)]
    drawn = figure("causes", {"timeline": [*rows, moved(NEXT, 0, 0, 0, 9)]})
    (axes,) = drawn.axes
    assert bars(axes) == [
        (0, 0, 11, 0.8, VIOLET),
        (1, 0, 5, 0.8, VIOLET),
        (0, 11, 22, 0.8, WARM),
        (1, 5, 6, 0.8, WARM),
        (0, 33, 33, 0.8, FAINT),
        (1, 11, 7, 0.8, FAINT),
    ]
    (marks,) = axes.collections
    assert [tuple(point) for point in marks.get_offsets()] == [(0, 9)]
    assert legend(drawn) == ["balance", "no owner before", "of them cold", "owner had left"]
    assert labels(axes) == [(0, "11-20"), (1, "11-21")]
    assert axes.get_ylabel() == "tasks moved"


def test_a_cause_without_tasks_is_not_in_the_legend() -> None:
    """The legend has the name of a single cause."""
    drawn = figure("causes", {"timeline": [moved(DAY, 0, 2, 0, 0)]})
    assert (legend(drawn), bars(drawn.axes[0])) == (["balance"], [(0, 0, 2, 0.8, WARM)])


def release(name: str, count: int, tasks: int, took: float | None) -> dict[str, Any]:
    """Return a rebalance of a release."""
    told = {"group_id": "g", "deploy": name, "ts": hour(count), "longest_recovery_s": took}
    return {**told, "tasks_moved": tasks, "tasks_cold": 0}


def test_releases_have_their_moves_as_bars_and_their_standstills_on_a_second_axis() -> None:
    """A release without a recovery has no point."""
    rows = [release("v2", 5, 9, None), release("v1", 1, 2, 3.0), release("v1", 2, 4, 5.0)]
    rows += [release("v3", 7, 1, 0.0), release("v1", 3, 6, 13.0)]
    drawn = figure("releases", {"rebalances": rows})
    axes, seconds = drawn.axes
    assert bars(axes) == [(0, 0, 4, 0.8, FAINT), (1, 0, 9, 0.8, FAINT), (2, 0, 1, 0.8, FAINT)]
    assert points(seconds) == [(0, 5, AMBER), (2, 0, AMBER), (0, 13, COLD), (2, 0, COLD)]
    assert legend(drawn) == ["longest standstill", "median standstill", "moved per round"]
    assert labels(axes) == [(0, "v1"), (1, "v2"), (2, "v3")]
    assert (axes.get_ylabel(), seconds.get_ylabel()) == ("tasks per round", "seconds")
    assert seconds.get_ylim()[0] == 0


def test_the_newest_fifteen_releases_are_drawn() -> None:
    """Without any recovery there is no second series."""
    drawn = figure("releases", {"rebalances": [release(f"v{n}", n, n, None) for n in range(17)]})
    assert [bar[2] for bar in bars(drawn.axes[0])] == list(range(2, 17))
    assert legend(drawn) == []


def owner(group: str, member: str, tasks: int) -> dict[str, Any]:
    """Return a member and its tasks."""
    return {"group_id": group, "member": member, "tasks": tasks}


def test_owners_are_sorted_within_their_group_with_a_line_at_its_mean() -> None:
    """The most tasks come first, then the name; the legend names the mean once."""
    rows = [owner("h", "d", 8), owner("g", "b", 2), owner("h", "c", 8), owner("g", "a", 5)]
    rows += [owner("g", "z", 2), owner("h", "e", 0)]
    drawn = figure("owners", {"owners": rows})
    (axes,) = drawn.axes
    assert [(bar[0], bar[2], bar[3]) for bar in bars(axes)] == [
        (place, tasks, 0.8) for place, tasks in enumerate([5, 2, 2, 8, 8, 0])
    ]
    assert segments(axes) == [
        ((-0.5, 3.0), (2.5, 3.0), COLD),
        ((2.5, 5.333333), (5.5, 5.333333), COLD),
    ]
    assert [text for _, text in labels(axes)] == ["a", "b", "z", "c", "d", "e"]
    assert (axes.get_ylabel(), legend(drawn)) == ("tasks", ["mean", "tasks"])


def spread(group: str, day: dt.date, policy: str, worst: float, mean: float) -> dict[str, Any]:
    """Return a row of the balance."""
    return {
        "group_id": group,
        "dt": day,
        "policy": policy,
        "max_spread": worst,
        "mean_spread": mean,
    }


def test_balance_has_a_wide_bar_for_the_worst_and_a_narrow_bar_for_the_mean() -> None:
    """Groups and policies are named only if they differ."""
    rows = [spread("g", DAY, "p", 4.0, 1.5), spread("g", NEXT, "p", 3.0, 2.5)]
    drawn = figure("balance", {"balance": rows})
    (axes,) = drawn.axes
    assert bars(axes) == [
        (0, 0, 4, 0.8, FAINT),
        (1, 0, 3, 0.8, FAINT),
        (0, 0, 1.5, 0.5, WARM),
        (1, 0, 2.5, 0.5, WARM),
    ]
    assert (legend(drawn), axes.get_ylabel()) == (["mean", "worst"], "topic partitions")
    assert labels(axes) == [(0, "11-20"), (1, "11-21")]


@pytest.mark.parametrize(
    ("group", "policy", "texts"),
    [
        ("h", "p", ["g\n11-20", "h\n11-21"]),
        ("g", "q", ["11-20\np", "11-21\nq"]),
        ("h", "q", ["g\n11-20\np", "h\n11-21\nq"]),
    ],
)
def test_a_bar_names_the_group_and_the_policy_that_differ(
    group: str, policy: str, texts: list[str]
) -> None:
    """The names are above and below the day."""
    rows = [spread("g", DAY, "p", 4.0, 1.5), spread(group, NEXT, policy, 3.0, 2.5)]
    (axes,) = figure("balance", {"balance": rows}).axes
    assert [text for _, text in labels(axes)] == texts


def recovered(day: dt.date, source: str, *seconds: float) -> dict[str, Any]:
    """Return a row of the recoveries."""
    times = dict(zip(("p50_s", "p90_s", "max_s"), seconds, strict=True))
    return {"group_id": "g", "dt": day, "source": source, **times}


def test_recoveries_are_lines_side_by_side_with_a_dot_at_ninety_percent() -> None:
    """The lines are by source; a time below a millisecond is drawn as one millisecond."""
    rows = [
        recovered(NEXT, "replay", 2.0, 8.0, 9.0),
        recovered(DAY, "local", 0.0, 0.0005, 3.0),
        recovered(DAY, "replay", 1.0, 5.0, 7.0),
    ]
    drawn = figure("recovery", {"recovery": rows})
    (axes,) = drawn.axes
    assert segments(axes) == [
        ((-0.175, 0.001), (-0.175, 3.0), WARM),
        ((1.175, 2.0), (1.175, 9.0), GREEN),
        ((0.175, 1.0), (0.175, 7.0), GREEN),
    ]
    assert points(axes) == [(-0.175, 0.001, WARM), (1.175, 8.0, GREEN), (0.175, 5.0, GREEN)]
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "seconds")
    assert legend(drawn) == ["local", "replay"]
    assert labels(axes) == [(0, "11-20"), (1, "11-21")]


@pytest.mark.parametrize(("longest", "named"), [(10.0, True), (10.1, False)])
def test_small_ticks_have_labels_within_one_decade_only(longest: float, named: bool) -> None:
    """Over several decades the labels would overlap; the legend names a single source."""
    drawn = figure("recovery", {"recovery": [recovered(DAY, "local", 1.0, 2.0, longest)]})
    (axes,) = drawn.axes
    assert (axes.yaxis.get_minor_formatter()(4.0, 0) == "4") is named
    assert axes.yaxis.get_major_formatter()(4.0, 0) == "4"
    assert legend(drawn) == ["local"]


def share(partition: int, day: dt.date, value: float, **more: Any) -> dict[str, Any]:
    """Return a partition's share of a day."""
    told = {"group_id": "g", "topic": "orders", "partition": partition, "dt": day}
    return {**told, "share": value, **more}


def test_heaviest_partitions_are_drawn_on_their_worst_day_beside_an_even_share() -> None:
    """The heaviest is at the top; each topic of each group has its own even share."""
    rows = [
        share(0, DAY, 0.2),
        share(0, NEXT, 0.6),
        share(1, NEXT, 0.4),
        share(3, DAY, 0.4),
        share(3, NEXT, 0.1),
        share(0, DAY, 0.5, group_id="h", topic="a-very-long-name-of-a-topic"),
        share(1, DAY, 0.45, group_id="h", topic="a-very-long-name-of-a-topic"),
        share(7, DAY, 0.3, group_id="h"),
    ]
    drawn = figure("skew", {"skew": rows})
    (axes,) = drawn.axes
    assert [round(bar.get_width(), 6) for bar in axes.patches] == [60, 50, 45, 40, 40, 30]
    assert segments(axes) == [
        ((33.333333, -0.4), (33.333333, 0.4), COLD),
        ((50.0, 0.6), (50.0, 1.4), COLD),
        ((50.0, 1.6), (50.0, 2.4), COLD),
        ((33.333333, 2.6), (33.333333, 3.4), COLD),
        ((33.333333, 3.6), (33.333333, 4.4), COLD),
        ((100.0, 4.6), (100.0, 5.4), COLD),
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "orders/0, 2026-11-21",
        "a-very-long-name-of-a-t…/0, 2026-11-20",
        "a-very-long-name-of-a-t…/1, 2026-11-20",
        "orders/1, 2026-11-21",
        "orders/3, 2026-11-20",
        "orders/7, 2026-11-20",
    ]
    assert list(axes.get_yticks()) == [0, 1, 2, 3, 4, 5]
    assert limits(axes.get_ylim()) == (5.6, -0.6)
    assert axes.get_xlabel() == "% of the topic's records that day"
    assert legend(drawn) == ["an even share", "its share"]


def test_ten_partitions_are_drawn_and_a_few_do_not_fill_the_height() -> None:
    """Of equal shares, the first in order are drawn."""
    rows = [share(n, DAY, 0.1) for n in range(11, -1, -1)]
    (axes,) = figure("skew", {"skew": rows}).axes
    texts = [label.get_text() for label in axes.get_yticklabels()]
    assert texts == [f"orders/{n}, 2026-11-20" for n in range(10)]
    (few,) = figure("skew", {"skew": rows[:1]}).axes
    assert limits(few.get_ylim()) == (2.6, -0.6)


@pytest.mark.parametrize(
    ("count", "width", "shown"),
    [(9, 5, 9), (10, 5, 5), (2, 60, 2), (4, 60, 2), (1, 1, 1), (49, 1, 25)],
)
def test_labels_below_bars_are_as_many_as_fit(count: int, width: int, shown: int) -> None:
    """Every second or third label is left out; long lines are cut at 18 characters."""
    (axes,) = figure("members", {"rebalances": [members("a", 1, 3)]}).axes
    label_categories(axes, [f"{n % 10}" + "x" * (width - 1) for n in range(count)])
    every = -(-count // shown)
    assert list(axes.get_xticks()) == list(range(0, count, every))
    texts = [text for _, text in labels(axes)]
    cut = "x" * (width - 1) if width <= 18 else "x" * 16 + "…"
    assert texts == [f"{n % 10}{cut}" for n in range(0, count, every)]
    assert limits(axes.get_xlim()) == (-0.6, max(count - 0.4, 2.6))


@pytest.mark.parametrize(("hours", "edge"), [([3], 0.02), ([21, 3], 0.02), ([0, 23 * 24], 0.46)])
def test_a_time_axis_has_an_edge_on_both_sides(hours: list[int], edge: float) -> None:
    """The edge is a fiftieth of the time, and at least half an hour."""
    start = hour(0)
    moments = [start + dt.timedelta(hours=count) for count in hours]
    (axes,) = figure("members", {"rebalances": [members("a", 1, 3)]}).axes
    label_time(axes, moments)
    low, high = float(date2num(min(moments))), float(date2num(max(moments)))
    assert limits(axes.get_xlim()) == limits((low - edge, high + edge))


@pytest.mark.parametrize(
    ("text", "most", "shown"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("", 1, "")]
)
def test_a_name_is_cut_beyond_its_length(text: str, most: int, shown: str) -> None:
    """The last character is an ellipsis."""
    assert shortened(text, most) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (999, "999"), (1_000, "1k"), (1e6, "1M"), (1e9, "1G"), (-2_500, "-2.5k")],
)
def test_a_count_on_an_axis(value: float, shown: str) -> None:
    """The unit starts at a thousand."""
    assert plain_count(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0.0, "0"), (100.0, "100"), (2.5004, "2.5")])
def test_seconds_on_an_axis(value: float, shown: str) -> None:
    """Zeros before the point stay."""
    assert plain_seconds(value) == shown


def test_pictures_with_data_are_drawn_and_an_element_has_neither_size_nor_ids() -> None:
    """Rows without a value count as no data."""
    names = ("rebalances", "timeline", "owners", "balance", "recovery", "skew")
    tables: dict[str, Any] = {name: [] for name in names}
    still = {**line(3), **moved(DAY, 0, 0, 0, 1)}
    tables["timeline"] = [still, {**still, "lag_sum": 0, "lag_max": 0}]
    found = draw(type("Report", (), {"tables": tables}))
    assert list(found) == ["lag"]
    head = found["lag"].partition(">")[0]
    assert head.startswith("<svg")
    assert "width=" not in head.replace("stroke-width=", "")
    assert "height=" not in head
    assert "viewBox=" in head
    assert '<g id="' not in found["lag"]
    assert "metadata" not in found["lag"]
    assert "system-ui, sans-serif" in found["lag"]
    assert "DejaVu" not in found["lag"]
    assert found["lag"] == svg("lag", tables)
