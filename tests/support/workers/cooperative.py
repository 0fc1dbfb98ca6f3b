"""The virtual worker with cooperative rounds: the test decides the assignment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from faust.types import TP

from faust_assigner.app.rebalance.consumer_thread import ThreadListener
from tests.support.workers.virtual import Worker, running


class CooperativeWorker(Worker):
    """Repaired, restoring and cooperative; ``give`` is a cooperative round, ``rebalance`` an eager one."""

    def __init__(self, **settings: Any) -> None:
        self.partitions = settings.get("partitions", 1)
        #: Tables beside the counts, and the tables that every worker has completely.
        self.more: list[Any] = []
        self.shared: list[Any] = []
        super().__init__(repaired=True, faust_assigner_cooperative=True, **settings)

    def install_more(self) -> None:
        """Install more classes, as the fixup does."""
        self.declare()

    def declare(self) -> None:
        """Add more tables; none by default."""

    def roles(self, actives: Iterable[int], standbys: Iterable[int]) -> tuple[set[TP], set[TP]]:
        """Return the owned and the followed partitions, as the assignor does."""
        owned, copied = list(actives), list(standbys)
        owns = {tp for p in owned for tp in (self.source(p), self.changelog(p))}
        follows = {self.changelog(p) for p in copied}
        for table in self.more:
            owns |= {log_of(table, p) for p in owned}
            follows |= {log_of(table, p) for p in copied}
        for table in self.shared:
            owns |= {log_of(table, p) for p in range(self.partitions)}
            follows |= {log_of(table, p) for p in range(self.partitions) if p not in owned}
        return owns, follows

    async def give(
        self, actives: Iterable[int], standbys: Iterable[int] = (), *, torn: Iterable[int] = ()
    ) -> None:
        """Run a cooperative round: some partitions are revoked, some gained, the others flow on.

        ``torn`` partitions are kept, but revoked and gained again; never parts of a global table.
        """
        actives_now, standbys_now = self.roles(actives, standbys)
        told = asyncio.run_coroutine_threadsafe(
            self._give(actives_now, standbys_now, self.roles(torn, ())[0] - self.roles((), ())[0]),
            self.consumer.loop,
        )
        await asyncio.wrap_future(told)

    async def _give(self, actives: set[TP], standbys: set[TP], torn: set[TP]) -> None:
        consumer, listener = self.consumer, ThreadListener(self.app.consumer._thread)
        tps = actives | standbys
        revoked = (consumer.positions.keys() - tps) | torn
        gained = (tps - consumer.positions.keys()) | torn
        consumer._coordinator.generation += 1
        listener.round_started()
        if revoked:
            await listener.revoke(revoked)
        for tp in revoked:
            del consumer.positions[tp]
        for tp in gained:
            consumer.positions[tp] = self.logs.committed.get(tp, 0)
        self.app.assignor.actives, self.app.assignor.standbys = actives, standbys
        await listener.assigned(
            tps, revoked, gained, (actives, standbys), consumer._coordinator.generation
        )

    async def rebalance(self, actives: Iterable[int], standbys: Iterable[int] = ()) -> None:
        """Run an eager round."""
        assignor = self.app.assignor
        assignor.actives, assignor.standbys = self.roles(actives, standbys)
        told = asyncio.run_coroutine_threadsafe(
            self.consumer.rebalance(assignor.actives | assignor.standbys), self.consumer.loop
        )
        await asyncio.wrap_future(told)

    @property
    def at_rest(self) -> bool:
        """Whether all assigned partitions have started."""
        recovery = self.app.tables.recovery
        return recovery.is_flowing and not recovery.is_taking_on

    def of(self, partition: int) -> list[int]:
        """Return the processed offsets of a partition, in order, with repeats."""
        return [offset for p, offset in self.processed if p == partition]


def log_of(table: Any, partition: int) -> TP:
    """Return the changelog partition behind a table."""
    return TP(table.changelog_topic.get_topic_name(), partition)


@contextlib.asynccontextmanager
async def owning(worker: CooperativeWorker, actives: Iterable[int]) -> AsyncIterator[None]:
    """Run ``worker`` until it owns ``actives`` and is at rest."""
    async with running(worker):
        await worker.rebalance(actives)
        assert await worker.until(lambda: worker.at_rest)
        yield


@contextlib.asynccontextmanager
async def worker_of(
    actives: list[int], partitions: int = 4, **settings: Any
) -> AsyncIterator[CooperativeWorker]:
    """A worker at rest that owns ``actives``."""
    worker = CooperativeWorker(partitions=partitions, **settings)
    async with owning(worker, actives):
        yield worker
