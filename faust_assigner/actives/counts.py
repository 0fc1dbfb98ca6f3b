"""How many tasks of each group each member gets: total balance, group balance, stickiness, warmth."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from faust_assigner.actives.potentials import fluid_start, warm_start
from faust_assigner.actives.transport import Flow, Transport
from faust_assigner.model import Bools, Floats, Ints

#: The last assignment is the better place to start while less than this share of tasks, and no more than
#: this many, have no owner or are in the wrong place. Wrong values cost time, never the optimum:
#: docs/explanation/algorithms.md#potentials.
_WARM_SHARE, _WARM = 0.02, 500


def optimal_counts(sizes: Ints, allowed: Bools, held: Ints, warm: Ints, capacity: Floats) -> Ints:
    """int64[G, M], row sums ``sizes``: the exact optimum of the four terms, in this order.

    ``sizes`` int64[G], partition counts; ``allowed`` bool[G, M], subscriptions, at least one a row;
    ``held`` and ``warm`` int64[G, M], tasks a member owned and tasks it only holds a copy of;
    ``capacity`` float64[M]. Among equally good counts the lower member ids get more.

    Cost: O(G x M) when all subscriptions and capacities are equal, else a min-cost flow with G + M
    nodes.
    """
    counts = np.zeros_like(held)
    who = np.flatnonzero(allowed.any(axis=0))
    if not who.size:
        return counts
    mine, rate = allowed[:, who], rates(capacity[who])
    if mine.all() and (rate == rate[0]).all():
        counts[:, who] = _equal(sizes, held[:, who], warm[:, who])
    else:
        counts[:, who] = _mixed(Transport(supply=sizes, allowed=mine, kept=held[:, who], warm=warm[:, who],
                                          rate=rate))
    return counts


def rates(capacity: Floats) -> Ints:
    """int64[M], proportional to 1 / capacity, exactly where a common denominator is small enough.

    Capacities are read as the nearest fraction with a denominator up to 1,000; when their common
    multiple would overflow, rates are rounded to 2^-14 of the smallest, and a member with less than
    2^-16 of the largest capacity counts as one with that much. So "optimal" means optimal for these rates.
    """
    if not capacity.size or (capacity == capacity[0]).all():
        return np.ones(capacity.size, dtype=np.int64)
    shares = [Fraction(c).limit_denominator(1000) if c >= 0.001 else Fraction(c) for c in capacity.tolist()]
    common = 1
    for share in set(shares):
        common = lcm(common, share.numerator)
        if common > 1 << 40:
            break
    exact = [share.denominator * (common // share.numerator) for share in shares]
    smallest = min(exact)
    if common <= 1 << 40 and max(exact) <= smallest << 14 and max(exact) < 1 << 20:
        return np.array(exact, dtype=np.int64)
    scaled: Ints = np.minimum(np.rint((capacity.max() / capacity) * (1 << 14)), 1 << 30).astype(np.int64)
    return scaled


def _equal(sizes: Ints, held: Ints, warm: Ints) -> Ints:
    """Everyone may take everything: floors for all, and the extras where they stick."""
    members = held.shape[1]
    floor, extra = np.divmod(sizes, members)
    if sizes.size == 1:
        lucky = np.lexsort((-warm[0], -(held[0] > floor[0]).astype(np.int64)))[: extra[0]]
        counts = np.full_like(held, floor[0])
        counts[0, lucky] += 1
        return counts
    flow = Flow(Transport(supply=sizes, allowed=np.ones_like(held, dtype=np.bool_), kept=held, warm=warm,
                          rate=np.ones(members, dtype=np.int64)))
    # The potentials are known: a task past the floor costs the same everywhere, and so does the next
    # task of any member. Only who gets the extras is open.
    level = 2 * (int(sizes.sum()) // members) + (1 if sizes.sum() % members else 0)
    cell = 2 * floor + (extra > 0)
    of_member = np.full(members, -flow.digits.load * level, dtype=np.int64)
    flow.saturate(of_member[0] - flow.digits.group * cell, of_member, held)
    return flow.augment()


def _mixed(transport: Transport) -> Ints:
    flow = Flow(transport)
    tasks = int(transport.supply.sum())
    if tasks - int(transport.kept.sum()) <= min(_WARM, _WARM_SHARE * tasks):
        flow.saturate(*warm_start(flow, transport.kept), transport.kept)
        if flow.imbalance() <= _WARM:
            return flow.augment()
    flow.saturate(*fluid_start(flow), transport.kept)
    return flow.augment()
