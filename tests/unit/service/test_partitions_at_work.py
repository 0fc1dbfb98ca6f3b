"""Partitions at work with a fake aiokafka consumer: its calls, the commits, the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, KafkaTimeoutError

from faust_assigner.service.client import (
    AbortWarm,
    Assigned,
    Grant,
    Lost,
    Release,
    Standbys,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client.partitions import Partitions
from tests.support.assigning.consumers import virtually

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def kafka(partition: TopicPartition) -> KafkaPartition:
    """Convert to aiokafka's partition."""
    return KafkaPartition(*partition)


def record(partition: TopicPartition, offset: int) -> Any:
    """A record at this offset."""
    return SimpleNamespace(topic=partition.topic, partition=partition.partition, offset=offset)


class Stage:
    """A consumer, an app and a client that record each call; ``fetched`` are the next records."""

    def __init__(self, *, queued: int = 500) -> None:
        self.acts: list[tuple[Any, ...]] = []
        self.times: list[tuple[float, int]] = []
        self.stored: dict[KafkaPartition, Any] = {}
        self.known: set[KafkaPartition] = set()
        self.held: set[KafkaPartition] = set()
        self.unplaced: set[KafkaPartition] = set()  # assigned, without a position
        self.fetched: list[dict[TopicPartition, list[Any]]] = []
        self.starts: dict[TopicPartition, int] = {}
        self.process_s = 0.0
        self.may = True
        self.error: BaseException | None = None
        self.commit_error: Exception | None = None
        self._coordinator = self._client = self
        this: Any = self
        self.partitions = Partitions(this, this, this, queued=queued)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - 1_000.0

    # -- the consumer

    def assignment(self) -> set[KafkaPartition]:
        """The assigned partitions."""
        return set(self.known)

    def paused(self) -> set[KafkaPartition]:
        """The paused partitions."""
        return set(self.held)

    async def fetch_all_metadata(self) -> Stage:
        """Return the cluster."""
        return self

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return two partitions of "t"; "u" is unknown."""
        return {0, 1} if topic == "t" else None

    def assign(self, partitions: list[KafkaPartition]) -> None:
        """Assign and resume these."""
        self.acts.append(("assign", *(tuple(one) for one in partitions)))
        self.known, self.held, self.unplaced = set(partitions), set(), set(partitions)

    def pause(self, *partitions: KafkaPartition) -> None:
        """Pause these partitions."""
        self.acts.append(("pause", *sorted(tuple(one) for one in partitions)))
        self.held |= set(partitions)

    def resume(self, *partitions: KafkaPartition) -> None:
        """Resume these partitions."""
        self.acts.append(("resume", *sorted(tuple(one) for one in partitions)))
        self.held -= set(partitions)

    def seek(self, partition: KafkaPartition, offset: int) -> None:
        """Record the offset, except the first one of an assigned partition."""
        if partition in self.unplaced:
            assert offset == 0
            self.unplaced.remove(partition)
        else:
            self.acts.append(("seek", tuple(partition), offset))

    async def committed(self, partition: KafkaPartition) -> int | None:
        """Record the call."""
        self.acts.append(("committed", tuple(partition)))
        return None

    async def beginning_offsets(
        self, partitions: list[KafkaPartition]
    ) -> dict[KafkaPartition, int]:
        """Each log begins at 3."""
        return dict.fromkeys(partitions, 3)

    async def fetch_committed_offsets(self, partitions: Any) -> dict[KafkaPartition, Any]:
        """Return the stored commits."""
        return {one: self.stored[one] for one in partitions if one in self.stored}

    async def commit(self, offsets: dict[KafkaPartition, Any]) -> None:
        """Store, or fail."""
        [(partition, said)] = offsets.items()
        self.acts.append(("commit", tuple(partition), said.offset, said.metadata))
        self.times.append((self.now, said.offset))
        if self.commit_error is not None:
            raise self.commit_error

    async def getmany(self, *, timeout_ms: int) -> dict[KafkaPartition, list[Any]]:
        """Return the next records after a delay."""
        assert timeout_ms == 100
        await asyncio.sleep(0.125)  # exact in binary, as the virtual clock needs it
        found = self.fetched.pop(0) if self.fetched else {}
        return {kafka(partition): records for partition, records in found.items()}

    # -- the client

    def may_work(self, partition: TopicPartition) -> bool:
        """Whether the session lives."""
        return self.may

    async def progress(self, command: Warm, done: float) -> None:
        """Record the call."""
        self.acts.append(("progress", command.handoff_id, done))

    async def run(self, handlers: Any) -> None:
        """Serve for an hour."""
        assert handlers is self.partitions
        await asyncio.sleep(3_600.0)

    # -- the app

    async def warm(self, partition: TopicPartition, progress: Callable[[float], Any]) -> None:
        """Report a progress of one half."""
        self.acts.append(("warm", partition))
        await progress(0.5)

    async def open(self, grant: Grant) -> int | None:
        """Return the app's start offset, if any."""
        self.acts.append(("open", grant.partition, grant.epoch))
        return self.starts.get(grant.partition)

    async def process(self, record: Any, grant: Grant) -> None:
        """Process for some seconds."""
        if self.error is not None:
            raise self.error
        self.acts.append(("process", grant.partition, record.offset, grant.epoch))
        await asyncio.sleep(self.process_s)

    async def close(self, partition: TopicPartition) -> None:
        """Record the flush."""
        self.acts.append(("close", partition))

    async def drop(self, partition: TopicPartition) -> None:
        """Record the drop."""
        self.acts.append(("drop", partition))

    async def grant(self, *grants: Grant, removed: tuple[TopicPartition, ...] = ()) -> None:
        """Grant partitions, like the service."""
        await self.partitions.assigned(Assigned({g.partition: g for g in grants}, grants, removed))

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        """The acts of these kinds."""
        return [act for act in self.acts if act[0] in kinds]


