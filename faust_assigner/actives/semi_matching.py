"""Assign orphans to holders of their state, so that several terms are exactly optimal.

An orphan is a stateful task without a living owner; a holder is a member with a copy of its state. Each
orphan goes to one of its holders (a semi-matching). The whole assignment minimises these terms,
lexicographically:

    sum rate x L^2,   sum x^2,   -(orphans back at their last owner),   sum S^2,   -(orphans at their target)

L is the number of tasks on a member, S the number of stateful tasks on a member, and x the number of tasks of
one co-partitioned group on one member (a *cell*). L, S and x include the tasks that stay in this round.

The problem is a min-cost flow orphan -> cell -> member -> sink, solved term by term. Once no cycle improves
a term, the next term uses only the arcs of reduced cost zero, which keep the earlier term optimal
(complementary slackness). So the terms need no common integer, and no term can overflow.
(Ahuja, Magnanti, Orlin: Network Flows, 9.3 and 9.6; Harvey, Ladner, Lovasz, Tamir 2006 for one term.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from faust_assigner.actives.cycles import cycles_of
from faust_assigner.model import NOBODY, Bools, Ints

_FAR = np.int64(1) << 60


class Term(IntEnum):
    """The terms in their order; each term is optimal among the optimal solutions of the earlier terms."""

    LOAD = 0
    GROUP = 1
    RETURNED = 2
    STATE = 3
    AT_TARGET = 4


@dataclass(frozen=True, kw_only=True)
class Orphans:
    """N orphans with K possible places, over G groups and M members.

    ``group`` int64[N]: each orphan's group. ``former``, ``target`` int64[N]: its last owner and its
    target member, or ``NOBODY``. ``orphan``, ``holder`` int64[K]: the places, unique and sorted, at least
    one per orphan. ``settled`` int64[G, M]: the number of tasks that stay. ``state`` int64[M]: the number
    of stateful tasks that stay; None skips the term ``STATE``. ``rate`` int64[M]: proportional to 1 /
    capacity, below 2^31.
    """

    group: Ints
    former: Ints
    target: Ints
    orphan: Ints
    holder: Ints
    settled: Ints
    state: Ints | None
    rate: Ints


def place_orphans(orphans: Orphans) -> Ints:
    """Return int64[N], each orphan's member; ties go to the lower member id, the lower orphan first.

    Cost: a few passes over the K places if each orphan can return to its last owner. Otherwise one search,
    O(K) per round, for each improvement of a greedy start.
    """
    if not orphans.group.size:
        return orphans.group
    matching = _Matching(orphans, _place_greedily(orphans))
    for term in Term:
        if term != Term.STATE or orphans.state is not None:
            matching.improve(term)
    return orphans.holder[matching.place]


def _place_greedily(o: Orphans) -> Ints:
    """Return int64[N], the place of each orphan: its last owner if possible, else the cheapest place."""
    rows = np.arange(o.orphan.size)
    back = o.holder == o.former[o.orphan]
    place = np.full(o.group.size, NOBODY, dtype=np.int64)
    place[o.orphan[back]] = rows[back]
    cell = o.settled.copy()
    home = place[place != NOBODY]
    np.add.at(cell, (o.group[o.orphan[home]], o.holder[home]), 1)
    load = cell.sum(axis=0).tolist()
    first = np.searchsorted(o.orphan, np.arange(o.group.size + 1)).tolist()
    lost = np.flatnonzero(place == NOBODY).tolist()
    rate = o.rate.tolist()
    for n in sorted(lost, key=lambda n: (first[n + 1] - first[n], n)):
        g, wanted = int(o.group[n]), int(o.target[n])
        _, _, _, m, k = min(
            ((2 * load[m] + 1) * rate[m], int(cell[g, m]), m != wanted, m, k)
            for k, m in enumerate(o.holder[first[n] : first[n + 1]].tolist(), first[n])
        )
        place[n] = k
        cell[g, m] += 1
        load[m] += 1
    return place


class _Matching:
    """A solution: ``place[n]`` is the index of orphan n's place among the K places.

    The nodes of the residual graph are the C cells with a place, the M members and the sink, in this
    order. ``count`` (per cell), ``load`` and ``state`` (per member) count all tasks. ``movable`` (per
    cell) and ``moved_in`` (per member) count only orphans, because only orphans can move. ``slack`` has
    the potentials of the finished terms.
    """

    def __init__(self, o: Orphans, place: Ints) -> None:
        self.o, self.place = o, place
        members = o.rate.size
        key = o.group[o.orphan] * members + o.holder
        cells, self.head = np.unique(key, return_inverse=True)
        self.cells, self.sink = cells.size, cells.size + members
        self.group, self.member = np.divmod(cells, members)
        here = self.head[place]
        self.movable = np.bincount(here, minlength=self.cells)
        self.moved_in = np.bincount(self.member[here], minlength=members)
        self.count = o.settled[self.group, self.member] + self.movable
        self.load = o.settled.sum(axis=0) + self.moved_in
        self.state = self.moved_in + (0 if o.state is None else o.state)
        self.by_head = np.argsort(self.head, kind="stable")
        self.by_member = np.argsort(self.member, kind="stable")
        self.filled, self.member_start, self.of_member_row = np.unique(
            self.member[self.by_member], return_index=True, return_inverse=True
        )
        self.slack: list[tuple[Term, Ints]] = []

    def improve(self, term: Term) -> None:
        """Cancel negative cycles until there are none; then store the potentials."""
        while True:
            potential, cycle = self._search(term)
            if cycle is None:
                self.slack.append((term, potential))
                return
            self._push(cycle)

    # Costs ---------------------------------------------------------------------------------------

    def shift(self, term: Term) -> Ints:
        """Return int64[K]: the cost of moving each place's orphan from its current place to that place."""
        if term not in (Term.RETURNED, Term.AT_TARGET):
            return np.zeros(self.head.size, dtype=np.int64)
        wish = self.o.former if term == Term.RETURNED else self.o.target
        worth = (self.o.holder == wish[self.o.orphan]).astype(np.int64)
        cost: Ints = worth[self.place][self.o.orphan] - worth
        return cost

    def into_member(self, term: Term) -> tuple[Ints, Ints]:
        """Return two int64[C]: the cost of adding a task to each cell, and of removing a task."""
        if term != Term.GROUP:
            return np.zeros_like(self.count), np.zeros_like(self.count)
        return 2 * self.count + 1, 1 - 2 * self.count

    def into_sink(self, term: Term) -> tuple[Ints, Ints]:
        """Return two int64[M]: the cost of adding a task to each member, and of removing a task."""
        if term == Term.LOAD:
            return self.o.rate * (2 * self.load + 1), self.o.rate * (1 - 2 * self.load)
        if term == Term.STATE:
            return 2 * self.state + 1, 1 - 2 * self.state
        return np.zeros_like(self.load), np.zeros_like(self.load)

    def open_arcs(self) -> tuple[Bools, Bools, Bools, Bools, Bools]:
        """Return the arcs that keep the finished terms optimal.

        The five arrays are: places, cell to member and back, member to sink and back.
        """
        places = self.place[self.o.orphan] != np.arange(self.head.size)
        up, down = np.ones(self.cells, dtype=np.bool_), self.movable > 0
        out, back = np.ones(self.load.size, dtype=np.bool_), self.moved_in > 0
        tail = self.head[self.place[self.o.orphan]]
        for term, potential in self.slack:
            cell, member, sink = (
                potential[: self.cells],
                potential[self.cells : self.sink],
                potential[-1],
            )
            of_member = member[self.member]
            more, less = self.into_member(term)
            plus, minus = self.into_sink(term)
            places &= self.shift(term) + cell[tail] == cell[self.head]
            up &= more + cell == of_member
            down &= less + of_member == cell
            out &= plus + member == sink
            back &= minus + sink == member
        return places, up, down, out, back

    # Search --------------------------------------------------------------------------------------

    def _search(self, term: Term) -> tuple[Ints, list[tuple[int, int]] | None]:
        """Return (potentials, None) if the term is optimal, else (undefined, a negative cycle).

        The search is Bellman-Ford from all nodes at once. A cycle of parent links is a negative
        cycle. If a negative cycle exists, such a cycle appears after at most one round per node.
        """
        arcs = _Arcs(self, term)
        look, rounds = 4, 0
        while arcs.relax():
            rounds += 1
            if rounds == look:
                look *= 2
                if (cycle := arcs.cycle()) is not None:
                    return arcs.distance, cycle
        return arcs.distance, None

    def _push(self, cycle: list[tuple[int, int]]) -> None:
        """Change the solution along a cycle of (node, place that leads to the node, or ``NOBODY``)."""
        nodes = [node for node, _ in cycle]
        for u, (v, row) in zip([nodes[-1], *nodes], cycle, strict=False):
            if row != NOBODY:
                self.place[self.o.orphan[row]] = row
            elif u < self.cells:
                self.count[u] += 1
                self.movable[u] += 1
            elif v < self.cells:
                self.count[v] -= 1
                self.movable[v] -= 1
            else:
                m, step = (u - self.cells, 1) if v == self.sink else (v - self.cells, -1)
                self.load[m] += step
                self.state[m] += step
                self.moved_in[m] += step


