"""The records in the store, except hand-offs, and the values that the service returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from faust_assigner.service.handoff import Handoff, TopicPartition


class Status(Enum):
    """The status of a consumer. The values are the stored names."""

    READY = "Ready"
    DRAINING = "Draining"


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """A registered consumer. A consumer lives while its key exists; the key is bound to a lease.

    ``topics``         the subscribed topics; empty: every topic of the service
    ``co_partitioned`` sets of topics whose equal partition numbers must have the same owner
    ``holds``          topic -> the partitions of which the consumer keeps a warm replica
    ``former``         topic -> the partitions that the consumer reports to have owned before;
                       stored only while the group waits for missing consumers
    ``weights``        topic -> partition -> its cost, if the consumer sent it; 1.0 is the default
    ``endpoint``       the consumer's address for requests, for callers that watch assignments
    ``identity``       the authenticated name of the caller; "" without authentication
    ``session``        the id of this registration; each registration of a name has a new id
    ``incarnation``    the id of the process under this name; "" for clients of the first proto
    ``replaced``       earlier incarnations, newest first, at most :data:`MOST_REPLACED`
    ``returns``        in a request only: this incarnation was registered before. The service
                       refuses the request if a different incarnation is registered
    ``epoch``          in a request only: the highest epoch of any grant to this process
    ``by_operator``    an operator drained the name: a new incarnation stays drained
    ``leaves``         the consumer drains because the process itself wants to stop
    ``dismissed``      the process was told to stop while it drained, because no consumer can take
                       its partitions: the next registration of the name does not drain
    """

    name: str
    status: Status = Status.READY
    registered_at: float = 0.0
    topics: tuple[str, ...] = ()
    capacity: float = 1.0
    rack: str | None = None
    weights: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    co_partitioned: tuple[tuple[str, ...], ...] = ()
    holds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    former: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    endpoint: str = ""
    identity: str = ""
    session: str = ""
    incarnation: str = ""
    replaced: tuple[str, ...] = ()
    returns: bool = False
    epoch: int = 0
    by_operator: bool = False
    leaves: bool = False
    dismissed: bool = False

    def wants(self, topic: str) -> bool:
        """Whether the consumer subscribes to the topic."""
        return not self.topics or topic in self.topics


def names_itself(incarnation: str) -> bool:
    """Whether the process sent this incarnation itself.

    Incarnations made by the service begin with ``~``.
    """
    return incarnation != "" and not incarnation.startswith("~")


#: Seconds for which the store keeps the mark of an expelled incarnation. The service assumes that
#: an expelled process has stopped by then.
EXPELLED_S = 86_400.0
#: The values of the key ``awaiting/group``: whether the store still has the group's assignments.
KNOWN, FORGOTTEN = b"known", b"forgotten"
#: The values of the key ``removed/TOPIC``: an operator removed the topic, or Kafka deleted it. A
#: topic that Kafka deleted returns when Kafka has it again.
BY_OPERATOR, IN_KAFKA = b"by an operator", b"in Kafka"
#: Maximum number of replaced incarnations that a registration lists.
MOST_REPLACED = 16
#: The capability of a consumer that calls Heartbeat.
HEARTBEATS = "heartbeats"
#: The capability of a consumer that keeps replicas warm, if the service's ``replicas`` is above 0.
KEEPS_REPLICAS = "replicas"


@dataclass(frozen=True, slots=True)
class Assigned:
    """The owner of a partition, and the epoch under which it owns the partition.

    ``epoch``        in the store, the key's revision; consumers get the epoch of ``View.dated``
    ``offset``       the offset at which the previous owner stopped
    ``incarnation``  the owner's process; other processes of the name do not own the partition
    ``absent``       in an answer only: the owner is not registered
    """

    at: TopicPartition
    owner: str
    epoch: int = 0
    offset: int | None = None
    incarnation: str = ""
    absent: bool = False

    @property
    def process(self) -> tuple[str, str]:
        """The owning process: (name, incarnation)."""
        return self.owner, self.incarnation


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic of the service.

    ``in_kafka``: Kafka once had this topic, so that the service removes it when Kafka deletes it.
    """

    topic: str
    partition_count: int
    in_kafka: bool = False


@dataclass(frozen=True, slots=True)
class Pin:
    """An operator's order to put the partition on this consumer.

    ``once``: the order ends when the consumer owns the partition or can no longer take it.
    """

    at: TopicPartition
    consumer: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's order to stop moves for balance. ``since``: unix seconds."""

    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Leader:
    """The leading instance, and the lease of its key."""

    holder: str
    lease_id: int


@dataclass(frozen=True, slots=True)
class OpenHandoff:
    """A hand-off with its id, the revision that created its key.

    ``age_s``: seconds since this instance first saw the hand-off.
    """

    handoff: Handoff
    handoff_id: int
    age_s: float


class Action(Enum):
    """The answer to a consumer that deregisters."""

    SHUTDOWN_NOW = 0
    WAIT_FOR_DRAIN = 1


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A move of a dry run. ``old_owner`` is ``None`` for an orphan, which moves at once."""

    at: TopicPartition
    old_owner: str | None
    new_owner: str


class Ended(Enum):
    """The reason for the end of a stream."""

    REPLACED = "another stream of the same name has replaced it"
    AGAIN = "this process has registered again, with another stream"
    EXPELLED = "this process did not release a partition: it is expelled"
    LEASE_LOST = "the registration could not be renewed: stop processing and register again"
    DRAINED = "all partitions are handed over: shut down"
    CLOSED = "the consumer closed it"
    STOPPING = "this instance is stopping: register with a different instance"
