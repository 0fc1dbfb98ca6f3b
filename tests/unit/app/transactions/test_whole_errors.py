"""Errors of any type, and sources with different offsets, in transactions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import IllegalOperation, ProducerFenced
from faust.exceptions import ProducerSendError
from faust.types import TP

from faust_assigner.app.transactions.ids import partitions_to_restart
from faust_assigner.app.transactions.producers import TransactionsRefused
from tests.support.waiting import PATIENCE_S
from tests.unit.app.transactions.test_manager import (
    ID,
    ORDERS,
    PAYMENTS,
    Event,
    Manager,
    made,
    processing,
    send,
)

__all__ = ["made"]

BILLS = TP("bills", 0)


def test_a_partition_that_comes_is_not_revoked_with_the_transaction_that_ends() -> None:
    """It has no transaction on this worker yet."""
    groups = {"orders": 1, "payments": 1, "bills": 2}
    own = {ORDERS, BILLS}
    assert partitions_to_restart(own, {PAYMENTS, BILLS}, groups, groups) == frozenset()
    assert partitions_to_restart({*own, PAYMENTS}, {PAYMENTS, BILLS}, groups, groups) == {PAYMENTS}


async def test_a_fence_may_come_as_an_error_that_is_not_kafka_s(made: Manager) -> None:
    """After a fatal error aiokafka refuses a send as an illegal operation."""
    client = made.producer._transaction_producers[ID]
    client.is_fatal, client.error = True, ProducerFenced()
    made.producer.refusal = IllegalOperation("the transaction is over")
    with processing(made, 4):
        refused = await send(made)
    with pytest.raises(ProducerSendError, match=f"{ID} was fenced") as raised:
        await refused
    assert raised.value.__cause__ is made.producer.refusal
    assert (made.is_fenced, made.consumer.lost) == (True, 1)


@pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("closed")])
async def test_an_error_that_is_no_answer_of_the_broker_is_no_refusal(
    made: Manager, error: Exception
) -> None:
    """The operator would look for ACLs in vain; the new connection is closed."""
    made.producer._transaction_producers.clear()
    made.producer.start_refusal = error
    with pytest.raises(type(error)) as raised:
        await made._producers.begin({ID})
    assert raised.value is error
    assert not isinstance(raised.value, TransactionsRefused)
    assert made.producer.acts == [("close", ID)]


async def test_each_source_of_a_transaction_is_waited_for_up_to_its_own_offset(
    made: Manager,
) -> None:
    """The offsets of two topics of one task have nothing to do with each other."""
    made._ids[BILLS] = ID
    made.app.assignor.group_for_topic = {"orders": 1, "bills": 1, "payments": 2}.__getitem__
    for offset, tp in ((90, BILLS), (4, ORDERS)):
        with processing(made, offset, tp):
            await send(made)
    made.held.hold(ID)
    events = [(Event(made.app, offset, tp)) for offset, tp in ((5, ORDERS), (91, BILLS))]
    assert not made.held.waits_for(events)
    assert made.held.waits_for([*events, Event(made.app, 90, BILLS)])
    await asyncio.wait_for(made.held.wait_for_commit(Event(made.app, 4, ORDERS)), PATIENCE_S)
    waiting = [asyncio.ensure_future(made.held.wait_for_commit(event)) for event in events]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    made.held.release_all()
    await asyncio.gather(*waiting)


async def test_a_change_joins_the_transaction_of_its_record_during_a_commit(made: Manager) -> None:
    """Only what the commit itself sends joins the closed transaction."""
    with processing(made, 4):
        await send(made, b"first")
    made.close(ID)

    async def publish_message(_: Any, *, wait: bool) -> None:
        await made.send("out", b"k", b"change", 3, None, None)

    change: Any = SimpleNamespace(
        message=SimpleNamespace(channel=SimpleNamespace(publish_message=publish_message))
    )
    with processing(made, 5), made.within(ORDERS):
        made._sends.send_soon(change)
        await send(made, b"of the commit")
    assert [act[2] for act in made.producer.acts] == [b"first", b"of the commit"]
    made.begin_next()
    await asyncio.gather(*made._sends._running)
    assert [act[2] for act in made.producer.acts] == [b"first", b"of the commit", b"change"]
    assert made._shares[ID].reached == {ORDERS: 5}


class Store:
    """A store that notes what becomes of a share's rows."""

    def __init__(self) -> None:
        self.acts: list[Any] = []
        self.flushing = SimpleNamespace(
            drop=lambda partition, share: self.acts.append(("drop", partition, share)),
            flush=lambda partition: self.acts.append(("flush", partition)),
        )


