"""Refill the seats by owner, instead of one by one, if a change emptied hundreds of seats."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints
from faust_assigner.standbys.board import Board

#: If there are fewer empty seats than this, ``fill_gaps`` (fill.py) fills them.
_BULK = 512
#: The number of tried orders of the members over the tasks; the order with the fewest clashes (a member
#: that already has a standby of the task) is used.
_SHIFTS = 8


def refill(board: Board) -> None:
    """Fill the empty seat of tasks that have some standbys and exactly one empty seat.

    Later steps fill all other seats: tasks without standbys, tasks with several empty seats, and seats
    without a fitting member. Standbys above the limit of their pair are removed first, because the many
    empty seats offer better places. Cost: O(M^2 + T log T).
    """
    shares = board.shares
    if int((shares.need - board.filled).sum()) < _BULK:
        return
    _remove_above_limit(board)
    gap = (shares.need - board.filled == 1) & (board.filled > 0)
    if shares.has_racks:
        gap &= shares.need <= shares.distinct
    tasks = np.flatnonzero(gap)
    for group in _group_alike(board, tasks):
        _deal_one_each(board, group)


def _remove_above_limit(board: Board) -> None:
    """Empty the seats above the limit of their pair, the highest tasks first."""
    task, column = np.nonzero((board.holder != NOBODY) & ~board.pinned)
    member, owner = board.holder[task, column], board.problem.owner[task]
    pair = owner * len(board.load) + member
    order = np.argsort(pair, kind="stable")
    turn = np.arange(len(order)) - np.searchsorted(pair[order], pair[order])
    surplus = order[turn >= board.limit[owner[order], member[order]]]
    if len(surplus):
        board.vacate(task[surplus], column[surplus])


def _group_alike(board: Board, tasks: Ints) -> list[Ints]:
    """Split the tasks by eligible members, owner, and the racks of their standbys."""
    if not len(tasks):
        return []
    keys = [board.shares.kind[tasks], board.problem.owner[tasks]]
    if board.shares.has_racks:
        holder = board.holder[tasks]
        used = np.where(holder == NOBODY, NOBODY, board.shares.rack[holder])
        keys += list(np.sort(used, axis=1).T)
    order = np.lexsort((tasks, *keys[::-1]))
    table = np.stack(keys, axis=1)[order]
    return np.split(tasks[order], np.flatnonzero((table[1:] != table[:-1]).any(axis=1)) + 1)


def _deal_one_each(board: Board, tasks: Ints) -> None:
    """Place one standby per task, for tasks of one owner whose standbys use the same racks."""
    owner = int(board.problem.owner[tasks[0]])
    peers = np.flatnonzero(_may_hold(board, int(tasks[0]), owner))
    if not len(peers):
        return
    pair = board.pair[owner, peers].astype(np.int64)
    over = np.maximum(pair + 1 - board.shares.even[owner, peers], 0)
    burden = (over << 40) + (board.load[peers] << 16) + np.minimum(pair, 0xFFFF)
    base, extra = divmod(len(tasks), len(peers))
    counts = np.full(len(peers), base, dtype=np.int64)
    counts[np.argsort(burden, kind="stable")[:extra]] += 1
    dealt = np.repeat(peers, counts)
    step = max(1, len(tasks) // _SHIFTS)
    ways = [np.roll(dealt, turn * step) for turn in range(_SHIFTS)]
    clashes = [(board.holder[tasks] == way[:, None]).any(axis=1) for way in ways]
    best = min(range(_SHIFTS), key=lambda turn: (int(clashes[turn].sum()), turn))
    fits = ~clashes[best]
    board.seat(tasks[fits], ways[best][fits])


def _may_hold(board: Board, task: int, owner: int) -> Bools:
    """Return bool[M]: subscribers, apart from the owner, in racks without a copy of the task."""
    shares = board.shares
    may: Bools = shares.eligible[shares.kind[task]].copy()
    may[owner] = False
    if shares.has_racks:
        holders = board.holder[task]
        used = shares.rack[np.append(holders[holders != NOBODY], owner)]
        may &= ~np.isin(shares.rack, used)
    return may
