"""An exact convex transport: groups -> members -> sink, by successive shortest paths over numpy rows.

Group ``g`` ships ``supply[g]`` tasks to its subscribed members. With x tasks of g on m and L tasks
on m in all, the cost is, lexicographically,

    sum L^2 / capacity,   sum x^2,   -(tasks that stay),
    -(tasks that land on a copy of their state, and tasks that stay at their home)

The four terms share one int64, each in its own digit: a simple cycle of the residual graph changes a
lower term by less than one unit of the next, so the sum is optimal exactly when the tuple is.

Nodes are groups and members, never tasks. The solver starts from any potentials: every arc with a negative
reduced cost is used, and the resulting imbalances are shipped along shortest paths, which preserves
optimality (Ahuja, Magnanti, Orlin: Network Flows, 9.7 and 14.5). Good potentials leave few imbalances.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from faust_assigner.model import Bools, Ints

#: The cost of a missing arc. The cost of any existing arc, and of any path, stays below.
FAR = np.int64(1) << 61


@dataclass(frozen=True, kw_only=True)
class Transport:
    """The problem: ``supply`` int64[G], ``allowed`` bool[G, M], ``kept`` and ``warm`` int64[G, M], the
    number of tasks in a cell that may count as staying and as landing warm, ``home`` int64[G, M], the
    number of kept tasks at home, and ``rate`` int64[M], proportional to 1 / capacity."""

    supply: Ints
    allowed: Bools
    kept: Ints
    warm: Ints
    home: Ints
    rate: Ints


@dataclass(frozen=True)
class Digits:
    """The value of a unit of each term: 1 for warmth and for home, then ``stay`` < ``group`` < ``load``."""

    stay: int
    group: int
    load: int

    @classmethod
    def of(cls, supply: Ints, allowed: Bools) -> Digits:
        """Choose digits too wide for a carry: docs/explanation/algorithms.md#the-four-digits."""
        cells = 2 * min(allowed.shape) + 2
        stay = 2 * cells + 1
        group = (2 * cells + 1) * stay
        squares = 4 * (int(supply.sum()) + cells) + 1
        return cls(stay, group, squares * group)


