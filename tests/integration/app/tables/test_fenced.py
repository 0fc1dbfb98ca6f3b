"""Windows being closed under ``exactly_once`` while their transaction or callback ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.app.tables.test_windows import QUICK, Windows
from tests.integration.app.tables.test_windows import store as store
from tests.support.workers.passing_on import PassingOn, VirtualAIOProducer
from tests.support.workers.passing_on import cluster as cluster
from tests.support.workers.virtual import running

pytestmark = [pytest.mark.timeout(150), pytest.mark.usefixtures("cluster")]


class Closes(Windows, PassingOn):
    """Send each closed window once ``may_send`` is set."""

    async def close(self, key: Any, value: int | None) -> None:
        """The app's callback."""
        self.closing_now.set()
        await self.may_send.wait()
        await self.passed_on.send(key=key[0], value=value)
        self.closed.append((key[0], key[1][0], value))

    async def begin(self) -> None:
        """Prepare the events of the callback."""
        self.closing_now, self.may_send = asyncio.Event(), asyncio.Event()
        self.app._create_directories()

    async def old_window(self) -> None:
        """Move the time past the first window."""
        await self.at(1000)
        await self.at(1030)
        assert await self.until(self.closing_now.is_set)


async def test_a_fence_met_while_a_window_is_closed_ends_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The app's send fails, the window stays open, and the worker joins the group again."""
    worker = Closes(partitions=1, store="memory://", **QUICK)
    await worker.begin()
    async with running(worker):
        await worker.rebalance([0])
        lost = asyncio.Event()
        monkeypatch.setattr(worker.app.consumer, "lose_membership", lost.set)
        await worker.old_window()
        producer: VirtualAIOProducer
        for producer in worker.app.producer._transaction_producers.values():
            producer.fenced = True
        worker.may_send.set()
        assert await worker.until(lost.is_set)
        await asyncio.sleep(0.3)
        assert worker.app._crash_reason is None
        assert not worker.closed
        assert worker.closing.windows.first(0) is not None, "the window stays open"


async def test_a_window_whose_partition_goes_while_it_is_closed_ends_no_worker() -> None:
    """The worker does not wait for the callback, whose send falls into an aborted transaction."""
    worker = Closes(partitions=1, store="memory://", stream_wait_empty=False, **QUICK)
    await worker.begin()
    async with running(worker):
        await worker.rebalance([0])
        await worker.old_window()
        await worker.rebalance([])
        worker.may_send.set()
        await asyncio.sleep(0.3)
        assert (worker.app._crash_reason, worker.closed) == (None, [])


class Ends(Windows, PassingOn):
    """Send each closed window; then the callback ends as ``end`` does."""

    async def close(self, key: Any, value: int | None) -> None:
        """The app's callback."""
        await self.passed_on.send(key=key[0], value=value)
        self.closed.append((key[0], key[1][0], value))
        await self.end()

    async def end(self) -> None:
        """Raise while a commit waits for the callback."""
        await asyncio.sleep(0.3)
        raise RuntimeError("of the app")

    def committed(self) -> list[str]:
        """Return the topic of each committed record."""
        return [sent.topic for done in self.transactions for sent in done.sent]

    async def close_one(self, *, crashes: bool) -> None:
        """Run until a callback has sent, or the worker has crashed, and a little longer; then stop."""
        self.app._create_directories()
        async with running(self):
            await self.rebalance([0])
            await self.at(1000)
            await self.at(1030)
            assert await self.until(lambda: bool(self.closed))
            assert await self.until(lambda: bool(self.app._crash_reason) == crashes)
            await asyncio.sleep(0.5)


async def test_what_a_callback_sent_before_it_raised_is_not_committed(store: str) -> None:
    """The row is not deleted, so the window closes again; the output would be there twice."""
    worker = Ends(partitions=1, store=store, **QUICK)
    await worker.close_one(crashes=True)
    assert str(worker.app._crash_reason) == "of the app"
    assert worker.committed() == ["virtual-recent-changelog"] * 2, "the rows of two records"


@pytest.mark.slow
async def test_what_a_callback_sent_before_it_was_cancelled_is_not_committed(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that does not wait for its streams stops meanwhile."""
    worker = Ends(partitions=1, store=store, stream_wait_empty=False, **QUICK)
    monkeypatch.setattr(worker, "end", asyncio.Event().wait)
    await worker.close_one(crashes=False)
    assert worker.committed() == ["virtual-recent-changelog"] * 2, "the rows of two records"
