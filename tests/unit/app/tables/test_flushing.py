"""Changes of several partitions, tables and producers over files: the writes and their times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.stores.rocksdb import Store as RocksDBStore
from faust.types import TP

from faust_assigner.app.tables import flushing
from faust_assigner.app.tables import landing as module
from faust_assigner.app.tables.changes import NO_RECORD, Change
from faust_assigner.app.tables.landing import FlushMode
from faust_assigner.app.tables.store import WriteBehindStore
from faust_assigner.app.transactions.shares import Share
from tests.support.made_up_tables import MadeUp, answer, done, process
from tests.unit.app.tables.test_write_behind import Store, Table

OFFSET = b"__faust\0offset__"
A, B, C = b'"a"', b'"b"', b'"c"'


@pytest.fixture
def it(tmp_path: Path) -> Iterator[MadeUp]:
    """A table with both partitions restored."""
    made = MadeUp(tmp_path, "counts")
    for partition in range(2):
        made.tables["counts"].data.flushing.resume(partition)
    yield made
    made.close()
    done()


def store_of(it: MadeUp) -> Any:
    """Return the table's store."""
    return it.tables["counts"].data


def rows(it: MadeUp, partition: int) -> dict[bytes, bytes]:
    """The file's rows of a partition, including the offset."""
    return dict(store_of(it)._db_for_partition(partition).items())


def changelog_record(partition: int, offset: int, key: bytes, value: bytes | None) -> Any:
    """Return a record of another writer."""
    tp = TP("overlaid-counts-changelog", partition)
    message = SimpleNamespace(tp=tp, partition=partition, offset=offset, key=key, value=value)
    return SimpleNamespace(message=message)


