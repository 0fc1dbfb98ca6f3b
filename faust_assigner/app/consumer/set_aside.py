"""Partitions that cannot be read: the consumer skips them, reads the other partitions and retries later.

A batch that was read as corrupt or truncated may be intact at the next try or in a different replica. The
consumer never skips such a batch: no record is lost, and the partition waits until the batch can be read.
If a broker returns an error for a partition, for example after a change of the leader, the retry follows
soon.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from aiokafka.errors import (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from mode import get_logger

if TYPE_CHECKING:
    from aiokafka.consumer.subscription_state import TopicPartitionState
    from faust.types.tuples import TP

logger = get_logger(__name__)

#: The first and the longest wait before the next try, in seconds; each failed try doubles the wait.
RETRY_S, MOST_RETRY_S = 1.0, 30.0
#: The same waits after an error that the broker returned for the partition.
REFUSED_S, MOST_REFUSED_S = 0.1, 1.0
#: Errors that an operator must correct, in the app or on the broker; they are raised and end the worker.
FATAL_ERRORS = (NoOffsetForPartitionError, OffsetOutOfRangeError, TopicAuthorizationFailedError)


class SetAside:
    """The partitions set aside. Times are seconds of the caller's clock, such as ``time.monotonic()``."""

    def __init__(self) -> None:
        self._until: WeakKeyDictionary[TopicPartitionState, tuple[float, float]] = (
            WeakKeyDictionary()
        )
        self._names: WeakKeyDictionary[TopicPartitionState, TP] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._until)

    def partitions(self) -> list[TP]:
        """Return the partitions whose last try failed; may be called from any thread."""
        return [tp for state, tp in self._names.copy().items() if state in self._until]

    def unreadable(self, tp: TP, state: TopicPartitionState, error: Exception, now: float) -> None:
        """Set ``tp`` aside from ``now`` on, and log the error and the next try."""
        wait_s = self._wait(state, now, RETRY_S, MOST_RETRY_S)
        self._names[state] = tp
        logger.error(
            "%s-%d cannot be read from offset %s: %s: %s; this partition stands still, the "
            "other partitions are processed; the next attempt is in %.1f s",
            *tp,
            state.position,
            type(error).__name__,
            error,
            wait_s,
        )

    def refused(self, tp: TP, state: TopicPartitionState, now: float) -> None:
        """Set ``tp`` aside after an error that the broker returned; aiokafka logs the error itself."""
        wait_s = self._wait(state, now, REFUSED_S, MOST_REFUSED_S)
        self._names[state] = tp
        logger.info(
            "%s-%d: the broker answers the fetch with an error; the next attempt is in %.1f s",
            *tp,
            wait_s,
        )

    def note_answer(
        self,
        asked: Collection[tuple[TP, TopicPartitionState, int]],
        fetched: Container[TP],
        began_ms: int,
        now: float,
    ) -> None:
        """Set aside each requested partition for which the broker returned an error.

        ``asked`` contains the partitions of one fetch, with their state and requested offset. ``fetched``
        contains the partitions with fetched records. aiokafka stores in a partition's state when the broker
        last answered for it without an error, in milliseconds; ``began_ms`` is the time of the request. If
        no partition got a good answer, the whole fetch failed and no partition is set aside.
        """
        well = {tp for tp, state, _ in asked if (state.timestamp or 0) >= began_ms}
        for tp, state, offset in asked if well else ():
            if tp in well:
                self.note_success(state)
            elif state.has_valid_position and state.position == offset and tp not in fetched:
                self.refused(tp, state, now)

    def _wait(self, state: TopicPartitionState, now: float, first_s: float, most_s: float) -> float:
        _, before_s = self._until.get(state, (0.0, 0.0))
        wait_s = min(2 * before_s or first_s, most_s)
        self._until[state] = now + wait_s, wait_s
        return wait_s

    def is_set_aside(self, state: TopicPartitionState, now: float) -> bool:
        """Return whether the partition is set aside at ``now`` and must not be fetched."""
        return bool(self._until) and self._until.get(state, (0.0, 0.0))[0] > now

    def note_success(self, state: TopicPartitionState) -> None:
        """Note that the partition was read: its next failure starts with the shortest wait."""
        self._until.pop(state, None)
