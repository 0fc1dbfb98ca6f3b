"""What can happen to a transactional id."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.coordinator.transactions.state import Place


@dataclass(frozen=True, slots=True)
class InitProducer:
    """A producer begins under this id, or asks for another epoch of its own.

    ``expected`` is the producer id and epoch it has (KIP-360). ``fresh_id`` is a producer id that was never
    given to anybody; it is used where the present one cannot go on.
    """

    timeout_ms: int
    fresh_id: int
    expected: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """The producer is about to write to these partitions."""

    producer_id: int
    epoch: int
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class AddGroup:
    """The producer is about to commit offsets of this group."""

    producer_id: int
    epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """May records of this producer be appended to that partition now?"""

    producer_id: int
    epoch: int
    place: Place


@dataclass(frozen=True, slots=True)
class WriteOffsets:
    """May offsets of that group be kept for the end of this producer's transaction?"""

    producer_id: int
    epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The producer commits or aborts."""

    producer_id: int
    epoch: int
    commits: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of ``Transaction.aborts_at_ms`` has come."""


Owned = AddPartitions | AddGroup | WriteRecords | WriteOffsets | EndTransaction
Event = InitProducer | Owned | Tick
