"""Changes of a transaction that was not committed are put back, in real databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rocksdict

from faust_assigner.app.repairs.fetching import mixed
from faust_assigner.app.restore import undo
from faust_assigner.app.restore.table_files import CarefulStore
from faust_assigner.app.restore.undo import UndoableStore, put_back, undo_key


class Plain:
    """Faust's RocksDB store, as far as it matters: one database, the partition of the event."""

    use_rocksdict, read_only = True, False

    def __init__(self, database: Any, share: Any) -> None:
        self._dbs = {0: database}
        self.table = SimpleNamespace(name="counts")
        self.app = SimpleNamespace(in_transaction=share is not None, consumer=SimpleNamespace(
            transactions=SimpleNamespace(share_at_hand=lambda: self.share)))
        self.share = share

    def _db_for_partition(self, partition: int) -> Any:
        return self._dbs[partition]

    def _dbs_for_key(self, key: bytes) -> list[Any]:
        return list(self._dbs.values())

    def _set(self, key: bytes, value: bytes) -> None:
        self._dbs[0].put(key, value)

    def _del(self, key: bytes) -> None:
        self._dbs[0].delete(key)

    def _visible_keys(self, db: Any) -> Iterator[bytes]:
        return db.keys()

    def _visible_items(self, db: Any) -> Iterator[tuple[bytes, bytes]]:
        return db.items()


def share(number: int) -> Any:
    """What one transaction holds."""
    return SimpleNamespace(number=number, changed={})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Any]:
    """One with the rows a=1, b=2."""
    database = rocksdict.Rdict(str(tmp_path / "counts-0.db"), rocksdict.Options(raw_mode=True))
    database.put(b"a", b"1")
    database.put(b"b", b"2")
    yield database
    database.close()


@pytest.fixture
def store(database: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store within share 1."""
    event = SimpleNamespace(message=SimpleNamespace(partition=0))
    monkeypatch.setattr(undo, "current_event", lambda: event)
    return mixed(UndoableStore, into=Plain)(database, share(1))


def rows(database: Any) -> dict[bytes, bytes]:
    """All of it."""
    return dict(database.items())


def test_what_was_not_committed_is_put_back(store: Any, database: Any) -> None:
    """A row changed twice, one deleted, one that is new."""
    store._set(b"a", b"10")
    store._set(b"a", b"11")
    store._del(b"b")
    store._set(b"c", b"3")
    assert list(store._visible_items(database)) == [(b"a", b"11"), (b"c", b"3")]
    assert list(store._visible_keys(database)) == [b"a", b"c"]
    store.undo(0)
    assert rows(database) == {b"a": b"1", b"b": b"2"}


def test_what_was_committed_stays(store: Any, database: Any) -> None:
    """And leaves nothing behind; the share after it is put back to where the commit was."""
    first = store.share
    store._set(b"a", b"10")
    store.share = share(2)  # the first is being committed
    store._set(b"a", b"11")
    store._set(b"b", b"20")
    store.changes_committed(0, 1, first.changed[store, 0])
    assert rows(database).keys() == {b"a", b"b", undo_key(2, b"a"), undo_key(2, b"b")}
    store.undo(0)
    assert rows(database) == {b"a": b"10", b"b": b"2"}


def test_the_oldest_of_several_shares_counts(store: Any, database: Any) -> None:
    """Neither was committed; numbers are compared as numbers."""
    for number, value in ((255, b"10"), (256, b"11"), (65536, b"12")):
        store.share = share(number)
        store._set(b"a", value)
    assert put_back(database) == 1
    assert rows(database) == {b"a": b"1", b"b": b"2"}
    assert put_back(database) == 0


def test_an_empty_value_is_not_no_value(store: Any, database: Any) -> None:
    """A row that held nothing is put back as such."""
    database.put(b"e", b"")
    store._set(b"e", b"5")
    store.undo(0)
    assert rows(database)[b"e"] == b""


def test_a_commit_of_a_partition_given_away_leaves_its_database_alone(store: Any, database: Any) -> None:
    """It is closed; whoever opens it next puts back, and has the rest from the changelog."""
    store._set(b"a", b"10")
    del store._dbs[0]
    store.changes_committed(0, 1, [b"a"])
    assert undo_key(1, b"a") in rows(database)


def test_without_transactions_nothing_is_written_down(database: Any) -> None:
    """At least once costs nothing."""
    plain = mixed(UndoableStore, into=Plain)(database, None)
    plain._set(b"a", b"10")
    plain._del(b"b")
    assert rows(database) == {b"a": b"10"}


def test_a_block_that_cannot_be_read_condemns_the_database(database: Any) -> None:
    """It is set aside when it is opened next, instead of being waited for."""
    class Unreadable:
        def items(self, **_: object) -> Iterator[tuple[bytes, bytes]]:
            raise Exception("Corruption: block checksum mismatch")

    store = mixed(CarefulStore, into=Plain)(database, None)
    store._dbs[0] = Unreadable()
    with pytest.raises(Exception, match="Corruption"):
        store.undo(0)
    assert store._condemned == {0}