async def test_answers_of_one_moment_are_one_write_for_each_partition(
    it: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are written in order; later answers are written later."""
    store, counts, flushed = store_of(it), it.tables["counts"], list[int]()
    flush = store.flushing.flush
    monkeypatch.setattr(
        store.flushing, "flush", lambda partition: flushed.append(partition) or flush(partition)
    )
    for partition in (1, 0, 1):
        process(partition)
        counts[f"k{len(it.sent)}"] = partition
    await answer(*((record, 5 + number) for number, record in enumerate(it.sent)))
    assert flushed == [0, 1]
    assert rows(it, 0) == {b'"k1"': b"0", OFFSET: b"6"}
    assert rows(it, 1) == {b'"k0"': b"1", b'"k2"': b"1", OFFSET: b"7"}
    process(0)
    counts["late"] = 4
    await answer((it.sent[-1], 9))
    assert flushed == [0, 1, 0]
    assert rows(it, 0)[OFFSET] == b"9"


async def test_answers_of_a_producer_in_a_thread_reach_the_loop(it: MadeUp) -> None:
    """Only the loop changes the store; a record of another table is ignored."""
    store, calls = store_of(it), list[Any]()
    it.app.loop = SimpleNamespace(call_soon_threadsafe=lambda *call: calls.append(call))
    store.in_other_thread = True
    process(0)
    it.tables["counts"]["a"] = 1
    (record,) = it.sent
    record.set_result(SimpleNamespace(offset=3))
    store.arrived(record)
    assert rows(it, 0) == {}
    ((arrived, given),) = calls
    assert given is record
    arrived(given)
    arrived(SimpleNamespace())
    await asyncio.sleep(0)
    assert rows(it, 0) == {A: b"1", OFFSET: b"3"}


async def test_a_key_that_changed_twice_is_written_with_its_last_value(it: MadeUp) -> None:
    """The offset is the last of all; changes written by a replay are not written again."""
    database = SimpleNamespace(written=[])
    changes = []
    for key, value, offset in (
        (A, b"1", 4),
        (B, b"2", 5),
        (A, b"3", 7),
        (C, b"4", NO_RECORD),
        (B, None, 6),
    ):
        change = Change(key, value, 1, None)
        change.offset = offset
        changes.append(change)
    written: list[Any] = []
    patched = pytest.MonkeyPatch()
    patched.setattr(module, "write", lambda *given: written.append(given))
    store = store_of(it)
    try:
        for before, some in ((4, changes), (7, changes), (9, changes[:2])):
            module.land(database, store.offset_key, before, some)  # type: ignore[arg-type]
    finally:
        patched.undo()
    key = store.offset_key
    assert written == [
        (database, {B: None, A: b"3", C: b"4"}, (key, 7)),
        (database, {C: b"4"}, None),
        (database, {}, None),
    ]


@pytest.mark.parametrize(
    ("changed", "offset", "expected"),
    [
        ({A: b"1", B: None}, 7, {A: b"1", C: b"old", OFFSET: b"7"}),
        ({A: b""}, None, {A: b"", B: b"old", C: b"old"}),
        ({}, 0, {B: b"old", C: b"old", OFFSET: b"0"}),
        ({}, None, {B: b"old", C: b"old"}),
    ],
)
def test_rows_and_offset_are_one_write(
    it: MadeUp, changed: Any, offset: int | None, expected: dict[bytes, bytes]
) -> None:
    """None deletes, an empty value stays; without rows and offset there is no write."""
    database = store_of(it)._db_for_partition(0)
    database[B], database[C] = b"old", b"old"
    module.write(database, changed, None if offset is None else (OFFSET, offset))
    assert dict(database.items()) == expected


async def test_records_of_several_partitions_are_applied_to_their_files(it: MadeUp) -> None:
    """Each file gets its own last offset, and the last record of a key counts."""
    store = store_of(it)
    store._db_for_partition(1)[OFFSET] = b"6"
    store.apply_changelog_batch(
        [
            changelog_record(1, 7, A, b"1"),
            changelog_record(0, 3, A, b"2"),
            changelog_record(1, 6, B, b"old"),
            changelog_record(0, 2, B, b"3"),
            changelog_record(1, 9, A, None),
            changelog_record(1, 8, C, b"5"),
            changelog_record(0, 4, A, b"6"),
        ],
        bytes,
        bytes,
    )
    assert rows(it, 0) == {A: b"6", B: b"3", OFFSET: b"4"}
    assert rows(it, 1) == {C: b"5", OFFSET: b"9"}


async def test_without_an_overlay_records_are_applied_as_in_faust(
    it: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust's method gets the decoding functions."""
    applied: list[Any] = []
    monkeypatch.setattr(
        RocksDBStore, "apply_changelog_batch", lambda self, *given: applied.append(given)
    )
    store = store_of(it)
    store.usage = None
    event = changelog_record(1, 3, A, b"1")
    store.apply_changelog_batch([event], "to key", "to value")
    assert applied == [([event], "to key", "to value")]
    with pytest.raises(RuntimeError, match="no overlay"):
        store.overlay_of(5)


async def test_a_pause_is_of_the_named_partitions(it: MadeUp) -> None:
    """Acknowledged changes are written first; a hold writes none. Without names all pause."""
    counts, store = it.tables["counts"], store_of(it)
    for partition in range(2):
        process(partition)
        counts["a"] = partition
    for offset, record in enumerate(it.sent):
        record.set_result(SimpleNamespace(offset=offset))
        store._arrived(record)
    store.flushing.pause([1, 7])
    assert (rows(it, 0), rows(it, 1)) == ({}, {A: b"1", OFFSET: b"1"})
    assert [store.overlays[partition].lands for partition in range(2)] == [True, False]
    store.flushing.hold()
    store.flushing.flush(0)
    assert rows(it, 0) == {}
    store.flushing.resume(0)
    store.flushing.pause()
    assert rows(it, 0) == {A: b"0", OFFSET: b"0"}
    assert [overlay.lands for overlay in store.overlays.values()] == [False, False]
    assert 7 not in store.overlays


async def test_a_discard_is_of_the_named_partitions(it: MadeUp) -> None:
    """Their unanswered changes are dropped; changes of the other partition wait."""
    counts, store = it.tables["counts"], store_of(it)
    for partition in range(2):
        process(partition)
        counts["a"], counts["b"] = partition, partition
    it.sent[2].set_result(SimpleNamespace(offset=8))
    store._arrived(it.sent[2])
    store.flushing.discard([1])
    assert rows(it, 1) == {A: b"1", OFFSET: b"8"}
    assert [len(store.overlays[partition]) for partition in range(2)] == [2, 0]
    store.flushing.discard()
    assert [len(store.overlays[partition]) for partition in range(2)] == [0, 0]
    store.flushing.drop(9)
    assert store.overlays.keys() == {0, 1}


async def test_a_dropped_transaction_is_reported_and_lets_the_others_land(tmp_path: Path) -> None:
    """Each touched partition is in the transaction once; a paused store writes nothing."""
    one, other = shares = [Share(line, begun=True) for line in ("one", "other")]
    it = MadeUp(tmp_path, "counts", share=lambda: shares[0])
    store, counts, told = store_of(it), it.tables["counts"], list[Any]()
    for partition in (0, 1):
        store.flushing.resume(partition)
        process(partition)
        counts["a"], counts["b"] = 1, 2
    assert one.changed == {(store, 0), (store, 1)}
    shares.reverse()
    process(0)
    counts["c"] = 3
    await answer((it.sent[-1], 4))
    other.commit()
    counts._data = SimpleNamespace(dropped=lambda *given: told.append(given))
    store.flushing.hold()
    store.flushing.drop(0, other)
    store.flushing.drop(0, one)
    assert rows_in(store, 0) == {}
    assert told == [(0, {C}), (0, {A, B})]
    store.flushing.drop(0, one)
    assert len(told) == 2, "nothing is left of it"
    counts._data = store
    it.close()
    done()


def rows_in(store: Any, partition: int) -> dict[bytes, bytes]:
    """The file's rows of a partition."""
    return dict(store._db_for_partition(partition).items())


def test_a_row_is_read_from_the_partition_of_the_record(it: MadeUp) -> None:
    """Without a record, or with several writers, the key's last partition counts, else all."""
    store = store_of(it)
    for partition in (0, 1):
        store._db_for_partition(partition)[A] = b"%d" % partition
    store._db_for_partition(1)[B] = b"one"
    process(0)
    assert (store._get(A), store._get(B)) == (b"0", None)
    assert store._key_index[A] == 0
    it.tables["counts"].use_partitioner = True
    assert (store._get(B), store._key_index[B]) == (b"one", 1)
    it.tables["counts"].use_partitioner, it.tables["counts"].is_global = False, True
    store._key_index[A] = 1
    assert store._get(A) == b"1"
    done()
    it.tables["counts"].is_global = False
    store._key_index[A] = 7
    assert (store._get(A), store._key_index[A]) == (b"0", 0)
    assert store._get(C) is None
    assert store._partitions_of(C) == [0, 1]
    assert store._partitions_of(B) == [1]


async def test_each_file_is_seen_with_its_own_changes(it: MadeUp) -> None:
    """Rows come in key order without deletions; a file without changes is unchanged."""
    counts, store = it.tables["counts"], store_of(it)
    for partition in (0, 1):
        store._db_for_partition(partition)[B] = b"5"
    process(0)
    counts["c"], counts["a"] = 1, 2
    del counts["b"]
    first, second = (store._db_for_partition(partition) for partition in (0, 1))
    assert list(store._visible_items(first)) == [(A, b"2"), (C, b"1")]
    assert list(store._visible_keys(first)) == [A, C]
    assert list(store._visible_items(second)) == [(B, b"5")]
    assert list(store._visible_keys(second)) == [B]
    assert (sorted(store.waiting_rows(0)), store.waiting_rows(1)) == ([A, C], [])
    assert (store.file_row(0, B), store.row_of(0, B), store.row_of(0, A)) == (b"5", None, b"2")
    assert store._contains(A)
    assert not store._contains(B)


async def test_a_change_opens_its_database_and_remembers_where_its_key_is(it: MadeUp) -> None:
    """Readers search open databases; a change with a record waits for its answer."""
    store = store_of(it)
    for partition in list(store._dbs):
        store._dbs.pop(partition).close()
    process(1)
    it.tables["counts"]["a"] = 1
    assert (list(store._dbs), store._key_index[A]) == ([1], 1)
    assert [change.offset for change in store.overlays[1]._pending] == [None]
    store._set(B, b"9")
    assert [change.offset for change in store.overlays[1]._pending] == [None, NO_RECORD]
    store._del(A)
    assert [change.value for change in store.overlays[1]._pending] == [b"1", b"9", None]


@pytest.mark.parametrize("mode", list(FlushMode), ids=str)
def test_the_flush_mode_says_which_partition_a_record_changes(it: MadeUp, mode: FlushMode) -> None:
    """In the mode APART it is the processed record's partition, otherwise the record's own."""
    store = store_of(it)
    store.flush_mode = mode
    record = SimpleNamespace(message=SimpleNamespace(partition=1))
    process(0)
    assert store._place_of(record) == (0 if mode is FlushMode.APART else 1)
    done()
    assert store._place_of(record) == 1


async def test_a_record_stands_for_the_change_of_its_own_key_alone(it: MadeUp) -> None:
    """A change of another key is separate; a second call is a new change."""
    store, made = store_of(it), list[Any]()
    store._change = lambda *given: made.append(given)
    record = SimpleNamespace(message=SimpleNamespace(partition=1, key=A, value=b"1"))
    store.sent(record)
    assert store._is_made(A, b"1")
    assert not store._is_made(A, b"1")
    store.sent(record)
    assert not store._is_made(B, b"2")
    it.tables["counts"]._data = "sets"
    store.sent(record)
    assert store._is_made(C, b"3")
    assert not store._is_made(C, b"3")
    it.tables["counts"]._data = store
    assert made == [(1, A, b"1", record)] * 2 + [(1, C, b"3", record)]


@pytest.mark.parametrize("value", [b"1", b"", None])
def test_a_sent_row_is_made_once_whatever_its_value(it: MadeUp, value: bytes | None) -> None:
    """An empty row and a row without a value are changes too: the second call makes nothing."""
    store, made = store_of(it), list[Any]()
    store._change = lambda *given: made.append(given)
    record = SimpleNamespace(message=SimpleNamespace(partition=1, key=A, value=value))
    process(1)
    store.sent(record)
    store._set(A, value)
    assert (made, store._made, store._sent) == ([(1, A, value, record)], None, None)


def test_a_store_without_changes_is_faust_s(it: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads use Faust's code while no partition has an overlay."""
    store = store_of(it)
    store.overlays.clear()
    monkeypatch.setattr(RocksDBStore, "_get", lambda self, key: b"got " + key)
    monkeypatch.setattr(RocksDBStore, "_contains", lambda self, key: key == A)
    assert WriteBehindStore._get(store, A) == b"got " + A
    assert [WriteBehindStore._contains(store, key) for key in (A, B)] == [True, False]


async def test_changes_answered_before_the_restore_s_end_are_no_doubt(it: MadeUp) -> None:
    """The replay covers changes up to the file's offset; later changes are written at once."""
    doubts: list[Any] = []
    it.app.tables._recovery = SimpleNamespace(
        consistency=SimpleNamespace(doubt=lambda *given: doubts.append(given))
    )
    counts, store = it.tables["counts"], store_of(it)
    process(0)
    counts["a"], counts["b"] = 1, 2
    store.flushing.hold()
    await answer((it.sent[0], 7), (it.sent[1], 10))
    store.set_persisted_offset(TP("overlaid-counts-changelog", 0), 9)
    store.flushing.resume(0)
    assert (doubts, rows(it, 0)) == ([], {B: b"2", OFFSET: b"10"})
    assert len(store.overlays[0]) == 0


async def test_a_key_is_looked_for_where_it_was_changed_last(it: MadeUp) -> None:
    """A row of the same key in another partition is another row."""
    counts, store = it.tables["counts"], store_of(it)
    for partition in (0, 1, 0, 1):
        process(partition)
        counts["a"] = partition
        assert store._partitions_of(A) == [partition]
    done()
    assert store._get(A) == b"1"


def tables_of(app: Any) -> tuple[Store, Store, Store]:
    """Give ``app`` a table, a table of sets, a table without overlay and a table in memory."""
    plain, sets, off = Store(0, 1, 2, usage="room"), Store(1, 3, usage="room"), Store(1)
    for name, data in (
        ("plain", plain),
        ("sets", SimpleNamespace(storage=sets)),
        ("off", off),
        ("memory", {}),
    ):
        app.tables[name] = Table(app, topic=f"{name}-log", data=data)
    return plain, sets, off


def test_calls_reach_every_table_with_an_overlay() -> None:
    """Sets have their rows in a storage; other stores get no call."""
    app = SimpleNamespace(tables={})
    plain, sets, off = tables_of(app)
    assert list(flushing.write_behind_stores(app)) == [("plain-log", plain), ("sets-log", sets)]
    flushing.pause(app)
    flushing.pause(app, [3, 1])
    flushing.hold(app)
    flushing.discard(app)
    expected = [("pause", None), ("pause", [3, 1]), ("hold",), ("discard",)]
    assert (plain.acts, sets.acts, off.acts) == (expected, expected, [])


def test_partitions_are_resumed_and_discarded_by_their_topics() -> None:
    """Partition numbers are separate per table; kept partitions resume in order."""
    app = SimpleNamespace(tables={})
    plain, sets, off = tables_of(app)
    actives = {TP("plain-log", 2), TP("plain-log", 0), TP("sets-log", 1), TP("off-log", 1)}
    flushing.resume(app, actives)
    assert plain.acts == [("resume", 0), ("resume", 2)]
    assert (sets.acts, off.acts) == ([("resume", 1)], [])
    plain.acts.clear(), sets.acts.clear()
    flushing.retain_partitions(app, actives, {TP("plain-log", 2)})
    assert plain.acts == [("discard", [1]), ("resume", 2)]
    assert (sets.acts, off.acts) == ([("discard", [3])], [])
