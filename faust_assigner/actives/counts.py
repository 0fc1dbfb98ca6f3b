"""Compute the optimal number of tasks of each group on each member.

The terms of the optimum are, in order: total balance, group balance, stickiness, and warmth (tasks that move
onto a copy of their state).
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from faust_assigner.actives.paths import augment
from faust_assigner.actives.potentials import fluid_start, warm_start, water_fill
from faust_assigner.actives.transport import Digits, Flow, Transport
from faust_assigner.model import Bools, Floats, Ints

#: The flow starts from the last assignment if at most this share of tasks, and at most this number of tasks,
#: have no owner or must move. Other values change the time, not the result:
#: docs/explanation/algorithms.md#potentials.
_WARM_SHARE, _WARM = 0.02, 500
#: The rate (see :func:`rates`) of the largest capacity if rates are rounded, and the greatest rate of a
#: member.
_FINEST, _STEEPEST = 1 << 14, 1 << 30
#: The highest load cost of a task in the flow; ``FAR`` is four times this value.
_HIGHEST_COST = 1 << 59


def optimal_counts(
    sizes: Ints, allowed: Bools, held: Ints, warm: Ints, capacity: Floats, home: Ints | None = None
) -> Ints:
    """Return int64[G, M], the exact optimum of the four terms; row g sums to ``sizes[g]``.

    ``sizes`` int64[G]: partition counts. ``allowed`` bool[G, M]: subscriptions, at least one per row.
    ``held`` int64[G, M]: the number of tasks that a member owned. ``warm`` int64[G, M]: the number of
    other tasks of which the member has a copy. ``home`` int64[G, M]: the number of held tasks that the
    member also owned when it last stopped. ``capacity`` float64[M]. Among equally good counts, lower
    member ids get more tasks.

    Cost: O(G x M) if all subscriptions and capacities are equal, else a min-cost flow with G + M
    nodes.
    """
    counts = np.zeros_like(held)
    who = np.flatnonzero(allowed.any(axis=0))
    if not who.size:
        return counts
    mine = allowed[:, who]
    home = np.zeros_like(held) if home is None else home
    rate = flow_rates(sizes, mine, capacity[who])
    if mine.all() and (rate == rate[0]).all():
        counts[:, who] = _counts_if_equal(sizes, held[:, who], warm[:, who], home[:, who])
    else:
        counts[:, who] = _counts_by_flow(
            Transport(
                supply=sizes,
                allowed=mine,
                kept=held[:, who],
                warm=warm[:, who],
                home=home[:, who],
                rate=rate,
            )
        )
    return counts


def flow_rates(sizes: Ints, allowed: Bools, capacity: Floats) -> Ints:
    """Return int64[M]: :func:`rates`, limited so that the flow's costs fit in an int64 for any capacities.

    The most expensive task of a member in an optimum costs about w x rate x (2 x load + 3), where w is
    the value of a unit of load. This cost must stay below 2^59. The loads are estimated as if tasks were
    divisible.
    """
    if not capacity.size or (capacity == capacity[0]).all():
        return np.ones(capacity.size, dtype=np.int64)
    room = _HIGHEST_COST // Digits.of(sizes, allowed).load
    rate = np.minimum(capacity.max() / capacity, float(1 << 50))
    load = water_fill(sizes, allowed, rate).sum(axis=0)
    height = float((load * rate).max())
    scale = max(1, min(_FINEST, int(room / (4 * height + 1))))
    low = 4 * height * scale <= room
    steepest = room // 6 if low else room // (2 * int(load.max()) + 3)
    return rates(capacity, finest=scale, steepest=max(scale, min(_STEEPEST, steepest)))


def rates(capacity: Floats, *, finest: int = _FINEST, steepest: int = _STEEPEST) -> Ints:
    """Return int64[M]: the load cost of a task on each member, proportional to 1 / capacity.

    Each capacity is read as the nearest fraction with a denominator up to 1,000. Rates are exact if the
    common multiple of the numerators is small enough; otherwise rates are rounded, and the largest
    capacity has the rate ``finest``. Rates above ``steepest`` are lowered to ``steepest``. Plans are
    optimal for these rates.
    """
    if not capacity.size or (capacity == capacity[0]).all():
        return np.ones(capacity.size, dtype=np.int64)
    shares = [
        Fraction(c).limit_denominator(1000) if c >= 0.001 else Fraction(c)
        for c in capacity.tolist()
    ]
    common = 1
    for share in set(shares):
        common = lcm(common, share.numerator)
        if common > 1 << 40:
            break
    exact = [share.denominator * (common // share.numerator) for share in shares]
    if common <= 1 << 40 and min(exact) <= finest and max(exact) <= steepest:
        return np.array(exact, dtype=np.int64)
    scaled: Floats = np.rint(np.minimum(capacity.max() / capacity, float(1 << 50)) * finest)
    rounded: Ints = np.minimum(scaled, steepest).astype(np.int64)
    return rounded


def _counts_if_equal(sizes: Ints, held: Ints, warm: Ints, home: Ints) -> Ints:
    """Return the counts if all subscriptions and capacities are equal.

    Each member gets the group's floor (tasks divided by members). The remaining tasks go to previous owners
    if possible.
    """
    members = held.shape[1]
    floor, extra = np.divmod(sizes, members)
    if sizes.size == 1:
        stays, at_home, lands = (some[0] <= floor[0] for some in (held, home, held + warm))
        lucky = np.lexsort((-warm[0], lands, at_home, stays))[: extra[0]]
        counts = np.full_like(held, floor[0])
        counts[0, lucky] += 1
        return counts
    flow = Flow(
        Transport(
            supply=sizes,
            allowed=np.ones_like(held, dtype=np.bool_),
            kept=held,
            warm=warm,
            home=home,
            rate=np.ones(members, dtype=np.int64),
        )
    )
    # The optimal potentials are known, because a task beyond the floor costs the same on all members.
    # The flow only chooses the members that get the remaining tasks.
    level = 2 * (int(sizes.sum()) // members) + (1 if sizes.sum() % members else 0)
    cell = 2 * floor + (extra > 0)
    of_member = np.full(members, -flow.digits.load * level, dtype=np.int64)
    flow.saturate(of_member[0] - flow.digits.group * cell, of_member, held)
    return augment(flow)


def _counts_by_flow(transport: Transport) -> Ints:
    flow = Flow(transport)
    tasks = int(transport.supply.sum())
    if tasks - int(transport.kept.sum()) <= min(_WARM, _WARM_SHARE * tasks):
        flow.saturate(*warm_start(flow, transport.kept), transport.kept)
        if flow.imbalance() <= _WARM:
            return augment(flow)
    flow.saturate(*fluid_start(flow), transport.kept)
    return augment(flow)
