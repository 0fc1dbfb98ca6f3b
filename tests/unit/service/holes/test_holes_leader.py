"""Holes 3 to 7 of an assigner: transactions, watches, takeovers, stuck hand-offs.

Each test runs a scenario twice in virtual time: the naive variant fails, and ours does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.commands import AbortWarm, Warm
from faust_assigner.service.errors import StoreUnavailable, TooManyOperations
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.leading import moves
from faust_assigner.service.leading.advance import advance
from faust_assigner.service.leading.bundles import Bundle, chunks
from faust_assigner.service.leading.election import Leadership
from faust_assigner.service.leading.rebalancer import Rebalancer
from faust_assigner.service.leading.targets import choose
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import Assigned, Consumer, TopicConfig
from faust_assigner.service.store.base import MAX_OPERATIONS, Compare, Delete, Field, Listing, Put
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.view import Change, View
from tests.support.assigning.consumers import Bench, LoopClock, eventually, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, SETTINGS, put, store

# -- 3: a version does not distinguish a key from its successor -------------------------------------------


def _by_version(compares: Sequence[Compare]) -> list[Compare]:
    """The naive variant: the first assigner compares ``version``."""
    return [replace(c, field=Field.VERSION, expected=min(int(c.expected), 1)) for c in compares]


@pytest.mark.parametrize(("form", "lands"), [(list, False), (_by_version, True)])
def test_3_a_write_for_a_handoff_that_was_deleted_and_created_again_does_not_land(
    form: Callable[[Sequence[Compare]], list[Compare]], lands: bool
) -> None:
    """The leader decided about a hand-off that has been replaced by one to a different consumer."""

    async def story() -> None:
        kept = store()
        await put(kept, ALL.topic("t"), codec.dump_topic(TopicConfig("t", 1)))
        for name in ("old", "new", "other"):
            await put(kept, ALL.consumer(name), codec.dump_consumer(Consumer(name=name)))
        await put(kept, ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "old")))
        await put(kept, ALL.handoff(AT), codec.dump_handoff(replace(HANDOFF, phase=Phase.READY)))
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=5.0)
        await mirror.load()
        [bundle] = advance(mirror.view, {}, SETTINGS, 1_000.0)
        await kept.txn([], [Delete(ALL.handoff(AT))])
        await put(kept, ALL.handoff(AT), codec.dump_handoff(replace(HANDOFF, new_owner="other")))
        assert (await kept.txn(form(bundle.compares), bundle.writes)).succeeded is lands

    virtually(story)


# -- 4: one transaction for everything --------------------------------------------------------------------


def _all_at_once(bundles: Sequence[Bundle], limit: int) -> list[list[Bundle]]:
    return [list(bundles)]


@pytest.mark.parametrize(("cut", "works"), [(chunks, True), (_all_at_once, False)])
def test_4_what_is_more_than_a_transaction_takes_is_written_in_several(
    cut: Any, works: bool
) -> None:
    """A consumer gets 500 partitions, but the store refuses 129 operations."""

    async def story() -> None:
        kept = store()
        await put(kept, ALL.consumer("c"), codec.dump_consumer(Consumer(name="c")))
        await put(kept, ALL.topic("t"), codec.dump_topic(TopicConfig("t", 500)))
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=5.0)
        await mirror.load()
        view = mirror.view
        bundles = list(moves.rebalance(view, choose(view, view.ready(), replicas=0), SETTINGS, 0.0))
        refused = contextlib.nullcontext() if works else pytest.raises(TooManyOperations)
        with refused:
            for chunk in cut(bundles, MAX_OPERATIONS - 1):
                compares = dict.fromkeys(c for b in chunk for c in b.compares)
                await kept.txn(list(compares), [w for b in chunk for w in b.writes])
        assert len((await kept.list("/g/assignments/")).items) == (500 if works else 0)

    virtually(story)


# -- 5: changes between the list and the watch ------------------------------------------------------------


class _BusyStore(MemoryStore):
    """A second writer changes the store right after the first listing."""

    listed = False

    async def list(self, prefix: str) -> Listing:
        listing = await super().list(prefix)
        if not self.listed:
            self.listed = True
            await self.txn(
                [], [Put(ALL.consumer("late"), codec.dump_consumer(Consumer(name="late")))]
            )
        return listing


class _NaiveMirror(Mirror):
    """Starts its watch at the current revision."""

    async def follow(self) -> None:
        assert isinstance(self._store, MemoryStore)
        self.revision = self._store.revision
        await super().follow()


@pytest.mark.parametrize(("kind", "sees"), [(Mirror, True), (_NaiveMirror, False)])
def test_5_a_watch_goes_on_where_the_list_ended(kind: type[Mirror], sees: bool) -> None:
    """The naive mirror misses the consumer that registered in between."""

    async def story() -> None:
        mirror = kind(_BusyStore(clock=LoopClock()), ALL, LoopClock(), reconcile_s=5.0)
        await mirror.load()
        following = asyncio.create_task(mirror.follow())
        await asyncio.sleep(1.0)
        assert ("late" in mirror.view.consumers) is sees
        following.cancel()

    virtually(story)


def test_5_a_watch_whose_history_is_compacted_lists_again_and_tells_the_difference() -> None:
    """The listeners receive additions and deletions from the time without a watch."""

    async def story() -> None:
        kept, told = store(), []
        await put(kept, ALL.consumer("gone"), codec.dump_consumer(Consumer(name="gone")))
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=1_000.0)
        await mirror.load()
        mirror.listeners.append(told.extend)
        await kept.txn([], [Delete(ALL.consumer("gone"))])
        await put(kept, ALL.consumer("came"), codec.dump_consumer(Consumer(name="came")))
        await kept.compact(kept.revision)
        following = asyncio.create_task(mirror.follow())
        await asyncio.sleep(1.0)
        assert {(c.name, c.before is None, c.after is None) for c in told} == {
            ("came", True, False),
            ("gone", False, True),
        }
        following.cancel()

    virtually(story)


class _Deaf(MemoryStore):
    """Its watch blocks, as after a silent loss of the connection."""

    async def watch(self, prefix: str, start_revision: int) -> Any:
        await asyncio.Event().wait()
        yield


def test_5_a_store_that_was_restored_to_an_older_revision_is_listed_anew() -> None:
    """Otherwise the watch would wait for past revisions, and a caller for a lost write."""

    async def story() -> None:
        kept = store()
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=5.0)
        await mirror.load()
        following = [asyncio.create_task(mirror.follow()), asyncio.create_task(mirror.reconcile())]
        await put(kept, ALL.consumer("old"), codec.dump_consumer(Consumer(name="old")))
        snapshot, revision = dict(kept._keys), kept.revision
        for name in ("lost0", "lost1", "lost2"):
            await put(kept, ALL.consumer(name), codec.dump_consumer(Consumer(name=name)))
        await asyncio.sleep(1.0)
        waiting = asyncio.create_task(mirror.reached(kept.revision + 1))
        kept._keys, kept.revision, kept._log = snapshot, revision, []
        await put(kept, ALL.consumer("new"), codec.dump_consumer(Consumer(name="new")))
        await asyncio.sleep(10.0)
        assert set(mirror.view.consumers) == {"old", "new"}
        with pytest.raises(StoreUnavailable, match="restored"):
            await waiting
        await put(kept, ALL.consumer("next"), codec.dump_consumer(Consumer(name="next")))
        await asyncio.sleep(1.0)
        assert "next" in mirror.view.consumers, "the watch goes on"
        for task in following:
            task.cancel()

    virtually(story)


@pytest.mark.parametrize(("reconciles", "sees"), [(True, True), (False, False)])
def test_5_a_watch_that_hangs_is_found_out_within_seconds(reconciles: bool, sees: bool) -> None:
    """A periodic listing, every few seconds, finds the difference."""

    async def story() -> None:
        kept = _Deaf(clock=LoopClock())
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=5.0)
        await mirror.load()
        works = [mirror.follow(), *([mirror.reconcile()] if reconciles else [])]
        tasks = [asyncio.create_task(work) for work in works]
        await asyncio.sleep(0.1)
        await put(kept, ALL.consumer("late"), codec.dump_consumer(Consumer(name="late")))
        await asyncio.sleep(5.5)
        assert ("late" in mirror.view.consumers) is sees
        for task in tasks:
            task.cancel()

    virtually(story)


# -- 6: a hand-off that became ready without a leader ------------------------------------------------------


class _ByEvents(Rebalancer):
    """Handles only hand-offs of received events."""

    heard_of: frozenset[TopicPartition] = frozenset()

    def on_changes(self, changes: Sequence[Change]) -> None:
        super().on_changes(changes)
        self.heard_of |= {change.name for change in changes if change.kind == "handoffs"}

    async def lead(self, term: Leadership) -> None:
        self.heard_of = frozenset()
        await super().lead(term)

    async def _decide(self) -> list[Bundle]:
        return [
            b
            for b in await super()._decide()
            if any(b.story.startswith(f"{at}:") for at in self.heard_of) or "at once" in b.story
        ]


@pytest.mark.parametrize(("kind", "completed"), [(Rebalancer, True), (_ByEvents, False)])
def test_6_a_handoff_that_became_ready_while_nobody_led_is_completed_at_the_takeover(
    kind: type[Rebalancer], completed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The naive leader waits for an event that came before its term."""
    monkeypatch.setattr("faust_assigner.service.node.Rebalancer", kind)

    async def story() -> None:
        kept = store()
        for name in ("old", "new"):
            await put(kept, ALL.consumer(name), codec.dump_consumer(Consumer(name=name)))
        await put(kept, ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "old")))
        now = asyncio.get_running_loop().time()
        await put(
            kept,
            ALL.handoff(AT),
            codec.dump_handoff(replace(HANDOFF, phase=Phase.READY, started_at=now)),
        )
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await asyncio.sleep(10.0)
            owner = node._mirror.view.assignments[AT].value.owner
            assert (owner == "new") is completed
        await kept.close()

    virtually(story)


