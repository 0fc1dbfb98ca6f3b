"""The end of a member's share while something else ends the member, too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.clients import Share
from tests.unit.clients.test_member import (
    REBALANCE,
    Coordinator,
    Diary,
    a_member,
    coordinator,
    play,
)

__all__ = ["coordinator"]


class Lingers(Diary):
    """Work whose end takes seconds, and may fail."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        super().__init__()
        self.seconds, self.error = seconds, error

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """Note the begin and the end of the call."""
        self.note("begins to end")
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.note("cancelled")
            raise
        self.note("lost" if lost else "revoked")
        if self.error is not None:
            raise self.error


def asked(coordinator: Coordinator, *names: str) -> list[str]:
    """Return the requests of these names, in order."""
    return [what for _, what in coordinator.asked if what in names]


def test_a_stop_during_the_end_of_a_share_waits_for_that_end(coordinator: Coordinator) -> None:
    """The share ends once, its callback is not cancelled, and the member leaves after it."""
    work = Lingers(5.0)
    left_at: list[float] = []

    async def story() -> None:
        member: Any = a_member(work)
        leave = member._exchange.leave

        async def left() -> None:
            left_at.append(asyncio.get_running_loop().time())
            await leave()

        member._exchange.leave = left
        await member.start()
        await asyncio.sleep(1.0)
        coordinator.beat = lambda: REBALANCE
        while work.told[-1][1] != "begins to end":
            await asyncio.sleep(0.25)
        coordinator.beat = lambda: 0
        await member.stop()
        assert (member.share, member._ending) == (None, None)
        await member.stop()

    play(story())
    assert [what for _, what in work.told] == ["assigned", "begins to end", "revoked"]
    assert left_at[0] == work.told[-1][0]
    assert asked(coordinator, "JoinGroup", "LeaveGroup") == ["JoinGroup", "LeaveGroup"]


@pytest.mark.parametrize("times", [1, 2])
def test_the_error_of_an_end_is_raised_once(coordinator: Coordinator, times: int) -> None:
    """A second stop has nothing left to end."""
    work = Lingers(2.0, OSError("no room"))

    async def story() -> None:
        member: Any = a_member(work)
        await member.start()
        await asyncio.sleep(1.0)
        with pytest.raises(OSError, match="no room"):
            await member.stop()
        for _ in range(times - 1):
            await member.stop()
        assert (member.share, member._running, member._ending) == (None, None, None)

    play(story())
    assert [what for _, what in work.told] == ["assigned", "begins to end", "revoked"]
    assert asked(coordinator, "LeaveGroup") == ["LeaveGroup"]


def test_two_stops_at_once_wait_for_the_same_end(coordinator: Coordinator) -> None:
    """Neither returns before the callback has."""
    work = Lingers(4.0)
    returned: list[float] = []

    async def story() -> None:
        member = a_member(work)
        await member.start()
        await asyncio.sleep(1.0)

        async def stopped() -> None:
            await member.stop()
            returned.append(asyncio.get_running_loop().time())

        first = asyncio.create_task(stopped())
        await asyncio.sleep(1.0)
        second = asyncio.create_task(stopped())
        await asyncio.gather(first, second)

    play(story())
    assert [what for _, what in work.told] == ["assigned", "begins to end", "revoked"]
    assert len(returned) == 2
    assert min(returned) >= work.told[-1][0]
