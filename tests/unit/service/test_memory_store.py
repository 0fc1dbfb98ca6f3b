"""The in-memory store: start revisions of watches, and leases."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from itertools import permutations
from typing import Any

import pytest

from faust_assigner.service.errors import Compacted, LeaseLost, StoreUnavailable, TooManyOperations
from faust_assigner.service.store.base import (
    MAX_OPERATIONS,
    Batch,
    Compare,
    Delete,
    Event,
    Field,
    KeyValue,
    Listing,
    Put,
    TxnResult,
    absent,
)
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, virtually
from tests.support.waiting import PATIENCE_S


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
        with pytest.raises(LeaseLost) as refused:
            await kept.txn([], [Put("/a", b"x"), Put("/b", b"x", lease)])
        assert refused.value.lease_id == lease
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
        batch = await asyncio.wait_for(waiting, PATIENCE_S)
    assert batch.events[0].key == "/2"
    await kept.close()


async def test_a_watch_yields_each_change_of_its_prefix_with_the_whole_key() -> None:
    """A key has its first and last revision and its version; a new creation counts from 1."""
    kept = MemoryStore(first_revision=10)
    lease = (await kept.grant(60.0)).lease_id
    await kept.txn([], [Put("/b", b"1", lease), Put("/a", b"2"), Put("other", b"3")])
    await kept.txn([], [Put("/b", b"4"), Delete("/nothing")])
    assert await kept.txn([], [Delete("/nothing")]) == TxnResult(True, 12)
    await kept.txn([], [Delete("/b")])
    await kept.txn([], [Put("/b", b"5")])
    first, again = KeyValue("/b", b"1", 11, 11, 1, lease), KeyValue("/b", b"5", 14, 14, 1, 0)
    other = KeyValue("/a", b"2", 11, 11, 1, 0)
    async with aclosing(kept.watch("/", 11)) as watch:  # type: ignore[type-var]
        assert await anext(watch) == Batch(
            14,
            (
                Event("/b", 11, first),
                Event("/a", 11, other),
                Event("/b", 12, KeyValue("/b", b"4", 11, 12, 2, 0)),
                Event("/b", 13, None),
                Event("/b", 14, again),
            ),
        )
        await kept.txn([], [Put("other", b"6")])
        await kept.txn([], [Put("/c", b"7")])
        assert await anext(watch) == Batch(
            16, (Event("/c", 16, KeyValue("/c", b"7", 16, 16, 1, 0)),)
        )
    assert await kept.list("/b") == Listing(16, (again,))
    assert (await kept.get("/a"), await kept.get("/nothing")) == (other, None)
    await kept.close()


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (absent("/a"), False),
        (absent("/b"), True),
        (Compare("/a", Field.VALUE, b"y"), True),
        (Compare("/a", Field.VALUE, b"x"), False),
        (Compare("/b", Field.VALUE, b""), False),
        (Compare("/a", Field.CREATE_REVISION, 11), True),
        (Compare("/a", Field.CREATE_REVISION, 12), False),
        (Compare("/a", Field.MOD_REVISION, 12), True),
        (Compare("/a", Field.MOD_REVISION, 11), False),
        (Compare("/a", Field.VERSION, 2), True),
        (Compare("/b", Field.VERSION, 0), True),
        (Compare("/a", Field.LEASE, 10), True),
        (Compare("/a", Field.LEASE, 0), False),
    ],
)
async def test_a_transaction_writes_all_or_nothing(compare: Compare, holds: bool) -> None:
    """One failed compare is enough; a failed transaction has the present revision."""
    kept = MemoryStore(first_revision=10)
    assert (await kept.grant(60.0)).lease_id == 10
    await kept.txn([], [Put("/a", b"x")])
    await kept.txn([], [Put("/a", b"y", 10)])
    writes = [Put("/c", b"z"), Delete("/a")]
    for compares in ([compare, absent("/c")], [absent("/c"), compare]):
        done = await kept.txn(compares, writes)
        assert done == TxnResult(holds, 13 if holds else 12)
        if holds:
            break
    found = [kv.key for kv in (await kept.list("/")).items]
    assert found == (["/c"] if holds else ["/a"])
    await kept.close()


async def test_a_transaction_has_at_most_128_compares_and_128_writes_of_different_keys() -> None:
    """The check comes before the compares, and no key is written."""
    kept = MemoryStore()
    puts = [Put(f"/{number}", b"x") for number in range(MAX_OPERATIONS + 1)]
    compares = [absent(put.key) for put in puts]
    assert (await kept.txn(compares[1:], puts[1:])).succeeded
    wrong: list[tuple[Any, Any, type[Exception]]] = [
        (compares, [], TooManyOperations),
        ([], puts, TooManyOperations),
        (compares[1:2], [puts[0], Delete("/0")], ValueError),
    ]
    for asked, writes, error in wrong:
        with pytest.raises(error):
            await kept.txn(asked, writes)
    assert (await kept.get("/0"), kept.revision) == (None, 2)
    await kept.close()


@pytest.mark.parametrize(
    ("limits", "sizes", "oldest"),
    [
        ({"history": 3}, [1] * 5, None),
        ({"history": 3}, [1] * 6, 4),
        ({"history": 3}, [1] * 9, 4),
        ({"history": 3}, [1] * 10, 8),
        ({"history_bytes": 10}, [4, 4], None),
        ({"history_bytes": 10}, [4, 4, 2], None),
        ({"history_bytes": 10}, [4, 4, 3], 3),
        ({"history_bytes": 10}, [4, 4, 3, 4], 4),
        ({"history_bytes": 10}, [4, 4, 99], 4),
    ],
)
async def test_the_history_is_bounded_by_revisions_and_by_bytes(
    limits: dict[str, int], sizes: list[int], oldest: int | None
) -> None:
    """The last change is always kept, and an earlier watch gets the oldest revision."""
    kept = MemoryStore(**limits)
    for size in sizes:
        await kept.txn([], [Put("/a", b"x" * size)])
    last, first = 1 + len(sizes), oldest or 2
    async with aclosing(kept.watch("/", first)) as watch:  # type: ignore[type-var]
        found = [event.revision for event in (await anext(watch)).events]
    assert found == list(range(first, last + 1))
    if oldest is not None:
        with pytest.raises(Compacted) as error:
            await first_seen(kept, oldest - 1)
        assert (error.value.wanted, error.value.oldest) == (oldest - 1, oldest)
    await kept.close()


async def test_a_compaction_never_goes_beyond_the_last_change_and_never_back() -> None:
    """A watch from the compacted revision itself still works."""
    kept = MemoryStore()
    for _ in range(4):
        await kept.txn([], [Put("/a", b"x")])
    for asked, compacted in ((3, 3), (2, 3), (99, 5)):
        await kept.compact(asked)
        assert kept.compacted == compacted
        assert await first_seen(kept, compacted) == 5
    await kept.txn([], [Put("/a", b"y")])
    assert await first_seen(kept, 6) == 6
    await kept.close()


@pytest.mark.parametrize("order", list(permutations((2.0, 3.0, 5.0))))
def test_leases_end_on_time_each_with_its_keys_in_one_change(order: tuple[float, ...]) -> None:
    """No call of the store is necessary, and the order of the grants does not matter."""

    async def story() -> None:
        kept = MemoryStore(clock=LoopClock())
        began = asyncio.get_running_loop().time()
        seen: list[tuple[float, int, list[str]]] = []

        async def watching() -> None:
            async for batch in kept.watch("/", kept.revision + 1):
                keys = [event.key for event in batch.events if event.kv is None]
                if keys:
                    now = asyncio.get_running_loop().time() - began
                    seen.append((round(now, 3), len({e.revision for e in batch.events}), keys))

        task = asyncio.ensure_future(watching())
        leases = {ttl_s: (await kept.grant(ttl_s)).lease_id for ttl_s in order}
        short, renewed, long = leases[2.0], leases[3.0], leases[5.0]
        await kept.txn([], [Put("/b", b"", short), Put("/c", b"", long), Put("/a", b"", short)])
        await kept.txn([], [Put("/d", b"", renewed)])
        await asyncio.sleep(1.5)
        assert await kept.keep_alive(renewed) == 3.0
        await asyncio.sleep(10.0)
        assert seen == [(2.0, 1, ["/a", "/b"]), (4.5, 1, ["/d"]), (5.0, 1, ["/c"])]
        for lease in (long, short, renewed):
            with pytest.raises(LeaseLost) as gone:
                await kept.keep_alive(lease)
            assert gone.value.lease_id == lease
            await kept.revoke(lease)
        await kept.close()
        with suppress(StoreUnavailable):
            await task

    virtually(story)


async def test_a_closed_store_refuses_each_call_and_ends_its_watches() -> None:
    """The service takes this for a store that does not answer."""
    kept = MemoryStore()
    lease = (await kept.grant(60.0)).lease_id
    watch = kept.watch("/", kept.revision + 1)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await kept.close()
    for call in (
        waiting,
        kept.get("/a"),
        kept.list("/"),
        kept.txn([], []),
        kept.grant(1.0),
        kept.keep_alive(lease),
        kept.revoke(lease),
    ):
        with pytest.raises(StoreUnavailable):
            await call


async def test_a_listing_is_ascending_whatever_the_order_of_the_writes() -> None:
    """A change of a key does not move it."""
    kept = MemoryStore(first_revision=40)
    for key in ("/c", "/a", "/b", "/d", "/a"):
        await kept.txn([], [Put(key, key.encode())])
    found = await kept.list("/")
    assert [(kv.key, kv.create_revision, kv.mod_revision, kv.version) for kv in found.items] == [
        ("/a", 42, 45, 2), ("/b", 43, 43, 1), ("/c", 41, 41, 1), ("/d", 44, 44, 1),
    ]  # fmt: skip
    assert found.revision == 45
    await kept.close()


def test_a_failed_warm_up_ends_in_a_group_without_cool_downs() -> None:
    """The lease of the cool-down ended before its key was written, so no write ever succeeded."""

    async def story() -> None:
        kept = MemoryStore(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2}, cooldown_s=0.0)
            await b.consumer(node, "a")
            await asyncio.sleep(5.0)
            failing = await b.consumer(node, "b", fails=True)
            await asyncio.sleep(10.0)
            failing.fails = False
            await b.settles(1, 1)
        await kept.close()

    virtually(story)
