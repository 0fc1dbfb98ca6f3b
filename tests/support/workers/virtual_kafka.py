"""The client side of Kafka in memory: logs, a consumer with its thread, a producer, and Faust's transport.

Positions, committed offsets and seeks have aiokafka's semantics. The test plays the group.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

from aiokafka.errors import IllegalStateError, KafkaTimeoutError
from faust.transport.drivers import aiokafka as driver
from faust.transport.producer import Producer
from faust.types import TP
from faust.types.tuples import RecordMetadata


class Record(NamedTuple):
    """A record as aiokafka passes it to Faust."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    timestamp_type: int = 0
    headers: tuple[Any, ...] = ()
    checksum: None = None
    serialized_key_size: int = 0
    serialized_value_size: int = 0


class Logs:
    """The cluster: partition logs, the group's committed offsets, and every commit in order."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.records: dict[TP, list[Record]] = defaultdict(list)
        self.ends: dict[TP, int] = defaultdict(int)
        self.committed: dict[TP, int] = {}

    def append(self, tp: TP, key: bytes | None, value: bytes | None) -> int:
        """Write a record; return its offset."""
        offset = self.ends[tp]
        self.records[tp].append(Record(*tp, offset, key, value))
        self.ends[tp] += 1
        return offset

    def append_marker(self, tp: TP) -> None:
        """End a transaction: the marker takes an offset that no consumer sees."""
        self.ends[tp] += 1


class VirtualFetcher:
    """aiokafka's fetcher as Faust uses it, over ``Logs``."""

    def __init__(self, consumer: VirtualConsumer) -> None:
        self.consumer = consumer
        self._closed = False
        self._subscriptions = SimpleNamespace(fetch_context=contextlib.nullcontext)

    async def fetched_records(
        self, partitions: Any, timeout: float = 0, max_records: int | None = None
    ) -> dict[TP, list[Record]]:
        """Return records after the positions of ``partitions``; of all assigned ones if empty."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            await self.consumer.assigned.wait()
            drained = {}
            for tp in sorted(self.consumer.positions):
                if partitions and tp not in partitions:
                    continue
                position = self.consumer.positions[tp]
                batch = [r for r in self.consumer.logs.records[tp] if r.offset >= position][
                    :max_records
                ]
                if batch:
                    drained[tp] = batch
                # As in aiokafka, the position moves past offsets without a record.
                at_end = not batch or batch[-1] is self.consumer.logs.records[tp][-1]
                self.consumer.positions[tp] = (
                    self.consumer.logs.ends[tp] if at_end else batch[-1].offset + 1
                )
            if drained or asyncio.get_running_loop().time() >= deadline:
                return drained
            await asyncio.sleep(0.002)


class VirtualConsumer:
    """``aiokafka.AIOKafkaConsumer`` for a member of a group that the test plays."""

    _closed = False

    def __init__(self, logs: Logs, max_poll_records: int | None) -> None:
        self.logs = logs
        self.positions: dict[TP, int] = {}
        self.assigned = asyncio.Event()
        self.listener: Any = None
        self.topics = frozenset[str]()
        self.loop: Any = None
        self._max_poll_records = max_poll_records
        self._fetcher = VirtualFetcher(self)
        #: Partitions that have no leader.
        self.leaderless: set[TP] = set()
        cluster = SimpleNamespace(
            leader_for_partition=lambda tp: -1 if TP(*tp) in self.leaderless else 1
        )
        self._client = SimpleNamespace(cluster=cluster)
        self._coordinator = SimpleNamespace(
            generation=0,
            _metadata_snapshot=defaultdict(lambda: logs.partitions),
            fetch_committed_offsets=self._committed,
        )

    async def _committed(self, tps: Iterable[TP]) -> dict[TP, Any]:
        """Return all committed offsets at once."""
        return {tp: SimpleNamespace(offset=self.logs.committed.get(tp, -1)) for tp in tps}

    def partitions_for_topic(self, topic: str) -> range:
        """Return the partitions, as many as the coordinator's snapshot has."""
        return range(self._coordinator._metadata_snapshot[topic])

    async def start(self) -> None:
        """Keep the thread's loop."""
        self.loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """End all fetches."""
        self._closed = True

    def subscribe(self, topics: set[str], listener: Any) -> None:
        """Keep the listener."""
        self.listener, self.topics = listener, frozenset(topics)

    def subscription(self) -> frozenset[str]:
        """Return the topics."""
        return self.topics

    async def rebalance(self, partitions: Iterable[TP]) -> None:
        """Revoke everything, then assign ``partitions``: positions start at the committed offsets."""
        self.assigned.clear()
        await self.listener.on_partitions_revoked(set(self.positions))
        self.positions = {tp: self.logs.committed.get(tp, 0) for tp in partitions}
        self._coordinator.generation += 1
        self.assigned.set()
        await self.listener.on_partitions_assigned(set(self.positions))

    def assignment(self) -> set[TP]:
        """Return the partitions of this generation."""
        return set(self.positions)

    def seek(self, tp: TP, offset: int) -> None:
        """Move the position."""
        if tp not in self.positions:
            raise IllegalStateError(f"{tp} is not assigned")
        self.positions[tp] = offset

    async def seek_to_committed(self) -> dict[TP, int | None]:
        """As in aiokafka: a partition without a committed offset keeps its position."""
        committed = {tp: self.logs.committed.get(tp) for tp in self.positions}
        for tp, offset in committed.items():
            await asyncio.sleep(0)
            if offset and tp in self.positions:
                self.positions[tp] = offset
        return committed

    async def position(self, tp: TP) -> int:
        """Return the offset of the next record to fetch."""
        return self.positions[tp]

    async def commit(self, offsets: dict[TP, Any]) -> None:
        """Commit."""
        self.logs.committed.update({TP(*tp): meta.offset for tp, meta in offsets.items()})

    def highwater(self, tp: TP) -> int:
        """Return the end of the log."""
        return self.logs.ends[TP(*tp)]

    async def beginning_offsets(self, partitions: Iterable[TP]) -> dict[TP, int]:
        """Return the beginnings of the logs."""
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Iterable[TP]) -> dict[TP, int]:
        """Return the ends of the logs."""
        if self.leaderless.intersection(TP(*tp) for tp in partitions):
            raise KafkaTimeoutError
        return {tp: self.logs.ends[TP(*tp)] for tp in partitions}


