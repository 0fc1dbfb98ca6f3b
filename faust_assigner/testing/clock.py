"""A clock that a test can stop and move, and an event loop whose timers follow this clock.

>>> clock = Clock()
>>> clock.hold()
>>> before = clock.time()
>>> clock.move(3600)
>>> clock.time() - before
3600.0
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import NamedTuple, TypeAlias, TypeVarTuple

from mode import Service

Ts = TypeVarTuple("Ts")
#: The machine's own functions, whatever a test has patched.
REAL_TIME = time.time
#: A sleep of up to this many seconds is a poll for an external event, which needs real time.
SHORT_S = 0.05
#: A sleep of at least this many seconds ends exactly on time; a shorter sleep may end a step late.
LONG_S = 2.0


class Clock:
    """The time of a test's workers; it advances with the machine's clock until :meth:`hold`."""

    def __init__(self) -> None:
        self._began = REAL_TIME() - time.monotonic()
        self._ahead_s = 0.0
        self._held_at: float | None = None

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic() + self._ahead_s if self._held_at is None else self._held_at

    def time(self) -> float:
        """Return seconds since 1970."""
        return self._began + self.monotonic()

    def move(self, seconds: float) -> None:
        """Advance the clock by ``seconds`` immediately."""
        if self._held_at is None:
            self._ahead_s += seconds
        else:
            self._held_at += seconds

    def hold(self) -> None:
        """Stop the clock; until :meth:`run`, only :meth:`move` advances it."""
        self._held_at = self.monotonic()

    def run(self) -> None:
        """Let the clock advance with the machine's clock again."""
        if self._held_at is not None:
            self._ahead_s, self._held_at = self._held_at - time.monotonic(), None

    @contextlib.contextmanager
    def as_time(self) -> Iterator[None]:
        """Replace the function ``time.time`` of this process by this clock during the block.

        ``datetime.now()`` and ``from time import time`` keep the machine's clock. Timers of
        services use the clock of their event loop.
        """
        defaults, logger = Service.itertimer.__kwdefaults__, logging.getLogger("mode.timers")
        before, measured, level = time.time, defaults["clock"], logger.level
        time.time = self.time
        defaults["clock"] = lambda: asyncio.get_running_loop().time()
        logger.setLevel(logging.ERROR)  # mode would log a late timer after each step of the clock
        try:
            yield
        finally:
            time.time, defaults["clock"] = before, measured
            logger.setLevel(level)


class Alarm(NamedTuple):
    """The next timer of a loop, in ``in_s`` seconds.

    ``is_short`` is True for a short sleep, which is a poll. The next timer of a sleep of at least
    ``LONG_S`` is due in ``long_in_s`` seconds. Both times are infinite without such a timer.
    """

    in_s: float
    is_short: bool
    long_in_s: float


Alarms: TypeAlias = list[tuple[float, int, bool, asyncio.TimerHandle]]


class MovedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time and timers follow a :class:`Clock`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._moved = clock
        #: Seconds by which this loop is ahead of the clock.
        self.extra_s = 0.0
        self._alarms: Alarms = []
        self._long: Alarms = []
        self._count = 0

    def time(self) -> float:
        """Return the clock's time plus ``extra_s``."""
        return self._moved.monotonic() + self.extra_s

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback, and remember its timer for :meth:`next_alarm`."""
        handle = super().call_at(when, callback, *args, context=context)
        self._count += 1
        sleeps_s = when - self.time()
        alarm = when, self._count, sleeps_s <= SHORT_S, handle
        heapq.heappush(self._alarms, alarm)
        if sleeps_s >= LONG_S:
            heapq.heappush(self._long, alarm)
        return handle

    def next_alarm(self) -> Alarm:
        """Return the next timer to fire. Must be called on this loop."""
        now, none = self.time(), (float("inf"), 0, False, None)
        for alarms in (self._alarms, self._long):
            while alarms and (alarms[0][3].cancelled() or alarms[0][0] <= now):
                heapq.heappop(alarms)
        when, _, is_short, _ = self._alarms[0] if self._alarms else none
        later = self._long[0][0] if self._long else none[0]
        return Alarm(when - now, is_short, later - now)
