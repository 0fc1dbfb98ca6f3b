"""Useful sizes: sizes with a smaller largest share."""

from __future__ import annotations

import pytest

from faust_assigner.scaler.sizes import is_within_tolerance, most_tasks, useful_sizes


@pytest.mark.parametrize("tasks", [1, 2, 7, 12, 24, 100, 997])
def test_each_useful_size_is_faster_than_every_smaller_one(tasks: int) -> None:
    """No other size is useful: the case compares all sizes."""
    fastest = [
        size
        for size in range(1, tasks + 1)
        if all(most_tasks(tasks, size) < most_tasks(tasks, less) for less in range(1, size))
    ]
    assert list(useful_sizes(tasks, 1, tasks)) == fastest


def test_bounds_without_a_useful_size_give_the_lower_bound() -> None:
    """The minimum holds even above the number of tasks."""
    assert useful_sizes(12, 5, 5) == (5,)
    assert useful_sizes(2, 3, 2) == (3,)
    assert useful_sizes(0, 1, 0) == (1,)


@pytest.mark.parametrize(
    ("present", "size", "passed_over"),
    [(10, 11, True), (10, 9, True), (9, 10, False), (10, 12, False), (11, 10, True), (4, 3, False)],
)
def test_kubernetes_passes_over_a_tenth(present: int, size: int, passed_over: bool) -> None:
    """Exactly a tenth is ignored; 9 to 10 is more than a tenth of 9."""
    assert is_within_tolerance(present, size) is passed_over
