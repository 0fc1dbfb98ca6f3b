"""The timers of groups and transactions; each runs only after the requests that have already arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Key = str | tuple[str, str]  # the id of a group, or the pair ("transaction", transactional id)
ServeFirst = Callable[[Callable[[], None]], None]


class GroupTimers:
    """Timers, at most one for each key.

    On a slow broker, sockets hold frames that arrived in time, among them heartbeats of members whose
    session seems to have expired. Timers therefore wait for these frames. Otherwise a rebalance of many
    members on a busy machine would remove members, which would rejoin and cause the next rebalance.
    """

    def __init__(self, clock: Callable[[], int], tick: Callable[[Key], None]) -> None:
        self._clock, self._tick = clock, tick
        self._armed: dict[Key, tuple[int, asyncio.TimerHandle]] = {}
        self._firing: set[Key] = set()  # keys whose due tick waits for arrived requests
        self._waiting: dict[Key, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Calls a function once all arrived requests are served; at once if no server runs.
        self.serve_first: ServeFirst = lambda call: call()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start all timers, including the timers that were set before the call."""
        self._loop = loop
        for key, when in self._waiting.items():
            self.set(key, when)

    def set(self, key: Key, when_ms: int) -> None:
        """Call ``tick`` at ``when_ms`` or earlier; an early tick sets the timer again."""
        if self._loop is None:
            self._waiting[key] = when_ms
            return
        armed = self._armed.get(key)
        if key in self._firing or (armed is not None and armed[0] <= when_ms):
            return
        if armed is not None:
            armed[1].cancel()
        delay = max(when_ms - self._clock(), 0) / 1000
        self._armed[key] = (when_ms, self._loop.call_later(delay, self._fire, key))

    def fire_until(self, now_ms: int, set_clock: Callable[[int], None]) -> None:
        """Fire all timers due by ``now_ms``, each at its own time, for tests with a manual clock."""
        for key in sorted(self._firing, key=str):
            self._served(key)
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
        """Stop all timers."""
        for _, handle in self._armed.values():
            handle.cancel()
        self._armed.clear()
        self._firing.clear()
        self._loop = None

    def _fire(self, key: Key) -> None:
        self._armed.pop(key, None)
        self._firing.add(key)
        self.serve_first(lambda: self._served(key))

    def _served(self, key: Key) -> None:
        if key in self._firing:
            self._firing.discard(key)
            self._tick(key)
