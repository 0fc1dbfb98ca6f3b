"""Transactions of ``exactly_once``: under stock Faust parts of records, under ours whole records.

As in ``test_nothing_lost.py``, ``stock`` asserts the defect and ``repaired`` the promise. Of the
driver's producer only aiokafka's part is replaced.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest
from faust.types import TP

from faust_assigner.app.transactions import producers
from tests.support.workers.passing_on import PassingOn
from tests.support.workers.passing_on import cluster as cluster
from tests.support.workers.virtual import running
from tests.support.workers.virtual_kafka import VirtualConsumer

pytestmark = [pytest.mark.timeout(150), pytest.mark.usefixtures("cluster")]
both = pytest.mark.parametrize(
    "repaired",
    [pytest.param(False, id="stock", marks=pytest.mark.slow), pytest.param(True, id="repaired")],
)


@both
async def test_outputs_are_in_the_transaction_that_commits_their_records(repaired: bool) -> None:
    """Stock sends records to topics that the worker does not consume outside all transactions."""
    worker = PassingOn(repaired=repaired)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(20)
        assert await worker.until(lambda: len(worker.offsets) == 20)
        assert len(worker.loose) == (0 if repaired else 20)
        await worker.commit()
        assert await worker.until(lambda: len(worker.transactions) == 1)
        assert (worker.sent_to("passed-on") == [list(range(20))] == worker.covered()) == repaired


@both
async def test_a_commit_falls_between_two_records(repaired: bool) -> None:
    """Stock commits a record's sends with the offset before it; after a SIGKILL they repeat."""
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
        if repaired:  # outputs wait for the earlier change
            await asyncio.sleep(0.1)
        assert await worker.until(lambda: len(worker.offsets) == 5)
        await worker.commit()
        assert (worker.sent_to(worker.changelog().topic) == [list(range(5))]) == repaired
        # Stock still has the changes there, and a producer that stops with a full buffer never
        # ends.
        assert await worker.until(lambda: worker.app.producer.buffer.size == 0)
        await asyncio.sleep(0.3)


@both
async def test_what_a_revocation_leaves_half_done_is_aborted(repaired: bool) -> None:
    """Stock keeps the transaction open; the repeated record is then in it twice."""
    worker = PassingOn(repaired=repaired, stream_wait_empty=False)
    async with running(worker):
        worker.delay_s = 1.0
        await worker.rebalance([0])
        worker.send_orders(1)
        producers = worker.app.producer._transaction_producers
        assert await worker.until(lambda: any(producer.open for producer in producers.values()))
        await worker.rebalance([0])
        assert any(producer.open for producer in producers.values()) != repaired


@pytest.mark.parametrize("lost", [False, True])
async def test_producers_that_others_may_have_fenced_are_made_anew(lost: bool) -> None:
    """Partitions may return after a lost membership, and their interim owner used the same ids."""
    worker = PassingOn(repaired=True)
    async with running(worker):
        await worker.rebalance([0])
        producers = worker.app.producer._transaction_producers
        before = dict(producers)
        assert before
        if lost:
            worker.app.consumer.fence.lose()
        await worker.rebalance([0])
        assert producers.keys() == before.keys()
        assert all((producers[name] is before[name]) != lost for name in before)


@both
async def test_a_changelog_ends_where_the_broker_says(
    repaired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer knows only ends that it has read: stock takes an unread changelog for empty.

    A table in memory then starts without its rows; a worker with a table in a file ends with
    ConsistencyError.
    """
    read: dict[Any, int] = {}
    monkeypatch.setattr(
        VirtualConsumer, "last_stable_offset", lambda _, tp: read.get(TP(*tp)), raising=False
    )
    worker = PassingOn(repaired=repaired)
    worker.send_changelog(5)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        assert len(worker.counts) == (5 if repaired else 0)
        read[worker.changelog()] = 3
        assert await worker.app.consumer.highwaters(worker.changelog()) == {
            worker.changelog(): 5 if repaired else 3
        }


async def test_a_worker_whose_first_request_for_a_producers_id_is_lost_is_ready_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka waits for the answer without a deadline; a second producer gets the id."""
    monkeypatch.setattr(producers, "BEGIN_S", 0.2)
    worker = PassingOn(repaired=True)
    async with running(worker):
        new, made, closed = worker.app.producer._new_producer, list[Any](), AsyncMock()

        def losing(transactional_id: str | None = None) -> Any:
            producer = new(transactional_id=transactional_id)
            if transactional_id is not None:
                if not made:
                    producer.start, producer.client.close = asyncio.Event().wait, closed
                made.append(producer)
            return producer

        worker.app.producer._new_producer = losing
        await worker.rebalance([0])
        worker.send_orders(5)
        assert await worker.until(lambda: len(worker.offsets) == 5)
        await worker.commit()
        assert await worker.until(lambda: len(worker.transactions) == 1)
        assert len(made) == 2
        closed.assert_awaited_once()
