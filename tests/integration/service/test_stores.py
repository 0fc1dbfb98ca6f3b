"""The store's guarantees that the service needs, on the in-memory store and on a real etcd."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from faust_assigner.service.errors import Compacted, LeaseLost, TooManyOperations
from faust_assigner.service.store.base import (
    MAX_OPERATIONS,
    Batch,
    Compare,
    Delete,
    Event,
    Field,
    Put,
    Store,
    absent,
    unchanged,
)
from tests.integration.service.conftest import Stores


async def put(store: Store, key: str, value: bytes = b"x", lease: int = 0) -> int:
    """Write without a condition and return the revision."""
    return (await store.txn([], [Put(key, value, lease)])).revision


async def seen(store: Store, prefix: str, start: int, count: int) -> list[Event]:
    """Return the first ``count`` events of a watch from ``start``."""
    events: list[Event] = []
    async with contextlib.aclosing(store.watch(prefix, start)) as batches:  # type: ignore[type-var]
        async with asyncio.timeout(30):
            async for batch in batches:
                events += batch.events
                if len(events) >= count:
                    break
    return events


async def test_every_write_has_the_next_revision_and_a_key_knows_its_first_and_last(
    stores: Stores,
) -> None:
    """create_revision stays the same; mod_revision and version grow."""
    store, key = stores.open(), f"{stores.prefix}a"
    first = await put(store, key, b"1")
    second = await put(store, key, b"2")
    kv = await store.get(key)
    assert kv is not None
    assert second > first
    assert (kv.value, kv.create_revision, kv.mod_revision, kv.version) == (b"2", first, second, 2)


async def test_a_key_that_is_not_there_is_none(stores: Stores) -> None:
    """A missing key raises no error."""
    assert await stores.open().get(f"{stores.prefix}nothing") is None


async def test_a_listing_is_of_one_revision_and_in_order(stores: Stores) -> None:
    """Keys are in ascending order, without neighbours of the prefix."""
    store, prefix = stores.open(), stores.prefix
    for name in ("b", "a", "a/b"):
        await put(store, prefix + name)
    await put(store, prefix[:-1] + "0")
    listing = await store.list(prefix)
    assert [kv.key for kv in listing.items] == [f"{prefix}a", f"{prefix}a/b", f"{prefix}b"]
    assert listing.revision >= max(kv.mod_revision for kv in listing.items)


@pytest.mark.parametrize("field", list(Field), ids=lambda field: str(field.value))
async def test_a_transaction_holds_where_the_compare_does_and_writes_nothing_else(
    stores: Stores, field: Field
) -> None:
    """Each field of a compare is tested with a right and a wrong value."""
    store, key, other = stores.open(), f"{stores.prefix}a", f"{stores.prefix}b"
    lease = await store.grant(60)
    await put(store, key, b"1", lease.lease_id)
    kv = await store.get(key)
    assert kv is not None
    right = getattr(kv, field.value)
    wrong = b"0" if field is Field.VALUE else right + 1
    assert not (await store.txn([Compare(key, field, wrong)], [Put(other, b"")])).succeeded
    assert await store.get(other) is None
    done = await store.txn([Compare(key, field, right)], [Put(other, b""), Delete(key)])
    assert done.succeeded
    assert await store.get(key) is None
    written = await store.get(other)
    assert written is not None
    assert written.mod_revision == done.revision
    await store.revoke(lease.lease_id)


async def test_a_key_deleted_and_created_again_is_not_unchanged(stores: Stores) -> None:
    """The version is 1 again, but the mod_revision differs."""
    store, key = stores.open(), f"{stores.prefix}a"
    await put(store, key)
    before = await store.get(key)
    assert before is not None
    await store.txn([], [Delete(key)])
    await put(store, key)
    assert (await store.txn([Compare(key, Field.VERSION, before.version)], [])).succeeded
    assert not (await store.txn([unchanged(before)], [])).succeeded


async def test_absent_holds_only_where_there_is_no_key(stores: Stores) -> None:
    """Leader election depends on this compare."""
    store, key = stores.open(), f"{stores.prefix}leader"
    assert (await store.txn([absent(key)], [Put(key, b"1")])).succeeded
    assert not (await store.txn([absent(key)], [Put(key, b"2")])).succeeded


async def test_128_operations_are_taken_and_129_refused(stores: Stores) -> None:
    """The limit holds for writes and for compares, and is checked before sending."""
    store = stores.open()
    writes = [Put(f"{stores.prefix}{i}", b"") for i in range(MAX_OPERATIONS + 1)]
    compares = [absent(write.key) for write in writes]
    assert (await store.txn(compares[1:], writes[1:])).succeeded
    with pytest.raises(TooManyOperations):
        await store.txn([], writes)
    with pytest.raises(TooManyOperations):
        await store.txn(compares, [])


async def test_a_key_twice_in_one_transaction_is_refused(stores: Stores) -> None:
    """The caller made the mistake, so the error is a ValueError."""
    with pytest.raises(ValueError, match="twice"):
        await stores.open().txn([], [Put(f"{stores.prefix}a", b""), Delete(f"{stores.prefix}a")])


async def test_a_watch_begins_in_the_past_and_misses_nothing(stores: Stores) -> None:
    """The watch returns puts and deletes from its start revision, under its prefix, in order."""
    store, prefix = stores.open(), stores.prefix
    await put(store, f"{prefix}a", b"0")
    start = await put(store, f"{prefix}a", b"1")
    await put(store, "/elsewhere" + prefix)
    await store.txn([], [Delete(f"{prefix}a"), Put(f"{prefix}b", b"2")])
    last = await put(store, f"{prefix}c", b"3")
    events = await seen(store, prefix, start, 4)
    told = {(event.key, event.kv.value if event.kv else None) for event in events}
    assert told == {
        (f"{prefix}a", b"1"),
        (f"{prefix}a", None),
        (f"{prefix}b", b"2"),
        (f"{prefix}c", b"3"),
    }
    assert [event.revision for event in events] == sorted(event.revision for event in events)
    assert (events[0].revision, events[-1].revision) == (start, last)


async def test_a_watch_hears_what_comes_later(stores: Stores) -> None:
    """A write from a second connection reaches a waiting watch."""
    store, other = stores.open(), stores.open()
    start = (await store.list(stores.prefix)).revision + 1
    waiting = asyncio.create_task(seen(store, stores.prefix, start, 1))
    await asyncio.sleep(0.2)
    await put(other, f"{stores.prefix}a", b"later")
    [event] = await waiting
    assert event.kv is not None
    assert event.kv.value == b"later"


async def test_a_batch_of_a_watch_that_catches_up_says_no_more_than_it_brought(
    stores: Stores,
) -> None:
    """A reader that resumes after a batch's revision misses no event, however late the watch is."""
    store, prefix = stores.open(), stores.prefix
    first = 0
    for _ in range(20):
        many = [Put(f"{prefix}{i}", b"v" * 200) for i in range(MAX_OPERATIONS)]
        first = first or (await store.txn([], many)).revision
        await store.txn([], many)
    total, start = 0, first
    while total < 21 * MAX_OPERATIONS:
        async with contextlib.aclosing(store.watch(prefix, start)) as batches:  # type: ignore[type-var]
            batch: Batch = await anext(batches)
        total += len(batch.events)
        start = batch.revision + 1
    assert total == 21 * MAX_OPERATIONS


