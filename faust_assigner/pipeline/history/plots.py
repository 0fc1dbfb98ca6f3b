"""The page's pictures as SVG, drawn without a display; their colours are the page's CSS variables.

matplotlib draws with a fixed colour for each role; the SVG's text then has the role's variable in its place,
so that one picture serves the light and the dark page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.history.answers import release_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from faust_assigner.pipeline.history.report import Report

#: Inches: the page shows a picture of this width in its natural size, with text of 11 points.
WIDTH, HEIGHT = 7.2, 3.1
#: Inches: the width for labels beside the axis, and the width of an 11-point character.
LABELS_WIDTH, CHARACTER_WIDTH = 5.9, 0.1
#: The number of heaviest partitions, of releases and of groups in a picture.
HEAVIEST_SHOWN, RELEASES_DRAWN, GROUPS_DRAWN = 10, 15, 6

#: The first and the last day number that matplotlib can label, in days since 1970: the years 2 to 9998.
_DAYS = (-718_000.0, 2_932_000.0)

#: Colour of the drawing -> the page's variable.
COLOURS: Mapping[str, str] = {
    "#1c2431": "var(--ink)",
    "#5b6676": "var(--soft)",
    "#d9def5": "var(--line)",
    "#3b7dd8": "var(--warm)",
    "#d1495b": "var(--cold)",
    "#a9b4c2": "var(--faint)",
    "#f0a202": "var(--amber)",
    "#2a9d8f": "var(--green)",
    "#8d6cc9": "var(--violet)",
}
INK, SOFT, LINE, WARM, COLD, FAINT, AMBER, GREEN, VIOLET = COLOURS
_OF_GROUPS = (WARM, GREEN, VIOLET, AMBER, COLD, SOFT)
#: Without mathtext a ``$`` in a name is a character.
_STYLE: dict[str, object] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "axes.labelsize": 11,
    "grid.color": LINE,
    "font.size": 11,
}

Tables = Mapping[str, Sequence[Mapping[str, Any]]]
Rows = Sequence[Mapping[str, Any]]


def draw(report: Report) -> dict[str, str]:
    """Picture -> SVG; a picture without data is left out."""
    found = {}
    for name, (table, has_data, _) in _PICTURES.items():
        if any(map(has_data, report.tables[table])):
            found[name] = svg(name, report.tables)
    return found


def svg(name: str, tables: Tables) -> str:
    """A picture as an SVG element for a page: no fixed size, no ids that repeat, colours by variables."""
    import matplotlib

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about labels of a time axis over thousands of years
        buffer = io.StringIO()
        figure(name, tables).savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None}
        )
    text = buffer.getvalue()
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    # matplotlib 3.10 and older write ``font: 11px 'DejaVu Sans'``, newer ones ``font-family``.
    own = r"(font: [^;\"]*?\d+px |font-family: )[^;\"]*"
    text = re.sub(own, r"\1system-ui, sans-serif", text)
    for colour, variable in COLOURS.items():
        text = text.replace(colour, variable)
    return text


def figure(name: str, tables: Tables) -> Figure:
    """The drawing of one picture."""
    import matplotlib

    # Unlike pyplot, the object interface has no global state, needs no display and is safe in any thread.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        drawn: Figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        FigureCanvasAgg(drawn)
        axes = drawn.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        table, has_data, paint = _PICTURES[name]
        paint(axes, [row for row in tables[table] if has_data(row)])
        handles, labels = axes.get_legend_handles_labels()
        if len(labels) > 1 or name in _ALWAYS_NAMED:
            # Above the axes, since bars may be as high as the axes.
            drawn.legend(handles, labels, frameon=False, loc="outside upper left", ncols=6)
    return drawn


def _members(axes: Axes, rows: Rows) -> None:
    """Draw one step line per group; the largest groups if there are many."""
    groups = _by_group(rows)
    for (group, mine), colour in zip(groups, _OF_GROUPS, strict=False):
        axes.step(
            _days_of([row["ts"] for row in mine]),
            [row["members"] for row in mine],
            where="post",
            color=colour,
            label=_short(group, 24),
        )
    axes.set_ylim(0, 1.1 * max(row["members"] for row in rows))
    axes.set_ylabel("members")
    _whole(axes)
    _time(axes, [row["ts"] for row in rows])


def _by_group(rows: Rows) -> Sequence[tuple[str, Rows]]:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["group_id"]].append(row)
    found = {group: sorted(mine, key=lambda row: row["ts"]) for group, mine in groups.items()}
    return sorted(found.items(), key=lambda each: (-max(r["members"] for r in each[1]), each[0]))[
        :GROUPS_DRAWN
    ]


def _standstill(axes: Axes, rows: Rows) -> None:
    hours = _by_hour(rows, "standstill_s", max)
    places = _days_of(hours)
    axes.vlines(places, 0, list(hours.values()), color=COLD, linewidth=1.2)
    axes.scatter(places, list(hours.values()), color=COLD, s=7)
    axes.set_ylim(0, 1.08 * max(hours.values()) or 1)
    axes.yaxis.set_major_formatter(plain_seconds)
    axes.set_ylabel("seconds")
    _time(axes, list(hours))


def _lag(axes: Axes, rows: Rows) -> None:
    summed, worst = _by_hour(rows, "lag_sum", sum), _by_hour(rows, "lag_max", max)
    places = _days_of(summed)
    axes.fill_between(places, list(summed.values()), color=FAINT, label="all partitions")
    axes.plot(places, list(worst.values()), color=WARM, linewidth=1.2, label="worst partition")
    axes.set_ylim(0, 1.08 * max(summed.values()) or 1)
    axes.yaxis.set_major_formatter(plain_count)
    axes.set_ylabel("records")
    _time(axes, list(summed))


def _by_hour(
    rows: Rows, column: str, merge: Callable[[Sequence[float]], float]
) -> dict[datetime, float]:
    hours: dict[datetime, list[float]] = defaultdict(list)
    for row in rows:
        hours[row["hour"]].append(row[column])
    return {hour: merge(hours[hour]) for hour in sorted(hours)}


def _days_of(moments: Iterable[datetime]) -> list[float]:
    """Times as matplotlib's day numbers."""
    from matplotlib.dates import date2num

    return [float(date2num(moment)) for moment in moments]


