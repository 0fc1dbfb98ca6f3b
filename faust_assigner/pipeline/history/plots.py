"""The page's pictures as SVG, drawn without a display; their colours are the page's CSS variables.

matplotlib draws with a fixed colour for each role. In the SVG each colour is then replaced by the role's CSS
variable, so that the same picture fits the light and the dark page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faust_assigner.pipeline.history import painters
from faust_assigner.pipeline.history.axes import COLOURS, INK, LINE, SOFT
from faust_assigner.pipeline.history.report import Report
from faust_assigner.pipeline.rows import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: In inches; at this width the page does not scale the picture, so its text has 11 points.
WIDTH, HEIGHT = 7.2, 3.1
#: The style of all pictures; without ``parse_math``, a ``$`` in a name is an ordinary character.
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

Tables = Mapping[str, Rows]


@dataclass(frozen=True)
class Picture:
    """A picture of the page."""

    title: str
    note: str
    #: The table of the report that has the picture's rows.
    table: str
    #: Whether a row has data for the picture.
    has_data: Callable[[Mapping[str, object]], bool]
    paint: Callable[[Axes, Rows], None]
    #: Whether the picture has a legend even for a single series.
    always_named: bool = False


def _has(column: str) -> Callable[[Mapping[str, object]], bool]:
    return lambda row: row[column] is not None


def _moves(row: Mapping[str, object]) -> bool:
    return bool(row["tasks_gone"] or row["tasks_balance"] or row["tasks_new"])


#: The pictures in the page's order.
PICTURES: Mapping[str, Picture] = {
    "members": Picture(
        "Members over time",
        "The group's members after each rebalance.",
        "rebalances",
        _has("members"),
        painters.members,
    ),
    "standstill": Picture(
        "Standstill",
        "Each hour's longest recovery: the time from a partition's assignment to its first new record.",
        "timeline",
        _has("standstill_s"),
        painters.standstill,
    ),
    "lag": Picture(
        "Lag",
        "Each hour's highest lag of a single partition, and the sum over all partitions, in records.",
        "timeline",
        _has("lag_sum"),
        painters.lag,
    ),
    "causes": Picture(
        "Moves by cause", "Tasks per day.", "timeline", _moves, painters.causes, always_named=True
    ),
    "releases": Picture(
        "Releases compared",
        "Moved tasks per round, and the median and longest standstill.",
        "rebalances",
        _has("deploy"),
        painters.releases,
    ),
    "owners": Picture(
        "Tasks per member now",
        "As the newest decision of each group left it, sorted.",
        "owners",
        _has("tasks"),
        painters.owners,
    ),
    "balance": Picture(
        "Balance",
        "Most minus fewest active topic partitions of a member. Rounds with warm-ups do not count.",
        "balance",
        _has("max_spread"),
        painters.balance,
    ),
    "recovery": Picture(
        "Recovery times by source",
        "A line from the median to the longest, and a dot at 90%, in seconds.",
        "recovery",
        _has("max_s"),
        painters.recovery,
        always_named=True,
    ),
    "skew": Picture(
        "Heaviest partitions", "Each on its worst day.", "skew", _has("share"), painters.skew
    ),
}


def draw(report: Report) -> dict[str, str]:
    """Return picture -> SVG; a picture without data is left out."""
    return {
        name: svg(name, report.tables)
        for name, picture in PICTURES.items()
        if any(map(picture.has_data, report.tables[picture.table]))
    }


def svg(name: str, tables: Tables) -> str:
    """Return a picture as an SVG element without fixed size and ids, with CSS variables as colours."""
    import matplotlib

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib warns if a time axis spans thousands of years
        buffer = io.StringIO()
        figure(name, tables).savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None}
        )
    text = buffer.getvalue()
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    # matplotlib up to 3.10 writes ``font: 11px 'DejaVu Sans'``; newer versions write ``font-family``.
    own = r"(font: [^;\"]*?\d+px |font-family: )[^;\"]*"
    text = re.sub(own, r"\1system-ui, sans-serif", text)
    for colour, variable in COLOURS.items():
        text = text.replace(colour, variable)
    return text


def figure(name: str, tables: Tables) -> Figure:
    """Draw one picture."""
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
        picture = PICTURES[name]
        picture.paint(axes, [row for row in tables[picture.table] if picture.has_data(row)])
        handles, labels = axes.get_legend_handles_labels()
        if len(labels) > 1 or picture.always_named:
            # The legend is above the axes, since bars may be as high as the axes.
            drawn.legend(handles, labels, frameon=False, loc="outside upper left", ncols=6)
    return drawn
