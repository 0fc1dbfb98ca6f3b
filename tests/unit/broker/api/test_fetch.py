"""Fetch: the fields and the records of each partition in an answer."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.broker.api import fetch
from faust_assigner.broker.fetch_session import FetchSession, Place
from faust_assigner.broker.storage.store import StoreFailed
from tests.support.asking import ask, to_topic, wanting
from tests.support.clients.raw_client import batch, one_record
from tests.support.hall import Hall, in_hall

PRODUCE, FETCH = 0, 1
AT_ONCE, LATER = datetime.timedelta(0), datetime.timedelta(seconds=20)
OUT_OF_RANGE, STORAGE_ERROR, UNKNOWN_LEADER_EPOCH, NO_SUCH_SESSION = 1, 56, 75, 70


async def fetched(
    hall: Hall, partitions: int, *, max_bytes: int = 10_000, **part: Any
) -> list[Any]:
    """Fetch without a wait and return the partitions of the answer."""
    wanted = {"topics": wanting(partitions, **part), "max_bytes": max_bytes, "min_bytes": 1}
    answer = await ask(hall, FETCH, 11, max_wait=AT_ONCE, **wanted)
    return list(answer.responses[0].partitions)


async def two_records(hall: Hall) -> tuple[bytes, bytes]:
    """Append a record to each of the two partitions of "t"; return the batches."""
    hall.node.catalogue.create("t", 2, {})
    batches = batch(one_record(b"first")), batch(one_record(b"other"))
    for number, data in enumerate(batches):
        await ask(hall, PRODUCE, 9, **to_topic(data, partition=number))
    return batches


def values(part: Any) -> bytes:
    """Return a partition's bytes, without the header that the broker completes."""
    return bytes(part.records or b"")[21:]


def off_memory(hall: Hall, partition: int) -> None:
    """Make reads of the partition need the disk."""
    store, log = hall.node.store, hall.node.catalogue.partition("t", partition)
    cached = store.cached
    assert log is not None
    place = log.place
    store.cached = lambda keys: None if place in keys[0] else cached(keys)  # type: ignore[method-assign]


def test_the_first_batch_comes_whole_though_the_partition_before_it_has_none() -> None:
    """A small limit must not stop the reader of the second partition for ever (KIP-74)."""

    async def story(hall: Hall) -> list[bool]:
        hall.node.catalogue.create("t", 2, {})
        await ask(hall, PRODUCE, 9, **to_topic(batch(), partition=1))
        return [bool(part.records) for part in await fetched(hall, 2, max_bytes=1)]

    assert in_hall(story) == [False, True]


@pytest.mark.parametrize("limit", ["fetch.max.bytes", "unsent answers"])
def test_an_answer_obeys_each_limit_of_the_broker(limit: str) -> None:
    """The limits are the broker's own maximum and the memory that unsent answers leave."""

    async def story(hall: Hall) -> list[bool]:
        data, _ = await two_records(hall)
        if limit == "fetch.max.bytes":
            hall.node.settings = replace(hall.node.settings, fetch_max_bytes=len(data))
        else:
            hall.node.room_for_answer = lambda: len(data)  # type: ignore[method-assign]
        return [bool(part.records) for part in await fetched(hall, 2)]

    assert in_hall(story) == [True, False]


@pytest.mark.parametrize(
    ("asked", "waited_ms"),
    [
        (AT_ONCE, []),
        (datetime.timedelta(milliseconds=300), [300]),
        (datetime.timedelta(days=1), [fetch.MAX_WAIT_MS]),
    ],
)
def test_a_fetch_without_records_waits_as_long_as_it_asks_for(
    asked: datetime.timedelta, waited_ms: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch with a wait of 0 does not wait, and the broker's limit bounds the wait."""
    waits: list[int] = []

    async def data(wants: Any, min_bytes: int, wait_ms: int) -> None:
        waits.append(wait_ms)

    monkeypatch.setattr(fetch, "_data", data)

    async def story(hall: Hall) -> None:
        hall.node.catalogue.create("t", 1, {})
        await ask(hall, FETCH, 11, max_wait=asked, topics=wanting(1), max_bytes=10_000, min_bytes=1)

    in_hall(story)
    assert waits == waited_ms


def test_a_partition_read_from_disk_and_one_from_memory_keep_their_own_records() -> None:
    """The two reads happen at different moments of the answer."""

    async def story(hall: Hall) -> bool:
        first, other = await two_records(hall)
        off_memory(hall, 0)
        parts = await fetched(hall, 2)
        return [values(part) for part in parts] == [first[21:], other[21:]]

    assert in_hall(story)


def test_a_partition_that_cannot_be_read_names_no_offset_and_is_counted() -> None:
    """An answer with the end of the log would hide the error from the reader."""

    async def story(hall: Hall) -> tuple[list[tuple[int, int, int, bool]], int]:
        await two_records(hall)
        off_memory(hall, 0)

        def broken(keys: object) -> list[bytes | None]:
            raise StoreFailed("i/o error")

        hall.node.store.get_many = broken  # type: ignore[method-assign]
        parts = await fetched(hall, 2)
        seen = [
            (int(p.error_code), p.high_watermark, p.log_start_offset, bool(p.records))
            for p in parts
        ]
        return seen, hall.node.counters["reads_failed"]

    assert in_hall(story) == ([(STORAGE_ERROR, -1, -1, False), (0, 1, 0, True)], 1)


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, UNKNOWN_LEADER_EPOCH)])
def test_a_leader_epoch_from_the_future_is_unknown(epoch: int, error: int) -> None:
    """The only epoch is 0; -1 requests no check (KIP-320)."""

    async def story(hall: Hall) -> int:
        await two_records(hall)
        (part,) = await fetched(hall, 1, current_leader_epoch=epoch)
        return int(part.error_code)

    assert in_hall(story) == error


