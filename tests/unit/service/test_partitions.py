"""Partitions at work: where an owner begins, and that each partition is worked on by one at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.structs import OffsetAndMetadata

from faust_assigner.service.client import Assigned, Grant, Lost, Release, TopicPartition
from faust_assigner.service.client.partitions import Partitions
from tests.support.assigning.instances import until

AT = TopicPartition("orders", 0)


class Consumer:
    """As much of an aiokafka consumer as is asked of one; ``commit`` is what the group committed."""

    def __init__(self, commit: OffsetAndMetadata | None = None) -> None:
        self.kept = {} if commit is None else {KafkaPartition(*AT): commit}
        self.sought: list[int] = []
        self._coordinator = self

    async def fetch_committed_offsets(
        self, partitions: list[KafkaPartition]
    ) -> dict[KafkaPartition, Any]:
        """What is kept."""
        return self.kept

    async def beginning_offsets(
        self, partitions: list[KafkaPartition]
    ) -> dict[KafkaPartition, int]:
        """All begin at 0."""
        return dict.fromkeys(partitions, 0)

    def assignment(self) -> set[KafkaPartition]:
        """Covered already."""
        return {KafkaPartition(*AT)}

    def seek(self, partition: KafkaPartition, offset: int) -> None:
        """Note it."""
        self.sought.append(offset)

    async def commit(self, offsets: dict[KafkaPartition, OffsetAndMetadata]) -> None:
        """Keep it."""
        self.kept |= offsets

    def __getattr__(self, name: str) -> Any:
        return lambda *partitions: set()


class Work:
    """An app whose records take until :attr:`go`; it notes how many are at hand at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.now = self.most = 0

    async def open(self, grant: Grant) -> int | None:
        """Wherever."""
        return None

    async def process(self, record: Any, grant: Grant) -> None:
        """One record."""
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go.wait()
        self.now -= 1

    async def close(self, partition: TopicPartition) -> None:
        """Nothing to flush."""


class Record:
    """A record at offset 7."""

    offset = 7


class Client:
    """It may always work."""

    def may_work(self, partition: TopicPartition) -> bool:
        """Yes."""
        return True


@pytest.mark.parametrize(
    ("commit", "start"),
    [
        (
            OffsetAndMetadata(90, "epoch=5"),
            90,
        ),  # by this grant, before the process or the session ended
        (
            OffsetAndMetadata(30, "epoch=4"),
            40,
        ),  # by the owner before, which stopped later than it committed
        (OffsetAndMetadata(0, "epoch=5"), 0),  # by this grant, to begin anew
        (OffsetAndMetadata(30, ""), 40),
        (OffsetAndMetadata(-1, "epoch=5"), 40),  # nothing is committed, as the group says it
        (None, 40),
    ],
)
async def test_an_owner_that_comes_back_goes_on_where_it_committed(
    commit: OffsetAndMetadata | None,
    start: int,
) -> None:
    """The same grant is told again with the offset the owner before stopped at: that is long past."""
    consumer = Consumer(commit)
    partitions: Any = Partitions(Client(), consumer, Work())  # type: ignore[arg-type]
    grant = Grant(AT, 5, 40)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    await until(lambda: bool(consumer.sought))
    assert consumer.sought == [start]
    await partitions._stop(partitions._owned[AT])


async def test_a_release_that_is_called_off_in_the_middle_leaves_one_at_work() -> None:
    """The record at hand ends before the partition is begun anew."""
    consumer, work = Consumer(OffsetAndMetadata(7, "epoch=5")), Work()
    partitions: Any = Partitions(Client(), consumer, work)  # type: ignore[arg-type]
    grant = Grant(AT, 5)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    await until(lambda: len(consumer.sought) == 1)
    partitions._owned[AT].take([Record()])
    await until(lambda: work.now == 1)
    releasing = asyncio.create_task(partitions.release(Release(AT, "b", 9, strict=True)))
    await asyncio.sleep(0.01)
    releasing.cancel()
    again = asyncio.create_task(partitions.assigned(Assigned({AT: grant}, (grant,))))
    await asyncio.sleep(0.05)
    assert len(consumer.sought) == 1
    work.go.set()
    await again
    await until(lambda: len(consumer.sought) == 2)
    assert work.most == 1
    await partitions._stop(partitions._owned[AT])


async def test_a_release_flushes_before_it_commits() -> None:
    """A commit before the flush passes over what a crash between the two loses."""
    acts: list[str] = []

    class Flushes(Work):
        async def close(self, partition: TopicPartition) -> None:
            acts.append("flush")

    class Commits(Consumer):
        async def commit(self, offsets: dict[KafkaPartition, OffsetAndMetadata]) -> None:
            acts.append("commit")
            await super().commit(offsets)

    consumer, work = Commits(), Flushes()
    partitions: Any = Partitions(Client(), consumer, work)  # type: ignore[arg-type]
    grant = Grant(AT, 5, 7)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    await until(lambda: consumer.sought == [7])
    work.go.set()
    partitions._owned[AT].take([Record()])
    await until(lambda: work.most == 1 and work.now == 0)
    assert await partitions.release(Release(AT, "b", 9, strict=True)) == 8
    assert acts[-2:] == ["flush", "commit"]


