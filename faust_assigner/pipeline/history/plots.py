"""The history's plots as PNG bytes: one plot per table, drawn without a display."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.history.report import Report, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 9.0, 3.4, 110
#: Inches: the width for labels beside the legend and the axis, and the width of an 8-point character.
LABELS_WIDTH, CHARACTER_WIDTH = 6.4, 0.07
#: The number of heaviest partitions in the plot.
HEAVIEST_SHOWN = 10
WARM, COLD, FAINT = "#3b7dd8", "#d1495b", "#a9b4c2"


def draw(report: Report) -> dict[str, bytes]:
    """Table name -> PNG bytes; a table without rows has no plot."""
    return {
        name: _png(figure(name, report.tables[name])) for name in _painters() if report.tables[name]
    }


def _painters() -> Mapping[str, Callable[[Axes, Rows], None]]:
    return {"movement": _movement, "balance": _balance, "recovery": _recovery, "skew": _skew}


def figure(table: str, rows: Rows) -> Figure:
    """The plot of one table."""
    # Unlike pyplot, the object interface has no global state, needs no display and is safe in any thread.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn: Figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    _painters()[table](axes, rows)
    return drawn


def _png(drawn: Figure) -> bytes:
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", metadata={"Software": "faust-assigner"})
    return buffer.getvalue()


def _movement(axes: Axes, rows: Rows) -> None:
    """Plot the warm and cold moves of topic partitions per day and policy."""
    labels = _day_labels(rows, "policy")
    places = range(len(rows))
    warm = [row["moved"] - row["cold_moves"] for row in rows]
    cold = [row["cold_moves"] for row in rows]
    axes.bar(places, warm, color=WARM, label="moved warm")
    axes.bar(places, cold, bottom=warm, color=COLD, label="moved cold")
    _categories(axes, labels)
    axes.set_ylabel("topic partitions moved")
    axes.set_title("Moves")
    _legend(axes)


def _balance(axes: Axes, rows: Rows) -> None:
    """Plot the mean and the worst spread per day and policy."""
    labels = _day_labels(rows, "policy")
    places = range(len(rows))
    axes.bar(places, [row["max_spread"] for row in rows], color=FAINT, label="worst")
    axes.bar(places, [row["mean_spread"] for row in rows], color=WARM, width=0.5, label="mean")
    _categories(axes, labels)
    axes.set_ylabel("topic partitions")
    axes.set_title("Spread: most minus fewest active topic partitions of a member")
    _legend(axes)


def _recovery(axes: Axes, rows: Rows) -> None:
    """Plot median, 90th percentile and maximum per day and cause, on a logarithmic scale."""
    from matplotlib.ticker import NullFormatter

    labels = _day_labels(rows, "source")
    places = list(range(len(rows)))
    # A logarithmic axis has no zero: recoveries below a millisecond are drawn at one millisecond.
    low, high, worst = (
        [max(row[key], 1e-3) for row in rows] for key in ("p50_s", "p90_s", "max_s")
    )
    axes.vlines(places, low, worst, color=FAINT, linewidth=6)
    for values, color, name in (
        (low, WARM, "median"),
        (high, "#f0a202", "90%"),
        (worst, COLD, "worst"),
    ):
        axes.scatter(places, values, color=color, label=name, zorder=3)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(plain_seconds)
    # Minor ticks have labels only within one decade; beyond, the labels would overlap.
    crowded = max(worst) > 10 * min(low)
    axes.yaxis.set_minor_formatter(NullFormatter() if crowded else plain_seconds)
    _categories(axes, labels)
    axes.set_ylabel("seconds")
    axes.set_title("Recovery times by cause")
    _legend(axes)


def _skew(axes: Axes, rows: Rows) -> None:
    """Plot the heaviest partitions, each on its worst day, and an even share of their topic."""
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
    # Horizontal bars, since each bar has a long name.
    axes.barh(
        places,
        [100 * worst[partition]["share"] for partition in shown],
        color=WARM,
        label="its share",
    )
    axes.vlines(
        even,
        [place - 0.4 for place in places],
        [place + 0.4 for place in places],
        color=COLD,
        linewidth=2,
        label="an even share",
    )
    names = [
        f"{_short(topic, 30)}/{number}, {worst[(group, topic, number)]['dt']}"
        for group, topic, number in shown
    ]
    axes.set_yticks(list(places), names, fontsize=8)
    axes.set_ylim(max(len(shown) - 0.4, 2.6), -0.6)
    axes.set_xlabel("% of the topic's records that day")
    axes.set_title("Heaviest partitions, each on its worst day")
    _legend(axes)


def _day_labels(rows: Rows, column: str) -> list[str]:
    groups = {row["group_id"] for row in rows}
    labels = []
    for row in rows:
        group = f"{row['group_id']}\n" if len(groups) > 1 else ""
        labels.append(f"{group}{row['dt']}\n{row[column]}")
    return labels


def _categories(axes: Axes, labels: Sequence[str]) -> None:
    """Put labels below the bars; skip labels that would overlap."""
    shown = ["\n".join(_short(line, 18) for line in label.split("\n")) for label in labels]
    longest = max(len(line) for label in shown for line in label.split("\n"))
    room = max(1, int(LABELS_WIDTH / (longest * CHARACTER_WIDTH + 0.1)))
    every = -(-len(labels) // room)
    places = range(0, len(labels), every)
    axes.set_xticks(list(places), [shown[place] for place in places], fontsize=8)
    axes.set_xlim(-0.6, max(len(labels) - 0.4, 2.6))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def plain_seconds(value: float, _: object = None) -> str:
    """Format seconds without an exponent.

    >>> plain_seconds(0.003), plain_seconds(20.0), plain_seconds(1_000_000.0)
    ('0.003', '20', '1,000,000')
    """
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _legend(axes: Axes) -> None:
    # Outside the axes, since bars may be as high as the axes.
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
