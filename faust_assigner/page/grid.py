"""Computes the grid of tasks by members, with the positions of all marks. No I/O.

A mark is a task that a member owns, or a copy that a member keeps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from faust_assigner.page.tasks import Family, Task
from faust_assigner.status.report import Copy, MemberReport, Report
from faust_assigner.status.words import condition, natural, span

#: The largest lag of each shade, in records; a larger lag than the last has a further shade.
BOUNDS: Final = (0, 100, 1_000, 10_000)
#: The shade of an unknown lag.
UNKNOWN: Final = "u"
#: (width of a cell in pixels, the most tasks that a grid with this width may have).
_CELLS: Final = ((26, 40), (20, 90))
_SMALLEST: Final = 16
#: A grid above this width in pixels is packed.
PACKED_FROM: Final = 2_600
#: From this number of members on, a row is a single line.
COMPACT_FROM: Final = 16
#: Pixels between two labels of a wide family, and pixels for each character of a label.
_NAME_EVERY: Final = 560
_CHARACTER: Final = 6.6
#: For a packed grid: characters of a family's name, pixels between two lists, and pixels per digit.
_PACKED_NAME: Final = 10
_PACKED_GAP: Final = 28
_DIGIT: Final = 6.5

NO_OWNER: Final = "no owner"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A task or copy of a member in the grid.

    ``shape`` is ``a`` (active), ``x`` (not processed), ``s`` (standby) or ``w`` (warm-up). ``x`` is
    in pixels. ``text`` is the number beside the mark, "" if the column's head already shows it.
    """

    key: str
    x: int
    shape: str
    shade: str
    label: str
    family: int
    number: int
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A member's line of the grid. ``member`` is None in the line of tasks without an owner."""

    name: str
    member: MemberReport | None
    level: str
    state: str
    marks: tuple[Mark, ...]
    lag: int | None
    behind: int | None
    owned: int
    copies: int
    names: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Head:
    """A family of topics over its columns.

    ``names`` are pairs (x, shortened label), repeated over a wide family so that a label is always
    visible. ``numbers`` are pairs (x of a column's middle, partition number).
    """

    label: str
    x: int
    width: int
    names: tuple[tuple[int, str], ...]
    numbers: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A row for each member and a column for each task. ``cell`` and ``width`` are in pixels.

    If this grid would be wider than ``PACKED_FROM``, the grid is *packed*: a row lists its member's
    tasks and copies, each with its number.
    """

    cell: int
    width: int
    is_compact: bool
    is_packed: bool
    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    tasks: int


def shade_of(lag: int | None) -> str:
    """Return the shade of a lag.

    >>> [shade_of(lag) for lag in (0, 1, 100, 101, 5_000, 10_001, None)]
    ['0', '1', '1', '2', '3', '4', 'u']
    """
    return UNKNOWN if lag is None else str(bisect_left(BOUNDS, lag))


def grid_of(report: Report, families: Sequence[Family]) -> Grid:
    """Return the grid of a report. Cost: O(members + tasks and copies)."""
    count = sum(len(family.tasks) for family in families)
    cell = next((size for size, most in _CELLS if count <= most), _SMALLEST)
    marks: defaultdict[str | None, list[Mark]] = defaultdict(list)
    heads, x = [], 0
    for at, family in enumerate(families):
        heads.append(_family_head(family, x, cell))
        for task in family.tasks:
            marks[task.owner].append(_active_mark(task, at, x))
            for member, copies in task.copies.items():
                marks[member].append(_copy_mark(task, at, x, copies))
            x += cell
        x += cell
    rows = [_grid_row(member, tuple(marks.get(member.name, ()))) for member in report.members]
    rows.sort(key=lambda row: natural(row.name))
    if None in marks:
        rows.insert(0, _unowned_row(tuple(marks[None])))
    grid = Grid(
        cell=cell,
        width=max(x - cell, cell),
        is_compact=len(rows) >= COMPACT_FROM,
        is_packed=False,
        heads=tuple(heads),
        rows=tuple(rows),
        tasks=count,
    )
    return grid if grid.width <= PACKED_FROM else packed(grid, families)


def _family_head(family: Family, x: int, cell: int) -> Head:
    every = 1 if cell >= 20 else 2
    width = cell * len(family.tasks)
    # A label may also use the gap after the family's last cell.
    room = [(at, min(_NAME_EVERY, width + cell - at)) for at in range(0, width, _NAME_EVERY)]
    return Head(
        label=family.label,
        x=x,
        width=width,
        names=tuple(
            (x + at, short(family.label, int(free / _CHARACTER)))
            for at, free in room
            if free >= 5 * _CHARACTER or not at
        ),
        numbers=tuple(
            (x + cell * at + cell // 2, str(task.number))
            for at, task in enumerate(family.tasks)
            if task.number % every == 0
        ),
    )


def short(text: str, most: int) -> str:
    """Shorten the text to a number of characters.

    >>> short("customers", 5), short("orders", 6)
    ('cust…', 'orders')
    """
    return text if len(text) <= most else f"{text[: max(most - 1, 1)]}…"


def _active_mark(task: Task, family: int, x: int) -> Mark:
    still = [one.standing for one in task.partitions if one.standing is not None]
    words = [f"lag {task.lag:,}"] if task.lag is not None else []
    if still:
        longest = max(still, key=lambda one: one.seconds)
        words.append(f"not processed for {span(longest.seconds)}: {longest.reason}")
    what = "active" if task.owner else "no owner"
    # A task without source topics has no lag; it gets the shade of lag 0, not of an unknown lag.
    sources = any(not one.is_changelog for one in task.partitions)
    return Mark(
        key=task.key,
        family=family,
        number=task.number,
        x=x,
        shape="x" if task.stands_still or not task.owner else "a",
        shade=shade_of(task.lag if sources else 0),
        label=", ".join([f"{task.key}: {what}", *words]),
    )


def _copy_mark(task: Task, family: int, x: int, copies: Sequence[Copy]) -> Mark:
    lag = lag_of(copies)
    is_warmup = any(copy.is_warmup for copy in copies)
    what = "warm-up" if is_warmup else "standby"
    at_most = "" if all(copy.is_measured for copy in copies) else "at most "
    words = "lag unknown" if lag is None else f"{at_most}{lag:,} behind"
    return Mark(
        key=task.key,
        family=family,
        number=task.number,
        x=x,
        shape="w" if is_warmup else "s",
        shade=shade_of(lag),
        label=f"{task.key}: {what}, {words}",
    )


# -- packed


def packed(grid: Grid, families: Sequence[Family]) -> Grid:
    """Return the grid without columns: each row lists its member's tasks, then the copies."""
    labels = [short(family.label, _PACKED_NAME) if len(families) > 1 else "" for family in families]
    # Marks of one family are equally spaced, so that rows are easy to compare.
    steps = [
        _SMALLEST + 8 + round(_DIGIT * len(str(max(task.number for task in family.tasks))))
        for family in families
    ]
    owned = [
        _listed([m for m in row.marks if m.shape in "ax"], labels, steps, 0) for row in grid.rows
    ]
    begin = max(end for _, _, end in owned) + _PACKED_GAP
    rows, width = [], begin + _PACKED_GAP
    for row, (actives, names, _) in zip(grid.rows, owned, strict=True):
        rest = [m for m in row.marks if m.shape in "ws"]
        copies, more, end = _listed(rest, labels, steps, begin)
        rows.append(replace(row, marks=(*actives, *copies), names=(*names, *more)))
        width = max(width, end)
    heads = tuple(
        Head(label=label, x=x, width=room, names=((x, label),), numbers=())
        for label, x, room in (("owns", 0, begin - _PACKED_GAP), ("copies", begin, width - begin))
    )
    return replace(grid, is_packed=True, width=width, heads=heads, rows=tuple(rows))


