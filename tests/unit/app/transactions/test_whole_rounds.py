"""Rounds of transactional ids, compared as a whole: every call in its order, and the state after."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import TransactionalIdAuthorizationFailed
from faust.types import TP

from faust_assigner.app.transactions.ids import without
from faust_assigner.app.transactions.producers import TransactionsRefused
from tests.unit.app.transactions.test_manager import (
    ID,
    ORDERS,
    OTHER,
    PAYMENTS,
    Client,
    Manager,
    Producer,
    made,
    processing,
)

__all__ = ["made"]

BILLS = TP("bills", 0)
IDS = [f"shop-{group}-{number}" for group in (3, 1, 2) for number in (9, 4, 7, 1)]


def test_a_revoked_partition_without_an_id_takes_none_along() -> None:
    """Standbys and partitions of other workers have no id."""
    assert without({ORDERS: ID, PAYMENTS: OTHER}, {BILLS, PAYMENTS}) == {ORDERS: ID}


def test_apps_of_one_process_share_neither_producers_nor_locks() -> None:
    """The driver keeps both on its class."""
    producer, before = Producer(), Producer()
    producer._transaction_producers = before._transaction_producers
    producer._trn_locks = before._trn_locks
    manager: Any = Manager(SimpleNamespace(in_transaction=True, producer=producer))
    assert manager.producer._trn_locks is not before._trn_locks
    assert manager.producer._transaction_producers is not before._transaction_producers


async def test_ids_end_and_begin_in_their_order(made: Manager) -> None:
    """The order does not depend on the order of a set."""
    for one in IDS:
        made.producer.have(one)
    await made._producers.begin(frozenset(IDS))
    await made.end(frozenset(IDS))
    assert made.producer.acts == [
        *(("begin", one) for one in sorted(IDS)),
        *(act for one in sorted(IDS) for act in (("abort", one), ("stop", one))),
    ]


async def test_a_revoked_partition_ends_the_transaction_that_others_share(made: Manager) -> None:
    """The partitions of the same id no longer have one; the other id keeps its open share."""
    made._ids[BILLS] = ID
    made.app.assignor.group_for_topic = {"orders": 1, "bills": 1, "payments": 2}.__getitem__
    with processing(made, 4, PAYMENTS):
        kept = made.share_at_hand()
    with processing(made, 4, BILLS):
        gone = made.share_at_hand()
    await made.revoke({ORDERS})
    assert made._ids == {PAYMENTS: OTHER}
    assert made.producer.acts == [("abort", ID), ("stop", ID)]
    assert made._shares == {OTHER: kept}
    assert gone is not None
    assert kept is not None
    assert (gone.abandoned, kept.abandoned) == (True, False)


async def test_a_refusal_names_the_one_id_that_was_refused(made: Manager) -> None:
    """An operator needs the id and the pattern for the cluster's ACLs."""
    made.producer._transaction_producers.clear()
    made.producer.start_refusal = TransactionalIdAuthorizationFailed()
    with pytest.raises(TransactionsRefused) as raised:
        await made._producers.begin({OTHER, ID})
    assert str(raised.value) == (
        "The broker refuses transactions: TransactionalIdAuthorizationFailed for the "
        "transactional id 'shop-1-0', and processing_guarantee='exactly_once' needs them. If the "
        "cluster has ACLs, allow Write and Describe on the transactional ids that begin with 'shop'"
    )
    assert made.producer.acts == [("close", ID)]


async def test_a_transaction_begins_while_no_other_call_uses_its_producer(made: Manager) -> None:
    """A commit under way holds the lock of its id."""
    async with made.producer._trn_locks[ID]:
        beginning = asyncio.ensure_future(made._producers._begin(ID))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert made.producer.acts == []
    await beginning
    assert made.producer.acts == [("begin", ID)]


