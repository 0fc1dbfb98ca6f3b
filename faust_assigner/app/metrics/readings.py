"""Reads one worker's gauges and the counters of other packages; runs on the app's thread."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from faust_assigner import __version__
from faust_assigner.app.consumer.waits import COMMIT, HAND_OVER, REVOCATION, waits_of
from faust_assigner.app.metrics.book import Series
from faust_assigner.app.metrics.copies import Lag
from faust_assigner.app.metrics.figures import COUNTED
from faust_assigner.app.metrics.stalled import StalledPartition, unreadable
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.outcome import loads
from faust_assigner.app.recovery.unreadable import unreadable_of
from faust_assigner.app.tables.files import corrupt_folders
from faust_assigner.model import NOBODY
from faust_assigner.planner import Plan
from faust_assigner.warmup import Progress, WarmupPolicy

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tuples import TP

#: The label values of a figure without labels.
_BARE: tuple[str, ...] = ()


def worker(app: AppT) -> dict[str, Series]:
    """Read this worker's figures that need no request. Cost: O(partitions of the worker)."""
    assignor, changelogs = app.assignor, app.tables._changelogs
    actives, standbys = assignor.assigned_actives(), assignor.assigned_standbys()
    found: dict[str, Series] = {
        "info": {(__version__,): 1.0},
        "owned_partitions": {_BARE: len(actives)},
        "standby_partitions": {_BARE: len(standbys)},
        "warmup_partitions": {_BARE: len(assignor.awaited.tps)},
        "owned_changelog_partition": {_place(tp): 1.0 for tp in actives if tp.topic in changelogs},
        "unreadable_partitions": {_BARE: len(unreadable(app._consumer))},
        "corrupt_folders": {_BARE: corrupt_folders(app)},
        "unreadable_records": {_BARE: sum(unreadable_of(app).counts.values())},
        **{figure.name: {_BARE: float(assignor.counters[key])} for key, figure in COUNTED.items()},
    }
    fence = getattr(app._consumer, "fence", None)
    if fence is not None:
        found["fences"] = {_BARE: fence.losses}
        if assignor.generation >= 0:
            found["group_silent_seconds"] = {_BARE: fence.silent_s()}
    return found | _wait_figures(app) | _restore(app)


def _wait_figures(app: AppT) -> dict[str, Series]:
    waits = waits_of(app)
    ages = {
        "commit_age_seconds": waits.age_s(COMMIT),
        "revocation_age_seconds": waits.age_s(REVOCATION, HAND_OVER),
    }
    return {name: {_BARE: age} for name, age in ages.items() if age is not None}


def _restore(app: AppT) -> dict[str, Series]:
    progress = getattr(app.tables.recovery, "progress", None)
    if progress is None:
        return {}
    figures = progress.figures()
    found: dict[str, Series] = {
        "restore_remaining_records": {_BARE: figures.remaining},
        "restored_records": {_BARE: progress.total},
    }
    if figures.eta_s is not None:
        found["restore_remaining_seconds"] = {_BARE: figures.eta_s}
    return found


def standing(still: Sequence[StalledPartition], now: float) -> dict[str, Series]:
    """Return the figures of partitions that are not processed."""
    counts = Counter(one.reason for one in still)
    return {
        "standing_partitions": {(reason,): count for reason, count in counts.items()},
        "standing_seconds": {(*_place(one.tp), one.reason): now - one.since for one in still},
    }


def copies(lags: Mapping[TP, Lag]) -> dict[str, Series]:
    """Return the lags of copies, in records and seconds."""
    return {
        "standby_lag_records": {_place(tp): records for tp, (records, _) in lags.items()},
        "standby_lag_seconds": {_place(tp): seconds for tp, (_, seconds) in lags.items()},
    }


def disk(folder: Path) -> tuple[int, int] | None:
    """Return (free bytes, size) of the tables' file system; None if unreadable. May block."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free, usage.total


def disk_figures(free: int, size: int) -> dict[str, Series]:
    """Return the figures of the tables' file system."""
    return {"disk_free_bytes": {_BARE: free}, "disk_size_bytes": {_BARE: size}}


def decision(inputs: DecisionInputs, plan: Plan) -> dict[str, Series]:
    """Return the figures that only the leader of a round knows. Cost: O(tasks)."""
    return {
        "members": {_BARE: len(inputs.members)},
        "tasks": {_BARE: int(np.count_nonzero(loads(plan)))},
        "off_target_tasks": {_BARE: int(np.count_nonzero(plan.flat_owner != plan.flat_target))},
        "warming_tasks": {_BARE: int(np.count_nonzero(plan.flat_warmup != NOBODY))},
        "uncovered_tasks": {_BARE: uncovered(inputs, plan)},
    }


def uncovered(inputs: DecisionInputs, plan: Plan) -> int:
    """Return how many stateful tasks have no caught-up copy on a member other than the owner.

    A copy counts if its member reported it, its lag is acceptable, and the member keeps it.
    """
    layout, previous = plan.layout, plan.previous
    by_id = {m.member_id: m for m in inputs.members}
    members = [by_id[member_id] for member_id in plan.member_ids]
    progress = Progress(layout, members, previous, inputs.warmups or WarmupPolicy())
    covered = np.zeros(layout.tasks, dtype=np.bool_)
    keeps = np.column_stack((plan.flat_standby, plan.flat_warmup))
    for g in range(len(layout.groups)):
        first, last = np.searchsorted(previous.copy_task, layout.start[g : g + 2]).tolist()
        task, member = previous.copy_task[first:last], previous.copy_member[first:last]
        if task.size:
            kept = (keeps[task] == member[:, None]).any(axis=1)
            near = progress.caught_up(g, task - layout.start[g], member)
            covered[task[kept & near]] = True
    stateful = layout.per_task(lambda group: group.is_stateful)
    return int(np.count_nonzero(stateful & ~covered))


def _place(tp: TP) -> tuple[str, str]:
    return tp.topic, str(tp.partition)