def staged(story: Callable[[Stage], Awaitable[None]], **options: Any) -> None:
    """Run a scenario while the partitions are served."""

    async def whole() -> None:
        stage = Stage(**options)
        running = asyncio.create_task(stage.partitions.run())
        await asyncio.sleep(0)
        await story(stage)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.sleep(0.0625)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtually(whole)


def test_a_first_grant_assigns_the_whole_topic_paused_and_resumes_its_partition() -> None:
    """A second partition of the topic needs no assignment; a new topic keeps running positions."""

    async def story(s: Stage) -> None:
        s.starts = {T0: 40, U0: 0}
        await s.grant(Grant(T0, 5))
        await asyncio.sleep(0.0625)
        assert s.acts == [
            ("committed", tuple(T0)),
            ("assign", tuple(T0), tuple(T1)),
            ("pause", tuple(T0), tuple(T1)),
            ("open", T0, 5),
            ("seek", tuple(T0), 40),
            ("resume", tuple(T0)),
        ]
        s.acts.clear()
        await s.grant(Grant(T1, 6))
        await asyncio.sleep(0.0625)
        assert s.acts == [("open", T1, 6), ("seek", tuple(T1), 3), ("resume", tuple(T1))]
        s.fetched = [{T0: [record(T0, 40), record(T0, 41)]}]
        await asyncio.sleep(0.5)
        s.acts.clear()
        await s.grant(Grant(U0, 7))
        await asyncio.sleep(0.0625)
        assert s.acts == [
            ("committed", tuple(U0)),
            ("assign", tuple(T0), tuple(T1), tuple(U0)),
            ("pause", tuple(T0), tuple(T1), tuple(U0)),
            ("seek", tuple(T0), 42),
            ("resume", tuple(T0)),
            ("seek", tuple(T1), 3),
            ("resume", tuple(T1)),
            ("open", U0, 7),
            ("seek", tuple(U0), 0),
            ("resume", tuple(U0)),
        ]

    staged(story)


