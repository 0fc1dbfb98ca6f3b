"""StickyAssignor: groups + prior owners -> the target assignment of the actives (KIP-54, exact)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faust_assigner.model import NOBODY, Ints, Layout, Prior
from faust_assigner.quota import quotas
from faust_assigner.seats import counts, fill, keep_and_shed
from faust_assigner.warmth import warm_moves

_NO_PAIRS: tuple[Ints, Ints] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


class StickyAssignor:
    """The target: total balance, then group balance, then stickiness, then warmth, all exact.

    Two steps: how many tasks of each group each member gets (:func:`quotas`), then which ones
    (:func:`seats`). Warmth is exact for the quotas chosen; between equally good quotas it leans
    towards members that hold copies.
    """

    def assign(self, layout: Layout, prior: Prior) -> Ints:
        """int64[T], the owner of every task; ``NOBODY`` for the tasks of followers.

        Cost: O(T) numpy work, plus the quotas'.
        """
        ordinary = [g for g, group in enumerate(layout.groups) if group.follows is None]
        members = len(layout.member_ids)
        copies = [_copies(layout, prior, g) for g in ordinary]
        held = _table([counts(layout.of(g, prior.owner), members) for g in ordinary], members)
        warm = _table([np.bincount(member, minlength=members) for _, member in copies], members)
        quota = quotas(_sizes(layout, ordinary), _allowed(layout, ordinary), held, warm, layout.capacity)
        owner = np.full(layout.tasks, NOBODY, dtype=np.int64)
        for row, g in enumerate(ordinary):
            layout.of(g, owner)[:] = seats(layout.of(g, prior.owner), quota[row], held[row], *copies[row])
        return owner


def seats(before: Ints, quota: Ints, held: Ints, number: Ints, member: Ints) -> Ints:
    """int64[n], the owners of one group's numbers: keep, shed, land warm, fill in runs.

    ``before`` int64[n]; ``quota``, ``held`` int64[M]; ``number``, ``member``: who holds copies.
    """
    spare = np.maximum(held - quota, 0)
    warm_number, warm_member = warm_moves(before, spare, np.maximum(quota - held, 0), number, member)
    if not warm_number.size:
        return fill(keep_and_shed(before, quota, held), quota)
    rest = before.copy()
    rest[warm_number] = NOBODY
    rest = keep_and_shed(rest, quota, counts(rest, quota.size))
    rest[warm_number] = warm_member
    return fill(rest, quota)


def _copies(layout: Layout, prior: Prior, g: int) -> tuple[Ints, Ints]:
    """(number, member) of every copy of group g's state its subscribers hold without owning the task.

    The state of a follower counts as its leader's: where the source lands, the changelog follows.
    """
    found = [_own_copies(layout, prior, g)]
    for f, follower in enumerate(layout.groups):
        if follower.follows == g:
            found += [_own_copies(layout, prior, f), _owned(layout, prior, f)]
    found = [pair for pair in found if pair[0].size]
    if not found:
        return _NO_PAIRS
    members = len(layout.member_ids)
    keys = np.unique(np.concatenate([number * members + member for number, member in found]))
    number, member = keys // members, keys % members
    subscribed = np.zeros(members, dtype=np.bool_)
    subscribed[layout.groups[g].members] = True
    spare = subscribed[member] & (layout.of(g, prior.owner)[number] != member)
    return number[spare], member[spare]


def _own_copies(layout: Layout, prior: Prior, g: int) -> tuple[Ints, Ints]:
    first, last = np.searchsorted(prior.held_task, layout.start[g : g + 2])
    return prior.held_task[first:last] - layout.start[g], prior.held_member[first:last]


def _owned(layout: Layout, prior: Prior, g: int) -> tuple[Ints, Ints]:
    owner = layout.of(g, prior.owner)
    number = np.flatnonzero(owner != NOBODY)
    return number, owner[number]


def _table(rows: list[Ints], members: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(len(rows), members)


def _sizes(layout: Layout, ordinary: Sequence[int]) -> Ints:
    return np.array([layout.groups[g].partitions for g in ordinary], dtype=np.int64)


def _allowed(layout: Layout, ordinary: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    allowed = np.zeros((len(ordinary), len(layout.member_ids)), dtype=np.bool_)
    for row, g in enumerate(ordinary):
        allowed[row, layout.groups[g].members] = True
    return allowed
