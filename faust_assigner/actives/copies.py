"""Who holds a copy of which number of a group, for the steps that want tasks to land warm."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Ints, Layout, Prior


def copies_of(layout: Layout, prior: Prior, g: int) -> tuple[Ints, Ints]:
    """(numbers, members), unique and ordered: copies of group ``g``'s state that a subscriber holds
    without owning the task.

    The state of a follower counts as its leader's: where the source lands, the changelog follows.
    """
    found = [_held(layout, prior, g)]
    for f, follower in enumerate(layout.groups):
        if follower.follows == g:
            found += [_held(layout, prior, f), _owned(layout, prior, f)]
    members = len(layout.member_ids)
    keys = np.concatenate([number * members + member for number, member in found])
    if len(found) > 1:
        keys = np.unique(keys)
    if not keys.size:
        return keys, keys
    number, member = keys // members, keys % members
    subscribed = np.zeros(members, dtype=np.bool_)
    subscribed[layout.groups[g].members] = True
    spare = subscribed[member] & (layout.of(g, prior.owner)[number] != member)
    return number[spare], member[spare]


def _held(layout: Layout, prior: Prior, g: int) -> tuple[Ints, Ints]:
    first, last = np.searchsorted(prior.held_task, layout.start[g : g + 2])
    return prior.held_task[first:last] - layout.start[g], prior.held_member[first:last]


def _owned(layout: Layout, prior: Prior, g: int) -> tuple[Ints, Ints]:
    owner = layout.of(g, prior.owner)
    number = np.flatnonzero(owner != NOBODY)
    return number, owner[number]
