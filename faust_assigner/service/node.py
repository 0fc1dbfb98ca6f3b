"""One instance of the service. The network layer calls :class:`AssignerNode`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from faust_assigner.service.clock import Clock, SystemClock
from faust_assigner.service.digest import Held
from faust_assigner.service.errors import NotFound, StoreUnavailable, expelled
from faust_assigner.service.instance_state import InstanceState
from faust_assigner.service.keys import (
    Keys,
    checked_consumer,
    checked_endpoint,
    checked_incarnation,
    checked_topic,
)
from faust_assigner.service.leading.catalogue import Catalogue, CountPartitions
from faust_assigner.service.leading.election import Election, Leadership
from faust_assigner.service.leading.overview import Overview
from faust_assigner.service.leading.rebalancer import Rebalancer
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import Action, Consumer
from faust_assigner.service.serving.acks import Acks
from faust_assigner.service.serving.answering import Answering
from faust_assigner.service.serving.beats import Beats
from faust_assigner.service.serving.callers import Callers
from faust_assigner.service.serving.claims import check_claims
from faust_assigner.service.serving.orders import Orders
from faust_assigner.service.serving.registered import Registered
from faust_assigner.service.serving.registrar import Registrar
from faust_assigner.service.serving.registry import Stream
from faust_assigner.service.serving.routes import RouteUpdate, followed
from faust_assigner.service.serving.sessions import Sessions
from faust_assigner.service.store.base import Store
from faust_assigner.service.tasks import cancel_and_wait, first
from faust_assigner.service.view import Change, View
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)


class AssignerNode:
    """One instance: starts and stops all parts, and registers consumers.

    ``acks`` takes the answers to hand-offs, and ``orders`` an operator's orders. ``overview`` shows
    the group, and ``condition`` the instance's own state.

    ``node_id`` names the instance in the leader's key. The instance writes new ``topics`` at its
    start. ``count_partitions`` asks Kafka; without this function the service has only ``topics``
    and the topics in the store. Every method raises :class:`ServiceRefused` (see errors)
    for a refused request, and ``StoreError`` if the store does not answer. All methods are
    idempotent: a caller may repeat each call.
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
        self.keys = Keys(settings.prefix)
        self._clock = clock = clock or SystemClock()
        self._metrics = metrics = metrics or Metrics()
        self._mirror = Mirror(store, self.keys, clock, reconcile_s=settings.reconcile_s)
        self._catalogue = Catalogue(
            store, self.keys, settings, clock, self._mirror, topics or {}, count_partitions
        )
        self._callers = Callers(store, self.keys, self._mirror)
        self.acks = Acks(clock, self._mirror, self._callers, Answering(store, self.keys))
        self._registered = Registered(store, self.keys, self._mirror)
        self.orders = Orders(store, self.keys, clock, self._mirror, self._registered)
        self._beats = Beats(store, self.keys, settings, clock, self._mirror, metrics)
        registrar = Registrar(store, self.keys, settings, clock, self._mirror, node_id)
        self._sessions = Sessions(settings, clock, self._mirror, metrics, self._beats, registrar)
        self._rebalancer = Rebalancer(self._mirror, settings, clock, metrics)
        self.overview = Overview(self._mirror, self._rebalancer)
        self._election = Election(
            store, self.keys, settings, clock, node_id, self._lead, self._vacant
        )
        self._vacancy = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.condition = InstanceState(self._mirror, clock, settings)
        self._mirror.listeners += [
            self.condition.on_changes,
            self._beats.on_changes,
            self._sessions.on_changes,
            self._rebalancer.on_changes,
            self._catalogue.on_changes,
            self._on_changes,
        ]

    async def start(self) -> None:
        """Write the topics, follow the store, and join the election. Return when ready to serve."""
        await self._mirror.load()
        await self._catalogue.write()
        loop = asyncio.get_running_loop()
        works = {
            "follow": self._mirror.follow(),
            "reconcile": self._mirror.reconcile(),
            "election": self._election.run(),
            "pulse": self._sessions.pulse(),
            "topics": self._catalogue.keep(),
        }
        self._tasks = [
            loop.create_task(work, name=f"{self.node_id}: {name}") for name, work in works.items()
        ]

    async def _lead(self, term: Leadership) -> None:
        """Lead for one term."""
        self._metrics.leading(True)
        refresh = asyncio.get_running_loop().create_task(
            self._catalogue.refresh(term), name="refresh"
        )
        try:
            await self._rebalancer.lead(term)
        finally:
            self._metrics.leading(False)
            self._metrics.handoffs({})  # only the leader reports hand-offs and stuck consumers
            self._metrics.stuck(0)
            await cancel_and_wait(refresh)

    async def _vacant(self) -> None:
        """Wait until the leader's key disappears, or until the next try is due."""
        self._vacancy.clear()
        await first(self._vacancy.wait(), self._clock.sleep(self.settings.election_retry_s))

    def _on_changes(self, changes: Sequence[Change]) -> None:
        if any(change.kind == "leaders" and change.after is None for change in changes):
            self._vacancy.set()

    async def stop(self) -> None:
        """Close all streams (``Ended.STOPPING``), stop, and resign. Consumers stay registered."""
        await self._sessions.stop()
        for task in reversed(self._tasks):
            await cancel_and_wait(task)
        self._tasks.clear()
        self._mirror.end()
        await self._election.resign()

    @property
    def serving(self) -> bool:
        """Whether the instance is started and the store answers, so that it can serve calls."""
        return bool(self._tasks) and self.condition.hears_store

    @property
    def lives(self) -> bool:
        """Whether the instance is started and all its tasks run; if not, a restart may help."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    @property
    def leads(self) -> bool:
        """Whether this instance leads and its lease is valid."""
        return self._election.leads

    async def register(self, consumer: Consumer) -> Stream:
        """Register a consumer; the service sets ``status``, ``registered_at`` and ``session``.

        A living stream of the same name on any instance ends as REPLACED. A new incarnation gets
        the name's partitions under new epochs; in strict mode only after the replaced incarnation's
        lease has expired. Raises also ``Replaced``.
        """
        checked_consumer(consumer.name)
        checked_incarnation(consumer.incarnation)
        checked_endpoint(consumer.endpoint)
        check_claims(consumer)
        await self._need_topics(consumer)
        return await self._sessions.register(consumer)

    async def _need_topics(self, consumer: Consumer) -> None:
        """Add the unknown topics of a subscription. Raises NotFound and StoreUnavailable.

        If a process registers again, a missing topic is only logged: it may have been removed.
        """
        for topic in map(checked_topic, consumer.topics):
            try:
                await self._catalogue.need(topic)
            except (NotFound, StoreUnavailable) as error:
                if not consumer.returns:
                    raise
                logger.info("%s registers again without topic %s: %s", consumer.name, topic, error)
                if isinstance(error, StoreUnavailable):
                    return  # the next topic would wait for Kafka too; the leader asks Kafka later

    async def heartbeat(
        self,
        consumer_name: str,
        session: str,
        *,
        held: Held | None = None,
        identity: str = "",
        incarnation: str = "",
    ) -> float | None:
        """Renew a registration made at any instance; return the seconds that it surely has left.

        ``session``: the id of the consumer's last session. Returns None if the registration is
        over. ``held``: the digest of the partitions that the consumer holds; the service compares
        this digest with the assignment.
        """
        async with self._callers.handle_request(consumer_name, identity, incarnation):
            lives_s = await self._beats.beat(consumer_name, identity, incarnation, session, held)
            if lives_s is None and await self._callers.is_expelled(consumer_name, incarnation):
                raise expelled(consumer_name, incarnation)
        return lives_s

    async def record_replicas(
        self,
        consumer_name: str,
        replicas: Mapping[str, Sequence[int]],
        *,
        identity: str = "",
        incarnation: str = "",
    ) -> int:
        """Record the replicas that the consumer keeps warm: topic -> partitions.

        Returns a revision that contains the record, on the scale of epochs.
        """
        held = {
            checked_topic(topic): tuple(sorted(set(numbers))) for topic, numbers in replicas.items()
        }
        async with self._callers.handle_request(consumer_name, identity, incarnation):
            return self._as_epoch(await self._registered.hold(consumer_name, incarnation, held))

    async def deregister(
        self, consumer_name: str, *, identity: str = "", incarnation: str = ""
    ) -> Action:
        """Begin to drain a consumer that wants to stop. An unknown consumer may stop at once.

        WAIT_FOR_DRAIN: the consumer's stream ends with DRAINED after the last hand-off. Instead
        of waiting for the end of the stream, the consumer may repeat the call.
        """
        try:
            async with self._callers.handle_request(consumer_name, identity, incarnation):
                return await self._registered.leave(consumer_name, incarnation)
        except NotFound:
            return Action.SHUTDOWN_NOW

    def routes(self, topics: Collection[str], least_revision: int) -> AsyncIterator[RouteUpdate]:
        """Iterate over the partitions' owners and their changes, forever.

        Raises the errors of :func:`followed`.
        """
        checked = tuple(map(checked_topic, topics))
        return followed(
            self._mirror,
            self.condition,
            self._clock,
            checked,
            least=least_revision,
            every_s=self.settings.pulse_s,
        )

    # -- for operators -------------------------------------------------------------------------------

    async def drain(self, consumer_name: str) -> Action:
        """Drain a consumer by an operator's order, which holds for every process of the name.

        Returns the same answers as :meth:`deregister`. Raises ``NotFound``.
        """
        return await self._registered.drain(consumer_name)

    def _as_epoch(self, revision: int) -> int:
        """Return a revision of the store on the scale of epochs: plus the base."""
        return self._mirror.view.base + revision

    async def set_topic(self, topic: str, partition_count: int) -> int:
        """Add a topic to the service, or set its new partition count.

        Like :meth:`remove_topic`, return the revision from which the change holds.
        """
        return self._as_epoch(await self._catalogue.set(checked_topic(topic), partition_count))

    async def remove_topic(self, topic: str) -> int:
        """Remove a topic from the service: its owners lose its partitions. Raises ``NotFound``."""
        return self._as_epoch(await self._catalogue.remove(checked_topic(topic)))

    @property
    def view(self) -> View:
        """This instance's copy of the store, read-only."""
        return self._mirror.view

    def incarnation(self, name: str) -> str:
        """Return the incarnation registered under a name, as seen by this instance, or ""."""
        return self._mirror.view.incarnation(name)

    @property
    def revision(self) -> int:
        """The revision of this instance's copy of the group's state, on the scale of epochs."""
        return self._mirror.dated
