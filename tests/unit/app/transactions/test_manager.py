"""The transactions of a consumer, step by step, over a producer that notes its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    MessageSizeTooLargeError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
)
from faust.exceptions import ProducerSendError
from faust.streams import _current_event
from faust.transport.consumer import TransactionManager
from faust.types import TP

from faust_assigner.app.transactions.manager import PartitionTransactions
from faust_assigner.app.transactions.producers import TransactionsRefused
from tests.support.waiting import PATIENCE_S

ORDERS, PAYMENTS, COPY = TP("orders", 0), TP("payments", 0), TP("orders", 1)
ID, OTHER = "shop-1-0", "shop-2-0"


class Client:
    """aiokafka's producer of a transactional id."""

    def __init__(self, acts: list[Any], name: str, *, is_open: bool = True) -> None:
        self.acts, self.name = acts, name
        self.error: BaseException | None = None
        self.is_fatal = False
        self.client = SimpleNamespace(close=self._close)
        self._txn_manager = SimpleNamespace(
            is_in_transaction=lambda: is_open,
            is_fatal_error=lambda: self.is_fatal,
            _transaction_waiter=SimpleNamespace(exception=lambda: self.error),
            wait_for_transaction_end=lambda: self.end,
        )
        #: aiokafka's future for the end of the open transaction.
        self.end: asyncio.Future[None] | None = None

    async def _close(self) -> None:
        self.acts.append(("close", self.name))

    async def start(self) -> None:
        """Start, or raise the error."""
        if self.error is not None:
            raise self.error
        self.acts.append(("start", self.name))

    async def begin_transaction(self) -> None:
        """Note the begin."""
        self.acts.append(("begin", self.name))


class Producer:
    """Faust's producer, with every call in ``acts``."""

    def __init__(self) -> None:
        self.acts: list[Any] = []
        self._transaction_producers: dict[str, Client] = {}
        self._trn_locks: dict[str, asyncio.Lock] = {}
        self.refusal: BaseException | None = None
        self.commit_refusal: BaseException | None = None
        self.commit_refusals: dict[str, BaseException] = {}
        #: Transactional id -> the event that ends its commit.
        self.commit_gates: dict[str, asyncio.Event] = {}
        self.start_refusal: BaseException | None = None
        #: Whether the broker answers later; and the pending answers.
        self.holds_answers = False
        self.answers: list[asyncio.Future[str]] = []
        self.begins_next: list[tuple[str, bool]] = []
        #: Key, timestamp and headers of each sent record.
        self.beside: list[tuple[Any, Any, Any]] = []

    def have(self, name: str, *, is_open: bool = True) -> Client:
        """Add a started client."""
        client = self._transaction_producers[name] = Client(self.acts, name, is_open=is_open)
        self._trn_locks[name] = asyncio.Lock()
        return client

    def _new_producer(self, *, transactional_id: str) -> Client:
        client = Client(self.acts, transactional_id)
        client.error = self.start_refusal
        return client

    async def abort_transaction(self, name: str) -> None:
        """Note the abort."""
        self.acts.append(("abort", name))

    async def stop_transaction(self, name: str) -> None:
        """Note the stop and drop the client."""
        self.acts.append(("stop", name))
        self._transaction_producers.pop(name, None)

    async def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        partition: Any,
        timestamp: Any,
        headers: Any,
        *,
        transactional_id: str | None = None,
    ) -> Any:
        """Note the record and return its answer."""
        if self.refusal is not None:
            raise self.refusal
        self.acts.append(("send", topic, value, partition, transactional_id))
        self.beside.append((key, timestamp, headers))
        answer = asyncio.get_running_loop().create_future()
        if self.holds_answers:
            self.answers.append(answer)
        else:
            answer.set_result("sent")
        return answer

    async def commit_transactions(
        self, by_id: Mapping[str, Any], group: str, *, start_new_transaction: bool = True
    ) -> None:
        """Commit each id, or raise its refusal."""
        for name in by_id:
            if name in self.commit_gates:
                await self.commit_gates[name].wait()
            if (refusal := self.commit_refusals.get(name, self.commit_refusal)) is not None:
                raise refusal
        self.begins_next.append((group, start_new_transaction))
        self.acts.append(("commit", *by_id.items()))


