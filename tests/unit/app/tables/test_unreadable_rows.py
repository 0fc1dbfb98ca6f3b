"""An unreadable block among the rows: iterations raise its error, and the files are set aside."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.tables.files import ASIDE
from faust_assigner.app.tables.open_windows import OpenWindows
from faust_assigner.snapshots.sst import is_empty
from tests.unit.app.tables.test_files import Failing
from tests.unit.app.tables.test_files import it as it

ROWS = 2000


def fill(it: Failing, *, flipped: bool = True, at: float = 0.5) -> None:
    """Write rows and an offset to the file of partition 0; flip a byte of a block of rows."""
    store, draw = it.store, random.Random(1)
    database = store._db_for_partition(0)
    for number in range(ROWS):
        value = draw.randrange(1 << 62)
        database[store.raw_key(f"key-{number:05}")] = str(value).encode()
    store.set_persisted_offset(TP(it.topic, 0), 7)
    database.flush()
    store.close_partition(0)
    (path,) = store.partition_path(0).glob("*.sst")
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= flipped
    path.write_bytes(data)
    store._db_for_partition(0)


READS: list[Callable[[Any], object]] = [
    lambda table: list(table.items()),
    lambda table: list(table.keys()),
    lambda table: list(table.values()),
    len,
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("at", [0.0, 0.3])
def test_an_iteration_ends_with_the_error_of_an_unreadable_block(
    it: Failing, read: Callable[[Any], object], at: float
) -> None:
    """rocksdict's iterators end there as if no more rows followed: half a table looked whole."""
    fill(it, at=at)
    with pytest.raises(Exception, match="Corruption") as kept:
        read(it.table)
    assert [table for table, _ in it.told] == ["counts"]
    it.store.close_partition(0)
    it.store._db_for_partition(0)  # although the error, which Faust keeps, is still referenced
    assert kept.value.__traceback__ is not None
    assert it.store.partition_path(0).with_name(it.store.partition_path(0).name + ASIDE).exists()
    assert it.store.set_aside == {0: 1}
    assert read(it.table) in ([], 0)


@pytest.mark.parametrize("read", READS)
def test_readable_rows_end_without_a_report(it: Failing, read: Callable[[Any], Any]) -> None:
    """Faust's offset, which follows no row, is left out."""
    fill(it, flipped=False)
    found = read(it.table)
    assert (found if isinstance(found, int) else len(found)) == ROWS
    assert it.told == []


def test_a_database_that_was_closed_during_an_iteration_is_no_failure(it: Failing) -> None:
    """A rebalance may close it between two rows; the iteration still reads its rows."""
    fill(it, flipped=False)
    rows = iter(it.table.items())
    next(rows)
    it.store._dbs.pop(0).close()
    assert len(list(rows)) == ROWS - 1
    assert it.told == []


async def test_windows_behind_an_unreadable_block_are_looked_for_again(it: Failing) -> None:
    """They would stay open for ever; the recovery restores the rows first."""
    fill(it)
    windows = OpenWindows(it.table)
    assert not await windows.look_through(0, lambda: True)
    assert [table for table, _ in it.told] == ["counts"]
    it.store.close_partition(0)
    it.store._db_for_partition(0)
    assert await windows.look_through(0, lambda: True)


def test_a_database_with_an_unreadable_first_block_is_not_empty(it: Failing) -> None:
    """A snapshot would be loaded on top of its rows."""
    fill(it, at=0.0)
    with pytest.raises(Exception, match="Corruption"):
        is_empty(it.store._dbs[0])
