"""Match as many moving tasks as possible to members with a copy of their state, for given counts."""

from __future__ import annotations

from collections import deque

import numpy as np

from faust_assigner.model import NOBODY, Ints


def match_warm(
    before: Ints, spare: Ints, room: Ints, number: Ints, member: Ints
) -> tuple[Ints, Ints]:
    """Return (numbers, members): the most moves onto copies that ``spare`` and ``room`` allow.

    ``before`` int64[n]: previous owners. ``spare`` int64[M]: how many numbers each owner must give up; a
    number without an owner may always move. ``room`` int64[M]: how many numbers each member may receive.
    ``number``, ``member`` int64[K]: the copies and their holders. Cost: O(K) if the greedy start is optimal,
    which is the usual case; otherwise O(K) more per improvement.
    """
    loose = np.append(spare, 1)[before[number]] > 0  # NOBODY (-1) indexes the last entry
    useful = np.flatnonzero(loose & (room[member] > 0))
    if not useful.size:
        return useful, useful
    matching = _Matching(before, spare, room, number[useful], member[useful])
    matching.start()
    while matching.improve():
        pass
    moves = sorted(matching.at.items())
    return np.array([p for p, _ in moves], dtype=np.int64), np.array(
        [m for _, m in moves], dtype=np.int64
    )


class _Matching:
    """A matching of partition numbers to holders with room; each previous owner gives up a limited number."""

    def __init__(self, before: Ints, spare: Ints, room: Ints, number: Ints, member: Ints) -> None:
        self.room = {m: int(room[m]) for m in np.unique(member).tolist()}
        self.holders: dict[int, list[int]] = {}
        for p, m in zip(number.tolist(), member.tolist(), strict=True):
            self.holders.setdefault(p, []).append(m)
        self.donor = {p: int(before[p]) for p in self.holders}
        self.spare = {d: int(spare[d]) for d in set(self.donor.values()) if d != NOBODY}
        self.numbers_of: dict[int, list[int]] = {}
        for p, d in self.donor.items():
            self.numbers_of.setdefault(d, []).append(p)
        self.at: dict[int, int] = {}
        self.guests: dict[int, set[int]] = {m: set() for m in self.room}

    def start(self) -> None:
        """Match greedily: numbers with the fewest holders first, each to the holder with the most room."""
        for p in sorted(self.holders, key=lambda p: (len(self.holders[p]), p)):
            m = min(self.holders[p], key=lambda m: (-self.room[m], m))
            if self.room[m] and self._may_go(p):
                self._match(p, m)
                if self.donor[p] != NOBODY:
                    self.spare[self.donor[p]] -= 1

    def _may_go(self, p: int) -> bool:
        return self.donor[p] == NOBODY or self.spare[self.donor[p]] > 0

    def _match(self, p: int, m: int) -> None:
        self.at[p] = m
        self.guests[m].add(p)
        self.room[m] -= 1

    def _unmatch(self, p: int) -> int:
        m = self.at.pop(p)
        self.guests[m].discard(p)
        self.room[m] += 1
        return m

    def improve(self) -> bool:
        """Apply a shortest augmenting path; return False if there is none: then the matching is maximum."""
        if not any(self.room.values()):
            return False
        queue = deque(p for p in sorted(self.holders) if p not in self.at and self._may_go(p))
        came: dict[int, int | None] = dict.fromkeys(queue)  # number -> the number that it displaces
        via: dict[int, int] = {}  # member -> the number that reached it
        asked: set[int] = set()
        while queue:
            p = queue.popleft()
            for m in self.holders[p]:
                if m in via:
                    continue
                via[m] = p
                if self.room[m] > 0:
                    self._augment(m, came, via)
                    return True
                for guest in sorted(self.guests[m]):
                    self._reach(guest, came, queue, asked)
        return False

    def _reach(
        self, guest: int, came: dict[int, int | None], queue: deque[int], asked: set[int]
    ) -> None:
        """Visit a matched number that could move to another holder, or could stay with its previous owner."""
        if guest not in came:
            came[guest] = guest
            queue.append(guest)
        donor = self.donor[guest]
        if donor != NOBODY and donor not in asked:
            asked.add(donor)
            for other in self.numbers_of[donor]:
                if other not in came and other not in self.at:
                    came[other] = guest
                    queue.append(other)

    def _augment(self, m: int, came: dict[int, int | None], via: dict[int, int]) -> None:
        while True:
            p = via[m]
            leaving = came[p]
            if leaving is None:
                self._match(p, m)
                if self.donor[p] != NOBODY:
                    self.spare[self.donor[p]] -= 1
                return
            freed = self._unmatch(leaving)
            self._match(p, m)
            m = freed
