"""When a fetch waits, for how long, and what ends its wait."""

from __future__ import annotations

import asyncio
import datetime
import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker import limits, throttle
from faust_assigner.broker.api import fetch
from faust_assigner.broker.api.fetch import Want
from faust_assigner.broker.storage.store import StoreFailed
from tests.support.asking import ask, to_topic, wanting
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, frames, in_hall
from tests.unit.broker.api.test_fetch import fetched, off_memory, two_records

FETCH = 1
SIZE = len(batch())
MS = datetime.timedelta(milliseconds=1)


class Log:
    """A log with a number of bytes to read."""

    def __init__(self, available: int = 0) -> None:
        self.bytes = available
        self.deleted = False
        self.stable_offset = 40
        self.waiters: dict[int, Any] = {}
        self.asked: list[tuple[int, int | None]] = []

    def available(self, offset: int, beyond: int | None) -> int:
        """Return the bytes, and note which were asked for."""
        self.asked.append((offset, beyond))
        return self.bytes

    def grow(self, available: int) -> None:
        """Change the bytes and wake the waiting fetches."""
        self.bytes = available
        for wake in list(self.waiters.values()):
            wake()


@pytest.fixture
def fake_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the fake logs for their bytes, in place of an index."""
    monkeypatch.setattr(
        fetch, "available", lambda log, offset, beyond: log.available(offset, beyond)
    )


def want(log: Log | None, *, most: int = 500, is_committed: bool = False) -> Want:
    """Return a wanted partition."""
    return Want("t", 0, 3, most, cast(Any, log), ErrorCode.none, is_committed)


@pytest.mark.parametrize(
    ("more", "parts", "waits"),
    [
        ({"min_bytes": 2 * SIZE}, ((0, 0), (1, 0)), []),
        ({"min_bytes": 2 * SIZE + 1}, ((0, 0), (1, 0)), [(2, 2 * SIZE + 1, 900)]),
        ({"min_bytes": SIZE + 1}, ((0, 0), (1, 1)), [(2, SIZE + 1, 900)]),
        ({"min_bytes": SIZE + 1}, ((0, 0), (1, 2)), []),
        ({"min_bytes": SIZE + 1}, ((0, 2), (1, 0)), []),
        ({"min_bytes": 9}, ((0, 2), (7, 0)), []),
        ({"min_bytes": 1}, ((0, 1),), [(1, 1, 900)]),
        ({"min_bytes": 0}, ((0, 1),), []),
        ({"min_bytes": -5}, ((0, 1),), []),
        ({"min_bytes": 1}, (), []),
        ({"min_bytes": 1, "max_wait": 0 * MS}, ((0, 1),), []),
        ({"min_bytes": 1, "max_wait": 1 * MS}, ((0, 1),), [(1, 1, 1)]),
        ({"min_bytes": 1, "max_wait": 300_001 * MS}, ((0, 1),), [(1, 1, 300_000)]),
    ],
)
def test_a_fetch_waits_for_bytes_that_are_missing_unless_a_partition_has_an_error(
    more: dict[str, Any],
    parts: tuple[tuple[int, int], ...],
    waits: list[tuple[int, int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each partition has a record; a partition is wanted from an offset, of which 2 is out of range."""
    seen: list[tuple[int, int, int]] = []

    async def wait(call: Any, wants: Any, min_bytes: int, wait_ms: int) -> None:
        seen.append((len(wants), min_bytes, wait_ms))

    monkeypatch.setattr(fetch, "_wait", wait)

    async def story(hall: Hall) -> None:
        hall.node.catalogue.create("t", 2, {})
        for number in range(2):
            await ask(hall, 0, 9, **to_topic(batch(), partition=number))
        listed = [
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": 999}
            for number, offset in parts
        ]
        topics = [{"topic": "t", "partitions": listed}] if listed else []
        values = {"max_wait": 900 * MS, "max_bytes": 9_999, "topics": topics, **more}
        await ask(hall, FETCH, 11, **values)

    in_hall(story)
    assert seen == waits


