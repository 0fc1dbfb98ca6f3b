"""Promote orphans: a stateful task without a living owner goes to a member that holds its state.

Such a task may be off its target in this round.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from faust_assigner.actives.counts import rates
from faust_assigner.actives.semi_matching import Orphans, place_orphans
from faust_assigner.model import NOBODY, Bools, Floats, Ints, Layout, Previous


def promotable(layout: Layout, previous: Previous) -> Bools:
    """Return bool[T]: the stateful tasks that add load and have a copy but no owner."""
    held = np.zeros(layout.tasks, dtype=np.bool_)
    if not previous.copy_task.size:
        return held
    held[previous.copy_task] = True
    ordinary = layout.per_task(lambda group: group.is_stateful and group.adds_load)
    able: Bools = held & ordinary & (previous.owner == NOBODY)
    return able


def promote(
    layout: Layout,
    target: Ints,
    previous: Previous,
    able: Bools,
    weight: Floats | None = None,
    *,
    waiting: Bools | None = None,
    even_state: bool = False,
) -> Ints:
    """Return int64[T], this round's owners.

    A task in ``able`` goes to one of its best holders: the members with the most changelogs of the task. A
    task in ``waiting`` stays with its previous owner. Any other task goes to its ``target``, which is
    ``NOBODY`` for tasks that add no load.

    The choice among the best holders is exactly optimal. Its terms are, in order: total balance, group
    balance, tasks back at their last owner, even numbers of stateful tasks (only with ``even_state``),
    and tasks at their target. With ``weight`` float64[T] the heaviest tasks are placed first instead,
    each at its last owner or at its lightest holder.
    """
    now = target.copy()
    if waiting is not None:
        now[waiting] = previous.owner[waiting]
    if not able.any():
        return now
    now[able] = NOBODY
    task, member = _best_holders(previous, able)
    alone = np.append(True, task[1:] != task[:-1]) & np.append(task[1:] != task[:-1], True)
    now[task[alone]] = member[alone]
    task, member = task[~alone], member[~alone]
    if weight is None:
        tasks, row = np.unique(task, return_inverse=True)
        now[tasks] = place_orphans(
            _orphans(layout, now, previous, target, tasks, row, member, even_state)
        )
    else:
        _lightest(layout, now, previous, task, member, weight)
    return now


def _orphans(
    layout: Layout,
    now: Ints,
    previous: Previous,
    target: Ints,
    tasks: Ints,
    row: Ints,
    member: Ints,
    even_state: bool,
) -> Orphans:
    """Return the problem for the orphans ``tasks`` int64[N]; ``now`` has the owners of all other tasks."""
    members = len(layout.member_ids)
    groups = np.repeat(np.arange(len(layout.groups)), np.diff(layout.start))
    settled = np.zeros((len(layout.groups), members), dtype=np.int64)
    counted = now != NOBODY
    np.add.at(settled, (groups[counted], now[counted]), 1)
    stateful = np.array([group.is_stateful for group in layout.groups], dtype=np.bool_)
    return Orphans(
        group=groups[tasks],
        former=previous.former[tasks],
        target=target[tasks],
        orphan=row,
        holder=member,
        settled=settled,
        state=settled[stateful].sum(axis=0) if even_state else None,
        rate=rates(layout.capacity),
    )


def _lightest(
    layout: Layout, now: Ints, previous: Previous, task: Ints, member: Ints, weight: Floats
) -> None:
    """Write owners to ``now``, the heaviest task first: the former owner, or else the lightest holder."""
    counted = now != NOBODY
    load = np.bincount(now[counted], weight[counted], minlength=len(layout.member_ids))
    first = np.flatnonzero(np.append(True, task[1:] != task[:-1])) if task.size else task
    spans = pairwise([*first.tolist(), task.size])
    for start, end in sorted(spans, key=lambda at: (-weight[task[at[0]]], at)):
        t, who = int(task[start]), member[start:end]
        lightest = who[int(((load[who] + weight[t]) / layout.capacity[who]).argmin())]
        m = int(previous.former[t]) if previous.former[t] in who else int(lightest)
        now[t] = m
        load[m] += weight[t]


def _best_holders(previous: Previous, able: Bools) -> tuple[Ints, Ints]:
    """Return the sorted (task, member) pairs of the best copies (most changelogs) of the tasks ``able``."""
    rows = np.flatnonzero(able[previous.copy_task])
    task, member, logs = (
        previous.copy_task[rows],
        previous.copy_member[rows],
        previous.copy_logs[rows],
    )
    most = np.zeros(able.size, dtype=np.int64)
    np.maximum.at(most, task, logs)
    best = logs == most[task]
    return task[best], member[best]
