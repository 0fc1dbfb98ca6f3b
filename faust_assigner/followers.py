"""Place the tasks without load, last: a changelog with other subscribers than its source topic follows the
source's owner; a topic without work stays with its previous owner."""

from __future__ import annotations

import numpy as np

from faust_assigner.actives.copies import copies_of
from faust_assigner.actives.numbers import assign_numbers, count_by_member
from faust_assigner.model import NOBODY, Group, Ints, Layout, Previous


def place_followers(layout: Layout, owner: Ints, previous: Previous) -> Ints:
    """Return ``owner`` int64[T] with the tasks without load filled in; no other task moves."""
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
    """Give each number to its leader's owner, if subscribed; spread the rest evenly, sticky, then warm."""
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
        counts = _even(group.members, rest.size, count_by_member(here, members), held, warm)
        here[rest] = assign_numbers(before[rest], counts, held, number, member)
    return here


def _even(who: Ints, n: int, followed: Ints, held: Ints, warm: Ints) -> Ints:
    """Spread ``n`` numbers within 1 of each other. The extras go to members with a low total, then to
    previous owners, then to members with a warm copy."""
    counts = np.zeros(held.size, dtype=np.int64)
    floor, extra = divmod(n, who.size)
    counts[who] = floor
    order = np.lexsort((who, -warm[who], held[who] <= floor, followed[who]))
    counts[who[order[:extra]]] += 1
    return counts
