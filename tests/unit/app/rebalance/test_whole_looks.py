"""Looks at awaited standbys: each line, each delay and each request as a whole."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.rebalance.awaited import Awaited
from faust_assigner.app.rebalance.follow_up import FollowUp
from tests.unit.app.rebalance.test_follow_up import GENERATION, A, App, B, looks, service

SUMS = TP("sums", 0)


async def test_an_error_of_any_kind_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look follows after the same time."""
    watch, acts = service(App({}, {})), list[Any]()

    async def sleep(seconds: float) -> None:
        acts.append(seconds)

    async def look(now: float) -> None:
        acts.append("look")
        if len(acts) == 6:
            watch._stopped.set()
        raise KeyError("a bug")

    monkeypatch.setattr(watch, "sleep", sleep)
    monkeypatch.setattr(watch, "look", look)
    await FollowUp._watch.fun(watch)
    assert acts == [1.0, "look"] * 3


async def test_the_line_counts_each_copy_that_has_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also a copy of a task whose other changelog lags; records that came since do not count."""
    caplog.set_level(logging.INFO)
    app = App({A: 10, B: 8, SUMS: 50}, {A: 9, B: 7, SUMS: 20})
    app.assignor.awaited = Awaited(GENERATION, frozenset(app.ends), {"log": 3, "sums": 3})
    watch = service(app)
    assert await looks(watch, 0, 31) == 0
    app.ends.update({A: 60, B: 9, SUMS: 70})
    assert await looks(watch, 60) == 0
    assert caplog.messages[1:] == [
        "2 of 3 awaited standbys have caught up; the remaining standbys lack 49 records"
    ]


async def test_the_line_comes_a_minute_after_the_assignment_or_the_line_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A round within the minute delays the line, and starts the comparison of ends anew."""
    caplog.set_level(logging.INFO)
    app = App({A: 10, B: 5}, {A: 2, B: 4})
    watch = service(app)
    assert await looks(watch, 0, 31, 50) == 0
    app.assignor.awaited = Awaited(GENERATION, frozenset({A, B}))
    caplog.clear()
    assert await looks(watch, 55, 86, 114) == 0
    assert len(caplog.messages) == 1, "the line about the new assignment"
    assert await looks(watch, 115, 174) == 0
    assert len(caplog.messages) == 2
    assert await looks(watch, 175) == 0
    assert (
        caplog.messages[1:]
        == ["1 of 2 awaited standbys have caught up; the remaining standbys lack 7 records"] * 2
    )


@pytest.mark.parametrize(("refused", "next_s"), [(True, 30.0), (False, 60.0)])
async def test_a_request_that_was_not_made_was_not_in_vain(refused: bool, next_s: float) -> None:
    """A requested round that moved nothing doubles the delay; a round of another cause does not."""
    app = App({A: 10}, {A: 9})
    watch = service(app)
    app.thread.under_way = refused
    assert await looks(watch, 0, 30, 31, 32, 33) == (0 if refused else 1)
    assert app.assignor.counters == ({} if refused else {"follow_ups": 1})
    assert app.assignor.read_to == {A: 10}
    app.thread.under_way, app.thread.rejoins = False, 0
    app.assignor.awaited = Awaited(GENERATION, frozenset({A}))
    assert await looks(watch, 40.0, 40.0 + next_s - 1, 40.0 + next_s - 0.5) == 0
    assert await looks(watch, 40.0 + next_s, 40.0 + next_s + 1) == 1


async def test_a_second_life_of_the_service_waits_as_the_first() -> None:
    """Rounds in vain double the delay up to 32 times; a round that moves a copy resets it."""
    app = App({A: 10, B: 10}, {A: 9, B: 9})
    watch, now, delays = service(app), 0.0, list[float]()
    for _ in range(8):
        before = app.thread.rejoins
        await watch.look(now)
        began = now
        while app.thread.rejoins == before:
            now += 15.0
            await watch.look(now)
            await watch.look(now)
        delays.append(now - began)
        app.assignor.awaited = Awaited(GENERATION, frozenset({A, B}))
    assert delays == [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 960.0, 960.0]
    app.assignor.awaited = Awaited(GENERATION, frozenset({B}))
    assert await looks(watch, now, now + 29, now + 29.5) == 8
    assert await looks(watch, now + 30, now + 31) == 9
    assert asyncio.get_running_loop() is app.thread.thread_loop


async def test_a_part_waits_for_the_rest_as_long_as_the_rounds_in_vain_say() -> None:
    """Four cool-downs, each doubled by a round that moved nothing."""
    app = App({A: 10, B: 10}, {A: 9, B: 9})
    watch = FollowUp(app, 30.0, deadline_s=10_000.0)  # type: ignore[arg-type]
    assert await looks(watch, 0, 30, 31) == 1
    app.ends[B] = 500
    app.assignor.awaited = Awaited(GENERATION, frozenset({A, B}))
    assert await looks(watch, 40, 100, 160, 161, 278, 279) == 1
    assert await looks(watch, 280) == 2
    assert app.assignor.read_to == {A: 10}


async def test_an_assignment_that_awaits_nothing_has_no_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Most assignments are of this kind."""
    caplog.set_level(logging.INFO)
    assert await looks(service(App({}, {})), 0, 31, 62, 93) == 0
    assert caplog.messages == []
