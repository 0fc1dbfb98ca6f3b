"""Partitions that cannot be read: each is tried again after a while, the others flow meanwhile.

A corrupt batch, or one that a broker has cut off, may be whole at the next try or in another replica. It is
not passed over: no record is left out, and the partition stands still for as long as it takes. A broker that
answers for a partition with an error, as after a change of its leader, is asked again soon.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from aiokafka.errors import (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from mode import get_logger

logger = get_logger(__name__)

#: Seconds until the next try; twice as many after each that fails, up to the most.
RETRY_S, MOST_RETRY_S = 1.0, 30.0
#: The same where the broker itself says that it cannot answer.
REFUSED_S, MOST_REFUSED_S = 0.1, 1.0
#: What only people can put right, in the app or on the broker: told as aiokafka does, and ends the worker.
FOR_PEOPLE = (NoOffsetForPartitionError, OffsetOutOfRangeError, TopicAuthorizationFailedError)


class SetAside:
    """aiokafka's state of such a partition -> when it is tried again. Times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._until: WeakKeyDictionary[Any, tuple[float, float]] = WeakKeyDictionary()
        self._names: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._until)

    def partitions(self) -> list[Any]:
        """The partitions that could not be read at their last try; asked from any thread."""
        return [tp for state, tp in self._names.copy().items() if state in self._until]

    def unreadable(self, tp: Any, state: Any, error: Exception, now: float) -> None:
        """Leave ``tp`` alone from ``now`` on, and say so."""
        wait_s = self._wait(state, now, RETRY_S, MOST_RETRY_S)
        self._names[state] = tp
        logger.error(
            "%s-%d cannot be read from offset %s: %s: %s; it stands still and others flow, tried "
            "again in %.1f s",
            *tp,
            state.position,
            type(error).__name__,
            error,
            wait_s,
        )

    def refused(self, tp: Any, state: Any, now: float) -> None:
        """The same where the broker has answered for it with an error, which aiokafka names."""
        wait_s = self._wait(state, now, REFUSED_S, MOST_REFUSED_S)
        self._names[state] = tp
        logger.info("%s-%d: the broker answers with an error; asked again in %.1f s", *tp, wait_s)

    def _wait(self, state: Any, now: float, first_s: float, most_s: float) -> float:
        _, before_s = self._until.get(state, (0.0, 0.0))
        wait_s = min(2 * before_s or first_s, most_s)
        self._until[state] = now + wait_s, wait_s
        return wait_s

    def is_left_alone(self, state: Any, now: float) -> bool:
        """Whether it is not fetched at ``now``."""
        return bool(self._until) and self._until.get(state, (0.0, 0.0))[0] > now

    def is_well(self, state: Any) -> None:
        """It could be read."""
        self._until.pop(state, None)
