"""A worker in this process that passes orders on exactly once; only aiokafka's producer is virtual."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import faust
import pytest
from aiokafka.errors import IllegalOperation, ProducerFenced
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import RecordMetadata

from tests.support.workers.virtual import Assigned, Worker
from tests.support.workers.virtual_kafka import VirtualConsumer, VirtualThread


class Sent(NamedTuple):
    """A record passed to a producer."""

    topic: str
    key: bytes | None
    value: bytes | None


class Transaction(NamedTuple):
    """The records and the offset of one commit."""

    sent: list[Sent]
    offset: int
    partition: int = 0


class VirtualAIOProducer:
    """``aiokafka.AIOKafkaProducer``; without a transactional id its sends are visible at once."""

    def __init__(self, worker: PassingOn, transactional_id: str | None) -> None:
        self.worker, self.transactional_id = worker, transactional_id
        self.client = SimpleNamespace(
            _wait_on_metadata=None, _metadata_update=None, coordinator_lookup=None
        )
        self.open: list[Sent] | None = None
        self.offset, self.offsets = -1, dict[TP, int]()
        self.fenced = False
        self._txn_manager = SimpleNamespace(
            is_in_transaction=lambda: self.open is not None and not self.fenced,
            is_fatal_error=lambda: self.fenced,
            _transaction_waiter=SimpleNamespace(exception=ProducerFenced),
            wait_for_transaction_end=lambda: None,
        )

    async def start(self) -> None:
        """Connect to no broker."""

    stop = flush = start

    async def send(self, topic: str, value: bytes | None, key: bytes | None, **_: Any) -> Any:
        """Keep the record; return a finished future."""
        if self.transactional_id is None:
            self.worker.loose.append(Sent(topic, key, value))
        else:
            if self.fenced:
                raise IllegalOperation("Can't send messages while not in transaction")
            assert self.open is not None
            self.open.append(Sent(topic, key, value))
        done = asyncio.get_running_loop().create_future()
        done.set_result(RecordMetadata(topic, 0, TP(topic, 0), next(self.worker.changes)))
        return done

    async def begin_transaction(self) -> None:
        """Begin a transaction; a second open one is an error, as in aiokafka."""
        assert self.open is None, "Invalid state transition"
        self.open = []

    async def send_offsets_to_transaction(self, offsets: Mapping[TP, int], group_id: str) -> None:
        """Keep the offset; a transaction of the tests belongs to one partition."""
        (self.offset,), self.offsets = offsets.values(), dict(offsets)

    async def commit_transaction(self) -> None:
        """Make the transaction's records visible."""
        assert self.open is not None
        if self.fenced:
            raise ProducerFenced
        await asyncio.sleep(0.01)
        (tp,) = self.offsets
        self.worker.transactions.append(Transaction(self.open, self.offset, tp.partition))
        self.worker.logs.committed.update(self.offsets)
        self.open = None

    async def abort_transaction(self) -> None:
        """Drop the transaction's records."""
        self.open = None


class PassingOn(Worker):
    """Change the table and pass each order's offset on to a topic without a consumer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(processing_guarantee="exactly_once", **settings)
        self.app.in_worker = True  # as `faust worker` does; without it there are no transactions
        self.loose: list[Sent] = []
        self.changes = itertools.count()
        self.transactions: list[Transaction] = []
        self.passed_on = self.app.topic("passed-on", key_type=str, value_type=int)
        worker = self

        class VirtualProducer(driver.Producer):
            # the driver's dict is the class's, shared by all apps
            _transaction_producers, _trn_locks = {}, {}

            def _new_producer(self, transactional_id: str | None = None) -> Any:
                return VirtualAIOProducer(worker, transactional_id)

            async def create_topic(self, *args: Any, **kwargs: Any) -> None:
                """Do nothing: a topic exists after the first write."""

        self.app.transport.Producer = VirtualProducer

    async def count(self, orders: faust.StreamT[int]) -> None:
        """The agent."""
        async for event in orders.events():
            self.counts[event.key] += 1
            await self.passed_on.send(key=event.key, value=event.message.offset)
            await asyncio.sleep(self.delay_s)
            self.processed.append((event.message.partition, event.message.offset))

    def of(self, partition: int) -> list[Transaction]:
        """Return the partition's transactions, in order."""
        return [
            transaction for transaction in self.transactions if transaction.partition == partition
        ]

    def sent_to(self, topic: str, partition: int = 0) -> list[list[int]]:
        """Return, for each transaction, the offsets of orders with a record for ``topic``."""
        return [
            [
                int((sent.key or b"").decode().strip('"').split("-")[1])
                for sent in transaction.sent
                if sent.topic == topic
            ]
            for transaction in self.of(partition)
        ]

    def covered(self, partition: int = 0) -> list[list[int]]:
        """Return, for each transaction, the offsets of the orders that it commits."""
        ends = [transaction.offset for transaction in self.of(partition)]
        return [list(range(*span)) for span in zip([0, *ends], ends, strict=False)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders and the changelog are known and form a group; ``passed-on`` has no metadata."""
    monkeypatch.setattr(
        VirtualConsumer, "last_stable_offset", VirtualConsumer.highwater, raising=False
    )
    monkeypatch.setattr(
        VirtualThread,
        "key_partition",
        lambda _self, topic, key, partition=None: None if topic == "passed-on" else partition or 0,
    )
    monkeypatch.setattr(Assigned, "group_id", 0, raising=False)
    monkeypatch.setattr(
        Assigned, "group_for_topic", lambda self, _topic: self.group_id, raising=False
    )
    monkeypatch.setattr(Assigned, "is_standby", lambda self, tp: tp in self.standbys, raising=False)
