"""The worker's service that requests a follow-up round: when, when not, and its end."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.rebalance import copy_offsets
from faust_assigner.app.rebalance.awaited import Awaited, by_topic
from faust_assigner.app.rebalance.follow_up import FollowUp
from tests.support.waiting import PATIENCE_S

A, B = TP("log", 0), TP("log", 1)
GENERATION = 7


class Thread:
    """The consumer's thread with aiokafka's coordinator."""

    def __init__(self) -> None:
        self.rejoins = 0
        self._consumer = SimpleNamespace(_coordinator=self)
        self.generation = GENERATION
        self._rejoin_needed_fut = SimpleNamespace(done=lambda: self.under_way)
        self.under_way = False
        self.on_rejoin: Any = lambda: None
        self.thread_loop = asyncio.get_running_loop()

    def request_rejoin(self) -> None:
        """Count the request, as in aiokafka."""
        self.rejoins += 1
        self.on_rejoin()

    async def call_thread(self, function: Any, *arguments: Any) -> Any:
        """Run the function: the test has a single thread."""
        return await function(*arguments)


class App:
    """The parts of an app that the service reads: the broker's ``ends``, ``read`` offsets."""

    def __init__(self, ends: dict[TP, int], read: dict[TP, int | None]) -> None:
        self.ends, self.positions = ends, dict.fromkeys(ends, 0)
        self.rebalancing = self.should_stop = False
        self.thread = Thread()
        self.consumer = SimpleNamespace(_thread=self.thread)
        self.asked = self.thread._consumer
        self.asked.end_offsets, self.asked.position = self.end_offsets, self.position
        self.tables = SimpleNamespace(
            recovery=SimpleNamespace(in_recovery=False, standby_offsets=read),
            changelog_queue=asyncio.Queue(),
        )
        self.assignor = SimpleNamespace(
            awaited=Awaited(GENERATION, frozenset(ends)),
            counters=Counter(),
            stops_nobody=False,
            is_unheard=False,
            read_to={},
            overdue=frozenset(),
            planned_counts=lambda: self.planned,
        )
        self.planned: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.asked.partitions_for_topic = lambda topic: set(range(self.counts.get(topic, 0)))

    async def end_offsets(self, tps: list[TP]) -> dict[TP, int]:
        """Return the broker's end offsets; hang for a deleted changelog, as aiokafka does."""
        if not self.ends.keys() >= set(tps):
            await asyncio.sleep(5)
        return {tp: self.ends[tp] for tp in tps}

    async def position(self, tp: TP) -> int:
        """Return the consumer's position."""
        return self.positions[tp]


def service(app: App, cool_down_s: float | None = 30.0) -> FollowUp:
    """Return the service of ``app``, not started: the test calls ``look``."""
    return FollowUp(app, cool_down_s)


async def looks(watch: FollowUp, *times: float) -> int:
    """Look at these times and return the number of requested rounds."""
    for now in times:
        await watch.look(now)
    return watch.app.thread.rejoins


async def test_one_round_is_asked_for_once_all_have_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The request is counted, logged and never repeated for the same assignment."""
    caplog.set_level(logging.INFO)
    app = App({A: 10, B: 5}, {A: 9, B: 4})
    assert await looks(service(app), 0, 31, 32, 33, 34, 99) == 1
    assert app.assignor.counters == {"follow_ups": 1}
    assert (
        len([r for r in caplog.records if "follow-up round after generation 7" in r.getMessage()])
        == 1
    )


@pytest.mark.parametrize(("stops_nobody", "least_s"), [(True, 5), (False, 30)])
async def test_by_default_one_waits_less_where_rounds_stop_nobody(
    stops_nobody: bool, least_s: float
) -> None:
    """The last round's protocol decides."""
    app = App({A: 10}, {A: 9})
    app.assignor.stops_nobody = stops_nobody
    watch = service(app, None)
    assert await looks(watch, 0, least_s - 2, least_s - 1) == 0
    assert await looks(watch, least_s, least_s + 1) == 1