class _SteppedClock(LoopClock):
    """A clock whose wall time is set while the process runs."""

    ahead_s = 0.0

    def wall(self) -> float:
        return super().wall() + self.ahead_s


@pytest.mark.parametrize("ahead_s", [3_600.0, -3_600.0])
def test_6_a_step_of_the_wall_clock_changes_no_age_of_a_handoff(ahead_s: float) -> None:
    """The age counts from the instance's first sight of the hand-off, not from its stored date."""

    async def story() -> None:
        kept, clock = store(), _SteppedClock()
        dated = replace(HANDOFF, started_at=clock.wall() - ahead_s)
        await put(kept, ALL.handoff(AT), codec.dump_handoff(dated))
        mirror = Mirror(kept, ALL, clock, reconcile_s=5.0)
        told: list[float] = []

        class Told(Metrics):
            def handoffs(self, ages_s: Mapping[str, Sequence[float]]) -> None:
                told.extend(ages_s["Warming"])

        leader = Rebalancer(mirror, SETTINGS, clock, Told())
        mirror.listeners.append(leader.on_changes)
        await mirror.load()
        await leader._decide()
        await asyncio.sleep(10.0)
        clock.ahead_s = ahead_s
        await leader._decide()
        assert told == [pytest.approx(0.0), pytest.approx(10.0)]

    virtually(story)


