"""The first seats: keep copies, deal whole rows, fill the gaps one by one."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from math import gcd

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints
from faust_assigner.standbys.board import Board
from faust_assigner.standbys.problem import StandbyProblem

#: A row is dealt in at most this many rounds, each over a different order of the peers.
_ROUNDS = 64


def keep_copies(board: Board) -> None:
    """Seat the wanted standbys, then the previous standbys, then other warm copies.

    A copy is kept unless its task is full or its rack adds nothing to the task's spread; the repair
    decides about too many copies on a member or a pair. Cost: O(K log K).
    """
    problem = board.problem
    wanted = len(problem.wanted_task)
    task = np.concatenate([problem.wanted_task, problem.copy_task])
    member = np.concatenate([problem.wanted_member, problem.copy_member])
    rank = np.concatenate([np.zeros(wanted, np.int64), np.where(problem.copy_was_standby, 1, 2)])
    order = np.lexsort((member, rank, task))
    task, member, rank = task[order], member[order], rank[order]
    while len(task):
        first = np.concatenate([[True], task[1:] != task[:-1]])
        must = first & (rank == 0)
        _keep_one_each(board, task[must], member[must], pinned=True)
        may = first & (rank > 0)
        _keep_one_each(board, task[may], member[may], pinned=False)
        later = ~first & (board.filled[task] < board.shares.need[task])
        task, member, rank = task[later], member[later], rank[later]


def _keep_one_each(board: Board, task: Ints, member: Ints, *, pinned: bool) -> None:
    """Offer each task one copy."""
    fits = (board.filled[task] < board.shares.need[task]) & (
        board.holder[task] != member[:, None]
    ).all(axis=1)
    if board.shares.has_racks and not pinned:
        fits &= _rack_is_of_use(board, task, member)
    board.seat(task[fits], member[fits], pinned=pinned)


def _rack_is_of_use(board: Board, task: Ints, member: Ints) -> Bools:
    """Return whether a copy there leaves the task the maximum number of racks."""
    shares = board.shares
    rack, home = shares.rack[member], shares.rack[board.problem.owner[task]]
    holder = board.holder[task]
    racks = np.where(holder == NOBODY, NOBODY, shares.rack[holder])
    new = (racks != rack[:, None]).all(axis=1) & (rack != home)
    at_home = (racks == home[:, None]).sum(axis=1)
    ordered = np.sort(np.where(racks == home[:, None], NOBODY, racks), axis=1)
    steps = ordered[:, 1:] != ordered[:, :-1]
    distinct = steps.sum(axis=1) + (ordered[:, 0] != NOBODY)
    doubled = board.filled[task] - distinct
    may_double = doubled < shares.need[task] - shares.distinct[task]
    may_stay_home = at_home < shares.need[task] - shares.outside[task]
    of_use: Bools = new | (may_double & ((rack != home) | may_stay_home))
    return of_use


def deal_rows(board: Board) -> None:
    """Give tasks without standbys all their standbys together, owner by owner.

    Seats outside the active's rack come first; the remaining seats go inside. Cost: O(M^2) and O(T).
    """
    problem, shares = board.problem, board.shares
    empty = np.flatnonzero((board.filled == 0) & (shares.need > 0))
    if not len(empty):
        return
    dealer = _Dealer(board)
    row = shares.kind[empty] * problem.members + problem.owner[empty]
    order = np.argsort(row, kind="stable")
    starts = np.flatnonzero(np.diff(row[order], prepend=-1))
    for tasks in np.split(empty[order], starts[1:]):
        dealer.deal(tasks)


class _Dealer:
    """Deals an owner's tasks around its peers, the least burdened peer first."""

    def __init__(self, board: Board) -> None:
        #: The board that receives the rows; the dealer never frees a seat.
        self.board = board
        members, racks = board.problem.members, int(board.shares.rack.max()) + 1
        #: int64[racks, M] with racks, else int64[0, M]: standbys of each rack's actives on each member, for
        #: a rack's death. Agrees with ``board.pair`` between two deals.
        self.from_rack = np.zeros((racks if board.shares.has_racks else 0, members), dtype=np.int64)
        if board.shares.has_racks:
            np.add.at(self.from_rack, board.shares.rack, board.pair)

    def deal(self, tasks: Ints) -> None:
        """Seat all standbys of these tasks, which share an owner and a class and have no standby yet."""
        shares, owner = self.board.shares, int(self.board.problem.owner[tasks[0]])
        allowed = shares.eligible[shares.kind[tasks[0]]].copy()
        allowed[owner] = False
        away = shares.rack != shares.rack[owner]
        outside, need = int(shares.outside[tasks[0]]), int(shares.need[tasks[0]])
        self._deal_among(tasks, np.flatnonzero(allowed & away), outside)
        self._deal_among(tasks, np.flatnonzero(allowed & ~away), need - outside)

    def _deal_among(self, tasks: Ints, peers: Ints, each: int) -> None:
        """Deal ``each`` standbys per task among the peers, in rounds of about one per peer."""
        if not each:
            return
        owner = int(self.board.problem.owner[tasks[0]])
        # The ring starts after the owner, so that ties do not all favour the first member.
        peers = np.roll(peers, -int(np.searchsorted(peers, owner)))
        per_round = max(1, len(peers) // each, -(-len(tasks) // _ROUNDS))
        for turn, start in enumerate(range(0, len(tasks), per_round)):
            batch = tasks[start : start + per_round]
            counts = self._counts(owner, batch, peers, each, start)
            circle = _circle(len(peers), turn)
            if self.board.shares.has_racks:
                circle = circle[np.argsort(self.board.shares.rack[peers[circle]], kind="stable")]
            dealt = np.repeat(peers[circle], counts[circle]).reshape(each, len(batch)).T
            self.board.seat_rows(owner, batch, dealt)
            if self.board.shares.has_racks:
                home = self.board.shares.rack[owner]
                self.from_rack[home] += np.bincount(
                    dealt.ravel(), minlength=self.board.problem.members
                )

    def _counts(self, owner: int, batch: Ints, peers: Ints, each: int, done: int) -> Ints:
        """Return the number of standbys of the batch per peer: even shares, the rest by burden."""
        shares, board = self.board.shares, self.board
        pair = board.pair[owner, peers].astype(np.int64)
        slots = each * len(batch)
        if not shares.has_racks:
            base, extra = divmod(slots, len(peers))
            counts = np.full(len(peers), base, dtype=np.int64)
            # Pairs before loads, as in the packing below: docs/explanation/algorithms.md#the-steps.
            burden = (pair << 40) + board.load[peers]
            counts[np.argsort(burden, kind="stable")[:extra]] += 1
            return counts
        home = shares.rack[owner]
        ratio = shares.ratio[shares.kind[batch[0]], home, peers]
        due = np.floor(ratio * (done + len(batch)) + 1e-9).astype(np.int64)
        counts = np.clip(due - pair, 0, np.floor(ratio * len(batch) + 1e-9).astype(np.int64))
        terms = (self.from_rack[home, peers], board.load[peers])
        first, second = reversed(terms) if shares.lopsided else terms
        burden = (np.clip(pair + counts - due, 0, 1 << 10) << 48) + (first << 24) + second
        return _top_up(counts, burden, shares.rack[peers], slots, len(batch), each)


def _top_up(counts: Ints, burden: Ints, rack: Ints, slots: int, tasks: int, each: int) -> Ints:
    """Raise the counts to the number of slots, the least burdened first, each rack within its limits.

    A rack takes at most one copy of a task while the racks suffice, otherwise at least one.
    """
    order = np.argsort(burden, kind="stable")
    short = slots - int(counts.sum())
    if each == 1 and short <= len(order):
        counts[order[:short]] += 1
        return counts
    racks, rack = np.unique(rack, return_inverse=True)
    rack = rack.ravel()
    least = tasks if each >= len(racks) else 0
    most = tasks if each <= len(racks) else slots
    for floor in (True, False):
        while (short := slots - int(counts.sum())) > 0:
            in_rack = np.bincount(rack, weights=counts, minlength=len(racks)).astype(np.int64)
            room = np.maximum((least if floor else most) - in_rack, 0)
            open_ = order[counts[order] < tasks]
            taken = open_[_turn_in(rack[open_]) < room[rack[open_]]][:short]
            if not len(taken):
                break
            counts[taken] += 1
    return counts


def _turn_in(group: Ints) -> Ints:
    """For each element, return the number of earlier elements of its group."""
    order = np.argsort(group, kind="stable")
    sorted_group = group[order]
    turn = np.empty(len(group), dtype=np.int64)
    turn[order] = np.arange(len(group)) - np.searchsorted(sorted_group, sorted_group)
    return turn


def _circle(count: int, turn: int) -> Ints:
    """Return an order of the peers, different in each turn.

    Dealing around the order, rack by rack, and wrapping at the number of tasks gives a task distinct
    members and racks (McNaughton's rule). Changing the order lets every two peers share some task.
    """
    strides = _strides(count)
    return (np.arange(count) * strides[turn % len(strides)] + turn) % count


@lru_cache(maxsize=64)
def _strides(count: int) -> tuple[int, ...]:
    """Return the first few steps that visit all places of a ring."""
    coprime = (step for step in range(1, count) if gcd(step, count) == 1)
    return tuple(islice(coprime, _ROUNDS)) or (1,)


def fill_gaps(board: Board) -> None:
    """Fill the remaining empty seats one by one, each at the least cost."""
    problem, shares = board.problem, board.shares
    everyone = np.arange(problem.members)
    for task in np.flatnonzero(board.filled < shares.need):
        at = np.array([task])
        while board.filled[task] < shares.need[task]:
            cost = board.price(at, -1, everyone) + board.balance(1)
            ring = np.roll(everyone, -int(problem.owner[task]) - 1)
            board.seat(at, ring[np.argmin(cost[ring])][None])


def usable(problem: StandbyProblem, pairs_task: Ints, pairs_member: Ints) -> Bools:
    """Return the mask of the (task, member) pairs that may be standbys."""
    owner = problem.owner[pairs_task]
    allowed = problem.eligible[problem.group[pairs_task], pairs_member]
    may: Bools = (owner != NOBODY) & (owner != pairs_member) & allowed
    return may
