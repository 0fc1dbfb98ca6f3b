"""The times at which a worker may answer for its rows: restored and still owned. Logs in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.app.membership.fence import HeartbeatFence
from faust_assigner.app.queries.replica_status import ReplicaStatus
from tests.support.workers.cooperative import CooperativeWorker, worker_of
from tests.support.workers.virtual import Worker, running

pytestmark = pytest.mark.timeout(150)


def restored(worker: Any) -> list[int]:
    """Return the partitions that are restored and owned by this worker."""
    recovery = worker.app.tables.recovery
    return [p for p in range(4) if recovery.is_restored(worker.changelog(p))]


def hold_up(worker: CooperativeWorker) -> asyncio.Event:
    """Make each later restore wait until the returned event is set."""
    actives, go = worker.app.tables.recovery.actives, asyncio.Event()
    restore = actives.restore

    async def late(pending: set[Any]) -> None:
        await go.wait()
        await restore(pending)

    actives.restore = late
    return go


async def test_a_partition_that_is_being_restored_is_not_read_and_kept_ones_are() -> None:
    """In a cooperative round, rows are readable once the table has its whole changelog."""
    async with worker_of([0]) as worker:
        assert restored(worker) == [0]
        go = hold_up(worker)
        await worker.give([0, 1])
        assert restored(worker) == [0]
        go.set()
        assert await worker.until(lambda: worker.at_rest)
        assert restored(worker) == [0, 1]


async def test_a_partition_that_went_is_not_read_any_more() -> None:
    """Its files still exist."""
    async with worker_of([0, 1]) as worker:
        assert restored(worker) == [0, 1]
        await worker.give([1])
        assert await worker.until(lambda: worker.at_rest)
        assert restored(worker) == [1]


async def test_a_standby_is_no_owner() -> None:
    """This holds for a former owner, too."""
    async with worker_of([0, 1]) as worker:
        await worker.give([1], [0])
        assert await worker.until(lambda: worker.at_rest)
        assert restored(worker) == [1]


async def test_nothing_is_read_while_everything_stands_still() -> None:
    """The group's coordinator is silent, so other workers may own all partitions."""
    async with worker_of([0, 1]) as worker:
        await worker.app.consumer.incremental.stand_still()
        assert restored(worker) == []


async def test_an_eager_round_makes_no_partition_readable_before_it_is_restored() -> None:
    """Stock's views read the rows restored so far."""
    async with worker_of([0, 1]) as worker:
        go = hold_up(worker)
        await worker.rebalance([0, 2])
        assert restored(worker) == []
        go.set()
        assert await worker.until(lambda: worker.at_rest)
        assert restored(worker) == [0, 2]


def test_whoever_was_frozen_for_a_session_is_not_sure() -> None:
    """Other workers may own its partitions; the next answered heartbeat makes it sure again."""
    now = 100.0
    fence = HeartbeatFence(10.0, lambda: now)
    assert fence.is_sure()
    now = 111.0
    assert not fence.is_sure()
    fence.note_renewal(110.0)
    assert fence.is_sure()


async def test_rows_are_an_owners_only_while_it_is_surely_a_member() -> None:
    """Restored rows do not suffice: the group may have assigned them to another worker."""
    async with worker_of([0]) as worker:
        app, tp = worker.app, worker.changelog(0)
        app.assignor.is_active = lambda tp: tp in app.assignor.actives
        standing = ReplicaStatus(app, 5.0)
        assert standing.is_owner(tp)
        app.consumer._is_watched = True
        app.consumer.fence.lose()
        assert restored(worker) == [0]
        assert not standing.is_owner(tp)


async def test_in_eager_groups_a_table_is_read_once_its_recovery_is_over() -> None:
    """The table is not readable between the revocation and the end of the recovery."""
    worker = Worker(repaired=True)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: restored(worker) == [0])
        worker.app.tables.on_partitions_revoked({worker.changelog(0)})
        assert restored(worker) == []
