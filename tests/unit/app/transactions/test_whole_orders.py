"""The order of sends in a share, and states of several ids at once."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import ProducerFenced, TransactionalIdAuthorizationFailed

from faust_assigner.app.transactions.producers import TransactionsRefused
from tests.support.waiting import PATIENCE_S
from tests.unit.app.transactions.test_manager import (
    ID,
    ORDERS,
    OTHER,
    PAYMENTS,
    Event,
    Manager,
    made,
    processing,
    send,
)

__all__ = ["made"]


async def test_each_send_of_a_share_waits_for_the_send_before_it(made: Manager) -> None:
    """The places of a share are a chain; a share of a different id has its own chain."""
    places = []
    for offset, tp in ((4, ORDERS), (7, PAYMENTS), (5, ORDERS), (2, ORDERS)):
        with processing(made, offset, tp):
            places.append(made._sends._take_place())
    first, other, second, third = places
    assert first is not None
    assert other is not None
    assert second is not None
    assert third is not None
    assert (first.before, second.before, third.before) == (
        first.share.begun,
        first.done,
        second.done,
    )
    assert (first.share.all_sent, other.share.all_sent) == (third.done, other.done)
    assert first.share is second.share is third.share is not other.share
    assert (made.reached(ID), made.reached(OTHER)) == ({ORDERS: 5}, {PAYMENTS: 7})
    for place in (third, second):
        place.leave()
    await asyncio.sleep(0)
    assert not second.done.done()
    first.leave()
    for _ in range(4):
        await asyncio.sleep(0)
    assert third.done.done()
    assert not other.done.done()


async def test_a_send_of_a_commit_follows_the_sends_of_the_closed_share(made: Manager) -> None:
    """Messages that are published on commit come after the records' own sends."""
    with processing(made, 4):
        place = made._sends._take_place()
    assert place is not None
    made.close(ID)
    with made.within(ORDERS):
        sending = asyncio.ensure_future(send(made, b"attached"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert made.producer.acts == []
    place.leave()
    await sending
    assert made.producer.acts == [("send", "out", b"attached", 3, ID)]


async def test_a_fence_releases_the_held_records_of_all_ids_and_voids_all_shares(
    made: Manager,
) -> None:
    """The member joins again once; later errors of the same producer are the same fence."""
    shares = []
    for tp in (ORDERS, PAYMENTS):
        with processing(made, 4, tp):
            shares.append(made.share_at_hand())
    for one in (ID, OTHER):
        made.held.hold(one)
    held = list(made.held._held.values())
    assert made.note_fence(ID, ValueError("not a fence")) is False
    assert [share.abandoned for share in shares if share] == [False, False]
    for one in (ID, OTHER):
        assert made.note_fence(one, ProducerFenced()) is True
    assert (made.is_fenced, made.consumer.lost, made.held._held) == (True, 1, {})
    assert [event.is_set() for event in held] == [True, True]
    assert [share.abandoned for share in shares if share] == [True, True]


async def test_a_transaction_is_abandoned_before_its_producer_stops(made: Manager) -> None:
    """A send that waits for its turn must not reach the producer while that one stops."""
    with processing(made, 4, ORDERS):
        share = made.share_at_hand()
    assert share is not None
    made.held.hold(ID)
    ended = []

    async def end(transactional_id: str) -> None:
        ended.append((transactional_id, share.abandoned, made.held.holds(ID)))

    made._producers.end = end  # type: ignore[method-assign]
    await made.end({ID})
    assert ended == [(ID, True, False)]


async def test_a_stream_passes_on_a_record_before_one_that_a_commit_waits_for(
    made: Manager,
) -> None:
    """The processor of a stream asks for the records that the stream reads next."""
    with processing(made, 3, PAYMENTS):
        await send(made)
    for one in (ID, OTHER):
        made.held.hold(one)
    queued = [Event(made.app, 3, PAYMENTS)]
    with processing(made, 5):
        waiting = made.held.hold_value("value", lambda: iter(queued))
        assert await asyncio.wait_for(waiting, PATIENCE_S) == "value"


async def test_records_of_all_held_transactions_check_again(made: Manager) -> None:
    """A send may let the records of any id pass, whichever commit began to wait first."""
    for one in (ID, OTHER):
        made.held.hold(one)
    before = dict(made.held._held)
    made.held.recheck_waiting()
    assert [event.is_set() for event in before.values()] == [True, True]
    assert [made.held._held[one] is event for one, event in before.items()] == [False, False]


async def test_the_last_error_of_an_open_transaction_counts_for_its_id_alone(made: Manager) -> None:
    """An id without an open transaction and a partition without an id fail nothing."""
    shares = []
    for tp in (ORDERS, PAYMENTS):
        with processing(made, 4, tp):
            shares.append(made.share_at_hand())
    first, second = ValueError("first"), KeyError("second")
    made.fail(ORDERS, first)
    made.fail_id(ID, second)
    made.fail_id("shop-9-9", first)
    assert [share.error for share in shares if share] == [second, None]
    assert [made.has_failed(one) for one in (ID, OTHER, "shop-9-9")] == [True, False, False]
    made.close(ID)
    assert not made.has_failed(ID), "the share of the next transaction"


async def test_a_cancelled_send_fails_its_open_transaction(made: Manager) -> None:
    """A record may be missing, as after any other error."""
    with processing(made, 4, ORDERS):
        share = made.share_at_hand()
    cancelled = asyncio.CancelledError()
    made.fail(ORDERS, cancelled)
    assert share is not None
    assert share.error is cancelled
    assert made.has_failed(ID)


@pytest.mark.parametrize("failing", [ID, OTHER])
async def test_the_error_of_any_commit_is_raised_and_all_next_shares_begin(
    made: Manager, failing: str
) -> None:
    """The other transaction is committed; no send waits for a commit that has ended."""
    for one in (ID, OTHER):
        made.close(one)
    error = made.producer.commit_refusals[failing] = ConnectionError("silent")
    with pytest.raises(ConnectionError) as raised:
        await made.commit({ORDERS: 5, PAYMENTS: 9})
    assert raised.value is error
    offsets = {ID: {ORDERS: 5}, OTHER: {PAYMENTS: 9}}
    (kept,) = offsets.keys() - {failing}
    assert made.producer.acts == [("commit", (kept, offsets[kept]))]
    assert made._closed == {}
    assert [share.begun.done() for share in made._shares.values()] == [True, True]


async def test_next_transactions_begin_without_a_commit_too(made: Manager) -> None:
    """There may be no offset to commit."""
    for one in (ID, OTHER):
        made.close(one)
    waiting = list(made._shares.values())
    assert [share.begun.done() for share in waiting] == [False, False]
    made.begin_next()
    assert [share.begun.done() for share in waiting] == [True, True]
    assert (made._closed, list(made._shares.values())) == ({}, waiting)


async def test_the_cause_of_a_refusal_is_the_broker_s_error(made: Manager) -> None:
    """The worker's log shows both."""
    made.producer._transaction_producers.clear()
    error = made.producer.start_refusal = TransactionalIdAuthorizationFailed()
    with pytest.raises(TransactionsRefused) as raised:
        await made._producers.begin({ID})
    assert raised.value.__cause__ is error


async def test_a_commit_without_offsets_is_whole(made: Manager) -> None:
    """No transaction is left uncommitted, and the next shares begin."""
    made.close(ID)
    assert await made.commit({}) is True
    assert made.producer.acts == []
    assert (made._closed, made._shares[ID].begun.done()) == ({}, True)
