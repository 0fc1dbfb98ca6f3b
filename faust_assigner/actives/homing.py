"""Among equally good distributions of a group's numbers, find the one that returns most to their home member.

Counts, stays and warm moves are given. A number may stay with its owner or go to a receiving member. Each
member is a bin of fixed size. A distribution improves exactly by a circle of numbers that change bins, each
into the next number's bin (a transportation problem: Ahuja, Magnanti, Orlin, 9.3). So the search looks for a
circle of bins with a gain, until none is left.
"""

from __future__ import annotations

import numpy as np

from faust_assigner.actives.circles import circles_of
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
    """Return ``owner`` int64[n] with as many numbers at ``home`` int64[n] as counts, stays, warm moves allow.

    ``before`` int64[n]; ``number``, ``member`` int64[K], the copies and their holders among ``members``;
    ``first`` bool[K], the copies with priority. Cost: O(n) if no gain is possible; otherwise a search over
    the giving and receiving members for each few gains.
    """
    first = np.zeros(number.size, dtype=np.bool_) if first is None else first
    moved = np.flatnonzero(owner != before)
    gives, receives = (np.zeros(members + 1, dtype=np.bool_) for _ in range(2))
    gives[before[moved]], receives[owner[moved]] = True, True
    receives[NOBODY] = False
    loose = gives[before]  # NOBODY indexes the last entry: unowned numbers are free
    may = loose & (home != owner) & (receives[home] | (home == before)) & (home != NOBODY)
    if not may.any() and not first.any():
        return owner
    return _Dealing(before, owner, loose, receives[:members], number, member, home, first).settled()


class _Dealing:
    """A distribution: ``owner`` int64[n], and the value of each valuable (number, bin) pair.

    A warm move is worth more than any circle of homes; a caught-up copy more than any circle of warm moves.
    ``now`` int64[n] is the value of each number in its current bin. The hub connects a number that may go
    anywhere with the bins that accept any number.
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
        """Return the owners once no circle has a gain."""
        while circles := self._circles():
            for circle in circles:
                for number, to in circle:
                    self.owner[number] = to
                    self.now[number] = 0
                self._look(np.flatnonzero(np.isin(self.number, [number for number, _ in circle])))
        return self.owner

    def _arcs(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return (from, to, gain, number), ordered by ``to``: valuable changes and changes over the hub."""
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

    def _circles(self) -> list[list[tuple[int, int]]]:
        """Return circles of (number, its new bin) that have a gain and share no bin; empty without a gain.

        Bellman-Ford from all bins at the same time: a circle of parents has a gain, and exists after at most
        as many rounds as there are bins.
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
                if circles := list(circles_of(parents)):
                    return [_carried(circle, via, moving, self.hub) for circle in circles]


def _carried(circle: list[int], via: Ints, moving: Ints, hub: int) -> list[tuple[int, int]]:
    """Return the numbers that change bins; a number over the hub ends in the bin after the hub."""
    found: list[tuple[int, int]] = []
    behind = dict(zip(circle, [*circle[1:], circle[0]], strict=True))
    for v in circle:
        number = int(moving[via[v]])
        if number != NOBODY:
            found.append((number, behind[hub] if v == hub else v))
    return found
