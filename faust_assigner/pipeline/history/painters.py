"""Draw the page's pictures: each function draws the rows of a table on empty axes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.history.answers import release_rows
from faust_assigner.pipeline.history.axes import (
    AMBER,
    COLD,
    FAINT,
    GREEN,
    SOFT,
    VIOLET,
    WARM,
    days_of,
    label_categories,
    label_time,
    plain_count,
    plain_seconds,
    shortened,
    whole_numbers,
)
from faust_assigner.pipeline.rows import Rows, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The maximum number of heaviest partitions, releases and groups in a picture.
HEAVIEST_SHOWN, RELEASES_DRAWN, GROUPS_DRAWN = 10, 15, 6
_OF_GROUPS = (WARM, GREEN, VIOLET, AMBER, COLD, SOFT)


def members(axes: Axes, rows: Rows) -> None:
    """Draw one step line per group; the largest groups if there are many."""
    groups = _by_group(rows)
    for (group, mine), colour in zip(groups, _OF_GROUPS, strict=False):
        axes.step(
            days_of([row["ts"] for row in mine]),
            [row["members"] for row in mine],
            where="post",
            color=colour,
            marker=_dot(mine),
            # matplotlib's legend omits labels that begin with "_".
            label=shortened(f" {group}" if group.startswith("_") else group, 24),
        )
    axes.set_ylim(0, 1.1 * max(row["members"] for row in rows))
    axes.set_ylabel("members")
    whole_numbers(axes)
    label_time(axes, [row["ts"] for row in rows])


def _dot(points: Sequence[object]) -> str:
    """Return the marker of a line's points: a line with one point is visible only with its marker."""
    return "." if len(points) == 1 else ""


def _by_group(rows: Rows) -> Sequence[tuple[str, Rows]]:
    found = grouped(sorted(rows, key=itemgetter("ts")), itemgetter("group_id"))
    return sorted(found.items(), key=lambda each: (-max(r["members"] for r in each[1]), each[0]))[
        :GROUPS_DRAWN
    ]


def standstill(axes: Axes, rows: Rows) -> None:
    """Draw each hour's longest standstill."""
    hours = _by_hour(rows, "standstill_s", max)
    places = days_of(hours)
    axes.vlines(places, 0, list(hours.values()), color=COLD, linewidth=1.2)
    axes.scatter(places, list(hours.values()), color=COLD, s=7)
    axes.set_ylim(0, 1.08 * max(hours.values()) or 1)
    axes.yaxis.set_major_formatter(plain_seconds)
    axes.set_ylabel("seconds")
    label_time(axes, list(hours))


def lag(axes: Axes, rows: Rows) -> None:
    """Draw each hour's lag: the sum over all partitions, and the worst partition."""
    summed, worst = _by_hour(rows, "lag_sum", sum), _by_hour(rows, "lag_max", max)
    places = days_of(summed)
    axes.fill_between(places, list(summed.values()), color=FAINT, label="all partitions")
    values = list(worst.values())
    axes.plot(
        places, values, color=WARM, linewidth=1.2, marker=_dot(values), label="worst partition"
    )
    axes.set_ylim(0, 1.08 * max(summed.values()) or 1)
    axes.yaxis.set_major_formatter(plain_count)
    axes.set_ylabel("records")
    label_time(axes, list(summed))


def _by_hour(
    rows: Rows, column: str, merge: Callable[[Sequence[float]], float]
) -> dict[datetime, float]:
    hours = grouped(rows, itemgetter("hour"))
    return {hour: merge([row[column] for row in hours[hour]]) for hour in sorted(hours)}


