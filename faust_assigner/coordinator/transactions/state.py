"""The state of a transactional id, and a decision on it, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from faust_assigner.coordinator.errors import Code

#: A partition by topic id (16 bytes) and number: a recreated topic has different partitions.
Place = tuple[bytes, int]
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
#: The largest epoch of a producer. The next epoch is reserved for fencing the producer.
LAST_EPOCH: Final = 2**15 - 2


class State(Enum):
    """Kafka's names. A decision and its markers are a single write, so there is no ``Prepare...`` state."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Limits that a client cannot change. Times are in ms."""

    max_timeout_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id: its current producer, and the partitions and groups of its open transaction.

    ``partitions`` and ``groups`` are empty unless the state is Ongoing. Times are ms since 1970.
    """

    transactional_id: str
    producer_id: int
    #: Requests with any other epoch are fenced; the epoch of a producer id never decreases.
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    #: The epoch before the producer's last requested bump: a repeated InitProducerId names it (KIP-360).
    last_epoch: int = NO_EPOCH
    #: The producer id before the last change.
    previous_producer_id: int = NO_PRODUCER_ID
    partitions: frozenset[Place] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    #: Whether the last end of a transaction raised the epoch. A producer that repeats this request, because
    #: it got no answer, still has the previous epoch.
    is_bumped: bool = False

    @property
    def is_exhausted(self) -> bool:
        """Whether the next producer needs a new producer id."""
        return self.epoch >= LAST_EPOCH

    @property
    def aborts_at_ms(self) -> int | None:
        """The time in ms at which the open transaction times out; None without an open transaction."""
        return self.started_ms + self.timeout_ms if self.state is State.ONGOING else None


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction, to write into each partition and to apply to each group's offsets."""

    producer_id: int
    epoch: int
    commits: bool
    partitions: frozenset[Place]
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, the new value (None: unchanged), and the marker for the same write."""

    error: Code
    transaction: Transaction | None = None
    marker: Marker | None = None
