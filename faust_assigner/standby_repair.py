"""Repair: moves, detours and rings of moves, each taken only if it lowers the cost.

Three passes. *Level* brings the loads within one (or as even as racks and pairs permit) by moves
to the member with the fewest standbys, in batches that do not touch each other. *Relieve* takes
standbys off the pairs above the failover cap. *Polish*, where the board is small, looks for the
cheapest chain or ring of up to four moves over all members until there is none: successive
shortest augmenting paths in the graph whose nodes are members and whose edge u -> w is u's standby
that is the cheapest to hand to w.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from faust_assigner.model import Bools, Ints
from faust_assigner.standby_seats import NEVER, Seats

#: Cells (seats x members) up to which the board counts as small.
POLISHED_CELLS = 60_000
#: Longest chain that polish looks for.
_CHAIN = 4
#: Donors that are looked at for one receiver in one step.
_DONORS = 64
#: Chains that are tried in one round of polish before it gives up.
_TRIES = 24
#: Members of one rack that must fail to receive from outside before the rest are spared the search.
_STRIKES = 3
#: Times the levelling starts over after a move that may have freed somebody.
_PASSES = 4
_FAR = NEVER >> 2


def level(seats: Seats) -> None:
    """Even the standby loads; cost about one look at 64 members' seats for 64 moves."""
    kin = _kin(seats)
    for _ in range(_PASSES):
        if not _level_once(seats, kin):
            return


def _level_once(seats: Seats, kin: Ints) -> bool:
    """Serve every member below the others once; say whether anything moved after a failure."""
    strikes = np.zeros(int(kin.max()) + 1, dtype=np.int64)
    stuck: Bools = np.bincount(np.nonzero(seats.shares.eligible)[1], minlength=len(seats.load)) == 0
    worth_another = False
    while not stuck.all():
        adding = np.where(stuck, NEVER, seats.balance(1))
        receiver = int(np.argmin(adding))
        donors = np.flatnonzero(-seats.balance(-1) > adding[receiver])
        if not len(donors):
            break
        hopeless = strikes[kin[receiver]] >= _STRIKES
        if hopeless:
            # Its kin got nothing from outside: leave what is between the kin.
            donors = donors[kin[donors] == kin[receiver]]
        donors = donors[np.argsort(-seats.load[donors], kind="stable")[:_DONORS]]
        if _take(seats, receiver, donors) or _detour(seats, receiver, donors[:2]):
            worth_another |= bool(strikes.any())
        else:
            stuck[receiver] = True
            strikes[kin[receiver]] += not hopeless
    return worth_another


