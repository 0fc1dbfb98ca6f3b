"""Weighted balance: the heaviest member as light as a few moves make it, and how far that is from ideal.

Least makespan is NP-hard, so this is a heuristic with a bound beside it: everything stays where it was,
what has no owner is placed heaviest first on the lightest member (Graham's LPT), then tasks are moved or
swapped away from the heaviest member while that helps. Counts may come out uneven: load overrides them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Any

import numpy as np

from faust_assigner.model import NOBODY, Bools, Floats, Ints, Layout, Previous

#: Nothing that has a living owner moves while the members that can be helped are within this of the mean ...
_CALM = 1.10
#: ... and once something must, moving ends here.
_GOOD = 1.03
#: Moves from living owners: this many times what the counted plan needs, or this share of all tasks.
_MOVES_OF_COUNTED, _MOVES_OF_ALL = 1.2, 0.05
#: How many of the lightest members are tried as receivers, and how many tasks in a swap.
_RECEIVERS, _SWAPPED = 8, 48


def weigh(layout: Layout, weights: Any) -> Weighed | None:
    """The tasks' weights, each the sum over its topics of ``weights[topic, partition]``.

    What is missing, or is not a positive finite number, weighs 1.0. ``None`` when nothing weighs
    anything else: then counting is exact and weights would only get in its way.
    """
    if not isinstance(weights, Mapping) or not weights:
        return None
    weight = np.repeat(
        np.array([len(g.topics) for g in layout.groups], dtype=np.float64), np.diff(layout.start)
    )
    place = {
        topic: (int(layout.start[g]), group.partitions)
        for g, group in enumerate(layout.groups)
        for topic in group.topics
    }
    told = False
    for key, cost in weights.items():
        known = place.get(key[0]) if isinstance(key, tuple) and len(key) == 2 else None
        if known is None or type(key[1]) is not int or not 0 <= key[1] < known[1]:
            continue
        if isinstance(cost, (int, float)) and 0 < cost < math.inf and cost != 1.0:
            weight[known[0] + key[1]] += cost - 1.0
            told = True
    return Weighed(layout, weight) if told else None


@dataclass(frozen=True)
class Weighed:
    """``weight`` float64[T] of the tasks of ``layout``; a follower's tasks weigh where they land."""

    layout: Layout
    weight: Floats

    def load(self, owner: Ints) -> Floats:
        """float64[M], the weight each member carries."""
        placed = owner != NOBODY
        load = np.bincount(
            owner[placed], self.weight[placed], minlength=len(self.layout.member_ids)
        )
        return load.astype(np.float64)

    def bound(self) -> float:
        """No plan's heaviest member, in weight / capacity, is lighter than this."""
        capacity = np.sort(self.layout.capacity)[::-1]
        ordinary = self.weight[self.layout.per_task(lambda group: group.adds_load)]
        if not ordinary.size or not capacity.size:
            return 0.0
        heaviest = np.sort(ordinary)[::-1]
        bounds = [float(ordinary.sum() / capacity.sum()), float(heaviest[0] / capacity[0])]
        if heaviest.size > capacity.size:  # some member gets two of the M + 1 heaviest
            bounds.append(
                float(heaviest[capacity.size - 1 : capacity.size + 1].sum() / capacity[0])
            )
        return max(bounds)

    def figures(self, owner: Ints) -> dict[str, float]:
        """The heaviest member, the bound, and the gap between them."""
        counted = np.where(self.layout.per_task(lambda group: group.adds_load), owner, NOBODY)
        top = float((self.load(counted) / self.layout.capacity).max(initial=0.0))
        bound = self.bound()
        return {
            "weight_max": top,
            "weight_bound": bound,
            "weight_gap": top / bound - 1 if bound else 0.0,
        }

    def balance(self, layout: Layout, previous: Previous, counted: Ints) -> Ints:
        """int64[T]: the weighted target; ``counted`` is the exact target without weights.

        Cost: O(T log M), and O(M + tasks of one member) for each task moved.
        """
        ordinary = layout.per_task(lambda group: group.adds_load)
        shift = _Shift(self, previous, ordinary, _budget(previous, counted, ordinary))
        shift.place_orphans()
        shift.lighten()
        return np.where(ordinary, shift.owner, NOBODY)


def _budget(previous: Previous, counted: Ints, ordinary: Bools) -> int:
    needed = int(
        np.count_nonzero(ordinary & (previous.owner != NOBODY) & (previous.owner != counted))
    )
    return max(int(_MOVES_OF_COUNTED * needed), int(_MOVES_OF_ALL * np.count_nonzero(ordinary)))


