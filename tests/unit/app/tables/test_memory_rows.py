"""Tables in memory: batches of replayed records, and the rows of revoked partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.tables.memory_rows import revoked
from faust_assigner.app.tables.write_behind import install_write_behind
from tests.support.made_up_tables import MadeUp, done, process

LOG = "overlaid-rows-changelog"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Any]:
    """A table in memory, without a worker."""
    app = MadeUp(tmp_path).app
    made = app.Table("rows", key_type=str, value_type=int, partitions=2, store="memory://rows")
    install_write_behind(made)
    yield made
    done()


def event(key: str | None, value: object, partition: int = 0) -> Any:
    """A replayed record; a value of None deletes."""
    raw = [None if part is None else str(part).encode() for part in (key, value)]
    message = SimpleNamespace(key=raw[0], value=raw[1], partition=partition)
    return SimpleNamespace(key=key, value=value, message=message)


@pytest.mark.parametrize("value", [0, "", False, [], {}, 7])
def test_a_row_that_is_deleted_and_set_in_one_batch_stays(table: Any, value: object) -> None:
    """Faust deletes the row at the end of the batch if its value is 0 or empty."""
    table.apply_changelog_batch([event("a", 1), event("a", None), event("a", value)])
    assert dict(table.data.data) == {"a": value}


def test_a_row_that_is_set_and_deleted_in_one_batch_is_gone(table: Any) -> None:
    """The last record of a key counts; a deletion of a missing row has no effect."""
    table.apply_changelog_batch([event("a", 0), event("b", 5), event("a", None), event("c", None)])
    assert dict(table.data.data) == {"b": 5}


def test_a_record_without_a_key_is_no_row(table: Any) -> None:
    """The recovery reports the record as unreadable, as it does for tables in files."""
    with pytest.raises(TypeError, match="missing key"):
        table.apply_changelog_batch([event("a", 1), event(None, 5)])
    assert dict(table.data.data) == {"a": 1}


def revoke(table: Any, *tps: TP) -> None:
    """Revoke partitions of a worker with one table."""
    revoked({TP(LOG, number): table for number in range(3)}, {*tps})


async def test_the_rows_of_a_revoked_partition_are_dropped(table: Any) -> None:
    """Replayed rows and the rows of agents: the next owner changes and deletes them."""
    table.apply_changelog_batch([event("a", 1), event("b", 2, 1)])
    for partition, key in ((0, "c"), (1, "d")):
        process(partition)
        table[key] = partition
    revoke(table, TP(LOG, 0))
    assert dict(table.data.data) == {"b": 2, "d": 1}
    assert table.data.partitions == {"b": 1, "d": 1}


def test_the_rows_of_all_revoked_partitions_are_found_in_one_pass(table: Any) -> None:
    """Fifty passes over a million rows would stop the worker for more than a second."""

    class Rows(dict[str, int]):
        passes = 0

        def items(self) -> Any:
            self.passes += 1
            return super().items()

    table.apply_changelog_batch([event(str(number), 7, number) for number in range(3)])
    table.data.partitions = rows = Rows(table.data.partitions)
    revoke(table, TP(LOG, 0), TP(LOG, 2))
    assert dict(table.data.data) == {"1": 7}
    assert rows.passes == 1


async def test_a_deleted_row_leaves_no_note_of_its_partition(table: Any) -> None:
    """Otherwise a table with ever new keys would grow without end."""
    process(0)
    table["a"] = 1
    del table["a"]
    table.apply_changelog_batch([event("b", 1, 1), event("b", None, 1)])
    assert table.data.partitions == {}


async def test_the_partition_of_the_latest_change_counts(table: Any) -> None:
    """A key may move to another partition."""
    process(0)
    table["a"] = 1
    process(1)
    table["a"] = 2
    revoke(table, TP(LOG, 0))
    assert dict(table.data.data) == {"a": 2}


async def test_a_revoked_partition_without_a_table_drops_no_row(table: Any) -> None:
    """Source partitions are revoked too."""
    process(0)
    table["a"] = 1
    revoke(table, TP("source", 0))
    assert dict(table.data.data) == {"a": 1}


def test_a_function_in_place_of_the_tables_method_stays(table: Any) -> None:
    """A test of an app may put a mock there before the first access to the rows."""
    table.send_changelog = send_changelog = SimpleNamespace()
    assert dict(table.data.data) == {}
    assert table.send_changelog is send_changelog


async def test_a_row_whose_partition_the_producer_chooses_stays_with_its_agents(
    tmp_path: Path,
) -> None:
    """With use_partitioner the row's partition may move away while the agents continue to count."""
    app = MadeUp(tmp_path).app
    app._producer.key_partition = lambda topic, key: TP(topic, 0)
    made = app.Table(
        "rows", key_type=str, value_type=int, store="memory://rows", use_partitioner=True
    )
    install_write_behind(made)
    made.apply_changelog_batch([event("b", 2)])
    process(1)
    made["a"] = 7
    revoke(made, TP(LOG, 0))
    assert dict(made.data.data) == {"a": 7}, "a replayed row is dropped, as in Faust"
    done()
