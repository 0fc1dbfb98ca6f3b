"""The positions of a member's state in its join metadata."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from faust.stores.rocksdb import Store
from faust.types import TP

from faust_assigner.app.rebalance import member, positions
from faust_assigner.app.rebalance.positions import positions_of
from faust_assigner.app.tables import disk
from faust_assigner.wire.bounded import USER_DATA_BYTES
from faust_assigner.wire.join import JoinData, decode_join
from tests.support.faust_group import make_app

LOG = "shop-totals-changelog"


def rocksdb_app(folder: Path, **options: Any) -> Any:
    """Return an app with a RocksDB table under ``folder``."""
    return make_app(
        "http://w", tables=["totals"], datadir=str(folder), store="rocksdb://", **options
    )


def write(app: Any, partition: int, offset: int | None, *, close: bool = True) -> Any:
    """Write a database as Faust does, with ``offset`` unless None."""
    store = app.tables["totals"].data
    path = store.partition_path(partition)
    path.parent.mkdir(parents=True, exist_ok=True)
    database = store.rocksdb_options.open(path)
    database[b"k"] = b"v"
    if offset is not None:
        database[Store.offset_key] = str(offset).encode()
    if close:
        database.close()
    return database


def test_files_say_how_far_they_have_come(tmp_path: Path) -> None:
    """The position is the next offset; without an offset or a file there is no position."""
    app = rocksdb_app(tmp_path)
    write(app, 0, 41)
    write(app, 1, 0)
    write(app, 2, None)
    assert positions_of(app, {LOG: {0, 1, 2, 7}}) == {LOG: {0: 42, 1: 1}}


def test_what_this_member_does_not_hold_is_not_told(tmp_path: Path) -> None:
    """An old folder is no state of the group."""
    app = rocksdb_app(tmp_path)
    write(app, 0, 41)
    app.tables.recovery.active_offsets[TP(LOG, 3)] = 9
    assert positions_of(app, {LOG: set()}) == {}


def test_a_copy_has_come_as_far_as_it_was_when_a_round_was_asked_for(tmp_path: Path) -> None:
    """For a log without records only the request has the position; unheld copies are left out."""
    app = rocksdb_app(tmp_path)
    write(app, 0, 41)
    app.assignor.read_to = {TP(LOG, 0): 40, TP(LOG, 1): 500, TP(LOG, 2): 9, TP("other", 1): 700}
    assert positions_of(app, {LOG: {0, 1}}) == {LOG: {0: 42, 1: 500}}


def test_a_file_that_somebody_has_open_is_read_all_the_same(tmp_path: Path) -> None:
    """The file's owner can continue to write."""
    app = rocksdb_app(tmp_path)
    database = write(app, 0, 41, close=False)
    database.flush()
    assert positions_of(app, {LOG: {0}}) == {LOG: {0: 42}}
    database[b"more"] = b"1"
    database.close()


def test_closed_files_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening blocks all threads for milliseconds; a changed file is opened again."""
    app, opened = rocksdb_app(tmp_path), list[str]()
    open_ = positions._for_reading

    def counted(store: Any, path: Path) -> Any:
        opened.append(path.name)
        return open_(store, path)

    monkeypatch.setattr(positions, "_for_reading", counted)
    write(app, 0, 41)
    write(app, 1, 41)
    for _ in range(3):
        assert positions_of(app, {LOG: {0, 1}}) == {LOG: {0: 42, 1: 42}}
    assert sorted(opened) == ["totals-0.db", "totals-1.db"]
    write(app, 1, 57)
    assert positions_of(app, {LOG: {0, 1}}) == {LOG: {0: 42, 1: 58}}
    assert len(opened) == 3


def test_a_file_that_cannot_be_read_counts_as_far_behind(tmp_path: Path) -> None:
    """The failure raises no error, and the other positions are reported."""
    app = rocksdb_app(tmp_path)
    write(app, 0, 41)
    write(app, 1, 41)
    for file in app.tables["totals"].data.partition_path(0).iterdir():
        file.write_bytes(b"junk")
    assert positions_of(app, {LOG: {0, 1}}) == {LOG: {1: 42}}


def test_reading_files_takes_no_longer_than_it_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The remaining files count as far behind, and the log reports them."""
    opened = Mock(side_effect=AssertionError)
    assert disk.stored_offsets(opened, {0: tmp_path, 1: tmp_path}, budget_s=-1.0) == {}
    assert "0 of 2 table files" in caplog.text
    assert not opened.called


def test_an_open_table_is_asked_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is the database's offset, or the recovery's offset if higher."""
    app = rocksdb_app(tmp_path)
    monkeypatch.setattr(positions, "_for_reading", opened := Mock())
    store = app.tables["totals"].data
    for partition, offset in ((0, 10), (1, 20), (2, 30)):
        store.set_persisted_offset(TP(LOG, partition), offset)
    app.tables.recovery.standby_offsets[TP(LOG, 1)] = 25
    app.tables.recovery.standby_offsets[TP(LOG, 2)] = None
    app.tables.recovery.active_offsets[TP(LOG, 0)] = 5
    app.tables.recovery.active_offsets[TP("other", 0)] = 99
    assert positions_of(app, {LOG: {0, 1, 2}}) == {LOG: {0: 11, 1: 26, 2: 31}}
    assert not opened.called
    store.close_partition(0)


def test_a_database_that_is_closed_meanwhile_hides_no_other() -> None:
    """A different thread closes the database between the listing and the read."""
    closed, there = Mock(), Mock()
    closed.get.side_effect = RuntimeError("closed")
    there.get.return_value = b"7"
    store = Mock(_dbs={0: closed, 1: there})
    assert positions._offsets_of_open_databases(store, LOG) == {1: 7}


def test_what_could_not_be_written_is_not_told(tmp_path: Path) -> None:
    """The position is the database's offset, regardless of the read offset."""
    app = rocksdb_app(tmp_path)
    app.tables["totals"].data.set_persisted_offset(TP(LOG, 0), 10)
    app.tables.recovery.standby_offsets[TP(LOG, 0)] = 25
    app.assignor.read_to = {TP(LOG, 0): 30}
    assert positions_of(app, {LOG: {0}}) == {LOG: {0: 30}}
    app.tables.recovery.is_doubtful = {TP(LOG, 0)}.__contains__
    assert positions_of(app, {LOG: {0}}) == {LOG: {0: 11}}