@pytest.mark.parametrize(
    ("metadata", "offset", "start_offset", "begins"),
    [
        ("epoch=5", 30, 40, 30),
        ("epoch=4", 30, 40, 40),
        ("epoch=4", 30, None, 30),
        ("", 30, 0, 0),
        (None, 30, None, 30),
        ("epoch=5", -1, None, 3),
        ("epoch=5", -1, 9, 9),
    ],
)
def test_a_partition_begins_at_its_own_commit_then_at_its_grant_then_at_the_groups_commit(
    metadata: str | None, offset: int, start_offset: int | None, begins: int
) -> None:
    """Without any of these, the partition starts at the beginning of the log."""

    async def story(s: Stage) -> None:
        s.stored[kafka(T0)] = SimpleNamespace(offset=offset, metadata=metadata)
        await s.grant(Grant(T0, 5, start_offset))
        await asyncio.sleep(0.0625)
        assert s.of("seek") == [("seek", tuple(T0), begins)]

    staged(story)


@pytest.mark.parametrize("is_released", [True, False])
def test_a_later_commit_ends_all_work_only_if_this_consumer_keeps_the_partition(
    is_released: bool,
) -> None:
    """Without strict mode the next owner commits while this consumer still opens the partition."""

    async def story(s: Stage) -> None:
        opened = asyncio.Event()

        async def open_slowly(grant: Grant) -> None:
            await opened.wait()

        s.open = open_slowly  # type: ignore[method-assign]
        await s.grant(Grant(T0, 5))
        await asyncio.sleep(1.0)
        s.stored[kafka(T0)] = SimpleNamespace(offset=30, metadata="epoch=6")
        releasing = asyncio.create_task(s.partitions.release(Release(T0, "b", 9)))
        if not is_released:
            releasing.cancel()
        await asyncio.sleep(1.0)
        opened.set()
        await asyncio.gather(releasing, return_exceptions=True)
        await asyncio.sleep(1.0)
        failed = s.partitions._failed
        assert failed is not None
        assert s.of("commit", "seek") == []
        if is_released:
            assert not failed.done()
            assert releasing.result() is None
        else:
            assert isinstance(failed.exception(), RuntimeError)

    staged(story)


@pytest.mark.parametrize(
    "call", ["fetch_all_metadata", "fetch_committed_offsets", "beginning_offsets"]
)
@pytest.mark.parametrize("error", [KafkaError("no broker"), KafkaTimeoutError("no leader"), None])
def test_a_kafka_that_does_not_answer_a_grant_is_asked_again(
    call: str, error: Exception | None
) -> None:
    """Earlier, the work on all partitions of the consumer ended; ``open`` is called once."""

    async def story(s: Stage) -> None:
        answers = getattr(s, call)

        async def silent(*asked: Any) -> Any:
            if error is None:
                await asyncio.sleep(3_600.0)  # aiokafka waits for a coordinator without end
            raise error or AssertionError

        setattr(s, call, silent)
        await s.grant(Grant(T0, 5))
        await asyncio.sleep(14.0)
        assert s.of("seek") == []
        setattr(s, call, answers)
        await asyncio.sleep(2.0)
        assert s.of("open", "seek") == [("open", T0, 5), ("seek", tuple(T0), 3)]

    staged(story)


def test_a_partition_is_released_although_kafka_does_not_answer_its_grant() -> None:
    """The next question is not waited for, and no offset is reported."""

    async def story(s: Stage) -> None:
        async def silent(*asked: Any) -> Any:
            raise KafkaError("no broker")

        s.beginning_offsets = silent  # type: ignore[method-assign]
        await s.grant(Grant(T0, 5))
        await asyncio.sleep(1.0)
        assert await asyncio.wait_for(s.partitions.release(Release(T0, "b", 9)), 1.0) is None
        failed = s.partitions._failed
        assert failed is not None
        assert not failed.done()

    staged(story)