@pytest.mark.parametrize(
    ("session", "error"),
    [((5, 1), NO_SUCH_SESSION), ((5, 0), 0), ((0, 1), NO_SUCH_SESSION), ((5, -1), 0)],
)
def test_only_a_session_that_goes_on_is_not_found(session: tuple[int, int], error: int) -> None:
    """Epoch 0 begins and -1 ends a session; both requests have all partitions (KIP-227)."""

    async def story(hall: Hall) -> int:
        await two_records(hall)
        answer = await ask(
            hall, FETCH, 11, max_wait=AT_ONCE, topics=wanting(1), max_bytes=100, min_bytes=1,
            session_id=session[0], session_epoch=session[1],
        )  # fmt: skip
        return int(answer.error_code)

    assert in_hall(story) == error


def test_a_long_poll_counts_no_more_bytes_of_a_partition_than_it_may_have() -> None:
    """The partition counts at most 10 bytes here, so the fetch never gets its 50 bytes."""

    async def story(hall: Hall) -> tuple[int, bool]:
        topic = hall.node.catalogue.create("t", 1, {})
        await ask(hall, PRODUCE, 9, **to_topic(batch()))
        limits = {"topics": wanting(1, partition_max_bytes=10), "max_bytes": 1_000, "min_bytes": 50}
        asked = asyncio.ensure_future(ask(hall, FETCH, 11, max_wait=LATER, **limits))
        for _ in range(20):
            await asyncio.sleep(0)
        seen = len(topic.partitions[0].waiters), asked.done()
        hall.node.catalogue.delete(topic)
        await asked
        return seen

    assert in_hall(story) == (1, False)


@pytest.mark.parametrize(("offset", "error"), [(0, 0), (1, 0), (2, OUT_OF_RANGE)])
def test_an_offset_is_in_range_up_to_the_end_of_the_log(offset: int, error: int) -> None:
    """The log has a record; a reader at the end of the log waits."""

    async def story(hall: Hall) -> int:
        await two_records(hall)
        (part,) = await fetched(hall, 1, fetch_offset=offset)
        return int(part.error_code)

    assert in_hall(story) == error


def test_an_offset_out_of_range_names_no_offsets() -> None:
    """The reader then asks for the start and the end of the log, as Kafka's clients do."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        await two_records(hall)
        (part,) = await fetched(hall, 1, fetch_offset=9)
        return int(part.error_code), part.high_watermark, part.log_start_offset

    assert in_hall(story) == (OUT_OF_RANGE, -1, -1)


def test_the_first_answer_after_an_error_is_news_with_unchanged_offsets() -> None:
    """Otherwise the client would wait for a partition with a stale error (KIP-227)."""
    place: Place = ("t", 0)
    session = FetchSession(uses_ids=False)
    session.update([(place, None)], ())

    def answered(error: int = 0, high: int = 5, start: int = 0, records: bytes = b"") -> bool:
        values = {
            "high_watermark": high,
            "log_start_offset": start,
            "error_code": error,
            "records": records,
        }
        return session.note(place, values)

    assert [answered(), answered()] == [True, False]
    assert [answered(high=6), answered(high=6)] == [True, False]
    assert [answered(high=6, start=1), answered(high=6, start=1)] == [True, False]
    assert [answered(6, 6, 1), answered(6, 6, 1)] == [True, True]
    assert [answered(high=6, start=1), answered(high=6, start=1)] == [True, False]
    assert answered(high=6, start=1, records=b"r")
    session.update((), [place])
    session.update([(place, None)], ())
    assert answered(high=6, start=1), "a partition that is named anew"


def test_a_log_that_is_trimmed_while_a_consumer_waits_puts_its_offset_out_of_range() -> None:
    """Records after a gap, without an error, would hide the lost records from the consumer."""

    async def story(hall: Hall) -> tuple[int, int]:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        await ask(hall, PRODUCE, 9, **to_topic(batch()))
        limits = {"topics": wanting(1), "max_bytes": 10_000, "min_bytes": 2 * log.size}
        asked = asyncio.ensure_future(ask(hall, FETCH, 11, max_wait=LATER, **limits))
        while not log.waiters:
            await asyncio.sleep(0)
        log.trim(1)
        for _ in range(2):
            await ask(hall, PRODUCE, 9, **to_topic(batch()))
        (part,) = (await asked).responses[0].partitions
        return int(part.error_code), len(part.records or b"")

    assert in_hall(story) == (OUT_OF_RANGE, 0)
