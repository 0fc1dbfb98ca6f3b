"""A Faust worker in this process, all of Faust real, on logs in memory instead of a broker.

Real are the app, its driver's consumer and consumer thread, conductor, streams, tables and
recovery. Virtual are ``AIOKafkaConsumer`` and the producer, of ``virtual_kafka.py``. The test plays the
group: ``await worker.rebalance(partitions)``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, ClassVar

import faust
from faust.types import TP

from faust_assigner.app import compose
from tests.support.waiting import PATIENCE_S
from tests.support.workers.virtual_kafka import Logs, VirtualConsumer, VirtualTransport


class Assigned:
    """The part of the assignor that the recovery uses."""

    def __init__(self, app: Any, replicas: int = 0) -> None:
        self.actives: set[TP] = set()
        self.standbys: set[TP] = set()

    def assigned_actives(self) -> set[TP]:
        """Return the partitions that this worker owns."""
        return self.actives

    def assigned_standbys(self) -> set[TP]:
        """Return the partitions for which this worker is a standby."""
        return self.standbys


class Worker:
    """The app: it counts how often each order number occurs, in a table with a changelog."""

    #: Keyword arguments of the agent.
    agent_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, *, partitions: int = 1, repaired: bool, **settings: Any) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="virtual-")
        settings = {
            "broker_commit_interval": 60.0,
            "stream_buffer_maxsize": 4096,
            "datadir": self.folder.name,
            "store": "memory://",
        } | settings
        self.logs = Logs(partitions)
        self.app = app = faust.App(
            "virtual",
            broker="kafka://virtual",
            web_enabled=False,
            topic_partitions=partitions,
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
            PartitionAssignor=Assigned,
            **settings,
        )
        app.logs = self.logs
        app.transport = VirtualTransport(app.conf.broker_consumer, app)
        if repaired:
            compose.repair(app)
            self.install_more()
        self.processed: list[tuple[int, int]] = []
        self.before_recovery: list[int] = []
        self.delay_s = self.replay_delay_s = 0.0
        self.orders = app.topic("orders", key_type=str, value_type=int, partitions=partitions)
        self.counts = app.Table(
            "counts",
            key_type=str,
            value_type=int,
            default=int,
            partitions=partitions,
            on_changelog_event=self.replay,
        )
        app.agent(self.orders, **self.agent_options)(self.count)

    def install_more(self) -> None:
        """Install further parts of ours before the app has tables; none by default."""

    async def count(self, orders: faust.StreamT[int]) -> None:
        """The agent."""
        async for event in orders.events():
            if self.app.in_recovery:
                self.before_recovery.append(event.message.offset)
            self.counts[event.key] += 1
            self.processed.append((event.message.partition, event.message.offset))
            if self.delay_s:
                await asyncio.sleep(self.delay_s)

    async def replay(self, event: Any) -> None:
        """Delay the restore of each record."""
        if self.replay_delay_s:
            await asyncio.sleep(self.replay_delay_s)

    @property
    def consumer(self) -> VirtualConsumer:
        """The virtual client."""
        client: VirtualConsumer = self.app.consumer._thread._consumer
        return client

    def source(self, partition: int = 0) -> TP:
        """Return a partition of the orders."""
        return TP("orders", partition)

    def changelog(self, partition: int = 0) -> TP:
        """Return a partition of the table's changelog."""
        return TP(self.counts.changelog_topic.get_topic_name(), partition)

    def send_orders(self, count: int, partition: int = 0) -> None:
        """Put ``count`` records into the source topic, keys counting up."""
        for _ in range(count):
            offset = self.logs.ends[self.source(partition)]
            self.logs.append(self.source(partition), f"key-{offset}".encode(), b"1")

    def send_changelog(self, count: int, partition: int = 0) -> None:
        """Put ``count`` rows into the table's changelog."""
        for _ in range(count):
            offset = self.logs.ends[self.changelog(partition)]
            self.logs.append(self.changelog(partition), json.dumps(f"old-{offset}").encode(), b"7")

    @property
    def offsets(self) -> list[int]:
        """The processed offsets of partition 0, in order, with repeats."""
        return [offset for partition, offset in self.processed if partition == 0]

    async def rebalance(self, actives: Iterable[int], standbys: Iterable[int] = ()) -> None:
        """Assign ``actives`` and the standbys ``standbys`` in an eager round."""
        assignor, consumer = self.app.assignor, self.app.consumer._thread._consumer
        owned, copied = list(actives), list(standbys)
        assignor.actives = {tp for p in owned for tp in (self.source(p), self.changelog(p))}
        assignor.standbys = {self.changelog(p) for p in copied}
        told = asyncio.run_coroutine_threadsafe(
            consumer.rebalance(assignor.actives | assignor.standbys), consumer.loop
        )
        await asyncio.wrap_future(told)

    async def until(self, condition: Any, timeout_s: float = PATIENCE_S) -> bool:
        """Wait for ``condition()``; return whether it became true."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await asyncio.sleep(0.005)
        return bool(condition())

    async def commit(self) -> None:
        """Commit all finished records; the first call may only wait for an older commit's end."""
        if not await self.app.consumer.commit():
            await self.app.consumer.commit()

    @property
    def subscribed(self) -> bool:
        """Whether the worker waits for its first assignment."""
        consumer = self.app._consumer and self.app.consumer._thread._consumer
        return consumer is not None and consumer.listener is not None

    @property
    def recovered(self) -> bool:
        """Whether this generation's recovery is over and streams run."""
        return not self.app.rebalancing and self.app.tables.recovery.completed.is_set()


@contextlib.asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    """Run the worker during the block."""
    app = worker.app
    app.finalize()

    async def at_once() -> None:
        await app.tables._update_channels()
        await app.tables.recovery.start()

    app.tables.on_start = at_once  # Faust sleeps a second here
    started = asyncio.create_task(app.start())  # ends with the first recovery
    try:
        assert await worker.until(lambda: worker.subscribed or started.done())
        if started.done():
            await started
        yield worker
    finally:
        stopping = asyncio.ensure_future(app.stop())
        # A defect may make it wait for a record that never ends; some waits cannot be cancelled.
        _, unable = await asyncio.wait({stopping}, timeout=PATIENCE_S)
        assert not unable, "the worker cannot stop"
        started.cancel()
        await asyncio.gather(started, return_exceptions=True)