class _Arcs:
    """The residual graph of one solution and one term, and the state of a search in it.

    Unusable arcs cost ``_FAR``. ``distance`` int64[nodes] only falls. ``parent`` is the node from which each
    distance was last shortened. ``row`` is the place whose orphan would move, for arcs between cells.
    """

    def __init__(self, at: _Matching, term: Term) -> None:
        self.at = at
        places, up, down, out, back = at.open_arcs()
        more, less = at.into_member(term)
        plus, minus = at.into_sink(term)
        # Unusable places are left out, which saves most of the search if nearly all places are unusable.
        rows = at.by_head[places[at.by_head]]
        self.rows, self.tail = rows, at.head[at.place[at.o.orphan[rows]]]
        self.shift = at.shift(term)[rows]
        head = at.head[rows]
        self.heads, self.start = np.unique(head, return_index=True)
        self.of_row = np.repeat(
            np.arange(self.heads.size), np.diff(np.append(self.start, rows.size))
        )
        self.up, self.down = np.where(up, more, _FAR), np.where(down, less, _FAR)
        self.out, self.back = np.where(out, plus, _FAR), np.where(back, minus, _FAR)
        self.distance = np.zeros(at.sink + 1, dtype=np.int64)
        self.parent = np.full(at.sink + 1, NOBODY, dtype=np.int64)
        self.row = np.full(at.sink + 1, NOBODY, dtype=np.int64)

    def relax(self) -> bool:
        """Relax each arc once; return whether a distance fell."""
        at, old = self.at, self.distance
        cell, member, sink = old[: at.cells], old[at.cells : at.sink], old[at.sink]
        self.distance = old.copy()
        self._shorten_distances(
            np.arange(at.cells), member[at.member] + self.down, at.cells + at.member
        )
        if self.rows.size:
            reach = cell[self.tail] + self.shift
            best = np.minimum.reduceat(reach, self.start)
            hits = np.flatnonzero(reach == best[self.of_row])
            first = hits[np.searchsorted(self.of_row[hits], np.arange(self.heads.size))]
            self._shorten_distances(self.heads, best, self.tail[first], self.rows[first])
        reach = (cell + self.up)[at.by_member]
        best = np.minimum.reduceat(reach, at.member_start)
        hits = np.flatnonzero(reach == best[at.of_member_row])
        first = hits[np.searchsorted(at.of_member_row[hits], np.arange(at.filled.size))]
        self._shorten_distances(at.cells + at.filled, best, at.by_member[first])
        everyone = np.arange(at.cells, at.sink)
        self._shorten_distances(everyone, sink + self.back, np.full(everyone.size, at.sink))
        nearest = int((member + self.out).argmin())
        self._shorten_distances(
            np.array([at.sink]), (member + self.out)[[nearest]], np.array([at.cells + nearest])
        )
        return not np.array_equal(self.distance, old)

    def _shorten_distances(
        self, nodes: Ints, reach: Ints, parent: Ints, row: Ints | None = None
    ) -> None:
        better = reach < self.distance[nodes]
        if better.any():
            nodes = nodes[better]
            self.distance[nodes] = reach[better]
            self.parent[nodes] = parent[better]
            self.row[nodes] = NOBODY if row is None else row[better]

    def cycle(self) -> list[tuple[int, int]] | None:
        """Return a cycle of parents as (node, row) in the order of the arcs; None if there is no cycle."""
        around = next(cycles_of(self.parent.tolist()), None)
        return None if around is None else [(v, int(self.row[v])) for v in around]
