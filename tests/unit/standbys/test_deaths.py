"""The simulation of deaths: the promoted standbys, their order, and the survivors' loads."""

from __future__ import annotations

import numpy as np
import pytest

from faust_assigner.model import NOBODY
from faust_assigner.standbys import failover
from faust_assigner.standbys.failover import deaths, measure
from tests.support.standby_boards import place, problem

N = NOBODY


@pytest.mark.parametrize(
    ("in_a_row", "promoted"),
    [(9, [2, 3, 2, 2, 3, 2]), (3, [2, 3, 2, 2, 3, 2]), (2, [2, 2, 3, 2, 2, 3])],
)
def test_tasks_of_a_large_death_choose_in_blocks(
    monkeypatch: pytest.MonkeyPatch, in_a_row: int, promoted: list[int]
) -> None:
    """The block size depends on that death's tasks alone; tasks of a block see the same loads."""
    monkeypatch.setattr(failover, "_CHOICES_IN_A_ROW", in_a_row)
    alone = np.arange(4)
    found = deaths(
        np.array([0, 0, 0, 1, 1, 1]),
        np.tile([2, 3], (6, 1)),
        np.array([3.0, 3, 0, 0]),
        alone,
        alone,
    )
    assert found.promoted.tolist() == promoted


def test_each_death_has_its_peak_and_its_bound() -> None:
    """The loads are uneven, a task has no living holder, and a member has no tasks."""
    owner = np.array([0, 0, 0, 1, 2, 2])
    standbys = np.array([[1, 2], [1, N], [3, N], [N, N], [0, 3], [1, 0]])
    load = np.array([5.0, 2.0, 3.0, 0.0])
    alone = np.arange(4)
    found = deaths(owner, standbys, load, alone, alone)
    assert found.promoted.tolist() == [1, 1, 3, N, 3, 1]
    assert found.peak.tolist() == [4.0, 5.0, 5.0, 5.0]
    assert found.bound.tolist() == [6.0, 6.0, 6.0, 5.0]
    assert (found.worst, found.ideal, found.excess) == (5.0, 6.0, 0.0)
    rack = np.array([0, 0, 1, 1])
    found = deaths(owner, standbys, load, rack, rack)
    assert found.promoted.tolist() == [2, N, 3, N, 0, 1]
    assert (found.peak.tolist(), found.bound.tolist()) == ([4.0, 6.0], [7.0, 6.0])
    empty = deaths(owner[:0], standbys[:0], load[:0], alone[:0], alone[:0])
    assert (empty.promoted.size, empty.worst, empty.ideal, empty.excess) == (0, 0.0, 0.0, 0.0)


def test_a_greedy_promotion_above_the_bound_is_made_better_by_paths() -> None:
    """The two tasks with a choice go to the first holder in turn; the third has no choice."""
    owner = np.array([0, 0, 0, 0])
    standbys = np.array([[1, 2], [1, 2], [2, 3], [2, 3]])
    load = np.array([4.0, 3.0, 3.0, 1.0])
    alone = np.arange(4)
    greedy = deaths(owner, standbys, load, alone, alone, paths=0)
    better = deaths(owner, standbys, load, alone, alone)
    assert greedy.promoted.tolist() == [1, 2, 3, 3]
    assert better.peak[0] <= greedy.peak[0] <= better.bound[0] == 6.0


def test_all_figures_of_a_board_with_racks() -> None:
    """Copies are in the active's rack only if no other rack is left."""
    given = problem(
        [0, 0, 1, 1, 2, 3],
        4,
        replicas=2,
        rack=[0, 0, 1, 1],
        eligible=[[1, 1, 1, 0], [1, 1, 1, 1]],
        group=[0, 1, 0, 1, 1, 1],
        standbys=[(0, 2)],
        copies=[(4, 0)],
    )
    placed = place(given)
    figures = measure(given, placed)
    home = [
        [given.rack[m] == given.rack[o] for m in row]
        for o, row in zip(given.owner, placed, strict=True)
    ]
    assert (figures.same_rack, figures.same_rack_avoidable) == (sum(map(sum, home)), 0)
    assert figures.same_rack == 2
    held = {(0, 2), (4, 0)}
    kept = sum((task, int(m)) in held for task, row in enumerate(placed) for m in row)
    assert figures.fresh_copies == 12 - kept == 10
    counts = np.bincount(placed.ravel(), minlength=4)
    assert figures.spread == counts.max() - counts.min()
    assert figures.rack_death is not None
    assert figures.rack_death.bound.tolist() == [2 + 2, 2 + 1]
    assert figures.member_death.bound.tolist() == [2 + 1, 2 + 1, 2 + 1, 2 + 1]
