"""Useless follow-up rounds."""

from __future__ import annotations

from faust_assigner.app.rebalance.awaited import Awaited
from tests.unit.app.rebalance.test_follow_up import GENERATION, A, App, B, looks, service, warming


async def test_two_who_ask_in_turn_wait_longer_all_the_same() -> None:
    """A useless round of the other worker does not reset the delay."""
    apps = [App({tp: 1}, {tp: 0}) for tp in (A, B)]
    watches = [warming(app) for app in apps]
    rounds, now = list[float](), 0.0
    while now < 2_000:
        for app, watch in zip(apps, watches, strict=True):
            await watch.look(now)
            now += 0.5
            if app.thread.rejoins:
                app.thread.rejoins = 0
                rounds.append(now)
                for each in apps:
                    each.assignor.awaited = Awaited(GENERATION, each.assignor.awaited.tps)
    assert rounds[0] < 40
    assert len(rounds) < 15


async def test_a_copy_that_could_not_be_written_has_not_caught_up() -> None:
    """Its records are read again once its database is open again."""
    app, full = App({A: 10}, {A: 9}), {A}
    app.tables.recovery.is_doubtful = full.__contains__
    watch = service(app)
    assert await looks(watch, 0, 31, 32, 33) == 0
    full.clear()
    assert await looks(watch, 34) == 1
