"""The in-memory store: start revisions of watches, and leases."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from faust_assigner.service.errors import Compacted, LeaseLost
from faust_assigner.service.store.base import Put
from faust_assigner.service.store.memory import MemoryStore


async def first_seen(store: MemoryStore, revision: int) -> int:
    """The revision of the first batch of a watch from ``revision``."""
    async with aclosing(store.watch("", revision)) as batches:  # type: ignore[type-var]
        return (await anext(batches)).revision


@pytest.mark.parametrize("begun", [1, 1_000])
async def test_a_watch_begins_at_any_revision_of_a_new_store(begun: int) -> None:
    """The first and the next revision exist, but not those of the previous process."""
    store = MemoryStore(first_revision=begun)
    written = (await store.txn((), (Put("a", b"1"),))).revision
    assert [await first_seen(store, at) for at in (begun, begun + 1)] == [written, written]
    with pytest.raises(Compacted):
        await first_seen(store, begun - 2)
    await store.close()


async def test_leases_of_a_restarted_process_have_other_numbers() -> None:
    """Otherwise a process from before the restart could renew its successor's registration."""
    before, after = (MemoryStore(first_revision=begun) for begun in (1_000, 2_000))
    assert (await before.grant(30.0)).lease_id != (await after.grant(30.0)).lease_id
    for kept in (before, after):
        await kept.close()


async def test_a_put_under_a_lease_that_was_never_granted_is_refused() -> None:
    """The id of the first lease is unknown too, until it is granted."""
    kept = MemoryStore()
    for lease in (1, 7):
        with pytest.raises(LeaseLost):
            await kept.txn([], [Put("/a", b"x"), Put("/b", b"x", lease)])
    assert (await kept.list("/")).items == ()
    await kept.close()


async def test_a_key_ends_with_its_last_lease_alone() -> None:
    """A put with a different lease, or without one, detaches the key from its previous lease."""
    kept = MemoryStore()
    one, two = [(await kept.grant(60.0)).lease_id for _ in range(2)]
    for key in ("/a", "/b", "/c"):
        await kept.txn([], [Put(key, b"x", one)])
    await kept.txn([], [Put("/a", b"y", two), Put("/b", b"y")])
    await kept.revoke(one)
    assert [(kv.key, kv.lease) for kv in (await kept.list("/")).items] == [("/a", two), ("/b", 0)]
    await kept.revoke(two)
    assert [kv.key for kv in (await kept.list("/")).items] == ["/b"]
    await kept.close()


async def test_a_watch_from_a_later_revision_skips_the_changes_before_it() -> None:
    """The watch waits until the store reaches this revision."""
    kept = MemoryStore()
    async with aclosing(kept.watch("/", kept.revision + 3)) as watch:  # type: ignore[type-var]
        waiting = asyncio.ensure_future(anext(watch))
        for number in range(4):
            await asyncio.sleep(0)
            await kept.txn([], [Put(f"/{number}", b"x")])
        batch = await asyncio.wait_for(waiting, 1.0)
    assert batch.events[0].key == "/2"
    await kept.close()