def _causes(axes: Axes, rows: Rows) -> None:
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
    _categories(axes, [f"{day:%m-%d}" for day in order])


def _releases(axes: Axes, rows: Rows) -> None:
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
    _categories(axes, [row["release"] for row in told])


def _owners(axes: Axes, rows: Rows) -> None:
    """Draw each member's tasks, sorted, and the mean of each group."""
    ordered = sorted(rows, key=lambda row: (row["group_id"], -row["tasks"], row["member"]))
    places = list(range(len(ordered)))
    axes.bar(places, [row["tasks"] for row in ordered], color=WARM, width=0.8, label="tasks")
    for group in dict.fromkeys(row["group_id"] for row in ordered):
        mine = [place for place, row in enumerate(ordered) if row["group_id"] == group]
        mean = sum(ordered[place]["tasks"] for place in mine) / len(mine)
        label = "mean" if mine[0] == 0 else "_"  # the legend leaves out names that begin so
        axes.hlines(mean, mine[0] - 0.5, mine[-1] + 0.5, color=COLD, linewidth=1.5, label=label)
    axes.set_ylabel("tasks")
    _whole(axes)
    _categories(axes, [row["member"] for row in ordered])


def _balance(axes: Axes, rows: Rows) -> None:
    """Draw the mean and the worst spread per day and policy."""
    places = range(len(rows))
    axes.bar(places, [row["max_spread"] for row in rows], color=FAINT, label="worst")
    axes.bar(places, [row["mean_spread"] for row in rows], color=WARM, width=0.5, label="mean")
    _categories(axes, _day_labels(rows, "policy"))
    axes.set_ylabel("topic partitions")


def _recovery(axes: Axes, rows: Rows) -> None:
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
    # Minor ticks have labels only within one decade; beyond, the labels would overlap.
    longest = max(max(row["max_s"], 1e-3) for row in rows)
    crowded = longest > 10 * min(max(row["p50_s"], 1e-3) for row in rows)
    axes.yaxis.set_minor_formatter(NullFormatter() if crowded else plain_seconds)
    _categories(axes, [f"{day:%m-%d}" for day in days])
    axes.set_ylabel("seconds")


