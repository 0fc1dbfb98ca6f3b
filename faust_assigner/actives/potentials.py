"""Compute the flow's initial potentials: exact near the last assignment, otherwise estimated.

The estimate treats tasks as divisible. ``transport.py`` defines potentials.
"""

from __future__ import annotations

import numpy as np

from faust_assigner.actives.transport import FAR, Flow
from faust_assigner.model import Bools, Floats, Ints

#: The maximum number of rounds of each iteration. The limit bounds the time to compute the potentials and
#: does not change the result: with worse potentials, more tasks must be shipped
#: (docs/explanation/algorithms.md#potentials).
_ROUNDS = 48


def warm_start(flow: Flow, counts: Ints) -> tuple[Ints, Ints]:
    """Compute by Bellman-Ford the potentials under which ``counts`` int64[G, M] is optimal.

    The potentials are exact if ``counts`` remains from an optimal assignment: then no cycle improves it. If a
    cycle improves ``counts``, the potentials are approximate.
    """
    t = flow.t
    load = counts.sum(axis=0)
    up = np.where(t.allowed, flow.cell_cost(counts + 1), FAR)
    down = np.where(counts > 0, -flow.cell_cost(counts), FAR)
    of_member = np.where(load > 0, -flow.load_cost(load, t.rate), FAR)
    for _ in range(_ROUNDS):
        of_group = _cap_costs(down + of_member).min(axis=1)
        closer = np.minimum(of_member, _cap_costs(up + of_group[:, None]).min(axis=0))
        if np.array_equal(closer, of_member):
            break
        of_member = closer
    return _reach_all(flow, of_group, of_member, up)


def _cap_costs(costs: Ints) -> Ints:
    return np.minimum(costs, FAR)