class Stock(TransactionManager):  # type: ignore[misc]
    """Stand in for Faust's transaction manager."""

    should_stop: bool = False

    def __init__(self, app: Any) -> None:
        self.app, self.producer = app, app.producer
        self.crashes: list[BaseException] = []
        self.should_stop = False
        self.consumer = SimpleNamespace(
            lost=0,
            key_partition=self._partition_of,
            kept_back=SimpleNamespace(given_up=list[Any]()),
        )
        self.consumer.lose_membership = self._lose
        self.known: int | None = None

    def _partition_of(self, topic: str, key: bytes, partition: int | None) -> int | None:
        assert (topic, key, partition) == ("out", b"k", 3)
        return self.known

    def _lose(self) -> None:
        self.consumer.lost += 1

    async def crash(self, error: BaseException) -> None:
        """Note the error."""
        self.crashes.append(error)


class Manager(PartitionTransactions, Stock):  # type: ignore[misc]
    """PartitionTransactions over the stand-in."""


@pytest.fixture
def made() -> Manager:
    """A manager of ``ORDERS`` and ``PAYMENTS``, in two transactions; ``COPY`` is a standby."""
    groups = {"orders": 1, "payments": 2}
    assignor = SimpleNamespace(group_for_topic=groups.__getitem__, is_standby=lambda tp: tp == COPY)
    app = SimpleNamespace(
        in_transaction=True,
        should_stop=False,
        producer=Producer(),
        assignor=assignor,
        topics=SimpleNamespace(acks_enabled_for=lambda topic: topic != "pings"),
        conf=SimpleNamespace(id="shop"),
        _attachments=SimpleNamespace(_pending=[]),
    )
    manager = Manager(app)
    manager._ids = {ORDERS: ID, PAYMENTS: OTHER}
    for name in (ID, OTHER):
        manager.producer.have(name)
    return manager


def record(offset: int, tp: TP = ORDERS) -> Any:
    """Return a message."""
    return SimpleNamespace(offset=offset, tp=tp)


class Event:
    """An event of ``app``."""

    def __init__(self, app: Any, offset: int, tp: TP = ORDERS) -> None:
        self.app, self.message = app, record(offset, tp)


@contextmanager
def processing(manager: Any, offset: int, tp: TP = ORDERS, *, app: Any = None) -> Iterator[Event]:
    """Make the record current within the block."""
    event = Event(app or manager.app, offset, tp)
    token = _current_event.set(lambda: event)  # type: ignore[arg-type]
    try:
        yield event
    finally:
        _current_event.reset(token)


async def send(manager: Any, value: bytes = b"v", topic: str = "out", partition: Any = 3) -> Any:
    """Send in the context of the current record."""
    return await manager.send(topic, b"k", value, partition, None, None)


def test_copies_have_no_transactional_id(made: Manager) -> None:
    """The owner's producer has the id; a second producer would fence it."""
    assert made.ids_for([ORDERS, COPY, PAYMENTS]) == {ORDERS: ID, PAYMENTS: OTHER}


async def test_an_id_that_goes_ends_before_those_that_stay_begin(made: Manager) -> None:
    """A worker may get its partition back under a new id; a fence of the last generation ends."""
    made.is_fenced = True
    await made.on_rebalance({PAYMENTS}, set(), set())
    assert made.producer.acts == [("abort", ID), ("stop", ID), ("begin", OTHER)]
    assert not made.is_fenced
    assert made.id_of(ORDERS) is None


async def test_what_is_open_under_an_id_that_ends_is_abandoned(made: Manager) -> None:
    """Its rows are discarded, and records held back for its commit continue."""
    with processing(made, 4):
        share = made.share_at_hand()
    made.held.hold(ID)
    await made.end({ID})
    assert share is not None
    assert share.abandoned
    assert not made.held.holds(ID)


@pytest.mark.parametrize("begins", [True, False])
async def test_the_next_transaction_begins_unless_the_consumer_stops(
    made: Manager, begins: bool
) -> None:
    """The offsets are committed to the app's group."""
    assert await made.commit({ORDERS: 5}, start_new_transaction=begins)
    assert made.producer.begins_next == [("shop", begins)]


async def test_after_a_commit_nothing_is_sent_into_the_closed_transaction(made: Manager) -> None:
    """Kafka has committed the transaction, so a later message belongs to the next."""
    made.close(ID)
    await made.commit({ORDERS: 5})
    with made.within(ORDERS):
        await send(made)
    assert made.producer.acts[-1] == ("send", "out", b"v", 3, None)


