"""Sets of several keys and partitions: their written rows and changed sets; real RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.tables.sets import WriteBehindSets
from tests.support.made_up_tables import answer, done, process
from tests.unit.app.tables.test_sets import ADD, DISCARD, OFFSET, UPDATE, Sets


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Sets]:
    """A table of sets with partition 1 open, too."""
    made = Sets(tmp_path)
    made.table.data.storage._db_for_partition(1)
    yield made
    made.close()
    done()


def rows(it: Sets, partition: int) -> dict[bytes, bytes]:
    """The file's rows of a partition, including the offset."""
    return dict(it.table.data.storage._db_for_partition(partition).items())


def record(it: Sets, partition: int, offset: int, operation: int, key: str, value: Any) -> Any:
    """A changelog record of another writer."""
    tp = TP(it.log.topic, partition)
    message = SimpleNamespace(tp=tp, partition=partition, offset=offset)
    return SimpleNamespace(key=[operation, key], value=value, message=message)


async def test_a_batch_changes_the_rows_of_each_partition_and_key(it: Sets) -> None:
    """Each file gets its own last offset; records already in a file are skipped."""
    it.table.data.storage._db_for_partition(1)[OFFSET] = b"4"
    it.table.data.storage._db_for_partition(1)[b'"k"'] = b"[9]"
    it.table.apply_changelog_batch(
        [
            record(it, 0, 0, ADD, "k", 1),
            record(it, 1, 4, ADD, "k", 5),
            record(it, 1, 5, ADD, "k", 6),
            record(it, 0, 1, ADD, "m", 2),
            record(it, 0, 2, UPDATE, "k", [[3, 4], [1]]),
            record(it, 1, 6, DISCARD, "k", 9),
            record(it, 0, 2, ADD, "m", 8),
        ]
    )
    assert rows(it, 0) == {b'"k"': b"[3,4]", b'"m"': b"[2]", OFFSET: b"2"}
    assert rows(it, 1) == {b'"k"': b"[6]", OFFSET: b"6"}
    assert it.table["m"].data == {2}
    assert it.table["k"].data == {6}, "the partition that came last in the batch"


async def test_sets_are_loaded_from_all_owned_rows(it: Sets) -> None:
    """A set without a row is empty; a set held by agents stays the same object."""
    held, gone = it.table["k"], it.table["gone"]
    it.read((0, ADD, 1))
    gone.data.add(7)
    it.table.data.storage._db_for_partition(0)[b'"k"'] = b"[4,5]"
    it.table.data.sync_from_storage()
    assert held.data == {4, 5}
    assert it.table["k"] is held
    it.table.data.dropped(0, {b'"gone"', b'"k"'})
    assert (gone.data, held.data) == (set(), {4, 5})
    it.table.data.dropped(7, {b'"k"'})
    assert held.data == set(), "its file is closed"


async def test_each_operation_is_sent_with_its_record_and_its_row(it: Sets) -> None:
    """The record has operation, key and value; the row is the set after the operation."""
    process(0)
    seen = it.table["k"]
    seen.add(1)
    seen.add(2)
    seen.discard(1)
    assert [(record.message.partition, record.message.value) for record in it.sent] == [
        (0, b"1"),
        (0, b"2"),
        (0, b"1"),
    ]
    overlay = it.table.data.storage.overlays[0]
    assert [(change.key, change.value) for change in overlay._pending] == [
        (b'"k"', b"[1]"),
        (b'"k"', b"[1,2]"),
        (b'"k"', b"[2]"),
    ]
    await answer((it.sent[0], 5), (it.sent[1], 6))
    assert rows(it, 0) == {b'"k"': b"[1,2]", OFFSET: b"6"}


