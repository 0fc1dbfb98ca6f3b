"""StandbyAssignor: place the standbys, from actives, previous copies and racks.

The objective is, in order:

1. R' distinct members per task;
2. as many racks as possible per task;
3. standby loads that differ by at most 1;
4. the standbys of each member's tasks spread over all its peers, so that a death overloads no member;
5. the fewest copies to restore.

With racks, 4 has priority over 3, because racks of unequal size do not allow both. The terms are derived in
docs/explanation/algorithms.md#standbys, and the numbers in :mod:`faust_assigner.standbys.shares`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from faust_assigner.model import NOBODY, Ints, Layout, Previous
from faust_assigner.standbys.board import Board
from faust_assigner.standbys.derive import derive_problem, stateful_tasks
from faust_assigner.standbys.failover import in_order_of_promotion, standby_spread
from faust_assigner.standbys.fill import deal_rows, fill_gaps, keep_copies, usable
from faust_assigner.standbys.problem import StandbyProblem
from faust_assigner.standbys.refill import refill
from faust_assigner.standbys.rehearsal import rehearse
from faust_assigner.standbys.repair import repair
from faust_assigner.standbys.shares import fair_shares, settled_racks

__all__ = ["StandbyAssignor", "StandbyProblem", "place_standbys"]


def place_standbys(
    layout: Layout, previous: Previous, owner: Ints, target: Ints, replicas: int
) -> Ints:
    """Return int64[T, R]: the members with each task's standbys, padded with ``NOBODY``."""
    placed = np.full((layout.tasks, replicas), NOBODY, dtype=np.int64)
    tasks = stateful_tasks(layout)
    if replicas and tasks.size:
        placed[tasks] = _place(derive_problem(layout, previous, owner, target, replicas))
    return placed


def _place(problem: StandbyProblem) -> Ints:
    """Place the standbys; drop half or all wanted standbys if they make standby loads uneven."""
    standbys = StandbyAssignor().place(problem)
    _, has_racks = settled_racks(problem.rack)
    wishes = problem.wanted_task.size
    for fewer in (wishes // 2, 0):
        if not problem.wanted_task.size or has_racks or standby_spread(problem, standbys) <= 1:
            break
        problem = replace(
            problem,
            wanted_task=problem.wanted_task[:fewer],
            wanted_member=problem.wanted_member[:fewer],
        )
        standbys = StandbyAssignor().place(problem)
    return standbys


class StandbyAssignor:
    """Places the standbys of all stateful tasks.

    >>> import numpy as np
    >>> none = np.zeros(0, dtype=np.int64)
    >>> problem = StandbyProblem(
    ...     owner=np.array([0, 0, 1, 1, 2, 2]), group=np.zeros(6, dtype=np.int64),
    ...     eligible=np.ones((1, 3), dtype=bool), copy_task=none, copy_member=none,
    ...     copy_was_standby=none.astype(bool), wanted_task=none, wanted_member=none,
    ...     rack=np.full(3, -1), capacity=np.ones(3), load=np.full(3, 2.0), replicas=1)
    >>> StandbyAssignor().place(problem).ravel().tolist()
    [1, 2, 2, 0, 0, 1]
    """

    def place(self, problem: StandbyProblem) -> Ints:
        """Return int64[T, R]: the members of each task's R' standbys, then ``NOBODY``.

        A row's members are distinct, eligible and not the owner. The first member is promoted if the owner
        dies. If the result is the input of the next placement, the next result is the same. Cost: O(T +
        M^2) in numpy after small changes, plus a few milliseconds per 64 moved standbys.
        """
        problem = _drop_invalid_copies(problem)
        shares = fair_shares(problem)
        board = Board(problem, shares)
        if board.columns:
            keep_copies(board)
            refill(board)
            deal_rows(board)
            fill_gaps(board)
            repair(board)
            if board.tighten():
                repair(board)
            rehearse(board)
        placed = in_order_of_promotion(problem.owner, board.holder, problem.load)
        spare = max(problem.replicas, 0) - board.columns
        return np.pad(placed, ((0, 0), (0, spare)), constant_values=NOBODY)


def _drop_invalid_copies(problem: StandbyProblem) -> StandbyProblem:
    """Drop copies that cannot be standbys: of an unowned task, on the owner, or on a non-subscriber."""
    copies = usable(problem, problem.copy_task, problem.copy_member)
    wanted = usable(problem, problem.wanted_task, problem.wanted_member)
    capacity = np.where(problem.capacity > 0, problem.capacity, 1.0)
    return replace(
        problem,
        copy_task=problem.copy_task[copies],
        copy_member=problem.copy_member[copies],
        copy_was_standby=problem.copy_was_standby[copies],
        wanted_task=problem.wanted_task[wanted],
        wanted_member=problem.wanted_member[wanted],
        capacity=capacity,
    )