class _Shift:
    """The owners while they change: loads, and how many moves from living owners are left."""

    def __init__(self, weighed: Weighed, previous: Previous, ordinary: Bools, budget: int) -> None:
        layout = weighed.layout
        self.weight, self.capacity = weighed.weight, layout.capacity
        self.home = np.where(ordinary, previous.last_owner, NOBODY)
        self.owner = self.home.copy()
        self.open = np.flatnonzero(ordinary & (self.owner == NOBODY))
        self.load = weighed.load(self.owner)
        self.group = np.repeat(np.arange(len(layout.groups)), np.diff(layout.start))
        self.allowed = np.zeros((len(layout.groups), len(layout.member_ids)), dtype=np.bool_)
        for g, group in enumerate(layout.groups):
            self.allowed[g, group.members] = True
        self.budget = budget

    # Placing ---------------------------------------------------------------------------------------

    def place_orphans(self) -> None:
        """Heaviest first, each on the member that stays lightest."""
        order = self.open[np.lexsort((self.open, -self.weight[self.open]))]
        used = np.unique(self.group[order])
        if used.size and (self.allowed[used] == self.allowed[used[0]]).all():
            self._place_anywhere(order, np.flatnonzero(self.allowed[used[0]]))
            return
        for t in order.tolist():
            who = np.flatnonzero(self.allowed[self.group[t]])
            after = (self.load[who] + self.weight[t]) / self.capacity[who]
            self._give(t, int(who[after.argmin()]))

    def _place_anywhere(self, order: Ints, who: Ints) -> None:
        """The same by a heap, when every member may take every task."""
        heap = [(float(self.load[m] / self.capacity[m]), m) for m in who.tolist()]
        heapify(heap)
        for t in order.tolist():
            m = heap[0][1]
            self._give(t, m)
            heapreplace(heap, (float(self.load[m] / self.capacity[m]), m))

    def _give(self, t: int, m: int) -> None:
        before = int(self.owner[t])
        if before != NOBODY:
            self.load[before] -= self.weight[t]
        self.owner[t] = m
        self.load[m] += self.weight[t]

    # Moving ----------------------------------------------------------------------------------------

    def lighten(self) -> None:
        """Move and swap away from the heaviest members that can be helped, while moves are left.

        A member whose one task outweighs everything else is beyond help; the next heaviest is not.
        """
        level = float(self.load.sum() / self.capacity.sum()) if self.load.size else 0.0
        several = np.bincount(self.owner[self.owner != NOBODY], minlength=self.load.size) > 1
        if not (several & (self.load > _CALM * level * self.capacity)).any():
            return
        stuck = np.zeros(self.load.size, dtype=np.bool_)
        for _ in range(4 * self.owner.size):
            ratio = np.where(stuck, 0.0, self.load / self.capacity)
            h = int(ratio.argmax())
            if ratio[h] <= _GOOD * level:
                return
            if not self._relieve(h, self.load / self.capacity):
                stuck[h] = True

    def _relieve(self, h: int, ratio: Floats) -> bool:
        """The best single move away from ``h``, else the best swap; False when neither helps."""
        mine = np.flatnonzero(self.owner == h)
        receivers = np.argsort(ratio, kind="stable")[:_RECEIVERS].tolist()
        best: tuple[float, int, int, int] | None = None
        for m in receivers:
            found = self._best_move(h, m, mine)
            if (
                found is not None
                and found[0] < ratio[h] * (1 - 1e-9)
                and (best is None or found < best)
            ):
                best = found
        if best is None:
            for m in receivers:
                found = self._best_swap(h, m, mine)
                if (
                    found is not None
                    and found[0] < ratio[h] * (1 - 1e-9)
                    and (best is None or found < best)
                ):
                    best = found
        if best is None:
            return False
        _, m, t, back = best
        self.budget -= self._cost(t, h, m) + (self._cost(back, m, h) if back != NOBODY else 0)
        self._give(t, m)
        if back != NOBODY:
            self._give(back, h)
        return True

    def _cost(self, t: int, giver: int, receiver: int) -> int:
        """Moves from a living owner that handing ``t`` over adds: 1, 0, or -1 when it goes home."""
        return int(self.home[t] == giver) - int(self.home[t] == receiver)

    def _best_move(self, h: int, m: int, mine: Ints) -> tuple[float, int, int, int] | None:
        able = mine[self.allowed[self.group[mine], m]]
        if self.budget <= 0:
            able = able[self.home[able] != h]
        if not able.size or h == m:
            return None
        weight = self.weight[able]
        after = np.maximum(
            (self.load[h] - weight) / self.capacity[h], (self.load[m] + weight) / self.capacity[m]
        )
        best = int(np.lexsort((able, self.home[able] == h, after))[0])
        return float(after[best]), m, int(able[best]), NOBODY

    def _best_swap(self, h: int, m: int, mine: Ints) -> tuple[float, int, int, int] | None:
        theirs = np.flatnonzero(self.owner == m)
        give = self._swappable(mine, h, m)
        take = self._swappable(theirs, m, h)
        if h == m or not give.size or not take.size or self.budget < 2:
            return None
        change = self.weight[give][:, None] - self.weight[take]
        after = np.maximum(
            (self.load[h] - change) / self.capacity[h], (self.load[m] + change) / self.capacity[m]
        )
        row, column = divmod(int(after.argmin()), take.size)
        return float(after[row, column]), m, int(give[row]), int(take[column])

    def _swappable(self, tasks: Ints, giver: int, receiver: int) -> Ints:
        able = tasks[self.allowed[self.group[tasks], receiver]]
        order = np.lexsort((able, -self.weight[able]))
        # The heaviest and a spread of the rest: differences of every size.
        picked = (
            order
            if order.size <= _SWAPPED
            else order[np.linspace(0, order.size - 1, _SWAPPED).astype(np.int64)]
        )
        chosen: Ints = able[picked]
        return chosen