async def share_of(made: Manager, offset: int = 7) -> tuple[Any, Store]:
    """Send a record of ORDERS that changes rows of two partitions; return its share and the store."""
    store = Store()
    with processing(made, offset):
        await send(made)
        share = made.share_at_hand()
    assert share is not None
    share.changed |= {(store, 5), (store, 2)}
    return share, store


async def test_a_commit_writes_the_rows_of_its_share_and_a_later_one_does_not(
    made: Manager,
) -> None:
    """The rows of the next share wait for its own commit."""
    share, store = await share_of(made)
    made.close(ID)
    later = Store()
    made._shares[ID].changed.add((later, 9))
    assert await made.commit({ORDERS: 8}) is True
    assert share.committed
    assert store.acts == [("flush", 2), ("flush", 5)]
    assert later.acts == []
    assert (made._closed, made._shares[ID].committed) == ({}, False)


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_transaction_that_ends_takes_back_its_rows_and_lets_its_sends_fail(
    made: Manager, is_closed: bool
) -> None:
    """A send that waits for the commit fails at once; rows of other ids stay."""
    share, store = await share_of(made)
    if is_closed:
        made.close(ID)
        with processing(made, 8):
            waiting = asyncio.ensure_future(send(made, b"late"))
        await asyncio.sleep(0)
    with processing(made, 4, PAYMENTS):
        kept = made.share_at_hand()
    await made.revoke({ORDERS})
    assert share.abandoned
    assert sorted(store.acts, key=str) == [("drop", 2, share), ("drop", 5, share)]
    if is_closed:
        with pytest.raises(ProducerSendError, match="abandoned"):
            await (await waiting)
    assert (made._closed, made._shares) == ({}, {made._ids[PAYMENTS]: kept})
    assert kept is not None
    assert not kept.abandoned


async def test_a_closed_transaction_with_an_error_is_not_committed_though_nothing_was_sent(
    made: Manager,
) -> None:
    """The callback of a window may fail before its first send."""
    with processing(made, 7):
        share = made.share_at_hand()
    assert share is not None
    made.close(ID)
    share.error = ValueError("in a callback")
    with pytest.raises(ValueError, match="in a callback"):
        await made.commit({ORDERS: 8})
    assert (share.committed, made.producer.acts) == (False, [])


async def test_a_commit_that_finds_its_producer_fenced_gives_the_partitions_up(
    made: Manager,
) -> None:
    """aiokafka names the fence at an earlier call only; the id of the commit decides."""
    share, store = await share_of(made)
    client = made.producer._transaction_producers[ID]
    client.is_fatal, client.error = True, ProducerFenced()
    made.producer.commit_refusal = IllegalOperation("the transaction is over")
    made.close(ID)
    assert await made.commit({ORDERS: 8}) is False
    assert (made.is_fenced, made.consumer.lost) == (True, 1)
    assert (share.committed, store.acts) == (False, [])


async def test_a_fence_counts_for_an_id_without_a_share_and_once(made: Manager) -> None:
    """The next call finds the worker fenced, and the final abort stops what it is told to stop."""
    for _ in range(2):
        assert made.note_fence(ID, ProducerFenced())
    assert (made._shares, made.is_fenced, made.consumer.lost) == ({}, True, 1)
    await made.abandon(fenced=False)
    assert made.producer.acts == [("abort", ID), ("abort", made._ids[PAYMENTS])]


async def test_a_producer_whose_first_transaction_does_not_begin_is_kept(made: Manager) -> None:
    """The next attempt uses it, and the end of the id stops it."""
    made.producer._transaction_producers.clear()
    made.producer._trn_locks.clear()
    new = made.producer._new_producer
    errors: list[Any] = [ValueError("a bug"), None]

    def failing(*, transactional_id: str) -> Any:
        client = new(transactional_id=transactional_id)
        begin = client.begin_transaction

        async def begin_transaction() -> None:
            if (error := errors.pop(0)) is not None:
                raise error
            await begin()

        client.begin_transaction = begin_transaction  # type: ignore[method-assign]
        return client

    made.producer._new_producer = failing  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="a bug"):
        await made._producers.begin({ID})
    kept = made.producer._transaction_producers[ID]
    await made._producers.begin({ID})
    assert made.producer._transaction_producers == {ID: kept}
    assert made.producer.acts == [("start", ID), ("begin", ID)]


async def test_each_partition_of_a_topic_reaches_its_own_offset(made: Manager) -> None:
    """Two partitions share a transaction only in a stand-in; their offsets stay apart."""
    second = TP("orders", 1)
    made._ids[second] = ID
    for offset, tp in ((90, second), (4, ORDERS), (89, second)):
        with processing(made, offset, tp):
            await send(made)
    assert made.reached(ID) == {second: 90, ORDERS: 4}
