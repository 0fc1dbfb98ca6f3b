"""Complete a flow: ship its remaining imbalances along shortest paths of the residual graph.

``transport.py`` defines the flow, its costs and its potentials.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from faust_assigner.actives.transport import FAR, Flow
from faust_assigner.model import Ints


def augment(flow: Flow) -> Ints:
    """Ship all imbalances along shortest paths; return the optimal counts ``flow.x``."""
    excess = flow.excess()
    search = _Search(flow, excess)
    while (excess > 0).any():
        search.shortest_paths()
        while search.blocking_flow():
            pass
    return flow.x


class _Search:
    """Dijkstra's search over the residual graph; nodes are the groups, then the members, then the sink.

    The reduced cost of an arc u -> v is its cost + potential(u) - potential(v). Between two calls no
    usable arc has a negative reduced cost. :meth:`blocking_flow` uses only arcs of reduced cost zero.
    """

    def __init__(self, flow: Flow, excess: Ints) -> None:
        self.flow = flow
        #: int64[G + M + 1]: the excess (> 0) or deficit (< 0) of each node, with the sum 0. The values only
        #: shrink in magnitude. If all values are 0, the counts are complete and optimal.
        self.excess = excess
        self.groups, self.members = flow.t.allowed.shape
        self.sink = self.groups + self.members
        #: ``load_up`` int64[M]: the load cost of adding a task to each member. ``load_down`` int64[M]: the
        #: load cost of removing a task (``FAR`` without tasks). Both are updated with ``flow.load``.
        self.load_up = flow.load_cost(flow.load + 1, flow.t.rate)
        self.load_down = np.where(flow.load > 0, -flow.load_cost(flow.load, flow.t.rate), FAR)
        #: int64[G + M + 1]: the potential of each node. Only :meth:`shortest_paths` changes the values, so
        #: that no reduced cost becomes negative.
        self.potential = np.concatenate((flow.of_group, flow.of_member, [0]))

    def shortest_paths(self) -> None:
        """Run Dijkstra from all nodes with an excess; update the potentials.

        Afterwards all arcs on the shortest path to the nearest node with a deficit have reduced cost zero.
        """
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
        """Ship tasks along the paths of reduced cost zero with the fewest arcs (Dinic's blocking flow).

        Returns whether a task was shipped.
        """
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
        """Return int64[nodes]: the number of arcs from the nearest excess, -1 for unreached nodes.

        The search ends at the first layer with a deficit. Returns None if no deficit can be reached.
        """
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
        """Return a path along the layers from ``source`` to a node with a deficit, or an empty list.

        Nodes from which the search reaches no deficit are removed from ``layer``.
        """
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
