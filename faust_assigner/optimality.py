"""Is an assignment of counts optimal? A certificate that needs no solver.

Counts are optimal in (total balance, group balance, stickiness) exactly when no closed walk of single
transfers improves the tuple: no negative cycle in the residual graph over groups, members and one sink
(Ahuja, Magnanti, Orlin: Network Flows, 9.3). Bellman-Ford finds one or proves there is none.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from faust_assigner.model import Bools, Floats, Ints

_FAR = np.int64(1) << 60


def improving_cycle(counts: Ints, allowed: Bools, had: Ints, capacity: Floats) -> str | None:
    """The first term some chain of transfers would improve, or ``None``.

    ``counts``, ``had`` int64[G, M]; ``allowed`` bool[G, M]; ``capacity`` float64[M], read as fractions
    with denominators up to 1,000. Cost O(G x M) a round, few rounds when optimal.
    """
    if not counts.size:
        return None
    rate = _rates(capacity)
    tasks, cells = int(counts.sum()), 2 * min(counts.shape) + 2
    stay = 1
    square = 2 * cells + 1
    load = square * (4 * (tasks + cells) + 1)
    for term, digits in (
        ("total balance", (0, 0, 1)),
        ("group balance", (0, 1, square * (4 * (tasks + cells) + 1))),
        ("stickiness", (stay, square, load)),
    ):
        if _has_negative_cycle(counts, allowed, had, rate, *digits):
            return term
    return None


def _rates(capacity: Floats) -> Ints:
    shares = [Fraction(c).limit_denominator(1000) for c in capacity.tolist()]
    common = lcm(*(share.numerator for share in shares))
    return np.array([share.denominator * common // share.numerator for share in shares], dtype=np.int64)


def _has_negative_cycle(
    counts: Ints, allowed: Bools, had: Ints, rate: Ints, stay: int, square: int, load: int
) -> bool:
    total = counts.sum(axis=0)
    gain = np.where(allowed, square * (2 * counts + 1) - stay * (counts < had), _FAR)
    give = np.where(counts > 0, -square * (2 * counts - 1) + stay * (counts <= had), _FAR)
    more = load * rate * (2 * total + 1)
    less = np.where(total > 0, -load * rate * (2 * total - 1), _FAR)
    group = np.zeros(counts.shape[0], dtype=np.int64)
    member = np.zeros(counts.shape[1], dtype=np.int64)
    sink = np.int64(0)
    for _ in range(sum(counts.shape) + 2):
        to_group = np.minimum(group, (give + member).min(axis=1))
        to_member = np.minimum(member, (gain + to_group[:, None]).min(axis=0))
        to_member = np.minimum(to_member, less + sink)
        to_sink = min(sink, np.int64((more + to_member).min()))
        if to_sink == sink and np.array_equal(to_group, group) and np.array_equal(to_member, member):
            return False
        group, member, sink = to_group, to_member, to_sink
    return True