async def test_a_transaction_that_is_not_open_is_not_aborted(made: Manager) -> None:
    """aiokafka raises an error without an open transaction."""
    made.producer.have(ID, is_open=False)
    await made.end({ID})
    assert made.producer.acts == [("stop", ID)]


async def test_a_producer_with_a_fatal_error_is_replaced(made: Manager) -> None:
    """The producer is stopped first, since it can send no more."""
    made.producer._transaction_producers[ID].is_fatal = True
    await made._producers.begin({ID})
    assert made.producer.acts == [("stop", ID), ("start", ID), ("begin", ID)]


async def test_a_producer_whose_start_is_cancelled_leaves_no_connection(made: Manager) -> None:
    """The worker stops meanwhile, and no other code refers to the client."""
    made.producer._transaction_producers.clear()
    made.producer.start_refusal = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await made._producers.begin({ID})
    assert made.producer.acts == [("close", ID)]


async def test_a_producer_that_does_not_start_leaves_no_connection(made: Manager) -> None:
    """The broker refuses the id, and the error names the remedy."""
    made.producer._transaction_producers.clear()
    made.producer.start_refusal = TransactionalIdAuthorizationFailed()
    with pytest.raises(TransactionsRefused, match="exactly_once"):
        await made._producers.begin({ID})
    assert made.producer.acts == [("close", ID)]
    assert ID not in made.producer._transaction_producers


async def test_records_that_send_out_of_order_reach_the_highest(made: Manager) -> None:
    """With concurrency a later record may send first."""
    for offset in (7, 5):
        with processing(made, offset):
            await send(made)
    assert made.reached(ID) == {ORDERS: 7}
    assert made.sources() == {ORDERS: 7}


async def test_a_record_of_another_app_sends_into_no_transaction_of_ours(made: Manager) -> None:
    """A process may run two apps."""
    with processing(made, 5, app=SimpleNamespace()):
        await send(made)
    assert made.producer.acts == [("send", "out", b"v", 3, None)]


async def test_a_record_of_a_topic_without_acks_sends_into_no_transaction(made: Manager) -> None:
    """No offset of the topic is ever committed, so its transaction would stay open until Kafka aborts it."""
    pings = TP("pings", 0)
    made._ids[pings] = ID
    made.app.assignor.group_for_topic = {"pings": 1}.__getitem__
    with processing(made, 5, pings):
        await send(made)
        assert made.share_at_hand() is None
    assert made.producer.acts == [("send", "out", b"v", 3, None)]


async def test_a_record_whose_partition_has_gone_sends_nothing(made: Manager) -> None:
    """The partition's next owner processes the record again."""
    del made._ids[ORDERS]
    with processing(made, 5):
        refused = await send(made)
    with pytest.raises(ProducerSendError, match="abandoned"):
        await refused
    assert made.producer.acts == []


@pytest.mark.parametrize(("known", "partition"), [(None, 3), (0, 0)])
async def test_the_partition_is_that_of_the_key_where_the_topic_is_known(
    made: Manager, known: int | None, partition: int
) -> None:
    """Otherwise the caller's partition is used."""
    made.known = known
    with processing(made, 5):
        await send(made)
    await send(made)
    assert made.producer.acts == [
        ("send", "out", b"v", partition, ID),
        ("send", "out", b"v", partition, None),
    ]


async def test_a_record_is_sent_with_all_that_it_was_given(made: Manager) -> None:
    """The same holds outside of transactions; the caller gets the producer's answer."""
    record_of = "out", b"k", b"v", 3, 12.5, {"trace": b"1"}
    with processing(made, 5):
        assert await (await made.send(*record_of)) == "sent"
    assert await (await made.send(*record_of)) == "sent"
    assert made.producer.beside == [(b"k", 12.5, {"trace": b"1"})] * 2


async def test_nothing_is_sent_by_a_fenced_producer(made: Manager) -> None:
    """All partitions are about to be revoked."""
    made.is_fenced = True
    with processing(made, 5):
        refused = await send(made)
    with pytest.raises(ProducerSendError, match="abandoned"):
        await refused
    assert made.producer.acts == []


