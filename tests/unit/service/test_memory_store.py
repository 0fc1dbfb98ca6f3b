"""The store in memory: which revisions of it a watch may begin at."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from faust_assigner.service.errors import Compacted
from faust_assigner.service.store.base import Put
from faust_assigner.service.store.memory import MemoryStore


async def first_seen(store: MemoryStore, revision: int) -> int:
    """The revision of the first batch of a watch that begins at ``revision``."""
    async with aclosing(store.watch("", revision)) as batches:  # type: ignore[type-var]
        return (await anext(batches)).revision


@pytest.mark.parametrize("begun", [1, 1_000])
async def test_a_watch_begins_at_any_revision_of_a_new_store(begun: int) -> None:
    """Its first one and the next one are there; those of the process before are gone."""
    store = MemoryStore(first_revision=begun)
    written = (await store.txn((), (Put("a", b"1"),))).revision
    assert [await first_seen(store, at) for at in (begun, begun + 1)] == [written, written]
    with pytest.raises(Compacted):
        await first_seen(store, begun - 2)
    await store.close()


async def test_leases_of_a_restarted_process_have_other_numbers() -> None:
    """Sessions are named by them: a process from before the restart renewed its successor's registration."""
    before, after = (MemoryStore(first_revision=begun) for begun in (1_000, 2_000))
    assert (await before.grant(30.0)).lease_id != (await after.grant(30.0)).lease_id
    for kept in (before, after):
        await kept.close()