class Flow:
    """The state of a solution; the fields' invariants hold from :meth:`saturate` on.

    Under the potentials no usable arc has a negative reduced cost. This is the optimality condition, so
    only balance can be missing, never optimality: :meth:`augment` ships the imbalances.
    """

    def __init__(self, transport: Transport) -> None:
        self.t = transport
        self.digits = Digits.of(transport.supply, transport.allowed)
        groups, members = transport.allowed.shape
        #: int64[G, M] >= 0, tasks of each group on each member; 0 where the member does not subscribe. The
        #: row sums equal ``t.supply`` only at the end.
        self.x = np.zeros((groups, members), dtype=np.int64)
        #: int64[M] >= 0, tasks that each member passes on to the sink; equals the column sums of ``x`` only
        #: at the end.
        self.load = np.zeros(members, dtype=np.int64)
        #: int64[G] and int64[M], the initial potentials; the sink's potential is 0. They stay unchanged:
        #: the search moves a copy.
        self.of_group = np.zeros(groups, dtype=np.int64)
        self.of_member = np.zeros(members, dtype=np.int64)
        #: int64[G, M], the cost of an additional task in each cell (``FAR`` without a subscription), and
        #: int64[M, G], the cost of removing a task (``FAR`` in an empty cell), transposed so that both arrays
        #: are scanned by rows. Both follow ``x`` with every step.
        self.up: Ints = np.full((groups, members), FAR)
        self.down: Ints = np.full((members, groups), FAR)

    # Costs ---------------------------------------------------------------------------------------

    def cell_cost(self, k: Ints, at: Any = ...) -> Ints:
        """Return the cost of the k-th task (k >= 1) of the cells ``at``; strictly increasing in k."""
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
        """Return how many tasks of each cell cost at most ``price``, int64[G, M]."""
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
        """Return how many tasks each member may carry for at most ``price`` each, int64[M]."""
        unit = self.digits.load * self.t.rate
        below: Ints = np.maximum((price + unit) // (2 * unit), 0)
        return below

    # Start ---------------------------------------------------------------------------------------

    def saturate(self, of_group: Ints, of_member: Ints, near: Ints) -> None:
        """Use every arc with a negative reduced cost; between equally good values choose ``near``."""
        self.of_group, self.of_member = of_group.copy(), of_member.copy()
        price = of_member[None, :] - of_group[:, None]
        least, most = self.counts_below(price - 1), self.counts_below(price)
        self.x = np.clip(near, least, most)
        self.load = _level_loads(
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
        """Even out groups and members over cells that may gain or lose a task at equal cost."""
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

    # Augmenting ---------------------------------------------------------------------------------

    def excess(self) -> Ints:
        """Return int64[G + M + 1]: the excess of each group, each member and the sink; the sum is 0."""
        return np.concatenate(
            (
                self.t.supply - self.x.sum(axis=1),
                self.x.sum(axis=0) - self.load,
                [self.load.sum() - self.t.supply.sum()],
            )
        )

    def imbalance(self) -> int:
        """Return the number of units still to ship."""
        return int(np.maximum(self.excess(), 0).sum())

    def augment(self) -> Ints:
        """Ship every imbalance along shortest paths; return the optimal ``x``."""
        excess = self.excess()
        search = _Search(self, excess)
        while (excess > 0).any():
            search.shortest_paths()
            while search.blocking_flow():
                pass
        return self.x


def _level_loads(wanted: Ints, least: Ints, most: Ints, tasks: int) -> Ints:
    """Return loads within their ties, near ``wanted``, with the sum ``tasks`` if possible."""
    load = np.clip(wanted, least, most)
    short = tasks - int(load.sum())
    room = most - load if short > 0 else load - least
    order = np.argsort(-np.abs(wanted - load), kind="stable")
    order = order[room[order] > 0][: abs(short)]
    load[order] += 1 if short > 0 else -1
    return load


class _Search:
    """Dijkstra over the residual graph, nodes = groups, then members, then the sink.

    Between two calls every usable arc has a reduced cost of at least zero, and every arc for
    :meth:`blocking_flow` has a reduced cost of exactly zero.
    """

    def __init__(self, flow: Flow, excess: Ints) -> None:
        self.flow = flow
        #: int64[G + M + 1], the excess (> 0) or deficit (< 0) of each node; sums to 0 and only shrinks in
        #: magnitude. If all are zero, the counts are complete and optimal.
        self.excess = excess
        self.groups, self.members = flow.t.allowed.shape
        self.sink = self.groups + self.members
        #: int64[M], the load cost of an additional task and of a removed task (``FAR`` without tasks) per
        #: member; both follow ``flow.load``.
        self.load_up = flow.load_cost(flow.load + 1, flow.t.rate)
        self.load_down = np.where(flow.load > 0, -flow.load_cost(flow.load, flow.t.rate), FAR)
        #: int64[G + M + 1]. Only :meth:`shortest_paths` changes the values, and only downwards relative
        #: to the nearest deficit, which keeps reduced costs at zero or above.
        self.potential = np.concatenate((flow.of_group, flow.of_member, [0]))

    def shortest_paths(self) -> None:
        """Lower the potentials until the nearest deficit is reachable at reduced cost zero."""
        size = self.sink + 1
        distance = np.full(size, FAR, dtype=np.int64)
        distance[self.excess > 0] = 0
        open_ = distance.copy()
        lacking = np.flatnonzero(self.excess < 0)
        done: list[int] = []
        while True:
            u = int(open_.argmin())
            here = distance[u]
            nearest = distance[lacking].min()
            if nearest <= here:
                break
            open_[u] = FAR
            done.append(u)
            self._relax(u, here, distance, open_)
        self.potential[done] += distance[done] - nearest

    def blocking_flow(self) -> bool:
        """Ship along shortest paths of reduced cost zero until no path is left (Dinic's blocking flow)."""
        p, g, flow = self.potential, self.groups, self.flow
        of_group, of_member = p[:g], p[g : self.sink]
        self.free_up = flow.up + of_group[:, None] == of_member
        self.free_down = flow.down + of_member[:, None] == of_group
        self.free_out = self.load_up + of_member == p[self.sink]
        self.free_in = self.load_down + p[self.sink] == of_member
        layer = self._layers()
        if layer is None:
            return False
        shipped = False
        for source in np.flatnonzero(self.excess > 0).tolist():
            while self.excess[source] > 0 and (path := self._admissible_path(source, layer)):
                self._push(path)
                shipped = True
        return shipped

    def _layers(self) -> Ints | None:
        """Return the steps from the nearest excess, int64[nodes]; -1 beyond the first deficit layer."""
        g = self.groups
        layer = np.full(self.sink + 1, -1, dtype=np.int64)
        frontier = self.excess > 0
        depth = 0
        while frontier.any():
            layer[frontier] = depth
            if (self.excess[frontier] < 0).any():
                return layer
            reached = np.zeros_like(frontier)
            groups, members = np.flatnonzero(frontier[:g]), np.flatnonzero(frontier[g : self.sink])
            reached[g : self.sink] = self.free_up[groups].any(axis=0)
            reached[:g] = self.free_down[members].any(axis=0)
            reached[self.sink] = self.free_out[members].any()
            if frontier[self.sink]:
                reached[g : self.sink] |= self.free_in
            frontier = reached & (layer < 0)
            depth += 1
        return None

    def _admissible_path(self, source: int, layer: Ints) -> list[int]:
        """Return a path down the layers to a deficit; dead ends leave the layers."""
        g = self.groups
        path = [source]
        while path:
            u = path[-1]
            if self.excess[u] < 0:
                return path
            below = layer[u] + 1
            v = -1
            if u < g:
                ready = self.free_up[u] & (layer[g : self.sink] == below)
                first = g
            elif u < self.sink:
                if self.free_out[u - g] and layer[self.sink] == below:
                    path.append(self.sink)
                    continue
                ready = self.free_down[u - g] & (layer[:g] == below)
                first = 0
            else:
                ready = self.free_in & (layer[g : self.sink] == below)
                first = g
            v = int(ready.argmax())
            if ready[v]:
                path.append(first + v)
            else:
                layer[u] = -1
                path.pop()
        return path

    def _push(self, path: list[int]) -> None:
        for u, v in pairwise(path):
            self._push_arc(u, v)
        self.excess[path[0]] -= 1
        self.excess[path[-1]] += 1

    def _relax(self, u: int, here: np.int64, distance: Ints, open_: Ints) -> None:
        p, g, flow = self.potential, self.groups, self.flow
        base = here + p[u]
        if u < g:
            first, row = g, flow.up[u]
        elif u < self.sink:
            first, row = 0, flow.down[u - g]
            through = base + self.load_up[u - g] - p[self.sink]
            if through < distance[self.sink]:
                distance[self.sink] = open_[self.sink] = through
        else:
            first, row = g, self.load_down
        reach = row + (base - p[first : first + row.size])
        better = (reach < distance[first : first + row.size]).nonzero()[0]
        if better.size:
            found = reach[better]
            better += first
            distance[better] = found
            open_[better] = found

    def _push_arc(self, u: int, v: int) -> None:
        g, flow = self.groups, self.flow
        if v == self.sink or u == self.sink:
            m = min(u, v) - g
            flow.load[m] += 1 if v == self.sink else -1
            k, rate = flow.load[m], flow.t.rate[m]
            self.load_up[m] = flow.load_cost(k + 1, rate)
            self.load_down[m] = -flow.load_cost(k, rate) if k > 0 else FAR
            self.free_out[m] = self.free_in[m] = False
            return
        group, m = (u, v - g) if u < g else (v, u - g)
        flow.x[group, m] += 1 if u < g else -1
        x = flow.x[group, m]
        flow.up[group, m] = flow.cell_cost(x + 1, (group, m))
        self.free_up[group, m] = self.free_down[m, group] = False
        flow.down[m, group] = -flow.cell_cost(x, (group, m)) if x > 0 else FAR
