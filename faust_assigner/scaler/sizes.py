"""Sizes of a group that help, and what a group of a size processes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

#: Kubernetes' autoscaler passes over a change of at most one part in so many of the present size.
TOLERANCE_PARTS = 10


def most_tasks(tasks: int, size: int) -> int:
    """The largest number of tasks on one worker of ``size``: the planner keeps loads even.

    >>> [most_tasks(12, size) for size in (4, 5, 6, 12, 13)]
    [3, 3, 2, 1, 1]
    """
    return -(-tasks // size)


def useful_sizes(tasks: int, least: int, most: int) -> tuple[int, ...]:
    """Sizes from ``least`` to ``most``, ascending: none is as slow as a smaller one.

    A size that is left out processes no faster than the one before it. Where no useful size lies between the
    bounds, ``least`` is the answer. Cost: O(sqrt(tasks)).

    >>> useful_sizes(12, 1, 12), useful_sizes(12, 2, 5), useful_sizes(12, 7, 9)
    ((1, 2, 3, 4, 6, 12), (2, 3, 4), (7,))
    """
    found = tuple(size for size in _steps(tasks) if least <= size <= most)
    return found or (least,)


def _steps(tasks: int) -> Iterator[int]:
    size = 1
    while tasks > 0:
        yield size
        fullest = most_tasks(tasks, size)
        if fullest == 1:
            return
        size = -(-tasks // (fullest - 1))


def is_within_tolerance(present: int, size: int) -> bool:
    """Whether Kubernetes' autoscaler would pass over the change: at most a tenth of the present size.

    >>> is_within_tolerance(10, 11), is_within_tolerance(10, 12), is_within_tolerance(4, 4)
    (True, False, True)
    """
    return abs(size - present) * TOLERANCE_PARTS <= present


def capacity(worker_rate: float, tasks: int, size: int) -> float:
    """Records a second that ``size`` workers process while each task gets as much as any other.

    The fullest worker is the first that cannot keep up.

    >>> capacity(100.0, 12, 4), capacity(100.0, 12, 5), capacity(100.0, 12, 6)
    (400.0, 400.0, 600.0)
    """
    return worker_rate * tasks / most_tasks(tasks, size)
