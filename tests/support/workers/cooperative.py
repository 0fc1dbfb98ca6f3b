"""The virtual worker with cooperative rounds: the test says what is given and what goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from faust_assigner.app.cooperative import install as cooperative
from faust_assigner.app.cooperative.handing_over import ThreadListener
from faust_assigner.app.restore import recovery as restore
from tests.support.workers.virtual import VirtualConsumer, Worker


class CooperativeWorker(Worker):
    """Repaired, restoring and cooperative; ``give`` is a cooperative round, ``rebalance`` an eager one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(repaired=True, faust_assigner_cooperative=True, **settings)

    def install_more(self) -> None:
        """As the fixup does it."""
        restore.install(self.app)
        cooperative.install(self.app)

    def start_rounds(self) -> None:
        """Once the worker runs: the group's part that cooperative rounds ask for."""
        consumer = self.consumer

        async def fetch(tps: Iterable[TP]) -> dict[TP, Any]:
            return {tp: SimpleNamespace(offset=self.logs.committed.get(tp, -1)) for tp in tps}

        consumer._coordinator.fetch_committed_offsets = fetch

    @property
    def consumer(self) -> VirtualConsumer:
        """The virtual client."""
        client: VirtualConsumer = self.app.consumer._thread._consumer
        return client

    async def give(self, actives: Iterable[int], standbys: Iterable[int] = ()) -> None:
        """One answered round: some partitions go, some come, the others flow on."""
        owned, copied = list(actives), list(standbys)
        actives_now = {tp for p in owned for tp in (self.source(p), self.changelog(p))}
        standbys_now = {self.changelog(p) for p in copied}
        told = asyncio.run_coroutine_threadsafe(
            self._give(actives_now, standbys_now), self.consumer.loop)
        await asyncio.wrap_future(told)

    async def _give(self, actives: set[TP], standbys: set[TP]) -> None:
        consumer, listener = self.consumer, ThreadListener(self.app.consumer._thread)
        tps = actives | standbys
        revoked, gained = consumer.positions.keys() - tps, tps - consumer.positions.keys()
        consumer._coordinator.generation += 1
        if revoked:
            await listener.let_go(revoked)
        for tp in revoked:
            del consumer.positions[tp]
        for tp in gained:
            consumer.positions[tp] = self.logs.committed.get(tp, 0)
        self.app.assignor.actives, self.app.assignor.standbys = actives, standbys
        await listener.assigned(tps, revoked, gained, (actives, standbys), consumer._coordinator.generation)

    @property
    def at_rest(self) -> bool:
        """Whether everything given has been taken on."""
        recovery = self.app.tables.recovery
        return recovery.is_flowing and not recovery.is_taking_on

    def of(self, partition: int) -> list[int]:
        """Offsets processed on one partition, in order, repeats included."""
        return [offset for p, offset in self.processed if p == partition]