def _listed(
    marks: Sequence[Mark], labels: Sequence[str], steps: Sequence[int], x: int
) -> tuple[list[Mark], list[tuple[int, str]], int]:
    """Place marks one after the other from ``x``, family by family.

    Returns the marks, the families' names with their positions, and the end position.
    """
    found, names, family = [], [], -1
    for mark in sorted(marks, key=lambda m: (m.family, m.shape == "s", m.number)):
        if mark.family != family and labels[mark.family]:
            names.append((x + 2, labels[mark.family]))
            x += 8 + round(_CHARACTER * len(labels[mark.family]))
        family = mark.family
        found.append(replace(mark, x=x, text=str(mark.number)))
        x += steps[mark.family]
    return found, names, x


def lag_of(copies: Sequence[Copy]) -> int | None:
    """Return the sum of the copies' lags in records; None if any lag is unknown."""
    lags = [copy.lag for copy in copies]
    return None if None in lags else sum(lag or 0 for lag in lags)


def _grid_row(member: MemberReport, marks: tuple[Mark, ...]) -> Row:
    level, state = condition(member)
    owned = sum(mark.shape in "ax" for mark in marks)
    behind = [lag for lag in (member.standby_lag, member.warmup_lag) if lag is not None]
    return Row(
        name=member.name,
        member=member,
        level=level,
        state=state,
        marks=marks,
        lag=member.lag,
        behind=sum(behind) if behind else None,
        owned=owned,
        copies=len(marks) - owned,
    )


def _unowned_row(marks: tuple[Mark, ...]) -> Row:
    return Row(
        name=NO_OWNER,
        member=None,
        level="bad",
        state="these tasks have no owner",
        marks=marks,
        lag=None,
        behind=None,
        owned=len(marks),
        copies=0,
    )
