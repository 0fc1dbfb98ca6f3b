"""Place the tasks that add no load, after all other tasks.

A changelog follows the owner of its source topic if the two topics have different subscribers. A weightless
topic, such as Faust's leader topic, stays with its previous owner.
"""

from __future__ import annotations

import numpy as np

from faust_assigner.actives.copies import copies_of
from faust_assigner.actives.numbers import assign_numbers, count_by_member
from faust_assigner.model import NOBODY, Group, Ints, Layout, Previous


def place_followers(layout: Layout, owner: Ints, previous: Previous) -> Ints:
    """Return ``owner`` int64[T] with owners for the tasks that add no load; other tasks do not change."""
    placed = owner.copy()
    for g, group in enumerate(layout.groups):
        if not group.adds_load:
            nobody = np.full(group.partitions, NOBODY, dtype=np.int64)
            leader = nobody if group.follows is None else layout.of(group.follows, placed)
            before = layout.of(g, previous.last_owner)
            copies = copies_of(layout, previous, g)
            layout.of(g, placed)[:] = _follow(group, leader, before, copies, len(layout.member_ids))
    return placed


def _follow(
    group: Group, leader: Ints, before: Ints, copies: tuple[Ints, Ints], members: int
) -> Ints:
    """Return the owners of a group: each number goes to the owner of its source number, if subscribed.

    The other numbers are spread evenly; previous owners come first, then members with a copy.
    """
    subscribed = np.zeros(members + 1, dtype=bool)
    subscribed[group.members] = True
    here = np.where(subscribed[leader], leader, NOBODY)
    rest = np.flatnonzero(here < 0)
    if rest.size:
        row = np.full(here.size, NOBODY, dtype=np.int64)
        row[rest] = np.arange(rest.size)
        number, member = copies
        open_ = row[number] != NOBODY
        number, member = row[number[open_]], member[open_]
        held = count_by_member(before[rest], members)
        warm = np.bincount(member, minlength=members)
        counts = _even_counts(group.members, rest.size, count_by_member(here, members), held, warm)
        here[rest] = assign_numbers(before[rest], counts, held, number, member)
    return here


def _even_counts(who: Ints, n: int, followed: Ints, held: Ints, warm: Ints) -> Ints:
    """Return int64[M]: ``n`` numbers spread over ``who``, so that counts differ by at most 1.

    If counts must differ, the higher counts go to members with the fewest numbers in ``followed``, then to
    previous owners, then to members with copies.
    """
    counts = np.zeros(held.size, dtype=np.int64)
    floor, extra = divmod(n, who.size)
    counts[who] = floor
    order = np.lexsort((who, -warm[who], held[who] <= floor, followed[who]))
    counts[who[order[:extra]]] += 1
    return counts
