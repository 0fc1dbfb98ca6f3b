"""Who sits where, and what it would cost to sit elsewhere.

The objective is lexicographic; here it is one whole number per move, its terms far enough apart
that no sum of a lower term reaches the next: docs/explanation/algorithms.md#the-ladder-of-costs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from faust_assigner.model import NOBODY, Ints
from faust_assigner.standbys.problem import StandbyProblem
from faust_assigner.standbys.shares import Shares

#: A pair above its even share: the fair spread, where it costs nothing else.
UNEVEN = 1
#: A warm copy that was no standby before, taken in place of one that was.
CHANGED = 1 << 7
#: A copy that must be restored from nothing.
FRESH = 1 << 14
#: A pair above the failover cap. With racks it comes before balance: unequal racks cannot have both.
OVERLOAD, OVERLOAD_WITH_RACKS = 1 << 18, 1 << 46
#: A standby load one further from the mean (times the difference of loads).
BALANCE = 1 << 26
#: Two copies of a task in one rack, one of them the active; two copies of a task in one rack.
HOME_RACK, SAME_RACK = 1 << 54, 1 << 57
#: Not allowed at all: the owner, a second copy on one member, no subscriber, a pinned seat.
NEVER = 1 << 61

#: A balance term counts up to this many steps, which keeps it below HOME_RACK.
_STEEPEST = 1 << 26
#: A pair's excess counts up to this, so that a chain of moves stays below the next term.
_MOST = 15
#: Up to this many (task, member) cells the warm copies are a table, beyond it a sorted list.
_TABLE_CELLS = 1 << 22

Array = npt.NDArray[np.int64]


class Board:
    """The standbys as they are being placed: T rows of R' seats, a seat being (task, column).

    ``holder`` says who sits where; the counts beside it agree with it between any two calls.
    """

    def __init__(self, problem: StandbyProblem, shares: Shares) -> None:
        self.problem = problem
        self.shares = shares
        #: The largest R' of any task; 0 when nobody can stand by for anything.
        self.columns = int(shares.need.max(initial=0))
        #: int64[T, R']: the members of a row are distinct, eligible and never the owner; empty seats
        #: (``NOBODY``) stand behind the taken ones.
        self.holder = np.full((problem.tasks, self.columns), NOBODY, dtype=np.int64)
        #: bool[T, R']: a wanted standby, which no move takes away; only on taken seats.
        self.pinned = np.zeros((problem.tasks, self.columns), dtype=bool)
        #: int64[T]: taken seats of each row, never more than the task's ``need``.
        self.filled = np.zeros(problem.tasks, dtype=np.int64)
        #: int64[M]: how often each member stands in ``holder``.
        self.load = np.zeros(problem.members, dtype=np.int64)
        #: int32[M, M]: of owner i's tasks, how many standbys member j holds; sums to ``load`` over i.
        self.pair = np.zeros((problem.members, problem.members), dtype=np.int32)
        #: What a pair above its cap costs: before balance with racks, after it without.
        self.overload = OVERLOAD_WITH_RACKS if shares.has_racks else OVERLOAD
        # float64[M], mean capacity over the member's own: loads are compared as loads * weight.
        self._weight = problem.capacity.sum() / max(problem.members, 1) / problem.capacity
        #: int32[M, M]: the most standbys a pair may hold for nothing; :meth:`tighten` lowers it to the cap,
        #: nothing raises it.
        self.limit = shares.limit
        self.copies = _Copies(problem)

    def seat(self, task: Ints, member: Ints, *, pinned: bool = False) -> None:
        """Give each task one more standby; no task twice in one call."""
        self.holder[task, self.filled[task]] = member
        self.pinned[task, self.filled[task]] = pinned
        self.filled[task] += 1
        self.load += np.bincount(member, minlength=len(self.load))
        self._count_pairs(task, member)

    def seat_rows(self, owner: int, task: Ints, members: Ints) -> None:
        """Give each task of one owner all its standbys: ``members`` is int64[len(task), n]."""
        at = int(self.filled[task[0]])
        self.holder[task, at : at + members.shape[1]] = members
        self.filled[task] += members.shape[1]
        counts = np.bincount(members.ravel(), minlength=len(self.load))
        self.load += counts
        self.pair[owner] += counts.astype(np.int32)

    def vacate(self, task: Ints, column: Ints) -> None:
        """Empty these seats; what is left of a row closes up."""
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
        """Let another member hold this standby."""
        before = self.holder[task, column]
        owner = self.problem.owner[task]
        self.holder[task, column] = member
        self.load[before] -= 1
        self.load[member] += 1
        self.pair[owner, before] -= 1
        self.pair[owner, member] += 1

    def move_all(self, task: Ints, column: Ints, member: int) -> None:
        """Let one member hold these standbys, which are of different tasks."""
        before, owner = self.holder[task, column], self.problem.owner[task]
        self.holder[task, column] = member
        np.subtract.at(self.load, before, 1)
        np.subtract.at(self.pair, (owner, before), 1)
        np.add.at(self.pair, (owner, np.full_like(owner, member)), 1)
        self.load[member] += len(task)

    def price(self, task: Array, column: Array | int, member: Array | int) -> Array:
        """Cost of seating tasks on members, element by element with numpy's broadcasting.

        ``column`` is the seat that is being left (-1: none), so that it does not count against
        the task. Balance is left out: it depends on both ends of a move, see :meth:`balance`.
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
        """What is won by leaving these seats; ``-NEVER`` for a pinned one."""
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
        """Balance's part in giving members one more (step 1) or one less (step -1).

        ``more`` is how many they have got already in the meantime.
        """
        load = 2 * (self.load[member] + more) + step
        # Capacities may differ by 10^12: the term must not reach the next one.
        scaled = np.clip(np.floor(load * self._weight[member]), -_STEEPEST, _STEEPEST)
        marginal: Array = scaled.astype(np.int64) * (BALANCE * step)
        return marginal

    def seats_of(self, members: Ints) -> tuple[Ints, Ints]:
        """Tasks and columns of all seats these members hold, in task order."""
        mine = np.zeros(len(self.load) + 1, dtype=bool)
        mine[members] = True
        # The last row of the table answers for NOBODY.
        task, column = np.nonzero(mine[self.holder])
        return task, column

    def tighten(self) -> bool:
        """Leave room above the cap only to copies that were kept; True if a pair is over its limit."""
        task, column = np.nonzero(self.holder != NOBODY)
        member = self.holder[task, column]
        kept = np.zeros_like(self.pair)
        is_kept = self.copies.cost(task, member) < FRESH
        np.add.at(kept, (self.problem.owner[task[is_kept]], member[is_kept]), 1)
        self.limit = np.minimum(self.limit, np.maximum(self.shares.cap, kept))
        return bool((self.pair > self.limit).any())

    def try_moves(self, moves: Sequence[tuple[int, int, int]]) -> bool:
        """Make these moves (task, column, member) if together they lower the cost; else none."""
        undo, total = [], 0
        for task, column, member in moves:
            before = int(self.holder[task, column])
            at, seat, to = np.array([task]), np.array([column]), np.array([member])
            cost = int(self.price(at, seat, to)[0] - self.refund(at, seat)[0])
            cost += int(self.balance(-1)[before])
            self.move(task, column, member)
            # One more at the other end: seen from there, the opposite of taking it away.
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
        """Count new pairs (owner of the task, member)."""
        pair, count = np.unique(
            self.problem.owner[task] * len(self.load) + member, return_counts=True
        )
        self.pair.reshape(-1)[pair] += count.astype(np.int32)

    def pair_cost(self, owner: Array, member: Array | int, added: int) -> Array:
        """Cost of the last (or one more) standby of these owners on these members."""
        count = self.pair[owner, member] + added
        over = np.clip(count - self.limit[owner, member], 0, _MOST).astype(np.int64)
        uneven = np.clip(count - self.shares.even[owner, member], 0, _MOST).astype(np.int64)
        cost: Array = over * self.overload + uneven * UNEVEN
        return cost


class _Copies:
    """What it costs to hold a task: nothing for a standby of before, most where nothing is there."""

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
        """``FRESH``, ``CHANGED`` or 0, element by element."""
        key = task * self._members + member
        if self._table is not None:
            found: Array = self._table[key].astype(np.int64)
            return found
        if not len(self._keys):
            return np.full(key.shape, FRESH, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        return np.where(self._keys[at] == key, self._costs[at], FRESH)
