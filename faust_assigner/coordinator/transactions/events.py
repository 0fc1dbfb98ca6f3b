"""The events of a transactional id."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.coordinator.transactions.state import Place


@dataclass(frozen=True, slots=True)
class InitProducer:
    """A producer begins under this id, or requests a new epoch.

    ``expected`` is the producer's current id and epoch (KIP-360). ``fresh_id`` is an unused producer id,
    for the case that the current id cannot continue.
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
    """May records of this producer be appended to the partition now?"""

    producer_id: int
    epoch: int
    place: Place


@dataclass(frozen=True, slots=True)
class WriteOffsets:
    """May offsets of the group be kept for the end of this producer's transaction?"""

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
    """``Transaction.aborts_at_ms`` has passed."""


Owned = AddPartitions | AddGroup | WriteRecords | WriteOffsets | EndTransaction
Event = InitProducer | Owned | Tick
