"""Derive the input of the standby step from the actives: existing copies and wanted standbys."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints, Layout, Previous
from faust_assigner.standbys.problem import StandbyProblem
from faust_assigner.standbys.shares import settled_racks


def derive_problem(
    layout: Layout, previous: Previous, owner: Ints, target: Ints, replicas: int
) -> StandbyProblem:
    """Build the flat arrays of :class:`StandbyProblem` over the stateful tasks, in task order."""
    stateful = [g for g, group in enumerate(layout.groups) if group.is_stateful]
    members = len(layout.member_ids)
    tasks = stateful_tasks(layout)
    row = np.full(layout.tasks, NOBODY, dtype=np.int64)
    row[tasks] = np.arange(tasks.size)
    eligible = np.zeros((len(stateful), members), dtype=bool)
    for k, g in enumerate(stateful):
        eligible[k, layout.groups[g].members] = True
    task, member, was_standby = _existing_copies(previous, owner, row)
    group = np.repeat(np.arange(len(stateful)), np.diff(layout.start)[stateful])
    away = np.flatnonzero((target[tasks] != owner[tasks]) & (target[tasks] >= 0))
    afford = _may_have_target_standby(
        layout.rack, eligible, group, away, owner[tasks], target[tasks], replicas
    )
    wanted = tasks[away[afford]]
    return StandbyProblem(
        owner=owner[tasks],
        group=group,
        eligible=eligible,
        copy_task=row[task],
        copy_member=member,
        copy_was_standby=was_standby,
        wanted_task=row[wanted],
        wanted_member=target[wanted],
        rack=layout.rack,
        capacity=layout.capacity,
        load=active_load(layout, owner),
        replicas=replicas,
    )


def _may_have_target_standby(
    racks: Ints, eligible: Bools, group: Ints, away: Ints, owner: Ints, target: Ints, replicas: int
) -> Bools:
    """Return bool[W]: the tasks ``away`` from their target that may have a standby on their target member.

    Such a standby must not be in the active's rack while other racks have room, and must not give a member
    more standbys than its even share. A task without this standby moves to its target later.
    """
    rack, _ = settled_racks(racks)
    need = np.minimum(replicas, np.maximum(eligible.sum(axis=1) - 1, 0))
    same = rack[target[away]] == rack[owner[away]]
    inside = np.array(
        [
            [int((row & (rack == r)).sum()) for r in range(rack.max(initial=0) + 1)]
            for row in eligible
        ]
    ).reshape(len(eligible), -1)
    outside = eligible.sum(axis=1)[group[away]] - inside[group[away], rack[owner[away]]]
    apart = ~same | (outside < need[group[away]])
    share = int(need[group].sum()) // max(1, int(eligible.any(axis=0).sum()))
    order = np.lexsort((away, target[away], ~apart))
    mine = target[away][order]
    first = np.append(True, mine[1:] != mine[:-1]) if mine.size else np.zeros(0, dtype=np.bool_)
    start = np.maximum.accumulate(np.where(first, np.arange(mine.size), 0)) if mine.size else mine
    allowed = np.zeros(away.size, dtype=np.bool_)
    allowed[order] = np.arange(mine.size) - start < share
    affordable: Bools = allowed & apart
    return affordable


def stateful_tasks(layout: Layout) -> Ints:
    """Return the flat indexes of all stateful tasks, ascending."""
    return np.flatnonzero(layout.per_task(lambda group: group.is_stateful))


def active_load(layout: Layout, owner: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return float64[M]: the number of active tasks of each member, without tasks that add no load."""
    mine = owner[layout.per_task(lambda group: group.adds_load)]
    return np.bincount(mine[mine >= 0], minlength=len(layout.member_ids)).astype(np.float64)


def _existing_copies(previous: Previous, owner: Ints, row: Ints) -> tuple[Ints, Ints, Bools]:
    """Return the copies on members other than the new owners: previous copies, and former actives' state."""
    vacated = np.flatnonzero((previous.owner >= 0) & (previous.owner != owner) & (row >= 0))
    task = np.concatenate((previous.copy_task, vacated))
    member = np.concatenate((previous.copy_member, previous.owner[vacated]))
    was_standby = np.concatenate((previous.copy_was_standby, np.zeros(vacated.size, dtype=bool)))
    spare = member != owner[task]
    task, member, was_standby = task[spare], member[spare], was_standby[spare]
    order = np.lexsort((member, task))
    return task[order], member[order], was_standby[order]
