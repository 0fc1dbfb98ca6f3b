"""Under exactly_once a cooperative round ends transactions of what goes, begins those of what comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.workers.cooperative import CooperativeWorker, owning
from tests.support.workers.passing_on import PassingOn, cluster  # noqa: F401


class Passing(CooperativeWorker, PassingOn):
    """Passes orders on through cooperative rounds."""

    @property
    def producers(self) -> Mapping[str, Any]:
        """Of the transactions, by transactional id."""
        found: Mapping[str, Any] = self.app.consumer.transactions.producer._transaction_producers
        return found

    def passed(self, partition: int) -> list[tuple[int, int]]:
        """For each committed transaction of it the offset committed, and how many orders it passes on."""
        return [
            (one.offset, sum(sent.topic == "passed-on" for sent in one.sent))
            for one in self.transactions
            if one.partition == partition
        ]


@pytest.mark.usefixtures("cluster")
async def test_a_round_ends_what_goes_and_begins_what_comes() -> None:
    """The producer of what is kept is the same throughout, in a transaction; each order is passed on once."""
    worker = Passing(partitions=2)
    async with owning(worker, [0, 1]):
        worker.delay_s = 0.005
        for partition in (0, 1):
            worker.send_orders(30, partition)
        assert await worker.until(lambda: len(worker.of(0)) > 3 and len(worker.of(1)) > 3)
        kept, gone = (worker.producers[f"virtual-0-{partition}"] for partition in (0, 1))
        await worker.give([0])
        assert worker.producers == {"virtual-0-0": kept}
        assert gone.open is None
        assert kept.open is not None
        assert sum(count for _, count in worker.passed(1)) == len(worker.of(1))
        assert await worker.until(lambda: worker.of(0) == list(range(30)))
        await worker.give([0, 1])
        assert await worker.until(lambda: len(worker.of(1)) == 30)
        assert worker.producers["virtual-0-0"] is kept
        assert worker.producers["virtual-0-1"] is not gone
        await worker.give([])
        assert worker.producers == {}
        for partition in (0, 1):
            assert worker.passed(partition)[-1][0] == 30
            assert sum(count for _, count in worker.passed(partition)) == 30
