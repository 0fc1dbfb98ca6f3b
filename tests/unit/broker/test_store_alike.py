"""Both stores of the broker handle a write in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from faust_assigner.broker.storage.rocks_store import FEW_KEYS, RocksStore
from faust_assigner.broker.storage.store import MemoryStore, Store, prefix_range


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("size", [1, FEW_KEYS + 1])
def test_a_range_ends_before_its_end_and_puts_come_after_it(
    kind: str, is_known: bool, size: int, tmp_path: Path
) -> None:
    """The end is the next topic's first key; a put into the range of its own write is kept."""
    store: Store = MemoryStore() if kind == "memory" else RocksStore(tmp_path)
    try:
        keys = [b"ta", b"tb", b"tc", b"td"]
        store.write([(key, b"1") for key in keys])
        known = (lambda: [b"tb", b"tc"]) if is_known else None
        store.write([(b"tb", b"2")], [b"ta"], ranges=[(b"tb", b"td", size, known)])
        assert list(store.scan(b"t")) == [(b"tb", b"2"), (b"td", b"1")]
    finally:
        store.close()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_range_of_a_prefix_has_the_key_that_equals_the_prefix(kind: str, tmp_path: Path) -> None:
    """The keys before and behind the prefix stay."""
    store: Store = MemoryStore() if kind == "memory" else RocksStore(tmp_path)
    try:
        store.write([(key, b"1") for key in (b"sz", b"t", b"t\0", b"t\xff\xff", b"u")])
        store.write((), ranges=[prefix_range(b"t")])
        assert list(store.scan(b"")) == [(b"sz", b"1"), (b"u", b"1")]
    finally:
        store.close()