def test_a_partition_is_released_in_time_although_kafka_does_not_answer_its_commit() -> None:
    """Earlier, the service expelled the consumer after 60 s. The service gets the offset in any case."""

    async def story(s: Stage) -> None:
        async def silent(offsets: Any) -> None:
            await asyncio.sleep(3_600.0)

        await s.grant(Grant(T0, 5))
        await asyncio.sleep(0.0625)
        s.commit = silent  # type: ignore[method-assign]
        s.fetched = [{T0: [record(T0, 3)]}]
        await asyncio.sleep(3.0)  # the worker's own commit waits
        began = s.now
        assert await s.partitions.release(Release(T0, "b", 9, strict=True)) == 4
        assert s.now < began + 30.0
        assert s.of("close") == [("close", T0)]

    staged(story)


def test_a_kafka_that_refuses_a_grant_ends_all_work() -> None:
    """A repetition does not help a consumer without the right to read."""

    async def story(s: Stage) -> None:
        async def refuses(*asked: Any) -> Any:
            raise GroupAuthorizationFailedError("shop")

        s.fetch_committed_offsets = refuses  # type: ignore[method-assign]
        await s.grant(Grant(T0, 5))
        await asyncio.sleep(1.0)
        failed = s.partitions._failed
        assert failed is not None
        assert isinstance(failed.exception(), GroupAuthorizationFailedError)

    staged(story)


def test_records_are_processed_in_order_and_committed_with_the_epoch_every_two_seconds() -> None:
    """Old records and foreign partitions' records are skipped; an unchanged offset is not committed."""

    async def story(s: Stage) -> None:
        s.starts = {T0: 40}
        await s.grant(Grant(T0, 5))
        await asyncio.sleep(0.0625)
        s.fetched = [
            {T0: [record(T0, 39), record(T0, 40), record(T0, 42)], T1: [record(T1, 9)]},
            {T0: [record(T0, 42), record(T0, 43)]},
        ]
        await asyncio.sleep(9.0)
        assert s.of("process") == [("process", T0, n, 5) for n in (40, 42, 43)]
        assert s.of("commit") == [("commit", tuple(T0), 44, "epoch=5")]
        assert s.times[-1][0] == pytest.approx(2.0, abs=0.2)

    staged(story)


def test_a_failed_commit_is_repeated_and_none_is_made_without_the_right_to_work() -> None:
    """Records after the end of the session are not processed either."""

    async def story(s: Stage) -> None:
        s.starts = {T0: 40}
        await s.grant(Grant(T0, 5))
        await asyncio.sleep(0.0625)
        s.commit_error = KafkaError("no")
        s.fetched = [{T0: [record(T0, 40)]}]
        await asyncio.sleep(5.0)
        assert [offset for _, offset in s.times] == [41, 41]
        s.commit_error = None
        await asyncio.sleep(5.0)
        assert [offset for _, offset in s.times] == [41, 41, 41]
        s.may = False
        s.fetched = [{T0: [record(T0, 41)]}]
        await asyncio.sleep(5.0)
        assert len(s.of("process")) == 1
        assert await s.partitions.release(Release(T0, "b", 9)) == 41
        assert len(s.times) == 3

    staged(story)


def test_a_release_stops_flushes_and_commits_and_returns_the_next_offset() -> None:
    """The running record ends first; queued records are left to the next owner."""

    async def story(s: Stage) -> None:
        s.starts, s.process_s = {T0: 40}, 1.5
        await s.grant(Grant(T0, 5), Grant(T1, 6))
        await asyncio.sleep(0.0625)
        s.fetched = [{T0: [record(T0, n) for n in (40, 41, 42)]}]
        await asyncio.sleep(0.5)
        s.acts.clear()
        assert await s.partitions.release(Release(T0, "b", 9)) == 41
        assert s.acts == [("pause", tuple(T0)), ("close", T0), ("commit", tuple(T0), 41, "epoch=5")]
        s.acts.clear()
        assert await s.partitions.release(Release(T0, "b", 9)) is None
        assert await s.partitions.release(Release(T1, "b", 9)) == 3
        await s.partitions.standbys(Standbys((T0,)))
        assert [act[0] for act in s.acts] == ["pause", "close", "commit"]

    staged(story)