async def test_what_is_waited_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The first line has the remaining time; then a line a minute has the remaining records."""
    caplog.set_level(logging.INFO)
    app = App({A: 10, B: 500_000}, {A: 9, B: 4})
    assert await looks(service(app), 0, 60, 61, 62, 120, 121, 122) == 0
    progress = "1 of 2 awaited standbys have caught up; the remaining standbys lack 499995 records"
    assert caplog.messages == [
        "2 standbys are awaited: when they have caught up, in 30 s at the earliest, this "
        "worker requests a round that moves their tasks here",
        progress,
        progress,
    ]


async def test_how_far_was_read_is_said_with_the_round_that_is_asked_for() -> None:
    """The leader would not believe a copy of a log that ends with a marker."""
    app = App({A: 10, B: 7}, {A: None, B: 6})
    app.positions[A] = 10
    said: list[Any] = []
    app.thread.on_rejoin = lambda: said.append(app.assignor.read_to)
    assert await looks(service(app), 0, 31, 32) == 1
    assert said == [{A: 10, B: 7}], "before this member joins"


@pytest.mark.parametrize(("ahead", "said"), [("generation", {}), ("rejoin", {A: 10})])
async def test_how_far_was_read_is_of_one_assignment(ahead: str, said: dict[TP, int]) -> None:
    """A new assignment drops the positions; a round that has just begun reports them."""
    app = App({A: 10}, {A: 9})
    app.thread.under_way = ahead == "rejoin"
    app.thread.generation += ahead == "generation"
    assert await looks(service(app), 0, 31, 32) == 0
    assert app.assignor.read_to == said


async def test_a_round_that_could_not_be_asked_for_is_asked_for_at_the_next_look() -> None:
    """The consumer may be restarting, and no other round may come for days."""
    app = App({A: 10}, {A: 9})
    watch = service(app)
    coordinator, app.asked._coordinator = app.asked._coordinator, None
    await looks(watch, 0, 31)
    with pytest.raises(AttributeError):
        await watch.look(32)
    app.asked._coordinator = coordinator
    assert await looks(watch, 33, 34) == 1


async def test_one_that_is_behind_holds_the_round_back() -> None:
    """The round waits until the copy has the end of the last look."""
    app = App({A: 10, B: 500_000}, {A: 9, B: 4})
    watch = service(app)
    assert await looks(watch, 0, 31, 32, 33, 34) == 0
    app.tables.recovery.standby_offsets[B] = 499_999
    assert await looks(watch, 35) == 1


async def test_a_changelog_that_grows_all_the_time_can_be_caught_up_with() -> None:
    """A copy may lag by a single look; a copy that falls back has not caught up."""
    app = App({A: 10}, {A: 0})
    watch = service(app)
    for now in range(31, 40):
        assert await looks(watch, 0 if now == 31 else now) == 0
        app.ends[A] += 100
        app.tables.recovery.standby_offsets[A] += 50
    app.tables.recovery.standby_offsets[A] = app.ends[A] - 101
    await watch.look(40)
    app.ends[A] += 100
    app.tables.recovery.standby_offsets[A] += 100
    assert await looks(watch, 41) == 1


async def test_an_end_that_is_no_record_is_read_when_nothing_waits() -> None:
    """A transaction's marker has an offset, and no reader receives it."""
    app = App({A: 10}, {A: 8})
    watch = service(app)
    assert await looks(watch, 0, 31, 32, 33) == 0
    app.positions[A] = 10
    app.tables.changelog_queue.put_nowait(SimpleNamespace(message=SimpleNamespace(tp=A)))
    assert await looks(watch, 34) == 0
    app.tables.changelog_queue.get_nowait()
    assert await looks(watch, 35) == 1


async def test_records_of_others_that_wait_hold_up_no_end() -> None:
    """A worker with many standbys always has queued records."""
    app = App({A: 10}, {A: None})
    app.positions[A] = 10
    app.tables.changelog_queue.put_nowait(SimpleNamespace(message=SimpleNamespace(tp=B)))
    assert await looks(service(app), 0, 31, 32) == 1


async def test_where_the_consumer_knows_no_position_what_was_applied_counts() -> None:
    """The consumer has no position while it looks up the partition."""
    app = App({A: 10}, {A: 9})
    app.positions[A] = None  # type: ignore[assignment]
    assert await looks(service(app), 0, 31, 32) == 1


