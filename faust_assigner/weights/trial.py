"""Weights tried without being used: what would have moved, and what the heaviest member would carry.

Two plans from the same claims, one that counts partitions and one that weighs them, both measured with
the weights. Pure; cost: two plans.
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
    """Counted against weighted; loads are weights per capacity, relative to the mean of the members.

    ``before``   the heaviest member as the claims stand, 0 where nobody claims anything
    ``counted``, ``weighted``  the heaviest member of either plan; 1.0 is a perfectly even group
    ``*_moves``  tasks that change hands
    ``ratio``    weighted / counted: how much lighter the heaviest member would be
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
        """Below 1.0 the weights help."""
        return self.weighted / self.counted if self.counted else 1.0

    def report(self) -> dict[str, Any]:
        """The figures by name, for people and for JSON."""
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
    """Plan with and without ``weights``; nothing is assigned. Raises what :func:`plan` raises."""
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
        before=_heaviest(previous, costs, capacity),
        counted=_heaviest(counted.flat_owner, costs, capacity),
        weighted=_heaviest(weighted.flat_owner, costs, capacity),
        counted_moves=_moves(counted),
        weighted_moves=_moves(weighted),
    )


def task_costs(groups: Sequence[Group], weights: Mapping[tuple[str, int], float]) -> Floats:
    """float64[T]: what each task weighs, the sum over the topics of its group; 1.0 where none is given.

    A weightless group's weigh nothing.
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


def _heaviest(owner: Any, costs: Floats, capacity: Floats) -> float:
    """The heaviest member's load per capacity over the mean of all; 0 where nothing is owned."""
    owned = owner >= 0
    loads = np.bincount(owner[owned], costs[owned], len(capacity))
    if not len(capacity) or not loads.sum():
        return 0.0
    return float((loads / capacity).max() * capacity.sum() / loads.sum())


def _moves(made: Plan) -> int:
    return int(
        np.count_nonzero((made.previous.owner >= 0) & (made.previous.owner != made.flat_owner))
    )