class VirtualThread(driver.AIOKafkaConsumerThread):
    """The driver's consumer thread around a ``VirtualConsumer``."""

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> Any:
        return VirtualConsumer(self.app.logs, self.app.conf.broker_max_poll_records)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Ignore aiokafka's internals, which Faust watches."""


class VirtualKafkaConsumer(driver.Consumer):
    """The driver's consumer on that thread."""

    thread_class = VirtualThread

    def _new_consumer_thread(self) -> Any:
        return VirtualThread(self, loop=self.loop, beacon=self.beacon)

    async def create_topic(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a topic exists after the first write."""


class VirtualProducer(Producer):
    """A producer that writes to the logs at once."""

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        *args: Any,
        **kwargs: Any,
    ) -> asyncio.Future[RecordMetadata]:
        """Append the record; return a finished future."""
        tp = TP(topic, partition or 0)
        done = asyncio.get_running_loop().create_future()
        done.set_result(RecordMetadata(*tp, tp, self.app.logs.append(tp, key, value)))
        return done

    async def flush(self) -> None:
        """Wait for the app's buffered records."""
        await self.buffer.flush()

    def supports_headers(self) -> bool:
        """Return True, as for every current broker."""
        return True

    async def create_topic(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a topic exists after the first write."""


class VirtualTransport(driver.Transport):
    """The driver with the virtual consumer and producer."""

    Consumer = VirtualKafkaConsumer
    Producer = VirtualProducer
