"""Rows of sets and of several partitions: waiting changes, models, and every database in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP

from faust_assigner.app.tables.disk import offset_or_minus_one
from faust_assigner.app.tables.files import TableStore
from faust_assigner.app.tables.windowed_tables import install
from tests.support.made_up_tables import MadeUp, answer, done, process
from tests.unit.app.tables.test_flushing import it as counts
from tests.unit.app.tables.test_flushing import rows, store_of
from tests.unit.app.tables.test_open_windows import in_files, look
from tests.unit.app.tables.test_sets import OFFSET, Sets
from tests.unit.app.tables.test_window_closing import Made, made

__all__ = ["counts", "made"]


@pytest.fixture(autouse=True)
def nothing_is_processed() -> Iterator[None]:
    """End the processing of a record after each test."""
    yield
    done()


class Point(faust.Record):
    """A place."""

    x: int
    y: int


async def test_a_set_that_is_read_again_has_the_changes_that_wait(tmp_path: Path) -> None:
    """Its row in the file lacks them until their records are acknowledged."""
    it = Sets(tmp_path)
    it.table["k"].update({1, 2})
    it.table["m"].add(3)
    it.table.data._take(0, b'"k"')
    assert (it.table["k"].data, it.table["m"].data) == ({1, 2}, {3})
    assert it.rows() == {}
    it.close()


async def test_the_elements_of_a_row_are_models_where_they_were(tmp_path: Path) -> None:
    """Each element is decoded by itself; an empty row and no row have none."""
    it = Sets(tmp_path)
    row = it.app.serializers.dumps_value(None, [Point(3, 4), 5, "six"], serializer="json")
    assert it.table.data._elements(row) == [Point(3, 4), 5, "six"]
    assert isinstance(it.table.data._elements(row)[0], Point)
    assert it.table.data._elements(None) == []
    assert it.table.data._elements(b"[]") == []


async def test_an_operation_on_a_set_in_memory_is_sent_once_and_stored_once(tmp_path: Path) -> None:
    """It is the operation that Faust sends."""
    it = Sets(tmp_path, "memory:///")
    it.table["k"].add(7)
    it.table["k"].add(8)
    assert [record.message.value for record in it.sent] == [b"7", b"8"]
    assert it.table["k"].data == {7, 8}


async def test_sets_of_all_owned_partitions_are_loaded(tmp_path: Path) -> None:
    """A partition of another worker is left out."""
    it = Sets(tmp_path)
    vars(it.app)["assignor"] = SimpleNamespace(
        assigned_actives=lambda: {it.log, TP(it.log.topic, 2)}
    )
    storage = it.table.data.storage
    for partition, row in ((2, b"[6,7]"), (1, b"[5]"), (0, b"[3]")):
        database = storage._db_for_partition(partition)
        database[b'"k%d"' % partition], database[OFFSET] = row, b"4"
    it.table.data.sync_from_storage()
    assert {key: it.table[key].data for key in ("k0", "k1", "k2")} == {
        "k0": {3},
        "k1": set(),
        "k2": {6, 7},
    }
    it.close()


async def test_the_changes_of_all_partitions_are_held(counts: MadeUp) -> None:
    """No file gets one until its partition is restored again."""
    store, table = store_of(counts), counts.tables["counts"]
    for partition in (0, 1):
        process(partition)
        table[f"k{partition}"] = 10 + partition
    store.flushing.hold()
    await answer(*((record, 5 + number) for number, record in enumerate(counts.sent)))
    assert (rows(counts, 0), rows(counts, 1)) == ({}, {})
    for partition in (0, 1):
        store.flushing.resume(partition)
    assert rows(counts, 0) == {b'"k0"': b"10", OFFSET: b"5"}
    assert rows(counts, 1) == {b'"k1"': b"11", OFFSET: b"6"}


async def test_a_key_that_was_not_seen_is_looked_for_in_the_order_of_partitions(
    counts: MadeUp,
) -> None:
    """A key that was seen last in a partition that has gone counts as not seen."""
    store = store_of(counts)
    store._dbs.clear()
    for partition in (1, 0):
        store._db_for_partition(partition)
    assert store._partitions_of(b"new") == [0, 1]
    store._key_index.update({b"here": 1, b"gone": 7})
    assert (store._partitions_of(b"here"), store._partitions_of(b"gone")) == ([1], [0, 1])


async def test_a_store_runs_on_the_loop_of_its_table(counts: MadeUp) -> None:
    """A service of another loop would wait for events of its own."""
    table = counts.tables["counts"]
    loop = asyncio.new_event_loop()
    try:
        table.loop = loop
        made = table._new_store_by_url("rocksdb://")
        assert made.loop is loop
        assert (made.table, made.app, made.table_name) == (table, counts.app, "counts")
        assert (made.key_type, made.value_type) == (str, int)
        assert (made.key_serializer, made.value_serializer) == (
            table.key_serializer,
            table.value_serializer,
        )
        assert isinstance(made, TableStore)
    finally:
        loop.close()


async def test_keys_that_are_no_windows_are_not_noted() -> None:
    """Neither is the file's offset, even if it decodes."""
    windows, files, _ = in_files(20.0)
    files.offset_key = b"40.0"  # type: ignore[assignment]
    files.waiting = [b"5.0", b"40.0", b"60.0"]
    key_of = files.key_of

    def other(raw: Any) -> Any:
        return "no window" if raw == b"60.0" else key_of(raw)

    files.key_of = other  # type: ignore[method-assign]
    assert await look(windows)
    assert sorted(windows._ends[0]) == [15.0, 30.0]


