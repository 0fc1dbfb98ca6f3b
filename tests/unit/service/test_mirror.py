"""The copy of a store: how epochs are raised, and the share of time spent on listings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from itertools import pairwise

import pytest

from faust_assigner.service import mirror as mirror_module
from faust_assigner.service import values as codec
from faust_assigner.service.clock import SystemClock
from faust_assigner.service.epochs import AHEAD
from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.mirror import REST, Mirror
from faust_assigner.service.records import TopicConfig
from faust_assigner.service.store.base import Delete, Event, KeyValue, Listing
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.view import differences
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL, put, store


def test_epochs_are_raised_far_above_what_this_instance_has_seen() -> None:
    """A second instance may have seen more; no instance lowers the base."""

    async def story() -> None:
        kept = store()
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=5.0)
        for seen, base in ((10, 10 + AHEAD), (20, 10 + AHEAD), (10 + AHEAD + 1, 11 + 2 * AHEAD)):
            await mirror.epochs.raise_above(seen)
            kv = await kept.get(ALL.epochs)
            assert kv is not None
            assert codec.load_base(kv.value) == base

    virtually(story)


async def test_the_loop_goes_on_while_a_large_listing_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The comparison waits for the loop; concurrent events of the watch are applied once.

    They must not count as a sign of a restored store.
    """
    free, compared = threading.Event(), threading.Event()

    def waits(known: Mapping[str, KeyValue], listing: Listing) -> list[Event]:
        compared.set()
        assert free.wait(30.0), "the loop stood still meanwhile"
        return differences(known, listing)

    monkeypatch.setattr(mirror_module, "LARGE", 2)
    kept = MemoryStore()
    for number in range(4):
        await put(kept, ALL.topic(f"t{number}"), codec.dump_topic(TopicConfig(f"t{number}", 1)))
    mirror = Mirror(kept, ALL, SystemClock(), reconcile_s=60.0)
    await mirror.load()
    told: list[str] = []
    mirror.listeners.append(lambda changes: told.extend(change.name for change in changes))
    new = await put(kept, ALL.topic("t0"), codec.dump_topic(TopicConfig("t0", 2)))
    lost = await put(kept, ALL.topic("t1"), codec.dump_topic(TopicConfig("t1", 2)))
    monkeypatch.setattr(mirror_module, "differences", waits)
    task = asyncio.create_task(mirror._relist())
    while not compared.is_set():
        await asyncio.sleep(0.01)
    mirror._apply([Event(new.key, new.mod_revision, new)], new.mod_revision)
    free.set()
    assert await task
    assert told == ["t0", "t1"]
    assert mirror.view.raw[lost.key] == lost
    assert mirror.view.base == 0, "epochs are raised where a store was restored"
    await kept.close()


async def test_a_key_deleted_before_a_large_listing_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A late watch adds the key during the comparison; the listing's revision hides its deletion.

    The watch skips events at or below the revision of a listing.
    """
    free, compared = threading.Event(), threading.Event()

    def waits(known: Mapping[str, KeyValue], listing: Listing) -> list[Event]:
        compared.set()
        assert free.wait(30.0), "the loop stood still meanwhile"
        return differences(known, listing)

    monkeypatch.setattr(mirror_module, "LARGE", 2)
    kept = MemoryStore()
    for number in range(3):
        await put(kept, ALL.topic(f"t{number}"), codec.dump_topic(TopicConfig(f"t{number}", 1)))
    mirror = Mirror(kept, ALL, SystemClock(), reconcile_s=60.0)
    await mirror.load()
    short = await put(kept, ALL.topic("short"), codec.dump_topic(TopicConfig("short", 1)))
    deleted = (await kept.txn([], [Delete(short.key)])).revision
    later = await put(kept, ALL.topic("later"), codec.dump_topic(TopicConfig("later", 1)))
    monkeypatch.setattr(mirror_module, "differences", waits)
    task = asyncio.create_task(mirror._relist())
    while not compared.is_set():
        await asyncio.sleep(0.01)
    mirror._apply([Event(short.key, short.mod_revision, short)], short.mod_revision)
    free.set()
    assert await task
    mirror._apply([Event(short.key, deleted, None)], deleted)  # the rest of the late watch
    assert mirror.revision == later.mod_revision
    assert mirror.view.raw == {kv.key: kv for kv in (await kept.list(ALL.prefix)).items}
    assert sorted(mirror.view.topics) == ["later", "t0", "t1", "t2"]
    await kept.close()


class Slow(MemoryStore):
    """Delays listings by three seconds, and records when each began."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock())
        self.began: list[float] = []

    async def list(self, prefix: str) -> Listing:
        """List after a delay."""
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(3.0)
        return await super().list(prefix)


def test_listings_of_a_large_group_take_a_twentieth_of_the_time_at_most() -> None:
    """After a listing of three seconds, a minute follows without; only the leader's key is read."""

    async def story() -> None:
        kept = Slow()
        await put(kept, ALL.leader, b"{}")
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=1.0)
        task = asyncio.create_task(mirror.reconcile())
        await asyncio.sleep(50.0)
        heard_at = mirror.heard_at
        assert heard_at > 48.0, "it answers"
        await asyncio.sleep(100.0)
        task.cancel()
        gaps = [later - sooner for sooner, later in pairwise(kept.began)]
        assert gaps
        assert all(3.0 + REST * 3.0 <= gap < 3.0 + REST * 3.0 + 3.0 for gap in gaps)

    virtually(story)


class _Hanging(MemoryStore):
    """Does not answer the first listing for five seconds, and records when each began."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock())
        self.began: list[float] = []

    async def list(self, prefix: str) -> Listing:
        """Fail the first time."""
        self.began.append(asyncio.get_running_loop().time())
        if len(self.began) == 1:
            await asyncio.sleep(5.0)
            raise StoreUnavailable("no answer in time")
        return await super().list(prefix)


def test_after_a_listing_without_an_answer_the_next_one_is_soon() -> None:
    """A failed listing needs no rest: the copy would stay old for 100 seconds more."""

    async def story() -> None:
        kept = _Hanging()
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=1.0)
        task = asyncio.create_task(mirror.reconcile())
        await asyncio.sleep(20.0)
        task.cancel()
        assert kept.began[1] - kept.began[0] == 6.0

    virtually(story)


class _Listings(MemoryStore):
    """Counts its listings."""

    listings = 0

    async def list(self, prefix: str) -> Listing:
        """Count the listing."""
        self.listings += 1
        return await super().list(prefix)


def test_a_write_at_the_revision_that_was_known_before_shows_a_restored_store() -> None:
    """Only a restored store gives a write a revision that is already known."""

    async def story() -> None:
        kept = _Listings(clock=LoopClock())
        await put(kept, ALL.topic("t"), codec.dump_topic(TopicConfig("t", 1)))
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=5.0)
        await mirror.load()
        assert kept.listings == 1
        await mirror.reached_write(mirror.revision, mirror.revision)
        assert kept.listings == 2
        await mirror.reached_write(mirror.revision, mirror.revision - 1)
        assert kept.listings == 2

    virtually(story)
