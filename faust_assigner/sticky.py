"""StickyAssignor: groups + previous owners -> the target assignment of the actives (KIP-54, exact)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from faust_assigner.actives.copies import copies_of
from faust_assigner.actives.counts import optimal_counts
from faust_assigner.actives.numbers import assign_numbers, count_by_member
from faust_assigner.model import NOBODY, Bools, Ints, Layout, Previous

#: (group, numbers int64[K], members int64[K]) -> bool[K].
CaughtUp: TypeAlias = Callable[[int, Ints, Ints], Bools]


class StickyAssignor:
    """The target: total balance, then group balance, then stickiness, then warmth, all exact.

    The class works in two steps: the number of tasks of each group on each member (:func:`optimal_counts`),
    then the partition numbers (:func:`assign_numbers`). Warmth is exact for the chosen counts; between
    equally good counts the choice prefers members with copies.
    """

    def assign(self, layout: Layout, previous: Previous, caught_up: CaughtUp | None = None) -> Ints:
        """Return int64[T], the owner of every task; ``NOBODY`` for the tasks without load.

        ``caught_up(group, numbers, members)`` marks the copies within the acceptable recovery lag. Moves onto
        these copies come first, and the previous round's promises are kept. Cost: O(T) numpy work, plus
        the cost of the counts.
        """
        ordinary = [g for g, group in enumerate(layout.groups) if group.adds_load]
        members = len(layout.member_ids)
        copies = [copies_of(layout, previous, g) for g in ordinary]
        last = previous.last_owner
        held = _table([count_by_member(layout.of(g, last), members) for g in ordinary], members)
        warm = _table([np.bincount(member, minlength=members) for _, member in copies], members)
        home, stays = _homes(previous, promises=caught_up is not None)
        at_home = None
        if stays is not None:
            at_home = _table(
                [count_by_member(layout.of(g, stays), members) for g in ordinary], members
            )
        if caught_up is not None and (previous.awaited != NOBODY).any():
            promised = [count_by_member(layout.of(g, previous.awaited), members) for g in ordinary]
            warm = _table(promised, members)
        counts = optimal_counts(
            _sizes(layout, ordinary),
            _allowed(layout, ordinary),
            held,
            warm,
            layout.capacity,
            at_home,
        )
        owner = np.full(layout.tasks, NOBODY, dtype=np.int64)
        for row, g in enumerate(ordinary):
            before = layout.of(g, last)
            layout.of(g, owner)[:] = assign_numbers(
                before,
                counts[row],
                held[row],
                *copies[row],
                None if home is None else layout.of(g, home),
                None if caught_up is None else partial(caught_up, g),
            )
        return owner


def _homes(previous: Previous, *, promises: bool) -> tuple[Ints | None, Ints | None]:
    """Return (preferred member of each task, owner of the task if a stay is preferred), int64[T] or None.

    A promise of the last round is a preference, and its task is the first to leave an overloaded owner. So
    repeated plans ask for the same tasks until another event (docs/explanation/algorithms.md#warm-ups).
    """
    last, home = previous.last_owner, previous.home
    if promises and (promised := previous.awaited != NOBODY).any():
        return np.where(promised, previous.awaited, home), np.where(promised, NOBODY, last)
    if not (home != NOBODY).any():
        return None, None
    return home, np.where(last == home, last, NOBODY)


def _table(rows: list[Ints], members: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(len(rows), members)


def _sizes(layout: Layout, ordinary: Sequence[int]) -> Ints:
    return np.array([layout.groups[g].partitions for g in ordinary], dtype=np.int64)


def _allowed(
    layout: Layout, ordinary: Sequence[int]
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    allowed = np.zeros((len(ordinary), len(layout.member_ids)), dtype=np.bool_)
    for row, g in enumerate(ordinary):
        allowed[row, layout.groups[g].members] = True
    return allowed