@pytest.mark.usefixtures("fake_logs")
@pytest.mark.parametrize(
    ("waiting", "asked_ms", "waited_ms"),
    [(0, 900, 900), (2, 900, 900), (3, 900, 100), (3, 100, 100), (3, 40, 40)],
)
async def test_a_fetch_waits_briefly_while_too_many_partitions_wait(
    waiting: int, asked_ms: int, waited_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own two partitions count among four; they no longer count after its wait, also a failed one."""
    monkeypatch.setattr(fetch, "MAX_WAITING_PARTITIONS", 4)
    node = SimpleNamespace(waiting_partitions=waiting)
    seen: list[tuple[int, int, int]] = []

    async def data(wants: Any, min_bytes: int, wait_ms: int) -> None:
        seen.append((node.waiting_partitions, min_bytes, wait_ms))
        if len(seen) > 1:
            raise LookupError

    monkeypatch.setattr(fetch, "_data", data)
    call = cast(Any, SimpleNamespace(node=node))
    wants = [want(Log()), want(Log())]
    await fetch._wait(call, wants, 7, asked_ms)
    assert node.waiting_partitions == waiting
    with pytest.raises(LookupError):
        await fetch._wait(call, wants, 7, asked_ms)
    assert node.waiting_partitions == waiting
    assert seen == [(waiting + 2, 7, waited_ms)] * 2


async def waited(
    monkeypatch: pytest.MonkeyPatch, *wants: Want, min_bytes: int = 100
) -> tuple[asyncio.Task[None], list[Any]]:
    """Start a wait of 900 ms; return it with its timers as [delay, function, whether it is cancelled]."""
    timers: list[Any] = []
    loop = asyncio.get_running_loop()

    def later(delay: float, call: Any, *arguments: Any) -> Any:
        timer = [delay, call, False]
        timers.append(timer)
        return SimpleNamespace(cancel=lambda: timer.__setitem__(2, True))

    monkeypatch.setattr(loop, "call_later", later)
    task = loop.create_task(fetch._data(wants, min_bytes, 900))
    await asyncio.sleep(0)
    return task, timers


@pytest.mark.usefixtures("fake_logs")
async def test_a_wait_ends_once_all_partitions_together_have_the_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition counts with no more bytes than it may have, and fewer after a trim."""
    first, second = Log(10), Log(20)
    task, timers = await waited(monkeypatch, want(first), want(None), want(second, most=60))
    for log, size in (
        (first, 39),
        (second, 500),
        (first, 30),
        (first, 5),
        (second, 30),
        (first, 39),
    ):
        log.grow(size)
        await asyncio.sleep(0)
        assert not task.done()
    first.grow(70)
    second.grow(0)
    await task
    assert (first.waiters, second.waiters) == ({}, {})
    assert [(delay, gone) for delay, _, gone in timers] == [(0.9, True)]


@pytest.mark.usefixtures("fake_logs")
async def test_a_wait_ends_when_its_time_is_over_or_a_topic_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records of the second partition are not enough; the timer rings again without harm."""
    first, second = Log(), Log()
    task, timers = await waited(monkeypatch, want(first), want(second))
    second.grow(99)
    timers[0][1]()
    timers[0][1]()
    second.grow(200)
    await task
    task, timers = await waited(monkeypatch, want(first), want(second))
    second.deleted = True
    second.grow(0)
    await task
    assert (first.waiters, second.waiters, timers[0][2]) == ({}, {}, True)


@pytest.mark.usefixtures("fake_logs")
async def test_two_waits_on_one_partition_end_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fetch has its own number of bytes, and a cancelled fetch leaves the others waiting."""
    log = Log()
    (small, _), (large, _), (gone, _) = [
        await waited(monkeypatch, want(log), min_bytes=size) for size in (10, 20, 30)
    ]
    assert len(log.waiters) == 3
    gone.cancel()
    log.grow(10)
    await small
    await asyncio.sleep(0)
    assert (len(log.waiters), large.done(), gone.cancelled()) == (1, False, True)
    log.grow(20)
    await large
    assert log.waiters == {}


@pytest.mark.usefixtures("fake_logs")
@pytest.mark.parametrize(
    ("most", "available", "counted"), [(500, 70, 70), (50, 70, 50), (0, 70, 1), (-1, 0, 0)]
)
@pytest.mark.parametrize("is_committed", [False, True])
def test_the_bytes_to_wait_for_are_those_that_the_reader_may_have(
    most: int, available: int, counted: int, is_committed: bool
) -> None:
    """A committed reader counts up to the last stable offset; a limit of 0 still lets one batch pass."""
    log = Log(available)
    assert fetch._available_bytes(want(log, most=most, is_committed=is_committed)) == counted
    assert log.asked == [(3, 40 if is_committed else None)]
    assert fetch._available_bytes(want(None)) == 0


def test_waiting_fetches_do_not_delay_long_requests_of_other_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each handler is long, and as many fetches as there are places wait for records."""
    count = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(count) * 2 * throttle.SLICE_S)
    monkeypatch.setattr(throttle, "time", clock)

    async def story(hall: Hall) -> tuple[bool, list[str]]:
        hall.node.catalogue.create("t", 2, {})
        values = {"max_wait": 9_000 * MS, "min_bytes": 1, "max_bytes": 9_999, "topics": wanting(2)}
        for name in map(str, range(throttle.LONG_AT_A_TIME)):
            hall.connect(name)[0].data_received(next(frames(FETCH, 1, 11, **values)))
        while hall.node.waiting_partitions < 2 * throttle.LONG_AT_A_TIME:
            await asyncio.sleep(0)
        is_full = hall.node.line.places.locked()
        answer = await ask(hall, 3, 9, topics=None, allow_auto_topic_creation=False)
        return is_full, [topic.name for topic in answer.topics]

    assert in_hall(story) == (False, ["t"])


def test_a_fetch_may_wait_longer_than_an_answer_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that ends the wait is returned."""
    now = [0.0]
    monkeypatch.setattr(throttle, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def story(hall: Hall) -> tuple[int, bytes]:
        hall.node.catalogue.create("t", 1, {})

        async def wait(call: Any, wants: Any, min_bytes: int, wait_ms: int) -> None:
            now[0] += limits.ANSWER_TIMEOUT_S + 1
            await ask(hall, 0, 9, **to_topic(batch()))

        monkeypatch.setattr(fetch, "_wait", wait)
        values = {"max_wait": 60_000 * MS, "min_bytes": 1, "max_bytes": 9_999}
        answer = await ask(hall, FETCH, 11, topics=wanting(1), **values)
        found = [part.records for topic in answer.responses for part in topic.partitions]
        return int(answer.error_code), b"".join(bytes(records or b"")[21:] for records in found)

    assert in_hall(story) == (0, batch()[21:])


def test_each_partition_that_cannot_be_read_is_counted() -> None:
    """Both partitions are read from a broken disk, twice."""

    async def story(hall: Hall) -> tuple[list[int], int]:
        await two_records(hall)
        for number in range(2):
            off_memory(hall, number)

        def broken(keys: object) -> list[bytes | None]:
            raise StoreFailed("i/o error")

        hall.node.store.get_many = broken  # type: ignore[method-assign]
        found = [int(part.error_code) for _ in range(2) for part in await fetched(hall, 2)]
        return found, hall.node.counters["reads_failed"]

    assert in_hall(story) == ([56] * 4, 4)


@pytest.mark.parametrize("broken", [None, 0, 1])
def test_partitions_that_are_read_from_disk_together_keep_their_own_records(
    broken: int | None,
) -> None:
    """A partition that cannot be read leaves the records of the second one where they belong."""

    async def story(hall: Hall) -> list[tuple[int, bytes]]:
        batches = await two_records(hall)
        for number in range(2):
            off_memory(hall, number)
        store, load = hall.node.store, hall.node.store.get_many
        logs = [hall.node.catalogue.partition("t", number) for number in range(2)]

        def get_many(keys: Any) -> list[bytes | None]:
            log = logs[broken] if broken is not None else None
            if log is not None and log.place in keys[0]:
                raise StoreFailed("i/o error")
            return load(keys)

        store.get_many = get_many  # type: ignore[method-assign]
        expected = [
            (56, b"") if number == broken else (0, data[21:]) for number, data in enumerate(batches)
        ]
        found = [
            (int(part.error_code), bytes(part.records or b"")[21:])
            for part in await fetched(hall, 2)
        ]
        assert found == expected
        return found

    assert len(in_hall(story)) == 2


def test_a_batch_that_is_gone_from_the_disk_concerns_its_partition_alone() -> None:
    """The store answers, but without a batch of the first partition."""

    async def story(hall: Hall) -> tuple[list[tuple[int, bool]], int]:
        await two_records(hall)
        for number in range(2):
            off_memory(hall, number)
        get_many, asked = hall.node.store.get_many, []

        def lacking(keys: Any) -> list[bytes | None]:
            asked.append(len(keys := list(keys)))
            return get_many(keys) if len(asked) > 1 else [None] * len(keys)

        hall.node.store.get_many = lacking  # type: ignore[method-assign]
        parts = await fetched(hall, 2)
        return (
            [(int(part.error_code), bool(part.records)) for part in parts],
            hall.node.counters["reads_failed"],
        )

    assert in_hall(story) == ([(56, False), (0, True)], 1)
