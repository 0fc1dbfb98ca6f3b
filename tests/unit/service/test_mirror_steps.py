"""The copy of the store step by step: watches, listings, waits, and the base of epochs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.epochs import AHEAD, MOST_AHEAD
from faust_assigner.service.errors import Compacted, StoreUnavailable
from faust_assigner.service.mirror import RETRY_S, Mirror
from faust_assigner.service.records import TopicConfig
from faust_assigner.service.store.base import Batch, Event, KeyValue, Listing
from faust_assigner.service.tasks import cancel_and_wait
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL


def kv(name: str, revision: int, count: int = 1) -> KeyValue:
    """The key of a topic."""
    key = ALL.topic(name)
    return KeyValue(key, codec.dump_topic(TopicConfig(name, count)), revision, revision)


def event(name: str, revision: int, count: int = 1) -> Event:
    """The write of a topic."""
    return Event(ALL.topic(name), revision, kv(name, revision, count))


class Store:
    """Listings and watches in turn; a watch ends with an error, or blocks."""

    def __init__(self, *listings: Any, watches: Any = ()) -> None:
        self.listings = list(listings)
        self.watches = list(watches)
        self.calls: list[tuple[Any, ...]] = []
        self.answers = True

    def _note(self, *call: Any) -> None:
        self.calls.append((asyncio.get_running_loop().time() - 1_000.0, *call))

    async def list(self, prefix: str) -> Listing:
        """Return the next listing; the last is repeated."""
        self._note("list", prefix)
        found = self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Play the next watch."""
        self._note("watch", prefix, start_revision)
        for batch in self.watches.pop(0) if self.watches else [None]:
            if batch is None:
                await asyncio.sleep(1e6)
            elif isinstance(batch, float):
                await asyncio.sleep(batch)
            elif isinstance(batch, Exception):
                raise batch
            else:
                yield batch

    async def get(self, key: str) -> KeyValue | None:
        """Answer or fail."""
        self._note("get", key)
        if not self.answers:
            raise StoreUnavailable("no answer")
        return None


class Stage:
    """A mirror of the store; ``told`` has the changed topics' names in batches."""

    def __init__(self, store: Any, reconcile_s: float = 50.0) -> None:
        self.store = store
        self.mirror = Mirror(store, ALL, LoopClock(), reconcile_s=reconcile_s)
        self.told: list[list[str]] = []
        self.mirror.listeners.append(lambda changes: self.told.append([c.name for c in changes]))

    @property
    def topics(self) -> dict[str, int]:
        """The topics of the view."""
        return {n: entry.value.partition_count for n, entry in self.mirror.view.topics.items()}

    @property
    def heard(self) -> float:
        """The time of the store's last answer."""
        return self.mirror.heard_at - 1_000.0


def staged(story: Callable[[Stage], Awaitable[None]], store: Any, **options: Any) -> None:
    """Run a scenario after the first listing."""

    async def whole() -> None:
        stage = Stage(store, **options)
        assert stage.mirror.heard_at == -float("inf")
        await stage.mirror.load()
        await story(stage)

    virtually(whole)


def test_a_watch_begins_after_the_listing_and_its_batches_are_applied_whole() -> None:
    """Events at or below the copy's revision are skipped; listeners are called after the batch."""
    first = Listing(20, (kv("a", 15), kv("b", 20)))
    batches = [
        Batch(22, (event("b", 20, 9), event("a", 21, 2), event("c", 22))),
        4.0,
        Batch(25, ()),
        Batch(25, (Event(ALL.topic("c"), 25, None), event("/later", 25))),
        None,
    ]

    async def story(s: Stage) -> None:
        assert (s.topics, s.mirror.revision, s.heard, s.told) == (
            {"a": 1, "b": 1},
            20,
            0.0,
            [["a", "b"]],
        )
        following = asyncio.create_task(s.mirror.follow())
        await asyncio.sleep(1.0)
        assert s.store.calls == [(0.0, "list", "/g/"), (0.0, "watch", "/g/", 21)]
        assert (s.topics, s.mirror.revision) == ({"a": 2, "b": 1, "c": 1}, 22)
        await asyncio.sleep(4.0)
        assert (s.mirror.revision, s.heard) == (25, 4.0)
        assert s.told == [["a", "b"], ["a", "c"]]
        await cancel_and_wait(following)

    staged(story, Store(first, watches=[batches]))


