"""A database that refuses every write, as RocksDB does after a write failed on a full disk."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.workers.cooperative import CooperativeWorker, log_of, owning

pytestmark = pytest.mark.timeout(150)


class Prices(CooperativeWorker):
    """A worker with a table in RocksDB that only the test writes."""

    def declare(self) -> None:
        """Add the table beside the counts."""
        self.prices = self.app.Table(
            "prices",
            key_type=str,
            value_type=int,
            partitions=self.partitions,
            store="rocksdb:prices",
        )
        self.more.append(self.prices)

    def send_prices(self, count: int, partition: int) -> None:
        """Put ``count`` rows into the table's changelog, keys counting up."""
        log = log_of(self.prices, partition)
        for _ in range(count):
            self.logs.append(log, b'"price-%d"' % self.logs.ends[log], b"7")

    def in_file(self, partition: int) -> int:
        """Return the number of rows in the database of ``partition``."""
        database = self.prices.data._dbs.get(partition)
        rows = [] if database is None else database.keys()
        return sum(row.startswith(b'"price') for row in rows)


class Stuck:
    """A database that can only be read and closed."""

    def __init__(self, database: Any, path: object) -> None:
        self.database, self.path = database, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)

    def write(self, *_: Any) -> None:
        """Raise RocksDB's error, which stays until the database is reopened."""
        raise Exception(
            f"IO error: No space left on device: While appending to file: {self.path}/000004.log"
        )

    put = __setitem__ = delete = write


async def fill(worker: Prices, owned: list[int]) -> None:
    """Fail the next write to the copy of partition 1; the reopened database has room."""
    await worker.give(owned, standbys=[1])
    assert await worker.until(lambda: worker.at_rest)
    store = worker.prices.data
    store._dbs[1] = Stuck(store._dbs[1], store.partition_path(1))
    worker.send_prices(5, partition=1)


def worker_of_prices() -> Prices:
    """A worker of two partitions."""
    worker = Prices(partitions=2)
    worker.app._create_directories()
    return worker


@pytest.mark.parametrize("owned", [[], [0]])
async def test_a_copy_that_could_not_be_written_is_read_again(owned: list[int]) -> None:
    """The database is reopened, whatever the worker owns, and no row is missing."""
    worker = worker_of_prices()
    async with owning(worker, owned):
        await fill(worker, owned)
        assert await worker.until(lambda: worker.app.tables.recovery.failures.last_at > 0)
        assert await worker.until(lambda: worker.at_rest)
        worker.send_prices(5, partition=1)
        assert await worker.until(lambda: worker.in_file(1) == 10), worker.in_file(1)


async def test_a_copy_that_could_not_be_written_becomes_an_owner_with_all_rows() -> None:
    """The worker reads the records that its database lacks before the source flows."""
    worker = worker_of_prices()
    async with owning(worker, [0]):
        await fill(worker, [0])
        assert await worker.until(lambda: worker.app.tables.recovery.failures.last_at > 0)
        assert await worker.until(lambda: worker.at_rest)
        await worker.give([0, 1])
        worker.send_orders(3, partition=1)
        assert await worker.until(lambda: worker.of(1) == [0, 1, 2])
        assert [worker.prices.get(f"price-{n}") for n in range(5)] == [7] * 5


async def test_a_copy_that_went_and_came_back_takes_rows_again() -> None:
    """Records that the former database lacked do not block the new one."""
    worker = worker_of_prices()
    async with owning(worker, [0]):
        await fill(worker, [0])
        assert await worker.until(lambda: worker.prices.data._lacking == {1})
        await worker.give([0])
        assert await worker.until(lambda: worker.at_rest)
        await worker.give([0], standbys=[1])
        worker.send_prices(5, partition=1)
        assert await worker.until(lambda: worker.in_file(1) == 10), worker.in_file(1)
