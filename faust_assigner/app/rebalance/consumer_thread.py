"""The driver's consumer thread: with the repairs, and without.

Everything here runs on the consumer's thread, except ``seek_to_committed`` and
``verify_event_path``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

from faust_assigner.app.consumer.fetching import fetch_or_put_back, seek_to_committed
from faust_assigner.app.membership.coordinator import take_over
from faust_assigner.app.membership.idle import comes_back
from faust_assigner.app.membership.instance import guard_instance
from faust_assigner.app.membership.leader_guard import guard_leader
from faust_assigner.app.membership.shutdown import EndsWithItsProcess
from faust_assigner.app.rebalance.incremental import ThreadListener
from faust_assigner.app.settings import read_or_default
from faust_assigner.settings.table import COOPERATIVE

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from faust.types.assignor import PartitionAssignorT
    from faust.types.transports import ConsumerT, TransportT
    from faust.types.tuples import TP


class AssigningThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """Faust's thread; its client joins the group with the app's assignor and this package's guards.

    Without tables and without standbys, Faust passes aiokafka's round-robin assignor to the client.
    Workers then idle, partitions move at every change, and ``group_for_topic`` knows no topic.
    """

    #: The assignor that the thread informs of revocations.
    _assignor: PartitionAssignorT

    def _create_worker_consumer(self, transport: TransportT) -> AIOKafkaConsumer:
        consumer, assignor = super()._create_worker_consumer(transport), self.app.assignor
        if self._assignor is not assignor:
            self._assignor = assignor
            consumer._partition_assignment_strategy = [assignor]
        return consumer

    async def on_start(self) -> None:
        """Start the client, then guard it: Faust subscribes later, so it is in no group yet."""
        await super().on_start()
        await self._replace_parts(self._consumer)
        guard_leader(self._consumer)
        guard_instance(self._consumer, self.app)
        comes_back(self._consumer)

    async def _replace_parts(self, client: AIOKafkaConsumer) -> None:
        """Replace parts of the started client; Faust's client keeps aiokafka's own."""


class RepairedThread(AssigningThread):
    """The thread of the repaired consumer."""

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

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        """Seek all partitions to their committed offsets, fetched together."""
        return await seek_to_committed(self, super().seek_to_committed)

    async def on_thread_stop(self) -> None:
        """Stop the client within the shutdown's time limit."""
        await self.consumer.stop_client(self, super().on_thread_stop)

    async def _replace_parts(self, client: AIOKafkaConsumer) -> None:
        """Give the client our coordinator and fetcher; the client of a client-only app is in no group."""
        if not hasattr(client._coordinator, "ensure_active_group"):
            return
        app, consumer, listener = self.app, self.consumer, ThreadListener(self)
        coordinator = await take_over(
            client, app.assignor, listener, consumer.fence, offers=read_or_default(app, COOPERATIVE)
        )
        fetcher = coordinator.membership.fetcher
        fetcher.is_wanted, fetcher.is_hurried = consumer.is_wanted, listener.is_taking_on
        fetcher.counters = app.assignor.counters
        consumer.fetcher = fetcher
        app.flow_control.must_stand_still = coordinator.membership.must_stand_still

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Report a partition whose records do not arrive, if the consumer wants them."""
        self.consumer.verify(super().verify_event_path, now, tp)