def test_a_failed_watch_lists_again_until_the_store_answers_and_watches_from_there() -> None:
    """Half a second passes between the attempts, and before the next watch."""
    listings = [Listing(20, (kv("a", 15),)), StoreUnavailable("x"), StoreUnavailable("x"),
                Listing(30, (kv("b", 28),))]  # fmt: skip

    async def story(s: Stage) -> None:
        following = asyncio.create_task(s.mirror.follow())
        await asyncio.sleep(10.0)
        assert RETRY_S == 0.5
        assert s.store.calls[1:] == [
            (0.0, "watch", "/g/", 21),
            (3.0, "list", "/g/"),
            (3.5, "list", "/g/"),
            (4.0, "list", "/g/"),
            (4.5, "watch", "/g/", 31),
        ]
        assert (s.topics, s.mirror.revision, s.heard) == ({"b": 1}, 30, 4.0)
        assert s.told == [["a"], ["b", "a"]]
        await cancel_and_wait(following)

    staged(story, Store(*listings, watches=[[3.0, Compacted(21, 28)], [None]]))


def test_a_comparison_every_few_seconds_repairs_what_the_watch_missed() -> None:
    """A listing without differences calls no listener; a failed listing is no sign of life."""
    listings = [
        Listing(20, (kv("a", 15),)),
        Listing(21, (kv("a", 15),)),
        StoreUnavailable("x"),
        Listing(25, (kv("a", 15), kv("b", 24))),
    ]

    async def story(s: Stage) -> None:
        comparing = asyncio.create_task(s.mirror.reconcile())
        await asyncio.sleep(99.0)
        assert (s.heard, s.mirror.revision, s.told) == (50.0, 21, [["a"]])
        await asyncio.sleep(40.0)
        assert s.heard == 50.0
        await asyncio.sleep(20.0)
        assert (s.heard, s.mirror.revision, s.told) == (150.0, 25, [["a"], ["b"]])
        assert [moment for moment, *_ in s.store.calls] == [0.0, 50.0, 100.0, 150.0]
        await cancel_and_wait(comparing)

    staged(story, Store(*listings))


def test_waits_for_a_revision_end_with_it_or_with_the_mirror() -> None:
    """The revision itself is enough; the mirror's end raises an error."""

    async def story(s: Stage) -> None:
        await asyncio.wait_for(s.mirror.reached(20), 1.0)
        waits = [asyncio.create_task(s.mirror.reached(revision)) for revision in (21, 22, 23)]
        following = asyncio.create_task(s.mirror.follow())
        await asyncio.sleep(1.0)
        assert [wait.done() for wait in waits] == [True, True, False]
        await cancel_and_wait(following)
        s.mirror.end()
        with pytest.raises(StoreUnavailable, match="this instance is stopping"):
            await waits[2]

    staged(story, Store(Listing(20, ()), watches=[[Batch(22, (event("a", 22),)), None]]))


RESTORED = [
    (Listing(15, (kv("a", 12),)), True),
    (Listing(30, (kv("a", 12), kv("b", 18))), True),
    (Listing(30, (kv("a", 12), kv("b", 21))), False),
    (Listing(20, (kv("a", 12),)), False),
    (Listing(30, ()), False),
]