async def test_replayed_sets_in_memory_are_stored_key_by_key(tmp_path: Path) -> None:
    """The end of a recovery loads the sets from these rows."""
    it = Sets(tmp_path, "memory:///")
    it.table.apply_changelog_batch(
        iter([record(it, 0, 0, ADD, "k", 1), record(it, 0, 1, ADD, "m", 2)])
    )
    assert set(it.table.data.storage) == {"k", "m"}
    await it.table.data.on_recovery_completed(set(), set())
    assert (it.table["k"].data, it.table["m"].data) == ({1}, {2})
    given = [record(it, 0, 2, ADD, "n", 3)]
    it.table.data.apply_changelog_batch(given, str.upper, lambda value: value + 1)
    assert {key: set(it.table.data.storage[key]) for key in "kmN"} == {"k": {1}, "m": {2}, "N": {4}}
    done()


async def test_a_set_whose_file_is_closed_is_empty_and_opens_no_file(it: Sets) -> None:
    """The set is loaded when the file is opened again; other keys keep their elements."""
    it.table.apply_changelog_batch(
        [
            record(it, 1, 0, ADD, "k", 6),
            record(it, 1, 1, ADD, "m", 7),
            record(it, 1, 2, ADD, "m", 8),
        ]
    )
    storage = it.table.data.storage
    it.table.data.dropped(1, {b'"k"', b'"m"'})
    assert (it.table["k"].data, it.table["m"].data) == ({6}, {7, 8})
    storage._dbs.pop(1).close()
    it.table.data.dropped(1, {b'"k"'})
    assert (it.table["k"].data, it.table["m"].data) == (set(), {7, 8})
    assert 1 not in storage._dbs


def test_rows_of_sets_are_written_and_read_with_the_tables_own_serializer() -> None:
    """A row is a list of the value type; its elements are decoded one by one without a type."""
    said: list[Any] = []

    def dumps(*given: Any, **how: Any) -> bytes:
        said.append((*given, how))
        return b"row"

    def loads(*given: Any, **how: Any) -> Any:
        said.append((*given, how))
        return [3, 4] if given[1] else None

    app = SimpleNamespace(serializers=SimpleNamespace(dumps_value=dumps, loads_value=loads))
    sets: Any = WriteBehindSets()
    sets.table = SimpleNamespace(app=app)
    sets.storage = SimpleNamespace(
        app=app, value_type="type", value_serializer="values", key_serializer="keys"
    )
    assert sets._row_of(SimpleNamespace(as_stored_value=lambda: [1, 2])) == b"row"
    assert (sets._elements(b"row"), sets._elements(None)) == ([3, 4], [])
    assert said == [
        ("type", [1, 2], {"serializer": "values"}),
        (None, b"row", {"serializer": "values"}),
        (None, None, {"serializer": "values"}),
    ]


class GlobalSets(Sets):
    """A global table of sets, whose two partitions are restored."""

    is_global = True


async def test_a_set_of_a_global_table_has_the_elements_of_all_partitions(tmp_path: Path) -> None:
    """In stock, too, records of several partitions change one set."""
    it = GlobalSets(tmp_path)
    held = it.table["k"]
    it.table.apply_changelog_batch([record(it, 0, 0, ADD, "k", 1), record(it, 1, 0, ADD, "k", 2)])
    assert held.data == {1, 2}
    process(0)
    held.add(3)
    assert held.data == {1, 2, 3}
    await answer((it.sent[0], 1))
    assert rows(it, 0) == {b'"k"': b"[1,3]", OFFSET: b"1"}, "without the other partition's elements"
    assert rows(it, 1) == {b'"k"': b"[2]", OFFSET: b"0"}
    it.table.apply_changelog_batch(
        [record(it, 1, 1, DISCARD, "k", 2), record(it, 1, 2, ADD, "k", 3)]
    )
    assert held.data == {1, 3}
    it.table.apply_changelog_batch([record(it, 1, 3, DISCARD, "k", 3)])
    assert held.data == {1, 3}, "the other partition's row has the element, too"
    it.close()
    again = GlobalSets(tmp_path)
    again.table.data.storage._db_for_partition(0)
    again.table.apply_changelog_batch([record(again, 1, 4, ADD, "k", 4)])
    await again.table.data.on_recovery_completed(set(), set())
    assert again.table["k"].data == {1, 3, 4}
    again.close()
    done()