@pytest.mark.parametrize("error", [KeyError, ValueError, RuntimeError, TimeoutError, OSError])
@pytest.mark.parametrize("question", ["highwaters", "position"])
async def test_an_end_that_cannot_be_asked_for_is_not_reached(
    made: Made, monkeypatch: pytest.MonkeyPatch, error: type[Exception], question: str
) -> None:
    """Windows stay open; the worker goes on."""
    assert await made.it.sources.are_at_their_end(0)

    async def fail(*_: Any) -> None:
        raise error("no answer")

    monkeypatch.setattr(made.consumer, question, fail)
    assert await made.it.sources.are_at_their_end(0) is False


@pytest.mark.parametrize("given", [None, 0.0, 7.0])
@pytest.mark.parametrize("has_windows", [True, False])
async def test_a_retention_that_is_asked_for_is_kept(
    *, given: float | None, has_windows: bool
) -> None:
    """Also a retention of 0, and that of a table without windows."""
    app = faust.App("kept", broker="kafka://127.0.0.1:1", store="memory://")
    table = app.Table("counts", default=int)
    install(app, table)
    if has_windows:
        table.tumbling(10.0, expires=600.0)
    topic = table._new_changelog_topic(**({} if given is None else {"retention": given}))
    kept = 600.0 + 86_400.0 if given is None and has_windows else given
    assert topic.retention == kept


async def test_a_store_that_stops_writes_what_counts_and_closes_its_files(counts: MadeUp) -> None:
    """A change whose record has no answer is not in the file."""
    store, table = store_of(counts), counts.tables["counts"]
    process(1)
    table["a"], table["b"] = 5, 6
    await answer((counts.sent[0], 3))
    table["c"] = 7
    await store.stop()
    assert store._dbs == {}
    assert rows(counts, 1) == {b'"a"': b"5", OFFSET: b"3"}


@pytest.mark.parametrize(("offset", "at"), [(None, -1), (-1, -1), (0, 0), (7, 7)])
def test_the_first_offset_is_an_offset(offset: int | None, at: int) -> None:
    """Only a missing offset is before it: else the first record would be applied again."""
    assert offset_or_minus_one(offset) == at