@pytest.mark.parametrize(("listing", "is_restored"), RESTORED)
def test_a_store_with_another_past_raises_the_epochs_and_is_read_anew(
    listing: Listing, is_restored: bool
) -> None:
    """The signs are an older revision, or an unknown value at or below the copy's revision."""

    async def story(s: Stage) -> None:
        raised: list[int] = []

        async def raise_epochs(seen: int) -> int:
            raised.append(seen)
            return 0

        s.mirror.epochs.raise_above = raise_epochs  # type: ignore[method-assign]
        waiting = asyncio.create_task(s.mirror.reached(99))
        comparing = asyncio.create_task(s.mirror.reconcile())
        await asyncio.sleep(51.0)
        assert raised == ([20] if is_restored else [])
        assert s.topics == {config.key.rsplit("/", 1)[1]: 1 for config in listing.items}
        assert s.mirror.revision == listing.revision
        if is_restored:
            s.mirror.end()
            s.mirror._apply([event("z", 50)], 50)
            with pytest.raises(StoreUnavailable):
                await waiting
        waiting.cancel()
        await cancel_and_wait(comparing)

    staged(story, Store(Listing(20, (kv("a", 12),)), listing, listing))


# -- epochs ------------------------------------------------------------------------------------------


async def base(store: Followed) -> int | None:
    """The stored base of epochs."""
    found = await store.get(ALL.epochs)
    return None if found is None else codec.load_base(found.value)


@pytest.mark.parametrize(
    ("stored", "after"),
    [(None, 4_900), (b"?", 4_900), (4_899, 4_900), (4_900, 4_900), (9_000, 9_000)],
)
async def test_a_group_begins_its_epochs_at_the_clock(stored: Any, after: int) -> None:
    """The base is in milliseconds, less the copy's revision; a higher base stays."""
    store = Followed()
    if stored is not None:
        value = stored if isinstance(stored, bytes) else codec.dump_base(stored)
        await store.put(ALL.epochs, value)
    mirror = Mirror(store, ALL, LoopClock(), reconcile_s=5.0)
    mirror.revision = 100
    await mirror.epochs.begin(5.0)
    assert await base(store) == after


@pytest.mark.parametrize(
    ("epoch", "after"),
    [
        (1_100, 1_000),
        (1_101, 1_101 + AHEAD),
        (5_000 + MOST_AHEAD, 5_000 + MOST_AHEAD + AHEAD),
        (5_001 + MOST_AHEAD, 1_000),
    ],
)
def test_a_consumers_higher_epoch_raises_the_base_and_is_waited_for(epoch: int, after: int) -> None:
    """An epoch too far ahead of the clock is ignored."""

    async def story() -> None:
        store = Followed()
        await store.put(ALL.epochs, codec.dump_base(1_000))
        while store.revision < 100:
            await store.put("/g/x", b"")
        mirror = Mirror(store, ALL, LoopClock(), reconcile_s=5.0)
        await mirror.load()
        mirror.revision = 100
        passing = asyncio.create_task(mirror.epochs.surpass(epoch, 5.0))
        await asyncio.sleep(0.1)
        assert (await base(store), passing.done()) == (after, after == 1_000)
        await mirror._relist()
        await asyncio.wait_for(passing, 1.0)
        assert mirror.view.base == after
        await store.close()

    virtually(story)


@pytest.mark.parametrize("answers", [True, False])
def test_between_listings_one_key_is_read_and_only_an_answer_is_news(answers: bool) -> None:
    """A store without an answer ends nothing; it is asked again."""

    async def story() -> None:
        loop, store = asyncio.get_running_loop(), Store(Listing(5, ()))
        mirror = Mirror(store, ALL, LoopClock(), reconcile_s=4.0)  # type: ignore[arg-type]
        store.answers = answers
        await mirror.load()
        began = loop.time()
        await asyncio.sleep(7.0)
        await mirror._check_store()
        assert mirror.heard_at == began + (7.0 if answers else 0.0)
        assert [call[1:] for call in store.calls] == [("list", "/g/"), ("get", ALL.leader)]

    virtually(story)
