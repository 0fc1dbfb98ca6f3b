"""Rehearse each member's death, and exchange standbys until the survivors' loads are within the bound.

With several standbys per task, the effect of a death depends on which members hold the standbys of the
same task. Because of the limits for pairs of members (shares.py), some choice of
promotions keeps all loads within the bound. But the planner promotes task by task, each task on the
least loaded holder, and this order can give a higher load. So this module repeats the promotions in
that order. If a survivor's load is above the bound, two tasks of the dead member exchange one standby
each. Such a trade changes no load, no rack and no pair count. Fresh copies are traded first, because
their trade costs no additional restore.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from faust_assigner.model import NOBODY, Ints
from faust_assigner.standbys.board import FRESH, Board

#: The maximum number of promotions that are repeated in the search for trades, per member and in total.
_STEPS_A_MEMBER, _STEPS = 30_000, 300_000


def rehearse(board: Board) -> None:
    """Trade standbys until each death is within its bound, or no trade within the limit of steps helps."""
    if board.columns < 2:
        return
    peak, bound = _measure_all_deaths(board)
    steps = _STEPS
    short = (
        2 * np.bincount(board.problem.owner[board.filled > 0], minlength=len(peak))
        < _STEPS_A_MEMBER
    )
    for dead in np.flatnonzero((peak > bound) & short).tolist():
        drill = _Drill(board, dead, float(bound[dead]))
        steps -= drill.run(min(steps, _STEPS_A_MEMBER))
        if steps <= 0:
            return


def _measure_all_deaths(board: Board) -> tuple[Ints, Ints]:
    """Return the heaviest survivor's load after each member's death, and the bound of this load."""
    problem, shares = board.problem, board.shares
    after = np.repeat(problem.load[None, :], problem.members, axis=0)
    tasks = np.flatnonzero(board.filled > 0)
    tasks = tasks[np.argsort(problem.owner[tasks], kind="stable")]
    owner = problem.owner[tasks]
    turn = np.arange(len(tasks)) - np.searchsorted(owner, owner)
    holders = np.sort(np.where(board.holder == NOBODY, problem.members, board.holder), axis=1)
    after = np.column_stack([after, np.full(problem.members, np.inf)])
    by_turn = np.argsort(turn, kind="stable")
    for at in np.split(by_turn, np.flatnonzero(np.diff(turn[by_turn])) + 1):
        choice = holders[tasks[at]]
        taker = choice[np.arange(len(at)), np.argmin(after[owner[at, None], choice], axis=1)]
        after[owner[at], taker] += 1
    after = after[:, :-1]
    np.fill_diagonal(after, -np.inf)
    count = np.bincount(owner, minlength=problem.members)
    # If racks have an effect, there are at least two, so each member has peers outside its rack.
    peers = np.maximum(problem.members - np.bincount(shares.rack)[shares.rack], 1)
    return after.max(axis=1), problem.load.max() + np.ceil(count / peers)


class _Drill:
    """The simulated death of one member, repeated with different standbys."""

    def __init__(self, board: Board, dead: int, bound: float) -> None:
        self.board, self.dead, self.bound = board, dead, bound
        mine = (board.problem.owner == dead) & (board.filled > 0)
        self.task = np.flatnonzero(mine)
        self.holder = [[h for h in row if h != NOBODY] for row in board.holder[self.task].tolist()]
        self.kind = board.shares.kind[self.task].tolist()
        self.rack = board.shares.rack.tolist()
        everyone = np.arange(board.problem.members)
        cost = board.copies.cost(self.task[:, None], everyone[None, :]) if len(self.task) else None
        self.is_fresh = (cost == FRESH).tolist() if cost is not None else []
        self.pinned = board.pinned[self.task].tolist()
        self.loose = [
            [fresh[h] and not pin for h, pin in zip(row, pins, strict=False)]
            for row, fresh, pins in zip(self.holder, self.is_fresh, self.pinned, strict=True)
        ]
        self.load = board.problem.load.tolist()

    def run(self, steps: int) -> int:
        """Trade as long as trades lower the heaviest load; return the number of repeated promotions."""
        used = self._improve(self.bound, steps)
        # First only fresh copies are traded. If the bound is still missed by more than 1, all copies
        # that are not pinned may be traded.
        if used < steps:
            self.loose = [[not pin for pin in row] for row in self.pinned]
            used += self._improve(self.bound + 1, steps - used)
        for task, row in zip(self.task.tolist(), self.holder, strict=True):
            self.board.holder[task, : len(row)] = row
        return used

    def _improve(self, bound: float, steps: int) -> int:
        """Repeatedly make the first trade that lowers the score, until the bound is met or no trade helps."""
        used = len(self.task)
        score, takers = self._play()
        improved = True
        while improved and score[0] > bound and used < steps:
            improved = False
            for trade in self._trades(takers, score[0]):
                self._swap(*trade)
                used += len(self.task)
                now, now_takers = self._play()
                if now < score:
                    score, takers, improved = now, now_takers, True
                    break
                self._swap(*trade)
                if used >= steps:
                    break
        return used

    def _play(self) -> tuple[tuple[float, float], list[int]]:
        """Promote each task on its least loaded holder; return ((heaviest, sum of squares), new owners)."""
        load = self.load.copy()
        takers = []
        for row in self.holder:
            taker = min(row, key=lambda h: (load[h], h))
            load[taker] += 1
            takers.append(taker)
        touched = {h for row in self.holder for h in row}
        return (max(load[h] for h in touched), sum(load[h] ** 2 for h in touched)), takers

    def _trades(self, takers: list[int], peak: float) -> Iterator[tuple[int, int, int, int]]:
        """Yield trades (row, seat, other row, other seat) for the tasks of the fullest survivors.

        Trades that give such a task a holder with a low load come first, then all other trades.
        """
        load = self.load.copy()
        for taker in takers:
            load[taker] += 1
        full = {h for h in takers if load[h] == peak}
        roomy = [[load[h] <= peak - 2 for h in row] for row in self.holder]
        rows = [row for row in reversed(range(len(takers))) if takers[row] in full]
        for room, row, other in product((True, False), rows, range(len(takers))):
            if other != row and self.kind[other] == self.kind[row]:
                places = product(range(len(self.holder[row])), range(len(self.holder[other])))
                for seat, place in places:
                    if roomy[other][place] is room and self._may_trade(row, seat, other, place):
                        yield row, seat, other, place

    def _may_trade(self, row: int, seat: int, other: int, place: int) -> bool:
        one, two = self.holder[row][seat], self.holder[other][place]
        return (
            one != two
            and self.loose[row][seat]
            and self.loose[other][place]
            and two not in self.holder[row]
            and one not in self.holder[other]
            and (not self.board.shares.has_racks or self.rack[one] == self.rack[two])
        )

    def _swap(self, row: int, seat: int, other: int, place: int) -> None:
        one, two = self.holder[row], self.holder[other]
        one[seat], two[place] = two[place], one[seat]
