"""The events of a transactional id."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.coordinator.transactions.state import Place


@dataclass(frozen=True, slots=True)
class InitProducer:
    """A producer begins with this transactional id, or requests a new epoch.

    ``expected`` is the producer's current id and epoch (KIP-360). ``fresh_id`` is an unused producer id,
    for use if the epochs of the current id are exhausted.
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
    """The broker asks whether records of this producer may be appended to the partition now."""

    producer_id: int
    epoch: int
    place: Place


@dataclass(frozen=True, slots=True)
class WriteOffsets:
    """The broker asks whether offsets of the group may wait for the end of this transaction."""

    producer_id: int
    epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class AddAndWriteRecords:
    """A write adds its partition, in the second version of transactions (KIP-890)."""

    producer_id: int
    epoch: int
    place: Place


@dataclass(frozen=True, slots=True)
class AddAndWriteOffsets:
    """A commit of offsets adds its group, in the second version of transactions (KIP-890)."""

    producer_id: int
    epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The producer commits or aborts its transaction."""

    producer_id: int
    epoch: int
    commits: bool


@dataclass(frozen=True, slots=True)
class EndAndBump:
    """The producer commits or aborts, and continues with the next epoch (KIP-890, second version).

    ``fresh_id`` is an unused producer id, for use if the epochs of the current id are exhausted.
    """

    producer_id: int
    epoch: int
    commits: bool
    fresh_id: int


@dataclass(frozen=True, slots=True)
class TransactionTimedOut:
    """The timer of an open transaction ran; it is ignored before ``Transaction.aborts_at_ms``."""


Written = WriteRecords | WriteOffsets | AddAndWriteRecords | AddAndWriteOffsets
Owned = AddPartitions | AddGroup | Written | EndTransaction | EndAndBump
Event = InitProducer | Owned | TransactionTimedOut