async def test_a_send_of_a_callback_or_commit_raises_once_its_transaction_is_abandoned(
    made: Manager,
) -> None:
    """An agent's send returns the error in its future, because an exception would end the agent."""
    with processing(made, 5):
        await send(made)
        made.close(ID)
    made.is_fenced = True
    with made.within(ORDERS), pytest.raises(ProducerSendError, match="abandoned"):
        await send(made)
    assert len(made.producer.acts) == 1


async def test_a_send_that_is_cancelled_in_its_turn_does_not_hold_up_the_next(
    made: Manager,
) -> None:
    """The second send does not depend on the cancelled send."""
    with processing(made, 5):
        made.close(ID)  # a commit is in progress: sends wait for the next transaction
        first = asyncio.ensure_future(send(made, b"1"))
        second = asyncio.ensure_future(send(made, b"2"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert not second.done(), "the commit is under way still"
        made.begin_next()
        await asyncio.wait_for(second, PATIENCE_S)
    assert [act[2] for act in made.producer.acts] == [b"2"]


async def test_what_is_sent_during_a_commit_waits_for_the_next_transaction(made: Manager) -> None:
    """The send belongs to a record after the committed offset."""
    with processing(made, 4):
        await send(made, b"before")
        made.close(ID)
    with processing(made, 5):
        later = asyncio.ensure_future(send(made, b"after"))
        await asyncio.sleep(0.01)
        assert [act[2] for act in made.producer.acts] == [b"before"]
        await made.commit({ORDERS: 5})
        await later
    assert [act[0] for act in made.producer.acts] == ["send", "commit", "send"]
    assert made.reached(ID) == {ORDERS: 5}


def future(publish: Any) -> Any:
    """Return a buffered message that ``publish`` publishes."""

    async def publish_message(fut: Any, *, wait: bool) -> None:
        await publish()

    channel = SimpleNamespace(publish_message=publish_message)
    return SimpleNamespace(message=SimpleNamespace(channel=channel))


async def failing() -> None:
    """Raise an error as without a broker."""
    raise ProducerSendError("no broker")


@pytest.mark.parametrize("is_abandoned", [True, False])
async def test_a_change_that_cannot_be_published_ends_the_worker_unless_it_is_void(
    made: Manager, is_abandoned: bool
) -> None:
    """An abandoned transaction is never committed, so its errors do not matter."""
    with processing(made, 4):
        made._sends.send_soon(future(failing))
        share = made.share_at_hand()
    assert share is not None
    share.abandoned = is_abandoned
    await asyncio.sleep(0.01)
    assert len(made.crashes) == (not is_abandoned)
    made.close(ID)
    with pytest.raises(ProducerSendError):
        await made.commit({ORDERS: 5})
    assert made.producer.acts == []
    assert not share.committed


async def test_a_commit_waits_for_all_that_was_sent(made: Manager) -> None:
    """A buffered change belongs to a committed record, so its commit includes the change."""
    gate = asyncio.Event()
    with processing(made, 4):
        made._sends.send_soon(future(gate.wait))
        share = made.share_at_hand()
    made.close(ID)
    committing = asyncio.ensure_future(made.commit({ORDERS: 5}))
    await asyncio.sleep(0.01)
    assert made.producer.acts == []
    assert len(made._sends._running) == 1, "a task that nobody holds may be collected"
    gate.set()
    assert await committing
    assert made._sends._running == set()
    assert made.producer.acts == [("commit", (ID, {ORDERS: 5}))]
    assert share is not None
    assert share.committed


async def test_a_change_is_sent_in_the_place_that_it_took(made: Manager) -> None:
    """The channel sends later for the same record; a second place would wait for the first."""

    async def publish() -> None:
        await send(made, b"change")

    with processing(made, 4):
        made._sends.send_soon(future(publish))
        await asyncio.wait_for(send(made, b"after"), PATIENCE_S)
    assert [(act[2], act[4]) for act in made.producer.acts] == [(b"change", ID), (b"after", ID)]


async def test_each_id_is_committed_by_itself_begun_in_the_order_of_ids(made: Manager) -> None:
    """A Kafka transaction has a single id."""
    assert await made.commit({PAYMENTS: 9, ORDERS: 5})
    assert made.producer.acts == [("commit", (ID, {ORDERS: 5})), ("commit", (OTHER, {PAYMENTS: 9}))]


async def test_a_slow_commit_of_one_id_holds_up_no_send_of_another(made: Manager) -> None:
    """A busy worker waits for a single commit and not for the commits of all its partitions."""
    shares = []
    for tp in (ORDERS, PAYMENTS):
        with processing(made, 4, tp):
            shares.append(made.share_at_hand())
    gate = made.producer.commit_gates[ID] = asyncio.Event()
    made.close(ID)
    made.close(OTHER)
    committing = asyncio.ensure_future(made.commit({ORDERS: 5, PAYMENTS: 5}))
    with processing(made, 5):
        held = asyncio.ensure_future(send(made, b"orders"))
    with processing(made, 5, PAYMENTS):
        await asyncio.wait_for(send(made, b"payments"), PATIENCE_S)
    assert [share is not None and share.committed for share in shares] == [False, True]
    assert not held.done(), "its own commit is under way still"
    gate.set()
    assert await committing
    await asyncio.wait_for(held, PATIENCE_S)
    assert [act[:3:2] for act in made.producer.acts if act[0] == "send"] == [
        ("send", b"payments"),
        ("send", b"orders"),
    ]


async def test_a_committed_share_is_not_undone_while_other_commits_go_on(made: Manager) -> None:
    """A partition may be revoked after its own commit; its table changes are in Kafka."""
    with processing(made, 4, PAYMENTS):
        share = made.share_at_hand()
    gate = made.producer.commit_gates[ID] = asyncio.Event()
    made.close(ID)
    made.close(OTHER)
    committing = asyncio.ensure_future(made.commit({ORDERS: 5, PAYMENTS: 5}))
    await asyncio.sleep(0.01)
    await made.end([OTHER])
    gate.set()
    assert await committing
    assert share is not None
    assert (share.committed, share.abandoned) == (True, False)


async def closed_with_one_send(made: Manager) -> tuple[Any, asyncio.Future[bool]]:
    """Send for a record of orders, and commit; the commit waits for the broker's answer."""
    made.producer.holds_answers = True
    with processing(made, 4):
        await send(made)
        share = made.share_at_hand()
    made.close(ID)
    committing = asyncio.ensure_future(made.commit({ORDERS: 5}))
    await asyncio.sleep(0.01)
    assert not committing.done()
    assert ("commit", (ID, {ORDERS: 5})) not in made.producer.acts
    return share, committing


async def test_a_commit_waits_for_the_answers_to_its_sends(made: Manager) -> None:
    """Only the answer shows that the topic has the record."""
    share, committing = await closed_with_one_send(made)
    made.producer.answers[0].set_result("sent")
    assert await committing
    assert share.committed


async def test_a_record_that_the_broker_refuses_is_never_skipped(made: Manager) -> None:
    """aiokafka would commit the source's offset without the refused record."""
    share, committing = await closed_with_one_send(made)
    made.producer.answers[0].set_exception(MessageSizeTooLargeError())
    with pytest.raises(MessageSizeTooLargeError):
        await committing
    assert not share.committed
    assert made.has_failed(ID), "the last commit before the end must not commit the rest either"
    assert [type(error) for error in made.crashes] == [MessageSizeTooLargeError]
    assert not [act for act in made.producer.acts if act[0] == "commit"]


async def test_a_fence_in_an_answer_gives_the_partitions_up(made: Manager) -> None:
    """The worker continues in its next generation."""
    _, committing = await closed_with_one_send(made)
    made.producer.answers[0].set_exception(ProducerFenced())
    assert not await committing
    assert made.is_fenced
    assert (made.crashes, made.consumer.lost) == ([], 1)
    assert made._sends._refused._count == 1


async def test_an_answer_to_an_abandoned_send_ends_no_worker(made: Manager) -> None:
    """The transaction was aborted, and the record is processed again."""
    made.producer.holds_answers = True
    with processing(made, 4):
        await send(made)
    await made.end({ID})
    made.producer.answers[0].set_exception(ProducerFenced())
    await asyncio.sleep(0.01)
    assert not made.is_fenced
    assert made.crashes == []
    assert made._sends._refused._count == 1


async def test_a_commit_waits_for_no_answer_in_a_transaction_that_failed(made: Manager) -> None:
    """Without access to the topic aiokafka sends no records and raises the error at the commit."""
    made.producer._transaction_producers[ID].end = end = asyncio.get_running_loop().create_future()
    made.producer.commit_refusal = UnknownTopicOrPartitionError()
    _, committing = await closed_with_one_send(made)
    end.set_exception(TopicAuthorizationFailedError("out"))
    with pytest.raises(UnknownTopicOrPartitionError):
        await committing
    assert isinstance(end.exception(), TopicAuthorizationFailedError)


async def test_an_error_of_one_commit_is_raised_after_the_other_commits(made: Manager) -> None:
    """Each transaction ends by itself; the worker ends with the error."""
    shares = []
    for tp in (ORDERS, PAYMENTS):
        with processing(made, 4, tp):
            shares.append(made.share_at_hand())
    gate = made.producer.commit_gates[OTHER] = asyncio.Event()
    made.producer.commit_refusals[ID] = UnknownTopicOrPartitionError()
    made.close(ID)
    made.close(OTHER)
    committing = asyncio.ensure_future(made.commit({ORDERS: 5, PAYMENTS: 5}))
    await asyncio.sleep(0.01)
    assert not committing.done()
    gate.set()
    with pytest.raises(UnknownTopicOrPartitionError):
        await committing
    assert [share is not None and share.committed for share in shares] == [False, True]
    assert not made._closed


async def test_a_fence_gives_everything_up_once(made: Manager, caplog: Any) -> None:
    """Shares are abandoned, held records continue, the worker joins again; the log has one line."""
    shares = []
    for tp in (ORDERS, PAYMENTS):
        with processing(made, 4, tp):
            shares.append(made.share_at_hand())
    made.held.hold(ID)
    made.producer.commit_refusal = ProducerFenced()
    made.close(ID)
    assert not await made.commit({ORDERS: 5})
    assert made.note_fence(OTHER, ProducerFenced())
    assert made.is_fenced
    assert shares[1] is not None
    assert shares[1].abandoned
    assert not made.held.holds(ID)
    assert made.consumer.lost == 1
    assert caplog.text.count("was fenced") == 1


async def test_a_fence_that_aiokafka_named_at_an_earlier_call_is_one(made: Manager) -> None:
    """Later calls on the producer fail with their own errors."""
    client = made.producer._transaction_producers[ID]
    client.is_fatal, client.error = True, ProducerFenced()
    assert made.note_fence(ID, RuntimeError("illegal operation"))
    assert made.consumer.lost == 1


@pytest.mark.parametrize("is_fatal", [True, False])
async def test_another_error_of_a_commit_is_no_fence(made: Manager, is_fatal: bool) -> None:
    """The error ends the worker, which commits no further."""
    client = made.producer._transaction_producers[ID]
    client.is_fatal, client.error = is_fatal, None if is_fatal else ProducerFenced()
    made.producer.commit_refusal = UnknownTopicOrPartitionError()
    made.close(ID)
    with pytest.raises(UnknownTopicOrPartitionError):
        await made.commit({ORDERS: 5})
    assert made.consumer.lost == 0


async def test_a_fence_while_a_commit_waits_ends_it(made: Manager) -> None:
    """After a fence there is no commit; waiting sends continue."""
    made.close(ID)
    made.is_fenced = True
    assert not await made.commit({ORDERS: 5})
    assert made.producer.acts == []
    assert made._shares[ID].begun.done()


async def test_a_record_that_the_commit_has_to_wait_for_is_not_held_back(made: Manager) -> None:
    """The record has sent; later records wait until a record among them has sent, too."""
    with processing(made, 4):
        await send(made)
    made.held.hold(ID)
    await asyncio.wait_for(made.held.wait_for_commit(Event(made.app, 4)), PATIENCE_S)
    held = asyncio.ensure_future(made.held.wait_for_commit(Event(made.app, 5)))
    later = asyncio.ensure_future(made.held.wait_for_commit(Event(made.app, 7)))
    await asyncio.sleep(0.01)
    assert not held.done()
    with processing(made, 6):  # a later record of the same topic, which began before the commit
        await send(made)
    await asyncio.wait_for(held, PATIENCE_S)
    assert not later.done()
    made.held.release(ID)
    await asyncio.wait_for(later, PATIENCE_S)


async def test_a_record_passes_while_its_stream_has_a_record_that_a_commit_waits_for(
    made: Manager,
) -> None:
    """The stream cannot come to the other record, which another agent has sent for, before this one."""
    made.held.hold(ID)
    queued = [Event(made.app, 3, PAYMENTS), SimpleNamespace(message=None), "a channel's value"]
    waiting = asyncio.ensure_future(
        made.held.wait_for_commit(Event(made.app, 5), lambda: iter(queued))
    )
    await asyncio.sleep(0.01)
    assert not waiting.done()
    with processing(made, 3, PAYMENTS):
        await send(made)
    await asyncio.sleep(0.01)
    assert not waiting.done(), "no commit of the other transaction waits"
    made.held.hold(OTHER)
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_sends_wait_for_a_commit_once_their_transaction_is_closed(made: Manager) -> None:
    """Until then, and after the commit, no send waits."""
    with processing(made, 5):
        await send(made)
        made.close(ID)
        assert not made.holds_sends()
        sending = asyncio.ensure_future(send(made))
        await asyncio.sleep(0.01)
        assert made.holds_sends()
        made.begin_next()
        await asyncio.wait_for(sending, PATIENCE_S)
    assert not made.holds_sends()


async def test_records_of_other_transactions_are_not_held_back(made: Manager) -> None:
    """Each id has its own commit."""
    made.held.hold(ID)
    await asyncio.wait_for(made.held.wait_for_commit(Event(made.app, 9, PAYMENTS)), PATIENCE_S)
    with processing(made, 9, PAYMENTS):
        assert await asyncio.wait_for(made.held.hold_value("value"), PATIENCE_S) == "value"


async def test_a_batch_is_waited_for_where_a_record_in_it_has_sent(made: Manager) -> None:
    """A batch of later records does not delay the commit, and without a commit none does."""
    with processing(made, 4):
        await send(made)
    sent, later = Event(made.app, 4), Event(made.app, 5)
    assert not made.held.waits_for([sent])
    made.held.hold(ID)
    assert made.held.waits_for([later, sent])
    assert not made.held.waits_for([later])
    assert not made.held.waits_for([Event(made.app, 0, PAYMENTS)])


async def test_what_is_published_on_commit_is_of_the_closed_transaction_alone(
    made: Manager,
) -> None:
    """After the block a send uses the transaction of its own record."""
    made.close(ID)
    with made.within(ORDERS):
        await send(made, b"attached")
    assert made.producer.acts == [("send", "out", b"attached", 3, ID)]
    await send(made, b"alone")
    assert made.producer.acts[1:] == [("send", "out", b"alone", 3, None)]
    with pytest.raises(ValueError, match="of the block"), made.within(ORDERS):
        raise ValueError("of the block")
    await send(made, b"after an error")
    assert made.producer.acts[2:] == [("send", "out", b"after an error", 3, None)]


@pytest.mark.parametrize("fenced", [True, False])
async def test_what_the_final_commit_left_open_is_aborted(made: Manager, fenced: bool) -> None:
    """Held records continue; producers stop if a different worker has fenced them."""
    with processing(made, 4):
        share = made.share_at_hand()
    made.held.hold(ID)
    made.app._attachments._pending.append("attached")
    made.producer.have(OTHER, is_open=False)
    await made.abandon(fenced=fenced)
    assert share is not None
    assert share.abandoned
    assert made.sources() == {}
    assert made.app._attachments._pending == []
    assert not made.held.holds(ID)
    stops = [("stop", ID), ("stop", OTHER)] if fenced else []
    assert sorted(made.producer.acts) == sorted([("abort", ID), *stops])


@pytest.mark.parametrize("by", ["a rebalance", "the end of its id"])
async def test_a_commit_whose_transaction_was_given_up_meanwhile_commits_nothing(
    made: Manager, by: str
) -> None:
    """A stopping worker's last commit may still wait for a send."""
    with processing(made, 4):
        share = made.share_at_hand()
    assert share is not None
    share.all_sent = asyncio.get_running_loop().create_future()
    made.close(ID)
    commit = asyncio.ensure_future(made.commit({ORDERS: 5}))
    await asyncio.sleep(0)
    await (made.abandon(fenced=False) if by == "a rebalance" else made.end([ID]))
    assert share.abandoned
    share.all_sent.set_result(None)
    assert not await commit
    assert "commit" not in {act[0] for act in made.producer.acts}
    with processing(made, 5):
        anew = made.share_at_hand()
    assert anew is not None
    assert anew.begun.done()