async def test_a_share_of_a_partition_that_went_is_void_and_open(made: Manager) -> None:
    """Its sends fail at once instead of waiting for a commit that never comes."""
    del made._ids[ORDERS]
    with processing(made, 4):
        share = made.share_at_hand()
    assert share is not None
    assert (share.abandoned, share.begun.done(), share.all_sent.done()) == (True, True, True)
    assert share.transactional_id == "orders-0, which was revoked,"
    assert made._shares == {}


async def test_a_producer_that_works_is_kept_and_one_with_a_fatal_error_replaced(
    made: Manager,
) -> None:
    """Each begins exactly one transaction."""
    broken: Client = made.producer._transaction_producers[OTHER]
    broken.is_fatal = True
    kept = made.producer._transaction_producers[ID]
    await made._producers.begin({ID, OTHER})
    assert made.producer.acts == [
        ("begin", ID),
        ("stop", OTHER),
        ("start", OTHER),
        ("begin", OTHER),
    ]
    assert made.producer._transaction_producers[ID] is kept
    assert made.producer._transaction_producers[OTHER] is not broken


async def test_a_change_is_published_without_a_wait_for_its_answer(made: Manager) -> None:
    """The answer is counted by the share; the channel gets the very message."""
    seen: list[Any] = []

    async def publish_message(fut: Any, *, wait: bool) -> None:
        seen.append((fut, wait))

    change: Any = SimpleNamespace(
        message=SimpleNamespace(channel=SimpleNamespace(publish_message=publish_message))
    )
    with processing(made, 4):
        made._sends.send_soon(change)
    await asyncio.gather(*made._sends._running)
    assert seen == [(change, False)]
    assert made._sends._running == set()


async def test_a_commit_of_which_one_id_was_given_up_is_not_whole(made: Manager) -> None:
    """The other id is committed; the shares that follow take sends at once."""
    with processing(made, 7):
        given_up = made.share_at_hand()
    with processing(made, 9, PAYMENTS):
        kept = made.share_at_hand()
    assert given_up is not None
    assert kept is not None
    made.close(ID)
    made.close(OTHER)
    given_up.abandon()
    assert await made.commit({ORDERS: 8, PAYMENTS: 10}, False) is False
    assert made.producer.acts == [("commit", (OTHER, {PAYMENTS: 10}))]
    assert made.producer.begins_next == [("shop", False)]
    assert (given_up.committed, kept.committed) == (False, True)
    assert made._closed == {}
    assert all(share.begun.done() for share in made._shares.values())


async def test_a_share_that_is_dropped_during_the_commit_of_another_id_stays_uncommitted(
    made: Manager,
) -> None:
    """The commit has noted the share at its beginning, and finds it abandoned."""
    with processing(made, 7):
        share = made.share_at_hand()
    assert share is not None
    made.close(ID)
    share.all_sent = asyncio.get_running_loop().create_future()
    committing = asyncio.ensure_future(made.commit({ORDERS: 8}))
    await asyncio.sleep(0)
    made._drop(ID)
    share.all_sent.set_result(None)
    assert await committing is False
    assert made.producer.acts == []


async def test_offsets_without_an_id_are_committed_under_the_empty_id_and_first(
    made: Manager,
) -> None:
    """A partition that was revoked meanwhile must not join the transaction of another."""
    assert made._by_id({PAYMENTS: 9, BILLS: 3, TP("bills", 1): 4, ORDERS: 5}) == [
        ("", {BILLS: 3, TP("bills", 1): 4}),
        (ID, {ORDERS: 5}),
        (OTHER, {PAYMENTS: 9}),
    ]


async def test_a_turn_that_has_passed_on_is_not_passed_on_again(made: Manager) -> None:
    """A place within a closed transaction waits for, and completes, the same future."""
    with processing(made, 4):
        place = made._sends._take_place()
    assert place is not None
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    for _ in range(2):
        place.leave()
        await asyncio.sleep(0)
    assert (place.done.done(), errors) == (True, [])
