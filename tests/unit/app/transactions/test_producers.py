"""The producers of transactional ids, and the sends, answers and shares of several ids."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    MessageSizeTooLargeError,
    ProducerFenced,
)
from faust.exceptions import ProducerSendError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from faust_assigner.app.transactions import producers as module
from tests.support.waiting import PATIENCE_S
from tests.unit.app.transactions.test_manager import (
    COPY,
    ID,
    ORDERS,
    OTHER,
    PAYMENTS,
    Client,
    Event,
    Manager,
    Producer,
    made,
    processing,
    send,
)

__all__ = ["made"]

BILLS = TP("bills", 0)


def test_the_driver_of_an_app_with_transactions_keeps_its_own_producers() -> None:
    """Two apps of a process share the driver class; an app without transactions stays unchanged."""
    for in_transaction in (True, False):
        producer, before = Producer(), Producer()
        producer._transaction_producers = before._transaction_producers
        app = SimpleNamespace(in_transaction=in_transaction, producer=producer)
        manager: Any = Manager(app)
        is_own = producer._transaction_producers is not before._transaction_producers
        assert is_own is in_transaction
        assert (vars(producer).get("send_soon") == manager._sends.send_soon) is in_transaction
        assert manager.is_fenced is False


async def test_a_flush_goes_on_while_a_round_begins_and_ends_producers(made: Manager) -> None:
    """Faust flushes one producer after the other; the new producer has nothing to flush yet."""
    flushed: list[str] = []

    def client(name: str) -> Any:
        async def flush() -> None:
            flushed.append(name)
            made.producer._transaction_producers.pop("shop-0-0", None)
            made.producer._transaction_producers["shop-9-9"] = client("shop-9-9")

        return SimpleNamespace(flush=flush)

    made._producers.separate()
    for name in ("shop-0-0", "shop-0-1"):
        made.producer._transaction_producers[name] = client(name)
    faust: Any = SimpleNamespace(
        buffer=SimpleNamespace(flush=lambda: asyncio.sleep(0)),
        _producer=None,
        _transaction_producers=made.producer._transaction_producers,
    )
    await driver.Producer.flush(faust)
    assert flushed == ["shop-0-0", "shop-0-1"]
    assert list(faust._transaction_producers) == ["shop-0-1", "shop-9-9"]


def test_an_id_names_the_app_the_group_and_the_partition(made: Manager) -> None:
    """Topics of the same group and partition number share the id."""
    made.app.assignor.group_for_topic = {"orders": 3, "bills": 3, "payments": 5}.__getitem__
    assert made.ids_for([TP("orders", 7), TP("bills", 7), TP("payments", 2), COPY]) == {
        TP("orders", 7): "shop-3-7",
        TP("bills", 7): "shop-3-7",
        TP("payments", 2): "shop-5-2",
    }


async def test_an_eager_round_ends_the_ids_that_go_and_begins_all_that_are_assigned(
    made: Manager,
) -> None:
    """Ids are handled in their order; a started producer only begins its next transaction."""
    made.app.assignor.group_for_topic = {"orders": 4, "payments": 2, "bills": 9}.__getitem__
    await made.on_rebalance({ORDERS, PAYMENTS, BILLS}, {ORDERS}, {BILLS})
    assert made.producer.acts == [
        ("abort", ID),
        ("stop", ID),
        ("begin", OTHER),
        ("start", "shop-4-0"),
        ("begin", "shop-4-0"),
        ("start", "shop-9-0"),
        ("begin", "shop-9-0"),
    ]
    assert made.producer._trn_locks.keys() >= {"shop-4-0", "shop-9-0"}
    assert made._ids == {ORDERS: "shop-4-0", PAYMENTS: OTHER, BILLS: "shop-9-0"}


async def test_a_cooperative_round_ends_and_begins_only_what_changes(made: Manager) -> None:
    """The kept id's open transaction continues."""
    with processing(made, 4, PAYMENTS):
        await send(made)
        kept = made.share_at_hand()
    made.producer.acts.clear()
    await made.revoke({ORDERS})
    assert made.producer.acts == [("abort", ID), ("stop", ID)]
    made.producer.acts.clear()
    made.app.assignor.group_for_topic = {"payments": 2, "bills": 9}.__getitem__
    await made.assign({PAYMENTS, BILLS, COPY})
    assert made.producer.acts == [("start", "shop-9-0"), ("begin", "shop-9-0")]
    assert made._ids == {PAYMENTS: OTHER, BILLS: "shop-9-0"}
    with processing(made, 5, PAYMENTS):
        assert made.share_at_hand() is kept


