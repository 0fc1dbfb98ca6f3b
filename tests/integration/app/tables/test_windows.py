"""Windows of tables over moves: their closer, time and value; a whole worker on logs in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.tables.window_closing import Closing
from faust_assigner.app.tables.window_sources import WindowSources
from tests.support.workers.cooperative import CooperativeWorker, log_of
from tests.support.workers.virtual import running

pytestmark = pytest.mark.timeout(150)

SIZE, EXPIRES = 10.0, 10.0
FIRST = (1000.0, 1009.9)


class Windows(CooperativeWorker):
    """Count keys in windows of 10 s that expire after 10 more; a record's value is its time."""

    def declare(self) -> None:
        """Add a windowed table beside the counts."""
        self.closed: list[tuple[str, float, int | None]] = []
        table = self.app.Table(
            "recent",
            key_type=str,
            value_type=int,
            default=int,
            partitions=self.partitions,
            on_window_close=self.close,
        )
        self.recent = table.tumbling(SIZE, expires=EXPIRES).relative_to(lambda event: event.value)
        self.more.append(table)

    async def close(self, key: Any, value: int | None) -> None:
        """The app's callback."""
        await asyncio.sleep(0)
        self.closed.append((key[0], key[1][0], value))

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.recent[event.key] += 1
            self.processed.append((event.message.partition, event.message.offset))

    @property
    def closing(self) -> Closing:
        """The task that closes the windows."""
        [closing] = [
            c for c in self.app.tables.closings if c.changelog.endswith("recent-changelog")
        ]
        return closing  # type: ignore[no-any-return]

    async def at(self, second: float, key: str = "a", partition: int = 0) -> None:
        """Send a record of that time and wait until it is counted."""
        source, done = self.source(partition), len(self.processed)
        self.logs.append(source, key.encode(), b"%d" % second)
        assert await self.until(lambda: len(self.processed) > done)

    async def stays(self, *closed: tuple[str, float, int]) -> None:
        """Assert that no other window is closed during several checks."""
        await asyncio.sleep(0.2)
        assert self.closed == list(closed)

    async def is_closed(self, *closed: tuple[str, float, int]) -> None:
        """Wait until these windows are closed; assert that no other is."""
        assert await self.until(lambda: len(self.closed) >= len(closed)), self.closed
        await self.stays(*closed)

    def rows(self, partition: int = 0) -> dict[Any, int]:
        """Return the rows that the next owner gets: the folded changelog."""
        found: dict[Any, int] = {}
        for record in self.logs.records[log_of(self.recent.table, partition)]:
            key = json.loads(record.key or b"")
            name = key[0], key[1][0]
            found.pop(name, None)
            if record.value is not None:
                found[name] = json.loads(record.value)
        return found


STORES = ["rocksdb://", "memory://"]
QUICK = {"table_cleanup_interval": 0.05, "broker_commit_interval": 0.05}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """The store of the table."""
    return str(request.param)


@pytest.fixture
def unended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no partition as read to its end, so that no window closes by the machine's clock."""

    async def never(self: WindowSources, partition: int) -> bool:
        return False

    monkeypatch.setattr(WindowSources, "are_at_their_end", never)


@contextlib.asynccontextmanager
async def owner(store: str, *, at_rest: bool = True) -> AsyncIterator[Windows]:
    """A worker that owns partition 0 of four, at rest."""
    made = Windows(partitions=4, store=store, **QUICK)
    made.app._create_directories()
    async with running(made):
        if at_rest:
            await given(made, [0], eager=True)
        yield made


async def given(
    worker: Windows, actives: list[int], standbys: tuple[int, ...] = (), *, eager: bool = False
) -> None:
    """Run a round and wait until all partitions are restored."""
    await (worker.rebalance if eager else worker.give)(actives, standbys)
    assert await worker.until(lambda: worker.at_rest)


async def test_each_partition_closes_its_windows_by_its_own_time(store: str, unended: None) -> None:
    """Other partitions' times close none of them, and younger windows stay open."""
    async with owner(store) as worker:
        await given(worker, [0, 1, 2, 3])
        for partition in range(4):
            await worker.at(1005, f"k{partition}", partition)
            await worker.at(1006, f"k{partition}", partition)
        await worker.stays()
        expected: list[tuple[str, float, int]] = []
        for partition in (2, 0, 3, 1):
            await worker.at(1019, f"later{partition}", partition)
            await worker.stays(*expected)
            await worker.at(1025, f"later{partition}", partition)
            expected.append((f"k{partition}", 1000.0, 2))
            await worker.is_closed(*expected)
            assert set(worker.rows(partition)) == {
                (f"later{partition}", 1010.0),
                (f"later{partition}", 1020.0),
            }


