"""The grid: the place, shape and shade of each task, and the layout of a large group."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from faust_assigner.page.grid import PACKED_FROM, Grid, Row, grid_of
from faust_assigner.page.tasks import families_of
from faust_assigner.status.build import build
from faust_assigner.status.report import Report
from tests.support.page import busy, fleet
from tests.support.status import LOG, group


def grid(report: Report) -> Grid:
    """The grid of this report."""
    return grid_of(report, families_of(report))


def row(found: Grid, name: str) -> Row:
    """The row of a member."""
    (one,) = [one for one in found.rows if one.name == name]
    return one


def test_topics_that_travel_together_are_one_family() -> None:
    """A source and its table form six tasks, not twelve; Faust's leader topic forms no family."""
    made = group(3, topics={"orders": 6, LOG: 6, "shop-__assignor-__leader": 1})
    (family,) = families_of(build(made.evidence()))
    assert family.topics == ("orders", LOG)
    assert family.label == "orders, table totals"
    assert [task.key for task in family.tasks] == [f"orders/{n}" for n in range(6)]


def test_a_topic_with_other_owners_is_another_family() -> None:
    """The family has a column for each partition number."""
    report = build(fleet(3, 4).evidence())
    assert [f.topics for f in families_of(report)] == [("customers", "orders", LOG), ("rates",)]


def test_offsets_of_a_topic_that_nobody_reads_any_more_are_no_tasks() -> None:
    """The group keeps such offsets for days; as tasks they would have no owner."""
    evidence = group(2).evidence()
    evidence = replace(evidence, committed={**evidence.committed, ("old-orders", 0): 5})
    (family,) = families_of(build(evidence))
    assert "old-orders" not in family.topics


def test_a_mark_says_role_and_lag() -> None:
    """Active, standby and warm-up have different shapes; the shade shows the lag."""
    made = fleet(3)
    found = grid(build(busy(made, silent=False)))
    shapes = {mark.shape for one in found.rows for mark in one.marks}
    assert shapes == {"a", "s", "w"}
    assert {mark.shade for one in found.rows for mark in one.marks} >= {"0", "1", "4"}
    (warm, *_) = [mark for mark in row(found, "shop-2").marks if mark.shape == "w"]
    assert "warm-up" in warm.label


def test_a_partition_that_is_not_processed_has_a_shape_of_its_own() -> None:
    """The shape shows the standstill even if the lag is zero."""
    found = grid(build(busy(fleet(3))))
    (mark,) = [mark for one in found.rows for mark in one.marks if mark.shape == "x"]
    assert "not processed for 1 min 34 s: unreadable" in mark.label


def test_a_copy_of_a_silent_worker_has_the_lag_it_has_at_most() -> None:
    """The worker did not answer, so the label has an upper bound."""
    report = build(group(3, rounds=3).evidence(silent=["m1"]))
    (silent,) = [m.name for m in report.members if m.answer == "silent"]
    marks = [mark for mark in row(grid(report), silent).marks if mark.shape == "s"]
    assert marks
    assert all("at most" in mark.label or "unknown" in mark.label for mark in marks)


def test_a_task_without_an_owner_has_a_row_at_the_top() -> None:
    """No member processes the task, so it must be seen first."""
    report = build(group(2).evidence())
    lost = tuple(
        replace(one, owner=None) if one.partition == 3 else one for one in report.partitions
    )
    found = grid(replace(report, partitions=lost))
    assert (found.rows[0].name, found.rows[0].level) == ("no owner", "bad")
    assert [mark.key for mark in found.rows[0].marks] == ["orders/3"]


def test_a_member_that_is_called_no_owner_is_not_taken_for_it() -> None:
    """Members choose their instance ids freely."""
    made = group(1)
    made.offers["m0"] = {"instance_id": "no owner"}
    found = grid(build(made.round().evidence()))
    assert [(one.name, one.member is not None) for one in found.rows] == [("no owner", True)]


def test_numbers_in_names_are_ordered_as_numbers() -> None:
    """The order is shop-2, then shop-10."""
    found = grid(build(fleet(12, 1).evidence()))
    assert [one.name for one in found.rows] == [f"shop-{n}" for n in range(12)]


def test_a_grid_of_moderate_width_has_a_column_for_each_task() -> None:
    """All marks of a task are in one column."""
    found = grid(build(fleet(30).evidence()))
    assert not found.is_packed
    assert found.width <= PACKED_FROM
    places = {(mark.key, mark.x) for one in found.rows for mark in one.marks}
    assert len(places) == len({key for key, _ in places}) == len({x for _, x in places})


def test_a_family_that_is_narrower_than_its_name_has_a_shortened_name() -> None:
    """One task beside a hundred tasks has 32 pixels, the room for four characters."""
    found = grid(build(group(3, topics={"orders": 100, "settings": 1}).evidence()))
    names = [text for head in found.heads for _, text in head.names[:1]]
    assert names == ["orders", "set…"]


@pytest.mark.parametrize("members", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_a_grid_that_would_be_too_wide_lists_what_each_member_has(members: int) -> None:
    """Marks have numbers, owned tasks are left of all copies, and no marks are lost or overlap."""
    report = build(fleet(members).evidence())
    found = grid(report)
    assert found.is_packed
    assert found.width < 1_000
    begin = found.heads[1].x
    for one in found.rows:
        assert all((mark.x < begin) == (mark.shape in "ax") for mark in one.marks)
        xs = sorted(mark.x for mark in one.marks)
        assert all(b - a >= found.cell + 8 for a, b in itertools.pairwise(xs))
        assert all(mark.text == mark.key.rpartition("/")[2] for mark in one.marks)
    owned = [mark.key for one in found.rows for mark in one.marks if mark.shape in "ax"]
    assert len(owned) == len(set(owned)) == found.tasks
