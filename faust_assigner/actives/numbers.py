"""Choose the partition numbers that each member keeps, gives up and receives, for given counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from faust_assigner.actives.homing import bring_home
from faust_assigner.actives.warm_matching import match_warm
from faust_assigner.model import NOBODY, Bools, Ints


def count_by_member(owner: Ints, members: int) -> Ints:
    """Return int64[M]: the number of entries of each member in ``owner``; ``NOBODY`` is not counted."""
    return np.bincount(owner + 1, minlength=members + 1)[1:]


def assign_numbers(
    before: Ints,
    counts: Ints,
    held: Ints,
    number: Ints,
    member: Ints,
    home: Ints | None = None,
    caught_up: Callable[[Ints, Ints], Bools] | None = None,
) -> Ints:
    """Return int64[n], the owners of a group's numbers.

    The steps are: keep numbers, give up surplus numbers, move numbers onto copies, return numbers
    home, and assign the remaining numbers in contiguous runs.

    ``before`` int64[n]: previous owners. ``counts``, ``held`` int64[M]: how many numbers a member gets,
    and how many it had. ``number``, ``member``: the copies and their holders. ``home`` int64[n]: the
    preferred member of each number, or ``NOBODY``. ``caught_up`` marks the copies that have priority.
    """
    first = np.zeros(number.size, dtype=np.bool_)
    if caught_up is not None and number.size and (held != counts).any():
        may = np.flatnonzero(
            (counts > held)[member] & np.append(held > counts, True)[before[number]]
        )
        first[may] = caught_up(number[may], member[may])
    owner = _keep_and_place_warm(before, counts, held, number, member, first)
    if first.any() or (home is not None and (home != NOBODY).any()):
        nowhere = np.full(before.size, NOBODY, dtype=np.int64) if home is None else home
        return bring_home(before, owner, counts.size, number, member, nowhere, first)
    return owner


def _keep_and_place_warm(
    before: Ints, counts: Ints, held: Ints, number: Ints, member: Ints, first: Bools
) -> Ints:
    spare, room = np.maximum(held - counts, 0), np.maximum(counts - held, 0)
    warm_number, warm_member = match_warm(before, spare, room, number, member)
    if first.any():
        early, to = match_warm(before, spare, room, number[first], member[first])
        if early.size:
            left = np.ones(before.size, dtype=np.bool_)
            left[early] = False
            spare -= count_by_member(before[early], counts.size)
            room -= count_by_member(to, counts.size)
            open_ = left[number]
            late, at = match_warm(
                np.where(left, before, NOBODY), spare, room, number[open_], member[open_]
            )
            warm_number, warm_member = np.append(early, late), np.append(to, at)
    if not warm_number.size:
        return fill(keep_and_shed(before, counts, held), counts)
    rest = before.copy()
    rest[warm_number] = NOBODY
    rest = keep_and_shed(rest, counts, count_by_member(rest, counts.size))
    rest[warm_number] = warm_member
    return fill(rest, counts)


def keep_and_shed(before: Ints, counts: Ints, held: Ints) -> Ints:
    """Return ``before`` with each member's surplus numbers freed (``NOBODY``), the highest numbers first.

    ``counts`` and ``held`` int64[M]: how many numbers a member gets, and how many it had. Freeing the
    highest numbers keeps contiguous runs. Cost: O(n), and a sort of the numbers of members above their
    count.
    """
    over = held > counts
    if not over.any():
        return before.copy()
    # NOBODY (-1) indexes the last entry, which is False.
    candidates = np.flatnonzero(np.append(over, False)[before])
    of = before[candidates]
    # A stable sort of 16-bit integers is a radix sort.
    order = np.argsort(of.astype(np.uint16) if held.size <= 0xFFFF else of, kind="stable")
    of = of[order]
    shares = held[over]
    rank = np.arange(of.size) - np.repeat(np.cumsum(shares) - shares, shares)
    owner = before.copy()
    owner[candidates[order[rank >= counts[of]]]] = NOBODY
    return owner


def fill(owner: Ints, counts: Ints) -> Ints:
    """Assign each free number in ``owner`` to members with room, in contiguous runs, by member id."""
    free = np.flatnonzero(owner < 0)
    if free.size:
        room = counts - count_by_member(owner, counts.size)
        owner[free] = np.repeat(np.arange(counts.size), room)
    return owner