def _reach_all(flow: Flow, of_group: Ints, of_member: Ints, up: Ints) -> tuple[Ints, Ints]:
    """Replace the infinite potentials of members without tasks and of groups without previous owners."""
    idle = of_member > FAR // 2
    of_member = np.where(idle, -flow.load_cost(np.ones_like(of_member), flow.t.rate), of_member)
    fresh = of_group > FAR // 2
    best = np.where(up < FAR // 2, of_member - up, -FAR).max(axis=1)
    return np.where(fresh, best, of_group), of_member


def fluid_start(flow: Flow) -> tuple[Ints, Ints]:
    """Return potentials near the optimum of a simpler problem: divisible tasks, without previous owners.

    First compute even loads of the members. Then compute, for these loads, the counts per group and member
    with the least sum of squares.
    """
    t, d = flow.t, flow.digits
    fluid = water_fill(t.supply, t.allowed, t.rate / t.rate.min())
    load = fluid.sum(axis=0)
    level = _levels(load, t.rate, _components(fluid > 0.01))
    cheapest = np.where(t.allowed, level, FAR).min(axis=1)
    tight = t.allowed & (level == cheapest[:, None])
    of_group, of_member = _scale_duals(t.supply.astype(np.float64), load, tight)
    # Round the potentials of groups to even and of members to odd whole numbers. Then most (group,
    # member) pairs have two equally cheap counts, and a choice between the two fixes most imbalances
    # without a search.
    member = -d.load * level - d.group * (2 * np.rint(of_member).astype(np.int64) + 1)
    group = -d.load * cheapest - d.group * 2 * np.rint(of_group + 0.5).astype(np.int64)
    return group, member


def water_fill(supply: Ints, allowed: Bools, rate: Floats) -> Floats:
    """Return float64[G, M], the most even distribution of divisible tasks.

    Each group in turn divides its tasks among its members, until the loads no longer change.
    """
    members = [np.flatnonzero(row) for row in allowed]
    order = np.argsort([who.size for who in members], kind="stable").tolist()
    filled = [
        np.full(who.size, n / who.size) for n, who in zip(supply.tolist(), members, strict=True)
    ]
    load = np.zeros(rate.size)
    for who, x in zip(members, filled, strict=True):
        load[who] += x
    for _ in range(_ROUNDS):
        moved = 0.0
        for g in order:
            who = members[g]
            rest = load[who] - filled[g]
            filled[g] = _divide_group(float(supply[g]), rest, rate[who])
            after = rest + filled[g]
            moved = max(moved, float(np.abs(after - load[who]).max()))
            load[who] = after
        if moved < 0.01:
            break
    fluid = np.zeros(allowed.shape)
    for g, who in enumerate(members):
        fluid[g, who] = filled[g]
    return fluid


def _components(used: Bools) -> Ints:
    """Return int64[M]: a label for each member.

    Two members have equal labels if they share a group's tasks, directly or through other members.
    """
    label = np.arange(used.shape[1])
    while True:
        of_group = np.where(used, label, label.size).min(axis=1)
        lowest = np.minimum(label, np.where(used, of_group[:, None], label.size).min(axis=0))
        if np.array_equal(lowest, label):
            return label
        label = lowest


def _divide_group(amount: float, rest: Floats, rate: Floats) -> Floats:
    """Distribute ``amount`` over members with loads ``rest``, up to a common level of load * rate."""
    height = rest * rate
    order = np.argsort(height, kind="stable")
    width = np.cumsum(1 / rate[order])
    # ``level[k - 1]`` is the level if the k lowest members receive tasks; k must be the number of
    # members below this level.
    level = (amount + np.cumsum(rest[order])) / width
    k = int(np.count_nonzero(height[order] < level))
    filled: Floats = np.maximum(level[max(k, 1) - 1] / rate - rest, 0.0)
    return filled


def _scale_duals(supply: Floats, load: Floats, tight: Bools) -> tuple[Floats, Floats]:
    """Return potentials (u, v) so that the matrix x = max(0, u_g - v_m) has the wanted row and column sums.

    The row sums are ``supply``, the column sums are ``load``; both are approximate. x is defined on the
    ``tight`` (group, member) pairs and is 0 elsewhere.
    """
    v = np.zeros(load.size)
    u = supply / np.maximum(tight.sum(axis=1), 1)
    for _ in range(_ROUNDS):
        for _ in range(2):
            gap = u[:, None] - v
            used = tight & (gap > 0)
            u = u + (supply - np.where(used, gap, 0).sum(axis=1)) / np.maximum(used.sum(axis=1), 1)
        gap = u[:, None] - v
        used = tight & (gap > 0)
        step = (np.where(used, gap, 0).sum(axis=0) - load) / np.maximum(used.sum(axis=0), 1)
        v = v + step
        if np.abs(step).max() < 0.05:  # the caller rounds the potentials to whole numbers
            break
    return u, v


def _levels(load: Floats, rate: Ints, label: Ints) -> Ints:
    """Return int64[M]: the price (load cost) of one more task per member.

    Members with equal labels have equal prices. Labels with nearly equal prices are merged.
    """
    blocks, block_of = np.unique(label, return_inverse=True)
    tasks = np.bincount(block_of, load, minlength=blocks.size)
    price = 2 * tasks / np.bincount(block_of, 1 / rate, minlength=blocks.size)
    near, far = 0.1 * rate.min(), 0.5 * rate.min()
    level = np.zeros(load.size, dtype=np.int64)
    merged: list[int] = []
    for b in [*np.argsort(price, kind="stable").tolist(), -1]:
        if merged and (
            b < 0 or price[b] - price[merged[-1]] > near or price[b] - price[merged[0]] > far
        ):
            mine = np.isin(block_of, merged)
            level[mine] = _lowest_price(round(float(load[mine].sum())), rate[mine])
            merged = []
        merged.append(b)
    return level


def _lowest_price(tasks: int, rate: Ints) -> int:
    """Return the lowest price at which members with these rates take ``tasks`` together."""
    low, high = 0, int(rate.max()) * (2 * tasks + 1)
    while low < high:
        price = (low + high) // 2
        if int(((price + rate) // (2 * rate)).sum()) >= tasks:
            high = price
        else:
            low = price + 1
    return low
