"""The board: the current holders of all standbys, and the cost of each possible move.

A *pair* (i, j) stands for the standbys on member j of tasks that member i owns. The objective is
lexicographic, but each move has a single integer cost. The terms of this cost are so far apart that no sum of
a lower term reaches the next term: docs/explanation/algorithms.md#the-ladder-of-costs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from faust_assigner.model import NOBODY, Ints
from faust_assigner.standbys.problem import StandbyProblem
from faust_assigner.standbys.shares import Shares

#: The cost of a standby above the pair's even share (the least important term).
UNEVEN = 1
#: The cost of a standby on a warm copy that was not a standby before.
CHANGED = 1 << 7
#: The cost of a standby on a member without local state, which must restore all of it.
FRESH = 1 << 14
#: The cost of a standby above the pair's cap, which limits the load after a death (shares.py). With racks
#: the cap has priority over balance, because racks of unequal size do not allow both.
OVERLOAD, OVERLOAD_WITH_RACKS = 1 << 18, 1 << 46
#: The cost factor of uneven standby loads; a move costs this factor times the difference of loads.
BALANCE = 1 << 26
#: The costs of a standby in the active's rack, and in a rack that already has the active or a standby.
HOME_RACK, SAME_RACK = 1 << 54, 1 << 57
#: The cost of forbidden moves: onto the owner, onto a member that already has a copy, onto a member
#: without a subscription, or away from a pinned seat.
NEVER = 1 << 61

#: The limit of a load difference in the balance term; the limit keeps the term below HOME_RACK.
_STEEPEST = 1 << 26
#: The limit of a pair's counted excess, so that the cost of a chain of moves stays below the next term.
_MOST = 15
#: For at most this many (task, member) cells the copies' costs are a table, otherwise a sorted list.
_TABLE_CELLS = 1 << 22

Array = npt.NDArray[np.int64]


class Board:
    """The standbys during their placement: T rows (tasks) of R' seats; a seat takes one standby.

    ``holder`` has the member in each seat. All other counts agree with ``holder`` after each call.
    """

    def __init__(self, problem: StandbyProblem, shares: Shares) -> None:
        self.problem = problem
        self.shares = shares
        #: The largest R' of any task; 0 if no member can hold a standby.
        self.columns = int(shares.need.max(initial=0))
        #: int64[T, R']: the member in each seat. A row's members are distinct, eligible and not the owner.
        #: Empty seats (``NOBODY``) follow the taken seats.
        self.holder = np.full((problem.tasks, self.columns), NOBODY, dtype=np.int64)
        #: bool[T, R']: the seats of wanted standbys (problem.py), which no move changes.
        self.pinned = np.zeros((problem.tasks, self.columns), dtype=bool)
        #: int64[T]: the number of taken seats of each row, at most the task's ``need``.
        self.filled = np.zeros(problem.tasks, dtype=np.int64)
        #: int64[M]: the number of seats of each member in ``holder``.
        self.load = np.zeros(problem.members, dtype=np.int64)
        #: int32[M, M]: the number of standbys of each pair (i, j); the sum over i is ``load``.
        self.pair = np.zeros((problem.members, problem.members), dtype=np.int32)
        #: The cost of a standby above its pair's cap. With racks it is above the balance term, else below.
        self.overload = OVERLOAD_WITH_RACKS if shares.has_racks else OVERLOAD
        # float64[M]: mean capacity / the member's capacity; loads are compared after this scaling.
        self._weight = problem.capacity.sum() / max(problem.members, 1) / problem.capacity
        #: int32[M, M]: the most standbys of each pair without extra cost; only :meth:`tighten` changes the
        #: limit, towards the cap.
        self.limit = shares.limit
        self.copies = _Copies(problem)

    def seat(self, task: Ints, member: Ints, *, pinned: bool = False) -> None:
        """Add a standby on ``member`` to each task; no task may occur twice in one call."""
        self.holder[task, self.filled[task]] = member
        self.pinned[task, self.filled[task]] = pinned
        self.filled[task] += 1
        self.load += np.bincount(member, minlength=len(self.load))
        self._count_pairs(task, member)

    def seat_rows(self, owner: int, task: Ints, members: Ints) -> None:
        """Add the standbys ``members`` int64[len(task), n] to tasks of one owner."""
        at = int(self.filled[task[0]])
        self.holder[task, at : at + members.shape[1]] = members
        self.filled[task] += members.shape[1]
        counts = np.bincount(members.ravel(), minlength=len(self.load))
        self.load += counts
        self.pair[owner] += counts.astype(np.int32)

    def vacate(self, task: Ints, column: Ints) -> None:
        """Empty these seats; the other standbys of a row move up to its first seats."""
        member = self.holder[task, column]
        self.holder[task, column] = NOBODY
        self.load -= np.bincount(member, minlength=len(self.load))
        np.subtract.at(self.pair, (self.problem.owner[task], member), 1)
        rows = np.unique(task)
        order = np.argsort(self.holder[rows] == NOBODY, axis=1, kind="stable")
        self.holder[rows] = np.take_along_axis(self.holder[rows], order, axis=1)
        self.pinned[rows] = np.take_along_axis(self.pinned[rows], order, axis=1)
        self.filled[rows] = (self.holder[rows] != NOBODY).sum(axis=1)

    def move(self, task: int, column: int, member: int) -> None:
        """Move this standby to a different member."""
        before = self.holder[task, column]
        owner = self.problem.owner[task]
        self.holder[task, column] = member
        self.load[before] -= 1
        self.load[member] += 1
        self.pair[owner, before] -= 1
        self.pair[owner, member] += 1

    def move_all(self, task: Ints, column: Ints, member: int) -> None:
        """Move these standbys, which belong to different tasks, to one member."""
        before, owner = self.holder[task, column], self.problem.owner[task]
        self.holder[task, column] = member
        np.subtract.at(self.load, before, 1)
        np.subtract.at(self.pair, (owner, before), 1)
        np.add.at(self.pair, (owner, np.full_like(owner, member)), 1)
        self.load[member] += len(task)

    def price(self, task: Array, column: Array | int, member: Array | int) -> Array:
        """Return the cost of a standby of ``task`` on ``member``; the arguments are broadcast by numpy.

        ``column`` is the seat that the standby leaves (-1: none); its current member is ignored. Balance is
        not included, because it depends on both ends of a move, see :meth:`balance`.
        """
        shares, owner = self.shares, self.problem.owner[task]
        allowed = shares.eligible[shares.kind[task], member] & (member != owner)
        cost = self.pair_cost(owner, member, 1) + self.copies.cost(task, member)
        home = shares.rack[owner] == shares.rack[member] if shares.has_racks else None
        crowded = home
        for other in range(self.columns):
            beside = np.where(column == other, NOBODY, self.holder[task, other])
            allowed = allowed & (beside != member)
            if crowded is not None:
                crowded = crowded | ((shares.rack[beside] == shares.rack[member]) & (beside >= 0))
        if home is not None and crowded is not None:
            cost = cost + np.where(home, HOME_RACK, 0) + np.where(crowded, SAME_RACK, 0)
        return np.where(allowed, cost, NEVER)

    def refund(self, task: Array, column: Array) -> Array:
        """Return the cost that is saved if the standbys leave these seats; ``-NEVER`` for a pinned seat."""
        shares, owner = self.shares, self.problem.owner[task]
        member = self.holder[task, column]
        cost = self.pair_cost(owner, member, 0) + self.copies.cost(task, member)
        if shares.has_racks:
            home = shares.rack[owner] == shares.rack[member]
            crowded = home
            for other in range(self.columns):
                beside = self.holder[task, other]
                near = shares.rack[beside] == shares.rack[member]
                crowded = crowded | (near & (beside >= 0) & (column != other))
            cost = cost + np.where(home, HOME_RACK, 0) + np.where(crowded, SAME_RACK, 0)
        return np.where(self.pinned[task, column], -NEVER, cost)

    def balance(
        self, step: int, more: Array | int = 0, member: Array | slice | int = slice(None)
    ) -> Array:
        """Return the balance cost of adding (``step`` 1) or removing (``step`` -1) a standby on each member.

        ``more`` is the number of standbys that the members have gained but that ``load`` does not include
        yet.
        """
        load = 2 * (self.load[member] + more) + step
        # Capacities may differ by a factor of 10^12, but the term must stay below the next term.
        scaled = np.clip(np.floor(load * self._weight[member]), -_STEEPEST, _STEEPEST)
        marginal: Array = scaled.astype(np.int64) * (BALANCE * step)
        return marginal

    def seats_of(self, members: Ints) -> tuple[Ints, Ints]:
        """Return the tasks and columns of all seats of these members, in task order."""
        mine = np.zeros(len(self.load) + 1, dtype=bool)
        mine[members] = True
        # NOBODY (-1) indexes the last entry, which is False.
        task, column = np.nonzero(mine[self.holder])
        return task, column

    def tighten(self) -> bool:
        """Lower the limits to the cap or the kept copies; return whether a pair is above its limit."""
        task, column = np.nonzero(self.holder != NOBODY)
        member = self.holder[task, column]
        kept = np.zeros_like(self.pair)
        is_kept = self.copies.cost(task, member) < FRESH
        np.add.at(kept, (self.problem.owner[task[is_kept]], member[is_kept]), 1)
        self.limit = np.minimum(self.limit, np.maximum(self.shares.cap, kept))
        return bool((self.pair > self.limit).any())

    def try_moves(self, moves: Sequence[tuple[int, int, int]]) -> bool:
        """Make the moves (task, column, member) if together they lower the cost; return whether they do."""
        undo, total = [], 0
        for task, column, member in moves:
            before = int(self.holder[task, column])
            at, seat, to = np.array([task]), np.array([column]), np.array([member])
            cost = int(self.price(at, seat, to)[0] - self.refund(at, seat)[0])
            cost += int(self.balance(-1)[before])
            self.move(task, column, member)
            # Adding a standby costs as much balance as its later removal gains.
            cost -= int(self.balance(-1)[member])
            undo.append((task, column, before))
            total += cost
            if cost >= NEVER // 2:
                break
        if total < 0:
            return True
        for task, column, member in reversed(undo):
            self.move(task, column, member)
        return False

    def _count_pairs(self, task: Ints, member: Ints) -> None:
        """Add new standbys to the counts of their pairs."""
        pair, count = np.unique(
            self.problem.owner[task] * len(self.load) + member, return_counts=True
        )
        self.pair.reshape(-1)[pair] += count.astype(np.int32)

    def pair_cost(self, owner: Array, member: Array | int, added: int) -> Array:
        """Return the pair's cost of its last standby (``added`` 0) or of one more standby (``added`` 1)."""
        count = self.pair[owner, member] + added
        over = np.clip(count - self.limit[owner, member], 0, _MOST).astype(np.int64)
        uneven = np.clip(count - self.shares.even[owner, member], 0, _MOST).astype(np.int64)
        cost: Array = over * self.overload + uneven * UNEVEN
        return cost


class _Copies:
    """The cost of a standby's restore: 0 on a previous standby, up to ``FRESH`` without local state."""

    def __init__(self, problem: StandbyProblem) -> None:
        self._members = problem.members
        key = problem.copy_task * problem.members + problem.copy_member
        cost = np.where(problem.copy_was_standby, 0, CHANGED)
        order = np.argsort(key, kind="stable")
        self._keys, self._costs = key[order], cost[order]
        self._table: Ints | None = None
        if problem.tasks * problem.members <= _TABLE_CELLS:
            self._table = np.full(problem.tasks * problem.members, FRESH, dtype=np.int32)
            self._table[self._keys] = self._costs

    def cost(self, task: Array, member: Array | int) -> Array:
        """Return ``FRESH``, ``CHANGED`` or 0, element by element."""
        key = task * self._members + member
        if self._table is not None:
            found: Array = self._table[key].astype(np.int64)
            return found
        if not len(self._keys):
            return np.full(key.shape, FRESH, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        return np.where(self._keys[at] == key, self._costs[at], FRESH)
