"""The values behind the templates: every tile, line and mark of looks whose figures all differ."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from faust_assigner.page.grid import Mark, grid_of
from faust_assigner.page.head import Line, decision_of, lines_of, tiles_of
from faust_assigner.page.history import History
from faust_assigner.page.look import Look, Problem, no_members
from faust_assigner.page.render import (
    _draw_row,
    _grid_values,
    _round_values,
    _template_values,
    title_of,
)
from faust_assigner.page.tasks import Family, Task
from faust_assigner.status.build import build
from faust_assigner.status.report import Decision, Report, WaitReport
from tests.support.status import AT, group
from tests.unit.page.test_history import noted, seen
from tests.unit.page.test_layout import FAMILIES, RATES
from tests.unit.page.test_layout import REPORT as MADE

DECISION = Decision(
    decision_id="x", generation=1_234, leader="w-2", at=int(AT) - 75, trigger="join", completes="",
    joined=("http://n:1",), left=(), members=3, tasks=5_000, moved=2_000, cold=1_500,
    off_target=1_700, warming=4, is_planned=True,
)  # fmt: skip
REPORT = replace(
    MADE,
    decision=DECISION,
    totals=replace(
        MADE.totals,
        members=6_000,
        answered=4_000,
        ready=4_000,
        standing_partitions=3,
        standby_partitions=7_000,
        warmup_partitions=8_000,
        standby_lag=9_000,
    ),
)


def tiles(report: Report) -> dict[str, tuple[Any, ...]]:
    """Name of a tile -> (value, note, of, level)."""
    return {one.name: astuple(one)[1:] for one in tiles_of(report)}


def answering(*answers: str) -> Report:
    """The report with these answers of its three members."""
    members = tuple(
        replace(one, answer=answer) for one, answer in zip(REPORT.members, answers, strict=True)
    )
    return replace(REPORT, members=members)


def test_every_tile_has_its_figure_its_note_and_its_colour() -> None:
    """Thousands are separated; members that were not asked are not silent."""
    lag = sum(one.lag or 0 for one in REPORT.partitions)
    assert lag
    assert tiles(answering("answered", "not asked", "answered")) == {
        "Members ready": ("4,000", "all answered", "of 6,000", "good"),
        "Lag": (f"{lag:,}", "records not yet processed", "", "good"),
        "Copies lack": ("9,000", "records; 7,000 standbys, 8,000 warm-ups", "", "good"),
        "Not processed": ("3", "partitions stand still", "", "bad"),
        "Off target": ("1,700", "tasks wait for a warm-up", "of 5,000", "changing"),
    }


def test_tiles_of_a_group_without_trouble_and_of_an_unknown_group() -> None:
    """A lag of zero is known; without copies there is no lag of copies."""
    totals = replace(
        REPORT.totals,
        ready=3_999,
        standing_partitions=0,
        standby_partitions=0,
        warmup_partitions=0,
        standby_lag=0,
    )
    calm = replace(
        REPORT,
        totals=totals,
        decision=replace(DECISION, off_target=0, tasks=0),
        partitions=tuple(replace(one, lag=0) for one in REPORT.partitions),
    )
    assert tiles(calm) == {
        "Members ready": ("3,999", "all answered", "of 6,000", "bad"),
        "Lag": ("0", "records not yet processed", "", "good"),
        "Copies lack": ("-", "no table has a copy", "", "good"),
        "Not processed": ("0", "no partition stands still", "", "good"),
        "Off target": ("0", "every task is on its target", "of 0", "good"),
    }
    dark = replace(
        answering("unreachable", "answered", "another worker"),
        decision=None,
        totals=replace(totals, standing_partitions=1, warmup_partitions=2),
        partitions=tuple(replace(one, lag=None) for one in REPORT.partitions),
    )
    assert tiles(dark) == {
        "Members ready": ("3,999", "2 do not answer", "of 6,000", "bad"),
        "Lag": ("-", "records not yet processed", "", "unknown"),
        "Copies lack": ("0", "records; 0 standbys, 2 warm-ups", "", "good"),
        "Not processed": ("1", "partition stands still", "", "bad"),
    }
    one = tiles(replace(dark, members=dark.members[:2]))["Members ready"]
    assert one[1] == "1 does not answer"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {},
            "Last round: 1234, 1 min 15 s ago, decided by w-2, because members joined (nine): "
            "2,000 of 5,000 tasks moved, 1,500 without their state.",
        ),
        (
            {"at": None, "leader": None, "is_planned": False, "moved": 0},
            "Last round: 1234, because members joined (nine): the planner failed, and partitions were "
            "assigned without regard to their former owners.",
        ),
        (
            {"moved": 0, "cold": 0, "joined": ()},
            "Last round: 1234, 1 min 15 s ago, decided by w-2, because members joined: "
            "0 of 5,000 tasks moved, 0 without their state.",
        ),
    ],
)
def test_the_last_round_is_one_sentence(more: dict[str, Any], text: str) -> None:
    """The URL of a departed member has the name of an earlier look."""
    report = replace(REPORT, taken_at=AT, decision=replace(DECISION, **more))
    assert decision_of(report, {"http://n:1": "nine"}) == text


def test_a_missing_round_is_named_only_for_a_group_with_members() -> None:
    """An empty group has a problem of its own."""
    none = replace(REPORT, decision=None)
    assert decision_of(none, {}) == "No member reported the last round."
    assert decision_of(replace(none, members=()), {}) == ""
    problem = no_members(replace(none, members=(), is_settled=False))
    assert problem is not None
    assert (problem.title, problem.level) == ("The group has no members", "changing")
    assert no_members(None) is no_members(none) is None


def test_the_lines_of_trouble_are_the_worst_first_in_their_order() -> None:
    """A member that waits for its answer has one line; members that stop or were not asked have none."""
    a, b, c = REPORT.members
    members = (
        replace(a, name="a", answer="silent", detail="no answer"),
        replace(b, name="b", answer="unreadable", detail=""),
        replace(c, name="c", answer="not asked"),
        replace(c, name="d", answer="answered", is_leaving=True),
        replace(c, name="e", answer="answered", not_live=("loop stands", "later")),
    )
    waits = (
        WaitReport(kind="rebalance", member=None, text="round", seconds=125.0),
        WaitReport(kind="answer", member="a", text="gone"),
        WaitReport(kind="standing", member="e", text="stuck", seconds=7.0),
        WaitReport(kind="step", member="d", text="flush", seconds=0.0),
    )
    report = replace(REPORT, members=members, waits=waits, problems=("half", "dark"))
    assert [astuple(one) for one in lines_of(report)] == [
        ("bad", "unreadable.", "b", ""),
        ("bad", "not live: loop stands.", "e", ""),
        ("bad", "gone", "a", ""),
        ("bad", "stuck", "e", "for 7 s"),
        ("changing", "round", None, "for 2 min 5 s"),
        ("changing", "flush", "d", ""),
        ("unknown", "half", None, ""),
        ("unknown", "dark", None, ""),
    ]
    assert isinstance(lines_of(report)[0], Line)


def mark(**more: Any) -> Mark:
    """A mark."""
    base = {
        "key": "a b&c/7", "x": 40, "shape": "s", "shade": "3", "label": 'l<"', "family": 0,
        "number": 7,
    }  # fmt: skip
    return Mark(**base | more)


@pytest.mark.parametrize(("is_compact", "middle"), [(True, 16), (False, 26)])
def test_a_mark_is_a_link_with_a_shape_a_label_and_its_number(
    *, is_compact: bool, middle: int
) -> None:
    """Names are escaped; a partition that is not processed has one shape for all lags."""
    grid = replace(grid_of(MADE, FAMILIES), cell=20, is_compact=is_compact)
    row = replace(
        grid.rows[0],
        names=((5, "<n>"), (90, "m")),
        marks=(
            mark(text="0"),
            mark(x=66, shape="x", shade="u", key="k/1", label="z"),
            mark(x=9, shape="a", shade="0", key="k/2", label="y"),
        ),
    )
    assert str(_draw_row(row, grid)) == (
        f'<text class="of" x="5" y="{middle}">&lt;n&gt;</text>'
        f'<text class="of" x="90" y="{middle}">m</text>'
        '<a href="story?t=a%20b%26c/7" aria-label="l&lt;&#34;"><use href="#s3" x="40"/>'
        f'<text x="61" y="{middle}">0</text></a>'
        '<a href="story?t=k/1" aria-label="z"><use href="#x" x="66"/></a>'
        '<a href="story?t=k/2" aria-label="y"><use href="#a0" x="9"/></a>'
    )


def test_the_grid_has_heights_by_its_cells_and_all_topics_of_a_family() -> None:
    """A compact row is one line; a family's label may name fewer topics."""
    found = _grid_values(MADE, FAMILIES)
    assert (found["c"], found["h"]) == (26, 44)
    assert found["topics"] == ["orders, shop-totals-changelog", "rates"]
    wide = Family(
        topics=("t",),
        label="t",
        tasks=tuple(Task(key=f"t/{n}", number=n, owner=None, partitions=()) for n in range(41)),
    )
    members = tuple(replace(MADE.members[0], name=f"m{n}") for n in range(16))
    many = _grid_values(replace(MADE, members=members), (wide,))
    assert (many["c"], many["h"]) == (20, 26)
    few = _grid_values(replace(MADE, members=members), (RATES,))
    assert (few["c"], few["h"]) == (26, 32)


