"""The order in which connections are served: a burst from one or many peers delays no other peer for long.

A connection with a whole frame waits in the lane of that frame's kind. Each turn of the event loop serves
each lane for at most SLICE_S, one frame per connection, in order of arrival. Then the loop reads new bytes.
So the first request of a new client waits for a few slices, regardless of the number of heartbeats.
Heartbeats are served regardless of the amount of produced records.

On a slow machine, frames that arrived in time wait in the lanes. Code that expires their senders by the clock
therefore calls ``after_arrived`` first.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

SLICE_S: Final = 0.0005  # time for each lane in one turn of the loop

QUESTIONS, WORK, BEATS = range(3)  # the lanes, in the order in which a turn serves them
_LANES: Final[Mapping[int, int]] = {
    # records, offsets, and members that join, sync or leave
    **dict.fromkeys((0, 1, 2, 8, 9, 11, 13, 14, 22, 24, 25, 26, 28), WORK),
    **dict.fromkeys((12, 68), BEATS),  # Heartbeat, ConsumerGroupHeartbeat
}


def lane_of(api_key: int) -> int:
    """Return the lane of a request; an unknown API key counts as a question.

    >>> lane_of(18) == QUESTIONS, lane_of(12) == BEATS
    (True, True)
    """
    return _LANES.get(api_key, QUESTIONS)


class ReadyConnection(Protocol):
    """A connection with a frame to serve."""

    def serve_one(self) -> None:
        """Serve one frame; if a further frame is complete, wait for a turn again."""


class _Mark:
    """A position in every lane: calls ``done`` once all lanes have been served up to it."""

    def __init__(self, lanes: int, done: Callable[[], None]) -> None:
        self._lanes, self._done = lanes, done

    def serve_one(self) -> None:
        """Count one lane as served up to this mark."""
        self._lanes -= 1
        if not self._lanes:
            self._done()


class Scheduler:
    """The queues (lanes) of connections that wait to be served; a connection is in at most one lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lanes: tuple[deque[ReadyConnection], ...] = (deque(), deque(), deque())
        self._is_due = False

    def wait(self, connection: ReadyConnection, lane: int) -> None:
        """Serve the connection when its turn in the lane comes. Cost O(1)."""
        self._lanes[lane].append(connection)
        self._come_back()

    def after_arrived(self, call: Callable[[], None]) -> None:
        """Call ``call`` once the frames that have arrived by now, also in sockets, are served.

        Each connection serves at most one frame before the call, which limits the delay. Cost O(1).
        """
        # The next turn of the loop reads the sockets, before the second of these two calls runs.
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
