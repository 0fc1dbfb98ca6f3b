"""Followers: changelogs whose subscribers differ from their source's go where the source is."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Group, Ints, Layout
from faust_assigner.seats import counts, fill, keep_and_shed


def place_followers(layout: Layout, owner: Ints, prior: Ints) -> Ints:
    """``owner`` int64[T] with the tasks of every follower filled in; sources do not move for them."""
    placed = owner.copy()
    for g, group in enumerate(layout.groups):
        if group.follows is not None:
            leader = layout.of(group.follows, placed)
            layout.of(g, placed)[:] = _follow(group, leader, layout.of(g, prior), len(layout.member_ids))
    return placed


def _follow(group: Group, leader: Ints, prior: Ints, members: int) -> Ints:
    """Each number to its leader's owner if that one subscribes; the rest evenly, sticky."""
    subscribed = np.zeros(members + 1, dtype=bool)
    subscribed[group.members] = True
    here = np.where(subscribed[leader], leader, NOBODY)
    rest = np.flatnonzero(here < 0)
    if rest.size:
        before = prior[rest]
        held = counts(before, members)
        quota = _even(group.members, rest.size, counts(here, members), held)
        here[rest] = fill(keep_and_shed(before, quota, held), quota)
    return here


def _even(who: Ints, n: int, followed: Ints, held: Ints) -> Ints:
    """``n`` seats within one of each other; the extras where the total is low, then where they stick."""
    quota = np.zeros(held.size, dtype=np.int64)
    floor, extra = divmod(n, who.size)
    quota[who] = floor
    order = np.lexsort((who, held[who] <= floor, followed[who]))
    quota[who[order[:extra]]] += 1
    return quota