async def test_producers_end_in_the_order_of_their_ids_also_one_that_never_began(
    made: Manager,
) -> None:
    """Each producer is stopped; records held for the ended ids continue, and only these."""
    for one in (ID, OTHER):
        made.held.hold(one)
    await made.end({"shop-3-1", ID})
    assert made.producer.acts == [("abort", ID), ("stop", ID), ("stop", "shop-3-1")]
    assert (made.held.holds(ID), made.held.holds(OTHER)) == (False, True)


async def test_a_producer_that_finds_no_coordinator_is_made_again(
    made: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first producer is closed: no other code refers to its connection."""
    made.producer._transaction_producers.clear()
    refusals: list[Any] = [GroupCoordinatorNotAvailableError(), None]
    slept: list[float] = []

    def new(*, transactional_id: str) -> Client:
        client = Client(made.producer.acts, transactional_id)
        client.error = refusals.pop(0)
        return client

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(made.producer, "_new_producer", new)
    monkeypatch.setattr(made, "sleep", sleep, raising=False)
    await made._producers.begin({ID})
    assert made.producer.acts == [("close", ID), ("start", ID), ("begin", ID)]
    assert len(slept) == 1


async def test_a_producer_whose_start_has_no_answer_is_made_again(
    made: Manager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka asks for a producer's id without a deadline: the partitions would stand still for good."""
    made.producer._transaction_producers.clear()
    monkeypatch.setattr(module, "BEGIN_S", 0.01)
    new, answers = made.producer._new_producer, [asyncio.Event(), asyncio.Event()]
    answers[1].set()

    def silent(*, transactional_id: str) -> Client:
        client, answer = new(transactional_id=transactional_id), answers.pop(0)
        start = client.start

        async def start_with_answer() -> None:
            await answer.wait()
            await start()

        monkeypatch.setattr(client, "start", start_with_answer)
        return client

    async def sleep(seconds: float) -> None: ...

    monkeypatch.setattr(made.producer, "_new_producer", silent)
    monkeypatch.setattr(made, "sleep", sleep, raising=False)
    await asyncio.wait_for(made._producers.begin({ID}), PATIENCE_S)
    assert made.producer.acts == [("close", ID), ("start", ID), ("begin", ID)]
    assert f"Begin of transaction {ID}: the broker has not answered" in caplog.text


async def test_sends_of_two_sources_of_one_id_reach_each_its_own_offset(made: Manager) -> None:
    """The topics of a task share a transaction; a different id has its own."""
    made._ids[BILLS] = ID
    made.app.assignor.group_for_topic = {"orders": 1, "bills": 1, "payments": 2}.__getitem__
    for offset, tp in ((7, ORDERS), (3, BILLS), (5, ORDERS), (9, PAYMENTS)):
        with processing(made, offset, tp):
            await send(made, b"%d" % offset)
    assert (made.reached(ID), made.reached(OTHER)) == ({ORDERS: 7, BILLS: 3}, {PAYMENTS: 9})
    assert made.sources() == {ORDERS: 7, BILLS: 3, PAYMENTS: 9}
    assert [act[2:] for act in made.producer.acts] == [
        (b"7", 3, ID),
        (b"3", 3, ID),
        (b"5", 3, ID),
        (b"9", 3, OTHER),
    ]
    assert made.reached("unknown") == {}


async def test_partitions_of_one_id_are_committed_in_one_transaction(made: Manager) -> None:
    """A partition of a different worker has no id."""
    made._ids[BILLS] = ID
    assert await made.commit({ORDERS: 5, PAYMENTS: 9, BILLS: 4})
    assert made.producer.acts == [
        ("commit", (ID, {ORDERS: 5, BILLS: 4})),
        ("commit", (OTHER, {PAYMENTS: 9})),
    ]


@pytest.mark.parametrize("source", ["channel", "no message", "no record"])
async def test_what_is_sent_by_no_record_of_a_topic_is_in_no_transaction(
    made: Manager, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory channels, timers and commands send at once; Faust takes the target's transaction."""
    soon: list[Any] = []
    monkeypatch.setattr(
        Producer, "send_soon", lambda self, fut: soon.append((self, fut)), raising=False
    )
    if source == "no record":
        await send(made)
        made._sends.send_soon("change")
    else:
        tp = TP("in memory", 0) if source == "channel" else ORDERS
        with processing(made, 4, tp) as event:
            if source == "no message":
                event.message = None
            await send(made)
            made._sends.send_soon("change")
    assert made.producer.acts == [("send", "out", b"v", 3, None)]
    assert soon == [(made.producer, "change")]
    assert (made._shares, made._sends._running) == ({}, set())


async def test_the_share_of_a_partition_that_has_gone_is_void(made: Manager) -> None:
    """Its changes are discarded, and its name shows the partition; no id gets the share."""
    del made._ids[ORDERS]
    with processing(made, 4):
        share = made.share_at_hand()
    assert share is not None
    assert (share.abandoned, share.begun.done()) == (True, True)
    assert share.transactional_id == "orders-0, which was revoked,"
    assert made._shares == {}


async def test_a_refused_answer_ends_no_worker_that_stops_or_was_fenced(made: Manager) -> None:
    """The worker is already ending; its transaction still counts as failed."""
    made.producer.holds_answers = True
    for offset, tp in ((4, ORDERS), (5, PAYMENTS)):
        with processing(made, offset, tp):
            await send(made)
    made.app.should_stop = True
    made.producer.answers[0].set_exception(MessageSizeTooLargeError())
    await asyncio.sleep(0)
    made.app.should_stop, made.is_fenced = False, True
    made.producer.answers[1].set_exception(MessageSizeTooLargeError())
    await asyncio.sleep(0.01)
    assert made.crashes == []
    assert (made.has_failed(ID), made.has_failed(OTHER)) == (True, True)


async def test_an_answer_that_is_cancelled_is_no_refusal(made: Manager) -> None:
    """The commit no longer waits for the answer."""
    made.producer.holds_answers = True
    with processing(made, 4):
        await send(made)
    made.close(ID)
    committing = asyncio.ensure_future(made.commit({ORDERS: 5}))
    await asyncio.sleep(0.01)
    made.producer.answers[0].cancel()
    assert await asyncio.wait_for(committing, PATIENCE_S)
    assert made.crashes == []


async def test_the_task_that_ends_a_worker_is_kept_until_it_has(made: Manager) -> None:
    """asyncio alone does not keep a task alive."""
    gate = asyncio.Event()

    async def crash(error: BaseException) -> None:
        await gate.wait()
        made.crashes.append(error)

    made.crash = crash  # type: ignore[method-assign]
    made.producer.holds_answers = True
    with processing(made, 4):
        await send(made)
    made.producer.answers[0].set_exception(MessageSizeTooLargeError())
    await asyncio.sleep(0.01)
    assert len(made._sends._running) == 1
    gate.set()
    await asyncio.sleep(0.01)
    assert (len(made._sends._running), len(made.crashes)) == (0, 1)


async def test_a_send_that_the_producer_refuses_is_the_callers_error(made: Manager) -> None:
    """For a fence the future has Faust's error; the next send works in both cases."""
    made.producer.refusal = RuntimeError("illegal operation")
    with processing(made, 4), pytest.raises(RuntimeError, match="illegal"):
        await send(made)
    made.producer.refusal = None
    with processing(made, 5):
        await asyncio.wait_for(send(made, b"next"), PATIENCE_S)
    assert [act[2] for act in made.producer.acts] == [b"next"]
    made.producer.refusal = ProducerFenced()
    with processing(made, 6):
        refused = await send(made)
    with pytest.raises(ProducerSendError, match=f"{ID} was fenced"):
        await refused
    assert made.consumer.lost == 1


async def test_an_error_without_a_producer_of_that_id_is_no_fence(made: Manager) -> None:
    """The same holds for a producer with a different fatal error."""
    assert not made.note_fence("unknown", RuntimeError("a bug"))
    client = made.producer._transaction_producers[ID]
    client.is_fatal, client.error = True, RuntimeError("another")
    assert not made.note_fence(ID, RuntimeError("a bug"))
    assert (made.is_fenced, made.consumer.lost) == (False, 0)


async def test_one_failed_id_fails_no_other(made: Manager) -> None:
    """A partition without an id or a share cannot fail."""
    for offset, tp in ((4, ORDERS), (5, PAYMENTS)):
        with processing(made, offset, tp):
            await send(made)
    made.fail(BILLS, ValueError("of nobody"))
    made.fail_id("unknown", ValueError("of nobody"))
    assert (made.has_failed(ID), made.has_failed(OTHER)) == (False, False)
    made.fail(PAYMENTS, ValueError("a window"))
    assert (made.has_failed(ID), made.has_failed(OTHER)) == (False, True)
    assert not made.has_failed("unknown")


async def test_held_records_are_waited_for_by_their_own_commit(made: Manager) -> None:
    """A release of an id, or a second hold, does not affect the other id."""
    made.held.hold(ID)
    first = made.held._held[ID]
    made.held.hold(ID)
    assert made.held._held[ID] is first, "who waits already would wait for ever"
    made.held.hold(OTHER)
    waiting = [
        asyncio.ensure_future(made.held.wait_for_commit(Event(made.app, 5, tp)))
        for tp in (ORDERS, PAYMENTS)
    ]
    await asyncio.sleep(0)
    made.held.release(OTHER)
    made.held.release("unknown")
    await asyncio.wait_for(waiting[1], PATIENCE_S)
    assert not waiting[0].done()
    with processing(made, 6, ORDERS):
        value = asyncio.ensure_future(made.held.hold_value("value"))
        await asyncio.sleep(0.01)
    assert not value.done()
    made.held.release(ID)
    await asyncio.wait_for(waiting[0], PATIENCE_S)
    assert await asyncio.wait_for(value, PATIENCE_S) == "value"


async def test_a_fatal_producers_error_is_read_when_it_is_abandoned(made: Manager) -> None:
    """asyncio would log the unread error; healthy producers are not read."""
    read: list[str] = []
    for name in (ID, OTHER):
        client = made.producer._transaction_producers[name]
        client.is_fatal = name == OTHER
        client._txn_manager._transaction_waiter.exception = lambda name=name: read.append(name)
    await made.abandon(fenced=False)
    assert read == [OTHER]
    assert made.producer.acts == [("abort", ID), ("abort", OTHER)]


async def test_a_closed_transaction_without_sends_is_committed_and_its_next_one_begins(
    made: Manager,
) -> None:
    """Sends of the next transaction of this id wait until then."""
    made.close(ID)
    shares = dict(made._shares)
    assert (shares.keys(), shares[ID].begun.done()) == ({ID}, False)
    assert (made._closed[ID].begun.done(), made._closed[ID].transactional_id) == (True, ID)
    made.begin_next()
    assert shares[ID].begun.done()
    assert made._closed == {}


async def test_the_first_record_of_a_log_is_held_back_as_any_other(made: Manager) -> None:
    """No commit waits for the record before its first send; a value without a record passes."""
    made.held.hold(ID)
    first = Event(made.app, 0)
    assert not made.held.waits_for([first])
    waiting = asyncio.ensure_future(made.held.wait_for_commit(first))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert (
        await asyncio.wait_for(made.held.hold_value("without a record"), PATIENCE_S)
        == "without a record"
    )
    with processing(made, 0) as event:
        event.message = None
        assert (
            await asyncio.wait_for(made.held.hold_value("no message"), PATIENCE_S) == "no message"
        )
    with processing(made, 0):
        await send(made)
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert made.held.waits_for([first])
    assert not made.held.waits_for([])


async def test_a_change_that_a_fence_keeps_from_being_published_ends_no_worker(
    made: Manager,
) -> None:
    """All partitions are revoked anyway; the transaction still counts as failed."""

    async def publish_message(fut: Any, *, wait: bool) -> None:
        made.is_fenced = True
        raise ProducerSendError("fenced")

    channel = SimpleNamespace(publish_message=publish_message)
    with processing(made, 4):
        made._sends.send_soon(SimpleNamespace(message=SimpleNamespace(channel=channel)))
    await asyncio.sleep(0.01)
    assert made.crashes == []
    assert made.has_failed(ID)
    with processing(made, 5):
        refused = await asyncio.wait_for(send(made), PATIENCE_S)
    with pytest.raises(ProducerSendError):
        await refused


async def test_a_commit_waits_for_the_answer_to_a_change_that_is_sent_late(made: Manager) -> None:
    """At the begin of the commit the change was buffered, without a pending answer."""
    gate = asyncio.Event()

    async def publish_message(fut: Any, *, wait: bool) -> None:
        await gate.wait()
        await send(made, b"change")

    made.producer.holds_answers = True
    channel = SimpleNamespace(publish_message=publish_message)
    with processing(made, 4):
        made._sends.send_soon(SimpleNamespace(message=SimpleNamespace(channel=channel)))
    made.close(ID)
    committing = asyncio.ensure_future(made.commit({ORDERS: 5}))
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.sleep(0.01)
    assert [act[0] for act in made.producer.acts] == ["send"]
    assert not committing.done()
    made.producer.answers[0].set_result("sent")
    assert await asyncio.wait_for(committing, PATIENCE_S)
    assert made.producer.acts[1:] == [("commit", (ID, {ORDERS: 5}))]


async def test_a_transaction_that_is_given_up_while_kafka_commits_it_flushes_no_rows(
    made: Manager,
) -> None:
    """The rows were discarded with the partition; the id's next share begins by itself."""
    gate = made.producer.commit_gates[ID] = asyncio.Event()
    with processing(made, 4):
        share = made.share_at_hand()
    assert share is not None
    made.close(ID)
    committing = asyncio.ensure_future(made.commit({ORDERS: 5}))
    await asyncio.sleep(0.01)
    await made.end([ID])
    gate.set()
    await asyncio.wait_for(committing, PATIENCE_S)
    assert (share.abandoned, share.committed) == (True, False)


async def test_all_that_is_held_back_goes_on_when_transactions_are_abandoned(made: Manager) -> None:
    """This covers every id."""
    for one in (ID, OTHER):
        made.held.hold(one)
    waiting = [
        asyncio.ensure_future(made.held.wait_for_commit(Event(made.app, 5, tp)))
        for tp in (ORDERS, PAYMENTS)
    ]
    await asyncio.sleep(0)
    await made.abandon(fenced=False)
    await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
    assert made.held._held == {}


async def test_a_commit_of_one_id_waits_for_no_record_of_another(made: Manager) -> None:
    """The other record has sent as well; a partition without an id delays no commit."""
    for offset, tp in ((4, ORDERS), (9, PAYMENTS)):
        with processing(made, offset, tp):
            await send(made)
    made.held.hold(ID)
    assert not made.held.waits_for([Event(made.app, 5, PAYMENTS), Event(made.app, 1, BILLS)])
    assert made.held.waits_for([Event(made.app, 5, PAYMENTS), Event(made.app, 4)])
