"""The tables whose rows are in memory only, and the bytes of tables in files."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.tables.disk import in_memory, state_sizes, tree_bytes


def table(name: str, store: str | None = None) -> Any:
    """Return a table; without a store of its own the app's counts."""
    return SimpleNamespace(name=name, _store=store)


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ("memory://", ["alone", "by-app", "own"]),
        ("rocksdb://", ["alone", "own"]),
        ("other://", ["alone", "own"]),
    ],
)
def test_a_table_s_own_store_counts_before_the_app_s(store: str, found: list[str]) -> None:
    """The names are in order, regardless of the changelogs' order."""
    changelogs = {
        "z": table("own", "memory://"),
        "y": table("by-app"),
        "x": table("files", "rocksdb://rows"),
        "w": table("alone", "memory://alone"),
    }
    app: Any = SimpleNamespace(
        conf=SimpleNamespace(store=store), tables=SimpleNamespace(_changelogs=changelogs)
    )
    assert in_memory(app) == found


def test_the_bytes_of_a_store_are_those_of_all_files_below_its_folder(tmp_path: Path) -> None:
    """A table of sets has its store beneath; stores in memory and unknown topics have no size."""
    for name, size in (("rows-1/a.sst", 100), ("rows-1/deep/er/b.log", 23), ("rows-2/c", 7)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    store = SimpleNamespace(partition_path=lambda number: tmp_path / f"rows-{number}")
    tables = {
        "log": SimpleNamespace(data=store),
        "sets": SimpleNamespace(data=SimpleNamespace(storage=store)),
        "memory": SimpleNamespace(data={}),
    }
    tps = [TP(topic, number) for topic in ("log", "gone", "memory") for number in (1, 2, 3)]
    assert state_sizes([*tps, TP("sets", 2)], tables) == {
        TP("log", 1): 123,
        TP("log", 2): 7,
        TP("log", 3): 0,
        TP("sets", 2): 7,
    }


def test_a_file_that_disappears_meanwhile_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB removes files at any time; the other files count."""
    for name, size in (("a", 1), ("b", 20), ("c", 300)):
        (tmp_path / name).write_bytes(b"x" * size)
    stat = os.stat

    def vanishing(path: Any, **options: Any) -> Any:
        if str(path).endswith("b"):
            raise FileNotFoundError(path)
        return stat(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", vanishing)
        found = tree_bytes(tmp_path)
    assert found == 301