@pytest.mark.parametrize("end", [None, 0])
async def test_an_end_that_is_not_known_is_not_reached(end: int | None) -> None:
    """A transactional end is known after the first fetch; an empty changelog is read at once."""
    app = App({A: end}, {A: None})  # type: ignore[dict-item]
    assert await looks(service(app), 0, 31, 32, 33) == (end is not None)


async def test_a_copy_whose_database_may_lack_records_has_not_caught_up() -> None:
    """Its offset counts lost records; the copy is restored first."""
    app = App({A: 10}, {A: 9})
    doubtful = {A}
    app.tables.recovery.is_doubtful = doubtful.__contains__
    watch = service(app)
    assert await looks(watch, 0, 31, 32, 33) == 0
    doubtful.clear()
    assert await looks(watch, 34) == 1


async def test_a_copy_beyond_a_shorter_end_makes_up_for_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No copy lacks fewer than zero records, so the sum never hides a lagging copy."""
    caplog.set_level(logging.INFO)
    app = App({A: 100, B: 10}, {A: 0, B: 4})
    watch = service(app)
    await looks(watch, 0, 60)
    app.ends[A], app.tables.recovery.standby_offsets[A] = 10, 50
    await looks(watch, 61)
    assert watch._behind == 5


async def test_a_refused_request_is_not_repeated_for_the_same_assignment() -> None:
    """A round is already due, and its answer begins the next wait."""
    app = App({A: 1}, {A: 0})
    app.thread.under_way = True
    calls: list[Any] = []
    call = app.thread.call_thread

    async def counted(function: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return await call(function, *arguments)

    app.thread.call_thread = counted  # type: ignore[method-assign]
    assert await looks(service(app), 0, 31, 32, 33, 34) == 0
    assert len(calls) == 1


async def test_a_round_cools_down_whoever_caused_it() -> None:
    """Each assignment starts the time anew."""
    app = App({A: 1}, {A: 0})
    watch = service(app)
    assert await looks(watch, 0, 10, 20, 29) == 0
    app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
    assert await looks(watch, 30, 40, 59) == 0
    assert await looks(watch, 61, 62) == 1


async def test_where_a_log_ended_for_the_last_assignment_is_not_where_it_ends() -> None:
    """The end may be old, and the copy may have started over."""
    app = App({A: 10}, {A: 9})
    watch = service(app)
    assert await looks(watch, 0, 31) == 0
    app.assignor.awaited, app.ends[A] = Awaited(GENERATION, frozenset({A})), 500
    assert await looks(watch, 32, 63, 64) == 0


@pytest.mark.parametrize("busy", ["rebalancing", "recovery", "taking on", "stopping"])
async def test_never_while_there_is_something_under_way(busy: str) -> None:
    """The service waits during a rebalance, a recovery, a partial restore and the worker's stop."""
    app = App({A: 1}, {A: 0})
    watch = service(app)

    def be(state: bool) -> None:
        app.rebalancing = state and busy == "rebalancing"
        app.tables.recovery.in_recovery = state and busy == "recovery"
        app.tables.recovery.is_taking_on = state and busy == "taking on"
        app.should_stop = state and busy == "stopping"

    asked: list[Any] = []

    async def unasked(tps: list[TP]) -> dict[TP, int]:
        asked.append(tps)
        return {}

    be(True)
    ends, app.asked.end_offsets = app.asked.end_offsets, unasked
    assert await looks(watch, 0, 31, 32, 33) == 0
    assert asked == [], "the broker is not asked either"
    be(False)
    app.asked.end_offsets = ends
    assert await looks(watch, 34, 35) == 1


@pytest.mark.parametrize("ahead", ["generation", "rejoin"])
async def test_a_round_that_has_begun_is_not_asked_for_again(ahead: str) -> None:
    """The consumer's thread knows the round first; such a round is not counted."""
    app = App({A: 1}, {A: 0})
    app.thread.under_way = ahead == "rejoin"
    app.thread.generation += ahead == "generation"
    assert await looks(service(app), 0, 31, 32, 33) == 0
    assert not app.assignor.counters