def test_lost_and_removed_partitions_are_dropped_without_a_commit() -> None:
    """A removed partition that is granted again starts anew; an unknown one is ignored."""

    async def story(s: Stage) -> None:
        await s.grant(Grant(T0, 5), Grant(T1, 6))
        await asyncio.sleep(0.0625)
        s.fetched = [{T0: [record(T0, 3)], T1: [record(T1, 3)]}]
        await asyncio.sleep(0.5)
        s.acts.clear()
        await s.grant(Grant(T0, 8), removed=(T0, U0))
        await asyncio.sleep(0.0625)
        assert s.acts == [
            ("pause", tuple(T0)),
            ("drop", T0),
            ("open", T0, 8),
            ("seek", tuple(T0), 3),
            ("resume", tuple(T0)),
        ]
        s.acts.clear()
        await s.partitions.lost(Lost((T1, U0, T0)))
        assert s.acts == [("pause", tuple(T1)), ("drop", T1), ("pause", tuple(T0)), ("drop", T0)]
        s.fetched = [{T0: [record(T0, 4)]}]
        await asyncio.sleep(0.5)
        assert len(s.acts) == 4

    staged(story)


def test_a_warm_up_reports_its_progress_and_an_abort_drops_what_is_not_owned() -> None:
    """The progress has the id of its hand-off."""

    async def story(s: Stage) -> None:
        await s.grant(Grant(T0, 5))
        await asyncio.sleep(0.0625)
        s.acts.clear()
        await s.partitions.warm(Warm(T1, "b", 4))
        await s.partitions.abort(AbortWarm(T0, 4))
        await s.partitions.abort(AbortWarm(T1, 4))
        assert s.acts == [("warm", T1), ("progress", 4, 0.5), ("drop", T1)]

    staged(story)


def test_a_partition_with_a_full_queue_is_paused_until_there_is_room() -> None:
    """The limit is exact, and a paused partition is not paused again."""

    async def story(s: Stage) -> None:
        s.process_s = 10.0
        await s.grant(Grant(T0, 5), Grant(T1, 6))
        await asyncio.sleep(0.0625)
        s.fetched = [{T0: [record(T0, 3)]}, {T0: [record(T0, 4)]}, {T0: [record(T0, 5)]}]
        await asyncio.sleep(0.25)
        s.acts.clear()
        await asyncio.sleep(5.0)
        assert s.of("pause", "resume") == [("pause", tuple(T0))]
        s.acts.clear()
        await asyncio.sleep(6.0)
        assert s.of("pause", "resume") == [("resume", tuple(T0))]

    staged(story, queued=2)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ValueError("bad record"), pytest.raises(ValueError, match="bad record")),
        # The app awaits a task that it has cancelled: the partition stood still without a log line.
        (asyncio.CancelledError(), pytest.raises(RuntimeError, match="the app's own code")),
    ],
)
def test_an_error_of_the_app_ends_all_work(
    error: BaseException, raised: pytest.RaisesExc[Exception]
) -> None:
    """The app's error is raised, as no record may be skipped."""

    async def story() -> None:
        stage = Stage()
        running = asyncio.create_task(stage.partitions.run())
        await asyncio.sleep(0)
        await stage.grant(Grant(T0, 5), Grant(T1, 5))
        await asyncio.sleep(0.0625)
        stage.error = error
        stage.fetched = [{T0: [record(T0, 3)], T1: [record(T1, 3)]}]
        with raised:
            await asyncio.wait_for(running, 5.0)
        await asyncio.sleep(0.0625)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtually(story)
