"""Updates of the table of owners for a watcher: complete lists, and exact times."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import NotReached, StoreUnavailable
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.records import Consumer
from faust_assigner.service.serving import routes
from faust_assigner.service.serving.routes import Route, RouteUpdate, followed
from faust_assigner.service.store.base import Delete, Put
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL

T0, T1, U0, V0 = (TopicPartition(t, n) for t, n in (("t", 0), ("t", 1), ("u", 0), ("v", 0)))
A = Consumer(name="a", incarnation="a1", endpoint="host:1")
B = Consumer(name="b", incarnation="b1")
#: The epochs of the owners in ``seen``, above a base of 1,000.
E_T0, E_T1, E_U0 = 1_104, 1_105, 1_106


async def seen() -> Followed:
    """A store with three registered owners, and one owner that is an earlier process."""
    store = Followed()
    await store.put(ALL.epochs, codec.dump_base(1_000))
    await store.consumer(A)
    await store.consumer(B)
    for at, name in ((T0, "a"), (T1, "b"), (U0, "a")):
        await store.owner(at, name, f"{name}1")
    await store.owner(V0, "a", "a0")
    return store


class Watch:
    """A watcher that records its updates."""

    def __init__(
        self, store: Followed, topics: Sequence[str] = (), *, least: int = 0, hears: bool = True
    ) -> None:
        mirror: Any = store
        self.condition: Any = SimpleNamespace(hears_store=hears)
        self.found: list[RouteUpdate] = []
        self.times: list[float] = []
        updates = followed(mirror, self.condition, LoopClock(), topics, least=least, every_s=10.0)
        self.task = asyncio.create_task(self._read(updates))

    async def _read(self, updates: Any) -> None:
        async for update in updates:
            self.found.append(update)
            self.times.append(asyncio.get_running_loop().time() - 1_000.0)

    async def next(self, seconds: float = 0.1) -> list[RouteUpdate]:
        """Return the updates of the next moments."""
        self.found.clear()
        await asyncio.sleep(seconds)
        return list(self.found)

    async def end(self) -> None:
        """End the watch."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_a_watch_begins_with_the_owners_of_its_topics() -> None:
    """Only registered processes count; without topics, all topics are included."""

    async def story() -> None:
        store = await seen()
        whole, part, none = Watch(store), Watch(store, ["u", "v"]), Watch(store, ["x"])
        await asyncio.sleep(0.01)
        t0, u0 = Route(T0, "a", E_T0, "host:1"), Route(U0, "a", E_U0, "host:1")
        revision = 1_000 + store.revision
        everything = (t0, Route(T1, "b", E_T1), u0)
        assert whole.found == [RouteUpdate(revision, everything, (), True)]
        assert part.found == [RouteUpdate(revision, (u0,), (), True)]
        assert none.found == [RouteUpdate(revision, (), (), True)]
        for watch in (whole, part, none):
            await watch.end()
        assert store.listeners == []

    virtually(story)


def test_each_change_of_a_route_is_told_once_with_those_of_the_same_moment() -> None:
    """The cases: new owners, lost owners, new endpoints, new processes, and irrelevant changes."""

    async def story() -> None:
        store = await seen()
        watch, other = Watch(store), Watch(store, ["x"])
        await watch.next()
        other.found.clear()
        await store.owner(T1, "a", "a1")
        await asyncio.sleep(0.02)
        await store.txn([], [Delete(ALL.assignment(U0))])
        assert await watch.next() == [
            RouteUpdate(1_000 + store.revision, (Route(T1, "a", 1_108, "host:1"),), (U0,))
        ]
        await store.consumer(replace(A, endpoint="host:2"))
        moved = (Route(T0, "a", E_T0, "host:2"), Route(T1, "a", 1_108, "host:2"))
        assert await watch.next() == [RouteUpdate(1_000 + store.revision, moved, (V0,))]
        await store.consumer(replace(A, endpoint="host:2", rack="r"))
        await store.put("/g/config/topics/x", b"?")
        assert await watch.next() == []
        await store.txn([], [Delete(ALL.consumer("a"))])
        assert await watch.next() == [RouteUpdate(1_000 + store.revision, (), (T0, T1, V0))]
        await store.consumer(replace(A, incarnation="a0"))
        back = (Route(V0, "a", 1_107, "host:1"),)
        assert await watch.next() == [RouteUpdate(1_000 + store.revision, back, (T0, T1))]
        assert other.found == []
        await watch.end()
        await other.end()

    virtually(story)


