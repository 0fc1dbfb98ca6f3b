"""Partitions at work: an owner's start offset, and one worker at a time per partition."""

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
from tests.support.waiting import PATIENCE_S

AT = TopicPartition("orders", 0)


class Consumer:
    """A minimal aiokafka consumer; ``commit`` is the group's commit."""

    def __init__(self, commit: OffsetAndMetadata | None = None) -> None:
        self.kept = {} if commit is None else {KafkaPartition(*AT): commit}
        self.sought: list[int] = []
        self._coordinator = self._client = self

    async def fetch_committed_offsets(
        self, partitions: list[KafkaPartition]
    ) -> dict[KafkaPartition, Any]:
        """Return the stored commits."""
        return self.kept

    async def beginning_offsets(
        self, partitions: list[KafkaPartition]
    ) -> dict[KafkaPartition, int]:
        """All logs begin at 0."""
        return dict.fromkeys(partitions, 0)

    def assignment(self) -> set[KafkaPartition]:
        """All partitions are assigned already."""
        return {KafkaPartition(*AT)}

    def seek(self, partition: KafkaPartition, offset: int) -> None:
        """Record the offset."""
        self.sought.append(offset)

    async def commit(self, offsets: dict[KafkaPartition, OffsetAndMetadata]) -> None:
        """Store the offsets."""
        self.kept |= offsets

    def __getattr__(self, name: str) -> Any:
        return lambda *partitions: set()


class Work:
    """An app whose records wait for :attr:`go`; it records how many run at the same time."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.now = self.most = 0

    async def open(self, grant: Grant) -> int | None:
        """Name no offset."""
        return None

    async def process(self, record: Any, grant: Grant) -> None:
        """Process a record."""
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go.wait()
        self.now -= 1

    async def close(self, partition: TopicPartition) -> None:
        """Do nothing."""


class Record:
    """A record at offset 7."""

    offset = 7


class Client:
    """A client with a permanent right to work."""

    def may_work(self, partition: TopicPartition) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize(
    ("commit", "start"),
    [
        (
            OffsetAndMetadata(90, "epoch=5"),
            90,
        ),  # by this grant, before its process or session ended
        (
            OffsetAndMetadata(30, "epoch=4"),
            40,
        ),  # by the previous owner, which stopped after its commit
        (OffsetAndMetadata(0, "epoch=5"), 0),  # by this grant, from the beginning
        (OffsetAndMetadata(30, ""), 40),
        (OffsetAndMetadata(-1, "epoch=5"), 40),  # the group has no commit
        (None, 40),
    ],
)
async def test_an_owner_that_comes_back_goes_on_where_it_committed(
    commit: OffsetAndMetadata | None, start: int
) -> None:
    """The repeated grant still has the previous owner's end as its start offset."""
    consumer = Consumer(commit)
    partitions: Any = Partitions(Client(), consumer, Work())  # type: ignore[arg-type]
    grant = Grant(AT, 5, 40)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    await until(lambda: bool(consumer.sought))
    assert consumer.sought == [start]
    await partitions._stop(partitions._owned[AT])


async def test_a_release_that_is_called_off_in_the_middle_leaves_one_at_work() -> None:
    """The running record ends before the partition starts again."""
    consumer, work = Consumer(OffsetAndMetadata(7, "epoch=5")), Work()
    partitions: Any = Partitions(Client(), consumer, work)  # type: ignore[arg-type]
    grant = Grant(AT, 5)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    await until(lambda: len(consumer.sought) == 1)
    partitions._owned[AT].enqueue([Record()])
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
    """A crash between a commit and a later flush would lose records."""
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
    partitions._owned[AT].enqueue([Record()])
    await until(lambda: work.most == 1 and work.now == 0)
    assert await partitions.release(Release(AT, "b", 9, strict=True)) == 8
    assert acts[-2:] == ["flush", "commit"]


async def test_a_partition_granted_again_during_the_commit_of_its_release_is_kept() -> None:
    """The release removes only its own entry."""
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
    partitions._owned[AT].enqueue([Record()])
    await until(lambda: partitions._owned[AT].next_offset == 8)
    releasing = asyncio.create_task(partitions.release(Release(AT, "b", 9, strict=True)))
    await asyncio.wait_for(committing.wait(), PATIENCE_S)
    await partitions.assigned(Assigned({AT: second}, (second,)))
    go_on.set()
    assert await releasing == 8
    assert partitions._owned[AT].grant == second
    await partitions._stop(partitions._owned[AT])


