"""One instance of the service: what the network layer drives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from faust_assigner.service.clock import Clock, SystemClock
from faust_assigner.service.commands import Command
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.records import (
    Action,
    Assigned,
    Consumer,
    Ended,
    Leader,
    OpenHandoff,
    PlannedMove,
    TopicConfig,
)
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.base import Store

#: Topic -> its partition count in Kafka, ``None`` where there is no such topic.
CountPartitions = Callable[[str], Awaitable[int | None]]


class CommandStream(AsyncIterator[Command], Protocol):
    """What :meth:`AssignerNode.register` gives. Iterating ends when the stream does; see ``ended``."""

    consumer_name: str
    ended: Ended | None

    async def close(self) -> None:
        """The consumer is not connected any more. Its registration lives on until its lease expires, so that
        it finds its partitions when it is back in time."""


class Metrics(Protocol):
    """What the service counts; every method may be a no-op. Times in seconds."""

    def leading(self, leads: bool) -> None:
        """This instance leads from now on, or does not."""

    def handoffs(self, by_phase: Mapping[str, int], oldest_s: float) -> None:
        """The hand-offs under way, by phase."""

    def handoff_ended(self, outcome: str, took_s: float) -> None:
        """``outcome``: handed, aborted or orphan."""

    def rebalanced(self, moves: int, took_s: float) -> None:
        """The leader planned."""

    def store_call(self, operation: str, took_s: float, error: str | None) -> None:
        """A call of the store; ``error`` is the exception's name."""

    def stream_resynced(self, consumer_name: str) -> None:
        """A stream overflowed and gets a fresh snapshot."""

    def streams(self, count: int) -> None:
        """How many consumers are connected to this instance."""


class NoMetrics:
    """Counts nothing."""

    def leading(self, leads: bool) -> None:
        """Nothing."""

    def handoffs(self, by_phase: Mapping[str, int], oldest_s: float) -> None:
        """Nothing."""

    def handoff_ended(self, outcome: str, took_s: float) -> None:
        """Nothing."""

    def rebalanced(self, moves: int, took_s: float) -> None:
        """Nothing."""

    def store_call(self, operation: str, took_s: float, error: str | None) -> None:
        """Nothing."""

    def stream_resynced(self, consumer_name: str) -> None:
        """Nothing."""

    def streams(self, count: int) -> None:
        """Nothing."""


class AssignerNode:
    """One instance: start it, register consumers, pass on what they say, stop it.

    ``node_id`` names it in the leader's key. ``topics`` are written at the start where they are new.
    ``count_partitions`` asks Kafka; without it only ``topics`` and what is in the store are known.
    Every method raises :class:`ServiceRefused` (see errors) for what may not be and ``StoreError`` where the
    store does not answer; a caller may repeat any of them: all are idempotent.
    """

    def __init__(
        self,
        store: Store,
        settings: ServiceSettings,
        *,
        node_id: str,
        topics: Mapping[str, int] | None = None,
        count_partitions: CountPartitions | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.settings = settings
        self.node_id = node_id
        self._store = store
        self._topics = dict(topics or {})
        self._count_partitions = count_partitions
        self._clock: Clock = clock or SystemClock()
        self._metrics: Metrics = metrics or NoMetrics()

    async def start(self) -> None:
        """Write the topics, follow the store, run for leader. Returns when this instance can serve."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close all streams (``Ended.STOPPING``), resign, stop. Consumers keep their registrations."""
        raise NotImplementedError

    @property
    def serving(self) -> bool:
        """Started, and the store answered within two thirds of the leader's TTL: the health of a relay."""
        raise NotImplementedError

    @property
    def leads(self) -> bool:
        """Whether this instance is the leader and sure of it: the health of a leader."""
        raise NotImplementedError

    async def register(self, consumer: Consumer) -> CommandStream:
        """Let a consumer in (``status``, ``registered_at`` and ``session`` are set here). A living stream of
        the same name on any instance ends as REPLACED."""
        raise NotImplementedError

    async def partition_ready(
        self, consumer_name: str, at: TopicPartition, *, handoff_id: int | None = None, identity: str = "",
    ) -> None:
        """The new owner is warm. ``handoff_id`` may be left out by the original's clients."""
        raise NotImplementedError

    async def partition_released(
        self, consumer_name: str, at: TopicPartition, *, handoff_id: int | None = None,
        offset: int | None = None, identity: str = "",
    ) -> None:
        """The old owner let go; in strict mode it has drained and ``offset`` is the next one to process."""
        raise NotImplementedError

    async def warm_failed(
        self, consumer_name: str, at: TopicPartition, *, reason: str, handoff_id: int | None = None,
        identity: str = "",
    ) -> None:
        """The new owner cannot warm the partition: another one is chosen for a while."""
        raise NotImplementedError

    async def progress(
        self, consumer_name: str, at: TopicPartition, fraction: float, *, handoff_id: int | None = None,
        identity: str = "",
    ) -> None:
        """How far the new owner is, 0..1; too many of them are ignored."""
        raise NotImplementedError

    async def holds(
        self, consumer_name: str, replicas: Mapping[str, Sequence[int]], *, identity: str = "",
    ) -> None:
        """What the consumer keeps warm by now: topic -> partitions."""
        raise NotImplementedError

    async def deregister(self, consumer_name: str, *, identity: str = "") -> Action:
        """The consumer wants to stop. An unknown one may: it has nothing.

        WAIT_FOR_DRAIN: its stream ends with DRAINED when everything is handed over (or ask again).
        """
        raise NotImplementedError

    # -- for operators -------------------------------------------------------------------------------

    async def drain(self, consumer_name: str) -> Action:
        """As :meth:`deregister`, by an operator. Raises ``NotFound``."""
        raise NotImplementedError

    async def abort_warm(self, at: TopicPartition, *, handoff_id: int | None = None) -> None:
        """Give a hand-off up; its new owner is not asked again for a while."""
        raise NotImplementedError

    async def set_topic(self, topic: str, partition_count: int) -> None:
        """A topic of the service, or its new count."""
        raise NotImplementedError

    async def consumers(self) -> tuple[Consumer, ...]:
        """All that are registered, by name."""
        raise NotImplementedError

    async def assignments(self) -> tuple[Assigned, ...]:
        """All partitions that are somebody's, by topic and number."""
        raise NotImplementedError

    async def handoffs(self) -> tuple[OpenHandoff, ...]:
        """All hand-offs under way, by topic and number."""
        raise NotImplementedError

    async def topics(self) -> tuple[TopicConfig, ...]:
        """The topics of the service, by name."""
        raise NotImplementedError

    async def leader(self) -> Leader | None:
        """Who leads."""
        raise NotImplementedError

    async def plan(
        self, *, without: Sequence[str] = (), extra: Sequence[Consumer] = (),
    ) -> tuple[PlannedMove, ...]:
        """A dry run: what the leader would move now, were some consumers gone and some more there."""
        raise NotImplementedError

    def watch(self) -> AsyncIterator[object]:
        """For operators' screens: every change of an assignment, a hand-off or a consumer, as its record."""
        raise NotImplementedError
