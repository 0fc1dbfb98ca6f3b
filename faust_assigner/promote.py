"""This round: an orphaned stateful task goes where its state lives, even against the target."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints, Layout, Prior


def promotable(layout: Layout, prior: Prior) -> Bools:
    """bool[T]: stateful tasks of ordinary groups whose owner is gone while a copy lives."""
    held = np.zeros(layout.tasks, dtype=bool)
    held[prior.held_task] = True
    ordinary = layout.per_task(lambda group: group.is_stateful and group.follows is None)
    able: Bools = held & ordinary & (prior.owner == NOBODY)
    return able


def promote(layout: Layout, target: Ints, prior: Prior, able: Bools) -> Ints:
    """This round's owners, int64[T]: the target, but every promotable task on one of its best holders.

    Best are those with most of the task's changelogs; among them the loads come out as even as they
    can (least sum of load^2 / capacity), then the target member if it is one of them, then the lowest
    member id. Cost: near-linear in the promoted tasks.
    """
    if not able.any():
        return target
    now = target.copy()
    now[able] = NOBODY
    load = np.bincount(now[now >= 0], minlength=len(layout.member_ids)).astype(np.int64)
    pick = np.flatnonzero(able[prior.held_task])
    for task in np.flatnonzero(able).tolist():
        mine = pick[prior.held_task[pick] == task]
        best = mine[prior.held_logs[mine] == prior.held_logs[mine].max()]
        members = prior.held_member[best].tolist()
        m = min(members, key=lambda m: ((load[m] + 1) / layout.capacity[m], m != target[task], m))
        now[task] = m
        load[m] += 1
    return now
