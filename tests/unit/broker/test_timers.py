"""Alarms of groups: when a group's tick runs, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from faust_assigner.broker.groups.timers import GroupTimers


def test_no_second_alarm_is_set_while_a_tick_waits_for_the_frames_that_came() -> None:
    """The tick sets the next alarm; an earlier alarm would fire for already handled events."""
    ticks: list[str] = []
    waiting: list[Callable[[], None]] = []

    async def story() -> None:
        alarms = GroupTimers(lambda: 0, ticks.append)
        alarms.serve_first = waiting.append
        alarms.start(asyncio.get_running_loop())
        for _ in range(3):
            alarms.set("g", 0)
            await asyncio.sleep(0.01)
        assert len(waiting) == 1
        waiting[0]()
        alarms.close()

    asyncio.run(story())
    assert ticks == ["g"]


def rung(*times_ms: int) -> list[str]:
    """Set a group's alarm to these times at 0; return the ticks until 1,000 s."""
    ticks: list[str] = []
    now = [0]

    async def story() -> None:
        alarms = GroupTimers(
            lambda: now[0], lambda group_id: ticks.append(f"{group_id} at {now[0]}")
        )
        alarms.start(asyncio.get_running_loop())
        for when in times_ms:
            alarms.set("g", when)
        alarms.fire_until(10**6, lambda when: now.__setitem__(0, when))
        alarms.close()

    asyncio.run(story())
    return ticks


def test_of_two_alarms_the_earlier_one_rings() -> None:
    """The order of the calls does not matter; the tick sets the later alarm again."""
    assert rung(5_000, 9_000) == rung(9_000, 5_000) == ["g at 5000"]


def test_a_later_alarm_is_cancelled_by_the_earlier_one() -> None:
    """Otherwise the group would tick without cause after every change of its deadline."""
    ticks: list[str] = []

    async def story() -> None:
        alarms = GroupTimers(lambda: 0, ticks.append)
        alarms.start(asyncio.get_running_loop())
        alarms.set("g", 40)
        alarms.set("g", 10)
        await asyncio.sleep(0.2)
        alarms.close()

    asyncio.run(story())
    assert ticks == ["g"]


def test_a_tick_sets_the_next_alarm() -> None:
    """The alarm is active by then: no tick blocks the alarm of its own group."""
    ticks: list[str] = []

    async def story() -> None:
        def tick(group_id: str) -> None:
            ticks.append(group_id)
            if len(ticks) < 3:
                alarms.set(group_id, 0)

        alarms = GroupTimers(lambda: 0, tick)
        alarms.start(asyncio.get_running_loop())
        alarms.set("g", 0)
        await asyncio.sleep(0.2)
        alarms.close()

    asyncio.run(story())
    assert len(ticks) == 3
