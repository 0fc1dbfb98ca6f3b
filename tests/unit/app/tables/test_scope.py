"""The databases that a view reads during a request for a single key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from faust.streams import _current_event

from faust_assigner.app.tables.files import TableStore
from faust_assigner.app.tables.scope import SCOPE, NotHere, ScopedTable
from faust_assigner.app.tables.store import WriteBehindStore


class Store(TableStore):
    """A store without files: rows by partition and key, and the open databases."""

    def __init__(self) -> None:
        self.rows = {(0, b"k"): b"of 0", (1, b"k"): b"of 1"}
        self._dbs = {0: "db", 1: "db"}
        self.table = SimpleNamespace(is_global=False)

    def row_of(self, partition: int, key: bytes) -> bytes | None:
        """Return a row."""
        return self.rows.get((partition, key))


class Request:
    """A scope with these partitions that refuses to read whole tables."""

    def __init__(self, partitions: Sequence[int] | None) -> None:
        self.partitions = partitions

    def partitions_for(self, store: Any, key: bytes) -> Sequence[int] | None:
        """Return the partitions to search."""
        return self.partitions

    def may_read_all(self, table: Any) -> None:
        """Refuse."""
        raise NotHere("one key only")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store; the scope is reset afterwards."""
    for name, found in (("_get", b"as ever"), ("_contains", True), ("_dbs_for_actives", ["all"])):
        monkeypatch.setattr(WriteBehindStore, name, lambda *_, found=found: found)
    token = SCOPE.set(None)
    yield Store()
    SCOPE.reset(token)


def test_within_a_request_a_key_is_read_from_its_partitions_in_their_order(store: Store) -> None:
    """The first partition with the key counts; other partitions are not searched."""
    SCOPE.set(Request([1, 0]))
    assert (store._get(b"k"), store._contains(b"k")) == (b"of 1", True)
    del store.rows[1, b"k"]
    assert (store._get(b"k"), store._contains(b"k")) == (b"of 0", True)
    SCOPE.set(Request([1]))
    assert (store._get(b"k"), store._contains(b"k")) == (None, False)


def test_an_empty_row_is_a_row(store: Store) -> None:
    """The next partition is not searched."""
    store.rows[0, b"k"] = b""
    SCOPE.set(Request([0, 1]))
    assert (store._get(b"k"), store._contains(b"k")) == (b"", True)


def test_a_partition_that_is_not_open_is_an_error_and_no_missing_row(store: Store) -> None:
    """The client tries again; a 404 would be false."""
    del store._dbs[1]
    SCOPE.set(Request([0, 1]))
    with pytest.raises(NotHere):
        store._get(b"k")
    with pytest.raises(NotHere):
        store._contains(b"k")


@pytest.mark.parametrize("reason", ["no request", "an agent", "a global table", "as ever"])
def test_elsewhere_rows_are_read_as_ever(store: Store, reason: str) -> None:
    """Streams continue to read while views answer."""
    SCOPE.set(None if reason == "no request" else Request(None if reason == "as ever" else [0]))
    store.table.is_global = reason == "a global table"
    event = SimpleNamespace()
    token = _current_event.set((lambda: event) if reason == "an agent" else None)  # type: ignore[arg-type]
    try:
        assert (store._get(b"k"), store._contains(b"k")) == (b"as ever", True)
        if reason in ("no request", "an agent"):
            assert list(store._dbs_for_actives()) == ["all"]
            assert InMemory().data == "rows"
    finally:
        _current_event.reset(token)


class Kept:
    """A table with data outside the store."""

    data = "rows"


class InMemory(ScopedTable, Kept):
    """Our table over the stub."""


def test_a_table_is_read_as_a_whole_only_where_the_request_lets_it(store: Store) -> None:
    """The kind of its data does not matter."""
    SCOPE.set(Request([0]))
    with pytest.raises(NotHere):
        store._dbs_for_actives()
    with pytest.raises(NotHere):
        InMemory().data  # noqa: B018
