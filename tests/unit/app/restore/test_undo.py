"""What a former version wrote down of transactions is put back, in real databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rocksdict

from faust_assigner.app.repairs.fetching import mixed
from faust_assigner.app.restore.table_files import CarefulStore
from faust_assigner.app.restore.undo import PREFIX, put_back


class Plain:
    """Faust's RocksDB store, as far as it matters: one database."""

    use_rocksdict, read_only = True, False

    def __init__(self, database: Any) -> None:
        self._dbs = {0: database}
        self.table = SimpleNamespace(name="counts")

    def _db_for_partition(self, partition: int) -> Any:
        return self._dbs[partition]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Any]:
    """One with the rows a=1, b=2."""
    database = rocksdict.Rdict(str(tmp_path / "counts-0.db"), rocksdict.Options(raw_mode=True))
    database.put(b"a", b"1")
    database.put(b"b", b"2")
    yield database
    database.close()


def written_down(database: Any, number: int, key: bytes, before: bytes) -> None:
    """As that version did it before share ``number`` changed ``key``."""
    database.put(PREFIX + number.to_bytes(8, "big") + key, before)


def rows(database: Any) -> dict[bytes, bytes]:
    """All of it."""
    return dict(database.items())


def test_what_was_not_committed_is_put_back(database: Any) -> None:
    """A row that was changed, one deleted, one that is new, one that held nothing."""
    for key, before in ((b"a", b"\x011"), (b"b", b"\x012"), (b"c", b""), (b"e", b"\x01")):
        written_down(database, 7, key, before)
    database.put(b"a", b"11")
    database.delete(b"b")
    database.put(b"c", b"3")
    database.put(b"e", b"5")
    mixed(CarefulStore, into=Plain)(database).undo(0)
    assert rows(database) == {b"a": b"1", b"b": b"2", b"e": b""}


def test_the_oldest_of_several_shares_counts(database: Any) -> None:
    """Neither was committed; numbers are compared as numbers."""
    for number, before in ((65536, b"\x0111"), (255, b"\x011"), (256, b"\x0110")):
        written_down(database, number, b"a", before)
    assert put_back(database) == 1
    assert rows(database) == {b"a": b"1", b"b": b"2"}
    assert put_back(database) == 0


def test_a_block_that_cannot_be_read_condemns_the_database(database: Any) -> None:
    """It is set aside when it is opened next, instead of being waited for."""
    class Unreadable:
        def items(self, **_: object) -> Iterator[tuple[bytes, bytes]]:
            raise Exception("Corruption: block checksum mismatch")

    store = mixed(CarefulStore, into=Plain)(database)
    store._dbs[0] = Unreadable()
    with pytest.raises(Exception, match="Corruption"):
        store.undo(0)
    assert store._condemned == {0}
