"""How much a restore does at a time, and how long it pauses then, so that streams get their share.

A restore and the streams of a worker share one interpreter: while the restore's thread computes, a live
record waits. So it computes in short turns, and pauses after each while records are being processed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds of the processor that one turn takes: beside streams at work, and alone.
LIVE_TURN_S, IDLE_TURN_S = 0.002, 0.05
#: Records of a first turn, and of any; a turn is at most so many times as large as the one before.
FIRST_RECORDS, MOST_RECORDS, GROWTH = 100, 20_000, 4
#: Streams are at work for so long, in seconds, after they got a record.
LIVE_S = 1.0


class Pace:
    """Turns of a restore.

    ``share`` (0 to 1) is what it takes of a core while ``count()``, of live records, grows. With costs that
    stay the same a live record waits for no more than ``LIVE_TURN_S`` of the restore's work, once the first
    turn has told them. ``clock`` is the time spent in this thread, ``now`` the time that passes.
    """

    def __init__(
        self,
        share: float = 1.0,
        count: Callable[[], int] = lambda: 0,
        *,
        clock: Callable[[], float] = time.thread_time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share, self._count, self._clock, self._now = share, count, clock, now
        self._counted, self._live_until = count(), float("-inf")
        self._record_s: float | None = None
        self._records = FIRST_RECORDS
        self._began = clock()

    def is_live(self) -> bool:
        """Whether streams got a record within the last second."""
        counted, now = self._count(), self._now()
        if counted != self._counted:
            self._counted, self._live_until = counted, now + LIVE_S
        return now < self._live_until

    def begin(self) -> int:
        """A turn begins; returns how many records it may take."""
        if self._record_s is not None:
            turn_s = LIVE_TURN_S if self.is_live() else IDLE_TURN_S
            most = min(MOST_RECORDS, self._records * GROWTH)
            self._records = max(1, min(most, int(turn_s / self._record_s)))
        self._began = self._clock()
        return self._records

    def end(self, records: int) -> float:
        """The turn is over and took ``records``; returns the seconds to pause for."""
        spent_s = max(0.0, self._clock() - self._began)
        if records:
            # The dearest one lately: records are of a kind, and a turn that is too long cannot be taken back.
            self._record_s = max(spent_s / records, 0.8 * (self._record_s or 0.0), 1e-7)
        return spent_s * (1 / self._share - 1) if self._share < 1 and self.is_live() else 0.0
