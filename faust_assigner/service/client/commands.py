"""What the service tells a consumer, as frozen values: the client's side of ``AssignmentCommand``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class TopicPartition(NamedTuple):
    """A topic's partition; equal to aiokafka's and kafka-python's of the same topic and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True)
class Grant:
    """A partition that the consumer owns.

    ``epoch`` rises with each owner; a sink that keeps the highest it saw refuses a former owner's late write.
    ``start_offset`` is where the owner before stopped, None where it did not say so. A consumer that comes
    back is told the same grant again: what it has committed under this epoch goes before ``start_offset``.
    ``keep``: the release of this partition is called off; go on with it under the same epoch.
    """

    partition: TopicPartition
    epoch: int = 0
    start_offset: int | None = None
    keep: bool = False


@dataclass(frozen=True)
class Assigned:
    """The partitions owned from now on, and how they differ from those before.

    A partition given anew under another epoch is in both ``removed`` and ``added``: somebody else owned it.
    """

    owned: Mapping[TopicPartition, Grant]
    added: tuple[Grant, ...] = ()
    removed: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class Warm:
    """Prepare to own ``partition`` while ``current_owner`` still works on it; then say ready.

    ``strict``: it is given only after the old owner has stopped.
    """

    partition: TopicPartition
    current_owner: str
    handoff_id: int = 0
    strict: bool = False


@dataclass(frozen=True)
class Release:
    """Stop working on ``partition``, which goes to ``new_owner``; then say released.

    ``strict``: the new owner waits for it, and starts at the offset that is told.
    """

    partition: TopicPartition
    new_owner: str
    handoff_id: int = 0
    strict: bool = False


@dataclass(frozen=True)
class AbortWarm:
    """The handoff ended otherwise: what was warmed may be dropped."""

    partition: TopicPartition
    handoff_id: int


@dataclass(frozen=True)
class Standbys:
    """The replicas that the consumer should hold, all of them."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Lost:
    """The service has not confirmed the session for its time to live: others may own these partitions now.

    Stop working on them at once and commit nothing more.
    """

    partitions: tuple[TopicPartition, ...] = field(default=())


Command: TypeAlias = Assigned | Warm | Release | AbortWarm | Standbys | Lost
