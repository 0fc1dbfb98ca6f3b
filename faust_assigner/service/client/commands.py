"""The service's commands to a consumer: ``AssignmentCommand`` messages as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from faust_assigner.service.handoff import TopicPartition


@dataclass(frozen=True)
class Grant:
    """A partition that the consumer owns.

    ``epoch`` rises with each owner. A sink that keeps the highest epoch can refuse the late write
    of a former owner. ``start_offset`` is the offset at which the previous owner stopped, or None
    if unknown. A consumer that registers again gets the same grant: an offset that it committed
    under this epoch has priority over ``start_offset``. ``keep``: the release of this partition is
    cancelled; continue under the same epoch.
    """

    partition: TopicPartition
    epoch: int = 0
    start_offset: int | None = None
    keep: bool = False


@dataclass(frozen=True)
class Assigned:
    """The partitions owned from now on, and the changes since the last :class:`Assigned`.

    A partition granted again under a new epoch is in both ``removed`` and ``added``: another
    consumer owned the partition in between.
    """

    owned: Mapping[TopicPartition, Grant]
    added: tuple[Grant, ...] = ()
    removed: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class Warm:
    """Prepare to own ``partition`` while ``current_owner`` still works on it; then acknowledge.

    ``strict``: the partition is granted only after the old owner has stopped.
    """

    partition: TopicPartition
    current_owner: str
    handoff_id: int = 0
    strict: bool = False


@dataclass(frozen=True)
class Release:
    """Stop working on ``partition``, which goes to ``new_owner``; then acknowledge.

    ``strict``: the new owner waits for the acknowledgement and starts at its offset. ``new_owner``
    is empty if this consumer leaves and no other consumer can take the partition.
    """

    partition: TopicPartition
    new_owner: str
    handoff_id: int = 0
    strict: bool = False


@dataclass(frozen=True)
class AbortWarm:
    """The handoff ended without a grant: the consumer may drop the warmed state."""

    partition: TopicPartition
    handoff_id: int


@dataclass(frozen=True)
class Standbys:
    """All replicas that the consumer should hold."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Lost:
    """The service did not confirm the session in time: other consumers may own these partitions.

    Stop working on these partitions at once and commit nothing more.
    """

    partitions: tuple[TopicPartition, ...] = field(default=())


Command: TypeAlias = Assigned | Warm | Release | AbortWarm | Standbys | Lost