# -- 7: one stuck hand-off ---------------------------------------------------------------------------------


def _nothing_while_something_is_open(view: View, *decided_by: Any) -> Iterator[Bundle]:
    return iter(()) if view.handoffs else moves.rebalance(view, *decided_by)


@pytest.mark.parametrize(
    ("rule", "waits"), [(moves.rebalance, False), (_nothing_while_something_is_open, True)]
)
def test_7_orphans_do_not_wait_for_a_handoff_that_is_stuck(
    rule: Any, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third consumer dies while a hand-off is stuck."""
    monkeypatch.setattr("faust_assigner.service.leading.rebalancer.rebalance", rule)

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4}, handoff_timeout_s=1_000.0)
            for i in range(2):
                await b.consumer(node, f"c{i}")
            await b.settles(2, 2)
            stuck = await b.consumer(node, "c2", warm_s=None)
            await eventually(lambda: stuck.of(Warm))
            warming = stuck.of(Warm)[0]
            dead = next(h for h in b.helpers if h.name != warming.current_owner and h is not stuck)
            lost = set(dead.owned)
            await dead.disconnect()
            await asyncio.sleep(2.0 + 0.2 + 2.0)
            left = {at for at in lost if at not in b.owners()}
            assert bool(left) is waits
        await kept.close()

    virtually(story)


def test_7_an_owner_that_comes_back_in_time_keeps_what_it_hands_over() -> None:
    """The leader saw the owner gone; before its write the owner returned and keeps the partition."""

    async def story() -> None:
        kept = store()
        await put(kept, ALL.topic("t"), codec.dump_topic(TopicConfig("t", 1)))
        await put(kept, ALL.consumer("new"), codec.dump_consumer(Consumer(name="new")))
        await put(kept, ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "old")))
        await put(kept, ALL.handoff(AT), codec.dump_handoff(HANDOFF))
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=5.0)
        await mirror.load()
        [bundle] = advance(mirror.view, {}, SETTINGS, 1_000.0)
        await put(kept, ALL.consumer("old"), codec.dump_consumer(Consumer(name="old")))
        assert not (await kept.txn(bundle.compares, bundle.writes)).succeeded

    virtually(story)


def test_7_a_handoff_ends_by_its_deadline_and_another_target_is_chosen() -> None:
    """The consumer without a warm-up receives AbortWarm, and is not asked again soon."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 3}, handoff_timeout_s=5.0, cooldown_s=60.0)
            old = await b.consumer(node, "a")
            await b.settles(3)
            stuck = await b.consumer(node, "b", warm_s=None)
            await eventually(lambda: stuck.of(Warm))
            first = stuck.of(Warm)[0]
            willing = await b.consumer(node, "c")
            await asyncio.sleep(15.0)
            assert AbortWarm(first.at, first.handoff_id) in stuck.told
            assert (first.at, "b") in node._mirror.view.cooldowns
            assert first.at in willing.owned or first.at in old.owned
            assert len([w for w in stuck.of(Warm) if w.at == first.at]) == 1
            assert len(willing.owned) >= 1
        await kept.close()

    virtually(story)


@pytest.mark.parametrize(("group", "each", "open_"), [(4, 100, 3), (100, 2, 4)])
def test_7_no_more_handoffs_at_once_than_are_allowed(group: int, each: int, open_: int) -> None:
    """The limits are per group, with a quarter reserved for leaving consumers, and per new owner."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 30}, max_handoffs=group, max_handoffs_per_consumer=each)
            await b.consumer(node, "a")
            await b.settles(30)
            for name in ("b", "c"):
                await b.consumer(node, name, warm_s=None)
            await asyncio.sleep(5.0)
            assert b.open_handoffs() == open_
        await kept.close()

    virtually(story)