def test_what_is_written_and_not_yet_committed_counts(tmp_path: Path) -> None:
    """Under exactly_once the database gets an owner's offset at the commit, after the changelog."""
    app = rocksdb_app(tmp_path)
    store = app.tables["totals"].data
    for partition in (0, 1):
        store.set_persisted_offset(TP(LOG, partition), 10)
    for tp, offset in ((TP(LOG, 0), 99), (TP(LOG, 1), 9), (TP("other", 1), 500)):
        app.tables.persist_offset_on_commit(store, tp, offset)
    assert positions_of(app, {LOG: {0, 1}}) == {LOG: {0: 100, 1: 11}}


def test_an_owner_that_is_being_restored_tells_where_its_log_ends(tmp_path: Path) -> None:
    """The end measures the standbys' lag; a standby reports its own position instead."""
    app = rocksdb_app(tmp_path)
    for partition in (0, 1, 2):
        app.tables.recovery.active_highwaters[TP(LOG, partition)] = 999
    app.tables.recovery.active_offsets[TP(LOG, 0)] = 300
    app.tables.recovery.standby_offsets[TP(LOG, 1)] = 400
    app.tables.recovery.active_highwaters[TP(LOG, 2)] = None
    assert positions_of(app, {LOG: {0, 1, 2}}, {LOG: {0, 2}}) == {LOG: {0: 1000, 1: 401}}


def test_tables_in_memory_are_not_waited_for(tmp_path: Path) -> None:
    """Memory tables are replayed after each move, so their owner reports no end."""
    app = make_app("http://w", tables=["totals"], datadir=str(tmp_path), store="memory://")
    app.tables.recovery.active_offsets[TP(LOG, 0)] = 10**6
    assert positions_of(app, {LOG: {0}}) == {}


def test_a_member_that_cannot_tell_says_so_and_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The group does not wait for its copies."""
    app = rocksdb_app(tmp_path)
    monkeypatch.setattr(member, "positions_of", Mock(side_effect=ZeroDivisionError))
    data = member.collect_join_data(
        app, member.Memory(), member.TableFacts(frozenset({LOG})), [LOG]
    )
    assert data.positions is None
    assert "without warm-ups" in caplog.text


def test_positions_that_do_not_fit_are_the_first_to_be_left_out() -> None:
    """The member then has no warm-ups; its current and former partitions stay in its claims."""
    many = {LOG: {p: 1 + p * 982_451_653 % 10**12 for p in range(60_000)}}
    data = JoinData(
        "http://w",
        {LOG: range(60_000)},
        former_actives={LOG: range(5)},
        former_generation=3,
        positions=many,
        awaited={LOG: [1]},
    )
    packed = member.user_data(data, [LOG], is_uniform=True)
    assert len(packed) <= USER_DATA_BYTES
    read = decode_join(packed, [LOG])
    assert (read.positions, read.awaited) == (None, {})
    assert (list(read.former_actives[LOG]), read.actives[LOG].size) == ([0, 1, 2, 3, 4], 60_000)
    some = replace(data, positions={LOG: {p: o for p, o in many[LOG].items() if p < 1000}})
    assert decode_join(member.user_data(some, [LOG], is_uniform=True), [LOG]).positions is not None


def test_two_tables_tell_each_its_own(tmp_path: Path) -> None:
    """Positions come from files, databases, restores, commits, requests and ends."""
    other = "shop-counts-changelog"
    app = make_app(
        "http://w", tables=["totals", "counts"], datadir=str(tmp_path), store="rocksdb://"
    )
    write(app, 0, 41)
    for topic, name, offset in ((LOG, "totals", 10), (other, "counts", 20)):
        app.tables[name].data.set_persisted_offset(TP(topic, 1), offset)
    recovery = app.tables.recovery
    recovery.standby_offsets.update({TP(LOG, 2): 5, TP(other, 2): 7, TP(other, 9): 99})
    recovery.active_offsets.update({TP(LOG, 3): 15, TP(other, 3): 17, TP(other, 1): 19})
    app.tables.persist_offset_on_commit(app.tables["totals"].data, TP(LOG, 4), 25)
    app.tables.persist_offset_on_commit(app.tables["counts"].data, TP(other, 4), 0)
    app.assignor.read_to = {TP(LOG, 5): 35, TP(other, 5): 1, TP(other, 6): 0}
    recovery.active_highwaters.update({TP(LOG, 3): 12, TP(other, 7): 45, TP(other, 8): 55})
    held = dict.fromkeys((LOG, other, "unknown"), range(9))
    assert positions_of(app, held, {LOG: [3], other: [3, 7]}) == {
        LOG: {0: 42, 1: 11, 2: 6, 3: 16, 4: 26, 5: 35},
        other: {1: 21, 2: 8, 3: 18, 4: 1, 5: 1, 7: 46},
    }
    for name in ("totals", "counts"):
        app.tables[name].data.close_partition(1)
