"""One look at a group in which every value differs, on the page: the grid, all words, a task's history.

``python -m tests.unit.page.test_whole`` writes the files of expected lines anew, after a wanted change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from faust_assigner import __version__
from faust_assigner.page.grid import Grid, grid_of, packed
from faust_assigner.page.history import History
from faust_assigner.page.look import Look
from faust_assigner.page.render import parts_of, story_part
from faust_assigner.page.tasks import families_of
from faust_assigner.page.timeline import chart_of
from faust_assigner.status.build import build
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import MovedTask, RoundTold
from tests.unit.status.test_whole import TOTALS, look

HERE = Path(__file__).parent


def made() -> Look:
    """The look, five minutes after a look in which all tasks had different owners."""
    report = build(look())
    moved = {"a": "d", "d": "shop-b", "shop-b": "a"}
    before = tuple(
        replace(one, owner=moved.get(one.owner or "", one.owner), copies=())
        for one in report.partitions
    )
    earlier = replace(
        report,
        partitions=before,
        taken_at=report.taken_at - 300,
        decision=None,
        totals=replace(report.totals, lag=70_000, standing_partitions=2, members=5, ready=4),
    )
    history = History()
    for one in (earlier, replace(earlier, taken_at=report.taken_at - 280), report):
        history.note(one, families_of(one))
    outcome = Outcome(
        trigger="leave", decided_at=999_900, members=4, tasks=20, moved=3, cold=1, off_target=2,
        warming=1, left=("http://b:6066",),
    )  # fmt: skip
    move = MovedTask(
        topic="orders", partition=1, source="m-d", target="shop-b", rule="moved", is_cold=True
    )
    told = RoundTold(generation=6, at=999_905.0, seconds=12.0, outcome=outcome, moves=(move,))
    history.note_reported([told], report)
    return Look(
        group="shop",
        report=report,
        families=families_of(report),
        history=history,
        problem=None,
        every_s=5.0,
    )


def drawn(grid: Grid) -> Iterator[str]:
    """The grid as lines of text."""
    yield f"cell {grid.cell} width {grid.width} tasks {grid.tasks} packed {grid.is_packed}"
    for head in grid.heads:
        yield f"{head.label} at {head.x}-{head.width}: {head.names} {head.numbers}"
    for row in grid.rows:
        yield (
            f"{row.name} {row.level} {row.state!r} lag {row.lag} behind {row.behind} "
            f"owns {row.owned} copies {row.copies} {row.names}"
        )
        for mark in row.marks:
            yield (
                f"  {mark.x} {mark.shape}{mark.shade} {mark.family}/{mark.number} {mark.key} "
                f"{mark.text!r} {mark.label}"
            )


def words(html: str) -> list[str]:
    """The texts and the screen reader's labels of a part of the page."""
    labelled = re.sub(r'<[^>]*aria-label="([^"]*)"[^>]*>', r"<b>[\1]</b>", html)
    texts = re.split(r"<[^>]+>", labelled)
    found = (" ".join(unescape(text).split()) for text in texts)
    return [text.replace(__version__, "VERSION") for text in found if text]


def grid_lines() -> list[str]:
    """Place, shape, shade and label of every mark, with columns and packed as in a large group."""
    one = made()
    assert one.report is not None
    grid = grid_of(one.report, one.families)
    return [*drawn(grid), "", *drawn(packed(grid, one.families))]


def page_lines() -> list[str]:
    """Figures, lines of trouble, members, rounds, settings."""
    parts = parts_of(made()).items()
    return [line for name, html in parts for line in (f"-- {name}", *words(html))]


def story_lines() -> list[str]:
    """The histories of three tasks, each with a different kind of topic."""
    one, lines = made(), list[str]()
    for key in ("orders/1", f"{TOTALS}/2", "clicks/0"):
        part = story_part(one, key)
        assert part is not None
        lines += [f"-- {key}", *words(part)]
    return lines


def chart_lines() -> list[str]:
    """Three looks with different figures, two rounds, and a tick for each minute."""
    one = made()
    assert one.report is not None
    chart = chart_of(one.history.samples, one.history.rounds, one.report.taken_at)
    return [
        *(
            f"{lane.name} {lane.top}+{lane.height} {lane.line} | {lane.area}"
            for lane in chart.lanes
        ),
        *(f"{mark.x} {mark.generation} {mark.moved} {mark.is_cold}" for mark in chart.rounds),
        " ".join(f"{tick.x}:{tick.label}" for tick in chart.ticks),
    ]


LINES = {"grid": grid_lines, "page": page_lines, "story": story_lines, "chart": chart_lines}


@pytest.mark.parametrize("name", LINES)
def test_every_value_of_a_look_has_its_place(name: str) -> None:
    """The places: the grid, the texts of the page, the history of a task, the chart."""
    assert LINES[name]() == (HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    for each, lines in LINES.items():
        (HERE / f"{each}.txt").write_text("\n".join([*lines(), ""]), encoding="utf-8")