async def test_an_assignment_that_comes_during_a_look_counts() -> None:
    """The result of the look belongs to the former assignment."""
    app = App({A: 1}, {A: 0})
    watch = service(app)
    assert await looks(watch, 0, 31) == 0

    async def meanwhile(tps: list[TP]) -> dict[TP, int]:
        app.assignor.awaited = Awaited(GENERATION + 1, frozenset({A}))
        return {tp: app.ends[tp] for tp in tps}

    app.asked.end_offsets = meanwhile
    assert await looks(watch, 32) == 0


async def test_a_rebalance_that_begins_during_a_look_counts() -> None:
    """The rebalance replaces the request."""
    app = App({A: 1}, {A: 0})
    watch = service(app)
    assert await looks(watch, 0, 31) == 0

    async def meanwhile(tps: list[TP]) -> dict[TP, int]:
        app.rebalancing = True
        return {tp: app.ends[tp] for tp in tps}

    app.asked.end_offsets = meanwhile
    assert await looks(watch, 32) == 0


async def test_nobody_who_awaits_nothing_asks_the_broker() -> None:
    """Nearly all workers await no standby."""
    app = App({}, {})
    app.asked.end_offsets = None  # type: ignore[assignment]
    assert await looks(service(app), 0, 31, 32) == 0


# -- with warm-ups


def warming(app: App, deadline_s: float = 900.0) -> FollowUp:
    """Return the service with warm-ups, not started."""
    app.assignor.overdue = frozenset()
    return FollowUp(app, 30.0, deadline_s=deadline_s)


async def test_those_that_are_done_do_not_wait_for_ever() -> None:
    """The service waits for four cool-downs; the leader holds back lagging copies."""
    app = App({A: 10, B: 500_000}, {A: 9, B: 4})
    watch = warming(app)
    assert await looks(watch, 0, 31, 32, 118, 119) == 0
    assert await looks(watch, 120) == 1
    assert app.assignor.overdue == frozenset()


async def test_a_changelog_that_is_gone_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker reports all other ends; the changelog's copy is overdue after the deadline."""
    monkeypatch.setattr(copy_offsets, "ASK_S", 0.1)
    app = App({A: 10}, {A: 9})
    app.assignor.awaited = Awaited(GENERATION, frozenset({A, B}))
    watch = warming(app, 600.0)
    assert await looks(watch, 0, 31, 119) == 0
    assert await looks(watch, 120) == 1
    assert app.assignor.read_to == {A: 10}
    app.assignor.awaited = Awaited(GENERATION, frozenset({B}))
    assert await looks(watch, 130, 599) == 1
    assert await looks(watch, 600) == 2
    assert app.assignor.overdue == {B}