def test_raised_epochs_are_told_as_a_whole_table() -> None:
    """The table replaces the changes of the same moment."""

    async def story() -> None:
        store = await seen()
        watch = Watch(store, ["t"])
        await watch.next()
        await store.owner(T1, "a", "a1")
        await store.put(ALL.epochs, codec.dump_base(5_000))
        found = (Route(T0, "a", 5_104, "host:1"), Route(T1, "a", 5_108, "host:1"))
        [update] = await watch.next()
        by_number = tuple(sorted(update.routes, key=lambda route: route.at))
        assert replace(update, routes=by_number) == RouteUpdate(5_109, found, (), True)
        assert await watch.next() == []
        await watch.end()

    virtually(story)


def test_an_idle_watch_is_told_every_ten_seconds_and_a_change_after_a_twentieth() -> None:
    """Changes within a twentieth of a second share an update."""

    async def story() -> None:
        store = await seen()
        watch = Watch(store)
        await asyncio.sleep(25.0)
        assert watch.times == [0.0, 10.0, 20.0]
        assert watch.found[1:] == [RouteUpdate(1_000 + store.revision)] * 2
        await store.owner(T1, "a", "a1")
        await asyncio.sleep(11.0)
        assert watch.times[3:] == [pytest.approx(25.05), pytest.approx(35.05)]
        await watch.end()

    virtually(story)


def test_a_watch_ends_when_its_instance_hears_nothing_of_the_store() -> None:
    """The watch ends at its next update, and removes its listener."""

    async def story() -> None:
        store = await seen()
        watch = Watch(store)
        await asyncio.sleep(5.0)
        watch.condition.hears_store = False
        await asyncio.sleep(5.5)
        with pytest.raises(StoreUnavailable, match="no updates from the store"):
            await watch.task
        assert (watch.times, store.listeners) == ([0.0], [])

    virtually(story)


@pytest.mark.parametrize(("reaches_at", "is_told"), [(4.9, True), (5.1, False), (None, False)])
def test_a_watch_waits_five_seconds_for_the_callers_revision(
    reaches_at: float | None, is_told: bool
) -> None:
    """The revision is on the scale of epochs; after five seconds a second instance may answer."""

    async def story() -> None:
        store = await seen()
        least = 1_000 + store.revision + 1
        watch = Watch(store, least=least)
        await asyncio.sleep(reaches_at or 6.0)
        assert watch.found == []
        if reaches_at is not None:
            await store.put("/g/x", b"")
        await asyncio.sleep(0.2)
        assert bool(watch.found) is is_told
        if not is_told:
            with pytest.raises(NotReached, match=f"the caller up to {least}"):
                await watch.task
        await watch.end()

    virtually(story)


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2])]
)
def test_a_large_table_is_told_in_slices(
    count: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first slice starts the table, and all except the last announce more."""
    monkeypatch.setattr(routes, "SLICE", 2)

    async def story() -> None:
        store = Followed()
        await store.consumer(A)
        for number in range(count):
            await store.txn([], [Put(ALL.assignment(TopicPartition("t", number)), b"?")])
            await store.owner(TopicPartition("t", number), "a", "a1")
        watch = Watch(store)
        found = await watch.next()
        assert [len(update.routes) for update in found] == sizes
        assert [update.full for update in found] == [n == 0 for n in range(len(sizes))]
        assert [update.more for update in found] == [n < len(sizes) - 1 for n in range(len(sizes))]
        assert [r.at.partition for update in found for r in update.routes] == list(range(count))
        await watch.end()

    virtually(story)


def test_an_instance_that_lost_its_store_does_not_say_that_it_is_behind() -> None:
    """A router takes instances that are behind as the sign of a store that was reset."""

    async def story() -> None:
        store = await seen()
        watch = Watch(store, least=1_000 + store.revision + 1, hears=False)
        with pytest.raises(StoreUnavailable, match="no updates from the store"):
            await watch.task

    virtually(story)
