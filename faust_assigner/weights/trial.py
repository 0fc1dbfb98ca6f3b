"""Tries weights without using them: reports the resulting moves and the load of the heaviest member.

The trial makes two plans from the same claims, one by counts and one by weights, and measures both with
the weights. No I/O. Cost: two plans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from faust_assigner.assignment import Plan
from faust_assigner.model import Floats, Group, Member
from faust_assigner.planner import plan


@dataclass(frozen=True, kw_only=True)
class TrialScore:
    """Compares the plan by counts with the plan by weights.

    Loads are weights per capacity, relative to the mean of the members.

    ``before``   the heaviest member's load under the current claims, 0 without claims
    ``counted``, ``weighted``  the heaviest member's load in either plan; 1.0 means equal loads
    ``*_moves``  tasks that change their owner
    ``ratio`` weighted / counted; below 1.0, the weights relieve the heaviest member
    """

    members: int
    tasks: int
    before: float
    counted: float
    weighted: float
    counted_moves: int
    weighted_moves: int

    @property
    def ratio(self) -> float:
        """Weighted / counted; weights help if the ratio is below 1.0."""
        return self.weighted / self.counted if self.counted else 1.0

    def report(self) -> dict[str, Any]:
        """Return the figures by name, for people and for JSON."""
        return {**asdict(self), "ratio": self.ratio}


def score(
    members: Sequence[Member],
    partitions: Mapping[str, int],
    weights: Mapping[tuple[str, int], float],
    *,
    replicas: int = 0,
    changelogs: Collection[str] = (),
    weightless: Collection[str] = (),
    previous_ids: Mapping[str, int] | None = None,
) -> TrialScore:
    """Plan with and without ``weights``; nothing is assigned. Raises the errors of :func:`plan`."""
    counted, weighted = (
        plan(
            members,
            partitions,
            replicas=replicas,
            changelogs=changelogs,
            weightless=weightless,
            weights=tried,
            previous_ids=previous_ids,
        )
        for tried in (None, weights)
    )
    capacity = counted.layout.capacity
    previous = np.concatenate([*counted.previous_owner, np.zeros(0, np.int64)]).astype(np.int64)
    costs = task_costs(counted.groups, weights)
    return TrialScore(
        members=len(capacity),
        tasks=len(costs),
        before=_heaviest_load(previous, costs, capacity),
        counted=_heaviest_load(counted.flat_owner, costs, capacity),
        weighted=_heaviest_load(weighted.flat_owner, costs, capacity),
        counted_moves=_count_moves(counted),
        weighted_moves=_count_moves(weighted),
    )


def task_costs(groups: Sequence[Group], weights: Mapping[tuple[str, int], float]) -> Floats:
    """Return float64[T]: the weight of each task, the sum over the topics of its group.

    A partition without a weight counts as 1.0. Tasks of a weightless group weigh 0.
    """
    costs = [np.zeros(0)]
    for group in groups:
        costs.append(
            np.array(
                [
                    sum(weights.get((topic, number), 1.0) for topic in group.topics)
                    * (not group.weightless)
                    for number in range(group.partitions)
                ]
            )
        )
    return np.concatenate(costs)


def _heaviest_load(owner: Any, costs: Floats, capacity: Floats) -> float:
    """Return the heaviest member's load per capacity over the mean of all; 0 if no task is owned."""
    owned = owner >= 0
    loads = np.bincount(owner[owned], costs[owned], len(capacity))
    if not len(capacity) or not loads.sum():
        return 0.0
    return float((loads / capacity).max() * capacity.sum() / loads.sum())


def _count_moves(made: Plan) -> int:
    return int(
        np.count_nonzero((made.previous.owner >= 0) & (made.previous.owner != made.flat_owner))
    )