async def test_a_position_that_is_never_known_ends_with_its_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka waits for ever for a position that cannot be looked up."""
    monkeypatch.setattr(copy_offsets, "ASK_S", 0.1)
    app = App({A: 10, B: 10}, {A: 9, B: 3})
    ended: list[TP] = []

    async def position(tp: TP) -> int:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append(tp)
            raise
        return 10

    app.asked.position = position
    assert await looks(warming(app), 0, 31, 119, 120) == 1
    assert ended == [B, B]


async def test_those_that_are_done_wait_less_where_rounds_stop_nobody() -> None:
    """The service waits for four of the short cool-downs."""
    app = App({A: 10, B: 500_000}, {A: 9, B: 4})
    app.assignor.stops_nobody = True
    assert await looks(FollowUp(app, None, deadline_s=900.0), 0, 6, 18, 19) == 0
    app = App({A: 10, B: 500_000}, {A: 9, B: 4})
    app.assignor.stops_nobody = True
    assert await looks(FollowUp(app, None, deadline_s=900.0), 0, 6, 20) == 1


async def test_logs_of_no_known_group_are_tasks_of_their_own() -> None:
    """Each topic makes its own task."""
    app = App({A: 10, TP("rates", 0): 3}, {A: 9, TP("rates", 0): 0})
    assert app.assignor.awaited.whole(frozenset({A})) == {A}


async def test_a_part_of_a_tasks_state_is_not_what_is_waited_for() -> None:
    """A small changelog of the task catches up first, and a round would move no task."""
    small = TP("rates", 0)
    app = App({A: 10, B: 10, small: 3}, {A: 2, B: 2, small: 2})
    watch = warming(app)
    app.assignor.awaited = Awaited(GENERATION, frozenset({A, B, small}), {"log": 1, "rates": 1})
    assert await looks(watch, 0.0, 31.0, 121.0, 151.0) == 0
    app.tables.recovery.standby_offsets[A] = 9
    assert await looks(watch, 181.0) == 1


async def test_without_warm_ups_one_waits_for_all() -> None:
    """A round would move the lagging standbys, too."""
    app = App({A: 10, B: 500_000}, {A: 9, B: 4})
    assert await looks(service(app), 0, 31, 32, 120, 121, 2000) == 0


async def test_one_that_takes_too_long_is_given_up() -> None:
    """The request reports overdue copies to the leader, even if no copy has caught up."""
    app = App({A: 10}, {A: 0})
    watch = warming(app, 600.0)
    app.assignor.overdue = frozenset({B})
    assert await looks(watch, 0, 31, 599) == 0
    assert await looks(watch, 600) == 1
    assert app.assignor.overdue == {A, B}, "with those of before"


async def test_a_standby_that_was_given_up_is_asked_for_once_it_has_caught_up() -> None:
    """The leader awaits a given-up standby that it keeps in any case; no round helps earlier."""
    app = App({A: 10}, {A: 0})
    watch = warming(app, 100.0)
    assert await looks(watch, 0, 31, 100) == 1
    assert app.assignor.overdue == {A}
    app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
    assert await looks(watch, 110, 171, 999) == 1
    app.tables.recovery.standby_offsets[A] = 9
    assert await looks(watch, 1_000) == 2
    for again in (1_010, 2_010, 3_010):
        app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
        assert await looks(watch, again, again + 970, again + 971) == 2, (
            "the leader does not move it"
        )


async def test_no_copy_is_given_up_while_another_one_comes_closer() -> None:
    """A worker restores two copies at a time, so the others wait for their turn."""
    app = App({A: 10, B: 10}, {A: 0, B: 0})
    watch = warming(app, 100.0)
    assert await looks(watch, 0, 98, 99) == 0
    app.tables.recovery.standby_offsets[B] = 9
    assert await looks(watch, 100, 119) == 0
    assert await looks(watch, 120) == 1, "for the copy that has caught up"
    assert app.assignor.overdue == frozenset()
    app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
    assert await looks(watch, 121, 152, 199) == 1
    assert await looks(watch, 200) == 2
    assert app.assignor.overdue == {A}


@pytest.mark.parametrize("in_batches", [False, True])
async def test_a_copy_that_needs_longer_than_the_deadline_is_not_given_up(in_batches: bool) -> None:
    """A large table is restored for an hour; the offset of a batch is known before its end."""
    app = App({A: 4_000}, {A: 0})
    watch, at = warming(app, 900.0), 0
    if in_batches:
        progress = SimpleNamespace(next_offset=lambda tp: at)
        app.tables.recovery.progress = progress
    for at in range(0, 3_600, 100):
        if not in_batches:
            app.tables.recovery.standby_offsets[A] = at
        await watch.look(float(at))
    assert (app.thread.rejoins, app.assignor.overdue) == (0, frozenset())
    assert await looks(watch, 4_399) == 0
    assert await looks(watch, 4_400) == 1
    assert app.assignor.overdue == {A}, "no progress for 900 s"


async def test_a_deadline_runs_over_rounds() -> None:
    """Other members may cause rounds at any time; a newly awaited copy has its whole time."""
    app = App({A: 10, B: 10}, {A: 0, B: 0})
    watch = warming(app, 100.0)
    app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
    assert await looks(watch, 0, 31) == 0
    app.assignor.awaited = Awaited(GENERATION, frozenset({A, B}))
    assert await looks(watch, 60, 91, 99) == 0
    assert await looks(watch, 101) == 1
    assert app.assignor.overdue == {A}
    for now, awaited in ((110, {A}), (120, {A, B})):
        app.assignor.awaited = Awaited(GENERATION, frozenset(awaited))
        await watch.look(now)
    app.assignor.overdue = frozenset()
    assert await looks(watch, 218, 219) == 2
    assert app.assignor.overdue == {A}, "what was not waited for meanwhile has its whole time"


async def test_a_round_that_changed_nothing_makes_the_next_one_later() -> None:
    """The wait doubles up to a limit and is short again once a different copy is awaited."""
    app = App({A: 1}, {A: 0})
    app.assignor.overdue = frozenset()
    watch = warming(app)
    now, gaps = 0.0, []
    for _ in range(7):
        app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
        app.assignor.overdue = frozenset()
        began, before = now, app.thread.rejoins
        while app.thread.rejoins == before:
            await watch.look(now)
            now += 1
        gaps.append(now - began)
    assert gaps == pytest.approx([32, 62, 122, 242, 482, 962, 962], abs=2)
    app.ends[B], app.tables.recovery.standby_offsets[B], app.positions[B] = 1, 0, 0
    app.assignor.awaited = Awaited(GENERATION, frozenset({B}))
    assert await looks(watch, now, now + 31, now + 32) == 8


async def test_new_standbys_do_not_wait_at_the_pace_of_the_former_ones() -> None:
    """Useless rounds doubled the delay; then the round of another member brings a new standby."""
    app = App({A: 1}, {A: 0})
    watch = warming(app)
    now = 0.0
    for rounds in (1, 2, 3):
        app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
        app.assignor.overdue = frozenset()
        while app.thread.rejoins < rounds:
            await watch.look(now)
            now += 1
    app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
    await watch.look(now)
    app.ends[B], app.tables.recovery.standby_offsets[B], app.positions[B] = 1, 0, 0
    app.assignor.awaited = Awaited(GENERATION, frozenset({B}))
    assert await looks(watch, now + 1, now + 32, now + 33) == 4


async def test_a_round_that_moved_what_was_done_makes_the_next_one_no_later() -> None:
    """Still awaited copies are no sign of a useless round."""
    app = App({A: 10, B: 10}, {A: 9, B: 0})
    watch = warming(app)
    assert await looks(watch, 0, 31, 120) == 1
    app.assignor.awaited = Awaited(GENERATION, frozenset({B}))
    app.tables.recovery.standby_offsets[B] = 9
    assert await looks(watch, 121, 152, 153) == 2


async def test_the_first_of_two_rounds_changes_nothing_of_what_is_waited_for() -> None:
    """The first answer names no awaited copies, whether a look comes in between or not."""
    for looks_between in (False, True):
        app = App({A: 10, B: 10}, {A: 9, B: 0})
        watch = warming(app, 600.0)
        assert await looks(watch, 0, 31, 120) == 1
        app.assignor.awaited = Awaited(GENERATION, follows=True)
        assert await looks(watch, *[121] * looks_between) == 1
        app.assignor.awaited = Awaited(GENERATION, frozenset({B}))
        assert await looks(watch, 122, 153, 599) == 1
        assert await looks(watch, 600) == 2
        assert app.assignor.overdue == {B}


async def test_who_has_caught_up_is_not_late_whatever_came_between() -> None:
    """The first look at an assignment has no end to compare; the second look requests the round."""
    app = App({A: 10, B: 10}, {A: 9, B: 0})
    watch = warming(app, 100.0)
    assert await looks(watch, 0) == 0
    app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
    assert await looks(watch, 99, 130, 131) == 1
    assert app.assignor.overdue == frozenset()


async def test_what_the_leader_never_believes_is_given_up() -> None:
    """A truncated log ends before its owner's offset, so each round would be useless."""
    app = App({A: 10}, {A: 9})
    watch, now = warming(app), 0.0
    while not app.assignor.overdue and now < 4_000:
        before = app.thread.rejoins
        while app.thread.rejoins == before:
            await watch.look(now)
            now += 1
        app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
    assert app.assignor.overdue == {A}
    assert 900 <= now < 1_800


