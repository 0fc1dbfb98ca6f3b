"""When each group and transaction wants to be rung, on the event loop, once what was said to it is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Key = str | tuple[str, str]  # a group id, or another kind of name and its word
HearFirst = Callable[[Callable[[], None]], None]


class Alarms:
    """One alarm at most for each key.

    A broker that is slow finds frames in its sockets that came in time, and a member whose sign of life is
    among them is not silent. Were that not looked at first, a rebalance of many members on a busy machine
    would throw members out, who join again, which is the next rebalance.
    """

    def __init__(self, clock: Callable[[], int], tick: Callable[[Key], None]) -> None:
        self._clock, self._tick = clock, tick
        self._armed: dict[Key, tuple[int, asyncio.TimerHandle]] = {}
        self._rung: set[Key] = set()  # their tick is on its way, and sets the next alarm
        self._waiting: dict[Key, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Runs something once all that came by now is heard; at once where nobody listens.
        self.hear_first: HearFirst = lambda call: call()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ring from now on; alarms that were set before among them."""
        self._loop = loop
        for key, when in self._waiting.items():
            self.set(key, when)

    def set(self, key: Key, when_ms: int) -> None:
        """Ring at that time or before; an earlier alarm finds nothing due and is set anew."""
        if self._loop is None:
            self._waiting[key] = when_ms
            return
        armed = self._armed.get(key)
        if key in self._rung or (armed is not None and armed[0] <= when_ms):
            return
        if armed is not None:
            armed[1].cancel()
        delay = max(when_ms - self._clock(), 0) / 1000
        self._armed[key] = (when_ms, self._loop.call_later(delay, self._ring, key))

    def ring_until(self, now_ms: int, set_clock: Callable[[int], None]) -> None:
        """Ring what is due up to a time, each alarm at its own: for clocks that do not run by themselves."""
        for key in sorted(self._rung, key=str):
            self._heard(key)
        while self._armed:
            key = min(self._armed, key=lambda key: (self._armed[key][0], str(key)))
            when = self._armed[key][0]
            if when > now_ms:
                break
            set_clock(when)
            self._armed.pop(key)[1].cancel()
            self._tick(key)
        set_clock(now_ms)

    def close(self) -> None:
        """Ring no more."""
        for _, handle in self._armed.values():
            handle.cancel()
        self._armed.clear()
        self._rung.clear()
        self._loop = None

    def _ring(self, key: Key) -> None:
        self._armed.pop(key, None)
        self._rung.add(key)
        self.hear_first(lambda: self._heard(key))

    def _heard(self, key: Key) -> None:
        if key in self._rung:
            self._rung.discard(key)
            self._tick(key)
