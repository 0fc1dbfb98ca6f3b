"""StickyAssignor: compute the target of the actives from groups and previous owners (KIP-54, exact)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from faust_assigner.actives.copies import copies_of
from faust_assigner.actives.counts import optimal_counts
from faust_assigner.actives.numbers import assign_numbers, count_by_member
from faust_assigner.model import NOBODY, Bools, Ints, Layout, Previous

#: (group, numbers int64[K], members int64[K]) -> bool[K]: whether each member's copy has caught up.
CaughtUp: TypeAlias = Callable[[int, Ints, Ints], Bools]


class StickyAssignor:
    """Computes the target: exactly optimal in total balance, then group balance, stickiness and warmth.

    Warmth is the number of moving tasks that go to a member with a copy of their state. The first step is the
    number of tasks of each group on each member (:func:`optimal_counts`); the second step is the partition
    numbers (:func:`assign_numbers`). Warmth is exact for the chosen counts; among equally good counts, the
    first step prefers members with copies.
    """

    def assign(self, layout: Layout, previous: Previous, caught_up: CaughtUp | None = None) -> Ints:
        """Return int64[T], the owner of each task; ``NOBODY`` for tasks that add no load.

        ``caught_up(group, numbers, members)`` marks the copies within the acceptable recovery lag; moves onto
        these copies come first. With ``caught_up``, moves that the previous round announced
        (``previous.awaited``) are preferred too. Cost: O(T) numpy work, plus the cost of the counts.
        """
        ordinary = [g for g, group in enumerate(layout.groups) if group.adds_load]
        members = len(layout.member_ids)
        copies = [copies_of(layout, previous, g) for g in ordinary]
        last = previous.last_owner
        held = _count_table(
            [count_by_member(layout.of(g, last), members) for g in ordinary], members
        )
        warm = _count_table(
            [np.bincount(member, minlength=members) for _, member in copies], members
        )
        home, stays = _preferred_members(previous, promises=caught_up is not None)
        at_home = None
        if stays is not None:
            at_home = _count_table(
                [count_by_member(layout.of(g, stays), members) for g in ordinary], members
            )
        if caught_up is not None and (previous.awaited != NOBODY).any():
            promised = [count_by_member(layout.of(g, previous.awaited), members) for g in ordinary]
            warm = _count_table(promised, members)
        counts = optimal_counts(
            _group_sizes(layout, ordinary),
            _allowed_members(layout, ordinary),
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


def _preferred_members(previous: Previous, *, promises: bool) -> tuple[Ints | None, Ints | None]:
    """Return (preferred member of each task, owner of each task that should stay), each int64[T] or None.

    With ``promises``, a task whose move the last round announced prefers its announced member, and leaves an
    overloaded owner first. So repeated plans move the same tasks until another event occurs
    (docs/explanation/algorithms.md#warm-ups).
    """
    last, home = previous.last_owner, previous.home
    if promises and (promised := previous.awaited != NOBODY).any():
        return np.where(promised, previous.awaited, home), np.where(promised, NOBODY, last)
    if not (home != NOBODY).any():
        return None, None
    return home, np.where(last == home, last, NOBODY)


def _count_table(rows: list[Ints], members: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(len(rows), members)


def _group_sizes(layout: Layout, ordinary: Sequence[int]) -> Ints:
    return np.array([layout.groups[g].partitions for g in ordinary], dtype=np.int64)


def _allowed_members(
    layout: Layout, ordinary: Sequence[int]
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    allowed = np.zeros((len(ordinary), len(layout.member_ids)), dtype=np.bool_)
    for row, g in enumerate(ordinary):
        allowed[row, layout.groups[g].members] = True
    return allowed
