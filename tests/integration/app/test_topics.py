"""Topics that cannot work: the worker ends with one clear error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.exceptions import ImproperlyConfigured, PartitionsMismatch

from faust_assigner.app.membership.topics import refuse_patterns
from faust_assigner.testing.broker import broker_process
from tests.support.clients.topics import create_topics
from tests.support.workers.fleet import Fleet
from tests.support.workers.load import Load
from tests.support.workers.virtual import Worker, running

pytestmark = pytest.mark.timeout(120)


class Uneven(Load):
    """A load whose totals changelog has one partition more than its source."""

    async def _prepare(self, waiting: int) -> None:
        self.partitions += 1
        await self._create(self.app_id, "totals-changelog")
        self.partitions -= 1
        await super()._prepare(waiting)

    async def _create(self, app_id: str, name: str) -> None:
        await create_topics(self.bootstrap, {f"{app_id}-{name}": self.partitions})


@pytest.mark.slow
def test_a_mismatch_of_partitions_ends_every_worker(tmp_path: Path) -> None:
    """Under stock only the worker that first writes to the table ends; the others stay."""
    with broker_process() as broker:
        bootstrap = broker.bootstrap
        fleet = Fleet("uneven", bootstrap, 2, tmp_path, replicas=0)
        load = Uneven(bootstrap, "uneven", 2)
        load.prepare(10)
        try:
            for name in ("worker-1", "worker-2"):
                fleet.start(name)
            for name in ("worker-1", "worker-2"):
                worker = fleet.workers[name]
                assert worker.process.wait(60) not in (0, None)
                log = (worker.folder / "log").read_text()
                assert "uneven-totals-changelog has 3 partitions" in log
                assert "uneven-orders: 2" in log
        finally:
            fleet.stop()


async def test_a_pattern_is_refused_with_the_agents_name() -> None:
    """Stock subscribes to no topic and logs no error."""
    app = faust.App("shop", broker="kafka://127.0.0.1:1", web_enabled=False)

    @app.agent(app.topic(pattern="orders-.*"))
    async def count(orders: Any) -> None:
        """Never called."""

    with pytest.raises(
        ImproperlyConfigured, match=r"count: its topic is the pattern 'orders-\.\*'"
    ):
        refuse_patterns(app.agents.items())


async def test_a_mismatch_seen_at_a_write_ends_the_worker() -> None:
    """If another topic has as many partitions as the changelog, only the write fails."""
    worker = Worker(repaired=True)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        counts = {worker.orders.get_topic_name(): 1}
        worker.app.consumer.topic_partitions = lambda topic: counts.get(topic, 2)
        worker.send_orders(1)
        assert await worker.until(lambda: worker.app.crash_reason is not None)
        assert isinstance(worker.app.crash_reason, PartitionsMismatch)
        await asyncio.sleep(0)
