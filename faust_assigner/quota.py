"""How many tasks of each group each member gets: total balance, group balance, stickiness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faust_assigner.model import Ints, Layout, Prior
from faust_assigner.seats import counts


def quotas(layout: Layout, ordinary: Sequence[int], prior: Prior) -> Ints:
    """int64[G, M] for the ``ordinary`` groups, rows summing to their partition counts."""
    members = len(layout.member_ids)
    held = np.zeros((len(ordinary), members), dtype=np.int64)
    for row, g in enumerate(ordinary):
        held[row] = counts(layout.of(g, prior.owner), members)
    return _evenly([layout.groups[g].partitions for g in ordinary],
                   [layout.groups[g].members for g in ordinary], held)


def _evenly(sizes: list[int], subscribers: list[Ints], held: Ints) -> Ints:
    """Floors for all, and the extras of each group to those with the fewest extras so far."""
    out = np.zeros_like(held)
    load = np.zeros(held.shape[1], dtype=np.int64)
    for g, (n, who) in enumerate(zip(sizes, subscribers, strict=True)):
        floor, extra = divmod(n, who.size)
        out[g, who] = floor
        load[who] += floor
        wants = held[g, who] <= floor
        lucky = who[np.lexsort((who, wants, load[who]))[:extra]]
        out[g, lucky] += 1
        load[lucky] += 1
    return out