def _skew(axes: Axes, rows: Rows) -> None:
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
    # Horizontal bars, since each bar has a long name.
    axes.barh(places, shares, color=WARM, label="its share")
    lows, highs = [place - 0.4 for place in places], [place + 0.4 for place in places]
    axes.vlines(even, lows, highs, color=COLD, linewidth=2, label="an even share")
    names = [
        f"{_short(topic, 24)}/{number}, {worst[(group, topic, number)]['dt']}"
        for group, topic, number in shown
    ]
    axes.set_yticks(list(places), names)
    axes.set_ylim(max(len(shown) - 0.4, 2.6), -0.6)
    axes.set_xlabel("% of the topic's records that day")


def _day_labels(rows: Rows, column: str) -> list[str]:
    """Day, and the group and the value of ``column`` if they differ between the rows."""
    groups = {row["group_id"] for row in rows}
    values = {row[column] for row in rows}
    labels = []
    for row in rows:
        group = f"{row['group_id']}\n" if len(groups) > 1 else ""
        value = f"\n{row[column]}" if len(values) > 1 else ""
        labels.append(f"{group}{row['dt']:%m-%d}{value}")
    return labels


def _categories(axes: Axes, labels: Sequence[str]) -> None:
    """Put labels below the bars; skip labels that would overlap."""
    shown = ["\n".join(_short(line, 18) for line in label.split("\n")) for label in labels]
    longest = max(len(line) for label in shown for line in label.split("\n"))
    room = max(1, int(LABELS_WIDTH / (longest * CHARACTER_WIDTH + 0.1)))
    every = -(-len(labels) // room)
    places = range(0, len(labels), every)
    axes.set_xticks(list(places), [shown[place] for place in places])
    axes.set_xlim(-0.6, max(len(labels) - 0.4, 2.6))


def _time(axes: Axes, moments: Sequence[datetime]) -> None:
    """Label the time axis in UTC with few short labels."""
    from datetime import UTC

    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=7, tz=UTC)
    forms = ["%Y", "%b %Y", "%b %d", "%H:%M", "%H:%M", "%H:%M:%S"]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(
            locator,
            tz=UTC,
            formats=forms,
            zero_formats=["%Y", "%b %d", "%b %d", "%b %d", "%H:%M", "%H:%M"],
            show_offset=False,
        )
    )
    # In days: a time at the end of the calendar has no later time, but a day number has a successor.
    first, last = _days_of([min(moments), max(moments)])
    edge = max(0.02, (last - first) / 50)
    axes.set_xlim(max(first - edge, _DAYS[0]), min(last + edge, _DAYS[1]))
    axes.grid(axis="y", linewidth=0.6)


def _whole(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def plain_seconds(value: float, _: object = None) -> str:
    """Format seconds without an exponent.

    >>> plain_seconds(0.003), plain_seconds(20.0), plain_seconds(1_000_000.0)
    ('0.003', '20', '1,000,000')
    """
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def plain_count(value: float, _: object = None) -> str:
    """Format a count in thousands, millions or billions.

    >>> plain_count(950), plain_count(12_500), plain_count(3_000_000)
    ('950', '12.5k', '3M')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _has(column: str) -> Callable[[Mapping[str, object]], bool]:
    return lambda row: row[column] is not None


def _moves(row: Mapping[str, object]) -> bool:
    return bool(row["tasks_gone"] or row["tasks_balance"] or row["tasks_new"])


#: Picture -> (its table, whether a row has data for it, its painter).
_PICTURES: Mapping[
    str, tuple[str, Callable[[Mapping[str, object]], bool], Callable[[Axes, Rows], None]]
] = {
    "members": ("rebalances", _has("members"), _members),
    "standstill": ("timeline", _has("standstill_s"), _standstill),
    "lag": ("timeline", _has("lag_sum"), _lag),
    "causes": ("timeline", _moves, _causes),
    "releases": ("rebalances", _has("deploy"), _releases),
    "owners": ("owners", _has("tasks"), _owners),
    "balance": ("balance", _has("max_spread"), _balance),
    "recovery": ("recovery", _has("max_s"), _recovery),
    "skew": ("skew", _has("share"), _skew),
}
#: Pictures with a legend even for a single series.
_ALWAYS_NAMED = frozenset({"causes", "recovery"})
