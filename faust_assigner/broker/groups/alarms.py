"""When each group wants to be rung, on the event loop; a group is rung once what was said to it is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

HearFirst = Callable[[Callable[[], None]], None]


class Alarms:
    """One alarm at most for each group.

    A broker that is slow finds frames in its sockets that came in time, and a member whose sign of life is
    among them is not silent. Were that not looked at first, a rebalance of many members on a busy machine
    would throw members out, who join again, which is the next rebalance.
    """

    def __init__(self, clock: Callable[[], int], tick: Callable[[str], None]) -> None:
        self._clock, self._tick = clock, tick
        self._armed: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._rung: set[str] = set()  # their tick is on its way, and sets the next alarm
        self._waiting: dict[str, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Runs something once all that came by now is heard; at once where nobody listens.
        self.hear_first: HearFirst = lambda call: call()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ring from now on; alarms that were set before among them."""
        self._loop = loop
        for group_id, when in self._waiting.items():
            self.set(group_id, when)

    def set(self, group_id: str, when_ms: int) -> None:
        """Ring at that time or before; an earlier alarm finds nothing due and is set anew."""
        if self._loop is None:
            self._waiting[group_id] = when_ms
            return
        armed = self._armed.get(group_id)
        if group_id in self._rung or (armed is not None and armed[0] <= when_ms):
            return
        if armed is not None:
            armed[1].cancel()
        delay = max(when_ms - self._clock(), 0) / 1000
        self._armed[group_id] = (when_ms, self._loop.call_later(delay, self._ring, group_id))

    def ring_until(self, now_ms: int, set_clock: Callable[[int], None]) -> None:
        """Ring what is due up to a time, each alarm at its own: for clocks that do not run by themselves."""
        for group_id in sorted(self._rung):
            self._heard(group_id)
        while self._armed:
            when, group_id = min((when, group_id) for group_id, (when, _) in self._armed.items())
            if when > now_ms:
                break
            set_clock(when)
            self._armed.pop(group_id)[1].cancel()
            self._tick(group_id)
        set_clock(now_ms)

    def close(self) -> None:
        """Ring no more."""
        for _, handle in self._armed.values():
            handle.cancel()
        self._armed.clear()
        self._rung.clear()
        self._loop = None

    def _ring(self, group_id: str) -> None:
        self._armed.pop(group_id, None)
        self._rung.add(group_id)
        self.hear_first(lambda: self._heard(group_id))

    def _heard(self, group_id: str) -> None:
        if group_id in self._rung:
            self._rung.discard(group_id)
            self._tick(group_id)
