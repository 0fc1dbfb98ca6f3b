"""An exact min-cost flow with convex costs: groups -> members -> sink; ``paths.py`` completes it.

Group ``g`` ships ``supply[g]`` tasks to its subscribed members. A *cell* is a (group, member) pair. With x
tasks in a cell and L tasks on a member, the cost is, lexicographically,

    sum L^2 / capacity,   sum x^2,   -(tasks that stay),
    -(tasks that land on a copy of their state, and tasks that stay at their home)

The four terms are the digits of one int64. A simple cycle of the residual graph changes a lower
term by less than one unit of the next higher term. So the sum is optimal exactly if the tuple is optimal.

The nodes are groups and members, never tasks. Each node has a number, its *potential*; the *reduced cost*
of an arc u -> v is its cost + potential(u) - potential(v). The solver may start from any potentials. It
uses each arc with a negative reduced cost, and ships the resulting imbalances along shortest paths, which
keeps the flow optimal (Ahuja, Magnanti, Orlin: Network Flows, 9.7 and 14.5). Good potentials leave few
imbalances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from faust_assigner.model import Bools, Ints

#: The cost of a missing arc, which is above the cost of any arc or path.
FAR = np.int64(1) << 61


@dataclass(frozen=True, kw_only=True)
class Transport:
    """The problem of the flow.

    ``supply`` int64[G]: tasks of each group. ``allowed`` bool[G, M]: subscriptions. ``kept``, ``warm``
    int64[G, M]: the maximum number of tasks of a cell that count as staying, and of further tasks that count
    as moved onto a copy.
    ``home`` int64[G, M]: how many of the kept tasks have the member as their home (the member that last
    owned them, ``homing.py``). ``rate`` int64[M]: proportional to 1 / capacity.
    """

    supply: Ints
    allowed: Bools
    kept: Ints
    warm: Ints
    home: Ints
    rate: Ints


@dataclass(frozen=True)
class Digits:
    """The value of one unit of each term: 1 for warmth and home, then ``stay`` < ``group`` < ``load``."""

    stay: int
    group: int
    load: int

    @classmethod
    def of(cls, supply: Ints, allowed: Bools) -> Digits:
        """Choose values so that lower terms never add up to a higher term's unit.

        docs/explanation/algorithms.md#the-four-digits has the proof.
        """
        cells = 2 * min(allowed.shape) + 2
        stay = 2 * cells + 1
        group = (2 * cells + 1) * stay
        squares = 4 * (int(supply.sum()) + cells) + 1
        return cls(stay, group, squares * group)


class Flow:
    """The state of a solution; the invariants of its fields hold after :meth:`saturate`.

    No usable arc has a negative reduced cost, which is the condition for optimality. Only the balance of
    nodes may be missing; ``paths.augment`` ships the imbalances.
    """

    def __init__(self, transport: Transport) -> None:
        self.t = transport
        self.digits = Digits.of(transport.supply, transport.allowed)
        groups, members = transport.allowed.shape
        #: int64[G, M] >= 0: tasks of each group on each member; 0 without a subscription. The row sums
        #: equal ``t.supply`` only at the end.
        self.x = np.zeros((groups, members), dtype=np.int64)
        #: int64[M] >= 0: tasks that each member passes to the sink; equal to the column sums of ``x`` only
        #: at the end.
        self.load = np.zeros(members, dtype=np.int64)
        #: int64[G] and int64[M]: the initial potentials; the sink's potential is 0. The search changes only
        #: a copy of them.
        self.of_group = np.zeros(groups, dtype=np.int64)
        self.of_member = np.zeros(members, dtype=np.int64)
        #: ``up`` int64[G, M]: the cost of adding a task to each cell (``FAR`` without a subscription).
        #: ``down`` int64[M, G]: the cost of removing a task (``FAR`` in an empty cell), transposed so that
        #: both arrays are scanned by rows. Both are updated with each change of ``x``.
        self.up: Ints = np.full((groups, members), FAR)
        self.down: Ints = np.full((members, groups), FAR)

    # Costs ---------------------------------------------------------------------------------------

    def cell_cost(self, k: Ints, at: Any = ...) -> Ints:
        """Return the cost of the k-th task (k >= 1) in the cells ``at``; the cost increases with k."""
        d, t = self.digits, self.t
        kept = t.kept[at]
        bonus = np.where(
            k <= kept, d.stay + (k <= t.home[at]), (k <= kept + t.warm[at]).astype(np.int64)
        )
        cost: Ints = d.group * (2 * k - 1) - bonus
        return cost

    def load_cost(self, k: Ints, rate: Ints) -> Ints:
        """Return the load cost of a member's k-th task (k >= 1)."""
        cost: Ints = self.digits.load * rate * (2 * k - 1)
        return cost

    def counts_below(self, price: Ints) -> Ints:
        """Return int64[G, M]: how many tasks of each cell cost at most ``price`` each."""
        t, d = self.t, self.digits
        two = 2 * d.group
        plain = (price + d.group) // two
        warm = np.minimum((price + (d.group + 1)) // two, t.kept + t.warm)
        stay = np.minimum((price + (d.group + d.stay)) // two, t.kept)
        home = np.minimum((price + (d.group + d.stay + 1)) // two, t.home)
        counts = np.maximum(np.maximum(plain, warm), np.maximum(np.maximum(stay, home), 0))
        below: Ints = np.where(t.allowed, counts, 0)
        return below

    def loads_below(self, price: Ints) -> Ints:
        """Return int64[M]: how many tasks of each member have a load cost of at most ``price`` each."""
        unit = self.digits.load * self.t.rate
        below: Ints = np.maximum((price + unit) // (2 * unit), 0)
        return below

    # Start ---------------------------------------------------------------------------------------

    def saturate(self, of_group: Ints, of_member: Ints, near: Ints) -> None:
        """Use each arc with a negative reduced cost; choose equally good counts nearest to ``near``."""
        self.of_group, self.of_member = of_group.copy(), of_member.copy()
        price = of_member[None, :] - of_group[:, None]
        least, most = self.counts_below(price - 1), self.counts_below(price)
        self.x = np.clip(near, least, most)
        self.load = _loads_near(
            self.x.sum(axis=0),
            self.loads_below(-of_member - 1),
            self.loads_below(-of_member),
            int(self.t.supply.sum()),
        )
        self._use_ties(least, most)
        t = self.t
        self.up = np.where(t.allowed, self.cell_cost(self.x + 1), FAR)
        self.down = np.ascontiguousarray(np.where(self.x > 0, -self.cell_cost(self.x), FAR).T)

    def _use_ties(self, least: Ints, most: Ints) -> None:
        """Reduce imbalances with cells that may gain or lose a task at equal cost."""
        surplus = self.t.supply - self.x.sum(axis=1)
        room = self.load - self.x.sum(axis=0)
        slack = (most - self.x).sum(axis=1)
        for g in np.lexsort((np.arange(slack.size), slack)).tolist():
            sign = 1 if surplus[g] > 0 else -1
            free = (self.x[g] < most[g]) if sign > 0 else (self.x[g] > least[g])
            ready = np.flatnonzero(free & (room * sign > 0))
            take = ready[np.argsort(-room[ready] * sign, kind="stable")[: abs(int(surplus[g]))]]
            self.x[g, take] += sign
            room[take] -= sign

    # Imbalances ----------------------------------------------------------------------------------

    def excess(self) -> Ints:
        """Return int64[G + M + 1]: the excess of each group, each member and the sink, with the sum 0."""
        return np.concatenate(
            (
                self.t.supply - self.x.sum(axis=1),
                self.x.sum(axis=0) - self.load,
                [self.load.sum() - self.t.supply.sum()],
            )
        )

    def imbalance(self) -> int:
        """Return the number of tasks that must still be shipped."""
        return int(np.maximum(self.excess(), 0).sum())


def _loads_near(wanted: Ints, least: Ints, most: Ints, tasks: int) -> Ints:
    """Return int64[M] within [``least``, ``most``], near ``wanted``, with the sum ``tasks`` if possible."""
    load = np.clip(wanted, least, most)
    short = tasks - int(load.sum())
    room = most - load if short > 0 else load - least
    order = np.argsort(-np.abs(wanted - load), kind="stable")
    order = order[room[order] > 0][: abs(short)]
    load[order] += 1 if short > 0 else -1
    return load
