"""Errors that are no failures of files: they are raised, and no file is moved."""

from __future__ import annotations

from typing import Any

import pytest
from faust.stores.rocksdb import Store as RocksDBStore
from faust.types import TP

from faust_assigner.app.tables.flushing import Flushing
from tests.unit.app.tables.test_files import Failing
from tests.unit.app.tables.test_files import it as it

TEXTS = ["Corruption: of an argument", "IO error: No space left on device"]


def raises(error: Exception) -> Any:
    """Return a method that raises the error."""

    def method(*_: Any) -> Any:
        raise error

    return method


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", [ValueError, TypeError])
async def test_a_bug_whose_text_is_that_of_a_damage_moves_no_file(
    it: Failing, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], text: str
) -> None:
    """The caller gets the error, and the recovery gets no report."""
    error = kind(text)
    path, tp = it.store.partition_path(0), TP(it.topic, 0)
    monkeypatch.setattr(RocksDBStore, "_open_for_partition", raises(error))
    monkeypatch.setattr(RocksDBStore, "set_persisted_offset", raises(error))
    monkeypatch.setattr(Flushing, "_write", raises(error))
    monkeypatch.setattr(it.store, "_db_for_partition", raises(error))
    with pytest.raises(kind, match=text):
        it.store._open_for_partition(0)
    with pytest.raises(kind, match=text):
        await it.store._try_open_db_for_partition(0)
    with pytest.raises(kind, match=text):
        it.store.flushing.flush(0)
    with pytest.raises(kind, match=text):
        it.store.set_persisted_offset(tp, 7)
    with pytest.raises(kind, match=text), it.store._watched(lambda: [0]):
        raise error
    assert path.exists()
    assert it.store.set_aside == {}
    assert (it.store._condemned, it.store._lacking, it.told) == (set(), set(), [])


@pytest.mark.parametrize("ours", [{"read_only": True}, {"use_rocksdict": False}])
async def test_files_that_a_different_app_writes_stay_whatever_fails(
    it: Failing, monkeypatch: pytest.MonkeyPatch, ours: dict[str, bool]
) -> None:
    """This worker reads them only: it neither moves them nor reports their damage."""
    for name, value in ours.items():
        owner = it.store.rocksdb_options if name == "use_rocksdict" else it.store
        monkeypatch.setattr(owner, name, value)
    error = Exception("Corruption: block checksum mismatch")
    monkeypatch.setattr(RocksDBStore, "_open_for_partition", raises(error))
    monkeypatch.setattr(RocksDBStore, "set_persisted_offset", raises(error))
    monkeypatch.setattr(Flushing, "_write", raises(error))
    monkeypatch.setattr(it.store, "_db_for_partition", raises(error))
    with pytest.raises(Exception, match="Corruption"):
        it.store._open_for_partition(0)
    with pytest.raises(Exception, match="Corruption"):
        await it.store._try_open_db_for_partition(0)
    with pytest.raises(Exception, match="Corruption"):
        it.store.flushing.flush(0)
    with pytest.raises(Exception, match="Corruption"):
        it.store.set_persisted_offset(TP(it.topic, 0), 7)
    with pytest.raises(Exception, match="Corruption"), it.store._watched(lambda: [0]):
        raise error
    assert it.store.partition_path(0).exists()
    assert (it.store.set_aside, it.store._lacking, it.told) == ({}, set(), [])