async def test_a_static_member_with_another_capacity_asks_for_one_round() -> None:
    """The member returned without a round; it requests a round once, at rest, without delay."""
    app = App({}, {})
    watch = service(app)
    assert await looks(watch, 0.0, 100.0) == 0
    app.assignor.is_unheard = True
    app.rebalancing = True
    assert await looks(watch, 101.0) == 0
    app.rebalancing = False
    assert await looks(watch, 102.0, 103.0, 200.0) == 1


async def test_a_broker_that_refuses_one_end_hides_no_other() -> None:
    """The refused copy counts as lagging, and no error is raised."""
    app = App({A: 10, B: 5}, {A: 9, B: 4})
    ends = app.end_offsets

    async def refuse(tps: list[TP]) -> dict[TP, int]:
        if tps == [A]:
            raise ConnectionError("refused")
        return await ends(tps)

    app.asked.end_offsets = refuse
    watch = warming(app, 600.0)
    assert await looks(watch, 0, 31, 119) == 0
    assert await looks(watch, 120) == 1
    assert app.assignor.read_to == {B: 5}
    assert await copy_offsets.ends_of(app, [A, B]) == {B: 5}
    assert await copy_offsets.ends_of(app, []) == {}


async def test_copies_are_read_as_far_as_the_best_of_what_is_known() -> None:
    """The recovery's offset counts, or a higher consumer position if no record is queued."""
    c, d = TP("log", 2), TP("log", 3)
    app = App({A: 10, B: 10, c: 10, d: 10}, {A: 4, B: 6, c: None, d: 9})
    app.positions = {A: 8, B: 3, c: 2, d: 50}
    app.tables.changelog_queue.put_nowait(SimpleNamespace(message=SimpleNamespace(tp=c)))
    e = TP("log", 4)
    app.ends[e], app.tables.recovery.standby_offsets[e], app.positions[e] = 10, 1, 6
    assert await copy_offsets.read_to(app, app.ends) == {A: 8, B: 7, c: 0, d: 10, e: 6}
    assert await copy_offsets.read_to(app, {}) == {}


