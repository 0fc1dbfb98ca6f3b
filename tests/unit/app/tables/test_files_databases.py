"""Databases open and close in threads while streams use others; real RocksDB, no broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.app.rebalance.positions import _offsets_of_open_databases
from faust_assigner.app.tables.files import open_for_streams
from tests.support.made_up_tables import MadeUp, answer, done, process


@pytest.fixture
def it(tmp_path: Path) -> Iterator[MadeUp]:
    """A table with both partitions restored."""
    made = MadeUp(tmp_path, "counts")
    for partition in range(2):
        made.tables["counts"].data.flushing.resume(partition)
    yield made
    made.close()
    done()


class Seen(dict[int, Any]):
    """Databases by partition, and the threads that added a database."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def __setitem__(self, partition: int, database: Any) -> None:
        self.threads.add(threading.get_ident())
        super().__setitem__(partition, database)


async def test_a_database_opened_in_a_thread_is_noted_by_the_streams_own(it: MadeUp) -> None:
    """The streams' thread may be iterating over the databases at this moment."""
    store = it.tables["counts"].data
    it.app.loop = asyncio.get_running_loop()
    databases = store._dbs = Seen()
    await asyncio.to_thread(open_for_streams, store, 1)
    assert (set(databases), databases.threads) == ({1}, {threading.get_ident()})


async def test_who_reads_all_rows_goes_on_while_partitions_come_and_go(it: MadeUp) -> None:
    """An agent may wait between two rows; a partition revoked meanwhile yields no further rows."""
    counts = it.tables["counts"]
    for partition, key in enumerate(("a", "b")):
        process(partition)
        counts[key] = 1
        await answer((it.sent[-1], 3))
    done()
    reading = iter(counts.items())
    assert next(reading) == ("a", 1)
    counts.data._dbs.pop(1).close()
    for partition in (2, 3):
        counts.data._db_for_partition(partition)
    assert list(reading) == []


class Closes:
    """The database of partition 0; during its read another thread closes partition 1."""

    def __init__(self, databases: dict[int, Any]) -> None:
        self.databases = databases

    def get(self, key: bytes) -> bytes:
        """Return the offset."""
        self.databases.pop(1).close()
        return b"5"

    def close(self) -> None:
        """Do nothing: no file is open."""


async def test_who_asks_how_far_databases_are_opens_none(it: MadeUp) -> None:
    """The join runs on the consumer's thread; a database closed meanwhile stays closed."""
    store = it.tables["counts"].data
    store._db_for_partition(1)
    store._dbs = {0: Closes(store._dbs), **store._dbs}
    store._dbs[0].databases = store._dbs
    assert _offsets_of_open_databases(store, "overlaid-counts-changelog") == {0: 5}
    assert set(store._dbs) == {0}
