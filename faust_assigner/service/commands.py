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
    ``offset``  the next offset to process, if the previous owner reported it
    ``keep``    the service has aborted the hand-off in which the consumer was to release the
                partition: the consumer keeps the partition under the same epoch
    """

    at: TopicPartition
    epoch: int
    offset: int | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions to process and partitions to drop immediately.

    ``full``: the consumer owns only the partitions of this message. ``releasing``: partitions whose
    Release commands follow this full assignment. The consumer keeps such a partition until its
    Release, if it still holds the partition.
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
    If not strict, the new owner already processes the partition, and the sink refuses further
    commits under the old epoch.
    """

    at: TopicPartition
    new_owner: str
    handoff_id: int
    strict: bool = False


@dataclass(frozen=True, slots=True)
class AbortWarm:
    """Discard the state warmed for this hand-off: the hand-off ended without an assignment."""

    at: TopicPartition
    handoff_id: int


@dataclass(frozen=True, slots=True)
class Replicas:
    """Keep these partitions warm without processing them. Each message has the whole list."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Pulse:
    """A message without content, sent in each idle interval to show that the stream lives."""


Command = Assignment | Warm | Release | AbortWarm | Replicas | Pulse
