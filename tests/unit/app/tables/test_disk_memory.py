"""The tables whose rows are in memory only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.tables.disk import in_memory


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
