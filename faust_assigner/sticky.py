"""StickyAssignor: groups + prior owners -> the target assignment of the actives (KIP-54, exact)."""

from __future__ import annotations

import numpy as np

from faust_assigner import quota, seats
from faust_assigner.model import NOBODY, Ints, Layout, Prior


class StickyAssignor:
    """The target: total balance, then group balance, then stickiness, then warmth, all exact."""

    def assign(self, layout: Layout, prior: Prior) -> Ints:
        """int64[T], the owner of every task; ``NOBODY`` for the tasks of followers."""
        ordinary = [g for g, group in enumerate(layout.groups) if group.follows is None]
        quotas = quota.quotas(layout, ordinary, prior)
        owner = np.full(layout.tasks, NOBODY, dtype=np.int64)
        for row, g in enumerate(ordinary):
            before = layout.of(g, prior.owner)
            held = seats.counts(before, len(layout.member_ids))
            kept = seats.keep_and_shed(before, quotas[row], held)
            layout.of(g, owner)[:] = seats.fill(kept, quotas[row])
        return owner
