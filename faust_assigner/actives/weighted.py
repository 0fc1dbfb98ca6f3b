"""The weights of tasks, the weighted loads of members, and a lower bound of the heaviest load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from faust_assigner.model import NOBODY, Floats, Ints, Layout


def weigh(layout: Layout, weights: Any) -> Weighed | None:
    """Return the weight of each task: the sum of ``weights[topic, partition]`` over its topics.

    A missing weight, or a weight that is not positive and finite, counts as 1.0. Returns ``None`` if all
    weights are 1.0: then the target by counts is exact, and the heuristic is not needed.
    """
    if not isinstance(weights, Mapping) or not weights:
        return None
    weight = np.repeat(
        np.array([len(g.topics) for g in layout.groups], dtype=np.float64), np.diff(layout.start)
    )
    place = {
        topic: (int(layout.start[g]), group.partitions)
        for g, group in enumerate(layout.groups)
        for topic in group.topics
    }
    told = False
    for key, cost in weights.items():
        known = place.get(key[0]) if isinstance(key, tuple) and len(key) == 2 else None
        if known is None or type(key[1]) is not int or not 0 <= key[1] < known[1]:
            continue
        if isinstance(cost, (int, float)) and 0 < cost < math.inf and cost != 1.0:
            weight[known[0] + key[1]] += cost - 1.0
            told = True
    return Weighed(layout, weight) if told else None


@dataclass(frozen=True)
class Weighed:
    """The weights float64[T] of the tasks of ``layout``; a follower adds its weight to its owner's load."""

    layout: Layout
    weight: Floats

    def load(self, owner: Ints) -> Floats:
        """Return float64[M]: the sum of the weights on each member."""
        placed = owner != NOBODY
        load = np.bincount(
            owner[placed], self.weight[placed], minlength=len(self.layout.member_ids)
        )
        return load.astype(np.float64)

    def max_relative_load(self, owner: Ints) -> float:
        """Return the load / capacity of the heaviest member."""
        return float((self.load(owner) / self.layout.capacity).max(initial=0.0))

    def bound(self) -> float:
        """Return a lower bound of the heaviest member's weight / capacity over all plans."""
        capacity = np.sort(self.layout.capacity)[::-1]
        ordinary = self.weight[self.layout.per_task(lambda group: group.adds_load)]
        if not ordinary.size or not capacity.size:
            return 0.0
        heaviest = np.sort(ordinary)[::-1]
        bounds = [float(ordinary.sum() / capacity.sum()), float(heaviest[0] / capacity[0])]
        if heaviest.size > capacity.size:  # some member gets two of the M + 1 heaviest tasks
            bounds.append(
                float(heaviest[capacity.size - 1 : capacity.size + 1].sum() / capacity[0])
            )
        return max(bounds)

    def figures(self, owner: Ints) -> dict[str, float]:
        """Return the heaviest member's load / capacity, the lower bound, and the relative gap."""
        counted = np.where(self.layout.per_task(lambda group: group.adds_load), owner, NOBODY)
        top = self.max_relative_load(counted)
        bound = self.bound()
        return {
            "weight_max": top,
            "weight_bound": bound,
            "weight_gap": top / bound - 1 if bound else 0.0,
        }
