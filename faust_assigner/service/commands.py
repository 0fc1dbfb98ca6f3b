"""What a consumer is told over its stream. The first message of every stream is a full assignment."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.service.handoff import TopicPartition


@dataclass(frozen=True, slots=True)
class Owned:
    """A partition to process. Commits show ``epoch``; a lower one than the sink has seen is refused.

    ``offset`` is where the last owner stopped, where it said so. ``keep``: the owner was asked to release the
    partition, the hand-off was given up, and the owner goes on under the same epoch.
    """

    at: TopicPartition
    epoch: int
    offset: int | None = None
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions to process and partitions to drop at once; ``full``: nothing else is the consumer's."""

    assigned: tuple[Owned, ...] = ()
    unassigned: tuple[TopicPartition, ...] = ()
    full: bool = False


@dataclass(frozen=True, slots=True)
class Warm:
    """Get ready to own the partition, then say PartitionReady (or WarmFailed) with the id."""

    at: TopicPartition
    current_owner: str
    handoff_id: int
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of the partition, then say PartitionReleased with the id.

    ``strict``: the new owner waits for it: drain, flush the offset, then say so, with the offset.
    Otherwise the new one processes already, and what is committed from now on is refused by its epoch.
    """

    at: TopicPartition
    new_owner: str
    handoff_id: int
    strict: bool = False


@dataclass(frozen=True, slots=True)
class AbortWarm:
    """Forget what was warmed for this hand-off: it is over and the partition went elsewhere."""

    at: TopicPartition
    handoff_id: int


@dataclass(frozen=True, slots=True)
class Replicas:
    """Keep these partitions warm without processing them; the whole list each time."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Pulse:
    """The stream lives, and what was to be told over it has been told."""


Command = Assignment | Warm | Release | AbortWarm | Replicas | Pulse
