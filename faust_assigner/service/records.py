"""What lies in the store besides hand-offs, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from faust_assigner.service.handoff import Handoff, TopicPartition


class Status(Enum):
    """A consumer's; the names are those of the wire."""

    READY = "Ready"
    DRAINING = "Draining"


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """A registered consumer. Living is whose key is there: the key is bound to a lease.

    ``topics``         the topics it wants; empty: every topic of the service
    ``co_partitioned`` sets of topics that must travel together, partition by partition
    ``holds``          topic -> partitions it keeps a warm replica of
    ``former``         topic -> partitions that it says it owned before; kept while the group is awaited alone
    ``weights``        topic -> partition -> what it costs, of those it knows; 1.0 is ordinary
    ``endpoint``       where it takes requests, for callers that watch assignments
    ``identity``       who the channel says it is; "" where channels say nothing
    ``session``        one registration: a second one of the same name is another
    ``incarnation``    the process, among those that use the name; "" for all clients of the first proto
    ``replaced``       the incarnations before this one, newest first, as far as they are remembered
    ``returns``        of a request alone: this incarnation was registered before and may replace no other
    ``by_operator``    an operator drained the name: a new incarnation stays drained
    ``leaves``         draining, and the process itself wants to stop
    ``dismissed``      draining, and told to stop though nobody relieves it: who comes next is a new process
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
    by_operator: bool = False
    leaves: bool = False
    dismissed: bool = False

    def wants(self, topic: str) -> bool:
        """Whether it subscribes to the topic."""
        return not self.topics or topic in self.topics


def names_itself(incarnation: str) -> bool:
    """Whether the process sends this incarnation itself: the service's own begin with ``~``."""
    return incarnation != "" and not incarnation.startswith("~")


#: Seconds for which an expelled incarnation is remembered: no process that was told to stop lives longer.
EXPELLED_S = 86_400.0
#: What the key ``awaiting/group`` says: whether the store still knows who owned what.
KNOWN, FORGOTTEN = b"known", b"forgotten"
#: What the key ``removed/TOPIC`` says: who removed it. What Kafka has again comes back.
BY_OPERATOR, IN_KAFKA = b"by an operator", b"in Kafka"
#: Replaced incarnations that a registration remembers.
MOST_REPLACED = 16
#: A consumer with this capability calls Heartbeat.
HEARTBEATS = "heartbeats"
#: A consumer with this capability is given replicas to keep warm, where the service has ``replicas``.
KEEPS_REPLICAS = "replicas"


@dataclass(frozen=True, slots=True)
class Assigned:
    """Whose a partition is, since which epoch; ``offset`` is where the owner before stopped.

    ``incarnation`` is the owner's: another process of the same name does not own the partition.

    In the store the epoch is the key's revision; what consumers are told is ``View.dated``. ``absent``, of an
    answer alone: the owner is not registered.
    """

    at: TopicPartition
    owner: str
    epoch: int = 0
    offset: int | None = None
    incarnation: str = ""
    absent: bool = False


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic of the service. ``in_kafka``: Kafka has named it; where Kafka has it no more, it is removed."""

    topic: str
    partition_count: int
    in_kafka: bool = False


@dataclass(frozen=True, slots=True)
class Pin:
    """An operator wants the partition on this consumer; ``once``: no longer than until it is there."""

    at: TopicPartition
    consumer: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator wants no moves for balance. ``since`` unix seconds."""

    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads."""

    holder: str
    lease_id: int


@dataclass(frozen=True, slots=True)
class OpenHandoff:
    """A hand-off with its id (the revision that created it) and how long it has been under way, seconds."""

    handoff: Handoff
    handoff_id: int
    age_s: float


class Action(Enum):
    """What a consumer that deregisters is to do."""

    SHUTDOWN_NOW = 0
    WAIT_FOR_DRAIN = 1


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A move of a dry run: ``old_owner`` is ``None`` for an orphan, which is given at once."""

    at: TopicPartition
    old_owner: str | None
    new_owner: str


class Ended(Enum):
    """Why a stream is over."""

    REPLACED = "another stream of the same name has taken its place"
    EXPELLED = "this process did not release a partition: it is expelled"
    LEASE_LOST = "the registration could not be kept alive: stop processing and register again"
    DRAINED = "nothing is left to hand over: shut down"
    CLOSED = "the consumer closed it"
    STOPPING = "this instance is stopping: register with another one"
