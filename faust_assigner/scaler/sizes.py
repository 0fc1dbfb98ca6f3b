"""Computes the useful sizes of a group, and the throughput of a size. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

#: Kubernetes' autoscaler ignores a change of at most one part in this many of the current size.
TOLERANCE_PARTS = 10


def most_tasks(tasks: int, size: int) -> int:
    """Return the number of tasks of the fullest of ``size`` workers, with an even assignment.

    >>> [most_tasks(12, size) for size in (4, 5, 6, 12, 13)]
    [3, 3, 2, 1, 1]
    """
    return -(-tasks // size)


def useful_sizes(tasks: int, least: int, most: int) -> tuple[int, ...]:
    """Return the useful sizes from ``least`` to ``most``, ascending: each is faster than every smaller size.

    A group of any other size is no faster than a group of the next smaller useful size. Without a useful size
    between the bounds, the result is ``least``. Cost: O(sqrt(tasks)).

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
    """Return whether the change is at most a tenth of the current size: Kubernetes' autoscaler ignores it.

    >>> is_within_tolerance(10, 11), is_within_tolerance(10, 12), is_within_tolerance(4, 4)
    (True, False, True)
    """
    return abs(size - present) * TOLERANCE_PARTS <= present


def capacity(worker_rate: float, tasks: int, size: int) -> float:
    """Return the records per second that ``size`` workers process if all tasks receive equal rates.

    The worker with the most tasks limits the rate of the group.

    >>> capacity(100.0, 12, 4), capacity(100.0, 12, 5), capacity(100.0, 12, 6)
    (400.0, 400.0, 600.0)
    """
    return worker_rate * tasks / most_tasks(tasks, size)
