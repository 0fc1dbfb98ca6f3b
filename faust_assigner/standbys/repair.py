"""Repair the placement with moves of standbys; a move or a chain of moves is made only if the cost falls.

There are three passes. *Level* makes the loads differ by at most 1 (or by as little as racks and pairs
allow): it moves standbys to the member with the fewest, in batches of independent moves. *Relieve* moves
standbys away from pairs above their limit. *Polish*, on a small board, makes the cheapest chain or ring of
up to four moves, until none lowers the cost. Chains are shortest paths in the graph whose nodes are members
and whose edge u -> w is the cheapest move of a standby from u to w.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints
from faust_assigner.standbys.board import NEVER, Board

#: The maximum number of cells (seats x members) of a small board, which is polished.
POLISHED_CELLS = 60_000
#: The maximum number of moves of a chain in polish.
_CHAIN = 4
#: The maximum number of donors that are examined for one receiver in one step.
_DONORS = 64
#: The maximum number of chains that are tried in one round of polish.
_TRIES = 24
#: If this many members of a kin (see :func:`_rack_and_class`) found no standby to take from outside, the
#: other members of the kin do not search outside.
_STRIKES = 3
#: The maximum number of rounds of the three passes.
_PASSES = 32
#: Up to this many members, a handover may consist of two moves, since M^4 combinations are examined.
_LAYERED_MEMBERS = 24
_FAR = NEVER >> 2


def repair(board: Board) -> None:
    """Level, relieve and polish until no pass moves a standby; a second repair changes nothing."""
    kin = _rack_and_class(board)
    for _ in range(_PASSES):
        # The last round moves no standby, so a later repair moves none either.
        if not (_level_loads(board, kin) | _relieve_pairs(board) | _apply_cheapest_chains(board)):
            break


def _level_loads(board: Board, kin: Ints) -> bool:
    """Move standbys to the members with the fewest, up to 64 standbys from 64 donors per step."""
    strikes = np.zeros(int(kin.max()) + 1, dtype=np.int64)
    moved = False
    stuck: Bools = np.bincount(np.nonzero(board.shares.eligible)[1], minlength=len(board.load)) == 0
    while not stuck.all():
        adding = np.where(stuck, NEVER, board.balance(1))
        receiver = int(np.argmin(adding))
        donors = np.flatnonzero(-board.balance(-1) > adding[receiver])
        if not len(donors):
            break
        donors = donors[np.argsort(-board.load[donors], kind="stable")]
        akin = kin[donors] == kin[receiver]
        near, far = donors[akin][:_DONORS], donors[~akin][:_DONORS]
        if strikes[kin[receiver]] >= _STRIKES:
            # Several members of the kin found no standby outside, so examine only donors of the kin.
            far = far[:0]
        if _take(board, receiver, np.concatenate([near, far])) or _move_over_third(
            board, receiver, far[:2]
        ):
            moved = True
        else:
            stuck[receiver] = True
            strikes[kin[receiver]] += len(far) > 0
    return moved


def _rack_and_class(board: Board) -> Ints:
    """Return int64[M]: the *kin* of each member.

    A kin is the set of members of one rack with equal subscriptions.

    If a move to one member of a kin is impossible, then it is impossible to all members of the kin.
    """
    alike = board.shares.eligible.T.astype(np.int64)
    if board.shares.has_racks:
        alike = np.column_stack([board.shares.rack, alike])
    return np.unique(alike, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _take(board: Board, receiver: int, donors: Ints) -> bool:
    """Move the cheapest standbys from ``donors`` to the receiver; return whether a standby moved.

    Each move has another owner and another donor, so that no move changes the cost of the other moves.
    """
    if not len(donors):
        return False
    task, column = board.seats_of(donors)
    donor, owner = board.holder[task, column], board.problem.owner[task]
    cost = board.price(task, column, receiver) - board.refund(task, column)
    cost = cost + board.balance(-1)[donor]
    order = np.argsort(cost, kind="stable")
    order = order[: np.searchsorted(cost[order], -board.balance(1)[receiver])]
    chosen = _distinct_positions(donor[order].tolist(), owner[order].tolist(), len(donors))
    picked = order[chosen]
    # Each move adds load to the receiver, so later moves must still lower the cost.
    picked = picked[cost[picked] + board.balance(1, np.arange(len(picked)), receiver) < 0]
    board.move_all(task[picked], column[picked], receiver)
    return bool(len(picked))


def _distinct_positions(donors: list[int], owners: list[int], most: int) -> list[int]:
    """Return the first ``most`` positions such that all donors and all owners are distinct."""
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


def _move_over_third(board: Board, receiver: int, donors: Ints) -> bool:
    """Make two moves over a third member: donor -> member -> receiver; return whether they were made."""
    return any(
        _move_through_member(board, *board.seats_of(donors[at : at + 1]), receiver)
        for at in range(len(donors))
    )


def _move_through_member(board: Board, task: Ints, column: Ints, receiver: int) -> bool:
    """Move one of these standbys of a donor to a member w, and a standby of w to the receiver."""
    if not len(task):
        return False
    donor = int(board.holder[task[0], column[0]])
    ends = int(board.balance(1)[receiver] + board.balance(-1)[donor]) if donor != receiver else 0
    everyone = np.arange(len(board.load))
    away = board.price(task[:, None], column[:, None], everyone[None, :])
    away = away - board.refund(task, column)[:, None]
    away[:, receiver] = NEVER
    best, cost = np.argmin(away, axis=0), away.min(axis=0)
    middles = np.argsort(cost, kind="stable")[:_DONORS]
    middles = middles[cost[middles] < NEVER // 2]
    next_task, next_column = board.seats_of(middles)
    onward = board.price(next_task, next_column, receiver)
    onward = onward - board.refund(next_task, next_column)
    total = onward + cost[board.holder[next_task, next_column]] + ends
    for at in np.argsort(total, kind="stable")[:_TRIES].tolist():
        if total[at] >= 0:
            break
        middle = int(board.holder[next_task[at], next_column[at]])
        first = int(best[middle])
        moves = [
            (int(task[first]), int(column[first]), middle),
            (int(next_task[at]), int(next_column[at]), receiver),
        ]
        if moves[0][:2] != moves[1][:2] and board.try_moves(moves):
            return True
    return False


def _relieve_pairs(board: Board) -> bool:
    """Move or exchange standbys of pairs above their limit; return whether a standby moved."""
    moved = False
    for owner, member in np.argwhere(board.pair > board.limit).tolist():
        while board.pair[owner, member] > board.limit[owner, member]:
            task, column = board.seats_of(np.array([member]))
            mine = board.problem.owner[task] == owner
            task, column = task[mine], column[mine]
            if not (
                _move_cheapest(board, task, column)
                or _move_through_member(board, task, column, member)
            ):
                break
            moved = True
    return moved


def _move_cheapest(board: Board, task: Ints, column: Ints) -> bool:
    """Make the cheapest move of one of these standbys, if it lowers the cost."""
    everyone = np.arange(len(board.load))
    cost = board.price(task[:, None], column[:, None], everyone[None, :])
    cost = cost - board.refund(task, column)[:, None] + board.balance(1)[None, :]
    seat, member = divmod(int(np.argmin(cost)), len(everyone))
    return board.try_moves([(int(task[seat]), int(column[seat]), member)])


def _apply_cheapest_chains(board: Board) -> bool:
    """On a small board, make the cheapest chain or ring of moves until none lowers the cost."""
    task, column = np.nonzero(board.holder >= 0)
    members = len(board.load)
    if not len(task) or len(task) * members > POLISHED_CELLS:
        return False
    for turn in range(2 * len(task) + 8):
        handovers = _Handovers(board, task, column)
        if not any(board.try_moves(chain) for chain in handovers.chains()):
            return turn > 0
    return True


class _Handovers:
    """The cheapest handover between any two members, and chains of handovers.

    A handover u -> w moves one standby from u to w, or two standbys of the same owner (u -> x and x -> w) if
    this is cheaper. With two standbys the count of the pair (owner, x) does not change.
    """

    def __init__(self, board: Board, task: Ints, column: Ints) -> None:
        self.board, self.task, self.column = board, task, column
        members = len(board.load)
        everyone = np.arange(members)
        adding = board.pair_cost(everyone[:, None], everyone[None, :], 1)
        leaving = board.pair_cost(everyone[:, None], everyone[None, :], 0)
        self.single, self.seat = self._by_owner(adding, leaving)
        total = self.single + adding[:, None, :] - leaving[:, :, None]
        self.owner = np.argmin(total, axis=0)
        self.cost = np.minimum(total.min(axis=0), _FAR)
        np.fill_diagonal(self.cost, _FAR)
        self.middle = np.full((members, members), NOBODY, dtype=np.int64)
        if members <= _LAYERED_MEMBERS:
            self._add_double_moves(adding, leaving)

    def _by_owner(self, adding: Ints, leaving: Ints) -> tuple[Ints, Ints]:
        """Return two arrays [o, u, w]: cost and index of owner o's cheapest standby to move from u to w."""
        board, task, column = self.board, self.task, self.column
        members = len(board.load)
        owner, holder = board.problem.owner[task], board.holder[task, column]
        everyone = np.arange(members)
        cost = board.price(task[:, None], column[:, None], everyone[None, :]) - adding[owner]
        cost = cost - (board.refund(task, column) - leaving[owner, holder])[:, None]
        key = owner * members + holder
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        least = np.minimum.reduceat(cost[order], starts, axis=0)
        which = np.repeat(least, np.diff(starts, append=len(order)), axis=0) == cost[order]
        first = np.minimum.reduceat(np.where(which, order[:, None], len(order)), starts, axis=0)
        single = np.full((members * members, members), _FAR, dtype=np.int64)
        seat = np.zeros((members * members, members), dtype=np.int64)
        single[key[order[starts]]] = np.minimum(least, _FAR)
        seat[key[order[starts]]] = first
        cube = (members, members, members)
        return single.reshape(cube), seat.reshape(cube)

    def _add_double_moves(self, adding: Ints, leaving: Ints) -> None:
        """Replace handovers by two moves of one owner where these are cheaper."""
        through = self.single[:, :, :, None] + self.single[:, None, :, :]
        middle, double = np.argmin(through, axis=2), through.min(axis=2)
        total = double + adding[:, None, :] - leaving[:, :, None]
        ring = np.arange(len(self.cost))
        total[:, ring, ring] = double[:, ring, ring]
        owner, cost = np.argmin(total, axis=0), total.min(axis=0)
        better = cost < self.cost
        self.cost = np.where(better, cost, self.cost)
        self.owner = np.where(better, owner, self.owner)
        here = np.take_along_axis(middle, owner[None], axis=0)[0]
        self.middle = np.where(better, here, NOBODY)

    def chains(self) -> list[list[tuple[int, int, int]]]:
        """Return the cheapest chains as lists of moves; a ring is a chain that ends at its start."""
        ends = self.board.balance(-1)[:, None] + self.board.balance(1)[None, :]
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
        """Expand a chain into moves; the nodes are found backwards from its end."""
        nodes = [last]
        for step in range(length - 2, -1, -1):
            nodes.append(int(middles[step][first, nodes[-1]]))
        nodes.append(first)
        nodes.reverse()
        return [move for u, w in pairwise(nodes) for move in self._handover(u, w)]

    def _handover(self, u: int, w: int) -> list[tuple[int, int, int]]:
        """Return the one or two moves of a handover."""
        owner, middle = self.owner[u, w], int(self.middle[u, w])
        stops = [u, w] if middle == NOBODY else [u, middle, w]
        steps = [(int(self.seat[owner, x, y]), y) for x, y in pairwise(stops)]
        return [(int(self.task[seat]), int(self.column[seat]), y) for seat, y in steps]
