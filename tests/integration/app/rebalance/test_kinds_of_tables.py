"""Tables of sets, windowed tables and global tables, through cooperative rounds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.workers.cooperative import CooperativeWorker, log_of, owning
from tests.support.workers.virtual import running

pytestmark = pytest.mark.timeout(150)


class Sets(CooperativeWorker):
    """A worker that keeps the offsets of one partition in a set."""

    store: str

    def declare(self) -> None:
        """Add a table of sets beside the counts."""
        self.seen = self.app.SetTable(
            "seen", key_type=str, value_type=int, partitions=self.partitions, store=self.store
        )
        self.more.append(self.seen)

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            if event.message.partition == 0:
                self.seen["all"].add(event.message.offset)
            self.processed.append((event.message.partition, event.message.offset))

    def in_file(self) -> set[int]:
        """Return the file's row of partition 0."""
        row = self.seen.data.storage.file_row(0, b'"all"')
        return set(json.loads(row or b"[]"))


IN_MEMORY, IN_ROCKSDB = "memory:///", "rocksdb:seen"


@pytest.mark.parametrize("store", [IN_MEMORY, IN_ROCKSDB])
async def test_sets_of_kept_partitions_stay_whole(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of sets reads its whole storage again when it gains a partition."""
    monkeypatch.setattr(Sets, "store", store, raising=False)
    worker = Sets(partitions=2)
    worker.app._create_directories()
    async with owning(worker, [0]):
        worker.send_orders(6)
        assert await worker.until(lambda: len(worker.of(0)) == 6)
        worker.send_orders(6)
        assert await worker.until(lambda: len(worker.of(0)) == 12)
        await worker.give([0, 1])
        worker.send_orders(6, partition=1)
        assert await worker.until(lambda: len(worker.of(1)) == 6)
        assert sorted(worker.seen["all"]) == list(range(12))
        await worker.give([1])
        log = log_of(worker.seen, 0)
        worker.logs.append(log, b'[1, "all"]', b"100")
        worker.logs.append(log, b'[2, "all"]', b"0")
        await worker.give([0, 1])
        assert await worker.until(lambda: worker.at_rest)
        assert sorted(worker.seen["all"]) == [*range(1, 12), 100]
        if store == IN_ROCKSDB:
            assert worker.in_file() == {*range(1, 12), 100}


class SlowlyRecovered(Sets):
    """A callback of the counts runs until ``may_end``; the sets are restored after the counts."""

    def declare(self) -> None:
        """Add the events of the callback."""
        super().declare()
        self.may_end, self.called, self.ended = asyncio.Event(), 0, 0

    async def on_recover(self) -> None:
        """Wait until ``may_end`` is set."""
        self.called += 1
        await self.may_end.wait()
        self.ended += 1


@pytest.mark.parametrize("eager", [False, True])
async def test_a_round_during_a_callback_of_on_recover_costs_neither_it_nor_sets(
    eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback ends; then the partitions that it held up flow, over complete sets."""
    monkeypatch.setattr(Sets, "store", IN_ROCKSDB, raising=False)
    worker = SlowlyRecovered(partitions=2)
    worker.app._create_directories()
    for offset in range(5):
        worker.logs.append(log_of(worker.seen, 0), b'[1, "all"]', str(100 + offset).encode())
    worker.counts.on_recover(worker.on_recover)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.called == 1)
        await (worker.rebalance([0, 1]) if eager else worker.give([0, 1]))
        worker.send_orders(3)
        await asyncio.sleep(0.3)
        assert (worker.of(0), worker.ended) == ([], 0), "the callback is not over"
        worker.may_end.set()
        assert await worker.until(lambda: len(worker.of(0)) == 3 and worker.at_rest)
        assert worker.called == worker.ended == 2, "once for each time that something came"
        assert sorted(worker.seen["all"]) == [0, 1, 2, 100, 101, 102, 103, 104]
        assert await worker.until(lambda: worker.in_file() == set(worker.seen["all"]))


