"""The timers of groups and transactions; each runs only after the requests that have already arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Key = str | tuple[str, str]  # a group id, or the kind of another name and the name
HearFirst = Callable[[Callable[[], None]], None]


class Alarms:
    """The alarms, at most one for each key.

    On a slow broker, sockets hold frames that arrived in time, among them heartbeats of members whose
    session seems to have expired. Alarms therefore wait for these frames. Otherwise a rebalance of many
    members on a busy machine would remove members, which would rejoin and cause the next rebalance.
    """

    def __init__(self, clock: Callable[[], int], tick: Callable[[Key], None]) -> None:
        self._clock, self._tick = clock, tick
        self._armed: dict[Key, tuple[int, asyncio.TimerHandle]] = {}
        self._rung: set[Key] = set()  # keys with a tick in progress, which sets the next alarm
        self._waiting: dict[Key, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Calls a function once all arrived requests are served; at once if no server runs.
        self.hear_first: HearFirst = lambda call: call()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start all alarms, including those that were set before."""
        self._loop = loop
        for key, when in self._waiting.items():
            self.set(key, when)

    def set(self, key: Key, when_ms: int) -> None:
        """Ring at ``when_ms`` or earlier; an earlier tick finds nothing due and sets the alarm again."""
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
        """Ring all alarms due by ``now_ms``, each at its own time: for clocks that are set by hand."""
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
        """Stop all alarms."""
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
