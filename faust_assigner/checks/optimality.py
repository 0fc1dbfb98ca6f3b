"""Check, without a solver, that the number of tasks per group and member is optimal.

Counts are optimal in (total balance, group balance, stickiness) exactly if no cycle of single-task transfers
improves this tuple. Such a cycle is a negative cycle in the flow's residual graph, whose nodes are groups,
members and a sink (Ahuja, Magnanti, Orlin: Network Flows, 9.3). Bellman-Ford finds a negative cycle or
proves that there is none. The three terms are checked in turn. Each term is checked over the arcs of reduced
cost zero, which an optimum of the earlier terms may still use; so the terms need no common integer.
docs/explanation/algorithms.md#the-certificate lists the limits of this check.
"""

from __future__ import annotations

import numpy as np

from faust_assigner.model import Bools, Ints

_FAR = np.int64(1) << 60


def improving_cycle(counts: Ints, allowed: Bools, had: Ints, rate: Ints) -> str | None:
    """Return the first term that a cycle of transfers would improve, or ``None``.

    ``counts``, ``had`` int64[G, M]: tasks of each group on each member, now and before; ``allowed``
    bool[G, M]: subscriptions; ``rate`` int64[M]: proportional to 1 / capacity. Cost: O(G x M) per round of
    Bellman-Ford, and few rounds if the counts are optimal.
    """
    if not counts.size:
        return None
    arcs = _Arcs(counts, allowed)
    total, none = counts.sum(axis=0), np.zeros_like(counts)
    still = np.zeros_like(total)
    for term, gain, give, more, less in (
        ("total balance", none, none, rate * (2 * total + 1), rate * (1 - 2 * total)),
        ("group balance", 2 * counts + 1, 1 - 2 * counts, still, still),
        (
            "stickiness",
            -(counts < had).astype(np.int64),
            (counts <= had).astype(np.int64),
            still,
            still,
        ),
    ):
        if not arcs.close_unused(gain, give, more, less):
            return term
    return None


class _Arcs:
    """The usable arcs of the residual graph: group to member and back, member to sink and back."""

    def __init__(self, counts: Ints, allowed: Bools) -> None:
        self.gain, self.give = allowed.copy(), counts > 0
        self.more, self.less = np.ones(counts.shape[1], dtype=np.bool_), counts.sum(axis=0) > 0

    def close_unused(self, gain: Ints, give: Ints, more: Ints, less: Ints) -> bool:
        """Close the arcs that no optimum of these costs uses; return False if there is a negative cycle."""
        costs = (
            np.where(self.gain, gain, _FAR),
            np.where(self.give, give, _FAR),
            np.where(self.more, more, _FAR),
            np.where(self.less, less, _FAR),
        )
        potentials = _potentials(*costs)
        if potentials is None:
            return False
        group, member, sink = potentials
        self.gain &= gain + group[:, None] == member
        self.give &= give + member == group[:, None]
        self.more &= more + member == sink
        self.less &= less + sink == member
        return True


def _potentials(
    gain: Ints, give: Ints, more: Ints, less: Ints
) -> tuple[Ints, Ints, np.int64] | None:
    """Return the shortest distances to groups, members and sink; None if there is a negative cycle."""
    group = np.zeros(gain.shape[0], dtype=np.int64)
    member = np.zeros(gain.shape[1], dtype=np.int64)
    sink = np.int64(0)
    for _ in range(sum(gain.shape) + 2):
        to_group = np.minimum(group, (give + member).min(axis=1))
        to_member = np.minimum(member, (gain + to_group[:, None]).min(axis=0))
        to_member = np.minimum(to_member, less + sink)
        to_sink = min(sink, np.int64((more + to_member).min()))
        if (
            to_sink == sink
            and np.array_equal(to_group, group)
            and np.array_equal(to_member, member)
        ):
            return group, member, sink
        group, member, sink = to_group, to_member, to_sink
    return None
