"""Quotas -> seats: which numbers a member keeps, sheds and receives, for quotas already decided."""

from __future__ import annotations

import numpy as np

from faust_assigner.actives.warm_matching import warm_moves
from faust_assigner.model import NOBODY, Ints


def counts(owner: Ints, members: int) -> Ints:
    """int64[M]: how many of ``owner`` each member has; ``NOBODY`` is not counted."""
    return np.bincount(owner + 1, minlength=members + 1)[1:]


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


def keep_and_shed(prior: Ints, quota: Ints, held: Ints) -> Ints:
    """``prior`` with the numbers past each member's quota let go (``NOBODY``); the lowest stay.

    ``quota`` and ``held`` int64[M]: seats a member gets, numbers it had. Letting the highest go keeps
    runs whole. Cost: O(n), and a sort of only what members over quota had.
    """
    over = held > quota
    if not over.any():
        return prior.copy()
    candidates = np.flatnonzero(np.append(over, False)[prior])  # NOBODY indexes the last, False
    of = prior[candidates]
    # A stable sort of 16-bit integers is a radix sort.
    order = np.argsort(of.astype(np.uint16) if held.size <= 0xFFFF else of, kind="stable")
    of = of[order]
    shares = held[over]
    rank = np.arange(of.size) - np.repeat(np.cumsum(shares) - shares, shares)
    owner = prior.copy()
    owner[candidates[order[rank >= quota[of]]]] = NOBODY
    return owner


def fill(owner: Ints, quota: Ints) -> Ints:
    """``owner`` with every free number given out, in runs, to the members with room, by member id."""
    free = np.flatnonzero(owner < 0)
    if free.size:
        room = quota - counts(owner, quota.size)
        owner[free] = np.repeat(np.arange(quota.size), room)
    return owner

