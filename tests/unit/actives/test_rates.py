"""The integer rates for 1 / capacity in the flow."""

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


@pytest.mark.parametrize(
    ("limits", "found"),
    [({}, [1001, 1000]), ({"finest": 10}, [10, 10]), ({"steepest": 500}, [500, 500])],
)
def test_exact_rates_are_rounded_where_they_exceed_a_limit(
    limits: dict[str, int], found: list[int]
) -> None:
    """The finest rate belongs to the largest capacity, the steepest to the smallest."""
    assert counts.rates(np.array([1000.0, 1001.0]), **limits).tolist() == found


@pytest.mark.parametrize(
    ("held", "warm", "home", "found"),
    [
        ([0, 0, 0], [0, 0, 0], [0, 0, 0], [2, 1, 1]),  # the lower member id
        ([1, 2, 1], [0, 0, 0], [0, 0, 0], [1, 2, 1]),  # the most stay
        ([2, 2, 0], [0, 0, 0], [0, 2, 0], [1, 2, 1]),  # of these the most from before the stop
        ([1, 1, 1], [0, 0, 1], [0, 0, 0], [1, 1, 2]),  # then a copy beyond the floor
        ([1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 2]),  # a copy within the floor lands anyway
        ([1, 1, 1], [0, 1, 2], [0, 0, 0], [1, 1, 2]),  # then the most copies to choose from
        ([2, 0, 0], [0, 2, 0], [0, 2, 0], [2, 1, 1]),  # a kept task has priority
    ],
)
def test_the_extra_task_of_one_group_sticks_then_lands_warm(
    held: list[int], warm: list[int], home: list[int], found: list[int]
) -> None:
    """Four tasks on three members: a member gets two."""
    given = [np.array([row]) for row in (held, warm, home)]
    answer = counts.optimal_counts(
        np.array([4]), np.ones((1, 3), dtype=np.bool_), given[0], given[1], np.ones(3), given[2]
    )
    assert answer.tolist() == [found]


@pytest.mark.parametrize(
    ("held", "warm", "found"),
    [
        ([0, 0, 2], [2, 0, 1], [2, 2, 3]),  # the first copy is beyond the floor; the others land
        ([0, 2, 2], [2, 1, 3], [2, 2, 3]),  # then the member with more copies
        ([3, 0, 2], [0, 9, 1], [3, 2, 2]),  # a stay goes before all copies
    ],
)
def test_a_copy_beyond_the_floor_goes_before_more_copies_within(
    held: list[int], warm: list[int], found: list[int]
) -> None:
    """Seven tasks on three members: a member gets three."""
    answer = counts.optimal_counts(
        np.array([7]),
        np.ones((1, 3), dtype=np.bool_),
        np.array([held]),
        np.array([warm]),
        np.ones(3),
    )
    assert answer.tolist() == [found]
