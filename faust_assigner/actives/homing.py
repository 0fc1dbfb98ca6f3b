"""Choose partition numbers so that most numbers return to their *home*: the member that last owned them.

The count of each member, the number of stays and the number of warm moves are given and do not change. A
number may stay with its owner or move to a member that receives numbers. Each member is a *bin* with a fixed
number of places. If a distribution can be improved, then a cycle of numbers, each moving into the next
number's bin, improves it (a transportation problem: Ahuja, Magnanti, Orlin, 9.3). So the search applies
cycles with a gain until there are none.
"""

from __future__ import annotations

import numpy as np

from faust_assigner.actives.cycles import cycles_of
from faust_assigner.model import NOBODY, Bools, Ints


def bring_home(
    before: Ints,
    owner: Ints,
    members: int,
    number: Ints,
    member: Ints,
    home: Ints,
    first: Bools | None = None,
) -> Ints:
    """Return ``owner`` int64[n], changed so that as many numbers as possible are at ``home`` int64[n].

    ``before`` int64[n]: previous owners. ``number``, ``member`` int64[K]: the copies and their holders among
    ``members``. ``first`` bool[K]: the copies with priority. Cost: O(n) if no gain is possible; otherwise
    a search over the giving and receiving members for every few gains.
    """
    first = np.zeros(number.size, dtype=np.bool_) if first is None else first
    moved = np.flatnonzero(owner != before)
    gives, receives = (np.zeros(members + 1, dtype=np.bool_) for _ in range(2))
    gives[before[moved]], receives[owner[moved]] = True, True
    receives[NOBODY] = False
    loose = gives[before]  # the index NOBODY (-1) reads the last entry
    may = loose & (home != owner) & (receives[home] | (home == before)) & (home != NOBODY)
    if not may.any() and not first.any():
        return owner
    return _Dealing(before, owner, loose, receives[:members], number, member, home, first).settled()


class _Dealing:
    """A distribution of numbers to bins (members), and the value of each (number, bin) pair.

    A warm move has a higher value than all returns home in a cycle; a move onto a copy with priority has a
    higher value than all warm moves in a cycle. ``now`` int64[n] is the value of each number in its current
    bin. The hub is an extra node of the search: a number may move into the hub, and the hub leads to each bin
    that receives numbers.
    """

    def __init__(
        self,
        before: Ints,
        owner: Ints,
        loose: Bools,
        receives: Bools,
        number: Ints,
        member: Ints,
        home: Ints,
        first: Bools,
    ) -> None:
        self.owner, self.loose, self.receives = owner.copy(), np.flatnonzero(loose), receives
        self.hub = receives.size
        warm = loose[number] & np.append(receives, False)[member]
        wish = self.loose[np.append(receives, False)[home[self.loose]]]
        back = self.loose[before[self.loose] != NOBODY]
        width = self.hub + 1
        keys = np.concatenate(
            [
                number[warm] * width + member[warm],
                wish * width + home[wish],
                back * width + before[back],
            ]
        )
        rows, at = np.unique(keys, return_index=True)
        self.number, self.bin = np.divmod(rows, width)
        is_warm = (at < int(warm.sum())) & (before[self.number] != self.bin)
        is_first = is_warm & np.isin(rows, number[first] * width + member[first])
        unit = 2 * (width + 1)
        self.worth = unit * (unit + 2) * is_first + unit * is_warm + (home[self.number] == self.bin)
        self.now = np.zeros(owner.size, dtype=np.int64)
        self._look(np.arange(self.number.size))

    def _look(self, rows: Ints) -> None:
        here = rows[self.owner[self.number[rows]] == self.bin[rows]]
        self.now[self.number[here]] = self.worth[here]

    def settled(self) -> Ints:
        """Apply cycles with a gain until there are none; return the owners."""
        while cycles := self._cycles():
            for cycle in cycles:
                for number, to in cycle:
                    self.owner[number] = to
                    self.now[number] = 0
                self._look(np.flatnonzero(np.isin(self.number, [number for number, _ in cycle])))
        return self.owner

    def _arcs(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return (from, to, gain, number) of all changes of bin, direct or over the hub, sorted by ``to``."""
        row = np.flatnonzero(self.owner[self.number] != self.bin)
        number = self.number[row]
        cheap = self.loose[np.lexsort((self.loose, self.now[self.loose], self.owner[self.loose]))]
        out = cheap[np.append(True, self.owner[cheap[1:]] != self.owner[cheap[:-1]])]
        taker = np.flatnonzero(self.receives)
        tail = np.concatenate([self.owner[number], np.full(taker.size, self.hub), self.owner[out]])
        head = np.concatenate([self.bin[row], taker, np.full(out.size, self.hub)])
        gain = np.concatenate(
            [
                self.worth[row] - self.now[number],
                np.zeros(taker.size, dtype=np.int64),
                -self.now[out],
            ]
        )
        moving = np.concatenate([number, np.full(taker.size, NOBODY), out])
        order = np.argsort(head, kind="stable")
        return tail[order], head[order], gain[order], moving[order]

    def _cycles(self) -> list[list[tuple[int, int]]]:
        """Return cycles of (number, new bin) that have a gain and share no bin; empty if there are none.

        The search is Bellman-Ford from all bins at once. A cycle of parents has a gain, and exists after
        at most as many rounds as there are bins.
        """
        tail, head, gain, moving = self._arcs()
        heads, start = np.unique(head, return_index=True)
        of = np.repeat(np.arange(heads.size), np.diff(np.append(start, head.size)))
        best = np.zeros(self.hub + 1, dtype=np.int64)
        via = np.full(self.hub + 1, NOBODY, dtype=np.int64)
        look, rounds = 2, 0
        while True:
            reach = best[tail] + gain
            most = np.maximum.reduceat(reach, start)
            better = np.flatnonzero(most > best[heads])
            if not better.size:
                return []
            hits = np.flatnonzero(reach == most[of])
            best[heads[better]] = most[better]
            via[heads[better]] = hits[np.searchsorted(of[hits], better)]
            rounds += 1
            if rounds == look:
                look *= 2
                parents = [int(tail[arc]) if arc != NOBODY else NOBODY for arc in via.tolist()]
                if cycles := list(cycles_of(parents)):
                    return [_moves_along(cycle, via, moving, self.hub) for cycle in cycles]


def _moves_along(cycle: list[int], via: Ints, moving: Ints, hub: int) -> list[tuple[int, int]]:
    """Return (number, new bin) of a cycle; a number that enters the hub moves to the bin after the hub."""
    found: list[tuple[int, int]] = []
    behind = dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    for v in cycle:
        number = int(moving[via[v]])
        if number != NOBODY:
            found.append((number, behind[hub] if v == hub else v))
    return found
