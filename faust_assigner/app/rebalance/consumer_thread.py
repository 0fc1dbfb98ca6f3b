"""The consumer's thread, with and without this package's repairs, and Faust's unrepaired consumer.

All methods run on the consumer's thread, except ``seek_to_committed`` and ``verify_event_path``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer

from faust_assigner.app.consumer.fetching import fetch_or_put_back, seek_to_committed
from faust_assigner.app.consumer.waits import agents_s, broker_s, waits_of
from faust_assigner.app.host.clients import faust_tps
from faust_assigner.app.host.mixing import over
from faust_assigner.app.membership.coordinator import take_over
from faust_assigner.app.membership.idle import rejoin_after_idle
from faust_assigner.app.membership.instance import guard_instance
from faust_assigner.app.membership.leader_guard import guard_leader
from faust_assigner.app.membership.shutdown import EndsWithItsProcess
from faust_assigner.app.membership.topics import change_topics
from faust_assigner.app.settings import read_or_default
from faust_assigner.settings.table import COOPERATIVE

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from faust.types.transports import ConsumerT, TransportT
    from faust.types.tuples import TP


#: An app's own consumer class may have this attribute: its own class of the consumer's thread.
THREAD_NAMED = "thread_class"

#: The number of calls from the app's thread that this thread serves at the same time. Faust serves two.
#: A call waits up to the request timeout for a silent broker. Two such calls, for example for the end
#: offsets of an unavailable changelog, would then delay all fetches and commits of the worker.
CALLS = 32


class ThreadListener:
    """Passes the coordinator's calls on from the consumer's thread to the app's thread."""

    def __init__(self, thread: AIOKafkaConsumerThread) -> None:
        self._thread = thread

    async def _call_on_app_loop(
        self, method: Callable[..., Awaitable[None]], *args: object
    ) -> None:
        app = self._thread.app
        with waits_of(app).during("A rebalance", f"the app's {method.__name__}()", agents_s(app)):
            promise = await self._thread.consumer._method_queue.call(
                self._thread.thread_loop.create_future(), method, *args
            )
            await promise

    def waiting(self, step: str) -> AbstractContextManager[object]:
        """Count the time in the ``with`` block as the rebalance's wait for ``step``."""
        app = self._thread.app
        return waits_of(app).during("A rebalance", step, broker_s(app))

    def is_flowing(self) -> bool:
        """Return whether the first recovery of this generation is over."""
        return bool(self._thread.app.tables.recovery.is_flowing)

    def is_taking_on(self) -> bool:
        """Return whether partitions are about to be resumed."""
        return bool(self._thread.app.tables.recovery.is_taking_on)

    def round_started(self) -> None:
        """Report the beginning of a round."""
        consumer = self._thread.consumer
        with contextlib.suppress(RuntimeError):  # the app's loop is closed: the worker stops
            consumer.loop.call_soon_threadsafe(consumer.rounds.begin)

    async def prepare_full_revocation(self) -> None:
        """Report the end of the current round, because all partitions are about to be revoked."""
        await self._call_on_app_loop(self._thread.consumer.incremental.give_up)

    async def revoke(self, revoked: Collection[TP]) -> None:
        """Finish the records of ``revoked``, commit them and stop processing these partitions."""
        await self._call_on_app_loop(self._thread.consumer.incremental.revoke, faust_tps(revoked))

    async def assigned(
        self,
        tps: Collection[TP],
        revoked: Collection[TP],
        gained: Collection[TP],
        roles: tuple[set[TP], set[TP]],
        generation: int,
    ) -> None:
        """Take over the assignment ``tps`` and start with the partitions in ``gained``."""
        await self._call_on_app_loop(
            self._thread.consumer.incremental.assign,
            faust_tps(tps),
            faust_tps(revoked),
            faust_tps(gained),
            roles,
            generation,
        )

    def note_hand_over(self, everything: bool) -> None:
        """Note the answer to the round in which this leaving worker gives all partitions away."""
        consumer = self._thread.consumer
        consumer.loop.call_soon_threadsafe(consumer.left.set)
        consumer.loop.call_soon_threadsafe(consumer.rounds.end)

    async def stand_still(self) -> None:
        """Stop processing."""
        # Stop the flow from this thread, because the app's thread may be busy. The call only sets values.
        self._thread.consumer.incremental.stop_flow_now()
        await self._call_on_app_loop(self._thread.consumer.incremental.stand_still)


class AssigningThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """Faust's thread; its client joins the group with the app's assignor and this package's guards.

    If an app has neither tables nor standbys, Faust passes aiokafka's round-robin assignor to the client.
    Then some workers get no partition, partitions move at every rebalance, and Faust's
    ``group_for_topic`` raises KeyError.
    """

    def _create_worker_consumer(self, transport: TransportT) -> AIOKafkaConsumer:
        consumer, assignor = super()._create_worker_consumer(transport), self.app.assignor
        consumer._partition_assignment_strategy = [assignor]
        return consumer

    async def on_start(self) -> None:
        """Start the client, then add the guards: the client joins its group later."""
        await super().on_start()
        await self._replace_parts(self._consumer)
        guard_leader(self._consumer)
        guard_instance(self._consumer, self.app)
        rejoin_after_idle(self._consumer, float(self.app.conf.broker_max_poll_interval or 0.0))

    async def _replace_parts(self, client: AIOKafkaConsumer) -> None:
        """Replace parts of the started client; this class replaces none."""


class RepairedThread(AssigningThread):
    """The thread of :class:`RepairedConsumer`."""

    Worker = EndsWithItsProcess

    async def _fetch_records(
        self,
        consumer: ConsumerT,
        active_partitions: Collection[TP] | None,
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> Mapping[TP, list[object]]:
        return await fetch_or_put_back(
            self,
            super()._fetch_records,
            consumer,
            active_partitions,
            timeout=timeout,
            max_records=max_records,
        )

    async def on_thread_started(self) -> None:
        """Serve many calls at the same time: a call without an answer delays no fetch and no commit."""
        self.method_queue.num_workers = CALLS
        await super().on_thread_started()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to ``topics``; partitions that are assigned stay assigned until the next round."""
        names = set(topics)
        with waits_of(self.app).during(
            "A subscription", "the current rebalance", agents_s(self.app)
        ):
            is_changed = await self.call_thread(change_topics, self._ensure_consumer(), names)
        if not is_changed:
            await super().subscribe(names)

    def topic_partitions(self, topic: str) -> int | None:
        """Return the number of partitions of ``topic``; None if the cached metadata lacks the topic.

        Stock Faust reads the counts that aiokafka caches on the leader of the group only, and returns 0
        for a topic without metadata, so the agent's first change of a new table raises
        PartitionsMismatch.
        """
        client = self._consumer
        return (client and len(client.partitions_for_topic(topic) or ())) or None

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        """Seek all partitions to their committed offsets, which one request fetches."""
        return await seek_to_committed(self, super().seek_to_committed)

    def close(self) -> None:
        """Leave the client open: Faust calls this method in a rebalance while the app stops.

        Stock Faust closes the client and its coordinator on the app's event loop, but both run on the
        consumer's loop. Such a worker commits nothing and never leaves the group. ``on_thread_stop``
        closes both.
        """

    async def on_thread_stop(self) -> None:
        """Stop the client within the shutdown's time limit."""
        await self.consumer.shutdown.stop_client(super().on_thread_stop)

    async def _replace_parts(self, client: AIOKafkaConsumer) -> None:
        """Replace the client's coordinator and fetcher, unless the client has no group (client-only)."""
        if not hasattr(client._coordinator, "ensure_active_group"):
            return
        app, consumer, listener = self.app, self.consumer, ThreadListener(self)
        coordinator = await take_over(
            client, app.assignor, listener, consumer.fence, offers=read_or_default(app, COOPERATIVE)
        )
        fetcher = coordinator.membership.fetcher
        fetcher.is_wanted, fetcher.is_hurried = consumer.delivery.is_wanted, listener.is_taking_on
        fetcher.counters = app.assignor.counters
        consumer.fetcher = fetcher
        app.flow_control.must_skip_records = coordinator.membership.must_skip_records

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Report a partition without new records or commits, if the consumer fetches the partition."""
        consumer = self.consumer
        if consumer.in_transaction:
            consumer.delivery.note_commit(now, tp, self.tp_last_committed_at)
        counted_from = consumer.app.monitor.stream_inbound_time, self.tp_last_committed_at
        consumer.delivery.verify(super().verify_event_path, now, tp, counted_from=counted_from)


class AssigningConsumer(Consumer):  # type: ignore[misc]
    """Faust's unrepaired consumer, which joins its group with this package's assignor."""

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return new_thread(AssigningThread, self)


def new_thread(ours: type, consumer: Any) -> AIOKafkaConsumerThread:
    """Create the consumer's thread, from ``ours`` and the thread class that the app's consumer names."""
    theirs = getattr(consumer, THREAD_NAMED, AIOKafkaConsumerThread)
    return over(ours, theirs)(consumer, loop=consumer.loop, beacon=consumer.beacon)
