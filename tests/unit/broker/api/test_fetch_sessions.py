"""Fetch sessions of a consumer, request by request (KIP-227), and long polls for enough bytes."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.broker.api import fetch_sessions
from faust_assigner.broker.connection import Connection
from faust_assigner.broker.fetch_session import LAST_EPOCH, FetchSession
from faust_assigner.broker.storage.records import parse_batch
from tests.support.asking import ask, read, to_topic, wanting
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, frames, in_hall

PRODUCE, FETCH = 0, 1
NOT_FOUND, INVALID_EPOCH, OTHER_KIND, UNSUPPORTED_COMPRESSION = 70, 71, 106, 76
ZSTD = 4
AT_ONCE, LATER = datetime.timedelta(0), datetime.timedelta(seconds=20)
Seen = list[tuple[int, bool]]


class Consumer:
    """A peer that fetches from "t" repeatedly."""

    def __init__(self, hall: Hall) -> None:
        self.peer, self.wire = hall.connect("consumer")
        self.session = 0

    async def fetch(self, epoch: int, parts: int = 0, version: int = 11, **more: Any) -> Any:
        """Fetch in the consumer's session; with 0 partitions the request names no partition."""
        values = {
            "max_wait": AT_ONCE,
            "max_bytes": 10_000,
            "min_bytes": 1,
            "session_id": self.session,
            "session_epoch": epoch,
            "topics": wanting(parts) if parts else [],
            **more,
        }
        mine = self.wire.written = []
        self.peer.data_received(next(frames(FETCH, 1, version, **values)))
        while not mine:
            await asyncio.sleep(0)
        answer = read(FETCH, version, b"".join(data for _, data in mine))
        self.session = answer.session_id or self.session
        return answer


def seen(answer: Any) -> Seen:
    """Return (partition, whether the partition has records) of an answer."""
    return [(p.partition_index, bool(p.records)) for t in answer.responses for p in t.partitions]


async def with_partitions(hall: Hall, count: int) -> Consumer:
    """Create a topic without records and return a consumer."""
    hall.node.catalogue.create("t", count, {})
    return Consumer(hall)


async def produce(hall: Hall, partition: int) -> None:
    """Append a record."""
    await ask(hall, PRODUCE, 9, **to_topic(batch(), partition=partition))


def test_a_session_names_every_partition_first_and_only_news_later() -> None:
    """The first answer also has empty partitions; a forgotten partition is not returned again."""

    async def story(hall: Hall) -> list[Seen]:
        consumer = await with_partitions(hall, 2)
        found = [seen(await consumer.fetch(0, 2)), seen(await consumer.fetch(1))]
        await produce(hall, 1)
        found.append(seen(await consumer.fetch(2)))
        forgotten = [{"topic": "t", "partitions": [1]}]
        found.append(seen(await consumer.fetch(3, forgotten_topics_data=forgotten)))
        return found

    assert in_hall(story) == [[(0, False), (1, False)], [], [(1, True)], []]


def test_a_partition_with_records_goes_behind_the_others() -> None:
    """Otherwise a busy first partition would use up the bytes of each answer."""

    async def story(hall: Hall) -> list[Seen]:
        consumer = await with_partitions(hall, 2)
        await consumer.fetch(0, 2)
        for number in range(2):
            await produce(hall, number)
        return [seen(await consumer.fetch(epoch, max_bytes=1)) for epoch in (1, 2, 3)]

    first, second, third = in_hall(story)
    assert (0, True) in first
    assert (1, True) in second
    assert (0, True) in third


@pytest.mark.parametrize("way", ["final epoch", "nothing left", "another session"])
def test_a_session_that_has_ended_is_not_found(way: str) -> None:
    """The consumer ends its session, forgets its last partition, or begins a new session."""

    async def story(hall: Hall) -> tuple[int, int]:
        consumer = await with_partitions(hall, 1)
        await consumer.fetch(0, 1)
        old = consumer.session
        if way == "final epoch":
            await consumer.fetch(-1, 1)
        elif way == "nothing left":
            forgotten = [{"topic": "t", "partitions": [0]}]
            answer = await consumer.fetch(1, forgotten_topics_data=forgotten)
            assert (answer.session_id, answer.responses) == (0, ())
        else:
            await consumer.fetch(0, 1)
            assert consumer.session != old
        consumer.session = old
        answer = await consumer.fetch(1)
        return int(answer.error_code), len(answer.responses)

    assert in_hall(story) == (NOT_FOUND, 0)