def _kin(seats: Seats) -> Ints:
    """Members of one rack with the same subscriptions: what one cannot take, none can."""
    alike = seats.shares.eligible.T.astype(np.int64)
    if seats.shares.has_racks:
        alike = np.column_stack([seats.shares.rack, alike])
    return np.unique(alike, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _take(seats: Seats, receiver: int, donors: Ints) -> bool:
    """Move the cheapest standbys of different owners from different donors to the receiver.

    Being of different owners and donors they do not change each other's cost.
    """
    task, column = seats.seats_of(donors)
    donor, owner = seats.holder[task, column], seats.problem.owner[task]
    cost = seats.price(task, column, receiver) - seats.refund(task, column)
    cost = cost + seats.balance(-1)[donor]
    order = np.argsort(cost, kind="stable")
    order = order[: np.searchsorted(cost[order], -seats.balance(1)[receiver])]
    chosen = _unlike(donor[order].tolist(), owner[order].tolist(), len(donors))
    picked = order[chosen]
    # Each one makes the receiver heavier, the later ones must be worth that.
    picked = picked[cost[picked] + seats.balance(1, np.arange(len(picked)), receiver) < 0]
    seats.move_all(task[picked], column[picked], receiver)
    return bool(len(picked))


def _unlike(donors: list[int], owners: list[int], most: int) -> list[int]:
    """Positions, from the front, of pairs that share neither donor nor owner."""
    chosen: list[int] = []
    seen_donors: set[int] = set()
    seen_owners: set[int] = set()
    for at, (donor, owner) in enumerate(zip(donors, owners, strict=True)):
        if donor not in seen_donors and owner not in seen_owners:
            seen_donors.add(donor)
            seen_owners.add(owner)
            chosen.append(at)
            if len(chosen) == most:
                break
    return chosen


def _detour(seats: Seats, receiver: int, donors: Ints) -> bool:
    """Where no donor can give directly: donor -> somebody -> receiver."""
    return any(_through_another(seats, *seats.seats_of(donors[at : at + 1]), receiver)
               for at in range(len(donors)))


def _through_another(seats: Seats, task: Ints, column: Ints, receiver: int) -> bool:
    """Move one of these seats, all of one donor, to some member w, and one of w's to the receiver."""
    if not len(task):
        return False
    donor = int(seats.holder[task[0], column[0]])
    ends = int(seats.balance(1)[receiver] + seats.balance(-1)[donor]) if donor != receiver else 0
    everyone = np.arange(len(seats.load))
    away = seats.price(task[:, None], column[:, None], everyone[None, :])
    away = away - seats.refund(task, column)[:, None]
    away[:, receiver] = NEVER
    best, cost = np.argmin(away, axis=0), away.min(axis=0)
    middles = np.argsort(cost, kind="stable")[:_DONORS]
    middles = middles[cost[middles] < NEVER // 2]
    next_task, next_column = seats.seats_of(middles)
    onward = seats.price(next_task, next_column, receiver)
    onward = onward - seats.refund(next_task, next_column)
    total = onward + cost[seats.holder[next_task, next_column]] + ends
    for at in np.argsort(total, kind="stable")[:_TRIES].tolist():
        if total[at] >= 0:
            break
        middle = int(seats.holder[next_task[at], next_column[at]])
        first = int(best[middle])
        moves = [(int(task[first]), int(column[first]), middle),
                 (int(next_task[at]), int(next_column[at]), receiver)]
        if moves[0][:2] != moves[1][:2] and seats.try_moves(moves):
            return True
    return False


def relieve(seats: Seats) -> None:
    """Take standbys off the pairs above the failover cap, by a move or an exchange."""
    for owner, member in np.argwhere(seats.pair > seats.shares.cap).tolist():
        while seats.pair[owner, member] > seats.shares.cap[owner, member]:
            task, column = seats.seats_of(np.array([member]))
            mine = seats.problem.owner[task] == owner
            task, column = task[mine], column[mine]
            if not (_give_away(seats, task, column) or _through_another(seats, task, column, member)):
                break


def _give_away(seats: Seats, task: Ints, column: Ints) -> bool:
    """Make the best single move of these seats."""
    everyone = np.arange(len(seats.load))
    cost = seats.price(task[:, None], column[:, None], everyone[None, :])
    cost = cost - seats.refund(task, column)[:, None] + seats.balance(1)[None, :]
    seat, member = divmod(int(np.argmin(cost)), len(everyone))
    return seats.try_moves([(int(task[seat]), int(column[seat]), member)])


def polish(seats: Seats) -> None:
    """On a small board, take the cheapest chain or ring of moves until none lowers the cost."""
    task, column = np.nonzero(seats.holder >= 0)
    members = len(seats.load)
    if not len(task) or len(task) * members > POLISHED_CELLS:
        return
    for _ in range(2 * len(task) + 8):
        board = _Handovers(seats, task, column)
        if not any(seats.try_moves(chain) for chain in board.chains()):
            return


class _Handovers:
    """Cheapest handover between any two members, and the chains made of them."""

    def __init__(self, seats: Seats, task: Ints, column: Ints) -> None:
        members = len(seats.load)
        everyone = np.arange(members)
        cost = seats.price(task[:, None], column[:, None], everyone[None, :])
        cost = cost - seats.refund(task, column)[:, None]
        holder = seats.holder[task, column]
        order = np.argsort(holder, kind="stable")
        starts = np.flatnonzero(np.diff(holder[order], prepend=-1))
        self.seats, self.task, self.column = seats, task, column
        self.cost = np.full((members, members), _FAR, dtype=np.int64)
        self.seat = np.zeros((members, members), dtype=np.int64)
        for rows in np.split(order, starts[1:]):
            donor = holder[rows[0]]
            best = np.argmin(cost[rows], axis=0)
            self.cost[donor] = np.minimum(cost[rows[best], everyone], _FAR)
            self.seat[donor] = rows[best]
        np.fill_diagonal(self.cost, _FAR)

    def chains(self) -> list[list[tuple[int, int, int]]]:
        """Return the most promising chains, as moves; a ring is a chain that ends where it began."""
        ends = self.seats.balance(-1)[:, None] + self.seats.balance(1)[None, :]
        np.fill_diagonal(ends, 0)
        reach, middles, found = self.cost, [], []
        for length in range(1, min(_CHAIN, len(self.cost)) + 1):
            if length > 1:
                through = reach[:, :, None] + self.cost[None, :, :]
                middles.append(np.argmin(through, axis=1))
                reach = np.minimum(through.min(axis=1), _FAR)
            total = reach + ends
            for first, last in np.argwhere(total < 0).tolist():
                found.append((int(total[first, last]), length, first, last))
        found.sort()
        return [self._moves(middles, *chain[1:]) for chain in found[:_TRIES]]

    def _moves(
        self, middles: list[Ints], length: int, first: int, last: int
    ) -> list[tuple[int, int, int]]:
        """Spell one chain out, walking back from its end."""
        nodes = [last]
        for step in range(length - 2, -1, -1):
            nodes.append(int(middles[step][first, nodes[-1]]))
        nodes.append(first)
        nodes.reverse()
        seats = [(int(self.seat[u, w]), w) for u, w in pairwise(nodes)]
        return [(int(self.task[seat]), int(self.column[seat]), w) for seat, w in seats]

