"""The history's plots as PNG bytes: one picture per table, drawn without a display."""

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
#: More bars than this in one picture are noise: the heaviest partitions stay.
HEAVIEST_SHOWN = 10
WARM, COLD, FAINT = "#3b7dd8", "#d1495b", "#a9b4c2"


def draw(report: Report) -> dict[str, bytes]:
    """PNG bytes by table name; a table without rows gives no picture."""
    painters: Mapping[str, Callable[[Axes, Rows], None]] = {
        "movement": _movement, "balance": _balance, "recovery": _recovery, "skew": _skew,
    }
    return {name: _png(paint, report.tables[name]) for name, paint in painters.items() if report.tables[name]}


def _png(paint: Callable[[Axes, Rows], None], rows: Rows) -> bytes:
    # The object interface and not pyplot: no global state, no display, safe in any thread.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    paint(axes, rows)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "faust-assigner"})
    return buffer.getvalue()


def _movement(axes: Axes, rows: Rows) -> None:
    """Per day and policy: partitions moved, of which cold."""
    labels = _day_labels(rows, "policy")
    places = range(len(rows))
    warm = [row["moved"] - row["cold_moves"] for row in rows]
    cold = [row["cold_moves"] for row in rows]
    axes.bar(places, warm, color=WARM, label="moved warm")
    axes.bar(places, cold, bottom=warm, color=COLD, label="moved cold")
    _categories(axes, labels)
    axes.set_ylabel("active partitions moved")
    axes.set_title("Moves")
    _legend(axes)


def _balance(axes: Axes, rows: Rows) -> None:
    """Per day and policy: the mean spread as a bar up to the worst one."""
    labels = _day_labels(rows, "policy")
    places = range(len(rows))
    axes.bar(places, [row["max_spread"] for row in rows], color=FAINT, label="worst")
    axes.bar(places, [row["mean_spread"] for row in rows], color=WARM, width=0.5, label="mean")
    _categories(axes, labels)
    axes.set_ylabel("partitions")
    axes.set_title("Spread: most minus fewest active partitions of a member")
    _legend(axes)


def _recovery(axes: Axes, rows: Rows) -> None:
    """Per day and cause: median, ninth decile and worst, on a logarithmic scale."""
    from matplotlib.ticker import LogFormatter

    labels = _day_labels(rows, "source")
    places = list(range(len(rows)))
    # A logarithmic axis has no zero; a recovery that took under a millisecond stands at one.
    low, high, worst = ([max(row[key], 1e-3) for row in rows] for key in ("p50_s", "p90_s", "max_s"))
    axes.vlines(places, low, worst, color=FAINT, linewidth=6)
    for values, color, name in ((low, WARM, "median"), (high, "#f0a202", "90%"), (worst, COLD, "worst")):
        axes.scatter(places, values, color=color, label=name, zorder=3)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    # Minor ticks are named only where they do not crowd: within one and a half decades.
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
    _categories(axes, labels)
    axes.set_ylabel("seconds")
    axes.set_title("Recovery times by cause")
    _legend(axes)


def _skew(axes: Axes, rows: Rows) -> None:
    """The heaviest partitions, each on its worst day, beside an even share of their topic."""
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
    axes.bar(places, [100 * worst[partition]["share"] for partition in shown], color=WARM, label="its share")
    axes.hlines(even, [place - 0.4 for place in places], [place + 0.4 for place in places], color=COLD,
                linewidth=2, label="an even share")
    _categories(axes, [f"{topic}/{number}\n{worst[(group, topic, number)]['dt']}"
                       for group, topic, number in shown])
    axes.set_ylabel("% of the topic's records that day")
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
    """Labels below the bars; of many, as many as stay readable."""
    every = -(-len(labels) // 10)
    places = range(0, len(labels), every)
    axes.set_xticks(list(places), [_short(labels[place]) for place in places], fontsize=8)
    axes.set_xlim(-0.6, max(len(labels) - 0.4, 2.6))


def _short(label: str) -> str:
    return "\n".join(line if len(line) <= 18 else line[:17] + "…" for line in label.split("\n"))


def _legend(axes: Axes) -> None:
    # Beside the picture and not in it: bars may be as high as the axes.
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
