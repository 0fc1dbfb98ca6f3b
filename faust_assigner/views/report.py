"""Computes the figures of a plan, to compare plans."""

from __future__ import annotations

from typing import Any

import numpy as np

from faust_assigner.actives.numbers import count_by_member
from faust_assigner.model import NOBODY, Ints
from faust_assigner.standbys.derive import active_load, derive_problem, stateful_tasks
from faust_assigner.standbys.failover import Deaths, measure
from faust_assigner.views.placed import Placed

#: The meaning of each figure, in the order of a printed report.
MEANINGS = {
    "members": "members",
    "idle_members": "subscribed members without a task",
    "tasks": "tasks, followers' tasks excluded",
    "load_min": "fewest active tasks on a subscribed member",
    "load_max": "most active tasks on a member",
    "group_spread": "most minus fewest tasks of one group on its subscribers, worst group",
    "moves": "tasks taken from a living, subscribed owner",
    "moves_minimum": "the fewest moves that the same balance allows",
    "cold_moves": "stateful tasks on a member that had none of their state",
    "promoted": "orphaned tasks that went to a copy of their state",
    "off_target": "tasks whose target is a different member; they move later, warm",
    "waiting": "the off-target tasks whose owner keeps them until the target member has caught up",
    "warmups": "replicas beyond the standbys that catch up to become the owner",
    "standby_min": "fewest standbys on a possible holder",
    "standby_max": "most standbys on a member",
    "standby_spread": "the difference",
    "standby_fresh": "standbys restored from nothing",
    "worst_after_member_death": "heaviest survivor of any member's death",
    "ideal_after_member_death": "the lowest possible value of worst_after_member_death",
    "worst_after_rack_death": "heaviest survivor of any rack's death",
    "ideal_after_rack_death": "the lowest possible value of worst_after_rack_death",
    "weight_max": "heaviest member, in weights / capacity",
    "weight_bound": "a lower bound of weight_max over all plans",
    "weight_gap": "(weight_max - weight_bound) / weight_bound",
}


class Report(dict[str, Any]):
    """A plan's figures by name (the names of ``MEANINGS``, and ``groups``); prints as a table.

    ``groups`` has a row for each group: its id, topics and partitions, and the fewest and the most
    tasks of the group on a subscriber. A figure that does not apply (without racks, weights or
    standbys) is ``None``.
    """

    def __str__(self) -> str:
        rows = [
            (name, self[name], meaning)
            for name, meaning in MEANINGS.items()
            if self[name] is not None
        ]
        lines = [f"{name:<26}{_shown(value):>10}  {meaning}" for name, value, meaning in rows]
        lines += [
            f"group {row['id']:<20}{row['min']:>4}..{row['max']:<4}  {', '.join(row['topics'])}"
            for row in self["groups"]
        ]
        return "\n".join(lines)


def _shown(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def report(plan: Placed) -> Report:
    """Compute every figure of ``MEANINGS``. Cost: O(tasks + members^2)."""
    found = Report(dict.fromkeys(MEANINGS))
    found.update(_active_figures(plan))
    found.update(_movement_figures(plan))
    if plan.replicas and stateful_tasks(plan.layout).size:
        found.update(_standby_figures(plan))
    if plan.weighed is not None:
        found.update(plan.weighed.figures(plan.flat_owner))
    return found


def _active_figures(plan: Placed) -> dict[str, Any]:
    layout = plan.layout
    load = active_load(layout, plan.flat_owner)
    ordinary = [group for group in layout.groups if group.adds_load]
    subscribed = np.zeros(load.size, dtype=np.bool_)
    for group in ordinary:
        subscribed[group.members] = True
    mine = load[subscribed]
    rows: list[dict[str, Any]] = []
    for group, owner in zip(layout.groups, plan.owner, strict=True):
        counts = count_by_member(owner, load.size)[group.members]
        rows.append(
            {
                "id": group.group_id,
                "topics": group.topics,
                "partitions": group.partitions,
                "min": int(counts.min()),
                "max": int(counts.max()),
            }
        )
    return {
        "members": load.size,
        "idle_members": int((mine == 0).sum()),
        "tasks": int(load.sum()),
        "load_min": int(mine.min()) if mine.size else 0,
        "load_max": int(mine.max(initial=0)),
        "group_spread": max((row["max"] - row["min"] for row in rows), default=0),
        "groups": rows,
    }


def _movement_figures(plan: Placed) -> dict[str, object]:
    before = plan.previous.owner
    ordinary = plan.layout.per_task(lambda group: group.adds_load)
    unweighed = int(np.count_nonzero(~ordinary & (before != NOBODY) & (before != plan.flat_owner)))
    return {
        "moves": plan.moves,
        "moves_minimum": _count_moved(before[ordinary], plan.flat_counted_target[ordinary])
        + unweighed,
        "cold_moves": int(np.count_nonzero(plan.flat_cold)),
        "promoted": int(np.count_nonzero(plan.promoted)),
        "off_target": int(np.count_nonzero(plan.flat_owner != plan.flat_target)),
        **_warming_figures(plan),
    }


def _warming_figures(plan: Placed) -> dict[str, object]:
    if plan.waiting is None:
        return {}
    return {
        "waiting": int(np.count_nonzero(plan.waiting)),
        "warmups": int(np.count_nonzero(plan.flat_warmup != NOBODY)),
    }


def _count_moved(before: Ints, after: Ints) -> int:
    return int(np.count_nonzero((before != NOBODY) & (before != after)))


def _standby_figures(plan: Placed) -> dict[str, object]:
    problem = derive_problem(
        plan.layout, plan.previous, plan.flat_owner, plan.flat_target, plan.replicas
    )
    standbys = plan.flat_standby[stateful_tasks(plan.layout)]
    figures = measure(problem, standbys)
    held = count_by_member(standbys.reshape(-1), problem.members)[problem.eligible.any(axis=0)]
    return {
        "standby_min": int(held.min()),
        "standby_max": int(held.max()),
        "standby_spread": figures.spread,
        "standby_fresh": figures.fresh_copies,
        **_death_figures("member", figures.member_death),
        **(_death_figures("rack", figures.rack_death) if figures.rack_death is not None else {}),
    }


def _death_figures(who: str, deaths: Deaths) -> dict[str, object]:
    return {f"worst_after_{who}_death": deaths.worst, f"ideal_after_{who}_death": deaths.ideal}
