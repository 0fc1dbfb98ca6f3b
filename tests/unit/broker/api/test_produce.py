"""Produce: accepted batches, refused batches, and the effects of a refusal."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import throttle
from faust_assigner.broker.storage.store import StoreFailed
from tests.support.asking import ask, to_topic
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, frames, in_hall

PRODUCE, METADATA = 0, 3
TOO_LARGE, STORAGE_ERROR, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 10, 56, 76, 87
ZSTD = 4


async def produced(hall: Hall, data: bytes, version: int = 9) -> Any:
    """Return the answer for partition 0 of "t"."""
    answer = await ask(hall, PRODUCE, version, **to_topic(data))
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("partitions", [(0, 7), (7, 0)])
def test_one_refused_partition_closes_a_connection_without_acks(
    partitions: tuple[int, int],
) -> None:
    """The producer reads no error code, whichever partition has an error."""

    async def story(hall: Hall) -> bool:
        hall.node.catalogue.create("t", 1, {})
        data = [{"index": number, "records": batch()} for number in partitions]
        topics = [{"name": "t", "partition_data": data}]
        peer, wire = hall.connect("peer")
        peer.data_received(next(frames(PRODUCE, 1, 9, acks=0, timeout_ms=1_000, topic_data=topics)))
        for _ in range(20):
            await asyncio.sleep(0)
        return wire.closed

    assert in_hall(story)


def test_a_record_that_finds_no_space_asks_for_what_deletions_freed() -> None:
    """Otherwise a full broker would refuse records until the next deletion."""

    async def story(hall: Hall) -> tuple[int, int]:
        hall.node.catalogue.create("t", 1, {})
        asked: list[None] = []
        hall.node.space.reclaim_if_low = lambda: asked.append(None)  # type: ignore[method-assign]

        def full(*arguments: object, **more: object) -> None:
            raise StoreFailed("no space")

        hall.node.store.write = full  # type: ignore[method-assign]
        return int((await produced(hall, batch())).error_code), len(asked)

    assert in_hall(story) == (STORAGE_ERROR, 1)


@pytest.mark.parametrize(("version", "error"), [(6, UNSUPPORTED_COMPRESSION), (7, None)])
def test_zstd_is_taken_since_version_7(version: int, error: int | None) -> None:
    """KIP-110: consumers of brokers with version 6 may not know zstd."""
    cramjam = pytest.importorskip("cramjam")

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {})
        body = bytes(cramjam.zstd.compress(batch()[61:]))
        return int((await produced(hall, batch(body, attributes=ZSTD), version)).error_code)

    assert in_hall(story) == (error or 0)


@pytest.mark.parametrize(("spare", "error"), [(0, 0), (-1, TOO_LARGE)])
def test_a_batch_may_be_as_large_as_its_topic_says_and_no_larger(spare: int, error: int) -> None:
    """max.message.bytes limits the whole batch."""

    async def story(hall: Hall) -> int:
        limit = str(len(batch()) + spare)
        hall.node.catalogue.create("t", 1, {"max.message.bytes": limit})
        return int((await produced(hall, batch())).error_code)

    assert in_hall(story) == error


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_the_brokers_time_is_answered_only_where_the_broker_wrote_it(kind: str) -> None:
    """Clients use a time in the answer as the time of their records."""

    async def story(hall: Hall) -> tuple[int | None, int]:
        hall.node.clock = lambda: 1_700_000_000_000
        hall.node.catalogue.create("t", 1, {"message.timestamp.type": kind})
        stamped = (await produced(hall, batch(timestamp=1_699_999_999_000))).log_append_time
        return stamped and round(stamped.timestamp() * 1_000)

    assert in_hall(story) == (1_700_000_000_000 if kind == "LogAppendTime" else None)


def test_refused_and_repeated_batches_are_counted_apart() -> None:
    """The producer sends an accepted, a repeated and a refused batch."""

    async def story(hall: Hall) -> tuple[int, int]:
        hall.node.catalogue.create("t", 1, {})
        good = batch(producer_id=1, epoch=0, sequence=0)
        for data in (good, good, b"no batch"):
            await produced(hall, data)
        return hall.node.counters["batches_refused"], hall.node.counters["batches_repeated"]

    assert in_hall(story) == (1, 1)


@pytest.mark.parametrize("base", [5, -5])
def test_a_batch_that_does_not_begin_at_0_is_refused(base: int) -> None:
    """Brokers assign offsets; Kafka's producers never set an offset."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {})
        data = base.to_bytes(8, "big", signed=True) + batch()[8:]
        return int((await produced(hall, data)).error_code)

    assert in_hall(story) == INVALID_RECORD


