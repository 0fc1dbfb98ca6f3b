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
class AddAndWriteRecords:
    """Add the partition, as the first write to it does in the second version (KIP-890)."""

    producer_id: int
    epoch: int
    place: Place


@dataclass(frozen=True, slots=True)
class AddAndWriteOffsets:
    """Add the group, as the first commit of its offsets does in the second version (KIP-890)."""

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
class EndAndBump:
    """The producer commits or aborts, and goes on with the next epoch (KIP-890, second version).

    ``fresh_id`` is an unused producer id, for the case that the epochs of the current id are exhausted.
    """

    producer_id: int
    epoch: int
    commits: bool
    fresh_id: int


@dataclass(frozen=True, slots=True)
class Tick:
    """``Transaction.aborts_at_ms`` has passed."""


Written = WriteRecords | WriteOffsets | AddAndWriteRecords | AddAndWriteOffsets
Owned = AddPartitions | AddGroup | Written | EndTransaction | EndAndBump
Event = InitProducer | Owned | Tick
