"""Find the members that hold copies of a group's state, so that tasks can move onto copies."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Ints, Layout, Previous


def copies_of(layout: Layout, previous: Previous, g: int) -> tuple[Ints, Ints]:
    """Return (partition numbers, members) of the copies of group ``g``'s state, unique and sorted.

    Only copies on subscribers that do not own the task are returned. A copy of a changelog that follows
    group ``g`` counts too, because this changelog moves to the new owner of its source.
    """
    found = [_claimed_copies(layout, previous, g)]
    for f, follower in enumerate(layout.groups):
        if follower.follows == g:
            found += [_claimed_copies(layout, previous, f), _owner_copies(layout, previous, f)]
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


def _claimed_copies(layout: Layout, previous: Previous, g: int) -> tuple[Ints, Ints]:
    first, last = np.searchsorted(previous.copy_task, layout.start[g : g + 2])
    return previous.copy_task[first:last] - layout.start[g], previous.copy_member[first:last]


def _owner_copies(layout: Layout, previous: Previous, g: int) -> tuple[Ints, Ints]:
    owner = layout.of(g, previous.owner)
    number = np.flatnonzero(owner != NOBODY)
    return number, owner[number]
