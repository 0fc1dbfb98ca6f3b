"""The number of tasks of each group on each member: total balance, group balance, stickiness, warmth."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from faust_assigner.actives.paths import augment
from faust_assigner.actives.potentials import fluid_start, warm_start, water_fill
from faust_assigner.actives.transport import Digits, Flow, Transport
from faust_assigner.model import Bools, Floats, Ints

#: The flow starts from the last assignment while fewer than this share of tasks, and at most this number,
#: have no owner or are in the wrong place. Wrong values cost time, never the optimum:
#: docs/explanation/algorithms.md#potentials.
_WARM_SHARE, _WARM = 0.02, 500
#: Rates: the resolution of the largest capacity, and the greatest rate of a member.
_FINEST, _STEEPEST = 1 << 14, 1 << 30
#: The highest load cost of a task in the flow; ``FAR`` is four times this value.
_HIGHEST_COST = 1 << 59


def optimal_counts(
    sizes: Ints, allowed: Bools, held: Ints, warm: Ints, capacity: Floats, home: Ints | None = None
) -> Ints:
    """Return int64[G, M], row sums ``sizes``: the exact optimum of the four terms, in this order.

    ``sizes`` int64[G], partition counts; ``allowed`` bool[G, M], subscriptions, at least one per row;
    ``held`` and ``warm`` int64[G, M], the tasks that a member owned and the tasks of which it has only a
    copy; ``home`` int64[G, M], the number of held tasks from before the last stop; ``capacity``
    float64[M]. Among equally good counts the lower member ids get more.

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
        counts[:, who] = _equal(sizes, held[:, who], warm[:, who], home[:, who])
    else:
        counts[:, who] = _mixed(
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
    """Return int64[M], :func:`rates` whose flow costs fit in an int64 for any claimed capacities.

    With w the value of a unit of load, the most expensive task of a member in an optimum, about
    rate x (2 x load + 3), must stay below 2^59 / w: the loads are the loads of the fluid optimum.
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
    """Return int64[M], proportional to 1 / capacity; exact if the common denominator is small enough.

    Capacities are read as the nearest fraction with a denominator up to 1,000. If their common
    multiple is too large, rates are rounded, with ``finest`` for the largest capacity. A rate above
    ``steepest`` is lowered to ``steepest``: "optimal" means optimal for these rates.
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


def _equal(sizes: Ints, held: Ints, warm: Ints, home: Ints) -> Ints:
    """Return the counts if every member may take every task: floors for all, extras where they stick."""
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
    # The potentials are known: a task beyond the floor costs the same everywhere, and so does the next
    # task of any member. Only the choice of members for the extras is left.
    level = 2 * (int(sizes.sum()) // members) + (1 if sizes.sum() % members else 0)
    cell = 2 * floor + (extra > 0)
    of_member = np.full(members, -flow.digits.load * level, dtype=np.int64)
    flow.saturate(of_member[0] - flow.digits.group * cell, of_member, held)
    return augment(flow)


def _mixed(transport: Transport) -> Ints:
    flow = Flow(transport)
    tasks = int(transport.supply.sum())
    if tasks - int(transport.kept.sum()) <= min(_WARM, _WARM_SHARE * tasks):
        flow.saturate(*warm_start(flow, transport.kept), transport.kept)
        if flow.imbalance() <= _WARM:
            return augment(flow)
    flow.saturate(*fluid_start(flow), transport.kept)
    return augment(flow)