async def test_who_gave_a_partition_away_closes_none_of_its_windows(
    store: str, unended: None
) -> None:
    """The heap of its windows is dropped with the partition."""
    async with owner(store) as worker:
        await worker.at(1005)
        await worker.at(1025)
        worker.closed.clear()
        await given(worker, [1])
        assert worker.closing.windows.first(0) is None
        await worker.at(1100, "b", 1)
        await worker.stays()


async def test_a_window_is_closed_once_with_its_last_value_by_whoever_owns_it(
    store: str, unended: None
) -> None:
    """The owner also closes windows that another owner opened and did not close."""
    async with owner(store) as worker:
        for key in ("mine", "theirs", "both"):
            await worker.at(1005, key)
        await given(worker, [1])
        log = log_of(worker.recent.table, 0)
        worker.logs.append(log, row("new"), b"5")
        worker.logs.append(log, row("both"), b"7")
        worker.logs.append(log, row("theirs"), None)
        await given(worker, [0, 1])
        await worker.stays()
        assert worker.recent.table._partition_latest_timestamp[0] == FIRST[1]
        await worker.at(1025, "later")
        assert await worker.until(lambda: len(worker.closed) == 3)
        assert sorted(worker.closed) == [
            ("both", 1000.0, 7),
            ("mine", 1000.0, 1),
            ("new", 1000.0, 5),
        ]
        await worker.stays(*worker.closed)
        assert await worker.until(lambda: worker.rows() == {("later", 1020.0): 1})


async def test_a_copy_that_becomes_the_owner_closes_what_it_has_followed(
    store: str, unended: None
) -> None:
    """The windows may be older than the standby, or younger."""
    async with owner(store) as worker:
        await given(worker, [0], (1,))
        log = log_of(worker.recent.table, 1)
        for key in ("a", "b"):
            worker.logs.append(log, row(key), b"3")
        worker.logs.append(log, row("a"), None)
        offsets = worker.app.tables.recovery.standby_offsets
        assert await worker.until(lambda: offsets.get(log) == 2)
        await given(worker, [0, 1])
        await worker.at(1025, "later", 1)
        await worker.is_closed(("b", 1000.0, 3))


async def test_what_is_not_committed_closes_nothing(store: str, unended: None) -> None:
    """After a failure the record is processed again and would be late for a closed window."""
    async with owner(store) as worker:
        await worker.at(1005)
        assert await worker.until(lambda: worker.logs.committed.get(worker.source()) == 1)

        async def refused(offsets: Any) -> bool:
            return False

        commit, worker.app.consumer._commit = worker.app.consumer._commit, refused
        await worker.at(1025)
        await worker.stays()
        worker.app.consumer._commit = commit
        await worker.at(1026)
        await worker.is_closed(("a", 1000.0, 1))


async def test_a_late_record_opens_its_window_once_more(store: str, unended: None) -> None:
    """A late record is not dropped."""
    async with owner(store) as worker:
        await worker.at(1005)
        await worker.at(1025)
        await worker.is_closed(("a", 1000.0, 1))
        await worker.at(1004, "late")
        await worker.at(1026)
        await worker.is_closed(("a", 1000.0, 1), ("late", 1000.0, 1))


async def test_a_row_that_changes_while_its_window_is_closed_is_closed_again(
    store: str, unended: None
) -> None:
    """The second close has the value that the first one lacked."""
    async with owner(store) as worker:
        held = asyncio.Event()
        close = worker.recent.table._on_window_close

        async def slow(key: Any, value: int | None) -> None:
            await close(key, value)
            await held.wait()

        worker.recent.table._on_window_close = slow
        await worker.at(1005)
        await worker.at(1025)
        assert await worker.until(lambda: len(worker.closed) == 1)
        await worker.at(1006)
        held.set()
        await worker.is_closed(("a", 1000.0, 1), ("a", 1000.0, 2))
        assert await worker.until(lambda: worker.rows() == {("a", 1020.0): 1})


async def test_a_row_that_changes_while_what_was_sent_is_awaited_is_closed_again(
    store: str, unended: None
) -> None:
    """The callback has not seen the change."""
    async with owner(store) as worker:
        held, producer = asyncio.Event(), worker.app.producer
        flush = producer.flush

        async def slow() -> None:
            if worker.closed:
                await held.wait()
            await flush()

        producer.flush = slow
        await worker.at(1005)
        await worker.at(1025)
        assert await worker.until(lambda: len(worker.closed) == 1)
        await worker.at(1006)
        held.set()
        await worker.is_closed(("a", 1000.0, 1), ("a", 1000.0, 2))


async def test_a_partition_goes_only_after_the_window_that_is_being_closed(
    store: str, unended: None
) -> None:
    """Otherwise the next owner closes the window again."""
    async with owner(store) as worker:
        held = asyncio.Event()
        close = worker.recent.table._on_window_close

        async def slow(key: Any, value: int | None) -> None:
            await held.wait()
            await close(key, value)

        worker.recent.table._on_window_close = slow
        await worker.at(1005)
        await worker.at(1025)
        consumer = worker.app.consumer
        assert await worker.until(lambda: bool(consumer._unacked_messages))
        going = asyncio.ensure_future(worker.give([1]))
        await asyncio.sleep(0.2)
        assert not going.done()
        held.set()
        await going
        assert worker.closed == [("a", 1000.0, 1)]
        assert await worker.until(lambda: worker.rows() == {("a", 1020.0): 1})


