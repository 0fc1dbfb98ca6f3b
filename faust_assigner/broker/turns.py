"""Whose turn it is on the event loop: a burst of one peer, or of a thousand, holds nobody up.

A connection with a whole frame waits in the lane of that frame's kind. Each turn of the loop serves every
lane for at most a slice of time, one frame per connection, first come first served; then new bytes are read.
So the first question of a new client waits for a few slices however many members beat, and beats go on
however many records are produced.

Where the machine is slow, frames wait here that came in time: who judges their senders by the clock asks for
``after_what_came`` first.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

SLICE_S: Final = 0.0005  # of each lane in one turn of the loop

QUESTIONS, WORK, BEATS = range(3)  # lanes, in the order of a turn
_LANES: Final[Mapping[int, int]] = {
    **dict.fromkeys(
        (0, 1, 2, 8, 9, 11, 13, 14, 22, 24, 25, 26, 28), WORK
    ),  # records, offsets, and members that come and go
    **dict.fromkeys((12, 68), BEATS),  # Heartbeat, ConsumerGroupHeartbeat
}


def lane_of(api_key: int) -> int:
    """The lane of a request; what is no API is as short as a question.

    >>> lane_of(18) == QUESTIONS, lane_of(12) == BEATS
    (True, True)
    """
    return _LANES.get(api_key, QUESTIONS)


class Waiting(Protocol):
    """A connection with a frame to serve."""

    def serve_one(self) -> None:
        """Serve it; where more have come, wait for a turn again."""


class _Mark:
    """A place in a lane: what stands before it is served before it is."""

    def __init__(self, lanes: int, done: Callable[[], None]) -> None:
        self._lanes, self._done = lanes, done

    def serve_one(self) -> None:
        """One lane more has come this far."""
        self._lanes -= 1
        if not self._lanes:
            self._done()


class Turns:
    """Connections that wait, by lane. Each waits in one lane at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lanes: tuple[deque[Waiting], ...] = (deque(), deque(), deque())
        self._is_due = False

    def wait(self, connection: Waiting, lane: int) -> None:
        """Serve the connection when its lane has come to it. Cost O(1)."""
        self._lanes[lane].append(connection)
        self._come_back()

    def after_what_came(self, call: Callable[[], None]) -> None:
        """Call once every connection is served that has a whole frame here by now, or in its socket.

        One frame of each: bounded by the connections, whatever they send. Cost O(1).
        """
        # Bytes that are in sockets now are read in the next turn of the loop, before the second of these.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._mark, call)

    def _mark(self, call: Callable[[], None]) -> None:
        mark = _Mark(len(self._lanes), call)
        for lane in range(len(self._lanes)):
            self.wait(mark, lane)

    def _come_back(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        try:
            for lane in self._lanes:
                end = self._clock() + SLICE_S
                while lane:
                    lane.popleft().serve_one()
                    if self._clock() >= end:
                        break
        finally:
            if any(self._lanes):
                self._come_back()
