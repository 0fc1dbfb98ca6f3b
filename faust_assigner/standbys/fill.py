"""Make the first placement: keep copies, place whole rows of standbys, fill the gaps one by one."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from math import gcd

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints
from faust_assigner.standbys.board import Board
from faust_assigner.standbys.problem import StandbyProblem

#: An owner's tasks are distributed in at most this many rounds; each round has another peer order.
_ROUNDS = 64


def keep_copies(board: Board) -> None:
    """Place the wanted standbys, then the previous standbys, then standbys on other warm copies.

    A copy is skipped if its task is full or if its rack does not improve the task's spread over racks.
    ``repair.py`` later moves standbys from members and pairs that have too many. Cost: O(K log K).
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
        _keep_where_fitting(board, task[must], member[must], pinned=True)
        may = first & (rank > 0)
        _keep_where_fitting(board, task[may], member[may], pinned=False)
        later = ~first & (board.filled[task] < board.shares.need[task])
        task, member, rank = task[later], member[later], rank[later]


def _keep_where_fitting(board: Board, task: Ints, member: Ints, *, pinned: bool) -> None:
    """Add the standby ``member`` to each task where it fits; each task occurs once."""
    fits = (board.filled[task] < board.shares.need[task]) & (
        board.holder[task] != member[:, None]
    ).all(axis=1)
    if board.shares.has_racks and not pinned:
        fits &= _keeps_rack_spread(board, task, member)
    board.seat(task[fits], member[fits], pinned=pinned)


def _keeps_rack_spread(board: Board, task: Ints, member: Ints) -> Bools:
    """Return bool[K]: whether the task can still reach its largest number of racks with this copy."""
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
    """Place all standbys of tasks without standbys, owner by owner.

    Members outside the active's rack come first, then members inside. Cost: O(M^2 + T).
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
    """Distributes an owner's standbys over its peers in turn; peers with less burden get more standbys."""

    def __init__(self, board: Board) -> None:
        #: The board that gets the standbys; the dealer never empties a seat.
        self.board = board
        members, racks = board.problem.members, int(board.shares.rack.max()) + 1
        #: int64[racks, M] (int64[0, M] without racks): the standbys of each rack's actives on each member,
        #: to spread the load after a rack's death. Between two calls of :meth:`deal` the array agrees with
        #: ``board.pair``.
        self.from_rack = np.zeros((racks if board.shares.has_racks else 0, members), dtype=np.int64)
        if board.shares.has_racks:
            np.add.at(self.from_rack, board.shares.rack, board.pair)

    def deal(self, tasks: Ints) -> None:
        """Place all standbys of ``tasks``, which have no standbys, one owner and equal eligible members."""
        shares, owner = self.board.shares, int(self.board.problem.owner[tasks[0]])
        allowed = shares.eligible[shares.kind[tasks[0]]].copy()
        allowed[owner] = False
        away = shares.rack != shares.rack[owner]
        outside, need = int(shares.outside[tasks[0]]), int(shares.need[tasks[0]])
        self._deal_among(tasks, np.flatnonzero(allowed & away), outside)
        self._deal_among(tasks, np.flatnonzero(allowed & ~away), need - outside)

    def _deal_among(self, tasks: Ints, peers: Ints, each: int) -> None:
        """Place ``each`` standbys per task on the peers, in rounds of about one standby per peer."""
        if not each:
            return
        owner = int(self.board.problem.owner[tasks[0]])
        # The order of peers starts after the owner, so that ties do not all favour the first member.
        peers = np.roll(peers, -int(np.searchsorted(peers, owner)))
        per_round = max(1, len(peers) // each, -(-len(tasks) // _ROUNDS))
        for turn, start in enumerate(range(0, len(tasks), per_round)):
            batch = tasks[start : start + per_round]
            counts = self._counts(owner, batch, peers, each, start)
            circle = _peer_order(len(peers), turn)
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
        """Return each peer's number of standbys in the batch; the remainder goes to the least loaded."""
        shares, board = self.board.shares, self.board
        pair = board.pair[owner, peers].astype(np.int64)
        slots = each * len(batch)
        if not shares.has_racks:
            base, extra = divmod(slots, len(peers))
            counts = np.full(len(peers), base, dtype=np.int64)
            # The burden compares pairs before loads: docs/explanation/algorithms.md#the-steps.
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
        return _raise_counts(counts, burden, shares.rack[peers], slots, len(batch), each)


def _raise_counts(
    counts: Ints, burden: Ints, rack: Ints, slots: int, tasks: int, each: int
) -> Ints:
    """Raise ``counts`` until they sum to ``slots``; peers with the least burden come first.

    If there are enough racks, a rack gets at most one copy of a task; otherwise at least one.
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
            taken = open_[_rank_in_group(rack[open_]) < room[rack[open_]]][:short]
            if not len(taken):
                break
            counts[taken] += 1
    return counts


def _rank_in_group(group: Ints) -> Ints:
    """Return for each element the number of earlier elements of the same group."""
    order = np.argsort(group, kind="stable")
    sorted_group = group[order]
    turn = np.empty(len(group), dtype=np.int64)
    turn[order] = np.arange(len(group)) - np.searchsorted(sorted_group, sorted_group)
    return turn


def _peer_order(count: int, turn: int) -> Ints:
    """Return an order of the peers that differs between turns.

    The standbys of a batch are laid out in this order, rack by rack, and wrapped at the number of tasks. So
    a task gets distinct members and racks (McNaughton's rule). Because the order changes, any two peers share
    some task.
    """
    strides = _ring_steps(count)
    return (np.arange(count) * strides[turn % len(strides)] + turn) % count


@lru_cache(maxsize=64)
def _ring_steps(count: int) -> tuple[int, ...]:
    """Return the first steps s such that repeated steps of s visit all ``count`` places of a ring."""
    coprime = (step for step in range(1, count) if gcd(step, count) == 1)
    return tuple(islice(coprime, _ROUNDS)) or (1,)


def fill_gaps(board: Board) -> None:
    """Fill the remaining empty seats one by one, each with the member of the least cost."""
    problem, shares = board.problem, board.shares
    everyone = np.arange(problem.members)
    for task in np.flatnonzero(board.filled < shares.need):
        at = np.array([task])
        while board.filled[task] < shares.need[task]:
            cost = board.price(at, -1, everyone) + board.balance(1)
            ring = np.roll(everyone, -int(problem.owner[task]) - 1)
            board.seat(at, ring[np.argmin(cost[ring])][None])


def usable(problem: StandbyProblem, pairs_task: Ints, pairs_member: Ints) -> Bools:
    """Return bool[K]: whether each (task, member) may be a standby."""
    owner = problem.owner[pairs_task]
    allowed = problem.eligible[problem.group[pairs_task], pairs_member]
    may: Bools = (owner != NOBODY) & (owner != pairs_member) & allowed
    return may