def look(**more: Any) -> Look:
    """A look without a problem."""
    base: dict[str, Any] = {
        "group": "shop",
        "report": REPORT,
        "families": FAMILIES,
        "history": History(),
        "problem": None,
        "every_s": 5.0,
    }
    return Look(**base | more)


def test_rounds_are_listed_from_the_newest_with_the_time_that_they_took() -> None:
    """A round of zero seconds took no time; an unknown time is a dash."""
    history = noted(build(group(1).evidence()))
    for one in (seen(8, AT - 90, seconds=None), seen(9, AT - 30, seconds=0.0)):
        history.note_round(one)
    found: Any = _round_values(look(history=history), replace(REPORT, taken_at=AT))
    assert [(one["generation"], one["when"], one["took"]) for one in found["rounds"][:2]] == [
        (9, "30 s ago", "0 s"),
        (8, "1 min 30 s ago", "-"),
    ]
    assert [found[name] for name in ("width", "height", "left", "right", "most_rounds")] == [
        960,
        268,
        104,
        14,
        12,
    ]


def test_a_problem_goes_before_an_empty_group_and_an_unknown_state_has_its_own_name() -> None:
    """The time of the look is exact to a tenth of a second."""
    problem = Problem(title="t", text="x", level="changing")
    empty = replace(REPORT, members=(), taken_at=86_399.96, state="Dead")
    found = _template_values(look(report=empty, problem=problem, every_s=None))
    names = ("problem", "every", "state", "looked", "taken_at", "group")
    assert [found[name] for name in names] == [
        problem,
        None,
        "Dead",
        "as of 23:59:59 UTC",
        "86400.0",
        "shop",
    ]
    assert _template_values(look(problem=problem))["every"] == "5 s"
    none = _template_values(look(report=None, every_s=90.0))
    assert [none.get(name) for name in (*names, "grid", "lines")] == [
        None, "1 min 30 s", None, "looking", "", "shop", None, [],
    ]  # fmt: skip


def test_the_tab_has_a_cross_for_bad_lines_and_bad_problems_only() -> None:
    """A page without a report has its group's name."""
    calm = replace(REPORT, waits=(WaitReport(kind="step", member=None, text="x"),), problems=("y",))
    bad, mild = (Problem(title="t", text="x", level=level) for level in ("bad", "changing"))
    stuck = replace(calm, waits=(WaitReport(kind="standing", member=None, text="x"),))
    looks = (
        look(report=calm),
        look(report=calm, problem=mild),
        look(report=calm, problem=bad),
        look(report=stuck),
        look(report=None, problem=bad),
    )
    assert [title_of(one)[0] for one in looks] == ["s", "s", "✕", "✕", "s"]