@pytest.mark.parametrize(("epoch", "error"), [(1, 0), (2, INVALID_EPOCH)])
def test_a_session_goes_on_with_the_next_epoch_alone(epoch: int, error: int) -> None:
    """The broker must notice a repeated or lost request."""

    async def story(hall: Hall) -> int:
        consumer = await with_partitions(hall, 1)
        await consumer.fetch(0, 1)
        return int((await consumer.fetch(epoch)).error_code)

    assert in_hall(story) == error


def test_the_epoch_after_the_last_one_is_1() -> None:
    """Epoch 0 would begin a session."""
    session = FetchSession(uses_ids=False)
    session.epoch = LAST_EPOCH - 1
    epochs = []
    for _ in range(3):
        session.advance()
        epochs.append(session.epoch)
    assert epochs == [LAST_EPOCH, 1, 2]


def test_a_session_by_name_does_not_go_on_by_topic_id() -> None:
    """An upgraded client must begin a new session."""

    async def story(hall: Hall) -> int:
        consumer = await with_partitions(hall, 1)
        await consumer.fetch(0, 1)
        return int((await consumer.fetch(1, version=13)).error_code)

    assert in_hall(story) == OTHER_KIND


def test_only_so_many_sessions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is max.incremental.fetch.session.cache.slots; other answers are complete."""
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 2)

    async def story(hall: Hall) -> list[bool]:
        slots = "max_incremental_fetch_session_cache_slots"
        hall.node.settings = replace(hall.node.settings, **{slots: 2})
        hall.node.catalogue.create("t", 3, {})
        consumers = [Consumer(hall) for _ in range(4)]
        found = []
        for consumer, parts in zip(consumers, (3, 2, 1, 1), strict=True):
            answer = await consumer.fetch(0, parts)
            assert len(seen(answer)) == parts
            found.append(answer.session_id != 0)
        return found

    assert in_hall(story) == [False, True, True, False]


@pytest.mark.parametrize(("version", "named"), [(12, "topic"), (13, "topic_id")])
def test_topics_are_named_by_id_since_version_13(version: int, named: str) -> None:
    """The request and the answer both use ids."""

    async def story(hall: Hall) -> bool:
        topic = hall.node.catalogue.create("t", 1, {})
        wanted = wanting(1)
        value = topic.topic_id if named == "topic_id" else "t"
        wanted[0] = {"partitions": wanted[0]["partitions"], named: value}
        answer = await Consumer(hall).fetch(-1, version=version, topics=wanted)
        (part,) = answer.responses[0].partitions
        return bool(getattr(answer.responses[0], named) == value and part.error_code == 0)

    assert in_hall(story)


@pytest.mark.parametrize(("version", "error"), [(9, UNSUPPORTED_COMPRESSION), (10, 0)])
def test_zstd_is_given_since_version_10(version: int, error: int) -> None:
    """An older consumer cannot read zstd."""

    async def story(hall: Hall) -> int:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        data = batch(attributes=ZSTD)
        log.append(parse_batch(data), data, 0)
        answer = await Consumer(hall).fetch(-1, 1, version=version)
        return int(answer.responses[0].partitions[0].error_code)

    assert in_hall(story) == error


async def polled(hall: Hall, min_bytes: int, *, part_bytes: int = 10_000) -> asyncio.Future[Any]:
    """Start a long poll that waits for this many bytes of partition 0."""
    wanted = wanting(1, partition_max_bytes=part_bytes)
    consumer = Consumer(hall)
    poll = consumer.fetch(-1, topics=wanted, min_bytes=min_bytes, max_wait=LATER)
    asked = asyncio.ensure_future(poll)
    await turns()
    return asked


async def turns() -> None:
    """Let the broker run."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_long_poll_counts_each_byte_once() -> None:
    """Two of the three expected records are not enough after any number of checks."""

    async def story(hall: Hall) -> list[bool]:
        hall.node.catalogue.create("t", 1, {})
        asked = await polled(hall, 3 * len(batch()))
        found = []
        for _ in range(3):
            await produce(hall, 0)
            await turns()
            found.append(asked.done())
        await asked
        return found

    assert in_hall(story) == [False, False, True]


