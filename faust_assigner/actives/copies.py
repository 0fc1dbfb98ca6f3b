"""The holders of copies of a group's numbers, for the steps that place tasks warm."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Ints, Layout, Previous


def copies_of(layout: Layout, previous: Previous, g: int) -> tuple[Ints, Ints]:
    """Return (numbers, members), unique and ordered: copies of group ``g``'s state on subscribers that
    do not own the task.

    The state of a follower counts for its leader: the changelog follows the source's new owner.
    """
    found = [_copies(layout, previous, g)]
    for f, follower in enumerate(layout.groups):
        if follower.follows == g:
            found += [_copies(layout, previous, f), _owned(layout, previous, f)]
    members = len(layout.member_ids)
    keys = np.concatenate([number * members + member for number, member in found])
    if len(found) > 1:
        keys = np.unique(keys)
    if not keys.size:
        return keys, keys
    number, member = keys // members, keys % members
    subscribed = np.zeros(members, dtype=np.bool_)
    subscribed[layout.groups[g].members] = True
    spare = subscribed[member] & (layout.of(g, previous.last_owner)[number] != member)
    return number[spare], member[spare]


def _copies(layout: Layout, previous: Previous, g: int) -> tuple[Ints, Ints]:
    first, last = np.searchsorted(previous.copy_task, layout.start[g : g + 2])
    return previous.copy_task[first:last] - layout.start[g], previous.copy_member[first:last]


def _owned(layout: Layout, previous: Previous, g: int) -> tuple[Ints, Ints]:
    owner = layout.of(g, previous.owner)
    number = np.flatnonzero(owner != NOBODY)
    return number, owner[number]