async def test_a_partition_that_is_lost_is_stopped_before_it_is_dropped() -> None:
    """Otherwise the running record would write into dropped state."""
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
    partitions._owned[AT].enqueue([Record()])
    await until(lambda: work.now == 1)
    losing = asyncio.create_task(partitions.lost(Lost((AT,))))
    await asyncio.sleep(0.01)
    work.go.set()
    await losing
    assert acts == ["stopped", "dropped"]


class Bare(Consumer):
    """Assigns, pauses and resumes like aiokafka; every topic has two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: set[KafkaPartition] = set()
        self.assigned: set[KafkaPartition] = set()
        self.unplaced: set[KafkaPartition] = set()

    def assignment(self) -> set[KafkaPartition]:
        """Return the assigned partitions."""
        return self.assigned

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return two partitions."""
        return {0, 1}

    async def fetch_all_metadata(self) -> Bare:
        """Return the cluster."""
        return self

    async def committed(self, partition: KafkaPartition) -> None:
        """Return no commit."""

    def assign(self, partitions: list[KafkaPartition]) -> None:
        """Assign and resume these."""
        self.assigned = self.fetched = set(partitions)
        self.unplaced = set(partitions)

    def seek(self, partition: KafkaPartition, offset: int) -> None:
        """Record the offset, except the first one of an assigned partition."""
        if partition in self.unplaced:
            self.unplaced.remove(partition)
        else:
            super().seek(partition, offset)

    def pause(self, *partitions: KafkaPartition) -> None:
        """Pause these."""
        self.fetched = self.fetched - set(partitions)

    def resume(self, *partitions: KafkaPartition) -> None:
        """Resume these."""
        self.fetched = self.fetched | set(partitions)


async def test_partitions_are_fetched_that_are_granted_and_no_others() -> None:
    """Other partitions of an assigned topic are paused; a new topic does not move running ones."""
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
    """The answer to a fetch before a seek may arrive after it."""
    processed: list[int] = []

    class Notes(Work):
        async def process(self, record: Any, grant: Grant) -> None:
            processed.append(record.offset)

    consumer = Consumer()
    partitions: Any = Partitions(Client(), consumer, Notes())  # type: ignore[arg-type]
    grant = Grant(AT, 5, 7)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    owned = partitions._owned[AT]
    owned.enqueue([SimpleNamespace(offset=7)])  # the start is not yet known, so no fetch was sent
    await until(lambda: consumer.sought == [7])
    owned.enqueue([SimpleNamespace(offset=n) for n in (6, 7, 8)])
    owned.enqueue([SimpleNamespace(offset=n) for n in (7, 8, 11)])
    await until(lambda: processed[-1:] == [11])
    assert processed == [7, 8, 11]
    await partitions._stop(owned)


async def test_a_log_that_ends_before_the_next_offset_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Earlier, the partition of a topic that was created again stood still without a log line."""
    consumer = Consumer()
    partitions: Any = Partitions(Client(), consumer, Work())  # type: ignore[arg-type]
    grant = Grant(AT, 5, 7)
    await partitions.assigned(Assigned({AT: grant}, (grant,)))
    owned = partitions._owned[AT]
    await until(lambda: consumer.sought == [7])
    for offsets in ((), (6, 7), (0, 1), (2,), (), (3,)):
        owned.enqueue([SimpleNamespace(offset=n) for n in offsets])
    assert caplog.text.count("skips records up to offset") == 1
    assert "skips records up to offset 1, because the next offset to process is 8" in caplog.text
    owned.task.cancel()
    await asyncio.wait([owned.task])


async def test_work_that_fails_while_everything_ends_is_no_fault_beside() -> None:
    """Otherwise asyncio would log an exception that was never retrieved."""

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
            handlers._owned[AT].enqueue([Record()])
            await asyncio.sleep(0.01)

    consumer = Fetches()
    partitions: Any = Partitions(Serves(), consumer, FailsLate())  # type: ignore[arg-type]
    await asyncio.wait_for(partitions.run(), PATIENCE_S)
    assert partitions._failed.cancelled()