async def test_a_worker_without_a_part_of_a_table_is_called_back_all_the_same() -> None:
    """As in Faust, a worker that waits for its tables learns that they are ready."""
    worker = CooperativeWorker(partitions=2)
    called = list[int]()

    async def on_recover() -> None:
        called.append(len(worker.app.tables.recovery.active_tps))

    worker.counts.on_recover(on_recover)
    async with running(worker):
        await worker.rebalance([])
        assert await worker.until(lambda: called == [0])


class Windows(CooperativeWorker):
    """A worker that counts by key in windows."""

    def declare(self) -> None:
        """Add a windowed table beside the counts."""
        self.recent = self.app.Table(
            "recent", key_type=str, value_type=int, default=int, partitions=self.partitions
        ).tumbling(3600.0)
        self.more.append(self.recent.table)

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.recent[event.key] += 1
            self.processed.append((event.message.partition, event.message.offset))


async def test_windows_go_on_through_rounds() -> None:
    """Windows of kept and of gained partitions stay complete."""
    worker = Windows(partitions=2)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(5)
        assert await worker.until(lambda: len(worker.of(0)) == 5)
        await worker.give([0, 1])
        worker.send_orders(5)
        worker.send_orders(5, partition=1)
        assert await worker.until(lambda: len(worker.of(0)) == 10 and len(worker.of(1)) == 5)
        await worker.give([1])
        worker.send_orders(5, partition=1)
        assert await worker.until(lambda: len(worker.of(1)) == 10)
        assert worker.logs.ends[log_of(worker.recent.table, 0)] == 10
        assert await worker.until(lambda: worker.logs.ends[log_of(worker.recent.table, 1)] == 10)


class Shared(CooperativeWorker):
    """A worker with all of a global table."""

    def declare(self) -> None:
        """Add a global table beside the counts."""
        self.prices = self.app.GlobalTable(
            "prices", key_type=str, value_type=int, partitions=self.partitions
        )
        self.shared.append(self.prices)

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.processed.append((event.message.partition, event.message.offset))
            self.found.append(self.prices.get("late"))

    found: list[Any]


async def test_a_global_table_is_read_to_its_end_before_what_writes_it_flows() -> None:
    """The rows of the partition's last owner are there; the rows of other owners arrive."""
    worker = Shared(partitions=2)
    worker.found = []
    async with owning(worker, [0]):
        log = log_of(worker.prices, 1)
        worker.logs.append(log, json.dumps("early").encode(), b"1")
        assert await worker.until(lambda: worker.prices.get("early") == 1)
        for number in range(50):
            worker.logs.append(log, json.dumps(f"more-{number}").encode(), b"2")
        worker.logs.append(log, json.dumps("late").encode(), b"3")
        worker.send_orders(1, partition=1)
        await worker.give([0, 1])
        assert await worker.until(lambda: worker.of(1) == [0])
        assert worker.found == [3]


async def test_a_copy_in_memory_is_whole_when_its_worker_becomes_the_owner() -> None:
    """Faust drops inactive rows at each restore; it does not read a standby again."""
    worker = CooperativeWorker(partitions=4)
    async with running(worker):
        await worker.rebalance([0])
        await worker.give([0], [1])
        assert await worker.until(lambda: worker.at_rest)
        for number in range(5):
            worker.logs.append(worker.changelog(1), json.dumps(f"key-{number}").encode(), b"7")
        offsets = worker.app.tables.recovery.standby_offsets
        assert await worker.until(lambda: offsets.get(worker.changelog(1)) == 4)
        for actives, standbys in (([0, 2], [1]), ([0, 1, 2], [])):
            await worker.give(actives, standbys)
            assert await worker.until(lambda: worker.at_rest)
        assert {key: worker.counts[key] for key in worker.counts} == {
            f"key-{n}": 7 for n in range(5)
        }