async def test_who_goes_on_as_a_copy_closes_nothing_more(store: str, unended: None) -> None:
    """The revocation removes only the partition's source; its changelog stays for a while."""
    async with owner(store) as worker:
        handler = asyncio.Event()

        @worker.app.on_partitions_revoked.connect
        async def slow(*_: Any, **__: Any) -> None:
            await handler.wait()

        await worker.at(1005)
        assert await worker.until(lambda: worker.logs.committed.get(worker.source()) == 1)
        going = asyncio.ensure_future(worker.give([1], [0]))
        consumer = worker.app.consumer
        assert await worker.until(lambda: worker.source() in consumer.leaving)
        worker.closing.times._times[0] = 2000.0
        await worker.stays()
        assert not going.done()
        handler.set()
        await going
        await worker.stays()
        assert await worker.until(lambda: worker.rows() == {("a", 1000.0): 1})


async def test_what_the_app_sends_is_acknowledged_before_the_row_is_deleted(
    store: str, unended: None
) -> None:
    """A failure before that must leave the window open."""
    async with owner(store) as worker:
        producer, flushes = worker.app.producer, list[int]()
        flush = producer.flush

        async def noted() -> None:
            if worker.closed:
                flushes.append(len(worker.rows()))
            await flush()

        producer.flush = noted
        await worker.at(1005)
        await worker.at(1025)
        await worker.is_closed(("a", 1000.0, 1))
        assert flushes[0] == 2, "both rows were there"
        assert await worker.until(lambda: len(worker.rows()) == 1)


def hurry(worker: Windows, speed: float) -> list[float]:
    """Speed up the time of fully read partitions; the returned list adds a step."""
    steps = [0.0]
    worker.closing._monotonic = lambda: time.monotonic() * speed + steps[0]
    return steps


@pytest.mark.slow
async def test_where_no_record_is_left_time_goes_on_from_the_newest(store: str) -> None:
    """The time passes as fast as the machine's clock, which is far ahead of these records."""
    async with owner(store) as worker:
        steps = hurry(worker, 0.0)
        await worker.at(1005)
        steps[0] += 14.0
        await asyncio.sleep(1.5)  # an idle fetcher takes a second for a turn
        await worker.stays()
        steps[0] += 2.0
        await worker.is_closed(("a", 1000.0, 1))
        assert await worker.until(lambda: worker.rows() == {})
        if store == "rocksdb://":
            assert [key async for key in _keys(worker)] == []


async def test_windows_of_before_a_restart_are_closed_although_no_record_comes(store: str) -> None:
    """They close once the partition has been here for as long as windows are kept."""
    made = Windows(partitions=4, store=store, **QUICK)
    made.app._create_directories()
    async with running(made):
        steps = hurry(made, 0.0)
        made.logs.append(log_of(made.recent.table, 0), row("before"), b"4")
        await given(made, [0], eager=True)
        await made.stays()
        steps[0] += 9.0
        await asyncio.sleep(1.5)
        await made.stays()
        steps[0] += 2.0
        await made.is_closed(("before", 1000.0, 4))


async def test_records_that_are_still_to_be_read_keep_windows_open() -> None:
    """The records may take any time."""
    async with owner("memory://") as worker:
        hurry(worker, 1000.0)
        ends = worker.consumer.end_offsets

        async def more(partitions: Any) -> dict[TP, int]:
            return {tp: end + 1 for tp, end in (await ends(partitions)).items()}

        worker.consumer.end_offsets = more  # type: ignore[method-assign]
        await worker.at(1005)
        await asyncio.sleep(1.5)  # an idle fetcher takes a second for a turn
        await worker.stays()
        worker.consumer.end_offsets = ends  # type: ignore[method-assign]
        await worker.is_closed(("a", 1000.0, 1))


def row(key: str) -> bytes:
    """Return the changelog key of the first window's row, as Faust writes it."""
    return json.dumps([key, FIRST], separators=(",", ":")).encode()


async def _keys(worker: Windows) -> AsyncIterator[bytes]:
    store = worker.recent.table.data
    assert await worker.until(lambda: not any(store.overlays.values()))
    for key, _ in store._db_for_partition(0).items():
        if key != store.offset_key:
            yield key


async def test_rows_that_change_while_nothing_is_closed_are_not_kept_in_mind(
    store: str, unended: None
) -> None:
    """Otherwise each key stays in memory until a window of the table is due."""
    async with owner(store) as worker:
        for number in range(5):
            await worker.at(1000, key=f"key-{number}")
        assert len(worker.closing._late) == 0