async def test_a_partition_granted_again_during_the_commit_of_its_release_is_kept() -> None:
    """The end of the release removes only the entry that it released."""
    committing, go_on = asyncio.Event(), asyncio.Event()

    class Commits(Consumer):
        async def commit(self, offsets: dict[KafkaPartition, OffsetAndMetadata]) -> None:
            committing.set()
            await go_on.wait()

    work = Work()
    work.go.set()
    partitions: Any = Partitions(Client(), Commits(), work)  # type: ignore[arg-type]
    first, second = Grant(AT, 5, 7), Grant(AT, 6, 7)
    await partitions.assigned(Assigned({AT: first}, (first,)))
    await until(lambda: partitions._owned[AT].next_offset == 7)
    partitions._owned[AT].take([Record()])
    await until(lambda: partitions._owned[AT].next_offset == 8)
    releasing = asyncio.create_task(partitions.release(Release(AT, "b", 9, strict=True)))
    await asyncio.wait_for(committing.wait(), 10)
    await partitions.assigned(Assigned({AT: second}, (second,)))
    go_on.set()
    assert await releasing == 8
    assert partitions._owned[AT].grant == second
    await partitions._stop(partitions._owned[AT])


async def test_a_partition_that_is_lost_is_stopped_before_it_is_dropped() -> None:
    """Else the record at hand writes into what the app has just forgotten."""
    acts: list[str] = []

    class Drops(Work):
        async def process(self, record: Any, grant: Grant) -> None:
            try:
                await super().process(record, grant)
            finally:
                acts.append("stopped")

        async def drop(self, partition: TopicPartition) -> None:
            acts.append("dropped")

    consumer, work = Consumer(), Drops()
    partitions: Any = Partitions(Client(), consumer, work)  # type: ignore[arg-type]
    grant = Grant(AT, 5, 7)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    await until(lambda: consumer.sought == [7])
    partitions._owned[AT].take([Record()])
    await until(lambda: work.now == 1)
    losing = asyncio.create_task(partitions.lost(Lost((AT,))))
    await asyncio.sleep(0.01)
    work.go.set()
    await losing
    assert acts == ["stopped", "dropped"]


class Bare(Consumer):
    """Assigns, pauses and resumes as aiokafka does; every topic has two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: set[KafkaPartition] = set()
        self.assigned: set[KafkaPartition] = set()

    def assignment(self) -> set[KafkaPartition]:
        """As assigned."""
        return self.assigned

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Two."""
        return {0, 1}

    async def topics(self) -> None:
        """Known."""

    async def committed(self, partition: KafkaPartition) -> None:
        """Nothing."""

    def assign(self, partitions: list[KafkaPartition]) -> None:
        """All are fetched, until they are paused."""
        self.assigned = self.fetched = set(partitions)

    def pause(self, *partitions: KafkaPartition) -> None:
        """No more."""
        self.fetched = self.fetched - set(partitions)

    def resume(self, *partitions: KafkaPartition) -> None:
        """Again."""
        self.fetched = self.fetched | set(partitions)


async def test_partitions_are_fetched_that_are_granted_and_no_others() -> None:
    """Those that come along with a topic wait; those at work go on where they are when a topic is added."""
    consumer = Bare()
    partitions: Any = Partitions(Client(), consumer, Work())  # type: ignore[arg-type]
    first, second = Grant(AT, 5, 40), Grant(TopicPartition("audit", 1), 6, 9)
    await partitions.assigned(Assigned({AT: first}, (first,)))
    await until(lambda: consumer.sought == [40])
    assert consumer.assigned == {KafkaPartition("orders", 0), KafkaPartition("orders", 1)}
    assert consumer.fetched == {KafkaPartition(*AT)}
    partitions._owned[AT].fetched = 55
    both = {AT: first, second.partition: second}
    await partitions.assigned(Assigned(both, (second,)))
    await until(lambda: consumer.sought == [40, 55, 9])
    assert consumer.fetched == {KafkaPartition(*AT), KafkaPartition("audit", 1)}
    for running in tuple(partitions._owned.values()):
        await partitions._stop(running)


async def test_a_record_that_was_taken_before_is_not_processed_again() -> None:
    """An answer to a fetch of before a seek may arrive after it: what is behind stays behind."""
    processed: list[int] = []

    class Notes(Work):
        async def process(self, record: Any, grant: Grant) -> None:
            processed.append(record.offset)

    consumer = Consumer()
    partitions: Any = Partitions(Client(), consumer, Notes())  # type: ignore[arg-type]
    grant = Grant(AT, 5, 7)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    owned = partitions._owned[AT]
    owned.take([SimpleNamespace(offset=7)])  # before the start is known: nothing was asked for
    await until(lambda: consumer.sought == [7])
    owned.take([SimpleNamespace(offset=n) for n in (6, 7, 8)])
    owned.take([SimpleNamespace(offset=n) for n in (7, 8, 11)])
    await until(lambda: processed[-1:] == [11])
    assert processed == [7, 8, 11]
    await partitions._stop(owned)


async def test_work_that_fails_while_everything_ends_is_no_fault_beside() -> None:
    """An error that nobody takes any more would be told as a fault of asyncio's."""

    class Fetches(Consumer):
        async def getmany(self, timeout_ms: int) -> dict[KafkaPartition, list[Any]]:
            await asyncio.sleep(0.001)
            return {}

    class FailsLate(Work):
        async def process(self, record: Any, grant: Grant) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                raise RuntimeError("the app's own, as it ends")

    class Serves(Client):
        async def run(self, handlers: Any) -> None:
            grant = Grant(AT, 5, 7)
            await handlers.assigned(Assigned({AT: grant}, (grant,)))
            await until(lambda: consumer.sought == [7])
            handlers._owned[AT].take([Record()])
            await asyncio.sleep(0.01)

    consumer = Fetches()
    partitions: Any = Partitions(Serves(), consumer, FailsLate())  # type: ignore[arg-type]
    await asyncio.wait_for(partitions.run(), 5)
    assert partitions._failed.cancelled()
