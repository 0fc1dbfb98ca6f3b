"""What is known of one transactional id. A value: every change is a new one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

#: A partition by the id of its topic (16 bytes) and its number: a topic created anew is another one.
Place = tuple[bytes, int]
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
#: The largest epoch a producer gets. The one above it is left for fencing that producer.
LAST_EPOCH: Final = 2**15 - 2


class State(Enum):
    """Kafka's names. A decision and its markers are one write here, so there is no ``Prepare...`` state."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds a client cannot choose for itself. Times in ms."""

    max_timeout_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id: who may write under it, and what its open transaction has touched.

    ``partitions`` and ``groups`` are empty unless the state is Ongoing. Times are ms since 1970.
    """

    transactional_id: str
    producer_id: int
    #: Requests with any other epoch are fenced; it never falls for one producer id.
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    #: The epoch before the last bump its producer asked for: a repeated InitProducerId names it (KIP-360).
    last_epoch: int = NO_EPOCH
    #: The producer id before the last change.
    previous_producer_id: int = NO_PRODUCER_ID
    partitions: frozenset[Place] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME

    @property
    def is_exhausted(self) -> bool:
        """Whether the next producer needs a new producer id."""
        return self.epoch >= LAST_EPOCH

    @property
    def aborts_at_ms(self) -> int | None:
        """When an open transaction has taken too long; None while none is open."""
        return self.started_ms + self.timeout_ms if self.state is State.ONGOING else None
