"""The turns and pauses of a restore, so that streams get their share of the interpreter.

A restore and the streams of a worker share one interpreter: while the restore's thread computes, a
live record waits. Therefore the restore computes in short turns. It pauses after each turn while
records are being processed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: CPU seconds of one turn: while streams process records, and while they are idle.
LIVE_TURN_S, IDLE_TURN_S = 0.002, 0.05
#: Records of the first turn, the maximum records of a turn, and the maximum growth between turns.
FIRST_RECORDS, MOST_RECORDS, GROWTH = 100, 20_000, 4
#: Seconds after a record during which streams count as busy.
LIVE_S = 1.0


class RestoreThrottle:
    """Limits a restore to turns with pauses in between.

    ``share`` (0 to 1) is the restore's part of a core while ``count()``, the number of live
    records, grows. The first turn measures the cost per record. While the cost stays the same, a
    live record waits for at most ``LIVE_TURN_S`` of the restore's work. ``clock`` is this thread's
    CPU time, ``now`` the elapsed time.
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
        """Begin a turn; return the number of records that the turn may take."""
        if self._record_s is not None:
            turn_s = LIVE_TURN_S if self.is_live() else IDLE_TURN_S
            most = min(MOST_RECORDS, self._records * GROWTH)
            self._records = max(1, min(most, int(turn_s / self._record_s)))
        self._began = self._clock()
        return self._records

    def end(self, records: int) -> float:
        """End a turn of ``records`` records; return the seconds to pause."""
        spent_s = max(0.0, self._clock() - self._began)
        if records:
            # Use the highest recent cost: records cost about the same, and a turn that is too long
            # cannot be shortened afterwards.
            self._record_s = max(spent_s / records, 0.8 * (self._record_s or 0.0), 1e-7)
        return spent_s * (1 / self._share - 1) if self._share < 1 and self.is_live() else 0.0
