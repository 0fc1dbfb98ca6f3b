"""The marks of the grid: sizes, places, names and drawing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.page.grid import Grid, Head, Mark, Row, _family_head, _listed, grid_of, packed
from faust_assigner.page.render import _draw_row
from faust_assigner.page.tasks import Family, Task
from faust_assigner.status.build import build
from faust_assigner.status.report import Partition
from tests.support.status import group

REPORT = build(group(3, rounds=3).evidence())


def part(topic: str = "log", **more: Any) -> Partition:
    """A partition of a table, without copies."""
    base = {"partition": 3, "is_changelog": True, "owner": "w0", "committed": None, "end": None}
    return Partition(
        **{"topic": topic, **base, "lag": None, "standing": None, "copies": (), **more}
    )


def family(tasks: int, label: str = "orders", topic: str = "orders") -> Family:
    """A family with this many tasks."""
    found = tuple(
        Task(key=f"{topic}/{n}", number=n, owner="w0", partitions=(part(topic, partition=n),))
        for n in range(tasks)
    )
    return Family(topics=(topic,), label=label, tasks=found)


@pytest.mark.parametrize(("tasks", "cell"), [(40, 26), (41, 20), (90, 20), (91, 16)])
def test_cells_are_smaller_the_more_tasks_there_are(tasks: int, cell: int) -> None:
    """Families are one cell apart, and the grid ends with its last task."""
    found = grid_of(REPORT, [family(tasks - 2), family(2, topic="rates")])
    assert (found.cell, found.tasks) == (cell, tasks)
    assert [head.x for head in found.heads] == [0, cell * (tasks - 1)]
    assert found.width == cell * (tasks + 1)


@pytest.mark.parametrize(("members", "is_compact"), [(15, False), (16, True)])
def test_a_row_is_a_single_line_from_16_members_on(members: int, is_compact: bool) -> None:
    """The row of tasks without an owner counts too."""
    first = REPORT.members[0]
    report = replace(REPORT, members=tuple(replace(first, name=f"w{n}") for n in range(members)))
    assert grid_of(report, [family(4)]).is_compact is is_compact
    lost = replace(family(4), tasks=tuple(replace(t, owner=None) for t in family(4).tasks))
    assert grid_of(replace(report, members=report.members[1:]), [lost]).is_compact is is_compact


@pytest.mark.parametrize(
    ("cell", "numbers"),
    [(20, [(110, "0"), (130, "1"), (150, "2")]), (16, [(108, "0"), (140, "2")])],
)
def test_numbers_stand_over_the_middle_of_their_columns(
    cell: int, numbers: list[tuple[int, str]]
) -> None:
    """Narrow columns show every second number."""
    found = _family_head(family(3), 100, cell)
    assert (list(found.numbers), found.x, found.width) == (numbers, 100, 3 * cell)


def test_a_wide_family_repeats_its_name() -> None:
    """One name is always visible; the last name is shortened or left out."""
    found = _family_head(family(60, label="a" * 100), 100, 20)
    assert [x for x, _ in found.names] == [100, 660, 1220]
    assert [len(text) for _, text in found.names] == [84, 84, 15]
    assert [x for x, _ in _family_head(family(71), 0, 16).names] == [0, 560]
    assert [x for x, _ in _family_head(family(1, label="abcdef"), 0, 20).names] == [0]


def mark(number: int, shape: str = "a", family: int = 0, **more: Any) -> Mark:
    """A mark of a task."""
    base = {"x": 0, "shade": "0", "label": "l", "number": number, "family": family}
    return Mark(**{"key": f"t/{number}", "shape": shape, **base, **more})


def test_listed_marks_follow_each_other_by_family_and_number() -> None:
    """Each family begins with its name; warm-ups are before standbys."""
    marks = [mark(9), mark(2, "s"), mark(1), mark(3, family=1), mark(5, "w")]
    found, names, end = _listed(marks, ["fam", ""], [30, 40], 100)
    gap = 8 + round(6.6 * 3)
    assert names == [(102, "fam")]
    assert [(one.number, one.x, one.text) for one in found] == [
        (1, 100 + gap, "1"),
        (5, 130 + gap, "5"),
        (9, 160 + gap, "9"),
        (2, 190 + gap, "2"),
        (3, 220 + gap, "3"),
    ]
    assert end == 260 + gap


def row(*marks: Mark) -> Row:
    """A member's row."""
    return Row(
        name="w0", member=None, level="good", state="", marks=marks, lag=0, behind=None,
        owned=1, copies=1,
    )  # fmt: skip


def test_a_packed_grid_has_all_copies_beside_the_longest_list_of_tasks() -> None:
    """A single family has no name; each number has the room of the longest number."""
    grid = Grid(
        cell=16, width=9_999, is_compact=False, is_packed=False, heads=(), tasks=3,
        rows=(row(mark(4), mark(5, "s"), mark(6, "w")), row(mark(1), mark(2, "x"), mark(3, "s"))),
    )  # fmt: skip
    found = packed(grid, [family(11)])
    step = 16 + 8 + round(6.5 * 2)
    begin = 2 * step + 28
    assert [[(m.number, m.x) for m in one.marks] for one in found.rows] == [
        [(4, 0), (6, begin), (5, begin + step)],
        [(1, 0), (2, step), (3, begin)],
    ]
    assert found.is_packed
    assert (found.width, found.tasks) == (begin + 2 * step, 3)
    assert found.heads == (
        Head(label="owns", x=0, width=2 * step, names=((0, "owns"),), numbers=()),
        Head(label="copies", x=begin, width=2 * step, names=((begin, "copies"),), numbers=()),
    )


@pytest.mark.parametrize(("is_compact", "middle"), [(True, 16), (False, 26)])
def test_a_drawn_mark_links_to_its_task(is_compact: bool, middle: int) -> None:
    """The label is escaped; a mark for a standstill has no shade."""
    grid = Grid(
        cell=20, width=99, is_compact=is_compact, is_packed=False, heads=(), tasks=1, rows=()
    )
    one = mark(1, "x", key="a b/1", x=40, label="<l>", text="7", shade="2")
    drawn = _draw_row(replace(row(one, mark(2, "s", shade="3")), names=((5, "n"),)), grid)
    assert drawn == (
        f'<text class="of" x="5" y="{middle}">n</text>'
        f'<a href="story?t=a%20b/1" aria-label="&lt;l&gt;"><use href="#x" x="40"/>'
        f'<text x="61" y="{middle}">7</text></a>'
        '<a href="story?t=t/2" aria-label="l"><use href="#s3" x="0"/></a>'
    )