class ByAll(CooperativeWorker):
    """A worker that writes a global table with others, and owns and follows every partition of it."""

    def declare(self) -> None:
        """Add a global table in RocksDB."""
        self.prices = self.app.GlobalTable(
            "prices",
            key_type=str,
            value_type=int,
            partitions=self.partitions,
            store="rocksdb:prices",
            synchronize_all_active_partitions=True,
        )
        self.shared.append(self.prices)

    def roles(self, actives: Any, standbys: Any) -> Any:
        """Add all partitions of the table as standbys, too."""
        owns, follows = super().roles(actives, standbys)
        return owns, follows | {log_of(self.prices, p) for p in range(self.partitions)}

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.prices[f"price-{event.message.offset}"] = event.message.offset
            self.processed.append((event.message.partition, event.message.offset))


async def test_what_is_written_by_all_is_read_back_into_the_file() -> None:
    """The file has the rows at a first start and after a round."""
    worker = ByAll(partitions=2)
    worker.app._create_directories()
    async with owning(worker, [0]):
        store = worker.prices.data
        for given, sent in (([0], 5), ([0, 1], 10)):
            await worker.give(given)
            worker.send_orders(5)
            assert await worker.until(lambda sent=sent: len(worker.of(0)) == sent)  # type: ignore[misc]
            assert await worker.until(lambda: not any(store.overlays.values()))
            assert store.file_row(0, b'"price-%d"' % (sent - 1)) == b"%d" % (sent - 1)


class EagerByAll(ByAll):
    """The same worker in eager rounds."""

    def install_more(self) -> None:
        """Add the tables and no cooperative parts, as with ``FAUST_ASSIGNER_COOPERATIVE=0``."""
        self.declare()


@pytest.mark.slow
async def test_what_is_written_by_all_is_read_back_in_eager_rounds_too() -> None:
    """The file has the rows and the offset up to which they are complete."""
    worker = EagerByAll(partitions=2)
    worker.app._create_directories()
    async with running(worker):
        store = worker.prices.data
        for given, sent in (([0], 5), ([0, 1], 10)):
            await worker.rebalance(given)
            assert await worker.until(
                lambda: not (worker.app.rebalancing or worker.app.in_recovery)
            )
            worker.send_orders(5)
            assert await worker.until(lambda sent=sent: len(worker.of(0)) == sent)  # type: ignore[misc]
            assert await worker.until(lambda: not any(store.overlays.values()))
            assert store.file_row(0, b'"price-%d"' % (sent - 1)) == b"%d" % (sent - 1)


class Pages(CooperativeWorker):
    """A worker that counts in a table with one partition, which the producer chooses."""

    def declare(self) -> None:
        """Add the table in RocksDB; its changelog has fewer partitions than the orders."""
        self.pages = self.app.Table(
            "pages",
            key_type=str,
            value_type=int,
            default=int,
            partitions=1,
            store="rocksdb:pages",
            use_partitioner=True,
        )

    def roles(self, actives: Any, standbys: Any) -> Any:
        """Add the table's only partition."""
        owns, follows = super().roles(actives, standbys)
        return owns | {log_of(self.pages, 0)}, follows

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.pages["page"] += 1
            self.processed.append((event.message.partition, event.message.offset))


async def test_a_row_whose_changelog_has_fewer_partitions_is_kept_over_a_round() -> None:
    """It is in the file of the source's partition; no restore ever allowed these writes."""
    worker = Pages(partitions=3)
    worker.app._create_directories()
    async with owning(worker, [1]):
        worker.app.consumer.key_partition = lambda *_: 0
        store = worker.pages.data
        for given, sent in (([1], 5), ([1, 2], 10)):
            await worker.give(given)
            worker.send_orders(5, partition=1)
            assert await worker.until(lambda sent=sent: len(worker.of(1)) == sent)  # type: ignore[misc]
            assert await worker.until(lambda: not any(store.overlays.values()))
            assert store.file_row(1, b'"page"') == b"%d" % sent
