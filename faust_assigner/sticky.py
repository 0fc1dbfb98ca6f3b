"""StickyAssignor: groups + previous owners -> the target assignment of the actives (KIP-54, exact)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faust_assigner.actives.copies import copies_of
from faust_assigner.actives.counts import optimal_counts
from faust_assigner.actives.numbers import assign_numbers, count_by_member
from faust_assigner.model import NOBODY, Ints, Layout, Previous


class StickyAssignor:
    """The target: total balance, then group balance, then stickiness, then warmth, all exact.

    Two steps: how many tasks of each group each member gets (:func:`optimal_counts`), then which ones
    (:func:`assign_numbers`). Warmth is exact for the counts chosen; between equally good counts it
    leans towards members that hold copies.
    """

    def assign(self, layout: Layout, previous: Previous) -> Ints:
        """int64[T], the owner of every task; ``NOBODY`` for the tasks that add no load.

        Cost: O(T) numpy work, plus that of the counts.
        """
        ordinary = [g for g, group in enumerate(layout.groups) if group.adds_load]
        members = len(layout.member_ids)
        copies = [copies_of(layout, previous, g) for g in ordinary]
        last = previous.last_owner
        held = _table([count_by_member(layout.of(g, last), members) for g in ordinary], members)
        warm = _table([np.bincount(member, minlength=members) for _, member in copies], members)
        counts = optimal_counts(_sizes(layout, ordinary), _allowed(layout, ordinary), held, warm,
                                layout.capacity)
        owner = np.full(layout.tasks, NOBODY, dtype=np.int64)
        for row, g in enumerate(ordinary):
            before = layout.of(g, last)
            layout.of(g, owner)[:] = assign_numbers(before, counts[row], held[row], *copies[row])
        return owner


def _table(rows: list[Ints], members: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(len(rows), members)


def _sizes(layout: Layout, ordinary: Sequence[int]) -> Ints:
    return np.array([layout.groups[g].partitions for g in ordinary], dtype=np.int64)


def _allowed(layout: Layout, ordinary: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    allowed = np.zeros((len(ordinary), len(layout.member_ids)), dtype=np.bool_)
    for row, g in enumerate(ordinary):
        allowed[row, layout.groups[g].members] = True
    return allowed
