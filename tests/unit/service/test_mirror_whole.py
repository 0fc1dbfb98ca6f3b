"""The mirror's rarer paths as whole stories: a restored store, slow listings, unreadable values."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from faust_assigner.service import epochs
from faust_assigner.service import mirror as under_test
from faust_assigner.service import values as codec
from faust_assigner.service.store.base import Batch, Event, KeyValue, Listing
from faust_assigner.service.tasks import cancel_and_wait
from tests.unit.service.stories import ALL
from tests.unit.service.test_mirror_steps import Stage, Store, event, kv, staged


def base(epochs: int, revision: int) -> KeyValue:
    """The key of the base of epochs."""
    return KeyValue(ALL.epochs, codec.dump_base(epochs), revision, revision)


class Slow(Store):
    """A store whose listings take ``list_s`` seconds."""

    list_s = 1.0

    async def list(self, prefix: str) -> Listing:
        """Return the next listing after its time."""
        found = await super().list(prefix)
        await asyncio.sleep(self.list_s)
        return found


def test_a_restored_store_is_read_again_after_its_epochs_are_raised() -> None:
    """The raised base is above the copy's epochs; the second listing counts; the watch begins anew."""
    listings = [
        Listing(50, (base(1_000, 7), kv("a", 30), kv("b", 50, 2))),
        Listing(40, (base(1_000, 7), kv("a", 30), kv("old", 33))),
        Listing(44, (base(9_000, 43), kv("a", 30), kv("c", 44, 3))),
    ]
    watches = [[None], [Batch(46, (event("d", 46),)), None]]

    async def story(s: Stage) -> None:
        raised: list[tuple[int, int]] = []

        async def put(least: int, to: int) -> int:
            raised.append((least, to))
            return 43

        s.mirror.epochs._put_base = put  # type: ignore[method-assign]
        following = asyncio.create_task(s.mirror.follow())
        waiting = asyncio.create_task(s.mirror.reached(51))
        await asyncio.sleep(0.5)
        assert (s.mirror.dated, s.topics) == (1_050, {"a": 1, "b": 2})
        assert await s.mirror._relist()
        assert raised == [(1_050, 1_050 + epochs.AHEAD)]
        assert (s.mirror.revision, s.mirror.dated) == (44, 9_044)
        assert s.topics == {"a": 1, "c": 3}
        assert s.told == [["base", "a", "b"], ["base", "c", "b"]]
        await asyncio.sleep(1.0)
        assert [call for call in s.store.calls if call[1] == "watch"] == [
            (0.0, "watch", "/g/", 51),
            (1.0, "watch", "/g/", 45),
        ]
        assert (s.mirror.revision, s.told[2:]) == (46, [["d"]])
        await asyncio.wait([waiting])
        assert str(waiting.exception()) == "the store was restored: the last writes may be lost"
        await cancel_and_wait(following)

    staged(story, Store(*listings, watches=watches))


PAST: list[tuple[int, int, list[Event], bool]] = [
    # (the listing's revision, the revision before it was asked for, its differences, the result)
    (20, 20, [event("x", 20)], True),
    (20, 20, [event("x", 21)], False),
    (20, 20, [Event(ALL.topic("x"), 20, None)], False),
    (30, 20, [event("x", 21), event("y", 20)], True),
    (19, 20, [], True),
    (19, 19, [event("x", 5)], False),  # the watch is ahead of the listing
    (20, 19, [event("x", 5)], True),
]


@pytest.mark.parametrize(("revision", "asked", "found", "is_restored"), PAST)
def test_the_signs_of_another_past(
    revision: int, asked: int, found: list[Event], is_restored: bool
) -> None:
    """The copy is at revision 20."""

    async def story(s: Stage) -> None:
        listing = Listing(revision, ())
        assert s.mirror._is_of_restored_store(listing, found, asked) is is_restored

    staged(story, Store(Listing(20, ())))


