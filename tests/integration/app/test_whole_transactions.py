"""What a transaction of ``exactly_once`` holds: under stock Faust parts of records, repaired whole ones.

As in ``test_nothing_lost.py``, ``stock`` asserts that the defect is there and ``repaired`` the promise. Of
the driver's producer all is real but aiokafka's.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import faust
import pytest
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import RecordMetadata

from tests.support.workers.virtual import Assigned, VirtualConsumer, VirtualThread, Worker, running

pytestmark = pytest.mark.timeout(60)
both = pytest.mark.parametrize("repaired", [pytest.param(False, id="stock", marks=pytest.mark.slow),
                                            pytest.param(True, id="repaired")])


class Sent(NamedTuple):
    """One record in the hands of a producer."""

    topic: str
    key: bytes | None
    value: bytes | None


class Transaction(NamedTuple):
    """What was committed at once."""

    sent: list[Sent]
    offset: int


class VirtualAIOProducer:
    """``aiokafka.AIOKafkaProducer``; without a transactional id what it sends is visible at once."""

    def __init__(self, worker: PassingOn, transactional_id: str | None) -> None:
        self.worker, self.transactional_id = worker, transactional_id
        self.open: list[Sent] | None = None
        self.offset, self.offsets = -1, dict[TP, int]()
        self._txn_manager = SimpleNamespace(is_in_transaction=lambda: self.open is not None)

    async def start(self) -> None:
        """Nothing to connect to."""

    stop = flush = start

    async def send(self, topic: str, value: bytes | None, key: bytes | None, **_: Any) -> Any:
        """Keep the record; answer with a finished future."""
        if self.transactional_id is None:
            self.worker.loose.append(Sent(topic, key, value))
        else:
            assert self.open is not None
            self.open.append(Sent(topic, key, value))
        done = asyncio.get_running_loop().create_future()
        done.set_result(RecordMetadata(topic, 0, TP(topic, 0), next(self.worker.changes)))
        return done

    async def begin_transaction(self) -> None:
        """A second one at a time is an error, as in aiokafka."""
        assert self.open is None, "Invalid state transition"
        self.open = []

    async def send_offsets_to_transaction(self, offsets: Mapping[TP, int], group_id: str) -> None:
        """Remember the offset; the tests have one partition."""
        (self.offset,), self.offsets = offsets.values(), dict(offsets)

    async def commit_transaction(self) -> None:
        """All of it becomes visible."""
        assert self.open is not None
        await asyncio.sleep(0.01)
        self.worker.transactions.append(Transaction(self.open, self.offset))
        self.worker.logs.committed.update(self.offsets)
        self.open = None

    async def abort_transaction(self) -> None:
        """None of it does."""
        self.open = None


class PassingOn(Worker):
    """Changes its table and passes each order's offset on to a topic that nobody consumes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(processing_guarantee="exactly_once", **settings)
        self.app.in_worker = True  # as `faust worker` does; there are no transactions without
        self.loose: list[Sent] = []
        self.changes = itertools.count()
        self.transactions: list[Transaction] = []
        self.passed_on = self.app.topic("passed-on", key_type=str, value_type=int)
        worker = self

        class VirtualProducer(driver.Producer):
            _transaction_producers, _trn_locks = {}, {}  # the driver's are the class's, shared by all apps

            def _new_producer(self, transactional_id: str | None = None) -> Any:
                return VirtualAIOProducer(worker, transactional_id)

            async def create_topic(self, *args: Any, **kwargs: Any) -> None:
                """Topics are there once written to."""

        self.app.transport.Producer = VirtualProducer

    async def count(self, orders: faust.StreamT[int]) -> None:
        """The agent."""
        async for event in orders.events():
            self.counts[event.key] += 1
            await self.passed_on.send(key=event.key, value=event.message.offset)
            await asyncio.sleep(self.delay_s)
            self.processed.append((event.message.partition, event.message.offset))

    def sent_to(self, topic: str) -> list[list[int]]:
        """For each transaction the offsets of the orders whose record for ``topic`` it holds."""
        return [[int((sent.key or b"").decode().strip('"').split("-")[1]) for sent in transaction.sent
                 if sent.topic == topic] for transaction in self.transactions]

    def covered(self) -> list[list[int]]:
        """For each transaction the offsets of the orders it commits."""
        ends = [transaction.offset for transaction in self.transactions]
        return [list(range(*span)) for span in zip([0, *ends], ends, strict=False)]


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders and the changelog are known and one group; of ``passed-on`` a consumer has no metadata."""
    monkeypatch.setattr(VirtualConsumer, "last_stable_offset", VirtualConsumer.highwater, raising=False)
    monkeypatch.setattr(VirtualThread, "key_partition", lambda _self, topic, key, partition=None:
                        None if topic == "passed-on" else partition or 0)
    monkeypatch.setattr(Assigned, "group_for_topic", lambda _self, _topic: 0,
                        raising=False)
    monkeypatch.setattr(Assigned, "is_standby", lambda self, tp: tp in self.standbys, raising=False)


@both
async def test_outputs_are_in_the_transaction_that_commits_their_records(repaired: bool) -> None:
    """Stock sends what goes to a topic the worker does not consume outside of every transaction."""
    worker = PassingOn(repaired=repaired)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(20)
        assert await worker.until(lambda: len(worker.offsets) == 20)
        assert len(worker.loose) == (0 if repaired else 20)
        await worker.app.consumer.commit()
        assert await worker.until(lambda: len(worker.transactions) == 1)
        assert (worker.sent_to("passed-on") == [list(range(20))] == worker.covered()) == repaired


@both
async def test_a_commit_falls_between_two_records(repaired: bool) -> None:
    """Stock commits what a record has sent so far, and the offset before it: a SIGKILL then repeats it."""
    worker = PassingOn(repaired=repaired, broker_commit_interval=0.03)
    async with running(worker):
        worker.delay_s = 0.02
        await worker.rebalance([0])
        worker.send_orders(40)
        assert await worker.until(lambda: len(worker.offsets) == 40)
        assert await worker.until(lambda: worker.logs.committed.get(worker.source()) == 40)
        assert len(worker.transactions) > 3
        changes = worker.sent_to(worker.changelog().topic)
        assert sorted(offset for change in changes for offset in change) == list(range(40))
        assert (changes == worker.covered()) == repaired
        assert (worker.sent_to("passed-on") == worker.covered()) == repaired


@both
async def test_changes_in_the_buffer_are_committed_with_their_records(repaired: bool) -> None:
    """Stock commits the offset while the record's table changes wait in the producer's buffer."""
    worker = PassingOn(repaired=repaired)
    async with running(worker):
        publish = worker.counts.changelog_topic.publish_message

        async def late(fut: Any, wait: bool = False) -> Any:
            await asyncio.sleep(0.2)
            return await publish(fut, wait)

        worker.counts.changelog_topic.publish_message = late
        await worker.rebalance([0])
        worker.send_orders(5)
        if repaired:  # outputs wait for the change before them
            await asyncio.sleep(0.1)
        assert await worker.until(lambda: len(worker.offsets) == 5)
        await worker.app.consumer.commit()
        assert (worker.sent_to(worker.changelog().topic) == [list(range(5))]) == repaired


@both
async def test_what_a_revocation_leaves_half_done_is_aborted(repaired: bool) -> None:
    """Stock keeps the transaction open; processed again, the record is in it twice."""
    worker = PassingOn(repaired=repaired, stream_wait_empty=False)
    async with running(worker):
        worker.delay_s = 1.0
        await worker.rebalance([0])
        worker.send_orders(1)
        producers = worker.app.producer._transaction_producers
        assert await worker.until(lambda: any(producer.open for producer in producers.values()))
        await worker.rebalance([0])
        assert any(producer.open for producer in producers.values()) != repaired