async def test_the_position_of_a_copy_that_is_not_read_yet_does_not_count() -> None:
    """With ``consumer_auto_offset_reset="latest"`` this position is the end of the changelog."""
    app = App({A: 10, B: 10}, {A: None, B: 4})
    app.positions = {A: 10, B: 8}
    app.tables.recovery.standbys = SimpleNamespace(followed={B})
    assert await copy_offsets.read_to(app, app.ends) == {A: 0, B: 8}


def test_partitions_are_claimed_by_topic_in_order() -> None:
    """The order holds for claims of any kind."""
    tps = [TP("b", 2), TP("a", 7), TP("b", 0), TP("a", 3)]
    assert by_topic(tps) == {"a": [3, 7], "b": [0, 2]}


def test_a_task_is_whole_once_all_of_its_changelogs_have_caught_up() -> None:
    """Group and partition number make a task; a changelog without a group is its own task."""
    tps = {name: TP(name[0], int(name[1])) for name in ("a0", "a1", "b0", "b1", "c0")}
    awaited = Awaited(1, frozenset(tps.values()), {"a": 4, "b": 4})
    for done, whole in (
        ("a0 a1 b0 b1 c0", "a0 a1 b0 b1 c0"),
        ("a0 b0 a1", "a0 b0"),
        ("a0 b1 c0", "c0"),
        ("a0", ""),
        ("", ""),
    ):
        found = awaited.whole(frozenset(tps[name] for name in done.split()))
        assert found == {tps[name] for name in whole.split()}


async def test_each_request_that_takes_too_long_ends_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No request outlives its look; answers in time count."""
    monkeypatch.setattr(copy_offsets, "ASK_S", 0.1)
    c = TP("log", 2)
    app, ended = App({A: 10, B: 5, c: 7}, {}), list[TP]()

    async def end_offsets(tps: list[TP]) -> dict[TP, int]:
        if tps != [c]:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.extend(tps)
        return {c: 7}

    app.asked.end_offsets = end_offsets
    assert await copy_offsets.ends_of(app, [A, B, c]) == {c: 7}
    assert sorted(ended) == [A, B]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_stopped_thread_answers_no_request_and_leaves_no_coroutine(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, is_closed: bool
) -> None:
    """Its copies count as lagging after the deadline; the requests were never created."""
    monkeypatch.setattr(copy_offsets, "ASK_S", 0.01)
    app = App({A: 10}, {A: 9})
    app.thread.thread_loop = stopped = asyncio.new_event_loop()
    if is_closed:
        stopped.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await copy_offsets.ends_of(app, [A]) == {}
        assert await copy_offsets.read_to(app, {A: 20}) == {A: 10}
    stopped.close()
    gc.collect()  # may also find what an earlier test has left
    assert [one for one in recwarn if "was never awaited" in str(one.message)] == []


async def test_a_deadline_of_zero_gives_a_copy_up_as_soon_as_it_is_known_to_be_behind() -> None:
    """0 is a deadline and differs from None."""
    app = App({A: 10, B: 5}, {A: 2, B: 4})
    watch = warming(app, 0.0)
    assert await looks(watch, 0, 31) == 0
    assert await looks(watch, 32) == 1
    assert app.assignor.overdue == {A}


async def test_a_cool_down_begins_after_the_round_of_an_unheard_member() -> None:
    """The look that requests the member's round does nothing else."""
    app = App({A: 10}, {A: 9})
    app.assignor.is_unheard = True
    watch = service(app)
    assert await looks(watch, 0.0, 1.0, 30.0, 30.5, 30.9) == 1
    assert await looks(watch, 31.0, 32.0) == 2


