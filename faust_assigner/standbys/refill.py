"""Refill: after a change that opened hundreds of seats, fill them by owner instead of one by one."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints
from faust_assigner.standbys.board import Board

#: Fewer open seats than this are filled one by one, each at the least cost.
_BULK = 512
#: Ways to arrange the dealt members beside the tasks; the arrangement with the fewest clashes is used.
_SHIFTS = 8


def refill(board: Board) -> None:
    """Fill the one open seat of tasks that keep a standby; seats without a fitting member stay open.

    Tasks without any standby are left to the deal; tasks with several open seats are filled one by one.
    Copies beyond the cap of their pair are given up first, because so many open seats offer better places.
    Cost: O(M^2 + T log T).
    """
    shares = board.shares
    if int((shares.need - board.filled).sum()) < _BULK:
        return
    _uncrowd(board)
    gap = (shares.need - board.filled == 1) & (board.filled > 0)
    if shares.has_racks:
        gap &= shares.need <= shares.distinct
    tasks = np.flatnonzero(gap)
    for group in _alike(board, tasks):
        _deal_one_each(board, group)


def _uncrowd(board: Board) -> None:
    """Empty the seats beyond the cap of their pair, the highest tasks first."""
    task, column = np.nonzero((board.holder != NOBODY) & ~board.pinned)
    member, owner = board.holder[task, column], board.problem.owner[task]
    pair = owner * len(board.load) + member
    order = np.argsort(pair, kind="stable")
    turn = np.arange(len(order)) - np.searchsorted(pair[order], pair[order])
    surplus = order[turn >= board.limit[owner[order], member[order]]]
    if len(surplus):
        board.vacate(task[surplus], column[surplus])


def _alike(board: Board, tasks: Ints) -> list[Ints]:
    """Split the tasks by class, owner and the racks of their standbys."""
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
    """Deal one standby per task to tasks of one owner that use the same racks."""
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
    """Return the possible additional holders of a task: subscribers in a rack without a copy."""
    shares = board.shares
    may: Bools = shares.eligible[shares.kind[task]].copy()
    may[owner] = False
    if shares.has_racks:
        holders = board.holder[task]
        used = shares.rack[np.append(holders[holders != NOBODY], owner)]
        may &= ~np.isin(shares.rack, used)
    return may
