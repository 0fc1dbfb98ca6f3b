"""Potentials to start the flow from: exact ones where the last assignment is near, fluid ones else."""

from __future__ import annotations

import numpy as np

from faust_assigner.flow import FAR, Flow
from faust_assigner.model import Floats, Ints

_ROUNDS = 48


def prices_near(flow: Flow, seats: Ints) -> tuple[Ints, Ints]:
    """Potentials under which ``seats`` int64[G, M] is as good as can be, by Bellman-Ford.

    Exact when ``seats`` is what survives of an optimal assignment (then no cycle of it pays); when some
    cycle does pay, the rounds end anyway and the potentials are merely good.
    """
    t = flow.t
    load = seats.sum(axis=0)
    up = np.where(t.allowed, flow.seat_cost(seats + 1, t.kept, t.warm), FAR)
    down = np.where(seats > 0, -flow.seat_cost(seats, t.kept, t.warm), FAR)
    of_member = np.where(load > 0, -flow.load_cost(load, t.rate), FAR)
    for _ in range(_ROUNDS):
        of_group = _near(down + of_member).min(axis=1)
        closer = np.minimum(of_member, _near(up + of_group[:, None]).min(axis=0))
        if np.array_equal(closer, of_member):
            break
        of_member = closer
    return _reach_all(flow, of_group, of_member, up)


def _near(costs: Ints) -> Ints:
    return np.minimum(costs, FAR)


def _reach_all(flow: Flow, of_group: Ints, of_member: Ints, up: Ints) -> tuple[Ints, Ints]:
    """Finite potentials for what nothing reaches: idle members, groups nobody owned a task of."""
    idle = of_member > FAR // 2
    of_member = np.where(idle, -flow.load_cost(np.ones_like(of_member), flow.t.rate), of_member)
    fresh = of_group > FAR // 2
    best = np.where(up < FAR // 2, of_member - up, -FAR).max(axis=1)
    return np.where(fresh, best, of_group), of_member


def prices_fluid(flow: Flow) -> tuple[Ints, Ints]:
    """Potentials near the optimum of the continuous problem: tasks as a fluid, claims left out."""
    t = flow.t
    of_group, of_member = _fluid(t.supply.astype(float), t.allowed, t.rate / t.rate.min())
    seats = np.where(t.allowed, np.maximum(of_group[:, None] - of_member, 0.0), 0.0)
    level = _levels(seats.sum(axis=0), t.rate)
    fine = of_member.mean()
    d = flow.digits
    member = -d.load * level - d.group * (2 * np.rint(of_member - fine).astype(np.int64) + 1)
    cheapest = np.where(t.allowed, level, FAR).min(axis=1)
    group = -d.load * cheapest - d.group * 2 * np.rint(of_group - fine + 0.5).astype(np.int64)
    return group, member


def _fluid(supply: Floats, allowed: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
           rate: Floats) -> tuple[Floats, Floats]:
    """Prices u, v with x = max(0, u_g - v_m) shipping every group and v_m = load_m * rate_m / soft."""
    soft = 0.02
    v = supply.sum() / (1.0 / rate).sum() / soft * np.ones_like(rate)
    u = v.mean() + supply / allowed.sum(axis=1)
    for _ in range(_ROUNDS):
        for _ in range(2):
            gap = u[:, None] - v
            used = allowed & (gap > 0)
            u = u + (supply - np.where(used, gap, 0).sum(axis=1)) / np.maximum(used.sum(axis=1), 1)
        gap = u[:, None] - v
        used = allowed & (gap > 0)
        slope = used.sum(axis=0) + soft / rate
        step = (np.where(used, gap, 0).sum(axis=0) - soft * v / rate) / slope
        v = v + step
        if np.abs(step).max() < 0.05:  # prices are rounded to whole numbers anyway
            break
    return u, v


def _levels(load: Floats, rate: Ints) -> Ints:
    """The price of one more task per member, int64[M]: equal where the fluid loads are level."""
    price = 2 * load * rate
    order = np.argsort(price, kind="stable")
    cuts = np.flatnonzero(np.diff(price[order]) > 0.4 * rate.min()) + 1
    level = np.zeros(load.size, dtype=np.int64)
    for block in np.split(order, cuts):
        level[block] = _level(round(float(load[block].sum())), rate[block])
    return level


def _level(tasks: int, rate: Ints) -> int:
    """The least price at which members of these rates carry ``tasks`` in all."""
    low, high = 0, int(rate.max()) * (2 * tasks + 1)
    while low < high:
        price = (low + high) // 2
        if int(((price + rate) // (2 * rate)).sum()) >= tasks:
            high = price
        else:
            low = price + 1
    return low
