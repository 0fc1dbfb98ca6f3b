"""Regrouped streams, joined streams and apps that share a process, through cooperative rounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from faust.types import TP

from tests.support.workers.cooperative import CooperativeWorker, log_of, owning
from tests.support.workers.virtual import running


class Streams(CooperativeWorker):
    """A worker with further source topics; ``topics`` has their names once the app runs."""

    topics: tuple[str, ...] = ()

    def send(self, topic: str, partition: int, values: Iterable[int]) -> None:
        """Append records that are known by their values."""
        for value in values:
            self.logs.append(TP(topic, partition), b"key", str(value).encode())

    def roles(self, actives: Iterable[int], standbys: Iterable[int]) -> tuple[set[TP], set[TP]]:
        """Add the same partitions of all source topics."""
        owned = list(actives)
        owns, follows = super().roles(owned, standbys)
        return owns | {TP(topic, p) for topic in self.topics for p in owned}, follows


class Regrouped(Streams):
    """Send each order on under a key of its own, and take it from the repartition topic."""

    def declare(self) -> None:
        """The records that were taken."""
        self.taken: list[int] = []

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for value in orders.group_by(lambda value: str(value % 2), name="parity"):
            self.taken.append(value)


async def test_what_is_regrouped_comes_once_though_its_source_goes_and_comes_back() -> None:
    """Orders sent on before the revocation are committed; the rest is sent on after the return."""
    worker = Regrouped(partitions=2)
    async with running(worker):
        (again,) = (
            name
            for topic in worker.app.topics
            if (name := topic.get_topic_name()).endswith("-parity-repartition")
        )
        worker.topics = (again,)
        await worker.rebalance([0, 1])
        assert await worker.until(lambda: worker.at_rest)
        worker.send("orders", 1, range(100, 140))
        assert await worker.until(lambda: len(worker.taken) > 5)
        await worker.give([0])
        sent_on = len(worker.logs.records[TP(again, 0)])
        assert worker.logs.committed[worker.source(1)] == sent_on
        worker.send("orders", 0, range(10))
        assert await worker.until(lambda: len(worker.taken) == sent_on + 10)
        await worker.give([0, 1])
        assert await worker.until(lambda: len(worker.taken) == 50)
        assert sorted(worker.taken) == [*range(10), *range(100, 140)]


class Joined(Streams):
    """Add the last click of its partition to each order, from a table that another agent fills."""

    topics = ("clicks",)

    def declare(self) -> None:
        """The joined pairs of order and click. Faust joins streams only by way of a table."""
        self.joined: list[tuple[int, int]] = []
        self.clicked: list[int] = []
        self.last = self.app.Table(
            "last", key_type=str, value_type=int, default=int, partitions=self.partitions
        )
        self.more.append(self.last)
        clicks = self.app.topic("clicks", key_type=str, value_type=int, partitions=self.partitions)
        self.app.agent(clicks)(self.click)

    async def click(self, clicks: Any) -> None:
        """The other agent."""
        async for event in clicks.events():
            self.last[str(event.message.partition)] = event.value
            self.clicked.append(event.value)

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.joined.append((event.value, self.last[str(event.message.partition)]))


async def test_a_join_goes_on_with_what_is_kept_and_with_what_the_last_owner_wrote() -> None:
    """Both topics and the table of a partition move together."""
    worker = Joined(partitions=2)
    async with owning(worker, [0, 1]):
        for partition in (0, 1):
            worker.send("clicks", partition, [partition + 7])
        assert await worker.until(lambda: sorted(worker.clicked) == [7, 8])
        await worker.give([0])
        worker.send("orders", 0, [1])
        worker.send("orders", 1, [2])
        worker.send("clicks", 1, [99])
        assert await worker.until(lambda: worker.joined == [(1, 7)])
        worker.logs.append(log_of(worker.last, 1), b'"1"', b"99")
        worker.logs.committed[TP("clicks", 1)] = 2
        await worker.give([0, 1])
        assert await worker.until(lambda: len(worker.joined) == 2)
        assert (worker.joined, worker.clicked) == ([(1, 7), (2, 99)], [7, 8])


async def test_apps_of_one_process_have_rounds_of_their_own() -> None:
    """A partition revoked from one app flows on in another app with the same topic names."""
    one, other = CooperativeWorker(partitions=2), CooperativeWorker(partitions=2)
    async with running(one), running(other):
        for worker in (one, other):
            await worker.rebalance([0, 1])
            assert await worker.until(lambda worker=worker: worker.at_rest)  # type: ignore[misc]
        await one.give([0])
        for worker in (one, other):
            for partition in (0, 1):
                worker.send_orders(10, partition)
        assert await other.until(lambda: len(other.of(0)) == len(other.of(1)) == 10)
        assert await one.until(lambda: len(one.of(0)) == 10)
        assert one.of(1) == []
        assert other.app.assignor.actives == other.roles([0, 1], [])[0]
