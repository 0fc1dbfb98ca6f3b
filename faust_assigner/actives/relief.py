"""Balance weighted tasks: relieve the heaviest member with few moves.

Minimising the heaviest load is NP-hard, so this module is a heuristic; ``weighted.py`` has a lower bound.
First, tasks stay with their owners. Tasks without an owner are placed by weight, heaviest first, each on the
member that is then lightest (the LPT rule). Then tasks are moved or swapped away from the heaviest member
while a move helps. If the target by counts has a lighter heaviest member, the search starts from that target
instead. Task counts may be uneven, because load has priority. "Light" and "heavy" mean load / capacity.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from operator import itemgetter

import numpy as np

from faust_assigner.actives.weighted import Weighed
from faust_assigner.model import NOBODY, Bools, Ints, Previous

#: No task leaves a living owner while the load of each member that can be relieved is below this multiple of
#: the mean load.
_CALM = 1.10
#: If a task must move, moves continue until the loads of these members are below this multiple of the mean.
_GOOD = 1.03
#: The limit of moves from living owners: this multiple of the moves of the target by counts, or this share
#: of all tasks, whichever is larger.
_MOVES_OF_COUNTED, _MOVES_OF_ALL = 1.2, 0.05
#: How many of the lightest members are tried as receivers of a task, and how many tasks of each member
#: are tried in a swap.
_RECEIVERS, _SWAPPED = 8, 48
#: Announced moves are kept if the heaviest load is at most this multiple of the best plan's.
_KEPT = 1.25
#: For at most this many distinct capacities, a heap per capacity is faster than a scan of all members.
_HEAPS = 16


def relieve_heaviest(weighed: Weighed, previous: Previous, counted: Ints) -> Ints:
    """Return int64[T]: the weighted target; ``counted`` is the exact target without weights.

    The heaviest member of the result is not heavier than that of ``counted``. There is one exception: moves
    that the last round announced (``previous.awaited``) may raise the heaviest load by up to a quarter. This
    happens only after a change of capacities or weights.

    Cost: O(T log M), or O(T M) if subscriptions differ or more than 16 capacities occur; and
    O(M + tasks of one member) for each moved task.
    """
    ordinary = weighed.layout.per_task(lambda group: group.adds_load)
    counted = np.where(ordinary, counted, NOBODY)
    budget = _move_budget(previous, counted, ordinary)
    home = np.where(ordinary, previous.last_owner, NOBODY)
    homeless = np.flatnonzero(ordinary & (home == NOBODY))
    best = _Shift(weighed, home, home, budget)
    best.place(homeless)
    best.lighten()
    if weighed.max_relative_load(counted) < weighed.max_relative_load(best.owner) * (1 - 1e-9):
        other = _Shift(weighed, home, counted, budget)
        other.lighten()
        best = other
    announced = ordinary & (previous.awaited != NOBODY)
    if (announced & (best.owner != previous.awaited)).any():
        start = np.where(announced, previous.awaited, home)
        kept = _Shift(weighed, home, start, budget, fixed=announced)
        kept.place(homeless)
        kept.lighten()
        if weighed.max_relative_load(kept.owner) <= _KEPT * weighed.max_relative_load(best.owner):
            best = kept
    return best.owner


def _move_budget(previous: Previous, counted: Ints, ordinary: Bools) -> int:
    """Return how many tasks may leave living owners; tasks without an owner do not count."""
    needed = int(np.count_nonzero((previous.owner != NOBODY) & (previous.owner != counted)))
    return max(int(_MOVES_OF_COUNTED * needed), int(_MOVES_OF_ALL * np.count_nonzero(ordinary)))


class _Shift:
    """A plan that is being improved: owners, loads, and ``budget``, the moves left from living owners.

    ``fixed`` tasks stay with their owner in ``start``.
    """

    def __init__(
        self, weighed: Weighed, home: Ints, start: Ints, budget: int, fixed: Bools | None = None
    ) -> None:
        layout = weighed.layout
        self.weight, self.capacity = weighed.weight, layout.capacity
        self.home, self.owner = home, start.copy()
        self.free = np.ones(start.size, dtype=np.bool_) if fixed is None else ~fixed
        self.budget = budget - int(np.count_nonzero((home != NOBODY) & (start != home)))
        self.load = weighed.load(self.owner)
        self.group = np.repeat(np.arange(len(layout.groups)), np.diff(layout.start))
        self.allowed = np.zeros((len(layout.groups), len(layout.member_ids)), dtype=np.bool_)
        for g, group in enumerate(layout.groups):
            self.allowed[g, group.members] = True

    # Placing ---------------------------------------------------------------------------------------

    def place(self, tasks: Ints) -> None:
        """Place the tasks, heaviest first, each on the member that is then lightest (ties: lower id)."""
        order = tasks[np.lexsort((tasks, -self.weight[tasks]))]
        used = np.unique(self.group[order]).tolist()
        who = {g: np.flatnonzero(self.allowed[g]) for g in used}
        alike = all((self.allowed[g] == self.allowed[used[0]]).all() for g in used)
        if used and alike and np.unique(self.capacity[who[used[0]]]).size <= _HEAPS:
            self._place_anywhere(order, who[used[0]])
            return
        for t, g in zip(order.tolist(), self.group[order].tolist(), strict=True):
            after = (self.load[who[g]] + self.weight[t]) / self.capacity[who[g]]
            self._give(t, int(who[g][after.argmin()]))

    def _place_anywhere(self, order: Ints, who: Ints) -> None:
        """Place the tasks ``order`` with a heap per capacity; all members in ``who`` may take all tasks."""
        alike: dict[float, list[tuple[float, int]]] = {}
        for m, capacity, load in zip(
            who.tolist(), self.capacity[who].tolist(), self.load[who].tolist(), strict=True
        ):
            alike.setdefault(capacity, []).append((load, m))
        heaps = sorted(alike.items())
        for _, heap in heaps:
            heapify(heap)
        lightest, receivers = heaps[0][1], []
        for weight in self.weight[order].tolist():
            if len(heaps) > 1:
                after = [((heap[0][0] + weight) / c, heap[0][1], heap) for c, heap in heaps]
                lightest = min(after, key=itemgetter(0, 1))[2]
            load, m = lightest[0]
            receivers.append(m)
            heapreplace(lightest, (load + weight, m))
        self.owner[order] = receivers
        for _, heap in heaps:
            for load, m in heap:
                self.load[m] = load

    def _give(self, t: int, m: int) -> None:
        before = int(self.owner[t])
        if before != NOBODY:
            self.load[before] -= self.weight[t]
        self.owner[t] = m
        self.load[m] += self.weight[t]

    # Moving ----------------------------------------------------------------------------------------

    def lighten(self) -> None:
        """Move and swap tasks away from the heaviest members that can be relieved, while moves are left."""
        level = float(self.load.sum() / self.capacity.sum()) if self.load.size else 0.0
        beyond_help, enough = self._beyond_help(), _CALM
        for _ in range(4 * self.owner.size):
            ratio = np.where(beyond_help, 0.0, self.load / self.capacity)
            h = int(ratio.argmax())
            if ratio[h] <= enough * level:
                return
            if self._relieve(h, float(ratio[h])):
                enough = _GOOD
            else:
                beyond_help[h] = True

    def _beyond_help(self) -> Bools:
        """Return bool[M]: members with a single task that no member of a larger capacity may take.

        A move or a swap between two of these members does not lower the load of the heavier member.
        """
        placed = np.flatnonzero(self.owner != NOBODY)
        owner = self.owner[placed]
        alone = placed[np.bincount(owner, minlength=self.load.size)[owner] == 1]
        largest = np.where(self.allowed, self.capacity, 0.0).max(axis=1, initial=0.0)
        beyond = np.zeros(self.load.size, dtype=np.bool_)
        mine = self.owner[alone]
        beyond[mine] = largest[self.group[alone]] <= self.capacity[mine]
        return beyond

    def _relieve(self, h: int, ratio: float) -> bool:
        """Apply the best move away from ``h``, else the best swap; return False if neither has a gain."""
        mine = np.flatnonzero((self.owner == h) & self.free)
        receivers = self._receivers(h, mine) if mine.size else []
        best = None
        for step in (self._best_move, self._best_swap):
            found = [step(h, m, mine) for m in receivers]
            better = [f for f in found if f is not None and f[0] < ratio * (1 - 1e-9)]
            if better:
                best = min(better)
                break
        if best is None:
            return False
        _, m, t, back = best
        self.budget -= self._cost(t, h, m) + (self._cost(back, m, h) if back != NOBODY else 0)
        self._give(t, m)
        if back != NOBODY:
            self._give(back, h)
        return True

    def _receivers(self, h: int, mine: Ints) -> list[int]:
        """Return the members that may take a task of ``mine`` and are lightest after an average task."""
        able: Bools = np.logical_or.reduce(self.allowed[np.unique(self.group[mine])])
        able[h] = False
        who = np.flatnonzero(able)
        after = (self.load[who] + self.weight[mine].mean()) / self.capacity[who]
        found: list[int] = who[np.argsort(after, kind="stable")[:_RECEIVERS]].tolist()
        return found

    def _cost(self, t: int, giver: int, receiver: int) -> int:
        """Return how the handover of ``t`` changes the number of moves from living owners: 1, 0 or -1."""
        return int(self.home[t] == giver) - int(self.home[t] == receiver)

    def _best_move(self, h: int, m: int, mine: Ints) -> tuple[float, int, int, int] | None:
        able = mine[self.allowed[self.group[mine], m]]
        if self.budget <= 0:
            able = able[self.home[able] != h]
        if not able.size:
            return None
        weight = self.weight[able]
        after = np.maximum(
            (self.load[h] - weight) / self.capacity[h], (self.load[m] + weight) / self.capacity[m]
        )
        best = int(np.lexsort((able, self.home[able] == h, after))[0])
        return float(after[best]), m, int(able[best]), NOBODY

    def _best_swap(self, h: int, m: int, mine: Ints) -> tuple[float, int, int, int] | None:
        theirs = np.flatnonzero((self.owner == m) & self.free)
        give = self._swappable(mine, m)
        take = self._swappable(theirs, h)
        if not give.size or not take.size or self.budget < 2:
            return None
        change = self.weight[give][:, None] - self.weight[take]
        after = np.maximum(
            (self.load[h] - change) / self.capacity[h], (self.load[m] + change) / self.capacity[m]
        )
        row, column = divmod(int(after.argmin()), take.size)
        return float(after[row, column]), m, int(give[row]), int(take[column])

    def _swappable(self, tasks: Ints, receiver: int) -> Ints:
        able = tasks[self.allowed[self.group[tasks], receiver]]
        order = np.lexsort((able, -self.weight[able]))
        # A sample over all weights, so that swaps with small and with large differences are tried.
        picked = (
            order
            if order.size <= _SWAPPED
            else order[np.linspace(0, order.size - 1, _SWAPPED).astype(np.int64)]
        )
        chosen: Ints = able[picked]
        return chosen
