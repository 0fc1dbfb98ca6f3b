"""From the actives to the standby step's problem: which copies exist, which are wanted."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints, Layout, Prior
from faust_assigner.standby import StandbyAssignor
from faust_assigner.standby_problem import StandbyProblem


def standby_problem(layout: Layout, prior: Prior, owner: Ints, target: Ints, replicas: int) -> StandbyProblem:
    """The flat arrays of :class:`StandbyProblem` over the stateful tasks, in task order."""
    stateful = [g for g, group in enumerate(layout.groups) if group.is_stateful]
    members = len(layout.member_ids)
    tasks = stateful_tasks(layout)
    row = np.full(layout.tasks, NOBODY, dtype=np.int64)
    row[tasks] = np.arange(tasks.size)
    eligible = np.zeros((len(stateful), members), dtype=bool)
    for k, g in enumerate(stateful):
        eligible[k, layout.groups[g].members] = True
    task, member, was_standby = _copies(prior, owner, row)
    wanted = tasks[(target[tasks] != owner[tasks]) & (target[tasks] >= 0)]
    return StandbyProblem(
        owner=owner[tasks],
        group=np.repeat(np.arange(len(stateful)), np.diff(layout.start)[stateful]),
        eligible=eligible,
        held_task=row[task],
        held_member=member,
        held_was_standby=was_standby,
        wanted_task=row[wanted],
        wanted_member=target[wanted],
        rack=layout.rack,
        capacity=layout.capacity,
        load=active_load(layout, owner),
        replicas=replicas,
    )


def place_standbys(layout: Layout, prior: Prior, owner: Ints, target: Ints, replicas: int) -> Ints:
    """int64[T, R], ``NOBODY``-padded: who keeps a copy of each task; nobody where there is no state."""
    placed = np.full((layout.tasks, replicas), NOBODY, dtype=np.int64)
    tasks = stateful_tasks(layout)
    if replicas and tasks.size:
        placed[tasks] = StandbyAssignor().place(standby_problem(layout, prior, owner, target, replicas))
    return placed


def stateful_tasks(layout: Layout) -> Ints:
    """The flat numbers of all tasks that carry state, ascending."""
    return np.flatnonzero(layout.per_task(lambda group: group.is_stateful))


def active_load(layout: Layout, owner: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """float64[M]: active tasks of each member; followers add none."""
    mine = owner[layout.per_task(lambda group: group.follows is None)]
    return np.bincount(mine[mine >= 0], minlength=len(layout.member_ids)).astype(np.float64)


def _copies(prior: Prior, owner: Ints, row: Ints) -> tuple[Ints, Ints, Bools]:
    """Warm copies apart from the new owners': what was held, and what the old owners left behind."""
    vacated = np.flatnonzero((prior.owner >= 0) & (prior.owner != owner) & (row >= 0))
    task = np.concatenate((prior.held_task, vacated))
    member = np.concatenate((prior.held_member, prior.owner[vacated]))
    was_standby = np.concatenate((prior.held_was_standby, np.zeros(vacated.size, dtype=bool)))
    spare = member != owner[task]
    task, member, was_standby = task[spare], member[spare], was_standby[spare]
    order = np.lexsort((member, task))
    return task[order], member[order], was_standby[order]
