"""The axes of the page's pictures: the colour of each role, the labels, and numbers as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The width for all labels below the axis, and the width of an 11-point character, in inches.
LABELS_WIDTH, CHARACTER_WIDTH = 5.9, 0.1
#: The first and the last day number that matplotlib can label, in days since 1970: the years 2 to 9998.
_DAYS = (-718_000.0, 2_932_000.0)
#: Colour in the drawing -> the CSS variable that replaces it on the page.
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


def days_of(moments: Iterable[datetime]) -> list[float]:
    """Return times as matplotlib's day numbers."""
    from matplotlib.dates import date2num

    return [float(date2num(moment)) for moment in moments]


def label_categories(axes: Axes, labels: Sequence[str]) -> None:
    """Put labels below the bars; skip labels that would overlap."""
    shown = ["\n".join(shortened(line, 18) for line in label.split("\n")) for label in labels]
    longest = max(len(line) for label in shown for line in label.split("\n"))
    room = max(1, int(LABELS_WIDTH / (longest * CHARACTER_WIDTH + 0.1)))
    every = -(-len(labels) // room)
    places = range(0, len(labels), every)
    axes.set_xticks(list(places), [shown[place] for place in places])
    axes.set_xlim(-0.6, max(len(labels) - 0.4, 2.6))


def label_time(axes: Axes, moments: Sequence[datetime]) -> None:
    """Label the time axis in UTC with few short labels."""
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
    # Compute with day numbers, because a datetime at the end of the year 9999 cannot be increased.
    first, last = days_of([min(moments), max(moments)])
    edge = max(0.02, (last - first) / 50)
    axes.set_xlim(max(first - edge, _DAYS[0]), min(last + edge, _DAYS[1]))
    axes.grid(axis="y", linewidth=0.6)


def whole_numbers(axes: Axes) -> None:
    """Label the vertical axis with whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def shortened(text: str, most: int) -> str:
    """Cut ``text`` to at most ``most`` characters."""
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