async def test_a_watch_of_compacted_history_says_so(stores: Stores) -> None:
    """The watch fails at its start, so the caller lists again."""
    store, prefix = stores.open(), stores.prefix
    first = await put(store, f"{prefix}a")
    for _ in range(3):
        last = await put(store, f"{prefix}a")
    await store.compact(last)
    await store.compact(last)
    with pytest.raises(Compacted):
        await seen(store, prefix, first, 1)
    assert [event.revision for event in await seen(store, prefix, last, 1)] == [last]


async def test_a_lease_that_runs_out_takes_its_keys_along(stores: Stores) -> None:
    """A watch receives the deletions, and keep_alive raises LeaseLost."""
    store, key = stores.open(), f"{stores.prefix}a"
    lease = await store.grant(1)
    revision = await put(store, key, b"", lease.lease_id)
    [gone] = await seen(store, stores.prefix, revision + 1, 1)
    assert (gone.key, gone.kv) == (key, None)
    with pytest.raises(LeaseLost):
        await store.keep_alive(lease.lease_id)


@pytest.mark.slow
async def test_a_lease_that_is_kept_alive_lives(stores: Stores) -> None:
    """The key outlives the lease's first time to live."""
    store, key = stores.open(), f"{stores.prefix}a"
    lease = await store.grant(2)
    await put(store, key, b"", lease.lease_id)
    for _ in range(5):
        await asyncio.sleep(0.6)
        assert await store.keep_alive(lease.lease_id) >= 2
    kv = await store.get(key)
    assert kv is not None
    assert kv.lease == lease.lease_id
    await store.revoke(lease.lease_id)


async def test_a_revoked_lease_takes_its_keys_along_and_may_be_revoked_again(
    stores: Stores,
) -> None:
    """A second revoke is harmless; keep_alive and writes under the lease fail."""
    store, key = stores.open(), f"{stores.prefix}a"
    lease = await store.grant(60)
    await put(store, key, b"", lease.lease_id)
    await store.revoke(lease.lease_id)
    await store.revoke(lease.lease_id)
    assert await store.get(key) is None
    with pytest.raises(LeaseLost):
        await store.keep_alive(lease.lease_id)
    with pytest.raises(LeaseLost):
        await put(store, key, b"", lease.lease_id)


async def test_a_key_moves_to_the_lease_it_was_written_with_last(stores: Stores) -> None:
    """The end of the older lease keeps the key, so a returned consumer stays registered."""
    store, key = stores.open(), f"{stores.prefix}a"
    older, newer = await store.grant(60), await store.grant(60)
    await put(store, key, b"1", older.lease_id)
    await put(store, key, b"2", newer.lease_id)
    await store.revoke(older.lease_id)
    kv = await store.get(key)
    assert kv is not None
    assert (kv.value, kv.lease) == (b"2", newer.lease_id)
    await store.revoke(newer.lease_id)
