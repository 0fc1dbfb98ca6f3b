"""The commands that a consumer receives on its stream.

The first message of every stream is a full assignment.
"""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.service.handoff import TopicPartition


@dataclass(frozen=True, slots=True)
class Owned:
    """A partition to process.

    ``epoch``   written with each commit; the sink refuses an epoch below the highest it has seen
    ``offset``  where the previous owner stopped, if the previous owner reported it
    ``keep``    the hand-off for which the consumer was asked to release the partition is aborted:
                the consumer keeps the partition under the same epoch
    """

    at: TopicPartition
    epoch: int
    offset: int | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions to process and partitions to drop immediately.

    ``full``: the consumer owns only the partitions of this message. ``releasing``: its Release
    commands follow a full assignment; the consumer keeps such a partition until then if it still
    holds it.
    """

    assigned: tuple[Owned, ...] = ()
    unassigned: tuple[TopicPartition, ...] = ()
    full: bool = False
    releasing: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Warm:
    """Warm up for the partition, then send PartitionReady (or WarmFailed) with the id."""

    at: TopicPartition
    current_owner: str
    handoff_id: int
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Release the partition, then send PartitionReleased with the id.

    ``strict``: the new owner waits for the release. Drain, flush the offset, then send the offset.
    Otherwise the new owner processes already, and the sink refuses further commits under the old
    epoch.
    """

    at: TopicPartition
    new_owner: str
    handoff_id: int
    strict: bool = False


@dataclass(frozen=True, slots=True)
class AbortWarm:
    """Discard the state warmed for this hand-off: it ended and the partition went elsewhere."""

    at: TopicPartition
    handoff_id: int


@dataclass(frozen=True, slots=True)
class Replicas:
    """Keep these partitions warm without processing them. Each message has the whole list."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Pulse:
    """A sign of life of the stream, sent when no other command waits."""


Command = Assignment | Warm | Release | AbortWarm | Replicas | Pulse