def causes(axes: Axes, rows: Rows) -> None:
    """Stack each day's moved tasks by cause; a mark shows the cold moves."""
    days: dict[date, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        for name in ("tasks_gone", "tasks_balance", "tasks_new", "tasks_cold"):
            days[row["dt"]][name] += row[name]
    order = sorted(days)
    places, bottom = list(range(len(order))), [0] * len(order)
    for name, colour, label in (
        ("tasks_gone", VIOLET, "owner had left"),
        ("tasks_balance", WARM, "balance"),
        ("tasks_new", FAINT, "no owner before"),
    ):
        values = [days[day][name] for day in order]
        if any(values):
            axes.bar(places, values, bottom=bottom, color=colour, label=label)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    cold = [(place, days[day]["tasks_cold"]) for place, day in zip(places, order, strict=True)]
    marks = [(place, count) for place, count in cold if count]
    if marks:
        axes.scatter(
            [place for place, _ in marks],
            [count for _, count in marks],
            color=COLD,
            marker="_",
            s=90,
            linewidths=2,
            label="of them cold",
            zorder=3,
        )
    axes.set_ylabel("tasks moved")
    axes.yaxis.set_major_formatter(plain_count)
    label_categories(axes, [f"{day:%m-%d}" for day in order])


def releases(axes: Axes, rows: Rows) -> None:
    """Draw moved tasks per round as bars, and the standstills on a second axis."""
    told = release_rows({"rebalances": rows})[-RELEASES_DRAWN:]
    places = list(range(len(told)))
    axes.bar(places, [row["moved per round"] for row in told], color=FAINT, label="moved per round")
    axes.set_ylabel("tasks per round")
    seconds = axes.twinx()
    seconds.spines[["top"]].set_visible(False)
    for column, colour, label in (
        ("median standstill s", AMBER, "median standstill"),
        ("longest standstill s", COLD, "longest standstill"),
    ):
        points = [(p, row[column]) for p, row in zip(places, told, strict=True)]
        known = [(place, value) for place, value in points if value is not None]
        if known:
            at, values = zip(*known, strict=True)
            seconds.scatter(at, values, color=colour, s=22, zorder=3)
            axes.scatter([], [], color=colour, s=22, label=label)  # for the legend
    seconds.set_ylim(bottom=0)
    seconds.yaxis.set_major_formatter(plain_seconds)
    seconds.set_ylabel("seconds")
    label_categories(axes, [row["release"] for row in told])


def owners(axes: Axes, rows: Rows) -> None:
    """Draw each member's tasks, sorted, and the mean of each group."""
    ordered = sorted(rows, key=lambda row: (row["group_id"], -row["tasks"], row["member"]))
    places = list(range(len(ordered)))
    axes.bar(places, [row["tasks"] for row in ordered], color=WARM, width=0.8, label="tasks")
    for group in dict.fromkeys(row["group_id"] for row in ordered):
        mine = [place for place, row in enumerate(ordered) if row["group_id"] == group]
        mean = sum(ordered[place]["tasks"] for place in mine) / len(mine)
        # matplotlib's legend omits labels that begin with "_".
        label = "mean" if mine[0] == 0 else "_"
        axes.hlines(mean, mine[0] - 0.5, mine[-1] + 0.5, color=COLD, linewidth=1.5, label=label)
    axes.set_ylabel("tasks")
    whole_numbers(axes)
    label_categories(axes, [row["member"] for row in ordered])


def balance(axes: Axes, rows: Rows) -> None:
    """Draw the mean and the worst spread per day and policy."""
    places = range(len(rows))
    axes.bar(places, [row["max_spread"] for row in rows], color=FAINT, label="worst")
    axes.bar(places, [row["mean_spread"] for row in rows], color=WARM, width=0.5, label="mean")
    label_categories(axes, _day_labels(rows))
    axes.set_ylabel("topic partitions")


def recovery(axes: Axes, rows: Rows) -> None:
    """Draw a line from median to maximum and a dot at the 90th percentile, per day and source."""
    from matplotlib.ticker import NullFormatter

    days = sorted({row["dt"] for row in rows})
    sources = sorted({row["source"] for row in rows})
    for at, (source, colour) in enumerate(zip(sources, _OF_GROUPS, strict=False)):
        mine = [row for row in rows if row["source"] == source]
        shift = 0.7 * ((at + 0.5) / len(sources) - 0.5)
        places = [days.index(row["dt"]) + shift for row in mine]
        # A logarithmic axis has no zero: recoveries below a millisecond are drawn at one millisecond.
        low, high, worst = (
            [max(row[key], 1e-3) for row in mine] for key in ("p50_s", "p90_s", "max_s")
        )
        axes.vlines(places, low, worst, color=colour, linewidth=2)
        axes.scatter(places, high, color=colour, label=source, s=16, zorder=3)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(plain_seconds)
    # Minor ticks have labels only if the values span at most a factor of 10; else labels would overlap.
    longest = max(max(row["max_s"], 1e-3) for row in rows)
    crowded = longest > 10 * min(max(row["p50_s"], 1e-3) for row in rows)
    axes.yaxis.set_minor_formatter(NullFormatter() if crowded else plain_seconds)
    label_categories(axes, [f"{day:%m-%d}" for day in days])
    axes.set_ylabel("seconds")


def skew(axes: Axes, rows: Rows) -> None:
    """Draw the heaviest partitions, each on its worst day, and an even share of their topic."""
    worst: dict[tuple[str, str, int], Mapping[str, Any]] = {}
    sizes: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for row in rows:
        partition = (row["group_id"], row["topic"], row["partition"])
        sizes[partition[:2]].add(row["partition"])
        if partition not in worst or row["share"] > worst[partition]["share"]:
            worst[partition] = row
    shown = sorted(worst, key=lambda p: (-worst[p]["share"], p))[:HEAVIEST_SHOWN]
    even = [100 / len(sizes[partition[:2]]) for partition in shown]
    places = range(len(shown))
    shares = [100 * worst[partition]["share"] for partition in shown]
    # The bars are horizontal, since each bar has a long name.
    axes.barh(places, shares, color=WARM, label="its share")
    lows, highs = [place - 0.4 for place in places], [place + 0.4 for place in places]
    axes.vlines(even, lows, highs, color=COLD, linewidth=2, label="an even share")
    names = [
        f"{shortened(topic, 24)}/{number}, {worst[(group, topic, number)]['dt']}"
        for group, topic, number in shown
    ]
    axes.set_yticks(list(places), names)
    axes.set_ylim(max(len(shown) - 0.4, 2.6), -0.6)
    axes.set_xlabel("% of the topic's records that day")


def _day_labels(rows: Rows) -> list[str]:
    """Return a label per row: the day, and the group and the policy if they differ between the rows."""
    groups = {row["group_id"] for row in rows}
    policies = {row["policy"] for row in rows}
    labels = []
    for row in rows:
        group = f"{row['group_id']}\n" if len(groups) > 1 else ""
        policy = f"\n{row['policy']}" if len(policies) > 1 else ""
        labels.append(f"{group}{row['dt']:%m-%d}{policy}")
    return labels
