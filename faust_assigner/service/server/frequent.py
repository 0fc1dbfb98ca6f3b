"""Counts an event that may be frequent, so that one log line describes many events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Seconds between two log lines.
QUIET_S: Final = 10.0


class FrequentEvent:
    """An event with a log line in at most every :data:`QUIET_S` seconds. ``clock`` returns seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = -float("inf")
        self._unlogged = 0

    def count(self) -> int:
        """Count an event; return the number of events since the last line, or 0 if no line is due."""
        self._unlogged += 1
        if (now := self._clock()) < self._quiet_until:
            return 0
        number, self._unlogged = self._unlogged, 0
        self._quiet_until = now + QUIET_S
        return number
