"""The whole numbers that stand for 1 / capacity in the flow."""

from __future__ import annotations

import numpy as np
import pytest

from faust_assigner.actives import counts
from faust_assigner.actives.counts import flow_rates


@pytest.mark.parametrize(
    ("partitions", "capacities"),
    [(400_000, [1.0, 3.7, 1000.3]), (1_000_000, [1e-5, 0.3337, 777.7])],
)
def test_costs_of_any_capacities_fit_into_an_int64(
    partitions: int, capacities: list[float]
) -> None:
    """The finest rates would overflow here; the smallest capacity still has the highest rate."""
    sizes = np.array([partitions, partitions // 2], dtype=np.int64)
    allowed = np.ones((2, 3), dtype=np.bool_)
    capacity = np.array(capacities)
    found = flow_rates(sizes, allowed, capacity)
    assert found[0] > found[1] > found[2] >= 1
    load = counts.water_fill(sizes, allowed, capacity.max() / capacity).sum(axis=0)
    room = counts._HIGHEST_COST // counts.Digits.of(sizes, allowed).load
    assert (found * (2 * load + 3)).max() < room