def test_a_repeated_batch_waits_for_the_disk_though_later_ones_follow() -> None:
    """Both batches' waits failed; the acknowledgement of the first repetition must be durable."""

    async def story(hall: Hall) -> tuple[list[int], int]:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        waits: list[None] = []

        async def flushed() -> None:
            waits.append(None)
            if len(waits) <= 2:
                raise StoreFailed("no space")

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        batches = [batch(producer_id=1, epoch=0, sequence=number) for number in (0, 1)]
        codes = [int((await produced(hall, data)).error_code) for data in (*batches, batches[0])]
        return codes, len(waits)

    assert in_hall(story) == ([STORAGE_ERROR, STORAGE_ERROR, 0], 3)


@pytest.mark.parametrize("version", [3, 5, 9])
def test_an_answer_names_the_offset_of_the_first_record_and_of_the_log_start(version: int) -> None:
    """The log has three records, of which two are deleted; the log start is answered since version 5."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        await produced(hall, batch(count=3))
        log.trim(2)
        found = await produced(hall, batch(count=2), version)
        start = found.log_start_offset if version >= 5 else log.start_offset
        return int(found.error_code), found.base_offset, start

    assert in_hall(story) == (0, 3, 2)


def test_producers_that_wait_for_the_disk_do_not_delay_long_requests_of_other_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each handler is long, and as many producers as there are places wait for a slow disk."""
    count = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(count) * throttle.SLICE_S)
    monkeypatch.setattr(throttle, "time", clock)

    async def story(hall: Hall) -> list[str]:
        hall.node.catalogue.create("t", 3, {"flush.messages": "1"})
        waits = 0

        async def flushed() -> None:
            nonlocal waits
            waits += 1
            await asyncio.Event().wait()

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        parts = [{"index": number, "records": batch()} for number in range(3)]
        topics = [{"name": "t", "partition_data": parts}]
        values = {"acks": -1, "timeout_ms": 1_000, "topic_data": topics}
        for name in map(str, range(throttle.LONG_AT_A_TIME)):
            hall.connect(name)[0].data_received(next(frames(PRODUCE, 1, 9, **values)))
        while waits < throttle.LONG_AT_A_TIME:
            await asyncio.sleep(0)
        answer = await ask(hall, METADATA, 9, topics=None, allow_auto_topic_creation=False)
        return [topic.name for topic in answer.topics]

    assert in_hall(story) == ["t"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_batches_of_a_request_share_one_wait_for_the_disk(fails: bool) -> None:
    """After a failed wait, only the topics that require the wait are refused."""

    async def story(hall: Hall) -> tuple[list[int], int]:
        for name, every in (("t", "1"), ("u", "1"), ("v", "9")):
            hall.node.catalogue.create(name, 2, {"flush.messages": every})
        waits: list[None] = []

        async def flushed() -> None:
            waits.append(None)
            if fails:
                raise StoreFailed("no space")

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        parts = [{"index": number, "records": batch()} for number in range(2)]
        topics = [{"name": name, "partition_data": parts} for name in "tuv"]
        answer = await ask(hall, PRODUCE, 9, acks=-1, timeout_ms=1_000, topic_data=topics)
        results = [part for topic in answer.responses for part in topic.partition_responses]
        logs = [log for topic in hall.node.catalogue for log in topic.partitions]
        on_disk = 0 if fails else 1
        assert [log.flushed_to for log in logs] == [on_disk] * 4 + [0, 0]
        return [int(one.error_code) for one in results], len(waits)

    code = STORAGE_ERROR if fails else 0
    assert in_hall(story) == ([code] * 4 + [0, 0], 1)
