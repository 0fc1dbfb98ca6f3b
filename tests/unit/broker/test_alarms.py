"""Alarms of groups: when a group is rung, and when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from faust_assigner.broker.groups.alarms import Alarms


def test_no_second_alarm_is_set_while_a_tick_waits_for_the_frames_that_came() -> None:
    """The tick sets the next alarm; one set before it would ring for what the tick is about to see."""
    ticks: list[str] = []
    waiting: list[Callable[[], None]] = []

    async def story() -> None:
        alarms = Alarms(lambda: 0, ticks.append)
        alarms.hear_first = waiting.append
        alarms.start(asyncio.get_running_loop())
        for _ in range(3):
            alarms.set("g", 0)
            await asyncio.sleep(0.01)
        assert len(waiting) == 1
        waiting[0]()
        alarms.close()

    asyncio.run(story())
    assert ticks == ["g"]