def test_a_partition_with_no_room_for_bytes_still_gives_its_first_batch() -> None:
    """The broker always sends a batch, so the long poll need not wait."""

    async def story(hall: Hall) -> bool:
        hall.node.catalogue.create("t", 1, {})
        await produce(hall, 0)
        return (await polled(hall, 1, part_bytes=0)).done()

    assert in_hall(story)


def test_a_long_poll_that_is_over_leaves_no_timer() -> None:
    """Otherwise the timers of thousands of answered polls would stay in memory for five minutes."""

    async def story(hall: Hall) -> bool:
        hall.node.catalogue.create("t", 1, {})
        loop: Any = asyncio.get_running_loop()

        def timers() -> int:
            return sum(not handle.cancelled() for handle in loop._scheduled)

        before = timers()
        asked = await polled(hall, 1)
        assert timers() == before + 1
        await produce(hall, 0)
        await asked
        return timers() == before

    assert in_hall(story)


def test_the_session_of_a_lost_connection_gives_its_place_back() -> None:
    """A session belongs to its connection."""

    async def story(hall: Hall) -> list[int]:
        consumer = await with_partitions(hall, 1)
        await consumer.fetch(0, 1)
        counts = [len(hall.node.fetch_sessions)]
        peer: Connection = consumer.peer
        peer.peer.fetch_session = None
        counts.append(len(hall.node.fetch_sessions))
        return counts

    assert in_hall(story) == [1, 0]


@pytest.mark.parametrize(("more", "error"), [(1, 0), (2, NOT_FOUND)])
def test_a_session_that_grows_too_large_ends(
    monkeypatch: pytest.MonkeyPatch, more: int, error: int
) -> None:
    """Each request may add unknown partitions, so a session without a limit fills the memory."""
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 2)

    async def story(hall: Hall) -> list[int]:
        consumer = await with_partitions(hall, 1)
        await consumer.fetch(0, 1)
        named = [{**wanting(1)[0], "topic": f"unknown-{n}"} for n in range(more)]
        codes = [int((await consumer.fetch(1, topics=named)).error_code)]
        return [*codes, int((await consumer.fetch(2)).error_code)]

    assert in_hall(story) == [error, error]


def test_a_new_session_takes_the_place_of_its_connections_former_one() -> None:
    """The cache has a single slot, and the former session is not found again."""

    async def story(hall: Hall) -> tuple[bool, list[int]]:
        slots = "max_incremental_fetch_session_cache_slots"
        hall.node.settings = replace(hall.node.settings, **{slots: 1})
        consumer = await with_partitions(hall, 2)
        first = (await consumer.fetch(0, 2)).session_id
        second = (await consumer.fetch(0, 1)).session_id
        codes = []
        for session in (first, second):
            answer = await consumer.fetch(1, session_id=session)
            codes.append(int(answer.error_code))
        return 0 not in (first, second) and first != second, codes

    assert in_hall(story) == (True, [NOT_FOUND, 0])


def test_a_partition_that_a_request_names_and_forgets_is_forgotten() -> None:
    """Forgetting comes second, as in Kafka; the named partition beside it stays."""

    async def story(hall: Hall) -> tuple[Seen, Seen]:
        consumer = await with_partitions(hall, 3)
        await consumer.fetch(0, 1)
        topics = wanting(3)
        forgotten = [{"topic": "t", "partitions": (1, 0)}]
        named = await consumer.fetch(1, topics=topics, forgotten_topics_data=forgotten)
        for partition in range(3):
            await produce(hall, partition)
        return seen(named), seen(await consumer.fetch(2))

    assert in_hall(story) == ([(2, False)], [(2, True)])
