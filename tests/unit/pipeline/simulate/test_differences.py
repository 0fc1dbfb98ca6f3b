"""The intervals of differences and of quantiles, with every number different."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faust_assigner.pipeline.simulate.settings import Z95, difference, quantile_interval


def test_the_interval_of_a_difference_is_that_of_a_sample() -> None:
    """Four values are a sample: their variance is divided by three, and only shared scenarios count."""
    mine = {"e": 99.0, "d": 3.0, "a": 1.0, "b": 5.0, "c": 4.0}
    theirs = {"c": 2.0, "a": 8.0, "d": 0.0, "b": 1.0, "f": -50.0}
    found = difference(mine, theirs)
    values = [-7.0, 4.0, 2.0, 3.0]
    mean = 0.5
    half = Z95 * math.sqrt(sum((value - mean) ** 2 for value in values) / 3 / 4)
    assert (found["scenarios"], found["mean"]) == (4, mean)
    assert found["interval"] == pytest.approx([mean - half, mean + half])


@pytest.mark.parametrize(
    ("count", "share", "low", "high"),
    [
        # 90 of 100 values are below, give or take 1.96 * 3 values.
        (100, 0.9, 84, 96),
        # 18 of 20, give or take 2.63: the interval ends at the largest value.
        (20, 0.9, 15, 19),
        (50, 0.5, 18, 32),
        # One of 10, give or take 1.86: the interval begins at the smallest value.
        (10, 0.1, 0, 3),
        (1, 0.9, 0, 0),
    ],
)
def test_the_interval_of_a_quantile_is_two_of_the_sorted_values(
    count: int, share: float, low: int, high: int
) -> None:
    """The lower place is rounded down and the upper place up."""
    values = np.array([float(number**2) for number in range(count)])
    found = quantile_interval(np.roll(values, 7), share)
    assert found == (float(low**2), float(high**2))