def test_all_differences_of_a_later_listing_are_applied_and_none_of_an_earlier_one() -> None:
    """A listing at the copy's revision has nothing new; each listing is a sign of life."""

    async def story(s: Stage) -> None:
        await asyncio.sleep(3.0)
        s.mirror._take(Listing(20, ()), [event("same", 21)])
        assert (s.heard, s.told, s.mirror.revision) == (3.0, [], 20)
        s.mirror._take(Listing(25, ()), [event("early", 10), event("late", 25)])
        assert (s.told, s.mirror.revision) == ([["early", "late"]], 25)
        s.mirror._apply([event("early", 24), event("later", 26)], 26)
        assert (s.told[1:], s.mirror.revision) == ([["later"]], 26)

    staged(story, Store(Listing(20, ())))


def test_after_a_slow_listing_one_key_is_read_for_twenty_times_as_long() -> None:
    """The rest counts from the listing's end."""

    async def story(s: Stage) -> None:
        comparing = asyncio.create_task(s.mirror.reconcile())
        await asyncio.sleep(29.0)
        # The first listing ended at 1; the next one is from 5 to 6, and the rest until 26.
        assert [(at, kind) for at, kind, *_ in s.store.calls] == [
            *((0.0, "list"), (5.0, "list")),
            *((at, "get") for at in (10.0, 14.0, 18.0, 22.0)),
            (26.0, "list"),
        ]
        assert s.heard == 27.0
        await cancel_and_wait(comparing)

    staged(story, Slow(Listing(20, ())), reconcile_s=4.0)


@pytest.mark.parametrize(("large", "is_beside"), [(3, False), (2, True), (1, True)])
def test_a_large_listing_is_compared_in_a_thread_while_the_watch_goes_on(
    monkeypatch: pytest.MonkeyPatch, large: int, is_beside: bool
) -> None:
    """The thread has a copy of the view; what the watch has applied meanwhile is left out."""
    monkeypatch.setattr(under_test, "LARGE", large)
    listing = Listing(30, (kv("b", 28), kv("c", 29)))

    async def story(s: Stage) -> None:
        copies: list[Any] = []

        async def beside(work: Callable[..., Any], known: Any, given: Listing) -> Any:
            copies.append(sorted(known))
            found = work(known, given)
            s.mirror._apply([event("c", 29)], 29)
            assert sorted(known) == [ALL.topic("a")]
            return found

        monkeypatch.setattr(under_test.asyncio, "to_thread", beside)
        found = await s.mirror._differences(listing)
        gone = Event(ALL.topic("a"), 30, None)
        if is_beside:
            assert (copies, found) == ([[ALL.topic("a")]], [event("b", 28), gone])
        else:
            assert (copies, found) == ([], [event("b", 28), event("c", 29), gone])

    staged(story, Store(Listing(20, (kv("a", 15),))))


def test_unreadable_values_are_logged_once_until_they_are_readable(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most some keys are named, in order; the number counts all new ones."""
    caplog.set_level(logging.WARNING, "faust_assigner.service.mirror")
    monkeypatch.setattr(under_test, "NAMED", 2)

    def broken(name: str, revision: int) -> Event:
        key = ALL.topic(name)
        return Event(key, revision, KeyValue(key, b"?", revision, revision))

    async def story(s: Stage) -> None:
        for events in (
            [broken("c", 21), broken("a", 21), broken("b", 21)],
            [broken("a", 22), event("d", 22)],
            [event("a", 23), broken("d", 23)],
            [broken("a", 24)],
        ):
            s.mirror._apply(events, events[0].revision)

    staged(story, Store(Listing(20, ())))
    keys = {name: ALL.topic(name) for name in "abcd"}
    rest = "; delete these keys, or upgrade this instance if a newer release wrote them"
    head = "values in the store cannot be read and count as absent"
    assert [record.getMessage() for record in caplog.records] == [
        f"3 {head}: {keys['a']}, {keys['b']}, ...{rest}",
        f"1 {head}: {keys['d']}{rest}",
        f"1 {head}: {keys['a']}{rest}",
    ]