async def test_a_round_that_moved_a_part_of_what_was_asked_for_was_not_in_vain() -> None:
    """The rest is requested after the usual time."""
    app = App({A: 10, B: 10}, {A: 9, B: 9})
    watch = warming(app)
    assert await looks(watch, 0, 31, 32) == 1
    app.assignor.awaited = Awaited(GENERATION, frozenset({B}))
    assert await looks(watch, 40, 71, 72) == 2


async def test_what_took_too_long_is_known_when_the_member_joins() -> None:
    """The leader reads the overdue copies in the metadata of the requested round."""
    app = App({A: 10}, {A: 0})
    said: list[Any] = []
    app.thread.on_rejoin = lambda: said.append(app.assignor.overdue)
    assert await looks(warming(app, 100.0), 0, 31, 100) == 1
    assert said == [{A}]


async def test_a_member_that_has_lost_its_generation_asks_for_no_round() -> None:
    """The member joins again anyway; a lower generation than the assignment's shows the loss."""
    app = App({A: 1}, {A: 0})
    app.thread.generation = -1
    assert await looks(service(app), 0, 31, 32, 33) == 0
    assert app.assignor.read_to == {}


# -- partitions that no leader has noticed


async def test_a_round_is_asked_for_if_no_leader_notices_new_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A static leader that restarts leads no more; a leader notices them within five minutes."""
    caplog.set_level(logging.INFO)
    app = App({}, {})
    app.planned = {"orders": 4, "late": 0, "same": 3, "unknown": 2}
    app.counts = {"orders": 6, "late": 1, "same": 3}
    watch = service(app)
    assert await looks(watch, *range(0, 360, 15)) == 0
    assert await looks(watch, 360) == 1
    assert "no leader has noticed it: late, orders" in caplog.messages[-1]
    assert await looks(watch, *range(375, 1_500, 15)) == 1, "once for each count"
    app.counts["same"] = 5
    assert await looks(watch, *range(1_500, 1_860, 15)) == 1
    app.rebalancing = True
    assert await looks(watch, 1_870) == 1
    app.rebalancing = False
    app.thread.under_way = True
    assert await looks(watch, 1_910) == 1, "a round is due anyway"
    app.thread.under_way = False
    assert await looks(watch, 1_940) == 2


async def test_a_topic_that_grows_again_causes_a_request_of_its_own() -> None:
    """No round is requested twice for one count, and the time counts from the change."""
    app = App({}, {})
    app.planned, app.counts = {"orders": 4}, {"orders": 6}
    watch = service(app)
    assert await looks(watch, 0, 360) == 1
    app.counts = {"orders": 8}
    assert await looks(watch, 390, 720) == 1
    assert await looks(watch, 750) == 2


async def test_partitions_that_a_leader_notices_in_time_need_no_request() -> None:
    """The next answer has the new count."""
    app = App({}, {})
    app.planned, app.counts = {"orders": 4}, {"orders": 6}
    watch = service(app)
    assert await looks(watch, 0, 300) == 0
    app.planned = {"orders": 6}
    assert await looks(watch, 330) == 0
    app.planned = {"orders": 4}
    assert await looks(watch, 360, 690) == 0
    assert await looks(watch, 720) == 1
