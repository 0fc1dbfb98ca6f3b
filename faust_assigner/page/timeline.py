"""Computes the coordinates of the chart of rounds, members, lag and standstills. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from faust_assigner.page.history import RoundSeen, Sample
from faust_assigner.status.words import span

WIDTH: Final = 960
LEFT, RIGHT = 104, 14
#: The lanes of the chart: (y of the top, height), in pixels.
LANES: Final = {"rounds": (18, 30), "members": (62, 40), "lag": (118, 62), "standing": (196, 40)}
HEIGHT: Final = 268
#: The minimum time span of the chart, in seconds.
LEAST_S: Final = 120.0
#: If two samples are further apart than this number of seconds, the line has a gap between them.
GAP_S: Final = 30.0
#: The width of a digit of a round's number, in pixels.
DIGIT: Final = 7.5
#: The minimum space between the numbers of two rounds, in pixels.
SPACE: Final = 4.0
_STEPS: Final = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400)


@dataclass(frozen=True, kw_only=True)
class ChartRow:
    """A part of the chart with one quantity over time.

    ``line`` and ``area`` are SVG paths, "" without data. ``most`` and ``now`` are texts.
    """

    name: str
    title: str
    top: int
    height: int
    line: str
    area: str
    most: str
    now: str


@dataclass(frozen=True, kw_only=True)
class AxisTick:
    """A mark of the time axis."""

    x: float
    label: str


@dataclass(frozen=True, kw_only=True)
class RoundMark:
    """A round on the chart."""

    x: float
    label: str
    is_cold: bool
    moved: int
    generation: int


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The whole chart.

    ``numbered`` are the generations of the rounds whose numbers are drawn. ``earlier`` is the number
    of rounds before the chart's begin. ``words`` is a sentence about the chart, for screen readers.
    """

    lanes: tuple[ChartRow, ...]
    ticks: tuple[AxisTick, ...]
    rounds: tuple[RoundMark, ...]
    numbered: frozenset[int]
    earlier: int
    words: str


def chart_of(samples: Sequence[Sample], rounds: Sequence[RoundSeen], now: float) -> Chart:
    """Return the chart from the first sample up to ``now``."""
    begin = min((samples[0].at if samples else now), now - LEAST_S)
    scale = (WIDTH - LEFT - RIGHT) / max(now - begin, 1.0)

    def x_of(at: float) -> float:
        return round(LEFT + (min(max(at, begin), now) - begin) * scale, 1)

    marks = tuple(
        RoundMark(
            x=x_of(one.at),
            label=f"Round {one.generation}, {ago(now - one.at)}: {one.reason}. "
            f"{one.members} members, {one.moved} of {one.tasks} tasks moved, {one.cold} cold",
            is_cold=bool(one.cold) or not one.is_planned,
            moved=one.moved,
            generation=one.generation,
        )
        for one in rounds
        if one.at >= begin
    )
    lanes = tuple(
        _chart_lane(name, title, samples, value, x_of)
        for name, title, value in (
            ("members", "members", lambda s: s.members),
            ("lag", "lag, records", lambda s: s.lag),
            ("standing", "not processed", lambda s: s.standing),
        )
    )
    return Chart(
        lanes=lanes,
        ticks=_axis_ticks(now - begin, scale),
        rounds=marks,
        numbered=_numbered(marks),
        earlier=len(rounds) - len(marks),
        words=f"The last {span(round(now - begin))}: {len(marks)} rounds; "
        + "; ".join(f"{lane.title} at most {lane.most}, now {lane.now}" for lane in lanes),
    )


def _numbered(marks: Sequence[RoundMark]) -> frozenset[int]:
    """Return the generations whose numbers have space; newer rounds have priority."""
    drawn: list[RoundMark] = []
    for mark in reversed(marks):
        if all(
            abs(mark.x - one.x) >= (_number_width(mark) + _number_width(one)) / 2 + SPACE
            for one in drawn
        ):
            drawn.append(mark)
    return frozenset(one.generation for one in drawn)


def _number_width(mark: RoundMark) -> float:
    return len(str(mark.generation)) * DIGIT


def _chart_lane(
    name: str,
    title: str,
    samples: Sequence[Sample],
    value: Callable[[Sample], int | None],
    x_of: Callable[[float], float],
) -> ChartRow:
    top, height = LANES[name]
    known = [(s.at, found) for s in samples if (found := value(s)) is not None]
    most = max((found for _, found in known), default=0)
    scale = height / max(most, 1)
    line, area = [], []
    for run in _split_at_gaps(known):
        points = _step_points(
            [(x_of(at), round(top + height - found * scale, 1)) for at, found in run]
        )
        line.append("M" + "L".join(points))
        first, last = x_of(run[0][0]), x_of(run[-1][0])
        area.append(f"M{first:g},{top + height}L{'L'.join(points)}L{last:g},{top + height}Z")
    return ChartRow(
        name=name,
        title=title,
        top=top,
        height=height,
        line="".join(line),
        area="".join(area),
        most=f"{most:,}" if known else "unknown",
        now=f"{known[-1][1]:,}" if known else "unknown",
    )


def _split_at_gaps(known: Sequence[tuple[float, int]]) -> list[list[tuple[float, int]]]:
    """Split samples at gaps."""
    runs: list[list[tuple[float, int]]] = []
    for at, found in known:
        if not runs or at - runs[-1][-1][0] > GAP_S:
            runs.append([])
        runs[-1].append((at, found))
    return runs


def _step_points(points: Sequence[tuple[float, float]]) -> list[str]:
    """Return the points of a step line: each value holds until the next query.

    Points with a repeated value are left out.
    """
    found: list[str] = []
    before: float | None = None
    for at, (x, y) in enumerate(points):
        if before is not None and (y != before or at == len(points) - 1):
            found.append(f"{x:g},{before:g}")
        if y != before:
            found.append(f"{x:g},{y:g}")
        before = y
    if len(found) == 1:
        found.append(found[0])
    return found


def _axis_ticks(length: float, scale: float) -> tuple[AxisTick, ...]:
    step = next((one for one in _STEPS if length / one <= 6), _STEPS[-1])
    return tuple(
        AxisTick(
            x=round(WIDTH - RIGHT - number * step * scale, 1),
            label="now" if not number else f"-{span(number * step)}",
        )
        for number in range(math.floor(length / step) + 1)
    )


def ago(seconds: float) -> str:
    """Format an age.

    >>> ago(0.2), ago(90)
    ('just now', '1 min 30 s ago')
    """
    return "just now" if seconds < 1 else f"{span(round(seconds))} ago"
